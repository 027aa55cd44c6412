"""Charts as values, and two ways to draw them: files by matplotlib, and figures for plotly.js.

A chart says what is shown, not how: the same one becomes a PNG, a PDF and an interactive figure, with the
same colours. Neither library is imported before something is drawn.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chary.charts.palette import INK, require_matplotlib
from chary.errors import InvalidSetting, check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DASHES", "KINDS", "Chart", "Panel", "Series", "draw_files", "plotly_figure", "thinned"]

# `path` is points joined by a line, `bars` stand beside each other at whole x.
KINDS = ("line", "points", "path", "bars")
# Names as in plotly.js, patterns as in matplotlib.
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
}

BAND_OPACITY = 0.13
GRID = "#E3E5E8"
# Digits of a number in an interactive figure: more than a screen can show.
DIGITS = 5
ROW_PIXELS = 250
# A logarithmic axis shorter than this has ticks between powers of ten, and a still shorter one even steps.
FEW_DECADES, ONE_DECADE = 2.0, 0.8
MOST_TICKS = 5
# Digits of a tick: as few as tell the ticks of an axis apart.
DIGITS_OF_TICKS = (4, 6, 9, 16)
# An axis that begins below this has ticks with exponents.
SMALL = 1e-3
BAR_GROUP = 0.8
# Letters of a title that an inch has room for; longer ones go on in the next line.
TITLE_LETTERS = 10.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, set of points or set of bars of a panel.

    Args:
        label: What the legend calls it; series of one label are shown and hidden together.
        x: Where its points lie; with categories, whole numbers from 0.
        y: Their heights, as many; NaN where there is none.
        low: The lower end of the interval at each point, or nothing; NaN where there is none.
        high: The upper end.
        colour: As `#RRGGBB`.
        dash: A key of `DASHES`.
        kind: One of `KINDS`.
        notes: What is said of each point when it is pointed at, or nothing.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: str = INK
    dash: str = "solid"
    kind: str = "line"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("dash", self.dash, DASHES)
        for name in ("y", "low", "high", "notes"):
            values = getattr(self, name)
            if len(values) != len(self.x) and (values or name == "y"):
                raise InvalidSetting(
                    f"{name!r} of series {self.label!r} must have an entry for each of {len(self.x)} points, "
                    f"got {len(values)}."
                )
        if bool(self.low) != bool(self.high):
            raise InvalidSetting(f"'low' and 'high' of series {self.label!r} must be given together.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes.

    Args:
        title: What it shows.
        x_label: What lies along x.
        y_label: What lies along y.
        series: What is drawn, the first at the back.
        x_log: Whether x is logarithmic.
        y_log: Whether y is logarithmic.
        x_zero: Where a logarithmic x shows 0, which it has no place for; nothing if no x is 0.
        y_top: Where y ends, though bands may go on; nothing to show everything.
        y_zero: Whether y begins at 0 where nothing is below; False to show small differences.
        categories: Names of x = 0, 1, ..., where x is no quantity.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    x_zero: float | None = None
    y_top: float | None = None
    y_zero: bool = True
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure of one or more panels.

    Args:
        key: Its name in files and links.
        title: What it shows.
        caption: How to read it.
        panels: From left to right, then down.
        share_y: Whether all panels have the same y.
        across: How many panels stand side by side where there is room; nothing to let their number decide.
    """

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    share_y: bool = False
    across: int | None = None

    @property
    def columns(self) -> int:
        """How many panels stand side by side where there is room."""
        if self.across is not None:
            return self.across
        return len(self.panels) if len(self.panels) <= 3 else 2

    @property
    def labels(self) -> dict[str, Series]:
        """The first series of every label, for the legend, which leaves out what an axis names already."""
        found: dict[str, Series] = {}
        # The fullest panel has them in their proper order.
        for panel in sorted(self.panels, key=lambda panel: -len(panel.series)):
            for series in panel.series:
                if series.label not in panel.categories:
                    found.setdefault(series.label, series)
        return found


