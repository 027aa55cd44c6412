"""Pages: texts are escaped, every section has a template, and a missing library is named."""

from __future__ import annotations

import sys

import pytest

from chary.errors import InvalidSetting
from chary.pages import Table, _environment, render
from chary.preview.page import SECTIONS as PREVIEW
from chary.report.page import SECTIONS
from chary.sweeps.spec import FAMILIES


def test_texts_are_escaped() -> None:
    macro = _environment().get_template("parts.html").module.table  # type: ignore[attr-defined]
    table = macro(Table(["<i>"], [["<b>", "a" * 40]]), colours={"<b>": "#123456"})
    assert "<th>&lt;i&gt;</th>" in table
    assert 'style="border-color:#123456"></span>&lt;b&gt;</td>' in table
    assert f'<td class="">{"a" * 40}</td>' in table


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
