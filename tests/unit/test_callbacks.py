"""Callbacks: told of everything, in order, and never able to change or break what they are told of."""

from __future__ import annotations

import csv
import logging
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.test_own_agents import Dice
from tests.sweeps import chary as chary_cli

import chary
from chary.callbacks import Callback, Told, play
from chary.callbacks.live import WithCallbacks
from chary.callbacks.loggers import CSVLogger, MLflowLogger, TensorBoardLogger, WandBLogger, logger_in
from chary.errors import CharyError, OutOfOrder
from chary.simulation import Simulation
from chary.simulation.run import EPISODE_COLUMNS

SPEC: dict[str, Any] = {"bonus": "hoeffding", "bonus_scale": 0.002}


class Collects(Callback):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.episodes: list[tuple[int, dict[str, float]]] = []
        self.plans: list[tuple[int, dict[str, float]]] = []
        self.warnings: list[str] = []

    def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
        self.episodes.append((episode, dict(values)))

    def on_plan(self, plan: int, values: Mapping[str, float]) -> None:
        self.plans.append((plan, dict(values)))

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)


class Fails(Collects):
    """Raises at the third episode, and would at each after it."""

    def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
        super().on_episode(episode, values)
        if episode >= 2:
            raise ZeroDivisionError("in a callback")


class Writes(Callback):
    """Tries to change what it is told."""

    def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
        values["regret"] = 0.0  # type: ignore[index]


@pytest.mark.parametrize(("agent", "driver"), [("ucbvi", "step"), ("chary", "step"), ("ucbvi", "compiled")])
def test_a_run_is_the_same_with_callbacks_which_are_told_its_very_numbers(agent: str, driver: str) -> None:
    shop = chary.envs.inventory(horizon=5)
    spec = chary.make_agent(agent, eta=0.3, **SPEC)
    options: dict[str, Any] = {"episodes": 25, "warmup": 5, "seed": 2, "driver": driver}
    alone, told = chary.simulate(shop, spec, **options), Collects()
    run = chary.simulate(shop, spec, **options, callbacks=[Writes(), told])
    assert [k for k, _ in told.episodes] == list(range(25))
    for name in EPISODE_COLUMNS:
        assert getattr(run, name).tolist() == getattr(alone, name).tolist()
        assert [values[name] for _, values in told.episodes] == getattr(run, name).tolist()
    if driver == "compiled":
        # With bonus hoeffding the incremental planner plans several episodes at once, and counts.
        assert told.plans[-1] == (25, run.planning)
    assert any("callback 'Writes' raised TypeError" in message for message in told.warnings)


def test_a_callback_that_raises_is_left_out_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    river = chary.envs.riverswim()
    fails, other = Fails(), Collects()
    own = chary.OwnAgent(Dice)
    with caplog.at_level(logging.WARNING, "chary"):
        run = chary.simulate(river, own, episodes=6, callbacks=[fails, other])
    assert len(fails.episodes) == 3
    assert len(other.episodes) == len(run.regret) == 6
    messages = [record.getMessage() for record in caplog.records]
    assert messages == other.warnings
    assert len(messages) == 1
    assert "callback 'Fails' raised ZeroDivisionError: in a callback" in messages[0]
    assert messages[0].endswith("It is not called any more.")
    assert fails.warnings == []
    assert run.regret.tolist() == chary.simulate(river, own, episodes=6).regret.tolist()


def test_warnings_are_passed_on_while_a_run_lasts_and_not_after_it() -> None:
    log, told = logging.getLogger("chary"), Collects()
    before = list(log.handlers)

    class Warns(Dice):
        def finish(self, episode: object) -> None:
            log.warning("episode %s is over", episode)
            log.info("which is no warning")

    chary.simulate(chary.envs.riverswim(), chary.OwnAgent(Warns), episodes=2, callbacks=[told])
    log.warning("afterwards")
    assert told.warnings == ["episode 0 is over", "episode 1 is over"]
    assert log.handlers == before
    with pytest.raises(CharyError), Told([told]):
        raise CharyError("'x' must end the context.")
    assert log.handlers == before


@pytest.mark.parametrize("wrong", [[3], 3, [object()], Collects(), Collects, None, [print]])
def test_what_is_no_list_of_callbacks_is_refused_before_the_first_episode(wrong: Any) -> None:
    with pytest.raises(CharyError, match="'callbacks' must be"):
        chary.simulate(chary.envs.riverswim(), chary.OwnAgent(Dice), episodes=1, callbacks=wrong)


