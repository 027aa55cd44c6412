"""Every mistake a user can make: one sentence with parameter, rule and value, and nothing half-written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import chary
from chary import CharyError, CharyUCBVI, FiniteMDP, Setting, TabularAgent, Transition
from chary.cli import main
from chary.envs import TabularEnv

RUN = ("run", "riverswim", "--episodes", "2", "--warmup", "2")

# Arguments after RUN, and what the sentence must say.
MISTAKES: list[tuple[str, str]] = [
    ("--eta -1", r"'eta' must lie in \[0, inf\], got -1"),
    ("--eta nan", r"'eta' must lie in \[0, inf\], got nan"),
    ("--eta much", r"'--eta': must be a number, got 'much'"),
    ("--delta 0", r"'delta' must lie in \(0, 1\), got 0"),
    ("--delta 1", r"'delta' must lie in \(0, 1\), got 1"),
    ("--delta nan", r"'delta' must lie in \(0, 1\), got nan"),
    ("--bonus hoeffding --bonus-scale 0", r"'bonus_scale' must lie in \(0, inf\), got 0"),
    ("--bonus hoeffding --bonus-scale -2", r"'bonus_scale' must lie in \(0, inf\), got -2"),
    ("--bonus hoeffding --bonus-scale inf", r"'bonus_scale' must lie in \(0, inf\), got inf"),
    ("--bonus kl --bonus-scale 0.5", r"'bonus_scale' must be 1 with bonus 'kl'.* got 0\.5"),
    ("--pool 0", r"'pool' must be a whole number >= 1, got 0"),
    ("--pool 1.5", r"'--pool': must be a whole number, got '1\.5'"),
    ("--horizon 0", r"'horizon' must be a whole number >= 1, got 0"),
    ("--horizon -3", r"'horizon' must be a whole number >= 1, got -3"),
    ("--warmup -1", r"'warmup' must be a whole number >= 0, got -1"),
    ("--patience -1", r"'patience' must be a whole number >= 0, got -1"),
    ("--seed -1", r"'seed' must be a whole number >= 0, got -1"),
    ("--episodes 0", r"'episodes' must be a whole number >= 1, got 0"),
    ("--episodes -5", r"'episodes' must be a whole number >= 1, got -5"),
    ("--episodes few", r"'--episodes': must be a whole number, got 'few'"),
    ("--rule capped", r"'step_bound' must be given with rule 'capped', got None"),
    ("--rule capped --step-bound 0", r"'step_bound' must lie in \(0, inf\], got 0"),
    ("--rule capped --step-bound nan", r"'step_bound' must lie in \(0, inf\], got nan"),
    ("--rule strict --step-bound 0.1", r"'step_bound' belongs to rule 'capped' alone, got 0\.1"),
    ("--rule strickt", r"'rule' must be one of .* got 'strickt'\. Did you mean 'strict'\?"),
    ("--agent chari", r"'agent' must be one of .* got 'chari'\. Did you mean 'chary'\?"),
    ("--charge copled", r"'charge' must be one of .* Did you mean 'coupled'\?"),
    ("--clock episod", r"'clock' must be one of .* Did you mean 'episode'\?"),
    ("--data al", r"'data' must be one of .* Did you mean 'all'\?"),
    ("--chains maybe", r"'chains' must be one of on, off, got 'maybe'"),
    ("--after-refusal paus", r"'after_refusal' must be one of .* Did you mean 'pause'\?"),
    ("--bonus bernstien", r"'bonus' must be one of .* Did you mean 'bernstein'\?"),
    ("--reward unknown", r"'reward' must be one of .* got 'unknown'\. Did you mean 'known'\?"),
    ("--coverage playd", r"'coverage' must be one of .* Did you mean 'played'\?"),
    ("--driver steps", r"'driver' must be one of .* Did you mean 'step'\?"),
    ("--bonus ch", r"'bonus' 'ch' belongs to agent 'ucbvi' alone, got agent 'chary'"),
    ("--agent ucbvi --rule paper", r"'rule' is not an option of agent 'ucbvi', got 'paper'"),
    ("--agent baseline --pool 3", r"'pool' is not an option of agent 'baseline', got 3"),
    ("--agent random --alpha 0.1", r"'alpha' is not an option of agent 'random', got 0\.1"),
    ("--agent cucbvi --alpha 2", r"'alpha' must lie in \[0, 1\], got 2"),
    ("--agent stepmix --baseline-value told", r"'baseline_value' must be one of .* got 'told'"),
    ("--chains off --after-refusal pause", r"'after_refusal' must be 'close' with chains off, got 'pause'"),
    ("--actions admissible", r"'actions' must be 'all' for 'riverswim'.* got 'admissible'"),
    ("--actions some", r"'actions' must be one of admissible, all, got 'some'"),
    ("--prior recorded", r"'prior' can be 'recorded' only where .* got problem 'riverswim'"),
    ("--prior policy.txt", r"'prior' must be recorded, none, or a .npy or .csv file .* got 'policy\.txt'"),
    ("--prior nowhere.npy", r"'prior' must be .* got 'nowhere\.npy': No such file or directory"),
    ("--episode", r"[Nn]o such option:? '?--episode"),
    ("--eta", r"--eta.* requires an argument"),
]

OTHER_COMMANDS: list[tuple[str, str]] = [
    ("run inventori", r"'problem' must be one of .* got 'inventori'\. Did you mean 'inventory'\?"),
    ("run", r"Missing argument '?(PROBLEM|problem)'?"),
    ("run inventory --actions all", r"'actions' must be 'admissible' for 'inventory'.* got 'all'"),
    ("run sepsis --charge difference", r"'charge' can be 'difference' up to 128 states, got 716"),
    ("rum riverswim", r"[Nn]o such command '?rum'?"),
    ("--log-level loud problems", r"'log_level' must be one of .* got 'loud'"),
    ("check riverswim --eta -1", r"'eta' must lie in \[0, inf\], got -1"),
    ("check riverswim --eta nan", r"'eta' must lie in \[0, inf\], got nan"),
    ("check riverswim --step-bound nan", r"'step_bound' must lie in .* got nan"),
    ("check riversim --eta 1", r"Did you mean 'riverswim'\?"),
    ("calibrate riversim", r"Did you mean 'riverswim'\?"),
    ("calibrate riverswim --bonus kl", r"'bonus' must be one of hoeffding, bernstein, got 'kl'"),
    ("calibrate riverswim --runs 0", r"'runs' must be a whole number >= 1, got 0"),
    ("calibrate riverswim --runs 20", r"'runs' must be at least 29 with delta 0\.1, .* got 20"),
    ("calibrate riverswim --minutes 0", r"'minutes' must lie in \(0, inf\], got 0"),
    ("calibrate riverswim --eta inf", r"'eta' must be finite to calibrate for it, got inf"),
    ("calibrate riverswim --workers 0", r"'workers' must be a whole number >= 1, got 0"),
    ("calibrate riverswim --precision 1", r"'precision' must lie in \(1, inf\), got 1"),
    ("calibrate riverswim --delta 2", r"'delta' must lie in \(0, 1\), got 2"),
    ("demo --episodes 0", r"'episodes' must be a whole number >= 1, got 0"),
    ("demo --seed -1", r"'seed' must be a whole number >= 0, got -1"),
]


def refused(arguments: tuple[str, ...], pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    assert left.value.code == 2, err
    assert out == ""
    assert err.startswith("chary: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert re.search(pattern, err), err


@pytest.mark.parametrize(("options", "pattern"), MISTAKES)
def test_a_wrong_option_is_refused_and_nothing_written(
    options: str, pattern: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    refused((*RUN, "--out", str(out), *options.split()), pattern, capsys)
    assert not out.exists()


@pytest.mark.parametrize(("arguments", "pattern"), OTHER_COMMANDS)
def test_a_wrong_command_is_refused(
    arguments: str,
    pattern: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(tuple(arguments.split()), pattern, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [RUN, ("demo", "--episodes", "1")])
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_run(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for place in (file, file / "below", Path("/proc/chary")):
        refused((*command, "--out", str(place)), rf"'out' must be a folder .* got '{place}'", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "kept"


def test_a_prior_that_plays_a_disallowed_action_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "greedy.npy", np.full(6, 5))
    arguments = ("run", "inventory", "--episodes", "2", "--prior", str(tmp_path / "greedy.npy"))
    refused(arguments, r"'prior' must play allowed actions only, got action 5 in state 1", capsys)


@pytest.mark.parametrize(
    "content", ["", "1\nx\n", "1,2\n3\n", "0.5\n" * 6, "0\n" * 5, "-1\n" * 6, "nan\n" * 6]
)
def test_a_prior_file_with_anything_else_in_it_is_refused(
    content: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prior.csv").write_text(content)
    refused((*RUN, "--prior", str(tmp_path / "prior.csv")), "'prior' must", capsys)


# What no command line takes: MDPs, and the step API.

EVEN = np.full((2, 2, 2), 0.5)
NOTHING = np.zeros((2, 2))
NO_MDP: Any = "inventory"


def arrays(P: Any = EVEN, R: Any = NOTHING, **options: Any) -> FiniteMDP:
    return FiniteMDP.from_arrays(P, R, **{"horizon": 3, **options})


def changed(value: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    P = EVEN.copy()
    P[1, 0, 1] = value
    return P


def twice() -> sparse.coo_array:
    rows, columns = [0, 0, 0, 1, 2, 3], [0, 1, 1, 0, 0, 0]
    return sparse.coo_array(([0.5, 0.25, 0.25, 1, 1, 1], (rows, columns)), shape=(4, 2))


@pytest.mark.parametrize(
    ("build", "pattern"),
    [
        (lambda: arrays(changed(0.4)), r"'P' must have rows that sum to 1, got 0\.9 "),
        (lambda: arrays(changed(-0.5)), r"'P' must contain probabilities >= 0, got -0\.5"),
        (lambda: arrays(changed(float("nan"))), r"'P' must be finite, got nan"),
        (lambda: arrays(R=[[0, 2], [0, 0]]), r"'R' must lie in \[0, 1\], got 2"),
        (lambda: arrays(R=[[0, np.inf], [0, 0]]), r"'R' must be finite, got inf"),
        (lambda: arrays(horizon=0), r"'horizon' must be a whole number >= 1, got 0"),
        (lambda: arrays(allowed=[[1, 1], [0, 0]]), r"'allowed' must leave .* got 0 in state 1"),
        (lambda: arrays(terminal=[1], start=1), r"'start' must not be a terminal state, got state 1"),
        (lambda: arrays(recorded_policy=[0, 7]), r"'recorded_policy' must .* got .*7"),
        (lambda: arrays(terminal=[1], reward_range=(-1, 1)), r"'reward_range' must start at 0 .* got -1"),
        (
            lambda: FiniteMDP.from_sparse(twice(), NOTHING, horizon=3),
            r"'P' must list a successor once, got successor 1 twice",
        ),
        (
            lambda: chary.simulate(NO_MDP, chary.UCBVI(), episodes=1),
            r"'mdp' must be a FiniteMDP, got str",
        ),
        (
            lambda: chary.simulate(arrays(value_cap=0.1, R=NOTHING + 1), chary.UCBVI(), episodes=1),
            r"'value_cap' must bound the optimal value, which reaches 3, got 0\.1",
        ),
    ],
)
def test_an_mdp_with_a_mistake_is_refused(build: Callable[[], object], pattern: str) -> None:
    with pytest.raises(CharyError, match=pattern) as refusal:
        build()
    assert "\n" not in str(refusal.value)


def agent(*, begun: bool = False) -> TabularAgent:
    setting = Setting.declare(n_states=2, n_actions=2, horizon=2, allowed=[[1, 1], [1, 0]])
    made = TabularAgent(CharyUCBVI(eta=0.5), setting)
    if begun:
        made.begin(0, 0)
    return made


def acted() -> TabularAgent:
    made = agent(begun=True)
    made.act(0, 0, 0)
    return made


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda: agent().act(0, 0, 0), r"'act' must name an open episode, got 0"),
        (lambda: agent().finish(0), r"'finish' must name an open episode, got 0"),
        (lambda: agent(begun=True).begin(0, 0), r"'begin' must open a new episode, got 0"),
        (lambda: agent(begun=True).act(0, 1, 0), r"'t' must be the next step .* got 1"),
        (lambda: acted().act(0, 0, 1), r"'state' must be the one decided in, 0, got 1"),
        (lambda: acted().act(0, 2, 0), r"'t' must be .* got 2"),
        (lambda: agent().begin(0, 2), r"'state' must lie in 0\.\.1, got 2"),
        (lambda: agent().begin(0, -1), r"'state' must lie in 0\.\.1, got -1"),
        (lambda: acted().observe(0, Transition(0, 0, 0.0, 9, False)), r"'next_state' must .* got 9"),
        (
            lambda: acted().observe(0, Transition(0, 1, 0.0, 0, False)),
            r"'action' must be the one decided, 0, got 1",
        ),
        (
            lambda: acted().observe(0, Transition(1, 1, 0.0, 0, False)),
            r"'action' must be allowed in state 1, got 1",
        ),
        (
            lambda: acted().observe(0, Transition(0, 0, 3.0, 0, False)),
            r"'reward' must lie in \[0, 1\], got 3",
        ),
        (lambda: TabularEnv(arrays()).step(np.int64(0)), r"'step' must follow 'reset'"),
    ],
)
def test_a_call_out_of_order_or_with_foreign_data_is_refused(
    call: Callable[[], object], pattern: str
) -> None:
    with pytest.raises(CharyError, match=pattern) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_a_disallowed_action_handed_to_an_environment_changes_nothing() -> None:
    env = TabularEnv(arrays(allowed=[[1, 0], [1, 1]]))
    state, _ = env.reset(seed=0)
    for action, pattern in (
        (1, r"'action' must be allowed in state 0 \(0\), got 1"),
        (7, r"0\.\.1, got .*7"),
    ):
        with pytest.raises(CharyError, match=pattern):
            env.step(np.int64(action))
    assert state == 0
    assert env.step(np.int64(0))[2] is False
