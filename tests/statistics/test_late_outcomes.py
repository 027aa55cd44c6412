"""The promise where outcomes come late or never: `benchmarks/late_outcomes.py`, reduced and whole."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chary import TabularAgent, Transition

# How much smaller than in the benchmark.
REDUCED: dict[str, dict[str, Any]] = {
    "beds": {"eta": 0.25, "n_beds": 200, "delay": 10, "rounds": 24},
    "lossy": {"eta": 0.25, "n_beds": 200, "delay": 10, "rounds": 24},
    "survivors": {"eta": 0.1, "episodes": 800},
    "lanes": {"eta": 0.25, "n_lanes": 256, "delay": 6, "steps": 24},
}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "late_outcomes.py"
    found = importlib.util.spec_from_file_location("late_outcomes", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", REDUCED)
def test_no_budget_is_broken_when_outcomes_come_late_or_never(benchmark: ModuleType, case: str) -> None:
    play: Callable[..., Any] = getattr(benchmark, case)
    for seed in range(2):
        outcome = play(seed, **REDUCED[case])
        assert outcome.episodes > 200
        assert outcome.broken == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", range(7))
def test_no_run_is_broken_at_full_size(benchmark: ModuleType, case: int) -> None:
    name = list(benchmark.CASES)[case]
    assert benchmark.measure(name, 20)["broken_runs"]["failures"] == 0


@pytest.mark.parametrize("case", ["beds", "lossy", "survivors"])
def test_worlds_keep_their_risk_when_outcomes_come_late_or_never(benchmark: ModuleType, case: str) -> None:
    play: Callable[..., Any] = getattr(benchmark, case)
    outcomes = [play(seed, **REDUCED[case], bonus="posterior") for seed in range(4)]
    episodes, broken = (sum(each) for each in zip(*outcomes, strict=True))
    assert episodes > 3000
    # Every proposal that is played loses .5. Episodes of one run break together, those begun with the same
    # plan, so the share of all runs counts.
    assert broken <= benchmark.RISK * episodes


def skipped(agent: TabularAgent, benchmark: ModuleType) -> bool:
    """Return whether the next patient's treatment is skipped where that is proposed."""
    agent.begin("next", benchmark.START)
    return bool(agent.act("next", 0, benchmark.START, proposal=benchmark.SKIP).explored)


def test_worlds_taught_in_the_order_of_arrival_would_break_the_budget(benchmark: ModuleType) -> None:
    """The same patients: half are cured, but only failures have been reported."""
    agent = benchmark.new_agent(0.25, bonus="posterior")
    failure = Transition(benchmark.START, benchmark.TREAT, 0.0, benchmark.END, terminated=True)
    on_the_way = 0
    for k in range(200):
        agent.begin(k, benchmark.START)
        assert agent.act(k, 0, benchmark.START).action == benchmark.TREAT
        if k % 2:
            agent.observe(k, failure)
            agent.finish(k)
        else:
            on_the_way += 1
    assert not skipped(agent, benchmark)
    arrived = benchmark.new_agent(0.25, bonus="posterior")
    arrived.warm_start([[failure]] * (200 - on_the_way))
    assert skipped(arrived, benchmark)


def test_cures_that_get_lost_do_not_make_the_baseline_look_worthless(benchmark: ModuleType) -> None:
    """Skipping is known to fail, treatment cures half, and every cure is lost to follow-up."""
    fails = Transition(benchmark.START, benchmark.SKIP, 0.0, benchmark.END, terminated=True)
    failure = fails._replace(action=benchmark.TREAT)
    for losses in (False, True):
        agent = benchmark.new_agent(0.25, losses=losses, bonus="posterior")
        agent.warm_start([[fails]] * 100)
        for k in range(100):
            agent.begin(k, benchmark.START)
            assert not agent.act(k, 0, benchmark.START, proposal=benchmark.SKIP).explored
            if k % 2:
                agent.observe(k, failure)
                agent.finish(k)
            else:
                agent.abandon(k)
        assert not skipped(agent, benchmark)
    # Left out, the lost ones would be forgotten: what remains are failures.
    without = benchmark.new_agent(0.25, bonus="posterior")
    without.warm_start([[fails]] * 100 + [[failure]] * 50)
    assert skipped(without, benchmark)
