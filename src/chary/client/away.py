"""While the service is away: the table that is played, and the reports that wait until it is back."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from chary.client.replies import Decided, Garbled, Rejected
from chary.client.talk import Request
from chary.errors import InvalidData, InvalidSetting, check_index
from chary.storage.files import json_line, write_file
from chary.texts import shown

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ModuleNotFoundError:
    # Windows.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

log = logging.getLogger("chary")

# Episodes whose last decision is remembered: it may be asked for again while the service is away.
_MOST_HEARD = 10_000
_BASELINE, _WAITING, _REJECTED, _LOCK = "baseline.json", "waiting.jsonl", "rejected.jsonl", "lock"


@final
@dataclass(frozen=True, slots=True)
class Baseline:
    """The baseline's action at every step and in every state.

    Args:
        actions: Actions by step and state, (H, S).
        plan: The number of the plan whose baseline it is.
        states: The labels of the states, empty where there are none.
        labels: The labels of the actions, empty where there are none.
    """

    actions: Sequence[Sequence[int]]
    plan: int
    states: Sequence[str]
    labels: Sequence[str]

    @classmethod
    def of(cls, reply: Any) -> Baseline:
        """Return the table that the service answered.

        Raises:
            Garbled: if it is none.
        """
        if not isinstance(reply, Mapping):
            raise Garbled
        actions, plan = reply.get("actions"), reply.get("plan")
        # Null where the setting declares no labels.
        states, labels = reply.get("states") or [], reply.get("labels") or []
        if not isinstance(actions, list) or not actions or type(plan) is not int:
            raise Garbled
        for row in actions:
            if not isinstance(row, list) or len(row) != len(actions[0]) or not all(map(_is_index, row)):
                raise Garbled
        if not (_are_texts(states) and _are_texts(labels)):
            raise Garbled
        return cls(actions, plan, states, labels)

    def decide(self, episode: str, t: int, state: int | str) -> Decided:
        """Return the baseline's decision.

        Raises:
            InvalidData: if there is no such step or state.
        """
        check_index("t", t, len(self.actions), error=InvalidData)
        if isinstance(state, str):
            if state not in self.states:
                raise InvalidData(
                    f"'state' must be a number or a label that the setting declares, got {shown(state)}."
                )
            state = self.states.index(state)
        else:
            check_index("state", state, len(self.actions[0]), error=InvalidData)
        action = self.actions[t][state]
        label = self.labels[action] if action < len(self.labels) else ""
        return Decided(episode, t, action, label, plan=self.plan)


class Report(NamedTuple):
    """A report that waits until the service is back."""

    number: int
    episode: str
    request: Request


@final
class Outbox:
    """What the service does not know yet, in order, and the decisions that were made without it.

    Safe to use from several threads. With a folder it outlives the process; the service takes a report twice
    as once, so one that was sent just before a crash does no harm.

    Args:
        folder: Where reports and the baseline are kept; None to keep them in memory only.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._lock = threading.Lock()
        self._waiting: dict[int, Report] = {}
        self._played: dict[str, dict[int, tuple[int | str, Decided]]] = {}
        self._heard: dict[str, tuple[int | str, Decided]] = {}
        self._number = 0
        self._held: weakref.finalize[..., Outbox] | None = None
        self.baseline: Baseline | None = None
        self.rejected: list[tuple[str, Rejected]] = []
        if self._folder is not None:
            self._load(self._folder)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, episode: str, request: Request) -> None:
        """Keep a report until it is delivered."""
        with self._lock:
            self._number += 1
            report = self._waiting[self._number] = Report(self._number, episode, request)
            self._write(_WAITING, _line(report))

    def play(self, episode: str, t: int, state: int | str) -> Decided | None:
        """Return what the baseline plays here and remember it; None where no table was ever received."""
        if self.baseline is None:
            return None
        decided = self.baseline.decide(episode, t, state)
        with self._lock:
            self._played.setdefault(episode, {})[t] = state, decided
        return decided

    def played(self, episode: str, t: int, state: int | str) -> Decided | None:
        """Return what was played at a step without the service.

        Raises:
            Rejected: if it was played in another state.
        """
        before, decided = self._played.get(episode, {}).get(t, (state, None))
        if before != state:
            raise Rejected(
                409, "contradiction", f"Step {t} was played in state {before!r} while the service was away."
            )
        return decided

    def hear(self, episode: str, state: int | str, decided: Decided) -> None:
        """Remember what the service has decided last in an episode."""
        with self._lock:
            self._heard.pop(episode, None)
            self._heard[episode] = state, decided
            if len(self._heard) > _MOST_HEARD:
                del self._heard[next(iter(self._heard))]

    def heard(self, episode: str, t: int, state: int | str) -> Decided | None:
        """Return what the service has decided at a step, if that was the last one of the episode."""
        before, decided = self._heard.get(episode, (state, None))
        return decided if decided is not None and (decided.t, before) == (t, state) else None

    def of(self, episode: str | None) -> list[Report]:
        """Return the reports that wait, of one episode or of all."""
        with self._lock:
            return [report for report in self._waiting.values() if episode in (None, report.episode)]

    def delivered(self, report: Report, refused: Rejected | None = None) -> None:
        """Note that the service has taken a report, or refused it for good."""
        with self._lock:
            if self._waiting.pop(report.number, None) is None:
                return
            if refused is not None:
                self.rejected.append((report.episode, refused))
                log.warning("A report that had waited was refused by the service: %s.", refused.code)
                self._write(_REJECTED, {**_line(report), "status": refused.status, "message": str(refused)})
            if self._waiting or self._folder is None:
                self._write(_WAITING, {"delivered": report.number})
            else:
                (self._folder / _WAITING).unlink(missing_ok=True)

    def forget(self, episode: str) -> None:
        """Forget what was played in an episode that has ended."""
        with self._lock:
            self._played.pop(episode, None)
            self._heard.pop(episode, None)

    def release(self) -> None:
        """Let another client have the folder."""
        if self._held is not None:
            self._held()

    def keep(self, reply: Mapping[str, Any]) -> None:
        """Keep a new table of the baseline."""
        self.baseline = Baseline.of(reply)
        if self._folder is not None:
            write_file(self._folder / _BASELINE, json_line(reply))

    def _write(self, name: str, line: Mapping[str, Any]) -> None:
        """Append a line to a file of the folder, and wait for the disk."""
        if self._folder is None:
            return
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, json_line(line))
            os.fsync(file)
        finally:
            os.close(file)

    def _load(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_folder(folder)
            table, waiting = folder / _BASELINE, folder / _WAITING
            if table.exists():
                self.baseline = Baseline.of(json.loads(table.read_bytes()))
            content = waiting.read_bytes() if waiting.exists() else b""
            whole, end, torn = content.rpartition(b"\n")
            for line in whole.splitlines():
                self._take(json.loads(line))
            if torn:
                # A line that was cut off by a crash was acknowledged to nobody.
                write_file(waiting, whole + end)
        except InvalidSetting:
            raise
        except (OSError, ValueError, KeyError, TypeError, Garbled) as error:
            raise InvalidSetting(
                f"The folder {shown(str(folder))} must be one that a client keeps its reports in, and be "
                f"writable: {type(error).__name__}. Move what is in it elsewhere, or name another folder."
            ) from None
        for report in self._waiting.values():
            self._remember(report)

    def _lock_folder(self, folder: Path) -> None:
        """Keep other clients out of the folder until this one is gone; two would deliver the same reports."""
        lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
        self._held = weakref.finalize(self, os.close, lock)
        if HAS_LOCKS:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise InvalidSetting(
                    f"The folder {shown(str(folder))} is in use by another client. Give each its own."
                ) from None

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take a line of the file of reports that wait."""
        if "delivered" in line:
            self._waiting.pop(line["delivered"], None)
            return
        request = Request(line["method"], line["path"], base64.b64decode(line["body"]))
        self._number = line["number"]
        self._waiting[self._number] = Report(self._number, line["episode"], request)

    def _remember(self, report: Report) -> None:
        """Read what was played from the reports that wait."""
        if report.request.path.endswith("/fallbacks") and self.baseline is not None:
            for step in json.loads(report.request.body)["steps"]:
                decided = Decided(report.episode, step["t"], step["action"], plan=self.baseline.plan)
                self._played.setdefault(report.episode, {})[step["t"]] = step["state"], decided


def _is_index(value: object) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(type(text) is str for text in value)


def _line(report: Report) -> dict[str, Any]:
    return {
        "number": report.number,
        "episode": report.episode,
        "method": report.request.method,
        "path": report.request.path,
        "body": base64.b64encode(report.request.body).decode(),
    }
