"""The Ray engine leaves the same bytes as the local one, even where it loses a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sweeps import SMALL, chary, digests

OPTIONS = ("--workers", "2", "--no-report")


def ray_workers() -> list[int]:
    """Return the processes in which Ray plays runs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::_play"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_ray_gives_the_same_bytes_even_if_it_loses_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("episodes = 60", "episodes = 40000").replace("seeds = 2", "seeds = 1"))
    assert chary("sweep", file, "--out", tmp_path / "local", *OPTIONS).returncode == 0
    command = [sys.executable, "-m", "chary", "sweep", str(file), "--out", str(tmp_path / "ray"), *OPTIONS]
    process = subprocess.Popen([*command, "--engine", "ray"], stderr=subprocess.PIPE, text=True)
    killed = False
    while process.poll() is None:
        time.sleep(0.2)
        workers = ray_workers()
        if workers and not killed:
            os.kill(workers[0], signal.SIGKILL)
            killed = True
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read()
    process.stderr.close()
    assert killed, "no run was under way when it was looked for"
    assert digests(tmp_path / "ray") == digests(tmp_path / "local")
    assert None not in digests(tmp_path / "ray").values()


def test_an_address_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    for address in ("127.0.0.1:9", "nonsense"):
        answer = chary("sweep", file, "--out", tmp_path / "x", "--engine", "ray", "--address", address)
        assert answer.returncode == 2
        assert f"got '{address}', which does not answer." in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_without_ray_the_way_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    arguments = ["sweep", str(tmp_path / "small.toml"), "--out", str(tmp_path / "x"), "--engine", "ray"]
    script = f"import sys; sys.modules['ray'] = None\nfrom chary.cli import main\nmain({arguments!r})"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("chary: 'engine' ray needs ray. Run: pip install")
    assert not (tmp_path / "x").exists()


def descendants(pid: int) -> dict[int, bytes]:
    """Return the processes that a process has started, and those that they have, with their commands."""
    found, new = {}, [pid]
    while new:
        child = new.pop()
        try:
            new += map(int, Path(f"/proc/{child}/task/{child}/children").read_text().split())
            found[child] = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_cluster_whose_head_is_killed_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("episodes = 60", "episodes = 400000"))
    command = [sys.executable, "-m", "chary", "sweep", str(file), "--out", str(tmp_path / "out"), *OPTIONS]
    process = subprocess.Popen([*command, "--engine", "ray"], stderr=subprocess.PIPE, text=True)
    head = None
    while head is None and process.poll() is None:
        time.sleep(0.5)
        ours = descendants(process.pid)
        if any(command.startswith(b"ray::_play") for command in ours.values()):
            head = next(pid for pid, command in ours.items() if b"gcs_server" in command)
    assert head is not None
    os.kill(head, signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    sentences = [line for line in err.splitlines() if line.startswith("chary: ")]
    assert len(sentences) == 1
    assert "'engine' ray must keep its cluster" in sentences[0]
    assert "Traceback" not in err
    assert process.returncode in (1, 2)
    time.sleep(2)
    assert not [pid for pid in ours if Path(f"/proc/{pid}").exists()]
