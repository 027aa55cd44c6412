"""Compiled code never outlives its sources."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from chary import _compile


def test_every_file_with_kernels_is_watched() -> None:
    found = {
        path
        for path in _compile.PACKAGE.rglob("*.py")
        if re.search(r"^@(jit|inner|bare|intrinsic)\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    watched = set(_compile.kernel_sources())
    assert found <= watched
    assert _compile.PACKAGE / "shield" / "ledger.py" in watched


def test_a_changed_kernel_drops_the_code_of_its_callers(tmp_path: Path) -> None:
    shutil.copytree(
        _compile.PACKAGE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    assert _compile.drop_stale_cache(tmp_path)
    caller = tmp_path / "__pycache__" / "_loop.play_block-1.py311.nbi"
    caller.write_bytes(b"compiled")
    assert not _compile.drop_stale_cache(tmp_path)
    assert caller.exists()
    with (tmp_path / "model" / "radii.py").open("a") as callee:
        callee.write("# changed\n")
    assert _compile.drop_stale_cache(tmp_path)
    assert not caller.exists()
