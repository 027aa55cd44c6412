"""The paper's Table 1: maximum discounted returns of the HIV experiment, in millions."""

from __future__ import annotations

from typing import NamedTuple

from chary.report.measured import Measured, Place

__all__ = ["MILLION", "OUR_ROLES", "TABLE_1", "Entry", "judged_one", "measured_entry"]

MILLION = 1e6

# Who stands for the paper's algorithm: a variant that is run as the paper runs it, else the first of ours.
OUR_ROLES = ("paper", "ours", "chosen")


class Entry(NamedTuple):
    """A row of Table 1: who, at which budget, and mean and deviation of the maximum in millions."""

    name: str
    role: str
    budget: float | None
    mean: float
    deviation: float


TABLE_1 = (
    Entry("chary, η = 40", "ours", 40.0, 3.84, 0.04),
    Entry("chary, η = 60", "ours", 60.0, 3.72, 0.09),
    Entry("chary, η = 100", "ours", 100.0, 3.78, 0.03),
    Entry("CQL", "conservative", None, 3.75, 0.09),
    Entry("ε-greedy Q-learning", "unconstrained", None, 3.82, 0.04),
)


def judged_one(measured: Measured) -> str | None:
    """Return the algorithm by which the paper's claims are judged, if any of its runs is finished."""
    for role in OUR_ROLES:
        for label in measured.algorithms(roles=(role,)):
            return label
    return None


def measured_entry(measured: Measured, entry: Entry) -> Place | None:
    """Return whose runs stand beside a row of Table 1, None without any."""
    budgets = measured.budgets()
    if entry.role == "ours":
        label = judged_one(measured)
    else:
        label = next(iter(measured.algorithms(roles=(entry.role,))), None)
    if label is None or not budgets:
        return None
    place = Place(label, budgets[0] if entry.budget is None else entry.budget)
    return place if measured.has(place) else None
