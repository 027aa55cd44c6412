"""The record of a calibration: what was played on siblings, what failed, and which runs it speaks for.

A record supports the standing `calibrated` of a run that was configured exactly like it, and of no other
(docs/algorithm.md section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from chary.errors import InvalidData, UnknownName, check_integer, check_real, check_type

__all__ = ["CONFIDENCE", "CalibrationRecord", "largest_failures", "least_runs", "read_record", "upper_limit"]

R = TypeVar("R")

# Of the upper limit on the share of failing runs.
CONFIDENCE = 0.95


def upper_limit(failures: int, runs: int) -> float:
    """Return the one-sided 95 % upper limit on the probability of failure (Clopper and Pearson).

    Example:
        >>> round(upper_limit(0, 29), 4), round(upper_limit(0, 28), 4)
        (0.0981, 0.1015)
    """
    if failures >= runs:
        return 1.0
    low, high = failures / runs, 1.0
    # Halved until neighbouring floats are left; `high` is the side on which the limit is never too small.
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _at_most(failures, runs, middle) <= 1 - CONFIDENCE else (middle, high)
    return high


def largest_failures(runs: int, delta: float) -> int:
    """Return with how many failures the upper limit is still at most delta; -1 if not even with none.

    Example:
        >>> largest_failures(28, 0.1), largest_failures(29, 0.1), largest_failures(46, 0.1)
        (-1, 0, 1)
    """
    failures = 0
    while failures < runs and _at_most(failures, runs, delta) <= 1 - CONFIDENCE:
        failures += 1
    return failures - 1


def least_runs(delta: float) -> int:
    """Return the smallest number of runs that passes without a failure.

    Example:
        >>> least_runs(0.1), least_runs(0.05)
        (29, 59)
    """
    runs = max(1, math.floor(math.log(1 - CONFIDENCE) / math.log1p(-delta)))
    while largest_failures(runs, delta) < 0:
        runs += 1
    return runs


def _at_most(failures: int, runs: int, probability: float) -> float:
    """Return the probability of at most so many failures."""
    return math.fsum(
        math.comb(runs, i) * probability**i * (1 - probability) ** (runs - i) for i in range(failures + 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """The configuration that was played on sibling problems, and in how many runs a ledger was too small.

    A run fails if in some episode the booked deficit is below the true one. All fields up to `warmup` must be
    those of a run for the record to support it; `eta` and `step_bound` are in the problem's reward units.

    Args:
        problem: Name of the problem whose siblings were played.
        options: Options of the problem, those left at their defaults excluded.
        bonus: Family of the bounds.
        bonus_scale: Factor on the bonus.
        delta: Share of runs that may fail.
        reward: Whether the reward function was known or estimated.
        prior: Policy that decided ties of the baseline: `none`, `recorded` or `given`.
        ties: How the remaining ties were decided, `index` or `shuffled`.
        eta: Budget per episode.
        rule: Rule of the shield.
        step_bound: Largest true gap that rule capped assumed, None with other rules.
        after_refusal: Whether exploration could resume after a refusal.
        charge: Formula for charges.
        pool: Largest number of open chains, None without chains.
        clock: Steps that explorers counted.
        data: Data that explorers learnt from.
        patience: Episodes after which a chain was abandoned, None for never.
        chains: Whether exploration resumed in later episodes.
        episodes: Number of online episodes per run.
        warmup: Number of random episodes before them.
        runs: Number of sibling runs.
        failures: Number of them that failed; runs that were not played because they could no longer change
            the verdict count as failures.
        exploring: Share of the runs played that deviated from the baseline at all.
        seed: Random seed of siblings and runs.
        siblings: Where siblings come from and what they leave out, None for those of a shipped problem.

    Raises:
        CharyError: if a number is out of range.
    """

    problem: str
    options: Mapping[str, Any] = field(default_factory=dict)
    bonus: str
    bonus_scale: float
    delta: float
    reward: str
    prior: str = "none"
    ties: str = "index"
    eta: float
    rule: str
    step_bound: float | None = None
    after_refusal: str
    charge: str
    pool: int | None = None
    clock: str
    data: str
    patience: int | None = None
    chains: bool
    episodes: int
    warmup: int
    runs: int
    failures: int
    exploring: float
    seed: int = 0
    siblings: str | None = None

    def __post_init__(self) -> None:
        # Records come from files. Types are texts here: annotations are not evaluated.
        for each in fields(self):
            if each.type == "str":
                check_type(each.name, getattr(self, each.name), str, "a text", error=InvalidData)
        if self.siblings is not None:
            check_type("siblings", self.siblings, str, "a text", error=InvalidData)
        check_type("options", self.options, Mapping, "options by name", error=InvalidData)
        check_real("bonus_scale", self.bonus_scale, low=0.0, open_low=True, open_high=True)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        check_real("eta", self.eta, low=0.0)
        check_integer("episodes", self.episodes, minimum=1)
        check_integer("warmup", self.warmup, minimum=0)
        check_integer("runs", self.runs, minimum=1)
        if check_integer("failures", self.failures, minimum=0) > self.runs:
            raise InvalidData(f"'failures' must be at most 'runs', {self.runs}, got {self.failures}.")

    @property
    def upper(self) -> float:
        """The one-sided 95 % upper limit on the share of failing runs."""
        return upper_limit(self.failures, self.runs)

    @property
    def passed(self) -> bool:
        """Whether that limit is at most delta, so that the record supports anything."""
        return self.failures <= largest_failures(self.runs, self.delta)

    def mismatches(self, used: Mapping[str, Any]) -> tuple[str, ...]:
        """Return why a run is not calibrated, one phrase per difference; nothing if it fits exactly.

        Args:
            used: Configuration of the run, by the names of `CONDITIONS`. A name that is left out is not
                compared: the problem, for an agent whose problem has no name.

        Raises:
            UnknownName: if `used` has a name that is not among them.
        """
        for name in used:
            if name not in CONDITIONS:
                raise UnknownName(f"a run's configuration has only {', '.join(CONDITIONS)}, got {name!r}.")
        failed = () if self.passed else (f"its calibration failed {self.describe()}",)
        return failed + tuple(
            difference(name, getattr(self, name), used[name])
            for name in CONDITIONS
            if name in used and not same(getattr(self, name), used[name])
        )

    @property
    def given(self) -> str:
        """What a calibrated run leans on, in words."""
        return f"calibration for exactly this configuration: {self.describe()}, which resemble this problem"

    def describe(self) -> str:
        """Return the evidence as one phrase."""
        where = self.siblings or f"of {self.problem}"
        return (
            f"on siblings {where}, ledgers were too small in {self.failures} of {self.runs} runs of "
            f"{self.episodes:,} episodes (upper 95 % limit {self.upper:.3f}, delta {self.delta:g})"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON or TOML; None is left out, and the upper limit is added."""
        values = asdict(self) | {"options": dict(self.options), "upper": self.upper}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> CalibrationRecord:
        """Return the record with these plain values; its upper limit is computed again.

        Raises:
            UnknownName: if there is a key that records do not have.
            InvalidData: if a key is missing.
            CharyError: if a value is out of range.
        """
        return read_record(cls, [each.name for each in fields(cls)], values)


