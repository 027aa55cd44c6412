"""The record of a calibrated risk: how often posterior worlds exceeded a budget on sibling problems.

Under its prior the risk of posterior worlds needs no calibration. A record adds a measurement: how often the
budget was exceeded on siblings, per episode, with a limit over whole runs. The standing of a run that was
configured exactly like it names the measurement (docs/algorithm.md section 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from chary.errors import InvalidData, check_integer, check_real, check_type
from chary.model.calibration import CONFIDENCE, CalibrationRecord, difference, read_record, same

__all__ = ["RiskRecord", "rate_limit", "record_from_plain"]


def rate_limit(violations: Sequence[int], episodes: Sequence[int]) -> float:
    """Return the one-sided 95 % upper limit on the rate of violations per episode, one entry per run.

    The larger of two: the limit from resampling whole runs, whose episodes depend on each other, and the one
    of Clopper and Pearson over all episodes. The first alone would be 0 where no run has a violation.

    Example:
        >>> round(rate_limit([0] * 20, [500] * 20), 5), round(rate_limit([0] * 19 + [20], [500] * 20), 5)
        (0.0003, 0.00631)
    """
    # Imported here: it takes long, and agents import this module.
    from chary.statistics import clopper_pearson, violation_rate

    both = 2 * CONFIDENCE - 1
    resampled = violation_rate(violations, episodes, confidence=both).interval.high
    return max(resampled, clopper_pearson(sum(violations), sum(episodes), both).high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskRecord:
    """The configuration that was played on sibling problems, and how often it exceeded its budget.

    Args:
        problem: Name of the problem whose siblings were played.
        options: Options of the problem, those left at their defaults excluded.
        played: All options of the agent, its nominal `risk` included, and the numbers of episodes; those of a
            run must be the same for the record to speak for it.
        rate: Share of episodes that may exceed the budget, the wanted one.
        violations: Number of episodes that exceeded it, one entry per run.
        exploring: Share of the runs that deviated from the baseline at all.
        seed: Random seed of siblings and runs.
        siblings: Where siblings come from and what they leave out, None for those of a shipped problem.

    Raises:
        CharyError: if a number is out of range.
    """

    problem: str
    options: Mapping[str, Any]
    played: Mapping[str, Any]
    rate: float
    violations: tuple[int, ...]
    exploring: float
    seed: int = 0
    siblings: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "violations", tuple(self.violations))
        if self.siblings is not None:
            check_type("siblings", self.siblings, str, "a text", error=InvalidData)
        check_real("rate", self.rate, low=0.0, high=1.0, open_low=True, open_high=True)
        check_real("exploring", self.exploring, low=0.0, high=1.0)
        for name in ("risk", "episodes"):
            if name not in self.played:
                raise InvalidData(
                    f"'played' must contain {name!r}, got {', '.join(self.played) or 'nothing'}."
                )
        check_real("risk", self.risk, low=0.0, high=1.0, open_low=True, open_high=True)
        most = check_integer("episodes", self.played["episodes"], minimum=1)
        check_integer("runs", len(self.violations), minimum=2)
        for each in self.violations:
            if check_integer("violations", each, minimum=0) > most:
                raise InvalidData(f"'violations' must be at most 'episodes', {most}, per run, got {each}.")

    @property
    def risk(self) -> float:
        """The nominal risk, as the agent was told."""
        return float(self.played["risk"])

    @property
    def episodes(self) -> int:
        """The number of episodes of all runs."""
        return int(self.played["episodes"]) * len(self.violations)

    @property
    def measured(self) -> float:
        """The share of episodes that exceeded the budget."""
        return sum(self.violations) / self.episodes

    @property
    def upper(self) -> float:
        """The one-sided 95 % upper limit on the rate of violations, see `rate_limit`."""
        return rate_limit(self.violations, [self.played["episodes"]] * len(self.violations))

    @property
    def passed(self) -> bool:
        """Whether that limit is at most the wanted rate."""
        return self.upper <= self.rate

    def mismatches(self, used: Mapping[str, Any]) -> tuple[str, ...]:
        """Return why the record does not speak for a run, one phrase per difference; nothing if it fits.

        Args:
            used: Configuration of the run; what it leaves out is not compared.
        """
        own = {"problem": self.problem, **self.played}
        return tuple(
            difference(name, value, used[name])
            for name, value in own.items()
            if name in used and not same(value, used[name])
        )

    @property
    def given(self) -> str:
        """The measurement in words, for the standing of a run that fits."""
        kept = "" if self.passed else f", above the wanted {self.rate:.3g}"
        return (
            "the risk was measured for exactly this configuration, and the siblings resemble this problem: "
            f"{self.describe()}{kept}"
        )

    def coverage(self, apart: Sequence[str]) -> str:
        """Return the measurement in words, or `apart`, how a run differs from what was measured."""
        return f"the risk was measured for another configuration: {', '.join(apart)}" if apart else self.given

    def describe(self) -> str:
        """Return the evidence as one phrase."""
        where = self.siblings or f"of {self.problem}"
        return (
            f"on siblings {where}, {sum(self.violations):,} of {self.episodes:,} episodes in "
            f"{sum(each > 0 for each in self.violations)} of {len(self.violations)} runs exceeded the budget "
            f"at nominal risk {self.risk:.3g} (upper 95 % limit {self.upper:.3g} per episode)"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON; the upper limit is added."""
        values = asdict(self) | {"violations": list(self.violations), "upper": self.upper}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> RiskRecord:
        """Return the record with these plain values; its upper limit is computed again.

        Raises:
            UnknownName: if there is a key that records do not have.
            InvalidData: if a key is missing or of another type.
            CharyError: if a value is out of range.
        """
        return read_record(cls, [each.name for each in fields(cls)], values)


def record_from_plain(values: Mapping[str, Any]) -> CalibrationRecord | RiskRecord:
    """Return the record of a calibrated scale or, where `played` is a key, of a calibrated risk.

    Raises:
        CharyError: if the values are not those of a record.
    """
    return (RiskRecord if "played" in values else CalibrationRecord).from_plain(values)
