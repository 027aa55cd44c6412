"""The documentation site: it builds without a warning, and no public name is missing from its pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chary

ROOT = Path(__file__).parents[2]
INSTALL = "the site's tools are not installed; make docs installs them and runs this test"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(tool, reason=INSTALL)
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # The theme's makers announce their next product as a warning.
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def pages(site: Path) -> dict[str, str]:
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")
    }


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    headings = {
        heading
        for name, page in pages(site).items()
        if name.startswith("reference/")
        for heading in re.findall(r'<h\d id="chary\.([\w.]+)"', page)
    }
    shown = {heading.split(".")[-1] for heading in headings}
    assert "CharyUCBVI" in headings
    assert [name for name in chary.__all__ if name not in shown] == ["__version__"]


def test_examples_of_docstrings_are_shown_as_code(site: Path) -> None:
    page = pages(site)["reference/agents.html"]
    assert "Examples:" in page
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
    assert "<blockquote>" not in page


def test_pages_ask_for_nothing_elsewhere(site: Path) -> None:
    asked = {
        (name, address)
        for name, page in pages(site).items()
        for address in re.findall(r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="(\w+://[^"]*)"', page)
    }
    assert not asked


def test_the_search_finds_pages_and_no_raw_code(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"guide.html", "api.html"} <= found
    assert not [page for page in found if re.search(r"\.(py|toml)\.html$", page)]


def test_links_between_pages_lead_to_files_of_the_site(site: Path) -> None:
    missing = [
        (name, link)
        for name, page in pages(site).items()
        if name != "404.html"
        for link in re.findall(r'(?:href|src)="(?!\w+:)([^"#?]+)', page)
        if not (site / name).parent.joinpath(link).exists()
    ]
    assert not missing