def thinned(chart: Chart, points: int) -> Chart:
    """Return the chart with at most about `points` points a line, the last one kept.

    Example:
        >>> line = Series(label="a", x=(0, 1, 2, 3, 4), y=(0, 1, 2, 3, 4))
        >>> panel = Panel(title="", x_label="", y_label="", series=(line,))
        >>> thinned(Chart(key="c", title="", caption="", panels=(panel,)), 3).panels[0].series[0].x
        (0, 2, 4)
    """

    def thin(series: Series) -> Series:
        step = -(-len(series.x) // points)
        if series.kind != "line" or step <= 1:
            return series
        # Counted from the end, so that the last point stays.
        keep = slice((len(series.x) - 1) % step, None, step)
        return replace(
            series,
            x=series.x[keep],
            y=series.y[keep],
            low=series.low[keep],
            high=series.high[keep],
            notes=series.notes[keep],
        )

    panels = tuple(replace(each, series=tuple(thin(one) for one in each.series)) for each in chart.panels)
    return replace(chart, panels=panels)


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
    title = textwrap.wrap(chart.title, int(TITLE_LETTERS * width))
    height = 0.4 + 0.2 * len(title) + 2.75 * rows + 0.24 * legend_rows
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle("\n".join(title), fontsize=11.5, fontweight="bold", color=INK, x=0.01, ha="left")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=chart.share_y).ravel()
    same_y = len({panel.y_label for panel in chart.panels}) == 1
    for i, panel in enumerate(chart.panels):
        _draw_panel(axes[i], panel)
        if i % columns == 0 or not same_y:
            axes[i].set_ylabel(panel.y_label, color=INK, fontsize=9)
        if i + columns >= len(chart.panels):
            axes[i].set_xlabel(panel.x_label, color=INK, fontsize=9)
        axes[i].tick_params(labelleft=True)
    for spare in axes[len(chart.panels) :]:
        spare.set_visible(False)
    handles = [_handle(series) for series in chart.labels.values()]
    if len(handles) > 1:
        figure.legend(
            handles=handles, loc="outside lower left", ncols=min(4, len(handles)), frameon=False, fontsize=9
        )
    # Laid out once for both files, which print_figure would do anew for each, drawing twice (3.11).
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    png, pdf = io.BytesIO(), io.BytesIO()
    # matplotlib 3.11 has no types for these two.
    canvas.print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
    FigureCanvasPdf(figure).print_pdf(  # type: ignore[no-untyped-call]
        pdf, metadata={"CreationDate": None, "Producer": None}
    )
    return {"png": png.getvalue(), "pdf": pdf.getvalue()}


