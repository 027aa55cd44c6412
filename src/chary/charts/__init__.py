"""Charts as values, and two renderers: matplotlib for files, plotly.js for pages.

The same chart becomes a PNG, a PDF and an interactive figure, with the same colours. Neither library is
imported before something is drawn.
"""

from chary.charts._matplotlib import draw_files
from chary.charts._plotly import plotly_figure
from chary.charts.chart import DASHES, KINDS, Chart, Panel, Series, thinned

__all__ = ["DASHES", "KINDS", "Chart", "Panel", "Series", "draw_files", "plotly_figure", "thinned"]
