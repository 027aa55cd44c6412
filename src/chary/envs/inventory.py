"""Inventory control with one product: the paper's appendix, "Inventory control"."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.errors import InvalidSetting, check_choice, check_integer, check_real
from chary.mdp import FiniteMDP
from chary.mdp._checks import ROW_SUM_TOLERANCE
from chary.texts import shown

UNITS = ("scaled", "money")


def inventory(
    *,
    capacity: int = 5,
    horizon: int = 20,
    units: str = "scaled",
    fixed_cost: float = 2.0,
    unit_cost: float = 2.0,
    holding_cost: float = 1.0,
    unit_revenue: float = 8.0,
    demand: ArrayLike | None = None,
) -> FiniteMDP:
    """Return the inventory problem of the paper's appendix.

    State s is the stock at the beginning of a month, 0..M; a <= M - s items are ordered; demand D is then
    drawn and the next stock is s' = max(0, s + a - D). With O(a) = K + c a for a > 0 and O(0) = 0,

        r(s, a, s') = -O(a) - h (s + a) + f (s + a - s'),

    scaled to [0, 1] by its extremes over the possible transitions. An episode starts with empty stock. The
    reward function is declared for every s', also for s' > s + a, which cannot happen.

    Args:
        capacity: M, the largest stock, >= 1.
        horizon: H, in months.
        units: The problem's reward units: `scaled` (those of the paper's budgets) or `money`,
            which stores the scaling, so that eta and results are in money too.
        fixed_cost: K, paid once for an order of any size, >= 0.
        unit_cost: c, paid for each item ordered, >= 0.
        holding_cost: h, paid for each item in stock after the order, >= 0.
        unit_revenue: f, earned for each item sold, >= 0.
        demand: The probabilities of a demand of 0, 1, ...; uniform on 0..M by default.

    Raises:
        InvalidSetting: if a cost is negative, `demand` is not a distribution, or all transitions have the
            same reward.
        UnknownName: if `units` is neither `scaled` nor `money`.

    Example:
        >>> inventory(units="money").scale
        RewardScale(low=-17.0, high=35.0)
    """
    M = check_integer("capacity", capacity, minimum=1)
    check_choice("units", units, UNITS)
    K = check_real("fixed_cost", fixed_cost, low=0.0, open_high=True)
    c = check_real("unit_cost", unit_cost, low=0.0, open_high=True)
    h = check_real("holding_cost", holding_cost, low=0.0, open_high=True)
    f = check_real("unit_revenue", unit_revenue, low=0.0, open_high=True)
    d = np.full(M + 1, 1 / (M + 1)) if demand is None else _distribution("demand", demand)

    s, a, x = np.meshgrid(*[np.arange(M + 1)] * 3, indexing="ij")
    allowed = (s + a <= M)[:, :, 0]
    P = np.zeros((M + 1, M + 1, M + 1))
    for stock, order in np.argwhere(allowed):
        np.add.at(P[stock, order], np.maximum(0, stock + order - np.arange(len(d))), d)
    R = -np.where(a > 0, K + c * a, 0.0) - h * (s + a) + f * (s + a - x)

    possible = R[P > 0]
    low, high = float(possible.min()), float(possible.max())
    if not low < high:
        raise InvalidSetting(
            f"'fixed_cost', 'unit_cost', 'holding_cost' and 'unit_revenue' must leave rewards that differ, "
            f"got {low:g} everywhere. Make one of them positive."
        )
    return FiniteMDP.from_arrays(
        P,
        R if units == "money" else (R - low) / (high - low),
        name="inventory",
        horizon=horizon,
        allowed=allowed,
        reward_range=(low, high) if units == "money" else (0.0, 1.0),
    )


def _distribution(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        p = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InvalidSetting(f"{name!r} must be a list of probabilities, got {shown(values)}.") from problem
    if p.ndim != 1 or p.size == 0 or not np.isfinite(p).all() or (p < 0).any():
        raise InvalidSetting(f"{name!r} must be a list of probabilities >= 0, got {shown(values)}.")
    if abs(p.sum() - 1) > ROW_SUM_TOLERANCE:
        raise InvalidSetting(f"{name!r} must sum to 1, got a sum of {p.sum():.12g}.")
    return p
