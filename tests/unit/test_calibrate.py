"""Calibration: the scale returned is one that passed, and the search goes where it must and stops there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from chary.agents import CharyUCBVI
from chary.calibrate import ScaleCalibration, calibrate
from chary.calibrate.scale import Outcome
from chary.errors import CharyError
from chary.model.calibration import CONDITIONS, largest_failures

AGENT = CharyUCBVI(eta=0.3, bonus="hoeffding")


class Invented(Executor):
    """Processes that play nothing: a rule says which runs fail, by scale, siblings and number."""

    def __init__(self, fails: Callable[[float, str, int], bool], seconds: float = 0.0) -> None:
        self.fails, self.seconds = fails, seconds
        self.played: list[tuple[float, str, int]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        work = json.loads(args[0])
        place = (work["agent"]["bonus_scale"], work["siblings"], work["run"])
        self.played.append(place)
        time.sleep(self.seconds)
        future: Future[Any] = Future()
        future.set_result(Outcome(7 if self.fails(*place) else None, False, False, True))
        return future


def found_by(
    fails: Callable[[float, str, int], bool], agent: CharyUCBVI = AGENT, **options: Any
) -> ScaleCalibration:
    return calibrate("riverswim", agent, executor=Invented(fails), **{"episodes": 10, **options})


@pytest.mark.parametrize("edge", [3e-4, 0.02, 0.9, 1.0, 5.0, 200.0])
@pytest.mark.parametrize("start", [1.0, 0.0005])
def test_the_edge_is_found_and_the_chosen_scale_passed(edge: float, start: float) -> None:
    found = found_by(lambda scale, siblings, run: scale < edge, replace(AGENT, bonus_scale=start))
    assert found.record is not None
    assert found.scale is not None
    assert (found.record.failures, found.record.runs, found.record.passed) == (0, 29, True)
    assert edge <= found.scale <= 1.1 * edge
    assert found.trials[-1].siblings == "check"


def test_a_share_of_failures_below_delta_does_not_pass() -> None:
    """1 failure in 29 runs is a share of .034 and was called calibrated; its upper limit is .153."""
    found = found_by(lambda scale, siblings, run: scale < 1 and run == 20, precision=3.0)
    assert found.scale == 1.0
    assert {trial.scale: trial.verdict for trial in found.trials}[0.25] == "failed"


def test_a_trial_ends_where_its_verdict_is_certain() -> None:
    late = found_by(lambda scale, siblings, run: run == 4, check=True).trials[0]
    assert (late.planned, late.runs, late.failures, late.verdict) == (29, 5, 1, "failed")
    # Of 46 runs one may fail: where none of the first 45 does, the last one cannot change anything.
    found = found_by(lambda scale, siblings, run: False, check=True, runs=46)
    assert found.record is not None
    assert (found.trials[0].runs, found.record.runs, found.record.failures) == (45, 46, 1)
    assert largest_failures(46, 0.1) == 1


def test_what_the_search_found_must_pass_on_other_siblings() -> None:
    """A scale below .01 passes on the siblings of the search by luck, and not on those that confirm it."""
    found = found_by(lambda scale, siblings, run: scale < (0.002 if siblings == "search" else 0.01))
    assert found.scale is not None
    assert found.scale >= 0.01
    verdicts = [trial.verdict for trial in found.trials if trial.siblings == "check"]
    assert verdicts == ["failed"] * (len(verdicts) - 1) + ["passed"]


def test_where_no_scale_passes_the_trials_are_kept() -> None:
    found = found_by(lambda scale, siblings, run: True)
    assert (found.scale, found.record, found.standing) == (None, None, "uncertified")
    assert [trial.scale for trial in found.trials] == [1.0, 4.0, 16.0, 64.0, 256.0]
    assert "No scale of hoeffding passed on siblings of riverswim" in found.describe()
    assert found.to_json()["calibration"] is None


def test_a_family_that_never_fails_gets_the_smallest_scale_tried() -> None:
    found = found_by(lambda scale, siblings, run: False)
    assert found.scale == 4.0**-12


def test_a_check_is_one_trial() -> None:
    found = found_by(lambda scale, siblings, run: False, replace(AGENT, bonus_scale=0.5), check=True)
    assert [(trial.scale, trial.siblings) for trial in found.trials] == [(0.5, "check")]
    assert found.scale == 0.5


def test_time_that_runs_out_leaves_what_was_tried() -> None:
    slow = Invented(lambda scale, siblings, run: False, seconds=0.002)
    found = calibrate("riverswim", AGENT, episodes=10, minutes=0.0005, executor=slow)
    assert found.record is None
    assert found.trials[-1].verdict == "unfinished"


def test_a_record_fits_the_configuration_it_was_made_for_and_no_other() -> None:
    found = found_by(lambda scale, siblings, run: False, check=True, warmup=3)
    assert found.record is not None
    used = {"problem": "riverswim", "options": {}, **AGENT.calibrated(10, 3)}
    assert set(used) == set(CONDITIONS)
    assert found.record.mismatches(used) == ()
    longer = {**used, **AGENT.calibrated(1000, 3)}
    assert found.record.mismatches(longer) == ("calibrated for 10 episodes, played 1,000",)
    closed = {**used, **replace(AGENT, after_refusal="close").calibrated(10, 3)}
    assert found.record.mismatches(closed) == ("calibrated with after_refusal pause, played with close",)


@pytest.mark.parametrize(
    "options",
    [{"runs": 0}, {"runs": 28}, {"precision": 1.0}, {"workers": 0}, {"episodes": 0}, {"minutes": 0}],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CharyError):
        calibrate("riverswim", AGENT, **{"episodes": 10, **options})


@pytest.mark.parametrize(
    "agent",
    [
        CharyUCBVI(eta=0.3),
        CharyUCBVI(rule="unlimited", bonus="hoeffding"),
        replace(AGENT, prior=[0] * 6),
    ],
)
def test_an_agent_that_cannot_be_calibrated_is_refused(agent: CharyUCBVI) -> None:
    with pytest.raises(CharyError):
        calibrate("riverswim", agent, episodes=10)


def test_a_real_calibration_is_repeatable_on_any_number_of_cores() -> None:
    agent = CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.0002)
    settings: dict[str, Any] = {"episodes": 30, "warmup": 30, "precision": 3.9}
    with ThreadPoolExecutor(1) as alone, ThreadPoolExecutor(3) as several:
        once, again = (calibrate("inventory", agent, executor=each, **settings) for each in (alone, several))
    assert once.to_json() == again.to_json()
    assert once.record is not None
    assert once.record.passed
    assert "passed with scale" in once.describe()


def test_a_scale_calibrated_for_few_episodes_fails_at_greater_length() -> None:
    """The reason why a record is bound to its number of episodes, on siblings of a real problem."""
    agent = CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.0002, reward="known")
    with ThreadPoolExecutor(1) as alone:
        short, longer = (
            calibrate("inventory", agent, episodes=episodes, warmup=100, check=True, executor=alone)
            for episodes in (20, 400)
        )
    assert short.record is not None
    assert longer.trials[0].verdict == "failed"
    assert short.record.mismatches(agent.calibrated(400, 100)) == ("calibrated for 20 episodes, played 400",)
