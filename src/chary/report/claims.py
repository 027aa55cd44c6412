"""What an answer to a claim consists of, and the words that all of them share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chary.report.measured import Measured, Place
from chary.results import Estimate, ViolationRate

__all__ = [
    "CHOSEN",
    "CUCBVI",
    "FEWEST_SEEDS",
    "NAIVE",
    "NOTHING",
    "NOT_COMPARABLE",
    "NOT_MEASURED",
    "NOT_REPRODUCED",
    "OURS",
    "PAPER",
    "REPRODUCED",
    "UCBVI",
    "VERDICTS",
    "Answer",
    "Claim",
    "Facts",
    "Finding",
    "all_of",
    "alone",
    "at",
    "count_verdicts",
    "listed",
    "pairs",
    "per_thousand",
    "same_for_paper",
    "same_results",
    "say",
    "say_number",
    "say_rate",
]

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"
NOT_MEASURED = "not measured in this sweep"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE, NOT_MEASURED)

# With fewer seeds no verdict is given, whatever the interval says: it rests on next to nothing.
FEWEST_SEEDS = 5
TOO_FEW = "too few seeds to decide"
HOLDS_THRESHOLD = "undecided: the interval holds the threshold"

# What rounding leaves of nothing.
NOTHING = 1e-9

PAPER, UCBVI, CUCBVI, NAIVE = "paper", "unconstrained", "conservative", "naive"
CHOSEN = "chosen"
OURS = ("ours", CHOSEN)


class Finding(NamedTuple):
    """What was found at one budget: whether it fits the claim, None where one cannot tell, and in words."""

    fits: bool | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim, where it is made, the rule for the verdict, the verdict, and what was found.

    `numbers` has one row a finding.
    """

    key: str
    source: str
    statement: str
    rule: str
    verdict: str
    findings: tuple[Finding, ...] = ()
    note: str = ""
    numbers: tuple[Mapping[str, Any], ...] = ()

    @property
    def answer(self) -> str:
        """What was found out, in one text."""
        words = "; ".join(finding.words for finding in self.findings)
        # Greek letters stay as they are: a capital eta is another letter.
        start = words[:1].upper() if words[:1].isascii() else words[:1]
        return " ".join(part for part in (f"{start}{words[1:]}." if words else "", self.note) if part)

    def to_json(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {
            "key": self.key,
            "source": self.source,
            "statement": self.statement,
            "rule": self.rule,
            "verdict": self.verdict,
            "answer": self.answer,
            "findings": [finding._asdict() for finding in self.findings],
            "numbers": [dict(row) for row in self.numbers],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What claims need to know of the problem and the experiment.

    Args:
        horizon: H.
        states: S, all of them.
        actions: A, the largest number of actions.
        delta: The probability with which the event of the lemmas may fail.
        span: The user's reward units in one scaled unit, in which the paper has eta.
        diameter: What `check_assumptions` answers on Assumption 2.2.
        diameter_says: The same in a sentence.
        questions: What each study asks, by its name; that of chosen settings says on which seeds.
    """

    horizon: int
    states: int
    actions: int
    delta: float
    span: float
    diameter: str
    diameter_says: str
    questions: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """What is found out about a claim, budget by budget."""

    findings: list[Finding] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, fits: bool | None, words: str, *, seeds: int, why: str = HOLDS_THRESHOLD, **numbers: Any
    ) -> None:
        """Note a finding and of how many seeds it is; `why` says why one cannot tell, where one cannot."""
        few = seeds < FEWEST_SEEDS
        reason = TOO_FEW if few else why if fits is None else ""
        told = f"{words}, {seeds} seed{'' if seeds == 1 else 's'}{f' ({reason})' if reason else ''}"
        self.findings.append(Finding(None if few or fits is None else bool(fits), told))
        self.numbers.append({**numbers, "seeds": seeds})

    def verdict(self) -> str:
        """Return `reproduced` if it is so at every budget; None is where one cannot tell."""
        if not self.findings:
            return NOT_MEASURED
        fits = [finding.fits for finding in self.findings]
        if False in fits:
            return NOT_REPRODUCED
        return NOT_COMPARABLE if None in fits else REPRODUCED

    def claim(
        self,
        key: str,
        source: str,
        statement: str,
        rule: str,
        *,
        unmeasured: str,
        notes: Sequence[str] = (),
        always: str = "",
    ) -> Claim:
        """Return the claim with its answer.

        Args:
            key: Its name.
            source: Where it is made.
            statement: What it says.
            rule: How the verdict is found.
            unmeasured: What is missing where nothing was found.
            notes: What else is said of the findings.
            always: What is said even without any.
        """
        beside = list(notes) if self.findings else [f"{unmeasured[0].upper()}{unmeasured[1:]}."]
        return Claim(
            key=key,
            source=source,
            statement=statement,
            rule=rule,
            verdict=self.verdict(),
            findings=tuple(self.findings),
            note=" ".join(note for note in (*beside, always) if note),
            numbers=tuple(self.numbers),
        )


def count_verdicts(claims: Sequence[Claim]) -> dict[str, int]:
    """Return how many claims got each verdict, in the order of `VERDICTS`, those without any left out."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    return {verdict: count for verdict, count in counts.items() if count}


def say(estimate: Estimate, digits: int = 3) -> str:
    """Return a number with its interval.

    Example:
        >>> say(Estimate(0.5, 0.25, 1.0)), say(Estimate(2.0, math.nan, math.nan))
        ('0.5 (0.25 to 1)', '2')
        >>> say(Estimate(2.0, 1.0, math.inf))
        '2 (1 or more)'
    """
    if not math.isfinite(estimate.value):
        return "unknown"
    value = say_number(estimate.value, digits)
    if not math.isfinite(estimate.low):
        return value
    if not math.isfinite(estimate.high):
        return f"{value} ({say_number(estimate.low, digits)} or more)"
    return f"{value} ({say_number(estimate.low, digits)} to {say_number(estimate.high, digits)})"


def say_rate(rate: ViolationRate) -> str:
    """Return violations per 1,000 episodes with their interval over episodes.

    Example:
        >>> from chary.results import violation_rate
        >>> say_rate(violation_rate([1], [1000]))
        '1 (0.0253 to 5.56)'
    """
    low, high = rate.interval
    return say(Estimate(1000 * rate.rate, 1000 * low, 1000 * high))


def say_number(value: float, digits: int) -> str:
    """Return a number to some digits, thousands whole.

    Example:
        >>> say_number(0.12345, 3), say_number(12345.6, 3), say_number(1e-12, 3), say_number(999.99, 3)
        ('0.123', '12,346', '0', '1,000')
    """
    if abs(value) < NOTHING:
        return "0"
    # 999.5 and on would be rounded to a thousand, and have an exponent then.
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.{digits}g}"


def per_thousand(rate: Estimate) -> Estimate:
    """Return a rate an episode as one per 1,000 episodes."""
    return Estimate(*(1000 * each for each in rate))


def at(budget: float) -> str:
    """Return the budget in words."""
    return f"η = {budget:g}"


def listed(budgets: Sequence[float]) -> str:
    """Return some budgets in words.

    Example:
        >>> listed([0.1]), listed([0.1, 0.2, 0.4])
        ('η = 0.1', 'η = 0.1, 0.2 and 0.4')
    """
    *first, last = (f"{budget:g}" for budget in budgets)
    return f"η = {', '.join(first)} and {last}" if first else f"η = {last}"


def all_of(*parts: bool | None) -> bool | None:
    """Return whether all parts are so: False if one is not, None if one cannot tell.

    Example:
        >>> all_of(True, True), all_of(True, None), all_of(None, False)
        (True, None, False)
    """
    if False in parts:
        return False
    return None if None in parts else True


def pairs(
    measured: Measured, role: str, others: Sequence[str], **where: str
) -> Iterable[tuple[float, Place, Place]]:
    """Yield, budget by budget, the places of the first algorithms that stand for a role and for another."""
    ours, theirs = (measured.algorithms(**where, roles=roles) for roles in ((role,), others))
    for budget in measured.budgets(**where):
        if ours and theirs:
            one, two = Place(ours[0], budget, **where), Place(theirs[0], budget, **where)
            if measured.has(one) and measured.has(two):
                yield budget, one, two


def alone(measured: Measured, role: str) -> Iterable[tuple[float, Place]]:
    """Yield, budget by budget, the place of the first algorithm that stands for a role."""
    for budget in measured.budgets():
        for algorithm in measured.algorithms(roles=(role,))[:1]:
            if measured.has(Place(algorithm, budget)):
                yield budget, Place(algorithm, budget)


def same_results(measured: Measured, algorithm: str) -> str:
    """Return at which budgets an algorithm did exactly the same, in a sentence, or nothing."""
    groups = _same_groups(measured, algorithm)
    if not groups:
        return ""
    return (
        f"Results of “{algorithm}” are the same, number for number, at {', and at '.join(groups)}: which of "
        "these budgets it had made no difference there."
    )


def same_for_paper(measured: Measured) -> str:
    """Return the same of the paper's variant, shortly, for claims that are judged budget by budget."""
    groups = [
        group for label in measured.algorithms(roles=(PAPER,))[:1] for group in _same_groups(measured, label)
    ]
    return f"These are the same results at {', and at '.join(groups)}." if groups else ""


def _same_groups(measured: Measured, algorithm: str) -> list[str]:
    groups = []
    for group in measured.same_budgets(algorithm):
        first, *others = (Place(algorithm, budget) for budget in group)
        counted = (measured.same_seeds(first, other) for other in others)
        same, of = min(counted, key=lambda each: each[0] / each[1])
        seeds = f"all {of} seeds" if same == of else f"at least {same} of {of} seeds"
        groups.append(f"{listed(group)} in {seeds}")
    return groups