def test_a_simulation_is_played_with_callbacks_too() -> None:
    told = Collects()
    run = play(Simulation(chary.envs.riverswim(), chary.OwnAgent(Dice), episodes=3), [told])
    assert [values["returns"] for _, values in told.episodes] == run.returns.tolist()


# The live agent.


def live(told: Sequence[Callback]) -> tuple[Any, WithCallbacks]:
    env = chary.envs.TabularEnv(chary.envs.riverswim(horizon=6))
    agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.5, **SPEC), env.mdp.setting, max_episodes=50)
    return env, WithCallbacks(agent, told)


def test_a_live_agent_decides_the_same_and_callbacks_are_told_what_was_booked() -> None:
    told = Collects()
    (env, agent), (other, plain) = live([told]), live([])
    played = list(chary.rollout(env, agent, episodes=8, seed=3))
    assert played == list(chary.rollout(other, plain.agent, episodes=8, seed=3))
    for (number, values), episode in zip(told.episodes, played, strict=True):
        assert number == episode.number
        assert values == {
            "length": 6,
            "exploring_steps": sum(decision.explored for decision in episode.decisions),
            "deficit": episode.decisions[-1].deficit,
            "returns": sum(step.reward for step in episode.transitions),
            "outstanding": 0,
        }
    numbers = [number for number, _ in told.plans]
    assert (
        numbers == sorted(set(numbers)) == sorted({step.plan for each in played for step in each.decisions})
    )


def test_calls_that_raise_tell_of_nothing_and_late_outcomes_are_counted_as_outstanding() -> None:
    told = Collects()
    _, agent = live([told])
    agent.begin("a", 0)
    agent.begin("b", 0)
    with pytest.raises(OutOfOrder):
        agent.begin("a", 0)
    first = agent.act("a", 0, 0)
    assert agent.act("a", 0, 0) == first
    with pytest.raises(CharyError):
        agent.act("a", 5, 0)
    agent.act_many(["b"], [0], [0])
    agent.observe("b", chary.Transition(0, agent.act("b", 0, 0).action, 0.25, 0, False))
    agent.act("b", 1, 0)
    agent.finish("b")
    agent.abandon("a")
    with pytest.raises(OutOfOrder):
        agent.finish("a")
    assert [(k, each["length"], each["returns"], each["outstanding"]) for k, each in told.episodes] == [
        (0, 2, 0.25, 1)
    ]
    # An outcome that comes after the end goes to the agent.
    agent.observe("b", chary.Transition(0, agent.agent.act("b", 1, 0).action, 0.0, 0, False), t=1)
    assert len(told.episodes) == 1


def test_a_callback_that_raises_does_not_stop_a_live_agent() -> None:
    fails = Fails()
    env, agent = live([fails])
    assert len(list(chary.rollout(env, agent, episodes=6, seed=1))) == 6
    assert len(fails.episodes) == 3


# Sweeps.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an experiment of two runs, of an agent that needs nothing compiled but its judge."""
    (tmp_path / "logged.py").write_text("from tests.contracts.test_own_agents import Dice\n")
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nproblem = "riverswim"\nepisodes = 5\nwarmup = 0\nseeds = 2\netas = [0.2]\n'
        'bonus = "hoeffding"\n[[algorithms]]\nlabel = "dice"\nagent = "logged:Dice"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("PYTHONPATH", ":".join([str(Path(__file__).parents[2]), *filter(None, sys.path)]))
    yield tmp_path
    sys.modules.pop("logged", None)


