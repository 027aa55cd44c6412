"""Claims and their answers: findings, verdicts, and the wording that all of them share."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

from chary.report.measured import Measured, Place
from chary.statistics import Estimate, ViolationRate

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"
NOT_MEASURED = "not measured in this sweep"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE, NOT_MEASURED)

# With fewer seeds there is no verdict, whatever the interval: the data are too few.
FEWEST_SEEDS = 5
TOO_FEW = "too few seeds to decide"
UNDECIDED = "undecided: the interval contains the threshold"
# "Almost every episode": at most one violation in a hundred.
ALMOST_NEVER = 0.01
NOBODY = "no algorithm broke it: nothing to compare"
# With fewer expected violations, no violation does not show that the rate is small.
EXPECTED = 5.0

# Smaller numbers are rounding errors.
NOTHING = 1e-9

PAPER, UCBVI, CUCBVI, NAIVE = "paper", "unconstrained", "conservative", "naive"
CHOSEN = "chosen"
OURS = ("ours", CHOSEN)


class Finding(NamedTuple):
    """A finding at one budget: whether it fits the claim (None if undecided), and its text."""

    fits: bool | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim, its source, the rule for the verdict, the verdict and the findings.

    `numbers` has one row per finding; `where` names the conditions of a study, empty for the main runs.
    """

    key: str
    source: str
    statement: str
    rule: str
    verdict: str
    findings: tuple[Finding, ...] = ()
    note: str = ""
    numbers: tuple[Mapping[str, Any], ...] = ()
    where: str = ""

    @property
    def answer(self) -> str:
        """All findings and the note, in one text."""
        words = "; ".join(finding.words for finding in self.findings)
        # Greek letters stay as they are: a capital eta is another letter.
        start = words[:1].upper() if words[:1].isascii() else words[:1]
        return " ".join(part for part in (f"{start}{words[1:]}." if words else "", self.note) if part)

    def to_json(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        names = ("key", "where", "source", "statement", "rule", "verdict", "answer")
        return {
            **{name: getattr(self, name) for name in names},
            "findings": [finding._asdict() for finding in self.findings],
            "numbers": [dict(row) for row in self.numbers],
        }


@dataclass(slots=True)
class Answer:
    """The findings about a claim, budget by budget."""

    findings: list[Finding] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)

    def add(self, fits: bool | None, words: str, *, seeds: int, why: str = UNDECIDED, **numbers: Any) -> None:
        """Add a finding.

        Args:
            fits: Whether it fits the claim; None if undecided.
            words: The finding in words.
            seeds: The number of seeds behind it.
            why: The reason if it is undecided.
            numbers: The same in numbers; the ends of an Estimate are stored as `low` and `high`.
        """
        few = seeds < FEWEST_SEEDS
        reason = TOO_FEW if few else why if fits is None else ""
        text = f"{words}, {seeds} seed{'' if seeds == 1 else 's'}{f' ({reason})' if reason else ''}"
        self.findings.append(Finding(None if few or fits is None else bool(fits), text))
        row: dict[str, Any] = {}
        for name, value in numbers.items():
            one = isinstance(value, Estimate)
            row |= {name: value.value, "low": value.low, "high": value.high} if one else {name: value}
        self.numbers.append({**row, "seeds": seeds})

    def add_fewer(self, measured: Measured, ours: Place, theirs: Place, **rates: float) -> None:
        """Add our rate of violations, which should be smaller than theirs; `rates` go to `numbers`."""
        difference = measured.difference(theirs, ours, "violation_rate")
        if difference is None:
            return
        mine, other = measured.rate(ours), measured.rate(theirs)
        nobody = not (mine.violations or other.violations)
        self.add(
            None if nobody else difference.above(0.0),
            f"{at(ours.budget)}: {say_rate(other)} violations per 1,000 episodes against {say_rate(mine)}, "
            f"difference over seeds {say(difference.times(1000))}; {other.broken_runs} of {other.runs} runs "
            f"broke it against {mine.broken_runs} of {mine.runs}",
            seeds=len(measured.common(ours, theirs)),
            why=NOBODY if nobody else contains(0),
            budget=ours.budget,
            **rates,
            difference=difference,
        )

    def verdict(self) -> str:
        """Return `reproduced` if every finding fits."""
        if not self.findings:
            return NOT_MEASURED
        fits = all_of(*(finding.fits for finding in self.findings))
        return {True: REPRODUCED, False: NOT_REPRODUCED, None: NOT_COMPARABLE}[fits]

    def claim(
        self,
        texts: Mapping[str, str],
        *,
        key: str | None = None,
        notes: Sequence[str] = (),
        always: str = "",
        **values: object,
    ) -> Claim:
        """Return the claim with its answer.

        Args:
            texts: Its entry of `texts_of`.
            key: Its key, if it is not that of the entry.
            notes: Remarks on the findings.
            always: A remark that does not depend on findings.
            values: The names that occur in the texts, thresholds above all.
        """
        filled = {name: text.format(**values) for name, text in texts.items()}
        remarks = (filled.get("note", ""), *notes) if self.findings else (f"Needs {filled['needs']}.",)
        return Claim(
            key=key or filled["key"],
            source=filled["source"],
            statement=filled["statement"],
            rule=filled["rule"],
            verdict=self.verdict(),
            findings=tuple(self.findings),
            note=" ".join(note for note in (*remarks, always) if note),
            numbers=tuple(self.numbers),
        )


