"""Benchmarks that `chary bench` runs, and what each reports about the machine that it ran on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

Progress = Callable[[str, int, int], None]


def machine() -> dict[str, Any]:
    """Return the machine as plain values."""
    return {"cores": os.cpu_count(), "system": platform.system(), "architecture": platform.machine()}


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, chary and some packages."""
    named = {name: metadata.version(name) for name in ("chary", *packages)}
    return {"python": platform.python_version(), **named}