def test_a_sweep_logs_every_finished_run_with_the_numbers_of_its_results(here: Path) -> None:
    typed = ("sweep", "mine.toml", "--workers", 1, "--no-report", "--out")
    answer = chary_cli(*typed, "out", "--log", "csv")
    assert (answer.returncode, "2 were played" in answer.stdout) == (0, True), answer.stderr
    assert chary_cli(*typed, "plain").returncode == 0
    from chary.sweeps.folder import SweepFolder

    runs = [state.id for state in SweepFolder(Path("out")).states()]
    for run in runs:
        stored = SweepFolder(Path("out")).read(run)
        with Path("out", "log", run, "episode.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["regret"]) for row in rows] == stored.arrays["regret"].tolist()
    for state, plain in zip(
        SweepFolder(Path("out")).states(), SweepFolder(Path("plain")).states(), strict=True
    ):
        assert state == plain
    # What exists is not logged again; a logger that cannot write costs a warning and no run.
    before = sorted(Path("out", "log").rglob("*.csv"))
    assert chary_cli(*typed, "out", "--log", "csv").returncode == 0
    assert sorted(Path("out", "log").rglob("*.csv")) == before
    assert chary_cli(*typed, "third", "--log", "cvs").returncode == 2
    answer = chary_cli(*typed, "third")
    assert answer.returncode == 0
    for each in Path("third", "runs").iterdir():
        Path("third", "log", each.name).mkdir(parents=True)
        Path("third", "log", each.name, "episode.csv").touch()
        shutil.rmtree(each)
    answer = chary_cli(*typed, "third", "--log", "csv")
    assert (answer.returncode, answer.stderr.count("is not logged: 'folder' must not contain")) == (0, 2)
    assert "2 were played" in answer.stdout


# The ready ones.


def tell(logger: Callback) -> None:
    """Tell a logger of five episodes, a plan and a warning."""
    for k in range(5):
        logger.on_episode(k, {"regret": float(k), "blocked": k == 0})
    logger.on_plan(5, {"batches": 2})
    logger.on_warning("=HYPERLINK(1)")


def test_csv_files_contain_what_was_told_and_means_of_several_episodes(tmp_path: Path) -> None:
    with CSVLogger(tmp_path / "one") as logger:
        tell(logger)
    assert (tmp_path / "one" / "episode.csv").read_text().splitlines() == [
        "episode,regret,blocked",
        *("0,0.0,1.0", "1,1.0,0.0", "2,2.0,0.0", "3,3.0,0.0", "4,4.0,0.0"),
    ]
    assert (tmp_path / "one" / "plan.csv").read_text() == "plan,batches\n5,2\n"
    # A spreadsheet does not take it for a formula.
    assert (tmp_path / "one" / "warning.csv").read_text() == "warning,message\n0,'=HYPERLINK(1)\n"
    with CSVLogger(tmp_path / "two", every=2) as logger:
        tell(logger)
    # The last row is the mean of what was left.
    rows = (tmp_path / "two" / "episode.csv").read_text().splitlines()
    assert rows == ["episode,regret,blocked", "1,0.5,0.5", "3,2.5,0.0", "4,4.0,0.0"]
    with pytest.raises(CharyError, match=r"'folder' must not contain episode.csv"):
        CSVLogger(tmp_path / "one")
    with pytest.raises(CharyError, match="'every' must be a whole number >= 1, got 0"):
        CSVLogger(tmp_path / "three", every=0)
    with pytest.raises(CharyError, match=r"'log' must be one of csv, .* Did you mean 'mlflow'"):
        logger_in("mlfow", tmp_path, "run")


def test_a_logger_whose_package_is_missing_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chary.errors.find_spec", lambda package: None)
    for kind in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(CharyError, match=rf"Logging to {kind} needs .*pip install 'chary\[{kind}\]'"):
            logger_in(kind, tmp_path, "run")


def test_tensorboard_reads_what_was_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    with TensorBoardLogger(tmp_path) as logger:
        tell(logger)
    (file,) = tmp_path.glob("events.out.tfevents.*")
    content, found, words = file.read_bytes(), [], []
    while content:
        size = int.from_bytes(content[:8], "little")
        assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
        event = Event.FromString(content[12 : 12 + size])
        content = content[16 + size :]
        for value in event.summary.value:
            if value.tag.startswith("warning"):
                words.append(value.tensor.string_val[0])
            else:
                found.append((value.tag, event.step, value.simple_value))
    assert [each for each in found if each[0] == "episode/regret"] == [
        ("episode/regret", k, float(k)) for k in range(5)
    ]
    assert ("plan/batches", 5, 2.0) in found
    assert words == [b"=HYPERLINK(1)"]


def test_mlflow_reads_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    # MLflow 3 keeps runs in files only where asked to; a database needs more than mlflow-skinny.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    where = tmp_path.as_uri()
    with MLflowLogger(tracking_uri=where) as logger:
        tell(logger)
    client = mlflow.MlflowClient(tracking_uri=where)
    history = client.get_metric_history(logger.run_id, "episode/regret")
    assert [(each.step, each.value) for each in history] == [(k, float(k)) for k in range(5)]
    run = client.get_run(logger.run_id)
    assert (run.data.metrics["plan/batches"], run.data.tags["warning_0"]) == (2.0, "=HYPERLINK(1)")
    assert run.info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weights_and_biases_need_no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with WandBLogger(tmp_path) as logger:
        tell(logger)
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    # A process of its own writes the file, and may do so a moment after the end.
    until = time.monotonic() + 60
    while b"episode/regret" not in (content := kept.read_bytes()) and time.monotonic() < until:
        time.sleep(0.1)
    assert b"episode/regret" in content
    assert b"=HYPERLINK(1)" in content
