"""Charts drawn by both renderers: the same series, colours and bands, and the same bytes every time."""

from __future__ import annotations

import json
import math
import sys

import pytest

from chary.charts import Chart, Panel, Series, draw_files, plotly_figure, thinned
from chary.charts._axes import log_ticks
from chary.errors import InvalidSetting, UnknownName

BLUE, RED = "#1F6FB2", "#D55E00"


def line(label: str = "a", **changes: object) -> Series:
    values: dict[str, object] = {
        "label": label,
        "x": (1.0, 2.0, 3.0),
        "y": (1.0, 2.0, 4.0),
        "low": (0.5, 1.5, 3.5),
        "high": (1.5, 2.5, 4.5),
        "colour": BLUE,
    }
    return Series(**(values | changes))  # type: ignore[arg-type]


def chart(*panels: Panel, share_y: bool = False) -> Chart:
    return Chart(key="k", title="T", caption="C", panels=panels, share_y=share_y)


def panel(*series: Series, **changes: object) -> Panel:
    values: dict[str, object] = {"title": "p", "x_label": "x", "y_label": "y", "series": series}
    return Panel(**(values | changes))  # type: ignore[arg-type]


EVERYTHING = chart(
    panel(line(), line("b", dash="dash", colour=RED, low=(), high=())),
    panel(line(kind="path", notes=("1", "2", "3")), x_log=True, y_log=True),
    panel(line(kind="points", x=(0.0, 0.01, 2.0)), x_log=True, x_zero=0.001),
    panel(line(kind="bars", x=(0.0, 1.0, 2.0)), line("b", kind="bars"), categories=("u", "v", "w", "x")),
    panel(line(y=(math.nan, 2.0, math.nan), low=(math.nan,) * 3, high=(math.nan,) * 3)),
)


def test_files_are_png_and_pdf_with_the_same_bytes_every_time() -> None:
    files = draw_files(EVERYTHING)
    assert files["png"].startswith(b"\x89PNG")
    assert files["pdf"].startswith(b"%PDF")
    assert b"CreationDate" not in files["pdf"]
    assert draw_files(EVERYTHING) == files


def test_an_interactive_figure_is_plain_json_with_every_series() -> None:
    figure = plotly_figure(EVERYTHING)
    assert json.loads(json.dumps(figure, allow_nan=False)) == figure
    names = {(trace["xaxis"], trace["name"]) for trace in figure["data"]}
    assert names == {("x", "a"), ("x", "b"), ("x2", "a"), ("x3", "a"), ("x4", "a"), ("x4", "b"), ("x5", "a")}
    assert {key for key in figure["layout"] if key.startswith("xaxis")} == {
        "xaxis",
        "xaxis2",
        "xaxis3",
        "xaxis4",
        "xaxis5",
    }


def test_a_band_is_a_translucent_polygon_of_the_line_s_colour() -> None:
    band, curve = plotly_figure(chart(panel(line())))["data"]
    assert band["fill"] == "toself"
    assert band["fillcolor"] == "rgba(31,111,178,0.13)"
    assert band["x"] == [1, 2, 3, 3, 2, 1]
    assert band["y"] == [0.5, 1.5, 3.5, 4.5, 2.5, 1.5]
    assert curve["line"]["color"] == BLUE
    assert band["legendgroup"] == curve["legendgroup"] == "a"


def test_many_bands_are_fainter_and_stand_behind_all_lines() -> None:
    crowd = panel(*(line(name) for name in "abcdef"))
    traces = plotly_figure(chart(crowd))["data"]
    assert ["fill" in trace for trace in traces] == [True] * 6 + [False] * 6
    assert {trace["fillcolor"] for trace in traces[:6]} == {"rgba(31,111,178,0.065)"}


def test_what_is_not_known_is_left_out() -> None:
    (curve,) = plotly_figure(chart(panel(line(y=(math.nan, 2.0, 3.0), low=(), high=()))))["data"]
    assert curve["y"] == [None, 2, 3]


def test_numbers_have_five_digits() -> None:
    (curve,) = plotly_figure(chart(panel(line(y=(1 / 3, 123456.789, 1e-9), low=(), high=()))))["data"]
    assert curve["y"] == [0.33333, 123460, 1e-09]


def test_zero_has_a_place_on_a_logarithmic_axis() -> None:
    figure = plotly_figure(chart(panel(line(x=(0.0, 1.0, 10.0)), x_log=True, x_zero=0.1)))
    axis = figure["layout"]["xaxis"]
    assert axis["ticktext"][0] == "0"
    assert axis["tickvals"][0] == 0.1
    assert figure["data"][-1]["x"] == [0.1, 1, 10]


def test_ticks_beside_a_distant_zero_are_not_written_over_each_other() -> None:
    # One value above 0, far from the place of 0: even steps around it would all be at the edge.
    ticks, names = log_ticks(panel(line(kind="points", x=(0.0, 71.0, 79.2)), x_log=True, x_zero=2.0), "x")
    assert names[0] == "0"
    assert len(ticks) == 2
    close, told = log_ticks(panel(line(kind="points", x=(0.0, 1.0, 10.0)), x_log=True, x_zero=0.5), "x")
    assert told == ["0", "2", "5", "10"]
    assert close[0] == 0.5


