"""The promise of the budget over independent runs: `benchmarks/validity.py`, reduced and whole."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy.stats import binom

ALPHA = 1e-4


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "validity.py"
    found = importlib.util.spec_from_file_location("validity", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def check_row(row: dict[str, Any], delta: float) -> None:
    violations = row["violations"]["failures"]
    counted = row["runs_counted"]
    if row["rule"] == "unlimited":
        # The control: without a budget at least half the runs break it.
        assert violations >= counted / 2
        return
    # At least nine runs in ten really play something else than the baseline, and never book too much.
    assert row["deviating_runs"] >= 0.9 * counted
    assert row["max_booked_deficit"] <= row["eta"]
    assert counted >= 0.9 * row["runs"]
    assert binom.sf(violations - 1, counted, delta) > ALPHA


def test_some_runs_keep_the_budget_while_they_explore(benchmark: ModuleType) -> None:
    for row in benchmark.measure(8, episodes=80, rows=benchmark.ROWS[:6]):
        check_row({**row, "eta": benchmark.ETA}, benchmark.DELTA)


def test_some_runs_keep_the_budget_with_200_open_and_outcomes_late_or_lost(benchmark: ModuleType) -> None:
    strict, control = benchmark.ROWS[6], benchmark.ROWS[8]
    for seed in range(2):
        run = benchmark.play(benchmark.Task(strict, seed, benchmark.EPISODES))
        assert not run.violated
        assert run.deviating_steps > 0
        assert 0.03 < run.lost / (run.episodes * benchmark.HORIZON_OPEN) < 0.07
    assert benchmark.play(benchmark.Task(control, 0, benchmark.EPISODES)).violated


@pytest.mark.slow
def test_a_thousand_runs_keep_the_budget_while_they_explore(benchmark: ModuleType) -> None:
    for row in benchmark.measure(1000):
        check_row({**row, "eta": benchmark.ETA}, benchmark.DELTA)
        if row["rule"] != "unlimited":
            assert row["violations"]["verdict"] == "below"
