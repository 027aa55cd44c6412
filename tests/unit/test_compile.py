"""Compiled code never outlives its sources."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from chary import _compile


def test_every_file_with_kernels_is_watched() -> None:
    found = {
        path.relative_to(_compile.PACKAGE).as_posix()
        for path in _compile.PACKAGE.rglob("*.py")
        if re.search(r"^@(jit|inner|bare|intrinsic)\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert found <= set(_compile.KERNELS)


def test_a_changed_kernel_drops_the_code_of_its_callers(tmp_path: Path) -> None:
    for name in _compile.KERNELS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_compile.PACKAGE / name, tmp_path / name)
    assert _compile.drop_stale_cache(tmp_path)
    caller = tmp_path / "__pycache__" / "_loop.play_block-1.py311.nbi"
    caller.write_bytes(b"compiled")
    assert not _compile.drop_stale_cache(tmp_path)
    assert caller.exists()
    with (tmp_path / "model" / "radii.py").open("a") as callee:
        callee.write("# changed\n")
    assert _compile.drop_stale_cache(tmp_path)
    assert not caller.exists()
