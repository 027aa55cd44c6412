"""How the agents without a shield choose: the frozen baseline up to some step, the explorer from there on.

Section 9: UCBVI switches at step 0, the frozen baseline at step H, CUCBVI and EpsMix at either, StepMix
anywhere. Both drivers call these kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import inner, jit
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup
from chary.planner._kernels import EVALUATE, backward_into, sorted_states

__all__ = [
    "CUCBVI",
    "EPSMIX",
    "FROZEN",
    "STEPMIX",
    "UCBVI",
    "Mixture",
    "new_mixture",
    "switch_step",
    "uniform_pair",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UCBVI, CUCBVI, STEPMIX, EPSMIX, FROZEN = range(5)


class Mixture(NamedTuple):
    """A neighbour's settings and memory.

    `frozen` (H, S) is pi_b, the warm-up's baseline; `oracle_value` (S,) its true value where that is
    used, else empty. `starts` and `baseline_starts` (S,) count first states, `promised[0]` sums the lower
    bounds of the optimistic episodes. The rest is room for one plan.
    """

    kind: int
    alpha: float
    eta: float
    frozen: Ints
    oracle_value: Floats
    starts: Floats
    baseline_starts: Floats
    promised: Floats
    v_frozen: Floats
    v_explorer: Floats
    lower: Floats


def new_mixture(
    kind: int,
    *,
    frozen: Ints,
    alpha: float = 0.0,
    eta: float = 0.0,
    oracle_value: Floats | None = None,
) -> Mixture:
    """Return a neighbour that has not played yet."""
    H, S = frozen.shape
    return Mixture(
        kind=kind,
        alpha=float(alpha),
        eta=float(eta),
        frozen=np.array(frozen),
        oracle_value=np.zeros(0) if oracle_value is None else np.array(oracle_value),
        starts=np.zeros(S),
        baseline_starts=np.zeros(S),
        promised=np.zeros(1),
        v_frozen=np.zeros((H + 1, S)),
        v_explorer=np.zeros((H + 1, S)),
        lower=np.zeros(H + 1),
    )


@jit
def switch_step(
    mixture: Mixture, rows: Rows, radii: Radii, explorer: Ints, s: int, u: float, scratch: Scratch
) -> int:
    """Return the step from which the explorer plays in an episode that starts in s; u is one uniform."""
    horizon = radii.horizon
    if mixture.kind == UCBVI:
        return 0
    if mixture.kind == FROZEN:
        return horizon
    nobody = np.full(len(rows.visits), -1)
    none, stages = np.zeros((0, 0)), (0, horizon - 1)
    if len(mixture.oracle_value) > 0:
        worth = mixture.oracle_value
    else:
        backward_into(
            mixture.v_frozen,
            none,
            mixture.frozen,
            rows,
            radii,
            UPPER,
            EVALUATE,
            nobody,
            none,
            stages,
            scratch,
        )
        worth = mixture.v_frozen[0]
    backward_into(
        mixture.v_explorer, none, explorer, rows, radii, LOWER, EVALUATE, nobody, none, stages, scratch
    )
    if mixture.kind == CUCBVI:
        return _cucbvi_step(mixture, worth, mixture.v_explorer[0, s], s, horizon)
    _lower_mixtures_into(mixture, rows, radii, s, scratch)
    threshold = worth[s] - mixture.eta
    if mixture.kind == STEPMIX:
        return _stepmix_step(mixture.lower, threshold, u, horizon)
    return _epsmix_step(mixture.lower, threshold, u, horizon)


@inner
def _cucbvi_step(mixture: Mixture, worth: Floats, lower: float, s: int, horizon: int) -> int:
    """Play the optimistic policy if all promises, its own included, keep 1 - alpha of the baseline."""
    mixture.starts[s] += 1.0
    owed, earned = 0.0, mixture.promised[0] + lower
    for x in range(len(worth)):
        owed += mixture.starts[x] * worth[x]
        earned += mixture.baseline_starts[x] * worth[x]
    if earned >= (1.0 - mixture.alpha) * owed:
        mixture.promised[0] += lower
        return 0
    mixture.baseline_starts[s] += 1.0
    return horizon


@inner
def _lower_mixtures_into(mixture: Mixture, rows: Rows, radii: Radii, s: int, scratch: Scratch) -> None:
    """Fill LB(h0), h0 = 0..H: the lower value from s of pi_b before step h0 and the explorer from h0 on."""
    n_states = len(rows.visits)
    value, earlier = np.zeros(n_states), np.zeros(n_states)
    first = radii.horizon if mixture.kind == EPSMIX else 1
    mixture.lower[0] = mixture.v_explorer[0, s]
    for h0 in range(first, radii.horizon + 1):
        value[:] = mixture.v_explorer[h0]
        for t in range(h0 - 1, -1, -1):
            order = sorted_states(radii, value)
            for x in range(n_states):
                if radii.terminal[x]:
                    earlier[x] = 0.0
                else:
                    p = rows.pair_index[x, mixture.frozen[t, x]]
                    earlier[x] = backup(rows, radii, p, t, LOWER, value, order, scratch)
            value[:] = earlier
        mixture.lower[h0] = value[s]


@inner
def _stepmix_step(lower: Floats, threshold: float, u: float, horizon: int) -> int:
    """Mix the first candidate that reaches the threshold with the one before, so that the mean meets it."""
    for h0 in range(horizon + 1):
        if lower[h0] >= threshold:
            if h0 == 0:
                return 0
            chance = (threshold - lower[h0 - 1]) / (lower[h0] - lower[h0 - 1])
            return h0 if u < chance else h0 - 1
    return horizon


@inner
def _epsmix_step(lower: Floats, threshold: float, u: float, horizon: int) -> int:
    """Mix the baseline and the explorer, whole episodes at a time, so that the mean meets the threshold."""
    if lower[0] >= threshold:
        return 0
    if lower[horizon] < threshold:
        return horizon
    chance = (threshold - lower[0]) / (lower[horizon] - lower[0])
    return horizon if u < chance else 0


@jit
def uniform_pair(rows: Rows, s: int, u: float) -> int:
    """Return a pair of state s, uniformly over its allowed actions."""
    first, n = rows.pair_start[s], rows.pair_start[s + 1] - rows.pair_start[s]
    return first + min(int(u * n), n - 1)
