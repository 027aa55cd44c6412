"""The texts of the claims, facts of the problem, and remarks on budgets that made no difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chary.report.claims import PAPER, listed, texts_of
from chary.report.measured import Measured, Place

TEXTS = texts_of("chary.report.tabular")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of the problem and the experiment.

    Args:
        horizon: H.
        states: S, all of them.
        actions: A, the largest number of actions.
        delta: The probability with which the event of the lemmas may fail.
        span: The user's reward units per scaled unit; the paper's eta is in scaled units.
        diameter: The status of Assumption 2.2 by `check_assumptions`.
        diameter_says: The same in a sentence.
        questions: The question of each study, by its name; that of chosen settings names the seeds.
    """

    horizon: int
    states: int
    actions: int
    delta: float
    span: float
    diameter: str
    diameter_says: str
    questions: Mapping[str, str] = field(default_factory=dict)


def say_steps(measured: Measured, place: Place) -> str:
    """Return the exploring steps and, of these, the steps that deviated from the baseline, mean per run."""
    exploring, deviating = (
        measured.mean(place, f"{name}_steps").value for name in ("exploring", "deviating")
    )
    return f"{exploring:,.0f} exploring steps per run, {deviating:,.0f} deviating"


def same_results(measured: Measured, algorithm: str | None) -> str:
    """Return at which budgets an algorithm's results are identical, in a sentence, or nothing."""
    groups = _same_groups(measured, algorithm)
    return (
        f"Results of “{algorithm}” are the same, number for number, at {groups}: these budgets made no "
        "difference."
        if groups
        else ""
    )


def same_for_paper(measured: Measured) -> str:
    """Return the same for the paper's variant, shorter, for claims that are judged budget by budget."""
    groups = _same_groups(measured, measured.first(PAPER))
    return f"These are the same results at {groups}." if groups else ""


def _same_groups(measured: Measured, algorithm: str | None) -> str:
    groups = []
    for group in measured.same_budgets(algorithm) if algorithm is not None else ():
        first, *others = (Place(str(algorithm), budget) for budget in group)
        counted = (measured.same_seeds(first, other) for other in others)
        same, of = min(counted, key=lambda each: each[0] / each[1])
        seeds = f"all {of} seeds" if same == of else f"at least {same} of {of} seeds"
        groups.append(f"{listed(group)} in {seeds}")
    return ", and at ".join(groups)
