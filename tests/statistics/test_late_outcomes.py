"""The promise where outcomes come late or never: `benchmarks/late_outcomes.py`, reduced and whole."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
