"""The report of a deep sweep in a real browser: no script fails, and every figure is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.contracts.test_report_in_browser import browser, opened
from tests.tiny_hiv import invented, tiny_experiment

from chary.report import write_report
from chary.sweeps.folder import SweepFolder


@pytest.mark.usefixtures("undrawn")
def test_every_figure_of_a_deep_sweep_is_drawn_without_an_error(tmp_path: Path) -> None:
    browser()
    invented(SweepFolder(tmp_path / "sweep"), tiny_experiment(others=True))
    page = write_report(tmp_path / "sweep")
    drawn, said = opened(page, tmp_path / "profile", 1280)
    assert drawn.noted.get("data-errors") is None
    assert not [line for line in said.splitlines() if "CONSOLE" in line or "Uncaught" in line]
    expected = set(re.findall(r'<figure id="figure-([^"]+)"', page.read_text(encoding="utf-8")))
    assert {"returns", "violations", "table-1", "actions"} < expected
    assert set(drawn.plots) == expected
    assert drawn.noted.get("data-drawn") == str(len(expected))
    assert not {key for key, parts in drawn.plots.items() if not (parts["svg"] and parts["traces"])}