def read_record(kind: Callable[..., R], known: Collection[str], values: Mapping[str, Any]) -> R:
    """Return the record with these plain values by its `known` keys; its upper limit is computed again.

    Raises:
        UnknownName: if there is a key that such records do not have.
        InvalidData: if a key is missing or of another type.
        CharyError: if a value is out of range.
    """
    given = {name: value for name, value in values.items() if name != "upper"}
    for name in given:
        if name not in known:
            raise UnknownName(f"a calibration's keys must be among {', '.join(known)}, got {name!r}.")
    try:
        return kind(**given)
    except (TypeError, AttributeError) as problem:
        raise InvalidData(
            f"a calibration must have all its keys with values of their type: {problem}."
        ) from problem


# The fields that a run must share with a record.
_EVIDENCE = ("runs", "failures", "exploring", "seed", "siblings")
CONDITIONS = tuple(each.name for each in fields(CalibrationRecord) if each.name not in _EVIDENCE)


def same(calibrated: Any, used: Any) -> bool:
    """Return whether two values are equal, apart from rounding: half of a budget may be computed anywhere."""
    if isinstance(calibrated, float) and isinstance(used, int | float):
        return math.isclose(calibrated, used, rel_tol=1e-12)
    return bool(calibrated == used)


def difference(name: str, calibrated: Any, used: Any) -> str:
    """Return one difference in plain English."""
    if name == "problem":
        return f"calibrated on siblings of {calibrated}, played {used}"
    if name in ("episodes", "warmup"):
        unit = "episodes" if name == "episodes" else "warm-up episodes"
        return f"calibrated for {calibrated:,} {unit}, played {used:,}"
    return f"calibrated with {name} {_text(calibrated)}, played with {_text(used)}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
