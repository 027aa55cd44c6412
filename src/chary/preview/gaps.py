"""Step bounds compared with the log: what single steps lose, as posterior worlds estimate it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from chary.arrays import Bools
from chary.preview.credible import INTERVAL, Planned, price_steps
from chary.preview.measure import Cells
from chary.preview.result import CredibleValue, Gap, StepBound

# Steps whose gaps are computed at a time, one number per world each.
CHUNK = 50_000


def check_step_bounds(
    planned: Planned, cells: Cells, tried: Bools, bounds: Sequence[float], risk: float
) -> tuple[StepBound, ...]:
    """Return what the log says about step bounds, in the user's units.

    At every cell (t, s), each action of which `tried`, (P,), says that the log has it is compared with the
    baseline. A bound is refuted where one of them loses more in all worlds but a share `risk`.
    """
    setting, baseline = planned.setting, planned.plan.baseline
    number = np.diff(setting.pair_start)[cells.state]
    row = np.repeat(np.arange(len(number)), number)
    place = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    pair = setting.pair_start[cells.state[row]] + place
    t, state, action = cells.t[row], cells.state[row], setting.pair_action[pair]
    kept = tried[pair] & (action != baseline[t, state])
    steps = np.column_stack([t, state, action])[kept]
    n = len(steps)
    mean, surely = np.zeros(n), np.zeros(n)
    span, sure = setting.scale.span, math.floor(risk * planned.plan.judges)
    for begin in range(0, n, CHUNK):
        part = slice(begin, begin + CHUNK)
        gaps = price_steps(planned, steps[part]) * span
        mean[part], surely[part] = gaps.mean(axis=1), np.partition(gaps, sure, axis=1)[:, sure]
    worst = None
    if n:
        i = int(np.argmax(surely))
        gaps = price_steps(planned, steps[i : i + 1])[0] * span
        low, high = np.quantile(gaps, INTERVAL).tolist()
        value = CredibleValue(mean=float(mean[i]), low=low, high=high)
        at, s, a = (int(each) for each in steps[i])
        worst = Gap(t=at, state=s, action=a, gap=value, surely=float(surely[i]))
    return tuple(
        StepBound(
            bound=bound,
            refuted=bool((surely > bound).any()),
            refuting=int((surely > bound).sum()),
            compared=n,
            above=float((mean > bound).mean()) if n else 0.0,
            worst=worst,
        )
        for bound in sorted(set(bounds))
    )