def test_points_at_zero_stand_side_by_side() -> None:
    several = panel(*(line(name, x=(0.0, 1.0, 10.0)) for name in "abc"), x_log=True, x_zero=0.1)
    at_zero = [trace["x"][0] for trace in plotly_figure(chart(several))["data"] if "fill" not in trace]
    assert at_zero == sorted(set(at_zero))
    assert at_zero[1] == 0.1
    # Still left of any rate: a single violation is three times as far.
    assert at_zero[2] < 0.2


@pytest.mark.parametrize(
    ("reach", "names"),
    [
        ((0.078, 0.119), ["0.08", "0.09", "0.1", "0.11", "0.12"]),
        ((0.1, 0.8), ["0.1", "0.2", "0.5"]),
        ((1.0, 1000.0), ["1", "10", "100", "1,000"]),
        ((5e-5, 8e-4), ["5e-5", "1e-4", "2e-4", "5e-4"]),
        ((1.3e-4, 5.3e-4), ["2e-4", "3e-4", "4e-4", "5e-4"]),
        ((1.0, 5.9), ["1", "2", "3", "4", "5", "6"]),
        ((4.0, 4.0), ["4"]),
    ],
)
def test_logarithmic_ticks_can_be_read(reach: tuple[float, float], names: list[str]) -> None:
    series = line(x=(reach[0], reach[0], reach[1]))
    axis = plotly_figure(chart(panel(series, x_log=True)))["layout"]["xaxis"]
    assert axis["ticktext"] == names


def test_values_that_are_all_zero_do_not_float() -> None:
    series = line(y=(0.0, 0.0, 0.0), low=(), high=())
    assert plotly_figure(chart(panel(series)))["layout"]["yaxis"]["range"] == [0.0, 1.0]


def test_panels_stand_below_each_other_where_there_is_no_room() -> None:
    four = chart(*[panel(line())] * 4, share_y=True)
    wide, narrow = plotly_figure(four)["layout"], plotly_figure(four, columns=1)["layout"]
    assert wide["xaxis2"]["domain"][0] > wide["xaxis"]["domain"][1]
    assert narrow["xaxis2"]["domain"] == narrow["xaxis"]["domain"] == [0, 1]
    assert narrow["height"] > wide["height"]
    assert wide["yaxis2"]["matches"] == "y"
    # Rows do not overlap.
    assert wide["yaxis3"]["domain"][1] < wide["yaxis"]["domain"][0]


def test_the_legend_names_each_label_once_and_not_what_an_axis_names() -> None:
    one = chart(panel(line("a"), line("b")), panel(line("a"), line("b"), line("c")))
    assert list(one.labels) == ["a", "b", "c"]
    named = chart(panel(line("u", kind="points", x=(0.0, 0.0, 0.0)), categories=("u",)))
    assert named.labels == {}


def test_thinning_keeps_the_last_point_and_spares_points_and_bars() -> None:
    many = tuple(float(i) for i in range(100))
    curve = line(x=many, y=many, low=many, high=many)
    thin = (
        thinned(chart(panel(curve, line(kind="path", x=many, y=many, low=(), high=()))), 25).panels[0].series
    )
    assert len(thin[0].x) == len(thin[0].high) == 25
    assert thin[0].x[-1] == 99.0
    assert len(thin[1].x) == 100


def test_series_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="'y' of series 'a' must have an entry for each of 3"):
        line(y=(1.0,))
    with pytest.raises(InvalidSetting, match="'low' and 'high' of series 'a' must be given together"):
        line(high=())
    with pytest.raises(UnknownName, match="Did you mean 'line'"):
        line(kind="lines")
    with pytest.raises(UnknownName, match="Did you mean 'dash'"):
        line(dash="dashed")


def test_matplotlib_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidSetting, match=r"needs matplotlib\. Run: pip install 'chary\[figures\]'"):
        draw_files(EVERYTHING)


def test_a_chart_may_say_how_many_panels_stand_side_by_side() -> None:
    six = Chart(key="k", title="T", caption="C", panels=(panel(line()),) * 6, across=3)
    assert six.columns == 3
    assert chart(*six.panels).columns == 2
    layout = plotly_figure(six)["layout"]
    assert layout["xaxis3"]["domain"][1] == 1
    assert layout["xaxis4"]["domain"][0] == 0


def test_a_long_title_goes_on_in_the_next_line() -> None:
    def height(title: str) -> int:
        png = draw_files(Chart(key="k", title=title, caption="C", panels=(panel(line()),)))["png"]
        return int.from_bytes(png[20:24], "big")

    assert height("why " * 60) > height("why")


def test_texts_next_to_points_are_there_and_cover_no_other() -> None:
    marked = line(kind="path", marks=("a", "", "c$"), notes=("1", "2", "3"))
    same = line("b", kind="path", marks=("d", "e", "f"))
    texts = [each for each in plotly_figure(chart(panel(marked, same)))["data"] if each.get("mode") == "text"]
    assert [each["text"] for each in texts] == [["a", "", "c&#36;"], ["d", "e", "f"]]
    # The marks of equal points are on different sides of them.
    assert len({each["textposition"] for each in texts}) == 2
    assert draw_files(chart(panel(marked, same))) != draw_files(chart(panel(line(kind="path"), same)))


def test_a_higher_chart_has_higher_panels() -> None:
    usual = chart(panel(line()))
    higher = Chart(key="k", title="T", caption="C", panels=usual.panels, height=2.0)
    heights = [plotly_figure(each)["layout"]["height"] for each in (usual, higher)]
    assert heights[1] == heights[0] + 250
