"""Ends that nobody asked for: a closed or full stdout, a full disk, a signal to a worker."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sweeps import Silence, small_experiment

from chary.errors import Unwritable
from chary.report import _rebuild
from chary.storage import files
from chary.storage.files import write_files
from chary.sweeps import sweep
from chary.sweeps.engines.local import LocalEngine

CHARY = f"{sys.executable} -m chary"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-", "<&- >&-"])
@pytest.mark.parametrize("arguments", ["--version", "problems", "problems --json"])
def test_a_closed_stdout_is_no_defect(arguments: str, streams: str) -> None:
    done = shell(f"{CHARY} {arguments} {streams}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", ["--version", "problems", "problems --json", "--help"])
def test_a_full_stdout_is_one_sentence(arguments: str) -> None:
    done = shell(f"{CHARY} {arguments} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "chary: the output could not be written: No space left on device.\n"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("whole", range(4))
def test_a_disk_that_is_full_leaves_a_report_as_it_was(
    whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"figures/a.png": b"1", "tables/b.csv": b"2", "index.html": b"3"}
    old, new = tmp_path / "old", tmp_path / "new"
    _rebuild(old, page, ())
    before = contents(old)
    written, draft = 0, files.write_draft

    def until_full(path: Path, content: bytes) -> None:
        nonlocal written
        written += 1
        if written > whole:
            raise OSError(errno.ENOSPC, "No space left on device")
        draft(path, content)

    monkeypatch.setattr(files, "write_draft", until_full)
    for target, earlier in ((old, tuple(before)), (new, ())):
        written = 0
        with pytest.raises(Unwritable, match="No space left on device"):
            _rebuild(target, {name: content * 2 for name, content in page.items()}, earlier)
    assert contents(old) == before
    assert not new.exists()


def test_files_that_are_written_together_replace_older_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    write_files({tmp_path / "a": b"new", tmp_path / "deep" / "er" / "b": b"2"})
    assert contents(tmp_path) == {"a": b"new", "deep/er/b": b"2"}


@pytest.mark.parametrize("wrong", ["folder", "x" * 300, f"deep/{'x' * 300}/b"])
def test_files_that_are_written_together_are_all_written_or_none(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=r"Is a directory|name too long"):
        write_files({tmp_path / "a": b"new", tmp_path / "new" / "c": b"1", tmp_path / wrong: b"2"})
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(tmp_path.rglob("*")) == before


def children() -> list[int]:
    """Return the workers that this process has started."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if b"chary.sweeps.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


class Interrupting(Silence):
    """A watcher that interrupts the worker whenever it hears from it."""

    heard = 0

    def progress(self, worker: int, run: str, done: int, total: int) -> None:
        for pid in children():
            self.heard += 1
            os.kill(pid, signal.SIGINT)
            time.sleep(0.05)
            os.kill(pid, signal.SIGINT)


def test_an_interrupted_worker_goes_on_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watcher = Interrupting()
    experiment = small_experiment(seeds=1, studies=[])
    result = sweep(experiment, tmp_path / "out", LocalEngine(1), watcher, command="test")
    assert (result.played, result.failures) == (3, [])
    assert watcher.heard >= 3
    assert capfd.readouterr().err == ""
    # The sweep itself can be interrupted as before.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
