"""Sweeps that are killed, tampered with, starved of disk, or started twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sweeps import SMALL, Silence, chary, digests, small_experiment

from chary.errors import InvalidData, InvalidSetting
from chary.simulation import Simulation
from chary.storage.sealed import pack
from chary.sweeps import SweepResult, sweep
from chary.sweeps.engines.local import LocalEngine
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.tabular import problem_and_agent

WORKER = "tests.faults.failing_worker"
# A second worker would take longer to start than all runs take.
ALONE = ("--no-report", "--workers", "1")
FILES = ("result.npz", "result.json", "provenance.json", "spec.json")


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]))


def play(folder: Path, *, workers: int = 1, module: str = "chary.sweeps.worker") -> SweepResult:
    engine = LocalEngine(workers, module=module)
    return sweep(small_experiment(), folder, engine, Silence(), command="a test")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing happened to; tests must not change it."""
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    result = play(folder, workers=2)
    assert result == SweepResult(0, 8, [])
    return folder


def copy_of(folder: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", str(folder), str(target)], check=True)
    return target


def test_starting_again_does_only_what_is_missing(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "again")
    before = digests(undisturbed)
    gone = sorted((folder / "runs").iterdir())[0]
    subprocess.run(["rm", "-r", str(gone)], check=True)
    assert play(folder) == SweepResult(7, 1, [])
    assert digests(folder) == before
    assert play(folder) == SweepResult(8, 0, [])


# Killed


def processes_of(folder: Path) -> list[int]:
    """Return the processes, zombies included, that have the folder among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command:
                found.append(int(entry.name))
    return found


def kill_until_done(folder: Path, text: str, kills: int, rng: random.Random) -> int:
    """Start a sweep again and again, kill one of its processes each time; return how many were killed."""
    file = folder.with_suffix(".toml")
    file.write_text(text)
    command = [sys.executable, "-m", "chary", "sweep", str(file), "--out", str(folder), "--workers", "2"]
    killed = 0
    while True:
        process = subprocess.Popen(
            [*command, "--save-every", "0", "--no-report"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while process.poll() is None and killed < kills:
            time.sleep(rng.uniform(0.05, 1.0))
            alive = [process.pid, *(pid for pid in processes_of(folder) if pid != process.pid)]
            if process.poll() is None:
                victim = rng.choice(alive)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed += 1
        _, errors = process.communicate()
        if process.returncode == 0:
            return killed
        # A killed sweep says nothing; one that met its own remains would.
        assert process.returncode == -signal.SIGKILL, errors.decode()


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_killing_any_process_at_any_moment_changes_nothing(kills: int, tmp_path: Path) -> None:
    # Long enough that most kills fall into a run, and not into the start of Python.
    text = SMALL.replace("episodes = 60", f"episodes = {3000 * kills}")
    straight = tmp_path / "straight"
    file = tmp_path / "straight.toml"
    file.write_text(text)
    assert chary("sweep", file, "--out", straight, *ALONE).returncode == 0
    disturbed = tmp_path / "disturbed"
    killed = kill_until_done(disturbed, text, kills, random.Random(kills))
    assert killed == kills
    assert digests(disturbed) == digests(straight)
    assert None not in digests(disturbed).values()
    assert not list(disturbed.glob("runs/.draft*"))
    assert not list((disturbed / "work").iterdir())
    deadline = time.monotonic() + 10
    while processes_of(disturbed) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(disturbed) == []


def test_a_killed_sweep_shows_what_it_left(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "left")
    store = SweepFolder(folder)
    run = store.states()[0].id
    subprocess.run(["rm", "-r", str(folder / "runs" / run)], check=True)
    store.note_running(run, 30)
    assert store.state(run).state == "missing"
    with store.held(small_experiment(), ""):
        assert store.state(run) == (run, "running", None, 30, "")
        (folder / "runs" / ".draft-x-1").mkdir()
        (folder / ".draft-y").write_text("half an experiment.json")
    with store.held(small_experiment(), ""):
        assert not (folder / "runs" / ".draft-x-1").exists()
        assert not (folder / ".draft-y").exists()


def test_a_sweep_that_was_killed_at_its_very_first_file_starts_again(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    (folder / ".draft-abc").write_text('{"schema"')
    (folder / "lock").touch()
    assert play(folder) == SweepResult(0, 8, [])
    assert not (folder / ".draft-abc").exists()


def test_a_sweep_waits_for_the_workers_of_one_that_was_killed(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "orphans")
    # A process that took the lock and died, and a child that still has it for a while.
    script = (
        "import fcntl, json, os, socket, subprocess, sys\n"
        f"lock = os.open({str(folder / 'lock')!r}, os.O_RDWR)\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "os.pwrite(lock, json.dumps({'host': socket.gethostname(), 'pid': os.getpid()}).encode(), 0)\n"
        "subprocess.Popen(['sleep', '2'], pass_fds=(lock,))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    began = time.monotonic()
    assert SweepFolder(folder).in_use()
    assert play(folder) == SweepResult(8, 0, [])
    assert time.monotonic() - began > 1


# Runs that fail


@pytest.mark.parametrize("how", ["raise", "vanish"])
def test_a_run_that_fails_once_is_tried_again(
    how: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARY_TEST_FAILURE", f"{how},chary,once")
    monkeypatch.setenv("CHARY_TEST_MARKER", str(tmp_path / "marker"))
    folder = tmp_path / "once"
    assert play(folder, module=WORKER).failures == []
    assert (tmp_path / "marker").exists()
    assert digests(folder) == digests(undisturbed)


def test_a_run_that_fails_twice_is_listed_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARY_TEST_FAILURE", "raise,ucbvi,always")
    monkeypatch.setenv("CHARY_TEST_MARKER", str(tmp_path / "marker"))
    result = play(tmp_path / "twice", workers=2, module=WORKER)
    assert result.played == 7
    (failure,) = result.failures
    assert "RuntimeError: told to fail" in failure.traceback
    state = SweepFolder(tmp_path / "twice").state(failure.run)
    assert state.state == "failed"
    assert "told to fail" in state.reason
    # The next sweep tries it once more.
    assert play(tmp_path / "twice") == SweepResult(7, 1, [])


def test_a_run_whose_worker_always_vanishes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARY_TEST_FAILURE", "vanish,ucbvi,always")
    monkeypatch.setenv("CHARY_TEST_MARKER", str(tmp_path / "marker"))
    monkeypatch.setattr("chary.sweeps.engines.local.MOST_LOSSES", 2)
    result = play(tmp_path / "gone", module=WORKER)
    assert [failure.traceback for failure in result.failures] == [
        "the worker exited without reporting a result (Killed)."
    ]


def test_the_command_line_leaves_with_one_where_a_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.setenv("CHARY_TEST_FAILURE", "raise,ucbvi,always")
    monkeypatch.setenv("CHARY_TEST_MARKER", str(tmp_path / "marker"))
    script = (
        "from chary.sweeps.engines import local as engines; import functools; from chary.cli import main\n"
        f"engines.LocalEngine = functools.partial(engines.LocalEngine, module={WORKER!r})\n"
        f"main(['sweep', {str(tmp_path / 'small.toml')!r}, '--out', {str(tmp_path / 's')!r}, *{ALONE!r}])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "1 failed" in answer.stdout
    assert "RuntimeError: told to fail" in answer.stderr


def test_runs_depend_on_nothing_around_them(undisturbed: Path, tmp_path: Path) -> None:
    """Neither on git, nor on files here that are named like modules of Python's."""
    file, folder = tmp_path / "small.toml", tmp_path / "around"
    file.write_text(SMALL)
    environment = {**os.environ, "PATH": str(tmp_path)}
    (tmp_path / "queue.py").write_text("raise SystemExit(3)")
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    script = (
        f"from chary.cli import main; main(['sweep', {str(file)!r}, '--out', {str(folder)!r}, *{ALONE!r}])"
    )
    command = [sys.executable, "-P", "-c", script]
    answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert digests(folder) == digests(undisturbed)


# What a folder refuses


def check_refused(answer: subprocess.CompletedProcess[str], says: str) -> None:
    assert answer.returncode == 2, answer.stderr
    assert says in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert answer.stdout == ""


def content(folder: Path) -> dict[str, bytes]:
    """Return all files but the lock, which says who came last."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in files}


def test_a_folder_with_another_experiment_is_left_alone(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "other")
    before = content(folder)
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    check_refused(
        chary("sweep", file, "--out", folder, "--episodes", 50, "--no-report"),
        "episodes 60 instead of 50. Choose another folder.",
    )
    check_refused(
        chary("sweep", file, "--out", folder, "--seeds", 3, "--no-report"),
        "seeds 2 instead of 3. Choose another folder, or pass --extend to add runs to it.",
    )
    check_refused(
        chary("reproduce", "inventory", "--quick", "--out", folder, "--no-report"),
        "experiment 'small', not 'inventory'",
    )
    assert content(folder) == before


def test_a_folder_can_be_extended_on_request(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "more")
    experiment, engine = small_experiment(seeds=3), LocalEngine(1)
    result = sweep(experiment, folder, engine, Silence(), command="more", extend=True)
    # By hand: one more seed of UCBVI, chary at two budgets; the studies keep the seeds of the experiment.
    assert (result.found, result.played) == (8, 4)
    assert digests(folder).items() > digests(undisturbed).items()
    with pytest.raises(InvalidSetting, match=r"--extend only adds runs"):
        sweep(small_experiment(seeds=1), folder, engine, Silence(), command="less", extend=True)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    file = tmp_path.parent / "small-mine.toml"
    file.write_text(SMALL)
    check_refused(chary("sweep", file, "--out", tmp_path, "--no-report"), "which contains other files")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_two_sweeps_do_not_work_in_one_folder(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "busy")
    store = SweepFolder(folder)
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    with store.held(small_experiment(), ""):
        assert store.in_use()
        before = content(folder)
        check_refused(chary("sweep", file, "--out", folder, "--no-report"), "another sweep is at work")
        extended = chary("sweep", file, "--out", folder, "--no-report", "--seeds", 3, "--extend")
        check_refused(extended, "another sweep is at work")
        assert content(folder) == before
    assert not store.in_use()
    assert chary("sweep", file, "--out", folder, "--no-report").returncode == 0


HOWS = ("truncated", "changed", "missing")


def tamper(folder: Path, run: str, name: str, how: str) -> None:
    path = folder / "runs" / run / name
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-7] if how == "truncated" else data.replace(b"0", b"1", 1))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", FILES)
def test_tampered_results_are_named(name: str, how: str, undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "tampered")
    store = SweepFolder(folder)
    run = store.states()[0].id
    tamper(folder, run, name, how)
    before = content(folder)
    assert store.state(run).state == "damaged"
    with pytest.raises(InvalidData, match=rf"^run {run} must .*{name}"):
        store.read(run)
    with pytest.raises(InvalidData, match=rf"^run {run} must .*{name}.* Pass --recompute"):
        sweep(small_experiment(), folder, LocalEngine(1), Silence())
    assert content(folder) == before


def test_tampered_results_are_recomputed_when_asked(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "tampered")
    runs = [state.id for state in SweepFolder(folder).states()]
    # All but one, so that every file is tampered with, most of them in two ways.
    for i, run in enumerate(runs[:-1]):
        tamper(folder, run, FILES[i % 4], HOWS[i % 3])
    again = sweep(small_experiment(), folder, LocalEngine(1), Silence(), recompute=True)
    assert again == SweepResult(1, 7, [])
    assert digests(folder) == digests(undisturbed)


def test_a_result_that_is_not_named_after_its_spec_is_found_out(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "renamed")
    store = SweepFolder(folder)
    one, other = (state.id for state in store.states()[:2])
    subprocess.run(["rm", "-r", str(folder / "runs" / one)], check=True)
    (folder / "runs" / other).rename(folder / "runs" / one)
    assert store.state(one).state == "damaged"


def half_a_state(spec: RunSpec) -> bytes:
    """A checkpoint that is sealed as it should be, and lacks what is taken over last."""
    mdp, agent = problem_and_agent(spec)
    simulation = Simulation(mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed)
    simulation.start()
    simulation.advance()
    state = {name: array for name, array in simulation.state().items() if name != "run.generators"}
    return pack("run", state, {"run": spec.id, "wall": 0.0, "cpu": 0.0, "resumed": 0})


@pytest.mark.parametrize("how", ["nonsense", "half"])
def test_a_checkpoint_that_does_not_fit_is_not_used(
    how: str, undisturbed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(undisturbed, tmp_path / "checkpoint")
    store = SweepFolder(folder)
    run = store.states()[1].id
    spec = next(each.spec for each in small_experiment().plan() if each.spec.id == run)
    subprocess.run(["rm", "-r", str(folder / "runs" / run)], check=True)
    store.write_checkpoint(run, b"PK nothing of the kind" if how == "nonsense" else half_a_state(spec))
    assert play(folder) == SweepResult(7, 1, [])
    assert digests(folder) == digests(undisturbed)
    assert f"run {run} starts again" in capfd.readouterr().err


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    # Files of at most 4 KiB stand for a disk without room: results are larger, descriptions are not.
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from chary.cli import main\n"
        f"main(['sweep', {str(file)!r}, '--out', {str(tmp_path / 'full')!r}, *{ALONE!r}])"
    )
    answer = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    check_refused(answer, "'out' must be a folder that can be written to")
    assert not list((tmp_path / "full").glob("runs/*"))
    # With room again the same command does it.
    assert chary("sweep", file, "--out", tmp_path / "full", *ALONE).returncode == 0


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "small.toml").write_text(SMALL)
    check_refused(
        chary("sweep", tmp_path / "small.toml", "--out", tmp_path / "file" / "x", "--no-report"),
        "'out' must be a folder that can be written to",
    )


# Commands


@pytest.mark.parametrize(
    "text", ["{}", '{"schema": 1}', '{"schema": 1, "experiment": []}', "[", '{"schema": 2}']
)
def test_a_description_that_is_none_is_one_sentence(text: str, undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "odd")
    (folder / "experiment.json").write_text(text)
    answer = chary("status", folder)
    assert answer.returncode == 2, answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


MISTAKES: list[tuple[str, str]] = [
    ("reproduce inventory --quick --etas ,", "'etas' must be numbers, got ','"),
    ("reproduce inventry", "Did you mean 'inventory'?"),
    ("reproduce inventory --quick --seeds 0", "'seeds' must be a whole number >= 1, got 0"),
    ("reproduce inventory --quick --etas 0.1,x", "'etas' must be numbers, got '0.1,x'"),
    ("reproduce inventory --quick 0.3", "'0.3' is one argument too many"),
    ("reproduce inventory --quick --studies scal", "Did you mean 'scale'?"),
    ("reproduce inventory --quick --engine rai", "Did you mean 'ray'?"),
    ("reproduce inventory --quick --workers 0", "'workers' must be a whole number >= 1, got 0"),
    ("reproduce inventory --quick --address a:1", "'address' must be left out with engine 'local'"),
    ("reproduce inventory --quick --save-every -1", "'save_every' must lie in [0, inf], got -1"),
    ("sweep", "'FILE.toml' must be given. Start"),
    ("sweep no.toml", "'FILE' must be a file that can be read, got 'no.toml'"),
    ("status nowhere", "'DIR' must contain a sweep, got 'nowhere'"),
    ("report nowhere", "'DIR' must contain a sweep, got 'nowhere'"),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES, ids=[arguments for arguments, _ in MISTAKES])
def test_a_mistake_on_the_command_line_is_one_sentence(
    arguments: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(chary(*arguments.split()), says)
    assert list(tmp_path.iterdir()) == []


def test_etas_may_be_given_in_any_usual_way(tmp_path: Path) -> None:
    file, folder = tmp_path / "small.toml", tmp_path / "swept"
    file.write_text(SMALL)
    # A folder takes no other experiment, so that what was played for one way is found by the others.
    ways = (["--etas", "0.2,0.3"], ["--etas", "0.2", "--etas", "0.3"], ["--etas", "0.2", "0.3"])
    for way in ways:
        options = ["--episodes", 2, "--seeds", 1, "--studies", "none", "--json", *ALONE]
        answer = chary("sweep", file, "--out", folder, *options, *way)
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["done"] == 3
    plan = SweepFolder(folder).experiment().plan()
    asked = [(each.spec.agent, each.spec.options.get("eta")) for each in plan]
    assert asked == [("ucbvi", None), ("chary", 0.2), ("chary", 0.3)]


def test_status_says_where_every_run_stands(undisturbed: Path) -> None:
    answer = json.loads(chary("status", undisturbed, "--json").stdout)
    assert (answer["experiment"], answer["in_use"], answer["done"], answer["missing"]) == (
        "small",
        False,
        8,
        0,
    )
    assert all(len(run["sha256"]) == 64 and run["state"] == "done" for run in answer["runs"])
    assert "done     8" in chary("status", undisturbed).stdout
