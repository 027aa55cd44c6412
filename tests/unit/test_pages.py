"""Pages: texts are escaped, every section has a template, and a missing library is named."""

from __future__ import annotations

import sys

import pytest

from chary.charts.palette import GUIDE, INK, PALETTE, WHITE, night_of
from chary.errors import InvalidSetting
from chary.pages import Table, _environment, render
from chary.preview.page import SECTIONS as PREVIEW
from chary.report.page import SECTIONS
from chary.sweeps.spec import FAMILIES


def test_texts_are_escaped() -> None:
    macro = _environment().get_template("parts.html").module.table  # type: ignore[attr-defined]
    table = macro(Table(["<i>"], [["<b>", "a" * 40]]), colours={"<b>": "#123456"})
    assert ">&lt;i&gt;</th>" in table
    assert 'style="--day:#123456;--night:#123456"></span>&lt;b&gt;</td>' in table
    assert f"<td>{'a' * 40}</td>" in table


def test_the_interval_of_a_number_may_go_to_the_next_line_and_nothing_else_in_it() -> None:
    macro = _environment().get_template("parts.html").module.table  # type: ignore[attr-defined]
    table = macro(Table(["a", "b"], [["name", "1,234 (1,100 to 1,300)"]]))
    assert '<span class="whole">1,234</span> <span class="whole interval">(1,100 to 1,300)</span>' in table


def test_every_colour_of_a_figure_can_be_told_apart_from_the_page_at_night() -> None:
    def brightness(colour: str) -> float:
        # WCAG's relative luminance.
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ground = brightness(night_of(WHITE))
    by_night = [night_of(colour) for colour in (*PALETTE.values(), GUIDE, INK)]
    assert len(set(by_night)) == len(by_night)
    assert min((brightness(colour) + 0.05) / (ground + 0.05) for colour in by_night) > 4.5


def test_every_section_of_every_page_has_a_template() -> None:
    found = _environment().list_templates()
    assert {f"preview/{key}.html" for key in PREVIEW} <= set(found)
    for family in FAMILIES:
        own = {key for key in SECTIONS if f"{family.name}/{key}.html" in found}
        shared = {key for key in SECTIONS if f"report/{key}.html" in found}
        # Assumptions can be checked for a table alone.
        assert own | shared >= set(SECTIONS) - {"assumptions"}
        assert not own & shared


def test_a_missing_value_is_an_error_and_not_an_empty_text() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="sections"):
        render("base.html", (), {"title": "T"})


def test_jinja_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InvalidSetting, match=r"needs jinja2\. Run: pip install 'chary\[figures\]'"):
        render("base.html", (), {})
