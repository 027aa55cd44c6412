"""Runs of the deep learner as rows of the tidy tables: what `chary.results` says of each.

Budgets and deficits are in standardised reward units; returns are discounted and, unless said, in the
problem's own units. One episode in `audit_every` was compared with the truth: rates are of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.audit import violates
from chary.sweeps.folder import StoredRun

__all__ = ["ACTIONS", "CURVE_COLUMNS", "RUN_COLUMNS", "curve_columns", "run_columns"]


# Treatments that a patient can be given.
ACTIONS = 4
# The agent that has a shield.
SHIELDED = "chary"
# Early and late in a run are its first and its last tenth.
TENTH = 10

RUN_COLUMNS = {
    "problem": "String",
    "patient": "String",
    "episodes": "Int64",
    "warmup": "Int64",
    "discount": "Float64",
    "audit_every": "Int64",
    "audited": "Int64",
    "max_return": "Float64",
    "mean_return": "Float64",
    "early_return": "Float64",
    "late_return": "Float64",
    "max_standardised": "Float64",
    "mean_standardised": "Float64",
    "violations": "Int64",
    "violation_rate": "Float64",
    "deficit_mean": "Float64",
    "deficit_max": "Float64",
    "true_deficit": "Float64",
    "true_deficit_max": "Float64",
    "true_gap_max": "Float64",
    "true_loss_mean": "Float64",
    "baseline_first": "Float64",
    "baseline_last": "Float64",
    "deviations": "Int64",
    "covered": "Int64",
    "coverage": "Float64",
    "booked": "Int64",
    "booked_covered": "Int64",
    "booked_coverage": "Float64",
    "held_out": "Int64",
    "held_out_covered": "Int64",
    "held_out_coverage": "Float64",
    "exploring_steps": "Int64",
    "deviating_steps": "Int64",
    "steps": "Int64",
    "favourite": "Int64",
    "favourite_share": "Float64",
    "constant_episodes": "Int64",
    **{f"share_{action}": "Float64" for action in range(ACTIONS)},
}
CURVE_COLUMNS = {
    "episode": "Int64",
    "return": "Float64",
    "return_standardised": "Float64",
    "best_return": "Float64",
    "violations": "Int64",
    "deficit_mean": "Float64",
    "true_deficit": "Float64",
    "true_deficit_max": "Float64",
    "baseline_value": "Float64",
    "held_out_coverage": "Float64",
    "exploring_steps": "Float64",
    "deviating_steps": "Float64",
    **{f"share_{action}": "Float64" for action in range(ACTIONS)},
}


def run_columns(stored: StoredRun, budget: float) -> dict[str, Any]:
    """Return one row of `runs`, keys and provenance left out."""
    arrays, spec = stored.arrays, stored.spec
    raw, returns = _floats(arrays["raw_returns"]), _floats(arrays["returns"])
    tenth = max(1, len(raw) // TENTH)
    deficit, baseline = _deficit(stored), _floats(arrays["true_baseline_value"])
    audited = len(arrays["audited"])
    violations = int(_broken(stored, budget).sum())
    late = _floats(arrays["actions"])[-tenth:].sum(axis=0)
    shares = late / max(float(late.sum()), 1.0)
    names = ("deviations", "covered", "booked", "booked_covered")
    counts = {name: int(arrays[f"true_{name}"].sum()) for name in names}
    tried, enough = (int(arrays[f"held_out_{name}"].sum()) for name in ("deviations", "covered"))
    if spec.agent != SHIELDED:
        # Where chance or an explorer deviates without a shield, nothing is booked.
        counts |= {"booked": 0, "booked_covered": 0}
    return {
        "problem": spec.problem,
        "patient": str(spec.options["patient"]),
        "episodes": spec.episodes,
        "warmup": spec.warmup,
        "discount": spec.options["discount"],
        "audit_every": spec.options["audit_every"],
        "audited": audited,
        "max_return": _known(raw.max()),
        "mean_return": _known(raw.mean()),
        "early_return": _known(raw[:tenth].mean()),
        "late_return": _known(raw[-tenth:].mean()),
        "max_standardised": _known(returns.max()),
        "mean_standardised": _known(returns.mean()),
        "violations": violations,
        "violation_rate": violations / audited if audited else None,
        "deficit_mean": _known(_floats(arrays["deficit"]).mean()),
        "deficit_max": _known(_floats(arrays["deficit"]).max()),
        "true_deficit": _mean(deficit),
        "true_deficit_max": _known(deficit.max()) if audited else None,
        "true_gap_max": _known(_floats(arrays["true_largest"]).max()) if audited else None,
        "true_loss_mean": _mean(_floats(arrays["true_loss"])),
        "baseline_first": _known(baseline[0]) if audited else None,
        "baseline_last": _known(baseline[-1]) if audited else None,
        **counts,
        "coverage": _share(counts["covered"], counts["deviations"]),
        "booked_coverage": _share(counts["booked_covered"], counts["booked"]),
        "held_out": tried,
        "held_out_covered": enough,
        "held_out_coverage": _share(enough, tried),
        "exploring_steps": int(arrays["explored"].sum()),
        "deviating_steps": int(arrays["deviated"].sum()),
        "steps": int(arrays["steps"].sum()),
        "favourite": int(shares.argmax()),
        "favourite_share": float(shares.max()),
        "constant_episodes": _constant(arrays["actions"]),
        **{f"share_{action}": float(shares[action]) for action in range(ACTIONS)},
    }


def curve_columns(stored: StoredRun, budget: float, points: int) -> dict[str, Any]:
    """Return the columns of `curves` of one run, each (points,): a window holds one audited episode or more.

    Cumulative violations are the audited ones times `audit_every`.
    """
    arrays = stored.arrays
    every = int(stored.spec.options["audit_every"])
    episodes = len(arrays["returns"])
    count = max(1, min(points, episodes // every))
    at = np.unique(np.round(np.arange(1, count + 1) * (episodes / count)).astype(np.int64))
    starts, width = np.concatenate(([0], at[:-1])), np.diff(at, prepend=0)
    window = np.searchsorted(at, arrays["audited"], side="right")
    seen = np.bincount(window, minlength=len(at))

    def mean(values: Any) -> Floats:
        return np.asarray(np.add.reduceat(_floats(values), starts) / width)

    def judged(values: Any) -> Floats:
        return np.bincount(window, weights=_floats(values), minlength=len(at)).astype(np.float64)

    def over(top: Floats, bottom: Any) -> Floats:
        below = _floats(bottom)
        return np.asarray(np.divide(top, below, out=np.full(len(at), np.nan), where=below > 0))

    worst = np.full(len(at), np.nan)
    np.fmax.at(worst, window, _deficit(stored))
    actions = np.add.reduceat(_floats(arrays["actions"]), starts, axis=0)
    return {
        "episode": at,
        "return": mean(arrays["raw_returns"]),
        "return_standardised": mean(arrays["returns"]),
        "best_return": np.maximum.accumulate(_floats(arrays["raw_returns"]))[at - 1],
        "violations": every * np.cumsum(judged(_broken(stored, budget))).astype(np.int64),
        "deficit_mean": mean(arrays["deficit"]),
        "true_deficit": over(judged(_deficit(stored)), seen),
        "true_deficit_max": worst,
        "baseline_value": over(judged(arrays["true_baseline_value"]), seen),
        "held_out_coverage": over(judged(arrays["held_out_covered"]), judged(arrays["held_out_deviations"])),
        "exploring_steps": mean(arrays["explored"]),
        "deviating_steps": mean(arrays["deviated"]),
        **{f"share_{action}": over(actions[:, action], actions.sum(axis=1)) for action in range(ACTIONS)},
    }


def _deficit(stored: StoredRun) -> Floats:
    """Return the true deficits of audited episodes, counted as charges are: from the step, or the start."""
    from_start = stored.spec.options["charge_from"] == "start"
    return _floats(stored.arrays["true_loss" if from_start else "true_deficit"])


def _broken(stored: StoredRun, budget: float) -> NDArray[np.bool_]:
    return np.asarray(violates(_deficit(stored), budget))


def _constant(actions: Any) -> int:
    """Return how many episodes at the end of a run had one treatment alone, the same in all.

    Example:
        >>> _constant(np.array([[1, 1], [2, 0], [0, 2], [0, 2]])), _constant(np.array([[2, 1]]))
        (2, 0)
    """
    counts = np.asarray(actions)
    alone = (counts > 0).sum(axis=1) == 1
    same = alone & (counts.argmax(axis=1) == counts[-1].argmax())
    return int(len(same) if same.all() else np.argmin(same[::-1]))


def _floats(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _known(value: Any) -> float | None:
    """Return a number, or None where it is none: a missing value in a table."""
    return float(value) if np.isfinite(value) else None


def _mean(values: Floats) -> float | None:
    return _known(values.mean()) if len(values) else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
