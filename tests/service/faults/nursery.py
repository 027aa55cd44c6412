"""Processes that start at once: a parent that has imported and compiled everything, and forks.

`python -m tests.service.faults.nursery` reads one JSON object per line: {"call": "module:function",
"arguments": {...}, "environment": {...}, "output": PATH} starts a process that calls the function and ends
with what it returns as its exit status; {"wait": PID} waits for its end. A service that is killed a thousand
times would otherwise spend most of the time importing. What a forked process does is what it would do if it
had been started: the parent has read its modules and kernels and has opened no deployment.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def main() -> None:
    """Serve the requests on standard input until it is closed; then end all that was started."""
    for name in sys.argv[1:]:
        module, _, function = name.partition(":")
        found = importlib.import_module(module)
        if function:
            getattr(found, function)()
    assert threading.active_count() == 1, "a process with threads must not be forked"
    born: set[int] = set()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            born.discard(asked["wait"])
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": _start(asked)}
            born.add(answer["pid"])
        print(json.dumps(answer), flush=True)
    for pid in born:
        os.kill(pid, signal.SIGKILL)


def _start(asked: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        os.setsid()
        output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.environ.update(asked.get("environment", {}))
        module, _, function = asked["call"].partition(":")
        status = getattr(importlib.import_module(module), function)(**asked["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)


class Nursery:
    """The parent, as a context manager; it calls the functions of `warm` before it forks."""

    def __init__(self, *warm: str) -> None:
        self._warm = warm

    def __enter__(self) -> Nursery:
        command = [sys.executable, "-m", "tests.service.faults.nursery", *self._warm]
        paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        # One thread, so that it may fork.
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(
        self,
        call: str,
        arguments: Mapping[str, Any],
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a process that calls a function."""
        told = {"call": call, "arguments": dict(arguments), "output": str(output)}
        return Child(self, int(self._ask({**told, "environment": dict(environment or {})})["pid"]))

    def wait(self, pid: int) -> int:
        """Wait for the end of a process and return its exit status, negative for a signal."""
        return int(self._ask({"wait": pid})["status"])

    def _ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the nursery ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Child:
    """A process that a nursery started."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self._status: int | None = None

    def running(self) -> bool:
        """Whether it still runs; one that has ended stays a zombie until it is waited for."""
        if self._status is not None:
            return False
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] not in "ZX"

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end and return the exit status, negative for a signal.

        Raises:
            TimeoutError: if it does not end in time.
        """
        if self._status is None:
            until = time.monotonic() + seconds
            while self.running():
                if time.monotonic() > until:
                    raise TimeoutError(f"process {self.pid} did not end within {seconds} s")
                time.sleep(0.002)
            self._status = self._nursery.wait(self.pid)
        return self._status

    def kill(self) -> None:
        """End it by SIGKILL, if it runs."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


if __name__ == "__main__":
    main()
