"""Interrupts at the lines of the deep learner's step API, see `interrupts.py`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import FULL
from tests.faults.interrupts import Walk, lines_of, trials

pytest.importorskip("jax")


def test_an_interrupt_at_any_line_leaves_nothing_stuck_or_diverged(tmp_path: Path) -> None:
    counts = Counter(found for _, found in trials("deep", tmp_path, None if FULL else 2))
    assert set(counts) <= {"did not happen", "happened", "poisoned"}, counts
    assert len(counts) > 1


def test_a_state_that_was_given_away_is_not_used_again(tmp_path: Path) -> None:
    # Pretraining takes the memory of the state: afterwards there is no way back.
    walk = Walk("deep", tmp_path)
    assert walk.calls[0][0] == "warm_start"
    total = lines_of(partial(walk.again, walk.restored(0), 0))
    found = [walk.trial(0, line, KeyboardInterrupt, rest=False) for line in range(total - 12, total + 1)]
    assert set(found) <= {"happened", "poisoned"}
    assert "poisoned" in found
