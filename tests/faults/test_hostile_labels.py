"""Names are data: whatever is in them, every terminal, figure, table and page shows their letters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.hostile_labels import SINKS, chart_of, show_many

from chary.charts import plotly_figure
from chary.pages import data, script
from chary.report.tables import csv_bytes

SOURCE = Path(__file__).parents[2] / "src" / "chary"
REDUCED = {"matplotlib_file": 6}
WHOLE = {"matplotlib_file": 200}


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("sink", SINKS)
def test_names_are_shown_as_text(sink: str) -> None:
    found = show_many(sink, REDUCED.get(sink, 100))
    assert set(found) == {"text"}, found


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_many_names_are_shown_as_text(sink: str) -> None:
    found = show_many(sink, WHOLE.get(sink, 5000), seed=10_000)
    assert set(found) == {"text"}, found


@given(st.text(min_size=1))
def test_no_text_begins_a_formula_of_a_spreadsheet(name: str) -> None:
    cell = csv_bytes([{"name": name}]).decode().split("\n", 1)[1]
    assert not re.match(r"[\s\"]*[=+\-@]", cell)


@given(st.text())
def test_no_text_has_a_tag_or_a_template_in_a_figure(name: str) -> None:
    for trace in plotly_figure(chart_of(name))["data"]:
        template = trace["hovertemplate"].removesuffix(": %{y:.4~g}<extra></extra>")
        assert "%{" not in template
        assert "<" not in template.replace("<br>", "")


@given(st.text())
def test_no_text_ends_the_script_element(name: str) -> None:
    assert not set(data({"name": name})) & set("<>&\u2028\u2029")
    assert "</script" not in script(name)
    assert "<!--" not in script(name)


def test_the_command_line_prints_by_one_function() -> None:
    for path in (SOURCE / "cli").glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = sum(isinstance(call, ast.Name) and call.id == "print" for call in calls)
        assert printing == (path.name == "terminal.py"), path.name


def test_templates_escape_everything() -> None:
    for path in (SOURCE / "pages" / "templates").rglob("*"):
        if path.is_file():
            assert "|safe" not in path.read_text(encoding="utf-8").replace(" ", ""), path.name
