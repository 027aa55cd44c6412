"""Axes that both renderers share: ticks of logarithmic ones, and where y begins and ends."""

from __future__ import annotations

import math

from chary.charts.chart import Panel, Series

# A logarithmic axis shorter than this has ticks between powers of ten, and a still shorter one even steps.
FEW_DECADES, ONE_DECADE = 2.0, 0.8
# The least distance of two ticks beside a place for 0, as a share of a logarithmic axis.
CLOSEST_TICKS = 0.08
MOST_TICKS = 5
# How far the place of 0 reaches to each side, as a factor.
ZERO_REACH = 1.6
# Digits of a tick: as few as tell the ticks of an axis apart.
DIGITS_OF_TICKS = (4, 6, 9, 16)
# An axis that begins below this has ticks with exponents.
SMALL = 1e-3


def known_ends(series: Series) -> list[int]:
    """Return the points of a series that have an interval."""
    return [i for i in range(len(series.low)) if math.isfinite(series.low[i] + series.high[i])]


def at(x: float, panel: Panel, series: Series) -> float:
    """Return where an x is drawn; a logarithmic axis has a place for 0, where series stand side by side."""
    if panel.x_zero is None or x > 0:
        return x
    there = [each for each in panel.series if any(value <= 0 for value in each.x)]
    middle = (len(there) - 1) / 2
    reach: float = ZERO_REACH ** ((there.index(series) - middle) / max(middle, 1.0))
    return panel.x_zero * reach


def bands_of(panel: Panel) -> int:
    """Return the number of lines of a panel that have a band."""
    return sum(series.kind == "line" and bool(known_ends(series)) for series in panel.series)


def log_ticks(panel: Panel, letter: str) -> tuple[list[float], list[str]]:
    """Return the ticks of a logarithmic axis and their names: powers of ten, with 2 and 5 times them if few.

    An x axis with a place for 0 has a tick there.
    """
    shown = [x for series in panel.series for x in series.x] if letter == "x" else _shown(panel)
    values = [value for value in shown if math.isfinite(value) and value > 0] or [1.0]
    least, most = min(values), max(values)
    low, high = math.log10(least), math.log10(most)
    if high - low < ONE_DECADE:
        # Too short for powers of ten: even steps, as on any other axis.
        size = 10.0 ** math.floor(math.log10(most - least or most))
        step = next(s for s in (size / 5, size / 2, size, 2 * size) if (most - least) / s <= MOST_TICKS)
        ticks = [i * step for i in range(math.floor(least / step), math.ceil(most / step) + 1)]
    else:
        steps = (1.0, 2.0, 5.0) if high - low < FEW_DECADES else (1.0,)
        powers = range(math.floor(low), math.ceil(high) + 1)
        ticks = [step * 10.0**power for power in powers for step in steps]
    # By default an axis extends this far beyond its data.
    room = 0.02 + 0.05 * (high - low)
    reach = (10 ** (low - room), 10 ** (high + room))
    inside = [tick for tick in ticks if reach[0] <= tick <= reach[1]] or [least]
    for digits in DIGITS_OF_TICKS:
        names = [_tick_name(tick, digits, small=least < SMALL) for tick in inside]
        if len(set(names)) == len(names):
            break
    kept = list(zip(inside, names, strict=True))
    if letter == "x" and panel.x_zero is not None:
        zero = panel.x_zero
        # What lies close together beside a distant 0 would be written over each other.
        gap = (reach[1] / zero) ** CLOSEST_TICKS
        beyond, kept = [each for each in kept if each[0] > 2 * zero], [(zero, "0")]
        for tick, name in beyond:
            if tick >= kept[-1][0] * gap:
                kept.append((tick, name))
    return [tick for tick, _ in kept], [name for _, name in kept]


def _tick_name(tick: float, digits: int = 4, *, small: bool = False) -> str:
    """Return the name of a tick; on an axis of small numbers it has an exponent.

    Example:
        >>> [_tick_name(tick) for tick in (0.1, 0.3000000000004, 2e3, 1e8)], _tick_name(5e-5, small=True)
        (['0.1', '0.3', '2,000', '1e+08'], '5e-5')
    """
    if small:
        mantissa, power = f"{tick:.{digits - 1}e}".split("e")
        return f"{float(mantissa):.{digits}g}e{int(power)}"
    return f"{tick:,.0f}" if 1000 <= tick < 1e6 and digits == 4 else f"{tick:.{digits}g}"


def from_zero(panel: Panel) -> tuple[float, float] | None:
    """Return the range of a linear y axis without negative values; None for other panels."""
    values = [value for value in _shown(panel) if math.isfinite(value)]
    if panel.y_log or not panel.y_zero or min(values, default=0.0) < 0:
        return None
    if panel.y_top is not None:
        return (0.0, panel.y_top)
    return (0.0, 1.06 * max(values) if any_above_zero(panel) else 1.0)


def _shown(panel: Panel) -> list[float]:
    """Return all values on the y axis, NaN where there is none."""
    return [value for series in panel.series for value in (*series.y, *series.low, *series.high)]


def any_above_zero(panel: Panel) -> bool:
    """Whether anything in the panel is above 0."""
    return any(value > 0 for series in panel.series for value in (*series.y, *series.high))
