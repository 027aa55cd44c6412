"""Common parts of both checks: the three answers, their wording, and P as sparse rows."""

from __future__ import annotations

import math

from scipy import sparse

from chary.mdp import FiniteMDP

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


def sparse_rows(mdp: FiniteMDP) -> sparse.csr_array:
    """Return P as sparse rows, (pairs, S)."""
    shape = (mdp.setting.n_pairs, mdp.n_states)
    return sparse.csr_array((mdp.probability, mdp.successor, mdp.row_start), shape=shape)


def says(status: str) -> str:
    """Return the status as the verb of a sentence."""
    return f"is {status}" if status == UNDECIDED else status


def finite(number: float) -> float | None:
    """Return the number, or None, JSON's null, for infinity."""
    return number if math.isfinite(number) else None
