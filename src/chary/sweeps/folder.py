"""The folder of a sweep: one experiment, one folder per run, nothing half-written, nothing overwritten.

- `experiment.json`: the experiment, written before the first run
- `lock`: held by the sweep that works in the folder
- `runs/ID/`: a finished run; it appears whole, by one rename
    - `spec.json`: the run's canonical spec; ID is the beginning of its hash
    - `result.npz`: one entry per episode or chain
    - `result.json`: the summary of the run
    - `provenance.json`: place, date and duration; the only file that differs between two machines
    - `manifest.json`: the SHA-256 of the other files, and a seal where a key is set
- `work/ID/`: a run that is not finished
    - `running.json`: the number of episodes played
    - `checkpoint`: the state of the run, sealed
    - `failed.json`: the reason it was given up
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

from chary.errors import InvalidData, InvalidSetting
from chary.storage.archives import npz_arrays
from chary.storage.files import (
    DRAFT,
    json_line,
    parse_json,
    read_file,
    read_json,
    understood,
    write_file,
    writing,
)
from chary.storage.keys import check_keyed, keyed_seal
from chary.sweeps._lock import check_locks, is_locked, take_lock
from chary.sweeps.family import CPU
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER_SCHEMA = 1
DESCRIPTION, LOCK = "experiment.json", "lock"

# The files of a run that two undisturbed sweeps have in common, to the last byte.
RESULT_FILES = ("spec.json", "result.npz", "result.json")
FILES = (*RESULT_FILES, "provenance.json")

STATES = ("done", "running", "failed", "missing", "damaged")


class RunState(NamedTuple):
    """The state of a run: `sha256` of its results if it is done, `episodes` played if it was begun."""

    id: str
    state: str
    sha256: str | None = None
    episodes: int = 0
    reason: str = ""


class StoredRun(NamedTuple):
    """A finished run, read from the folder; `arrays` are those that `Family.arrays` returned."""

    spec: RunSpec
    summary: dict[str, Any]
    arrays: dict[str, NDArray[np.generic]]
    provenance: dict[str, Any]


@final
class SweepFolder:
    """A sweep's results on disk.

    Raises:
        InvalidSetting: on use, if there is no sweep, or a file cannot be written.
        InvalidData: if a result was changed after it was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs, self._work = path / "runs", path / "work"

    def exists(self) -> bool:
        """Return whether the folder contains an experiment."""
        return (self.path / DESCRIPTION).is_file()

    def experiment(self) -> Experiment:
        """Return the experiment of the folder."""
        return Experiment.from_json(self.description().get("experiment"))

    @contextmanager
    def held(self, experiment: Experiment, command: str, *, extend: bool = False) -> Iterator[int]:
        """Keep other sweeps out, and make sure that the folder contains this experiment; yield the lock.

        The lock ends with the last process that has it, however that ends. With `extend`, an experiment with
        all runs of the present one, and more, replaces it.

        Raises:
            InvalidSetting: if another sweep works here, or the folder contains another experiment or other
                files, or cannot be written to.
        """
        check_locks()
        with writing(self.path):
            self._refuse_strangers()
            self.path.mkdir(parents=True, exist_ok=True)
            lock = take_lock(self.path / LOCK)
        try:
            with writing(self.path):
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
                f"'out' must be a folder of its own, got {str(self.path)!r}, which contains other files. "
                "Choose another folder."
            )

    def claim(self, experiment: Experiment, command: str, *, extend: bool = False) -> None:
        """Record that the folder contains this experiment, or make sure that it does; part of `held`.

        Raises:
            InvalidSetting: if it contains another one.
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
        values |= keyed_seal(values)
        write_file(self.path / DESCRIPTION, (json.dumps(values, indent=1) + "\n").encode())

    def in_use(self) -> bool:
        """Return whether a sweep works here at this moment."""
        return is_locked(self.path / LOCK)

    def state(self, run: str, *, in_use: bool | None = None) -> RunState:
        """Return the state of a run; a finished one is read and compared with its manifest."""
        if (self._runs / run).is_dir():
            try:
                files = self._verified(run)
                results = b"".join(files[name] for name in RESULT_FILES)
                return RunState(run, "done", hashlib.sha256(results).hexdigest())
            except InvalidData as problem:
                return RunState(run, "damaged", reason=str(problem))
        work = self._work / run
        begun = read_json(work / "running.json") or {}
        episodes = begun.get("episodes")
        episodes = episodes if isinstance(episodes, int) else 0
        if (work / "failed.json").is_file():
            reason = str((read_json(work / "failed.json") or {}).get("traceback", ""))
            return RunState(run, "failed", episodes=episodes, reason=reason)
        busy = bool(begun) and (self.in_use() if in_use is None else in_use)
        return RunState(run, "running" if busy else "missing", episodes=episodes)

    def states(self) -> list[RunState]:
        """Return the state of every run of the experiment, in the order of the plan."""
        in_use = self.in_use()
        ids = dict.fromkeys(each.spec.id for each in self.experiment().plan())
        return [self.state(run, in_use=in_use) for run in ids]

    def read(self, run: str) -> StoredRun:
        """Return a finished run.

        Raises:
            InvalidData: if it is not finished, or was changed after it was written.
        """
        files = self._verified(run)
        with understood(f"run {run} must contain what chary wrote, got something else"):
            return StoredRun(
                RunSpec.from_json(files["spec.json"].decode()),
                parse_json(files["result.json"]),
                npz_arrays(files["result.npz"]),
                parse_json(files["provenance.json"]),
            )

    def device(self, run: str) -> str:
        """Return the processor that a finished run was computed on: `cpu`, or a GPU's name."""
        provenance = read_json(self._runs / run / "provenance.json") or {}
        return str(provenance.get("device", CPU))

    def sources(self, run: str) -> dict[str, Any]:
        """Return the files of the user's own code that a finished run was played with, as they were."""
        provenance = read_json(self._runs / run / "provenance.json") or {}
        found = provenance.get("sources")
        return found if isinstance(found, dict) else {}

    def write(self, run: str, files: Mapping[str, bytes]) -> None:
        """Make a run finished: its files appear together, and its checkpoint is removed.

        Two processes that finish one run at the same time write the same results: the second finds it done.
        """
        contents = dict(files)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        digests |= keyed_seal({"run": run, **digests})
        contents["manifest.json"] = (json.dumps(digests, indent=1) + "\n").encode()
        draft = self._runs / f"{DRAFT}{run}-{os.getpid()}"
        with writing(self.path):
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
            shutil.rmtree(self._work / run, ignore_errors=True)

    def note_running(self, run: str, episodes: int) -> None:
        """Record that a run is being played, and how many episodes are done."""
        with writing(self.path):
            (self._work / run / "failed.json").unlink(missing_ok=True)
        self._keep(run, "running.json", json_line({"episodes": episodes}))

    def note_failed(self, run: str, traceback: str) -> None:
        """Record why a run was given up."""
        self._keep(run, "failed.json", json_line({"traceback": traceback}))

    def write_checkpoint(self, run: str, content: bytes) -> None:
        """Keep the state of a run, in place of an earlier one."""
        self._keep(run, "checkpoint", content)

    def _keep(self, run: str, name: str, content: bytes) -> None:
        with writing(self.path):
            (self._work / run).mkdir(parents=True, exist_ok=True)
            write_file(self._work / run / name, content)

    def checkpoint(self, run: str) -> bytes | None:
        """Return the state of an unfinished run, None if none was kept."""
        try:
            return read_file(self._work / run / "checkpoint")
        except InvalidData:
            return None

    def discard(self, run: str) -> None:
        """Remove a damaged run, so that it is computed again; only on request."""
        with writing(self.path):
            shutil.rmtree(self._runs / run)

    def description(self) -> dict[str, Any]:
        """Return the contents of experiment.json: the experiment, and the command that started it."""
        values = read_json(self.path / DESCRIPTION)
        if values is None:
            raise InvalidSetting(
                f"'DIR' must contain a sweep, got {str(self.path)!r} without a readable experiment.json. "
                "Start one with `chary reproduce` or `chary sweep`."
            )
        if values.get("schema") != FOLDER_SCHEMA:
            raise InvalidSetting(
                f"'DIR' must be of schema {FOLDER_SCHEMA}, got {values.get('schema')!r} "
                f"in {str(self.path)!r}. Use the chary that made it."
            )
        content = {name: value for name, value in values.items() if name != "hmac"}
        check_keyed(f"the experiment in {str(self.path)!r}", values.get("hmac"), content)
        return values

    def _verified(self, run: str) -> dict[str, bytes]:
        """Return the files of a finished run, once they agree with its manifest.

        Raises:
            InvalidData: if a file is missing, or differs from its entry in the manifest.
        """
        where = self._runs / run
        manifest = read_json(where / "manifest.json")
        if manifest is None:
            raise InvalidData(f"run {run} must have a readable manifest.json, which is missing.")
        files: dict[str, bytes] = {}
        for name in FILES:
            try:
                files[name] = read_file(where / name)
            except InvalidData as problem:
                raise InvalidData(
                    f"run {run} must have a file {name} that can be read, got a damaged or missing one."
                ) from problem
            if hashlib.sha256(files[name]).hexdigest() != manifest.get(name):
                raise InvalidData(
                    f"run {run} must be as it was written, got a {name} that differs from its manifest."
                )
        if hashlib.sha256(files["spec.json"].strip()).hexdigest()[:16] != run:
            raise InvalidData(f"run {run} must be named after its spec, got another spec.")
        digests = {name: digest for name, digest in manifest.items() if name != "hmac"}
        check_keyed(f"run {run}", manifest.get("hmac"), {"run": run, **digests})
        return files

    def _tidy(self) -> None:
        """Remove the drafts that a killed sweep left."""
        drafts = (self.path, self._runs, *self._work.glob("*"))
        for draft in (draft for folder in drafts for draft in folder.glob(f"{DRAFT}*")):
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)
        for work in self._work.glob("*"):
            if (self._runs / work.name).is_dir():
                shutil.rmtree(work, ignore_errors=True)


def _another(path: Path, held: Experiment, wanted: Experiment, *, grows: bool, extend: bool) -> str:
    """Return the sentence that names the first difference between two experiments, and a way out."""
    theirs, ours = held.to_json(), wanted.to_json()
    difference = f"experiment {held.name!r}, not {wanted.name!r}"
    if held.name == wanted.name:
        keys = ("conditions", "algorithms", "studies", "title", "quick")
        detail = key = next(key for key in keys if theirs[key] != ours[key])
        if key == "conditions":
            name = next(name for name in ours[key] if ours[key][name] != theirs[key].get(name))
            detail = f"{name} {theirs[key].get(name)!r} instead of {ours[key][name]!r}"
        difference = f"experiment {held.name!r} with other {detail}"
    way_out = "Choose another folder"
    if grows and not extend:
        way_out += ", or pass --extend to add runs to it"
    elif extend:
        way_out += "; --extend only adds runs"
    return f"'out' must contain this experiment or nothing, got {str(path)!r} with {difference}. {way_out}."


def _sync(folder: Path) -> None:
    """Make sure that a rename within a folder survives a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
