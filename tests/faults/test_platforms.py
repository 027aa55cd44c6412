"""Sweeps on other systems and processors: the parts that other systems lack are taken away here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sweeps import SMALL, Silence, digests, small_experiment

from chary._workers import usable_cores
from chary.errors import InvalidSetting
from chary.sweeps import SweepResult, sweep
from chary.sweeps.engines.local import LocalEngine
from chary.sweeps.folder import FILES, SweepFolder
from chary.sweeps.perform import perform, prepare, save

# macOS has the module `fcntl`, and no `os.sched_getaffinity`.
AS_ON_MACOS = "import os; del os.sched_getaffinity\n"

# Windows has neither.
AS_ON_WINDOWS = """
import os, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "grp", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
for name in ("fcntl", "resource", "grp", "termios"):
    sys.modules.pop(name, None)
del os.sched_getaffinity, os.pwrite, os.killpg
"""

# Drawing takes most of a report's time, and no system draws in another way: files hold the charts' names.
UNDRAWN = """
import chary.charts
chary.charts.draw_files = lambda chart: {kind: chart.key.encode() for kind in ("png", "pdf")}
"""


def chary_on(system: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that lacks what a system lacks."""
    script = f"{system}\nfrom chary.cli import main\nmain({[str(each) for each in arguments]!r})"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three runs, played with all that Linux has; tests must not change it."""
    folder = tmp_path_factory.mktemp("platforms") / "sweep"
    experiment = small_experiment(seeds=1, studies=[])
    assert sweep(experiment, folder, LocalEngine(1), Silence()) == SweepResult(0, 3, [])
    return folder


def test_without_an_affinity_all_cores_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert usable_cores() == 7


def test_a_sweep_is_played_on_macos(played: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    options = ("--seeds", 1, "--studies", "none", "--no-report", "--out", tmp_path / "out")
    answer = chary_on(AS_ON_MACOS, "sweep", tmp_path / "small.toml", *options)
    assert answer.returncode == 0, answer.stderr
    assert digests(tmp_path / "out") == digests(played)


def test_windows_reads_sweeps_and_refuses_to_play_them(played: Path, tmp_path: Path) -> None:
    folder = tmp_path / "read"
    shutil.copytree(played, folder)
    status = chary_on(AS_ON_WINDOWS, "status", folder, "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["done"] == 3
    report = chary_on(AS_ON_WINDOWS + UNDRAWN, "report", folder)
    assert report.returncode == 0, report.stderr
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "out"
    answer = chary_on(AS_ON_WINDOWS, "sweep", tmp_path / "small.toml", "--out", out, "--no-report")
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert "sweeps need file locks, the Python module 'fcntl', which this system lacks" in line
    assert not out.exists()


def test_results_of_a_gpu_and_of_a_cpu_do_not_share_a_folder(played: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpu"
    shutil.copytree(played, folder)
    store, experiment = SweepFolder(folder), small_experiment(seeds=1, studies=[])
    one, other, _ = (state.id for state in store.states())
    files = {name: (folder / "runs" / one / name).read_bytes() for name in FILES}
    provenance = json.loads(files["provenance.json"])
    assert "device" not in provenance
    files["provenance.json"] = json.dumps({**provenance, "device": "NVIDIA H200"}).encode()
    store.discard(one)
    store.write(one, files)
    # With nothing to play nothing is mixed.
    assert sweep(experiment, folder, LocalEngine(1), Silence()) == SweepResult(3, 0, [])
    store.discard(other)
    with pytest.raises(InvalidSetting, match=r"'device' must be .* 'NVIDIA H200', got 'cpu', which rounds"):
        sweep(experiment, folder, LocalEngine(1), Silence())
    assert store.state(other).state == "missing"


def test_a_checkpoint_of_another_processor_is_not_used(tmp_path: Path) -> None:
    spec, folder = small_experiment(episodes=10_000).plan()[1].spec, SweepFolder(tmp_path)
    simulation, spent = prepare(spec, folder)
    simulation.start()
    simulation.advance()
    assert simulation.done < spec.episodes
    save(spec, folder, simulation, spent.until_now(), "NVIDIA H200")
    assert prepare(spec, folder)[1].resumed == 0
    assert prepare(spec, folder, "NVIDIA H200")[1].resumed == 1
    assert json.loads(perform(spec, folder)["provenance.json"])["resumed"] == 0
