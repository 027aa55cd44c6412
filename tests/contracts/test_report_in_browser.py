"""The report in a real browser: no script fails, nothing is asked for elsewhere, every figure is drawn."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.conftest import undrawn_figures
from tests.tiny_sweep import play, tiny_experiment

from chary.report import write_report
from chary.sweeps.folder import SweepFolder

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
REQUIRED = os.environ.get("CHARY_REQUIRE_BROWSER") == "1"


class Drawn(HTMLParser):
    """What the browser made of the page: the drawn parts of every figure, and what the page noted."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[str, str | None] = {}
        self.plots: dict[str, dict[str, int]] = {}
        self.grounds: set[str] = set()
        self._plot: str | None = None
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "html":
            self.noted = named
        identity = named.get("id") or ""
        if tag == "div" and identity.startswith("plot-"):
            self._plot, self._depth = identity.removeprefix("plot-"), 0
            self.plots[self._plot] = {"svg": 0, "traces": 0}
        elif tag == "div" and self._plot is not None:
            self._depth += 1
        if self._plot is not None:
            classes = (named.get("class") or "").split()
            self.plots[self._plot]["svg"] += "main-svg" in classes
            self.grounds |= set(re.findall(r"background: (rgb\([\d, ]+\))", named.get("style") or ""))
            self.plots[self._plot]["traces"] += "trace" in classes

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._plot is not None:
            self._depth -= 1
            if self._depth < 0:
                self._plot = None


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        if REQUIRED:
            pytest.fail("a browser must be installed where CHARY_REQUIRE_BROWSER=1")
        pytest.skip("no Chromium is installed; CHARY_REQUIRE_BROWSER=1 makes this a failure")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser()
    where = tmp_path_factory.mktemp("sweep")
    play(SweepFolder(where), tiny_experiment(episodes=120))
    # A browser draws for itself.
    with undrawn_figures():
        return write_report(where)


def opened(page: Path, profile: Path, width: int, *flags: str) -> tuple[Drawn, str]:
    """Open the page and return what it became, and what the browser wrote about it."""
    answer = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--window-size={width},1000",
            *flags,
            "--virtual-time-budget=10000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    drawn = Drawn()
    # Scripts hold text that looks like tags.
    drawn.feed(re.sub(r"<script.*?</script>", "", answer.stdout, flags=re.DOTALL))
    return drawn, answer.stderr


@pytest.mark.parametrize("width", [1280, 500])
def test_every_figure_is_drawn_without_an_error(page: Path, tmp_path: Path, width: int) -> None:
    drawn, said = opened(page, tmp_path, width)
    assert drawn.noted.get("data-errors") is None
    # Whatever a page logs is an error here, what the security policy refused included.
    assert not [line for line in said.splitlines() if "CONSOLE" in line or "Uncaught" in line]
    expected = set(re.findall(r'<figure id="figure-([^"]+)"', page.read_text(encoding="utf-8")))
    assert len(expected) >= 14
    assert set(drawn.plots) == expected
    assert drawn.noted.get("data-drawn") == str(len(expected))
    empty = {key for key, parts in drawn.plots.items() if not (parts["svg"] and parts["traces"])}
    assert not empty


def test_figures_are_as_dark_as_the_page(page: Path, tmp_path: Path) -> None:
    by_day, _ = opened(page, tmp_path / "day", 1280, "--blink-settings=preferredColorScheme=1")
    assert by_day.grounds == {"rgb(255, 255, 255)"}
    at_night, said = opened(page, tmp_path / "night", 1280, "--blink-settings=preferredColorScheme=0")
    assert at_night.grounds == {"rgb(27, 31, 36)"}
    assert at_night.plots == by_day.plots
    assert "CONSOLE" not in said


def test_an_error_in_a_script_would_be_seen(page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "index.html"
    text = page.read_text(encoding="utf-8")
    ours = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)[-1]
    wrong = ours.replace('"use strict";', '"use strict"; nobody_defined_this();')
    text = text.replace(hash_of(ours), hash_of(wrong)).replace(ours, wrong)
    broken.write_text(text, encoding="utf-8")
    drawn, said = opened(broken, tmp_path / "profile", 1280)
    assert "nobody_defined_this" in (drawn.noted.get("data-errors") or "")
    assert any("Uncaught" in line for line in said.splitlines())


def hash_of(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()


def test_a_script_that_the_page_did_not_come_with_is_refused(page: Path, tmp_path: Path) -> None:
    changed = tmp_path / "index.html"
    text = page.read_text(encoding="utf-8")
    assert "unsafe-inline" not in text.partition("script-src")[2].partition(";")[0]
    more = "<script>document.documentElement.dataset.obeyed = 1;</script>"
    button = "<button onclick='1' autofocus onfocus='document.documentElement.dataset.obeyed = 1'>x</button>"
    changed.write_text(text.replace("</main>", f"{more}{button}</main>"), encoding="utf-8")
    drawn, said = opened(changed, tmp_path / "profile", 1280)
    assert "data-obeyed" not in drawn.noted
    assert any("CONSOLE" in line and "Content Security Policy" in line for line in said.splitlines())
    # What the page came with is drawn all the same.
    assert drawn.noted.get("data-drawn") == str(len(drawn.plots))