def _draw_panel(axes: Axes, panel: Panel) -> None:
    bars = [series for series in panel.series if series.kind == "bars"]
    for series in panel.series:
        x = [_at(value, panel) for value in series.x]
        style: dict[str, Any] = {"color": series.colour, "label": series.label}
        if series.kind == "bars":
            width = BAR_GROUP / len(bars)
            shift = (bars.index(series) - (len(bars) - 1) / 2) * width
            x = [value + shift for value in x]
            axes.bar(x, series.y, width=0.92 * width, **style)
        elif series.kind == "points":
            axes.plot(x, series.y, "o", markersize=5, **style)
        else:
            marker: dict[str, Any] = {"marker": "o", "markersize": 4.5} if series.kind == "path" else {}
            xs, ys = _joinable(x, series.y)
            axes.plot(xs, ys, linestyle=DASHES[series.dash], linewidth=1.6, **marker, **style)
        _draw_interval(axes, series, x)
    if panel.x_log:
        axes.set_xscale("log")
        axes.set_xticks(*_log_ticks(panel, "x"))
        axes.set_xticks([], minor=True)
    if panel.y_log:
        axes.set_yscale("log")
        axes.set_yticks(*_log_ticks(panel, "y"))
        axes.set_yticks([], minor=True)
    if (reach := _from_zero(panel)) is not None:
        axes.set_ylim(*reach)
    # Whole numbers as on the page: a factor beside the axis is easily overlooked.
    for axis, log in ((axes.xaxis, panel.x_log), (axes.yaxis, panel.y_log)):
        if not log:
            low, high = axis.get_view_interval()
            if max(abs(low), abs(high)) >= 1000:
                axis.set_major_formatter("{x:,.0f}")
    if panel.categories:
        lean: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, panel.categories)) > 40 else {}
        axes.set_xticks(range(len(panel.categories)), panel.categories, **lean)
    axes.set_title(panel.title, fontsize=9.5, color=INK, loc="left")
    axes.grid(axis="y" if panel.categories else "both", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_interval(axes: Axes, series: Series, x: Sequence[float]) -> None:
    known = [
        i for i in range(len(series.low)) if math.isfinite(series.low[i]) and math.isfinite(series.high[i])
    ]
    if not known:
        return
    at = [x[i] for i in known]
    low, high = [series.low[i] for i in known], [series.high[i] for i in known]
    if series.kind == "line":
        axes.fill_between(at, low, high, color=series.colour, alpha=BAND_OPACITY, linewidth=0)
        return
    below = [max(series.y[i] - series.low[i], 0.0) for i in known]
    above = [max(series.high[i] - series.y[i], 0.0) for i in known]
    axes.errorbar(
        at,
        [series.y[i] for i in known],
        yerr=[below, above],
        fmt="none",
        ecolor=INK if series.kind == "bars" else series.colour,
        elinewidth=1.0,
        capsize=2.5,
    )


def _handle(series: Series) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if series.kind == "bars":
        return Patch(color=series.colour, label=series.label)
    return Line2D(
        [],
        [],
        color=series.colour,
        linestyle="" if series.kind == "points" else DASHES[series.dash],
        marker="o" if series.kind in ("points", "path") else "",
        markersize=5,
        linewidth=1.8,
        label=series.label,
    )


def plotly_figure(chart: Chart, *, columns: int | None = None) -> dict[str, Any]:
    """Return the chart as a plain figure of plotly.js, `data` and `layout`, numbers to 5 digits.

    The legend is left to the page: traces of one label share their `legendgroup`.

    Args:
        chart: What to draw.
        columns: How many panels stand side by side; by default as many as the chart likes.
    """
    across = chart.columns if columns is None else columns
    rows = -(-len(chart.panels) // across)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": rows * (ROW_PIXELS + 70) + 40,
        # The buttons of plotly.js stand above the titles of the first row.
        "margin": {"l": 56, "r": 10, "t": 50, "b": 46},
        "showlegend": False,
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "modebar": {"bgcolor": "rgba(255,255,255,0.85)", "color": "#8A8F98", "activecolor": INK},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "hovermode": "x unified" if _all_lines(chart) else "closest",
        "hoverlabel": {"font": {"size": 11}, "namelength": -1},
        "barmode": "group",
        "bargap": 1 - BAR_GROUP,
        "annotations": [],
    }
    same_y = len({panel.y_label for panel in chart.panels}) == 1
    gap_x, gap_y = (0.0 if across == 1 else 0.09), (0.0 if rows == 1 else 70 / (rows * (ROW_PIXELS + 70)))
    wide, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (rows - 1)) / rows
    for i, panel in enumerate(chart.panels):
        number = "" if i == 0 else str(i + 1)
        row, column = divmod(i, across)
        left, top = column * (wide + gap_x), 1 - row * (tall + gap_y)
        x_axis = _axis(panel, "x", f"y{number}", [left, left + wide])
        y_axis = _axis(panel, "y", f"x{number}", [max(top - tall, 0.0), top])
        if i + across >= len(chart.panels):
            x_axis["title"] = {"text": panel.x_label, "standoff": 6}
        if column == 0 or not same_y:
            y_axis["title"] = {"text": panel.y_label, "standoff": 4}
        if chart.share_y and i:
            y_axis["matches"] = "y"
        layout[f"xaxis{number}"], layout[f"yaxis{number}"] = x_axis, y_axis
        layout["annotations"].append(
            {
                "text": f"<b>{panel.title}</b>",
                "x": left,
                "y": top,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12},
            }
        )
        for series in panel.series:
            data += _traces(series, panel, number)
    return {"data": data, "layout": layout}


