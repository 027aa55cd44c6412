"""Small sweeps for the tests: a few runs of a fraction of a second each."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from chary.cli import main
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment
from chary.sweeps.toml import parse_experiment

SMALL = """
name = "small"
title = "A sweep for the tests"
problem = "riverswim"
episodes = 60
warmup = 20
seeds = 2
etas = [0.2, 0.4]
bonus = "hoeffding"
bonus_scale = 0.002
reward = "known"

[quick]
episodes = 20
seeds = 1

[[algorithms]]
label = "UCBVI"
agent = "ucbvi"
role = "unconstrained"

[[algorithms]]
label = "chary"
agent = "chary"
role = "ours"

[[studies]]
name = "scale"
question = "How do results move with the scale?"
algorithms = ["chary"]

[[studies.variants]]
label = "the same"
etas = [0.2]

[[studies.variants]]
label = "ten times"
bonus_scale = 0.02
etas = [0.2]
"""


class Silence:
    """A watcher that ignores all events."""

    def progress(self, worker: int, run: str, done: int, total: int) -> None: ...

    def finished(self, worker: int, run: str, *, failed: bool) -> None: ...


def small_experiment(**changes: Any) -> Experiment:
    return parse_experiment(SMALL).changed(**changes)


def chary(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line within this process, which saves the start of Python."""
    words, code = [str(argument) for argument in arguments], None
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            main(words)
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def chary_process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own and wait for it."""
    return subprocess.run(
        [sys.executable, "-m", "chary", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def digests(folder: Path) -> dict[str, str | None]:
    """Return the SHA-256 of the results of every run, None where there are none."""
    return {state.id: state.sha256 for state in SweepFolder(folder).states()}
