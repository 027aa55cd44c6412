"""Figures, drawn by matplotlib, which is imported only when one is drawn (extra `figures`)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chary.arrays import Floats
from chary.errors import InvalidSetting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INK", "PALETTE", "Curve", "learning_figure", "require_matplotlib"]


# Okabe and Ito's colours, told apart by all common kinds of colour vision; three blues are one family.
PALETTE = {
    "vermillion": "#D55E00",
    "orange": "#E69F00",
    "purple": "#CC79A7",
    "green": "#009E73",
    "grey": "#555555",
    "light blue": "#5AA9DD",
    "blue": "#1F6FB2",
    "dark blue": "#0B3C6B",
}
INK = "#222222"


class Curve(NamedTuple):
    """One line of both panels: regret and violations of every episode, (K,), not yet summed up."""

    label: str
    regret: Floats
    violations: Floats
    colour: str
    dash: str = "-"


def require_matplotlib() -> None:
    """Raise InvalidSetting, with the way out, where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as problem:
        raise InvalidSetting(
            "'matplotlib' must be installed to draw a figure, got none. Run: pip install 'chary[figures]'."
        ) from problem


def learning_figure(curves: Sequence[Curve], *, title: str, violations_label: str) -> bytes:
    """Return a PNG of two panels: regret and violations summed up over the episodes, one line a curve.

    Lines end in their own labels, moved apart where they would overlap.

    Raises:
        InvalidSetting: if matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.8), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title, fontsize=12, color=INK, x=0.01, ha="left")
    for axes, name, sums in (
        (left, "Regret, summed over episodes", [np.cumsum(curve.regret) for curve in curves]),
        (right, violations_label, [np.cumsum(curve.violations) for curve in curves]),
    ):
        _panel(axes, name, curves, sums)
    target = io.BytesIO()
    canvas.print_figure(target, format="png")
    return target.getvalue()


def _panel(axes: Axes, name: str, curves: Sequence[Curve], sums: Sequence[Floats]) -> None:
    episodes = np.arange(1, len(sums[0]) + 1)
    for curve, values in zip(curves, sums, strict=True):
        axes.plot(episodes, values, color=curve.colour, linestyle=curve.dash, linewidth=1.8)
    axes.set_title(name, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("episode", color=INK)
    axes.set_xlim(1, len(episodes))
    top = max(float(values[-1]) for values in sums) or 1.0
    axes.set_ylim(-0.02 * top, 1.06 * top)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    ends = [float(values[-1]) for values in sums]
    for curve, end, place in zip(curves, ends, _apart(ends, gap=0.062 * top, top=1.04 * top), strict=True):
        style: dict[str, Any] = {"color": curve.colour, "linewidth": 0.8, "clip_on": False}
        axes.plot([1.0, 1.03], [end / top, place / top], transform=_mixed(axes, top), **style)
        axes.text(
            1.04,
            place / top,
            f"{curve.label}  {end:.0f}",
            transform=_mixed(axes, top),
            color=curve.colour,
            fontsize=9,
            va="center",
            clip_on=False,
        )


def _mixed(axes: Axes, top: float) -> Any:
    """Return coordinates whose x is a share of the panel's width and whose y is a share of `top`."""
    from matplotlib.transforms import Affine2D, blended_transform_factory

    return blended_transform_factory(axes.transAxes, Affine2D().scale(1.0, top) + axes.transData)


def _apart(ends: Sequence[float], *, gap: float, top: float) -> Floats:
    """Return places at least `gap` apart, in the order of `ends`, as near to them as one sweep gets.

    Example:
        >>> _apart([0.0, 0.0, 5.0], gap=1.0, top=10.0)
        array([0., 1., 5.])
    """
    order = np.argsort(ends, kind="stable")
    places = np.array(ends, dtype=float)
    for below, above in itertools.pairwise(order):
        places[above] = max(places[above], places[below] + gap)
    # Whatever was pushed over the top comes back down, pushing those below.
    ceiling = top
    for i in order[::-1]:
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places
