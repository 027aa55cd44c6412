"""The folder of a sweep: one experiment, one folder a run, nothing half-written, nothing overwritten.

experiment.json        what the folder holds, written before the first run
lock                   held by the sweep that works in the folder
runs/ID/               a finished run; it appears whole, by one rename
spec.json          the run's canonical spec, of whose hash ID is the beginning
result.npz         one entry an episode, or a chain
result.json        the run in numbers
provenance.json    where, when and how long: the only file that differs between two machines
manifest.json      the SHA-256 of the other files
work/ID/               a run that is not finished
running.json       it is being played
checkpoint         how far it came, sealed
failed.json        why it was given up
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from chary.errors import InvalidData, InvalidSetting, Unwritable
from chary.storage.files import DRAFT, as_json, npz_arrays, write_file
from chary.sweeps._lock import check_locks, is_locked, take_lock
from chary.sweeps.family import CPU
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["RESULT_FILES", "STATES", "RunState", "StoredRun", "SweepFolder"]

FOLDER_SCHEMA = 1
DESCRIPTION, LOCK = "experiment.json", "lock"

# The files of a run that two undisturbed sweeps have in common, to the last byte.
RESULT_FILES = ("spec.json", "result.npz", "result.json")
FILES = (*RESULT_FILES, "provenance.json")

STATES = ("done", "running", "failed", "missing", "damaged")


class RunState(NamedTuple):
    """Where a run stands: `sha256` of its results if it is done, `episodes` played if it was begun."""

    id: str
    state: str
    sha256: str | None = None
    episodes: int = 0
    reason: str = ""


class StoredRun(NamedTuple):
    """A finished run as it lies in the folder; `arrays` as `Family.arrays` returned them."""

    spec: RunSpec
    summary: dict[str, Any]
    arrays: dict[str, NDArray[np.generic]]
    provenance: dict[str, Any]


@final
class SweepFolder:
    """A sweep's results on disk.

    Raises:
        InvalidSetting: on use, if there is no sweep, or a file cannot be written.
        InvalidData: if a result is not what it was when it was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs, self._work = path / "runs", path / "work"

    def exists(self) -> bool:
        """Whether the folder holds an experiment."""
        return (self.path / DESCRIPTION).is_file()

    def experiment(self) -> Experiment:
        """Return the experiment that the folder holds."""
        return Experiment.from_json(self.description().get("experiment"))

    @contextmanager
    def held(self, experiment: Experiment, command: str, *, extend: bool = False) -> Iterator[int]:
        """Keep other sweeps out, and make sure that the folder holds this experiment; yield the lock.

        The lock ends with the last process that has it, however that ends. With `extend`, an experiment that
        has all the runs of the one there, and more, takes its place.

        Raises:
            InvalidSetting: if another sweep works here, or the folder holds another experiment, or anything
                else, or cannot be written to.
        """
        check_locks()
        with self._writing():
            self._refuse_strangers()
            self.path.mkdir(parents=True, exist_ok=True)
            lock = take_lock(self.path / LOCK)
        try:
            with self._writing():
                self._tidy()
                self.claim(experiment, command, extend=extend)
            yield lock
        finally:
            os.close(lock)

    def _refuse_strangers(self) -> None:
        if self.exists() or not self.path.exists():
            return
        if any(each.name != LOCK and not each.name.startswith(DRAFT) for each in self.path.iterdir()):
            raise InvalidSetting(
                f"'out' must be a folder of its own, got {str(self.path)!r}, which holds other files. "
                "Choose another folder."
            )

    def claim(self, experiment: Experiment, command: str, *, extend: bool = False) -> None:
        """Say that the folder holds this experiment, or make sure that it does; part of `held`.

        Raises:
            InvalidSetting: if it holds another one.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if self.exists():
            held = self.experiment()
            if held.to_json() == experiment.to_json():
                return
            ours = {each.spec.id for each in experiment.plan()}
            grows = {each.spec.id for each in held.plan()} <= ours
            if not (extend and grows):
                raise InvalidSetting(_another(self.path, held, experiment, grows=grows, extend=extend))
        values = {"schema": FOLDER_SCHEMA, "command": command, "experiment": experiment.to_json()}
        write_file(self.path / DESCRIPTION, (json.dumps(values, indent=1) + "\n").encode())

    def in_use(self) -> bool:
        """Whether a sweep works here at this moment."""
        return is_locked(self.path / LOCK)

    def state(self, run: str, *, in_use: bool | None = None) -> RunState:
        """Return where a run stands; a finished one is read and compared with its manifest."""
        if (self._runs / run).is_dir():
            try:
                return RunState(run, "done", self._verify(run))
            except InvalidData as problem:
                return RunState(run, "damaged", reason=str(problem))
        work = self._work / run
        begun = _read_json(work / "running.json") or {}
        episodes = begun.get("episodes")
        episodes = episodes if isinstance(episodes, int) else 0
        if (work / "failed.json").is_file():
            reason = str((_read_json(work / "failed.json") or {}).get("traceback", ""))
            return RunState(run, "failed", episodes=episodes, reason=reason)
        busy = bool(begun) and (self.in_use() if in_use is None else in_use)
        return RunState(run, "running" if busy else "missing", episodes=episodes)

    def states(self) -> list[RunState]:
        """Return where every run of the experiment stands, in the order they are planned in."""
        in_use = self.in_use()
        ids = dict.fromkeys(each.spec.id for each in self.experiment().plan())
        return [self.state(run, in_use=in_use) for run in ids]

    def read(self, run: str) -> StoredRun:
        """Return a finished run.

        Raises:
            InvalidData: if it is not finished, or not what it was when it was written.
        """
        self._verify(run)
        where = self._runs / run
        return StoredRun(
            RunSpec.from_json((where / "spec.json").read_text()),
            json.loads((where / "result.json").read_text()),
            npz_arrays((where / "result.npz").read_bytes()),
            json.loads((where / "provenance.json").read_text()),
        )

    def device(self, run: str) -> str:
        """Return the processor that a finished run was computed on: `cpu`, or a GPU's name."""
        provenance = _read_json(self._runs / run / "provenance.json") or {}
        return str(provenance.get("device", CPU))

    def write(self, run: str, files: Mapping[str, bytes]) -> None:
        """Make a run finished: its files appear together, and its work is put away.

        Two that finish the same run at the same time write the same results: the second finds it done.
        """
        contents = dict(files)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        contents["manifest.json"] = (json.dumps(digests, indent=1) + "\n").encode()
        draft = self._runs / f"{DRAFT}{run}-{os.getpid()}"
        with self._writing():
            self._runs.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            try:
                for name, content in contents.items():
                    write_file(draft / name, content)
                _sync(draft)
                try:
                    draft.rename(self._runs / run)
                except OSError:
                    if not (self._runs / run).is_dir():
                        raise
                _sync(self._runs)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            self.forget_work(run)

    def note_running(self, run: str, episodes: int) -> None:
        """Say that a run is being played, and how far it is."""
        with self._writing():
            work = self._work / run
            work.mkdir(parents=True, exist_ok=True)
            (work / "failed.json").unlink(missing_ok=True)
            write_file(work / "running.json", (as_json({"episodes": episodes}) + "\n").encode())

    def note_failed(self, run: str, traceback: str) -> None:
        """Say why a run was given up."""
        with self._writing():
            work = self._work / run
            work.mkdir(parents=True, exist_ok=True)
            write_file(work / "failed.json", (as_json({"traceback": traceback}) + "\n").encode())

    def write_checkpoint(self, run: str, content: bytes) -> None:
        """Keep how far a run came, in place of the last time."""
        with self._writing():
            work = self._work / run
            work.mkdir(parents=True, exist_ok=True)
            write_file(work / "checkpoint", content)

    def checkpoint(self, run: str) -> bytes | None:
        """Return what was kept of an unfinished run, if anything was."""
        try:
            return (self._work / run / "checkpoint").read_bytes()
        except OSError:
            return None

    def forget_work(self, run: str) -> None:
        """Put away what was kept of a run while it was not finished."""
        shutil.rmtree(self._work / run, ignore_errors=True)

    def discard(self, run: str) -> None:
        """Remove a run that was damaged, so that it is computed again; only on request."""
        with self._writing():
            shutil.rmtree(self._runs / run)

    def description(self) -> dict[str, Any]:
        """Return what the folder says it holds: the experiment, and the command that started it."""
        values = _read_json(self.path / DESCRIPTION)
        if values is None:
            raise InvalidSetting(
                f"'DIR' must hold a sweep, got {str(self.path)!r} without a readable experiment.json. "
                "Start one with `chary reproduce` or `chary sweep`."
            )
        if values.get("schema") != FOLDER_SCHEMA:
            raise InvalidSetting(
                f"'DIR' must be of schema {FOLDER_SCHEMA}, got {values.get('schema')!r} "
                f"in {str(self.path)!r}. Use the chary that made it."
            )
        return values

    def _verify(self, run: str) -> str:
        """Return the SHA-256 of a run's results, provenance left out.

        Raises:
            InvalidData: if a file is missing, or is not what the manifest says.
        """
        where = self._runs / run
        manifest = _read_json(where / "manifest.json")
        if manifest is None:
            raise InvalidData(f"run {run} must have a readable manifest.json, got none.")
        total = hashlib.sha256()
        for name in FILES:
            try:
                content = (where / name).read_bytes()
            except OSError as problem:
                raise InvalidData(f"run {run} must have a file {name}, got none.") from problem
            if hashlib.sha256(content).hexdigest() != manifest.get(name):
                raise InvalidData(
                    f"run {run} must be as it was written, got a {name} that is not what its manifest says."
                )
            if name in RESULT_FILES:
                total.update(content)
        if hashlib.sha256((where / "spec.json").read_bytes().strip()).hexdigest()[:16] != run:
            raise InvalidData(f"run {run} must be named after its spec, got another spec.")
        return total.hexdigest()

    def _tidy(self) -> None:
        """Remove what a killed sweep left unfinished, all of it in files of its own."""
        drafts = (self.path, self._runs, *self._work.glob("*"))
        for draft in (draft for folder in drafts for draft in folder.glob(f"{DRAFT}*")):
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)
        for work in self._work.glob("*"):
            if (self._runs / work.name).is_dir():
                shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise Unwritable(
                f"'out' must be a folder that can be written to, got {str(self.path)!r}: "
                f"{problem.strerror or problem}."
            ) from problem


def _another(path: Path, held: Experiment, wanted: Experiment, *, grows: bool, extend: bool) -> str:
    theirs, ours = held.to_json(), wanted.to_json()
    if held.name != wanted.name:
        difference = f"experiment {held.name!r}, not {wanted.name!r}"
    else:
        for key in ("conditions", "algorithms", "studies", "title", "quick"):
            if theirs[key] != ours[key]:
                break
        detail = key
        if key == "conditions":
            name = next(name for name in ours[key] if ours[key][name] != theirs[key].get(name))
            detail = f"{name} {theirs[key].get(name)!r} instead of {ours[key][name]!r}"
        difference = f"experiment {held.name!r} with other {detail}"
    way_out = "Choose another folder"
    if grows and not extend:
        way_out += ", or pass --extend to add runs to it"
    elif extend:
        way_out += "; --extend only adds runs"
    return f"'out' must hold this experiment or nothing, got {str(path)!r} with {difference}. {way_out}."


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _sync(folder: Path) -> None:
    """Make sure that a rename within a folder survives a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
