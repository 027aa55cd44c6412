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
BAND_OPACITY = 0.13
# The share of a category's width that its bars fill.
BAR_GROUP = 0.8


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises:
        InvalidSetting: if it is not, with the command that installs it.
    """
    check_installed("matplotlib", "Drawing a figure", "figures")
