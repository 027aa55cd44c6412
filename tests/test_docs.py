"""Documentation is part of the product: its examples run, and no public name is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chary

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{page.stem}-{i}")
        for page in PAGES
        for i, code in enumerate(python_blocks(page))
    ],
)
def test_examples_run(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "example", "exec"), {})


def test_the_readme_shows_what_its_first_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    exec(compile(python_blocks(ROOT / "README.md")[0], "example", "exec"), {})
    regret, violations, exploring, standing = capsys.readouterr().out.split()
    shown = re.search(r"```\n(\d+)\n(\d+)\n(\d+)\n(\w+)\n```", readme)
    assert shown is not None
    assert shown.groups()[1::2] == (violations, standing)
    # Another machine's logarithm may differ in the last bit, and with it a trajectory.
    assert [float(n) for n in shown.groups()[::2]] == pytest.approx(
        [float(regret), float(exploring)], rel=0.5
    )


def test_every_public_name_is_documented() -> None:
    api = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in chary.__all__ if f"`{name}`" not in api and name != "__version__"]
    assert not missing


def test_every_key_of_the_summary_is_documented() -> None:
    api = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    run = chary.simulate(chary.envs.riverswim(), chary.CharyUCBVI(eta=0.3), episodes=2)
    assert not [key for key in run.summary() if f"`{key}`" not in api]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_exist(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]
