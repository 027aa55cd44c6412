"""Colours of all figures, and the check that matplotlib is installed."""

from __future__ import annotations

from chary.errors import check_installed

# Okabe and Ito's colours, distinct for all common kinds of colour vision; three blues form one family.
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
GRID = "#E3E5E8"
GUIDE = "#8A8F98"
AXIS = "#9AA0A6"
WHITE = "#FFFFFF"
# The same on a dark page, by the colour on a white one.
NIGHT = {
    "#D55E00": "#F4813A",
    "#E69F00": "#F2B544",
    "#CC79A7": "#E394C1",
    "#009E73": "#2FC79B",
    "#555555": "#B9BFC7",
    "#5AA9DD": "#86C8F4",
    "#1F6FB2": "#4F9FE6",
    "#0B3C6B": "#A9B4FF",
    INK: "#E6E9ED",
    GRID: "#30363E",
    AXIS: "#7A828C",
    WHITE: "#1B1F24",
}
# The opacity of a band where there are few; more of them share that of so many.
BAND_OPACITY, FULL_BANDS = 0.13, 3
# The opacity of the bars at points.
BAR_OPACITY = 0.55
# The share of a category's width that its bars fill.
BAR_GROUP = 0.8


def night_of(colour: str) -> str:
    """Return the colour on a dark page for one on a white page.

    Example:
        >>> night_of("#0B3C6B"), night_of("#8A8F98")
        ('#A9B4FF', '#8A8F98')
    """
    return NIGHT.get(colour, colour)


def band_opacity(bands: int) -> float:
    """Return the opacity of each of some bands in a panel: many of them do not hide the lines.

    Example:
        >>> band_opacity(1), band_opacity(8)
        (0.13, 0.04875)
    """
    return BAND_OPACITY * min(1.0, FULL_BANDS / max(bands, 1))


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises:
        InvalidSetting: if it is not, with the command that installs it.
    """
    check_installed("matplotlib", "Drawing a figure", "figures")
