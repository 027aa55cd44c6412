"""Charts as PNG and PDF files, drawn by matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chary.charts._axes import at, bands_of, from_zero, known_ends, log_ticks
from chary.charts.chart import Chart, Panel, Series
from chary.charts.palette import AXIS, BAR_GROUP, BAR_OPACITY, GRID, INK, band_opacity, require_matplotlib
from chary.texts import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PATTERNS: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
}
# Where the text next to a point may be, in points from it, the best first.
SIDES = ((6, 5), (6, -7), (-6, 5), (-6, -7), (6, 16), (6, -18), (-6, 16), (-6, -18), (6, 27), (6, -29))
# Letters of a title that fit into an inch; longer titles are wrapped.
TITLE_LETTERS = 10.5


def draw_files(chart: Chart) -> dict[str, bytes]:
    """Return the chart as `png` and `pdf`; the same chart always gives the same bytes.

    Raises:
        InvalidSetting: if matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    columns = chart.columns
    rows = -(-len(chart.panels) // columns)
    legend_rows = -(-len(chart.labels) // 4)
    width = {1: 7.2, 2: 9.6}.get(columns, 11.4)
    title = textwrap.wrap(_literal(chart.title), int(TITLE_LETTERS * width))
    height = 0.4 + 0.2 * len(title) + 2.75 * rows * chart.height + 0.24 * legend_rows
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle("\n".join(title), fontsize=11.5, fontweight="bold", color=INK, x=0.01, ha="left")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=chart.share_y).ravel()
    same_y = len({panel.y_label for panel in chart.panels}) == 1
    for i, panel in enumerate(chart.panels):
        _draw_panel(axes[i], panel)
        if i % columns == 0 or not same_y:
            axes[i].set_ylabel(_literal(panel.y_label), color=INK, fontsize=9)
        if i + columns >= len(chart.panels):
            axes[i].set_xlabel(_literal(panel.x_label), color=INK, fontsize=9)
        axes[i].tick_params(labelleft=True)
    for spare in axes[len(chart.panels) :]:
        spare.set_visible(False)
    handles = [_handle(series) for series in chart.labels.values()]
    if len(handles) > 1:
        names = [_literal(label) for label in chart.labels]
        style: dict[str, Any] = {"loc": "outside lower left", "frameon": False, "fontsize": 9}
        legend = figure.legend(handles, [""] * len(names), ncols=min(4, len(handles)), **style)
        # Set afterwards: a legend leaves out names that begin with an underscore.
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(name)
    # One layout for both files: print_figure would compute it again for each and draw twice (3.11).
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for each in axes:
        _part_marks(each)
    png, pdf = io.BytesIO(), io.BytesIO()
    # matplotlib 3.11 has no types for these two.
    canvas.print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
    FigureCanvasPdf(figure).print_pdf(  # type: ignore[no-untyped-call]
        pdf, metadata={"CreationDate": None, "Producer": None}
    )
    return {"png": png.getvalue(), "pdf": pdf.getvalue()}


def _literal(text: str) -> str:
    """Return a text as matplotlib shows it unchanged: a dollar sign would begin a formula."""
    return visible(text).replace("$", r"\$")


def _draw_panel(axes: Axes, panel: Panel) -> None:
    bars = [series for series in panel.series if series.kind == "bars"]
    opacity = band_opacity(bands_of(panel))
    for series in panel.series:
        x = [at(value, panel, series) for value in series.x]
        style: dict[str, Any] = {"color": series.colour}
        if series.kind == "bars":
            width = BAR_GROUP / len(bars)
            shift = (bars.index(series) - (len(bars) - 1) / 2) * width
            x = [value + shift for value in x]
            axes.bar(x, series.y, width=0.92 * width, **style)
        elif series.kind == "points":
            axes.plot(x, series.y, "o", markersize=5, **style)
        else:
            marker: dict[str, Any] = {"marker": "o", "markersize": 4.5} if series.kind == "path" else {}
            known = np.isfinite(series.y)
            joined = np.array(x)[known], np.array(series.y)[known]
            axes.plot(*joined, linestyle=PATTERNS[series.dash], linewidth=1.6, **marker, **style)
        _draw_interval(axes, series, x, opacity)
        for place, y, mark in zip(x, series.y, series.marks, strict=False):
            text, first = _literal(mark), SIDES[0]
            font: dict[str, Any] = {"color": series.colour, "fontsize": 8, "va": "center"}
            axes.annotate(text, (place, y), first, textcoords="offset points", **font)
    positive = [x for series in panel.series for x in series.x if x > 0]
    if panel.x_zero is not None and positive:
        # The place for 0 is not part of the logarithmic axis.
        end = math.sqrt(panel.x_zero * min(positive))
        axes.axvline(end, color=AXIS, linewidth=1.0, linestyle=PATTERNS["dot"])
    if (reach := from_zero(panel)) is not None:
        axes.set_ylim(*reach)
    for letter, axis, log in (("x", axes.xaxis, panel.x_log), ("y", axes.yaxis, panel.y_log)):
        if log:
            axes.set(**{f"{letter}scale": "log"})
            axis.set_ticks(*log_ticks(panel, letter))
            axis.set_ticks([], minor=True)
        elif max(abs(end) for end in axis.get_view_interval()) >= 1000:
            # Whole numbers, as on the page: a factor next to the axis is easily overlooked.
            axis.set_major_formatter("{x:,.0f}")
    if panel.categories:
        lean: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, panel.categories)) > 40 else {}
        axes.set_xticks(range(len(panel.categories)), [_literal(each) for each in panel.categories], **lean)
    axes.set_title(_literal(panel.title), fontsize=9.5, color=INK, loc="left")
    axes.grid(axis="y" if panel.categories else "both", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _part_marks(axes: Axes) -> None:
    """Move the texts next to points apart: each to the first of `SIDES` where it covers no other text."""
    from matplotlib.text import Annotation

    taken: list[Any] = []
    for mark in (each for each in axes.texts if isinstance(each, Annotation)):
        for x, y in SIDES:
            mark.set_position((x, y))
            mark.set_horizontalalignment("left" if x > 0 else "right")
            box = mark.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)


def _draw_interval(axes: Axes, series: Series, x: Sequence[float], opacity: float) -> None:
    known = known_ends(series)
    if not known:
        return
    there, y, low, high = (np.take(each, known) for each in (x, series.y, series.low, series.high))
    if series.kind == "line":
        axes.fill_between(there, low, high, color=series.colour, alpha=opacity, linewidth=0, zorder=1.5)
        return
    ends = np.maximum([y - low, high - y], 0.0)
    colour = INK if series.kind == "bars" else series.colour
    # Bars of their own are part of the finding; those of points stand behind all lines.
    behind: dict[str, Any] = {} if series.kind == "bars" else {"alpha": BAR_OPACITY, "zorder": 1.5}
    axes.errorbar(there, y, yerr=ends, fmt="none", ecolor=colour, elinewidth=1.0, capsize=2.5, **behind)


def _handle(series: Series) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    style: dict[str, Any] = {"color": series.colour}
    if series.kind == "bars":
        return Patch(**style)
    line: Any = "" if series.kind == "points" else PATTERNS[series.dash]
    marker = "o" if series.kind in ("points", "path") else ""
    return Line2D([], [], linestyle=line, marker=marker, markersize=5, linewidth=1.8, **style)