def texts_of(package: str) -> dict[str, dict[str, str]]:
    """Return the texts of a family's claims, by key: its file claims.toml."""
    content = resources.files(package).joinpath("claims.toml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, str]] = tomllib.loads(content)
    return {
        key: {"key": key, **{name: " ".join(text.split()) for name, text in entry.items()}}
        for key, entry in entries.items()
    }


def count_verdicts(claims: Sequence[Claim]) -> dict[str, int]:
    """Return the number of claims about the main runs per verdict, as in `VERDICTS`, without zeros."""
    main = [claim.verdict for claim in claims if not claim.where]
    counts = {verdict: main.count(verdict) for verdict in VERDICTS}
    return {verdict: count for verdict, count in counts.items() if count}


def kept(measured: Measured, place: Place, limit: float) -> bool | None:
    """Whether a budget was kept: at most a share of the episodes broke it, and no more than half of the runs.

    The promise is one about whole runs. Where most runs broke the budget it was not kept, however small the
    share of episodes is. None if undecided: if the interval over runs contains the limit, or if
    there are so few episodes that fewer than `EXPECTED` violations are expected at the limit.
    """
    rate = measured.rate(place)
    if rate.most_broke:
        return False
    decided = Estimate(rate.rate, *rate.interval).at_most(limit)
    return None if decided and rate.episodes * limit < EXPECTED else decided


def say_runs(rate: ViolationRate, delta: float | None = None) -> str:
    """Return how many runs have a violation, with the interval of that share, compared with delta.

    Example:
        >>> from chary.statistics import violation_rate
        >>> say_runs(violation_rate([1, 0], [1000, 1000]))
        '1 of 2 runs broke it (1.26 to 98.7 %)'
        >>> say_runs(violation_rate([0] * 40, [1000] * 40), 0.1)
        '0 of 40 runs broke it (0 to 8.81 %, below δ = 10 %)'
    """
    low, high = (100 * end for end in rate.run_interval)
    compared = ""
    if delta is not None:
        verdicts = {"below": "below", "above": "above", "compatible": "compatible with"}
        compared = f", {verdicts[rate.compared_with(delta).verdict]} δ = {100 * delta:g} %"
    return f"{rate.broken_runs} of {rate.runs} runs broke it ({low:.3g} to {high:.3g} %{compared})"


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
    value, low = (say_number(each, digits) for each in (estimate.value, estimate.low))
    if not math.isfinite(estimate.low):
        return value
    if not math.isfinite(estimate.high):
        return f"{value} ({low} or more)"
    return f"{value} ({low} to {say_number(estimate.high, digits)})"


def say_value(value: float) -> str:
    """Return a number without an interval.

    Example:
        >>> say_value(0.25), say_value(math.nan)
        ('0.25', 'unknown')
    """
    return say(Estimate(value, math.nan, math.nan))


def say_percent(share: Estimate) -> str:
    """Return a share in percent with its interval.

    Example:
        >>> say_percent(Estimate(0.5, 0.25, 1.0))
        '50 (25 to 100) %'
    """
    return f"{say(share.times(100))} %"


def say_rate(rate: ViolationRate) -> str:
    """Return violations per 1,000 episodes with their interval over runs.

    Example:
        >>> from chary.statistics import violation_rate
        >>> say_rate(violation_rate([1, 2, 3], [1000] * 3)), say_rate(violation_rate([1], [1000]))
        ('2 (0 to 4.69)', '1')
    """
    return say(Estimate(rate.rate, *rate.interval).times(1000))


def say_number(value: float, digits: int = 3) -> str:
    """Return a number to some digits; thousands have no decimals.

    Example:
        >>> say_number(0.12345), say_number(12345.6), say_number(1e-12), say_number(999.99)
        ('0.123', '12,346', '0', '1,000')
    """
    if abs(value) < NOTHING:
        return "0"
    # From 999.5 on, rounding to three digits would give an exponent.
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.{digits}g}"


def at(budget: float) -> str:
    """Return a budget in words."""
    return f"η = {budget:g}"


def listed(budgets: Sequence[float]) -> str:
    """Return some budgets in words.

    Example:
        >>> listed([0.1]), listed([0.1, 0.2, 0.4])
        ('η = 0.1', 'η = 0.1, 0.2 and 0.4')
    """
    *first, last = (f"{budget:g}" for budget in budgets)
    return f"η = {', '.join(first)} and {last}" if first else f"η = {last}"


def contains(threshold: object, interval: str = "the interval") -> str:
    """Return the reason for an undecided finding: an interval contains the threshold."""
    return f"undecided: {interval} contains {threshold}"


def all_of(*parts: bool | None) -> bool | None:
    """Return whether all parts are True: False if one is False, None if one is undecided.

    Example:
        >>> all_of(True, True), all_of(True, None), all_of(None, False)
        (True, None, False)
    """
    if False in parts:
        return False
    return None if None in parts else True
