"""Compiled code never outlives its sources, wherever it is kept, and needs no place to be kept."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chary import _compile

DECORATORS = {"jit", "jit_bare", "inner", "bare", "folded", "kernel_of", "calling", "intrinsic"}

# A package in little, with the real _compile.py: a budget rule of the shield, compiled into a loop.
RULE = "def authorise(deficit, cost, eta):\n    return deficit + cost <= eta\n"
LOOP = """
from chary._compile import bare, jit
from chary.shield.ledger import authorise
affords = bare(authorise)

@jit
def explore(eta):
    return affords(0.5, 0.25, eta)

print(explore(0.6), "loaded" if explore.stats.cache_hits else "compiled")
"""


def test_every_file_with_kernels_is_watched() -> None:
    found = {
        path
        for path in _compile.PACKAGE.rglob("*.py")
        if re.search(r"^@(jit|inner|bare|intrinsic)\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert found <= set(_compile.kernel_sources())


def names_compiled(tree: ast.Module) -> set[str]:
    """Return the names that compiled functions use, in their bodies and as types of arguments."""
    compiled: list[ast.AST] = []
    for node in ast.walk(tree):
        called = node.decorator_list if isinstance(node, ast.FunctionDef) else [node]
        used = [each.func if isinstance(each, ast.Call) else each for each in called]
        if any(isinstance(each, ast.Name) and each.id in DECORATORS for each in used):
            compiled.append(node)
    return {each.id for node in compiled for each in ast.walk(node) if isinstance(each, ast.Name)}


def test_whatever_kernels_use_of_other_modules_is_watched() -> None:
    watched = {path.relative_to(_compile.PACKAGE) for path in _compile.kernel_sources()}
    used = set()
    for path in _compile.kernel_sources():
        tree = ast.parse(path.read_bytes())
        names = names_compiled(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chary."):
                if names & {each.asname or each.name for each in node.names}:
                    used.add(Path(*str(node.module).split(".")[1:]).with_suffix(".py"))
    # Names of array types are read by type checkers alone.
    assert used - {Path("arrays.py")} <= watched
    assert {Path("shield/ledger.py"), Path("shield/rule.py"), Path("simulation/_player.py")} <= watched


def test_a_change_of_any_source_or_setting_changes_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(
        _compile.PACKAGE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    before = _compile.digest_of(tmp_path)
    assert before == _compile.digest()
    for name in ("model/radii.py", "shield/ledger.py", "simulation/_player.py"):
        with (tmp_path / name).open("a") as source:
            source.write("# changed\n")
        before, now = _compile.digest_of(tmp_path), before
        assert before != now
    monkeypatch.setattr(_compile.config, "OPT", "an other level")
    assert before != _compile.digest_of(tmp_path)


def play(package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the loop of the package in little, in a process of its own."""
    settings = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", "import chary.simulation.loop"],
        env={**settings, "PYTHONPATH": str(package.parent), **environment},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "chary"
    for path, text in {
        "__init__.py": "",
        "_compile.py": Path(_compile.__file__).read_text(encoding="utf-8"),
        "shield/ledger.py": RULE,
        "simulation/loop.py": LOOP,
    }.items():
        (package / path).parent.mkdir(exist_ok=True, parents=True)
        (package / path).write_text(text, encoding="utf-8")
    return package


def test_a_fix_of_the_budget_rule_takes_effect_in_a_folder_of_the_users(
    package: Path, tmp_path: Path
) -> None:
    folder = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert play(package, **folder).stdout == "False compiled\n"
    assert play(package, **folder).stdout == "False loaded\n"
    files = set((tmp_path / "cache").rglob("*.nb*"))
    (package / "shield" / "ledger.py").write_text(RULE.replace("<= eta", "<= 2 * eta"), encoding="utf-8")
    assert play(package, **folder).stdout == "True compiled\n"
    # The old code was replaced: nothing piles up.
    assert files == set((tmp_path / "cache").rglob("*.nb*")) != set()


def heard(package: Path, cache: Path, before: str = "") -> str:
    """Run the loop of the package in little where stderr is a terminal, and return what it said there."""
    ours, theirs = os.openpty()
    settings = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env = {**settings, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)}
    code = f"{before}\nimport chary.simulation.loop"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, cwd=package.parent, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        process.communicate()
    os.close(theirs)
    said = b""
    # Linux ends a terminal that nobody writes to with an error.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            said += part
    os.close(ours)
    assert process.returncode == 0, said
    return said.decode()


def test_a_terminal_is_told_once_that_kernels_are_compiled(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("pty", reason="no terminals here")
    said = heard(package, tmp_path / "cache")
    assert said.count("\n") == 1
    assert said.startswith("chary compiles its kernels for this computer, once")
    # Loaded code says nothing, and neither does a log that is told to be quiet.
    assert heard(package, tmp_path / "cache") == ""
    quiet = "import logging; logging.getLogger('chary').setLevel('ERROR')"
    assert heard(package, tmp_path / "another", quiet) == ""
    # Files and pipes are for results and errors.
    assert play(package, NUMBA_CACHE_DIR=str(tmp_path / "third")).stderr == ""


def test_a_package_that_cannot_be_written_needs_no_home(package: Path, tmp_path: Path) -> None:
    # Files where folders would have to be: even root cannot write there.
    for folder in (package / "simulation" / "__pycache__", tmp_path / "home"):
        folder.write_text("not a folder")
    (tmp_path / "tmp").mkdir()
    played = play(
        package, HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path / "tmp"), PYTHONDONTWRITEBYTECODE="1"
    )
    assert played.stdout == "False compiled\n"
    assert played.stderr.count("\n") == 1
    assert "Set NUMBA_CACHE_DIR to a folder" in played.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_without_any_folder_kernels_are_compiled_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    def full(prefix: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_compile, "KernelCache", refuse)
    monkeypatch.setattr("tempfile.mkdtemp", full)
    _compile.use_temporary_cache.cache_clear()
    with caplog.at_level(logging.WARNING, logger="chary"):
        kernels: list[Any] = [_compile.jit(lambda: 1), _compile.jit(lambda: 2)]
    assert [kernel() for kernel in kernels] == [1, 2]
    assert len(caplog.messages) == 1
    assert "kept nowhere" in caplog.messages[0]
    _compile.use_temporary_cache.cache_clear()
