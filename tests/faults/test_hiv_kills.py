"""A sweep of the deep learner whose processes are killed: the results are the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sweeps import chary, digests
from tests.tiny_hiv import TINY

DQN = '[[algorithms]]\nlabel = "DQN"\nagent = "dqn"\nrole = "unconstrained"\n'


@pytest.mark.slow
def test_killing_a_sweep_of_the_deep_learner_changes_nothing(tmp_path: Path) -> None:
    assert DQN in TINY
    text = TINY.replace(DQN, "").replace("episodes = 3", "episodes = 150").replace("seeds = 2", "seeds = 1")
    file = tmp_path / "kills.toml"
    file.write_text(text.replace("etas = [40, 100]\naudit", "etas = [40]\naudit"))
    straight, disturbed = tmp_path / "straight", tmp_path / "disturbed"
    options = ("--no-report", "--save-every", "0")
    assert chary("sweep", file, "--out", straight, *options).returncode == 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "chary", "sweep", str(file), "--out", str(disturbed), *options],
            stderr=subprocess.DEVNULL,
        )
        before = saved(disturbed)
        # Until this process has saved something of its own.
        while process.poll() is None and saved(disturbed) == before:
            time.sleep(0.05)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert chary("sweep", file, "--out", disturbed, *options).returncode == 0
    assert digests(disturbed) == digests(straight)
    assert None not in digests(disturbed).values()


def saved(folder: Path) -> list[int]:
    """Return when the checkpoints of a sweep were written."""
    return [path.stat().st_mtime_ns for path in sorted(folder.glob("work/*/checkpoint"))]
