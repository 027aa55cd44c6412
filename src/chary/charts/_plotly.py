"""Charts as plain figures of plotly.js, for pages that draw them in the browser."""

from __future__ import annotations

import html
import math
from typing import Any

from chary.charts._axes import any_above_zero, at, bands_of, from_zero, known_ends, log_ticks
from chary.charts.chart import Chart, Panel, Series
from chary.charts.palette import AXIS, BAR_GROUP, BAR_OPACITY, GRID, GUIDE, INK, WHITE, band_opacity
from chary.texts import visible

# Digits of a number in an interactive figure: more than a screen can show.
DIGITS = 5
ROW_PIXELS = 250
MARK_SIDES = ("top right", "bottom right", "top left", "bottom left")
# The title of a panel starts at its upper left corner.
ON_THE_CORNER = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}


def plotly_figure(chart: Chart, *, columns: int | None = None) -> dict[str, Any]:
    """Return the chart as a plain figure of plotly.js: `data` and `layout`, numbers to 5 digits.

    The page draws the legend: traces with the same label share their `legendgroup`.

    Args:
        chart: What to draw.
        columns: Panels per row; by default `chart.columns`.
    """
    across = chart.columns if columns is None else columns
    rows = -(-len(chart.panels) // across)
    height = round(ROW_PIXELS * chart.height) + 70
    kinds = {series.kind for panel in chart.panels for series in panel.series}
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": rows * height + 40,
        # The buttons of plotly.js are above the titles of the first row.
        "margin": {"l": 56, "r": 10, "t": 50, "b": 46},
        "showlegend": False,
        "paper_bgcolor": WHITE,
        "plot_bgcolor": WHITE,
        "modebar": {"bgcolor": _translucent(WHITE, 0.85), "color": GUIDE, "activecolor": INK},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "hovermode": "x unified" if kinds <= {"line"} else "closest",
        "hoverlabel": {"bgcolor": WHITE, "font": {"size": 11, "color": INK}, "namelength": -1},
        "barmode": "group",
        "bargap": 1 - BAR_GROUP,
        "annotations": [],
    }
    same_y = len({panel.y_label for panel in chart.panels}) == 1
    gap_x, gap_y = (0.0 if across == 1 else 0.09), (0.0 if rows == 1 else 70 / (rows * height))
    wide, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (rows - 1)) / rows
    for i, panel in enumerate(chart.panels):
        number = "" if i == 0 else str(i + 1)
        row, column = divmod(i, across)
        left, top = column * (wide + gap_x), 1 - row * (tall + gap_y)
        x_axis = _axis(panel, "x", f"y{number}", [left, left + wide])
        y_axis = _axis(panel, "y", f"x{number}", [max(top - tall, 0.0), top])
        if i + across >= len(chart.panels):
            x_axis["title"] = {"text": _escaped(panel.x_label), "standoff": 6}
        if column == 0 or not same_y:
            y_axis["title"] = {"text": _escaped(panel.y_label), "standoff": 4}
        if chart.share_y and i:
            y_axis["matches"] = "y"
        layout[f"xaxis{number}"], layout[f"yaxis{number}"] = x_axis, y_axis
        layout["annotations"].append(
            {
                "text": f"<b>{_escaped(panel.title)}</b>",
                "x": left,
                "y": top,
                **ON_THE_CORNER,
                "font": {"size": 12},
            }
        )
        traces = [trace for series in panel.series for trace in _traces(series, panel, number)]
        # What is drawn later covers what was drawn before: bands stand behind all lines.
        data += sorted(traces, key=lambda trace: "fill" not in trace)
    return {"data": data, "layout": layout}


def _axis(panel: Panel, letter: str, anchor: str, domain: list[float]) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "anchor": anchor,
        "domain": [round(edge, 4) for edge in domain],
        "gridcolor": GRID,
        "linecolor": AXIS,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": AXIS,
        "automargin": True,
        "exponentformat": "none",
        "separatethousands": True,
    }
    if panel.x_log if letter == "x" else panel.y_log:
        ticks, names = log_ticks(panel, letter)
        axis |= {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": names}
    elif letter == "y" and (reach := from_zero(panel)) is not None:
        # Ranges are left to plotly.js, so that panels may share theirs, but where there is only 0.
        axis |= (
            {"range": list(reach)} if panel.y_top or not any_above_zero(panel) else {"rangemode": "tozero"}
        )
    if letter == "x" and panel.categories:
        count = len(panel.categories)
        axis |= {
            "tickmode": "array",
            "tickvals": list(range(count)),
            "ticktext": [_escaped(each) for each in panel.categories],
        }
        axis |= {"range": [-0.6, count - 0.4], "showgrid": False}
    return axis


def _traces(series: Series, panel: Panel, number: str) -> list[dict[str, Any]]:
    place = {
        "xaxis": f"x{number}",
        "yaxis": f"y{number}",
        "legendgroup": series.label,
        "name": _escaped(series.label),
    }
    x = [_short(at(value, panel, series)) for value in series.x]
    trace: dict[str, Any] = {**place, "type": "scatter", "x": x, "y": [_short(value) for value in series.y]}
    known = known_ends(series)
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
                "fillcolor": _translucent(series.colour, band_opacity(bands_of(panel))),
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
            "color": INK if series.kind == "bars" else _translucent(series.colour, BAR_OPACITY),
            "thickness": 1.2,
            "width": 4,
        }
    if series.notes:
        trace |= {
            "text": [_escaped(note) for note in series.notes],
            "hovertemplate": "%{text}<extra></extra>",
        }
        if series.kind == "bars":
            trace["textposition"] = "none"
    elif series.kind == "bars":
        trace["hovertemplate"] = "%{y:.4~g}"
    else:
        trace["hovertemplate"] = f"{_escaped(series.label)}: %{{y:.4~g}}<extra></extra>"
    if series.marks:
        # The text of a trace is what the pointer shows: the marks are a trace of their own. Series take turns
        # in the sides of their points, so that the marks of equal points differ in place.
        side = MARK_SIDES[panel.series.index(series) % len(MARK_SIDES)]
        marks = {
            "mode": "text",
            "text": [_escaped(mark) for mark in series.marks],
            "textposition": side,
            "hoverinfo": "skip",
        }
        font = {"color": series.colour, "size": 11}
        traces.append({**place, "type": "scatter", "x": x, "y": trace["y"], **marks, "textfont": font})
    return [*traces, trace]


def _escaped(text: str) -> str:
    """Return a text as plotly.js shows it unchanged; it obeys some tags, braces and dollar signs.

    Example:
        >>> _escaped("<b>%{x}</b> & co")
        '&lt;b&gt;%&#123;x}&lt;/b&gt; &amp; co'
    """
    lines = (html.escape(visible(line), quote=False) for line in text.split("\n"))
    return "<br>".join(lines).replace("{", "&#123;").replace("$", "&#36;")


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


def _translucent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.3g})"
