"""Absurd sizes are refused in a sentence, before anything of that size is made."""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sweeps import SMALL, chary

from chary import CharyUCBVI, Setting
from chary._workers import worker_pool
from chary.errors import MOST_RUNS, InvalidMDP, InvalidSetting
from chary.mdp.setting import RewardScale
from chary.sweeps.engines.local import LocalEngine
from chary.sweeps.toml import parse_experiment

HUGE = 10**18
LOG = Path(__file__).parents[2] / "examples" / "data" / "sales.csv"
BYTES = 64 << 20

CASES = {
    "run episodes": ("run", "riverswim", "--episodes", HUGE),
    "run 10**15 episodes": ("run", "riverswim", "--episodes", 10**15),
    "run warmup": ("run", "riverswim", "--warmup", HUGE),
    "run horizon": ("run", "riverswim", "--horizon", HUGE),
    "run worlds": ("run", "riverswim", "--bonus", "posterior", "--worlds", HUGE),
    "check horizon": ("check", "riverswim", "--horizon", HUGE),
    "calibrate runs": ("calibrate", "riverswim", "--runs", HUGE),
    "calibrate workers": ("calibrate", "riverswim", "--workers", HUGE),
    "calibrate episodes": ("calibrate", "riverswim", "--episodes", HUGE),
    "calibrate warmup": ("calibrate", "riverswim", "--warmup", HUGE),
    "calibrate risk runs": ("calibrate", "riverswim", "--bonus", "posterior", "--runs", HUGE),
    "calibrate risk workers": ("calibrate", "riverswim", "--bonus", "posterior", "--workers", HUGE),
    "calibrate risk episodes": ("calibrate", "riverswim", "--bonus", "posterior", "--episodes", HUGE),
    "calibrate risk warmup": ("calibrate", "riverswim", "--bonus", "posterior", "--warmup", HUGE),
    "bench episodes": ("bench", "riverswim", "--episodes", HUGE),
    "bench repeats": ("bench", "riverswim", "--repeats", HUGE),
    "demo episodes": ("demo", "--episodes", HUGE),
    "sweep seeds": ("sweep", "SWEEP", "--seeds", HUGE),
    "sweep a million seeds": ("sweep", "SWEEP", "--seeds", 1_000_000),
    "sweep episodes": ("sweep", "SWEEP", "--episodes", HUGE),
    "sweep workers": ("sweep", "SWEEP", "--workers", HUGE),
    "plan states": ("plan", LOG, "--eta", 1, "--n-states", HUGE),
    "plan actions": ("plan", LOG, "--eta", 1, "--n-actions", HUGE),
    "plan horizon": ("plan", LOG, "--eta", 1, "--horizon", HUGE),
    "plan visits": ("plan", LOG, "--eta", 1, "--more-visits", HUGE),
}


@pytest.fixture
def limited() -> Iterator[None]:
    """Let this process take no more than eight GiB of address space besides what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("case", CASES)
def test_a_size_that_no_machine_has_is_refused(case: str, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    words = [file if word == "SWEEP" else word for word in CASES[case]]
    if words[0] in ("sweep", "demo"):
        words += ["--out", tmp_path / "out"]
    tracemalloc.start()
    answer = chary(*words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.count("\n") == 1
    assert "must" in answer.stderr
    assert peak < BYTES
    assert not (tmp_path / "out").exists()


def test_an_experiment_counts_its_runs_before_it_lists_them() -> None:
    # Each number of seeds is allowed, and the runs are too many.
    experiment = parse_experiment(SMALL).changed(seeds=MOST_RUNS)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"at most {MOST_RUNS} runs, got {5 * MOST_RUNS}"):
        experiment.plan()
    assert tracemalloc.get_traced_memory()[1] < BYTES
    tracemalloc.stop()
    assert len(parse_experiment(SMALL).plan()) == 5 * 2


def test_there_are_no_more_workers_than_the_machine_has_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chary._workers.machine_memory", lambda: 8 << 30)
    monkeypatch.setattr("chary._workers.usable_cores", lambda: 2)
    assert LocalEngine(32).workers == 32
    for start in (LocalEngine, worker_pool):
        for workers in (33, HUGE, 0):
            with pytest.raises(InvalidSetting, match=r"'workers' must .* Each takes 256 MiB of memory"):
                start(workers)


def test_chains_take_room_for_the_episodes_and_not_for_the_pool() -> None:
    from chary import envs, simulate

    run = simulate(envs.riverswim(), CharyUCBVI(eta=0.3, pool=HUGE), episodes=2, warmup=2)
    assert len(run.regret) == 2


@pytest.mark.parametrize("scale", [(-1e308, 1e308), (-float("inf"), 0.0), (0.0, float("inf"))])
def test_rewards_have_a_finite_span(scale: tuple[float, float]) -> None:
    with pytest.raises(InvalidMDP, match="'reward_range' must"):
        RewardScale.of(scale)
    with pytest.raises(InvalidMDP, match="'reward_range' must"):
        Setting.declare(n_states=2, n_actions=2, horizon=2, scale=RewardScale(*scale))
