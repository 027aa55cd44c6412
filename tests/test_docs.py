"""Documentation: its examples run, what it mentions exists, and it contains every public name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests import test_architecture as architecture

import chary
from chary.extensions import GROUPS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [
    *PAGES,
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "RELEASING.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{page.stem}-{i}")
        for page in PAGES
        for i, code in enumerate(python_blocks(page))
        # Those of the README run below, where what they print is compared.
        if page.stem != "README"
    ],
)
def test_examples_run(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "example", "exec"), {})


README_EXAMPLES = re.findall(
    r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.DOTALL,
)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@pytest.mark.parametrize(("code", "shown"), README_EXAMPLES, ids=range(len(README_EXAMPLES)))
def test_the_readme_shows_what_its_examples_print(
    code: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(code, "example", "exec"), {})
    printed = capsys.readouterr().out
    assert printed
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    # Another machine's logarithm may differ in the last bit, and with it a trajectory; a 0 stays one.
    was, is_now = ([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (shown, printed))
    assert was == pytest.approx(is_now, rel=0.2)


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


def mentioned_files(text: str) -> set[str]:
    """Return every path in the text that ends in the name of a module, an experiment or a script."""
    return set(re.findall(r"(?<![\w/.*-])((?:[\w.-]+/)*\w+\.(?:py|toml))\b", text))


def exists(file: str) -> bool:
    """Whether a path is a file of the repository, given from its root or by its last parts."""
    places = (ROOT / name for name in ("src", "tests", "examples"))
    return (ROOT / file).is_file() or any(any(place.rglob(file)) for place in places)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_files_that_a_page_mentions_exist(page: Path) -> None:
    placeholders = {
        "mine.toml",
        "chary.toml",
        "ward.toml",
        "src/chary/presets/NAME.toml",
        "file.py",
        "psrl.py",
        "clinic.py",
    }
    text = page.read_text(encoding="utf-8")
    assert not sorted(file for file in mentioned_files(text) - placeholders if not exists(file))


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of chary, or something found in one by attribute."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if found:
            value = importlib.import_module(module)
            try:
                for part in parts[end:]:
                    value = getattr(value, part)
            except AttributeError:
                return False
            return True
    return False


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_dotted_names_that_a_page_mentions_exist(page: Path) -> None:
    names = set(re.findall(r"(?<![\w./-])chary(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8")))
    # The files of a deployment are no modules.
    names -= {*GROUPS.values(), "chary.toml", "chary.db", "chary.service"}
    assert not sorted(name for name in names if not resolves(name))


PAPER_MAP = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")


def test_every_function_of_the_paper_map_exists() -> None:
    _, _, table = PAPER_MAP.partition("| equation or place |")
    names = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", table))
    assert len(names) > 20
    assert not sorted(name for name in names if not resolves(f"chary.{name}"))


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def defined_in(file: Path) -> set[str]:
    """Return the functions, classes, methods (`Class.method`) and constants that a module defines."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            inside = node.body if isinstance(node, ast.ClassDef) else []
            names |= {f"{node.name}.{each.name}" for each in inside if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
    return names


def test_places_named_by_the_architecture_page_exist() -> None:
    places = set(re.findall(r"`([\w/]+\.py):([\w.]+)`", ARCHITECTURE)) - {("file.py", "name")}
    assert len(places) > 15
    source = ROOT / "src" / "chary"
    assert not sorted(
        (file, name)
        for file, name in places
        if not (source / file).is_file() or name not in defined_in(source / file)
    )


def test_the_list_of_parts_is_in_the_order_of_imports() -> None:
    listed = ARCHITECTURE.partition("## The folders")[2].partition("## Flow")[0]
    parts = {architecture.part(module) for module in architecture.modules()} - {"", "__main__"}
    places = {part: re.search(rf"(?<![\w/]){part}(/|\.py)", listed) for part in parts}
    assert not sorted(part for part, place in places.items() if place is None)
    order = {part: place.start() for part, place in places.items() if place is not None}
    assert not sorted(
        (module, other)
        for module in architecture.modules()
        if architecture.part(module) in parts
        for other in architecture.own_imports(module)
        if architecture.part(other) in parts
        and order[architecture.part(other)] > order[architecture.part(module)]
    )


def test_workflows_and_ci_call_targets_of_the_makefile() -> None:
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    called = set(re.findall(r"\bmake ([\w-]+)(?= PYTHON=|\n)", workflow))
    assert called == {"lint", "types", "peers", "suite", "docs", "wheel-test", "test-lowest", "audit"}
    assert called | {"test"} <= targets


def test_the_list_of_dependencies_is_up_to_date() -> None:
    script = ROOT / "scripts" / "list_dependencies.py"
    assert subprocess.run([sys.executable, script, "--check"]).returncode == 0, f"run python {script.name}"


def test_every_requirement_is_locked_with_hashes_and_names_no_host() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = [*project["dependencies"], *(each for extra in extras for each in extra)]
    texts = [(ROOT / "constraints" / name).read_text(encoding="utf-8") for name in ("dev.txt", "peers.txt")]
    entries = [entry for text in texts for entry in re.split(r"\n(?=\S)", text)]
    # Several versions of a package are for several versions of Python.
    pins = [entry.split()[0].split("==") for entry in entries]
    for requirement in map(Requirement, asked):
        fits = [requirement.specifier.contains(pin) for name, pin in pins if name == requirement.name]
        assert requirement.name == "chary" or (any(fits) if requirement.marker else fits and all(fits))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not any("://" in text for text in texts)
