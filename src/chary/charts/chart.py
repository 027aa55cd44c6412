"""Charts as values: series in panels, independent of the library that draws them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chary.charts.palette import INK
from chary.errors import InvalidSetting, check_choice

# `path` is points joined by a line; `bars` stand next to each other at whole x.
KINDS = ("line", "points", "path", "bars")
# The names that plotly.js uses.
DASHES = ("solid", "dash", "dot", "dashdot")
# Fields of a series with an entry per point; all but x and y may be empty.
PER_POINT = ("x", "y", "low", "high", "notes", "marks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, set of points or set of bars of a panel.

    Args:
        label: Name in the legend; series with the same label are shown and hidden together.
        x: Positions of the points; with categories, whole numbers from 0.
        y: Values, one per point; NaN where there is none.
        low: Lower ends of the intervals, one per point, or empty; NaN where there is none.
        high: Upper ends.
        colour: As `#RRGGBB`.
        dash: One of `DASHES`.
        kind: One of `KINDS`.
        notes: Texts shown when the pointer is on a point, one per point, or empty.
        marks: Texts next to the points of a path or of points, one per point, or empty.
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
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("dash", self.dash, DASHES)
        for name in PER_POINT:
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
        title: Title of the panel.
        x_label: Name of x.
        y_label: Name of y.
        series: Series to draw, the first at the back.
        x_log: Whether x is logarithmic.
        y_log: Whether y is logarithmic.
        x_zero: Position of 0 on a logarithmic x; None if no x is 0.
        y_top: Upper end of y, even if bands go beyond it; None to show everything.
        y_zero: Whether y begins at 0 if no value is negative; False to show small differences.
        categories: Names of x = 0, 1, ..., if x is not a quantity.
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
        key: Name in files and links.
        title: Title of the figure.
        caption: Explanation for the reader.
        panels: From left to right, then down.
        share_y: Whether all panels have the same y axis.
        across: Panels per row where there is room; None to derive it from their number.
        height: Height of a panel, in units of the usual one.
    """

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    share_y: bool = False
    across: int | None = None
    height: float = 1.0

    @property
    def columns(self) -> int:
        """Panels per row where there is room."""
        if self.across is not None:
            return self.across
        return len(self.panels) if len(self.panels) <= 3 else 2

    @property
    def intervals(self) -> bool:
        """Whether anything in the figure has an interval that can be hidden: a band, or bars at points."""
        return any(series.low and series.kind != "bars" for panel in self.panels for series in panel.series)

    @property
    def labels(self) -> dict[str, Series]:
        """The first series of every label, for the legend; labels that an axis already names are left out."""
        found: dict[str, Series] = {}
        # The panel with most series has them in the intended order.
        for panel in sorted(self.panels, key=lambda panel: -len(panel.series)):
            for series in panel.series:
                if series.label not in panel.categories:
                    found.setdefault(series.label, series)
        return found


def thinned(chart: Chart, points: int) -> Chart:
    """Return the chart with at most about `points` points per line; the last point is kept.

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
        # Counted from the end, so that the last point is kept.
        keep = slice((len(series.x) - 1) % step, None, step)
        return replace(series, **{name: getattr(series, name)[keep] for name in PER_POINT})

    panels = tuple(replace(each, series=tuple(thin(one) for one in each.series)) for each in chart.panels)
    return replace(chart, panels=panels)
