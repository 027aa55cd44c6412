"""The pages about the service: their tables are those of the code, and their commands run."""

from __future__ import annotations

import ast
import configparser
import importlib
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chary.service.limits import Limits
from chary.service.routes import ROUTES
from chary.service.ward import TREATMENTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "chary" / "service"
API = (ROOT / "docs" / "service-api.md").read_text(encoding="utf-8")
FULL = os.environ.get("CHARY_TESTS") == "full"
# The port of the pages; the test takes one that is free.
PORT = "8750"


def table(page: str, title: str) -> list[list[str]]:
    """Return the cells of the first table below a title, without its head."""
    below = page.partition(f"## {title}\n")[2]
    lines = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_paths_is_that_of_the_service() -> None:
    told = [
        (method, path.strip("`"), scope or None, text) for method, path, scope, text in table(API, "Paths")
    ]
    assert told == [(route.method, route.path, route.scope, route.summary) for route in ROUTES]


def refusals() -> set[tuple[int, str]]:
    """Return every status and word with which the source refuses a request."""
    found: set[tuple[int, str]] = set()
    for file in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) >= 2:
                status, code = (arg.value if isinstance(arg, ast.Constant) else None for arg in node.args[:2])
                if isinstance(status, int) and 400 <= status < 600 and isinstance(code, str):
                    found.add((status, code))
    return found


def test_the_table_of_errors_names_every_refusal() -> None:
    told = {
        (int(status), code)
        for statuses, codes, _ in table(API, "Errors")
        for status in statuses.split(", ")
        for code in re.findall(r"`(\w+)`", codes)
    }
    found = refusals()
    assert len(found) > 20
    assert sorted(found - told) == []
    source = "".join(file.read_text(encoding="utf-8") for file in SOURCE.glob("*.py"))
    assert [code for _, code in sorted(told) if f'"{code}"' not in source] == []


def test_the_table_of_limits_is_that_of_the_service() -> None:
    limits = Limits()
    told = {row[0]: row[1] for row in table(API, "Limits")}
    assert told["body, nesting"] == f"{limits.body >> 20} MiB, {limits.depth} levels"
    seconds = f"{limits.head_seconds:g} s, {limits.body_seconds:g} s"
    assert told["time for the head and for the body of a request"] == seconds
    at_once = told["connections, and questions to the database, at once"]
    assert at_once == f"{limits.connections:,}, {limits.views}"


def test_the_recorded_figures_are_those_of_the_campaigns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    written = importlib.import_module("_service_page").recorded()
    page = (ROOT / "docs" / "service-promises.md").read_text(encoding="utf-8")
    assert f"<!-- begin recorded -->\n{written}\n<!-- end recorded -->" in page


def commands(page: str) -> list[str]:
    """Return the blocks of commands of a page that are meant to be run."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    # What a plan says is tested elsewhere, and takes longer than all the rest.
    return [block for block in blocks if FULL or not block.startswith("chary plan")]


def test_the_commands_of_the_pages_run_in_their_order(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, what in (("chary", "-m chary"), ("python", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {what} "$@"\n')
        (bin_ / name).chmod(0o755)
    blocks = [*commands("service.md"), *commands("service-operations.md"), *commands("service-api.md")]
    assert len(blocks) > 12
    script = "\n".join(["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", *blocks])
    script = re.sub(r"(chary serve run ward)", rf"\1 --port {port}", script).replace(f":{PORT}", f":{port}")
    script = script.replace("--seconds 10", "--seconds 2")
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert '"error"' not in ran.stdout, said
    # The second request for a step was answered like the first, by today's policy.
    decided = [
        line for line in ran.stdout.splitlines() if line.startswith('{"action":') and '"mode":' in line
    ]
    assert len(decided) == 2, said
    assert decided[0] == decided[1]
    assert '"mode":"apprentice"' in decided[0]
    assert "Mode: budgeted, since" in ran.stdout
    assert "Revoked: " in ran.stdout
    assert "409 contradiction" in ran.stdout
    assert ran.stdout.count("are as they were written") == 5, said


def test_the_unit_and_the_image_start_the_service_as_the_command_line_takes_it() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "chary.service", encoding="utf-8")
    started = shlex.split(unit["Service"]["ExecStart"])
    image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", image, re.MULTILINE)
    helped = subprocess.run(
        [sys.executable, "-m", "chary", "serve", "run", "--help"], check=True, capture_output=True, text=True
    )
    for words in (started[started.index("serve") :], ast.literal_eval(entry)[1:]):
        assert words[:2] == ["serve", "run"]
        assert all(word in helped.stdout for word in words if word.startswith("--"))
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
    assert f"--label action={','.join(TREATMENTS)}" in image