def _axis(panel: Panel, letter: str, anchor: str, domain: list[float]) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "anchor": anchor,
        "domain": [round(edge, 4) for edge in domain],
        "gridcolor": GRID,
        "linecolor": "#9AA0A6",
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#9AA0A6",
        "automargin": True,
        "exponentformat": "none",
        "separatethousands": True,
    }
    if panel.x_log if letter == "x" else panel.y_log:
        ticks, names = _log_ticks(panel, letter)
        axis |= {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": names}
    elif letter == "y" and (reach := _from_zero(panel)) is not None:
        # Ranges are left to plotly.js, so that panels may share theirs, but where there is only 0.
        axis |= (
            {"range": list(reach)} if panel.y_top or not _any_above_zero(panel) else {"rangemode": "tozero"}
        )
    if letter == "x" and panel.categories:
        count = len(panel.categories)
        axis |= {"tickmode": "array", "tickvals": list(range(count)), "ticktext": list(panel.categories)}
        axis |= {"range": [-0.6, count - 0.4], "showgrid": False}
    return axis


def _traces(series: Series, panel: Panel, number: str) -> list[dict[str, Any]]:
    place = {"xaxis": f"x{number}", "yaxis": f"y{number}", "legendgroup": series.label, "name": series.label}
    x = [_short(_at(value, panel)) for value in series.x]
    trace: dict[str, Any] = {**place, "type": "scatter", "x": x, "y": [_short(value) for value in series.y]}
    known = [
        i for i in range(len(series.low)) if math.isfinite(series.low[i]) and math.isfinite(series.high[i])
    ]
    traces = []
    if series.kind == "bars":
        trace |= {"type": "bar", "marker": {"color": series.colour}}
    elif series.kind == "points":
        trace |= {"mode": "markers", "marker": {"color": series.colour, "size": 9}}
    else:
        trace |= {"mode": "lines+markers" if series.kind == "path" else "lines", "connectgaps": True}
        trace["line"] = {"color": series.colour, "width": 2, "dash": series.dash}
    if known and series.kind == "line":
        there = [x[i] for i in known]
        traces.append(
            {
                **place,
                "type": "scatter",
                "mode": "lines",
                "x": there + there[::-1],
                "y": [_short(series.low[i]) for i in known] + [_short(series.high[i]) for i in known[::-1]],
                "fill": "toself",
                "fillcolor": _translucent(series.colour),
                "line": {"width": 0},
                "hoverinfo": "skip",
            }
        )
    elif known:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_distance(high, y) for high, y in zip(series.high, series.y, strict=True)],
            "arrayminus": [_distance(y, low) for y, low in zip(series.y, series.low, strict=True)],
            "color": INK if series.kind == "bars" else series.colour,
            "thickness": 1.2,
            "width": 4,
        }
    if series.notes:
        trace |= {"text": list(series.notes), "hovertemplate": "%{text}<extra></extra>"}
        if series.kind == "bars":
            trace["textposition"] = "none"
    elif series.kind == "bars":
        trace["hovertemplate"] = "%{y:.4~g}"
    else:
        trace["hovertemplate"] = f"{series.label}: %{{y:.4~g}}<extra></extra>"
    return [*traces, trace]


def _all_lines(chart: Chart) -> bool:
    return all(series.kind == "line" for panel in chart.panels for series in panel.series)


def _at(x: float, panel: Panel) -> float:
    return panel.x_zero if panel.x_zero is not None and x <= 0 else x


