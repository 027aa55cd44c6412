"""Columns of the tidy tables for the deep learner: `runs` per run and budget, `curves` per point in time.

Budgets and deficits are in the rewards that the learner receives; returns are discounted and, unless their
name says otherwise, in the problem's own units. One episode in `audit_every` was compared with the truth, and
rates are rates of those.

Version 0.1 summed signed gaps, and had no second reference. For its runs the true deficit, the violations and
everything about the incumbent are missing values.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats, Ints
from chary.audit import FALL_TOLERANCE, covers, drops, falls, violates
from chary.deep.options import SHIELDED, DeepOptions
from chary.results.columns import POINTS, STANDING, Columns, Judged, Schema, points_of
from chary.standing import Standing
from chary.sweeps.deep import learner_options, own_options
from chary.sweeps.deep_problems import DEEP_PROBLEMS, OWN_OPTIONS

# The most actions of any problem; runs of problems with fewer have missing values.
ACTIONS = max(len(each.actions) for each in DEEP_PROBLEMS.values())
# Options on which the baseline that judges a run depends, in addition to the way Q_lo is learnt.
JUDGE = (
    *("huber", "width", "features", "length_scale", "ridge", "fresh", "learning_rate"),
    *("target", "tau", "period", "batch", "replay", "pretraining"),
)
# Those of an ensemble, and those among its own options.
ENSEMBLES_JUDGE = ("huber", "width", "target", "tau", "period", "batch", "replay", "pretraining")
MEMBERS_JUDGE = ("learning_rate", "observed_share", "observed_for", "margin", "window", "retreat")
USUAL = DeepOptions()


class DeepJudged(Judged):
    """A stored run of the deep learner, judged at one budget."""

    @cached_property
    def raw(self) -> Floats:
        """Discounted return per episode, in the problem's own units."""
        return self.floats("raw_returns")

    @property
    def audited(self) -> int:
        """The number of episodes that were compared with the truth."""
        return len(self.arrays["audited"])

    @property
    def by_eq_1(self) -> bool:
        """Whether gaps were summed as eq. (1) does: version 0.1 let a gain pay for a loss."""
        return "true_signed_deficit" in self.arrays

    @cached_property
    def deficit(self) -> Floats:
        """True deficits z* of audited episodes, NaN where they are unknown."""
        return self.floats("true_deficit") if self.by_eq_1 else np.full(self.audited, np.nan)

    @cached_property
    def signed_deficit(self) -> Floats:
        """The loss of audited episodes, eq. (2); version 0.1 had the same under another name."""
        return self.floats("true_signed_deficit" if self.by_eq_1 else "true_loss")

    def of_incumbent(self, name: str) -> Floats:
        """Return an audit of audited episodes against the warm-up's baseline, NaN where there is none."""
        stored = f"incumbent_{name}"
        return self.floats(stored) if stored in self.arrays else np.full(self.audited, np.nan)

    def broken(self, deficit: Floats) -> Floats:
        """Return 1 for each audited episode that broke the budget, 0 for others, NaN where unknown."""
        return np.where(np.isnan(deficit), np.nan, violates(deficit, self.budget))

    @cached_property
    def values(self) -> Floats:
        """The true value of the baseline at the start of audited episodes."""
        return self.floats("true_baseline_value")

    @property
    def below_incumbent(self) -> Floats:
        """1 for each audited episode whose baseline is worth less than the warm-up's, NaN where unknown."""
        incumbent = self.of_incumbent("baseline_value")
        return np.where(np.isnan(incumbent), np.nan, self.values < incumbent - FALL_TOLERANCE)

    @cached_property
    def standing(self) -> Standing:
        """The standing of the promise as far as options tell; measured coverage has columns of its own."""
        return learner_options(self.spec).grounds.standing

    @property
    def judge(self) -> str:
        """The options of the baseline that judges this run, without most that have their usual values."""
        options = dict(self.spec.options)
        if not self.by_eq_1 and self.spec.agent == "cql":
            # Version 0.1 judged CQL by the policy that it played.
            options["lower"] = "cql"
        if options.get("learner") == "ensemble":
            return self._ensemble
        weight = "cql_weight" if options["lower"] == "cql" else "beta"
        unusual = [name for name in JUDGE if options[name] != getattr(USUAL, name)]
        told = [
            f"Q_lo by {options['lower']}",
            *(f"{name} {_short(options[name])}" for name in (weight, *unusual)),
        ]
        return ", ".join(told)

    @property
    def _ensemble(self) -> str:
        options, given = self.spec.options, self.spec.options["ensemble"]
        usual = {name: getattr(USUAL, name) for name in ENSEMBLES_JUDGE}
        unusual = {name: options[name] for name in ENSEMBLES_JUDGE if options[name] != usual[name]}
        members = {
            name: given[name] for name in MEMBERS_JUDGE if given[name] != getattr(USUAL.ensemble, name)
        }
        told = [f"{name} {_short(value)}" for name, value in (unusual | members).items()]
        return ", ".join([f"ensemble of {given['members']}", *told])

    @cached_property
    def drops(self) -> tuple[int, int]:
        """Episodes that earned much less than the best so far, and the longest row of them."""
        return drops(self.raw)

    @cached_property
    def ledgers(self) -> tuple[int, int] | None:
        """Ledgers of audited episodes that deviated: how many covered the true deficit, and how many."""
        if self.spec.agent not in SHIELDED or not self.by_eq_1:
            return None
        deviated = np.asarray(self.arrays["true_deviations"]) > 0
        booked = self.floats("deficit")[self.arrays["audited"]]
        return int((covers(booked, self.deficit) & deviated).sum()), int(deviated.sum())

    def count(self, name: str) -> int:
        """Return a count over all audited episodes; without a shield nothing is booked."""
        booked = name.startswith("true_booked")
        return 0 if booked and self.spec.agent not in SHIELDED else int(self.arrays[name].sum())

    def covered(self, name: str, of: str) -> float | None:
        """Return one count as a share of another; None if the latter is 0."""
        return self.count(name) / self.count(of) if self.count(of) else None

    @cached_property
    def late_shares(self) -> Floats:
        """The share of each action in the last tenth."""
        late = self.floats("actions")[-self.tenth :].sum(axis=0)
        return np.asarray(late / max(float(late.sum()), 1.0))

    # Curves: one value per window of episodes, each with one audited episode or more.

    @cached_property
    def at(self) -> Ints:
        """The last episode of each window, counted from 1."""
        every = int(self.spec.options["audit_every"])
        return points_of(len(self.raw), min(POINTS, len(self.raw) // every))

    @cached_property
    def window(self) -> Ints:
        """The window of each audited episode."""
        return np.searchsorted(self.at, self.arrays["audited"], side="right")

    def judged(self, values: ArrayLike) -> Floats:
        """Return sums over the audited episodes of each window."""
        weights = np.asarray(values, dtype=np.float64)
        return np.bincount(self.window, weights=weights, minlength=len(self.at)).astype(np.float64)

    def judged_mean(self, values: ArrayLike) -> Floats:
        """Return means over the audited episodes of each window."""
        return self.over(self.judged(values), np.bincount(self.window, minlength=len(self.at)))

    def worst(self) -> Floats:
        """Return the largest true deficit of each window."""
        largest = np.full(len(self.at), np.nan)
        np.fmax.at(largest, self.window, self.deficit)
        return largest

    def held_out_coverage(self) -> Floats:
        """Return the share of held-out deviations in each window that the charge covered."""
        tried = self.judged(self.arrays["held_out_deviations"])
        return self.over(self.judged(self.arrays["held_out_covered"]), tried)

    def share(self, action: int) -> Floats:
        """Return the share of an action in each window, NaN if the problem does not have it."""
        actions = self.summed(self.floats("actions"))
        if action >= actions.shape[1]:
            return np.full(len(self.at), np.nan)
        return self.over(actions[:, action], actions.sum(axis=1))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _known(value: Any) -> float | None:
    """Return a number, or None, a missing value, if it is not finite."""
    return float(value) if np.isfinite(value) else None


def _mean(values: Floats) -> float | None:
    return _known(values.mean()) if len(values) else None


def _max(values: Floats) -> float | None:
    return _known(values.max()) if len(values) else None


def _min(values: Floats) -> float | None:
    return _known(values.min()) if len(values) else None


def _ratio(counts: tuple[int, int] | None) -> float | None:
    return counts[0] / counts[1] if counts and counts[1] else None


def _count(found: Floats) -> int | None:
    """Return how many there were; None if that is unknown of any."""
    return None if np.isnan(found).any() else int(found.sum())


def _constant(actions: Any) -> int:
    """Return the number of last episodes of a run in which only one action was played, the same in all.

    Example:
        >>> _constant(np.array([[1, 1], [2, 0], [0, 2], [0, 2]])), _constant(np.array([[2, 1]]))
        (2, 0)
    """
    counts = np.asarray(actions)
    alone = (counts > 0).sum(axis=1) == 1
    same = alone & (counts.argmax(axis=1) == counts[-1].argmax())
    return int(len(same) if same.all() else np.argmin(same[::-1]))


def _late_share(action: int) -> tuple[str, Any]:
    def share(run: DeepJudged) -> float | None:
        return float(run.late_shares[action]) if action < len(run.late_shares) else None

    return "Float64", share


def _own(name: str) -> tuple[str, Any]:
    """Return a column with an option of the problem itself: missing where the problem does not have it."""

    def value(run: DeepJudged) -> Any:
        return own_options(run.spec).get(name)

    if name == "spread":
        return "Float64", value
    return "String", lambda run: None if value(run) is None else str(value(run))


def _share(action: int) -> tuple[str, Any]:
    return "Float64", lambda run: run.share(action)


RUNS: Columns[DeepJudged] = {
    "problem": ("String", lambda run: run.spec.problem),
    **{name: _own(name) for name in OWN_OPTIONS},
    "episodes": ("Int64", lambda run: run.spec.episodes),
    "warmup": ("Int64", lambda run: run.spec.warmup),
    "discount": ("Float64", lambda run: run.spec.options["discount"]),
    "audit_every": ("Int64", lambda run: run.spec.options["audit_every"]),
    "audited": ("Int64", lambda run: run.audited),
    **STANDING,
    "max_return": ("Float64", lambda run: _max(run.raw)),
    "mean_return": ("Float64", lambda run: _mean(run.raw)),
    "early_return": ("Float64", lambda run: _mean(run.raw[: run.tenth])),
    "late_return": ("Float64", lambda run: _mean(run.raw[-run.tenth :])),
    "max_standardised": ("Float64", lambda run: _max(run.floats("returns"))),
    "mean_standardised": ("Float64", lambda run: _mean(run.floats("returns"))),
    "judge": ("String", lambda run: run.judge),
    "violations": ("Int64", lambda run: _count(run.broken(run.deficit))),
    "violation_rate": ("Float64", lambda run: _mean(run.broken(run.deficit))),
    "violations_incumbent": ("Int64", lambda run: _count(run.broken(run.of_incumbent("deficit")))),
    "deficit_mean": ("Float64", lambda run: _mean(run.floats("deficit"))),
    "deficit_max": ("Float64", lambda run: _max(run.floats("deficit"))),
    "true_deficit": ("Float64", lambda run: _mean(run.deficit)),
    "true_deficit_max": ("Float64", lambda run: _max(run.deficit)),
    "true_gap_max": ("Float64", lambda run: _max(run.floats("true_largest"))),
    "signed_deficit_mean": ("Float64", lambda run: _mean(run.signed_deficit)),
    "incumbent_deficit": ("Float64", lambda run: _mean(run.of_incumbent("deficit"))),
    "incumbent_deficit_max": ("Float64", lambda run: _max(run.of_incumbent("deficit"))),
    "incumbent_signed_mean": ("Float64", lambda run: _mean(run.of_incumbent("signed_deficit"))),
    "incumbent_value": ("Float64", lambda run: _mean(run.of_incumbent("baseline_value"))),
    "baseline_value_first": ("Float64", lambda run: _mean(run.values[:1])),
    "baseline_value_last": ("Float64", lambda run: _mean(run.values[-1:])),
    "baseline_value_lowest": ("Float64", lambda run: _min(run.values)),
    "baseline_falls": ("Int64", lambda run: falls(run.values)),
    "below_incumbent": ("Int64", lambda run: _count(run.below_incumbent)),
    "deviations": ("Int64", lambda run: run.count("true_deviations")),
    "covered": ("Int64", lambda run: run.count("true_covered")),
    "coverage": ("Float64", lambda run: run.covered("true_covered", "true_deviations")),
    "booked": ("Int64", lambda run: run.count("true_booked")),
    "booked_covered": ("Int64", lambda run: run.count("true_booked_covered")),
    "booked_coverage": ("Float64", lambda run: run.covered("true_booked_covered", "true_booked")),
    "held_out": ("Int64", lambda run: run.count("held_out_deviations")),
    "held_out_covered": ("Int64", lambda run: run.count("held_out_covered")),
    "held_out_coverage": ("Float64", lambda run: run.covered("held_out_covered", "held_out_deviations")),
    "ledgers": ("Int64", lambda run: run.ledgers and run.ledgers[1]),
    "ledgers_covered": ("Int64", lambda run: run.ledgers and run.ledgers[0]),
    "ledger_coverage": ("Float64", lambda run: _ratio(run.ledgers)),
    "drops": ("Int64", lambda run: run.drops[0]),
    "longest_drop": ("Int64", lambda run: run.drops[1]),
    "exploring_steps": ("Int64", lambda run: int(run.arrays["explored"].sum())),
    "deviating_steps": ("Int64", lambda run: int(run.arrays["deviated"].sum())),
    "steps": ("Int64", lambda run: int(run.arrays["steps"].sum())),
    "favourite": ("Int64", lambda run: int(run.late_shares.argmax())),
    "favourite_share": ("Float64", lambda run: float(run.late_shares.max())),
    "constant_episodes": ("Int64", lambda run: _constant(run.arrays["actions"])),
    **{f"share_{action}": _late_share(action) for action in range(ACTIONS)},
}
CURVES: Columns[DeepJudged] = {
    "episode": ("Int64", lambda run: run.at),
    "return": ("Float64", lambda run: run.mean("raw_returns")),
    "return_standardised": ("Float64", lambda run: run.mean("returns")),
    "best_return": ("Float64", lambda run: np.maximum.accumulate(run.raw)[run.at - 1]),
    # One episode in `audit_every` is audited: each stands for so many.
    "violations": (
        "Float64",
        lambda run: int(run.spec.options["audit_every"]) * np.cumsum(run.judged(run.broken(run.deficit))),
    ),
    "deficit_mean": ("Float64", lambda run: run.mean("deficit")),
    "true_deficit": ("Float64", lambda run: run.judged_mean(run.deficit)),
    "true_deficit_max": ("Float64", lambda run: run.worst()),
    "incumbent_deficit": ("Float64", lambda run: run.judged_mean(run.of_incumbent("deficit"))),
    "baseline_value": ("Float64", lambda run: run.judged_mean(run.values)),
    "held_out_coverage": ("Float64", lambda run: run.held_out_coverage()),
    "exploring_steps": ("Float64", lambda run: run.mean("explored")),
    "deviating_steps": ("Float64", lambda run: run.mean("deviated")),
    **{f"share_{action}": _share(action) for action in range(ACTIONS)},
}

SCHEMA: Schema[Any] = Schema(DeepJudged, RUNS, CURVES)