def _log_ticks(panel: Panel, letter: str) -> tuple[list[float], list[str]]:
    """Return the ticks of a logarithmic axis: powers of ten, with 2 and 5 times them where there are few.

    An x with a place for 0 has a tick there.
    """
    values = [
        value
        for series in panel.series
        for value in (series.x if letter == "x" else (*series.y, *series.low, *series.high))
        if math.isfinite(value) and value > 0
    ] or [1.0]
    low, high = math.log10(min(values)), math.log10(max(values))
    if high - low < ONE_DECADE:
        # Too short for powers of ten: even steps, as on any other axis.
        size = 10.0 ** math.floor(math.log10(max(values) - min(values) or max(values)))
        step = next(
            s for s in (size / 5, size / 2, size, 2 * size) if (max(values) - min(values)) / s <= MOST_TICKS
        )
        ticks = [i * step for i in range(math.floor(min(values) / step), math.ceil(max(values) / step) + 1)]
    else:
        steps = (1.0, 2.0, 5.0) if high - low < FEW_DECADES else (1.0,)
        powers = range(math.floor(low), math.ceil(high) + 1)
        ticks = [step * 10.0**power for power in powers for step in steps]
    # As far as an axis goes beyond its data by itself.
    room = 0.02 + 0.05 * (high - low)
    reach = (10 ** (low - room), 10 ** (high + room))
    inside = [tick for tick in ticks if reach[0] <= tick <= reach[1]] or [min(values)]
    for digits in DIGITS_OF_TICKS:
        names = [_tick_name(tick, digits, small=min(values) < SMALL) for tick in inside]
        if len(set(names)) == len(names):
            break
    kept = list(zip(inside, names, strict=True))
    if letter == "x" and panel.x_zero is not None:
        zero = panel.x_zero
        kept = [(zero, "0"), *((tick, name) for tick, name in kept if tick > 2 * zero)]
    return [tick for tick, _ in kept], [name for _, name in kept]


def _tick_name(tick: float, digits: int = 4, *, small: bool = False) -> str:
    """Return what is written beside a tick; on an axis of small numbers with an exponent.

    Example:
        >>> [_tick_name(tick) for tick in (0.1, 0.3000000000004, 2e3, 1e8)], _tick_name(5e-5, small=True)
        (['0.1', '0.3', '2,000', '1e+08'], '5e-5')
    """
    if small:
        mantissa, power = f"{tick:.{digits - 1}e}".split("e")
        return f"{float(mantissa):.{digits}g}e{int(power)}"
    return f"{tick:,.0f}" if 1000 <= tick < 1e6 and digits == 4 else f"{tick:.{digits}g}"


def _from_zero(panel: Panel) -> tuple[float, float] | None:
    """Return the reach of a y that begins at 0: of all without logarithm and with nothing below it."""
    values = [
        value
        for series in panel.series
        for value in (*series.y, *series.low, *series.high)
        if math.isfinite(value)
    ]
    if panel.y_log or not panel.y_zero or min(values, default=0.0) < 0:
        return None
    if panel.y_top is not None:
        return (0.0, panel.y_top)
    return (0.0, 1.06 * max(values) if _any_above_zero(panel) else 1.0)


def _any_above_zero(panel: Panel) -> bool:
    return any(value > 0 for series in panel.series for value in (*series.y, *series.high))


def _joinable(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    known = [i for i in range(len(y)) if math.isfinite(y[i])]
    return [x[i] for i in known], [y[i] for i in known]


def _short(value: float) -> float | int | None:
    """Return the number to 5 digits, or None, JSON's null, for one that is not finite.

    Example:
        >>> _short(1234567.0), _short(0.12345678), _short(math.nan)
        (1234567, 0.12346, None)
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}") if value != int(value) or abs(value) >= 10**7 else float(value)
    return int(rounded) if rounded == int(rounded) else rounded


def _distance(high: float, low: float) -> float | int | None:
    return _short(max(high - low, 0.0))


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"
