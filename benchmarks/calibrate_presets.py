"""Calibrate the bonus scales of presets and experiments, at the lengths and budgets that they play.

python benchmarks/calibrate_presets.py --minutes 9 --workers 16
python benchmarks/calibrate_presets.py --write

The first finds or checks scales on siblings and keeps every trial in benchmarks/results/calibrations.json;
what is in that file already is not played again, so that it can be called until nothing is left. The second
writes the scales and the records of what passed to src/chary/presets and experiments. An experiment has one
scale for all budgets: the smallest that passes for one of them, raised until all pass with rule strict.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _jobs import RESULTS, ROOT, provenance
from chary._workers import usable_cores, worker_pool
from chary.agents import CharyUCBVI
from chary.calibrate import calibrate
from chary.envs import make
from chary.model.calibration import CalibrationRecord
from chary.presets import NAMES, preset
from chary.simulation import simulate

KEPT = RESULTS / "calibrations.json"
NOTE = "python benchmarks/calibrate_presets.py, recorded in benchmarks/results/calibrations.json"
PAPER: dict[str, Any] = {"rule": "paper", "charge": "paper", "pool": 1, "after_refusal": "close"}


# If the smallest scale fails for another budget of an experiment, it is raised by this, at most so often.
RAISE, RAISES = math.sqrt(2), 3


@dataclass(frozen=True, kw_only=True)
class Job:
    """One calibration: a search that starts with `scale`, or a check of that scale."""

    name: str
    problem: str
    episodes: int
    warmup: int
    options: dict[str, Any]
    scale: float
    check: bool = False
    precision: float = 1.2


def sepsis() -> Job:
    """Return the search for the experiment on sepsis; a trial that passes takes 29 runs of 10 seconds."""
    return Job(
        name="sepsis 50000",
        problem="sepsis",
        episodes=50000,
        warmup=500,
        options={"bonus": "hoeffding", "eta": 0.1},
        scale=0.002,
        precision=1.5,
    )


def inventory() -> Job:
    """Return the search for the experiment on inventory."""
    return Job(
        name="inventory 50000",
        problem="inventory",
        episodes=50000,
        warmup=1500,
        options={"bonus": "hoeffding", "eta": 0.4, "reward": "known"},
        scale=0.001,
    )


def usual(problem: str) -> Job:
    """Return the search for a preset."""
    one = preset(problem)
    one = one.under("hoeffding")
    options = {"bonus": "hoeffding", "eta": one.eta, "reward": one.reward, "delta": one.delta}
    return Job(
        name=f"{problem} preset",
        problem=problem,
        episodes=one.episodes,
        warmup=one.warmup,
        options=options,
        scale=0.002,
    )


def checked(job: Job, scale: float, label: str = "", **options: Any) -> Job:
    """Return the check of a scale with other options."""
    changed = {**job.options, **options}
    name = f"{job.name}, {label or changed.get('rule', 'strict')}, eta {changed['eta']:g}, scale {scale:.4g}"
    return replace(job, name=name, options=changed, scale=scale, check=True)


def variants(job: Job, scale: float, etas: Iterable[float]) -> Iterator[Job]:
    """Yield checks of the other two rules, each with the budgets given."""
    budgets = tuple(etas)
    for eta in budgets:
        yield checked(job, scale, eta=eta, rule="capped", step_bound=0.5 * eta)
    for eta in budgets:
        yield checked(job, scale, eta=eta, **PAPER)


class Calibrations:
    """The file of results, written after every job, and the processes and the time to add to it."""

    def __init__(
        self, path: Path, pool: Executor | None = None, until: float = 0.0, shorter: int = 1
    ) -> None:
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.results: dict[str, Any] = kept.get("results", {})
        self.scales: dict[str, float] = kept.get("scales", {})
        self._path, self._pool, self._until, self._shorter = path, pool, until, shorter
        self._lock = threading.Lock()

    def play(self, job: Job) -> float | None:
        """Play one job in the time that is left, keep its result, and return the scale that passed."""
        left = (self._until - time.monotonic()) / 60
        kept = self.results.get(job.name)
        if kept is not None and all(trial["verdict"] != "unfinished" for trial in kept["trials"]):
            return None if kept["scale"] is None else float(kept["scale"])
        if left <= 0:
            print(f"{job.name}: no time left", flush=True)
            return None
        began = time.monotonic()
        found = calibrate(
            job.problem,
            # Presets and experiments with these scales let chains wait for ever.
            CharyUCBVI(**job.options, bonus_scale=job.scale, patience=None),
            episodes=max(1, job.episodes // self._shorter),
            warmup=job.warmup,
            check=job.check,
            precision=job.precision,
            minutes=left,
            executor=self._pool,
        )
        print(f"{job.name}: {found.describe()}", flush=True)
        with self._lock:
            self.results[job.name] = {"seconds": round(time.monotonic() - began, 1), **found.to_json()}
            self._save()
        return found.scale

    def play_experiment(self, job: Job, etas: Iterable[float]) -> float | None:
        """Find and keep a scale that passes for all budgets, None if there is none."""
        scale = self.play(job)
        for raised in range(RAISES + 1):
            if scale is None:
                break
            tried = scale * RAISE**raised
            others = [eta for eta in etas if eta != job.options["eta"] or raised]
            # All stops at the first that fails.
            if all(self.play(checked(job, tried, eta=eta)) is not None for eta in others):
                with self._lock:
                    self.scales[job.problem] = tried
                    self._save()
                return tried
        return None

    def _save(self) -> None:
        kept = {"provenance": provenance(), "scales": self.scales, "results": self.results}
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(kept, indent=1) + "\n")
        draft.replace(self._path)


def play_sepsis(kept: Calibrations) -> None:
    """Calibrate the experiment on sepsis."""
    job, etas = sepsis(), (0.1, 0.078, 0.119, 0.09)
    if (scale := kept.play_experiment(job, etas)) is None:
        return
    for each in variants(job, scale, etas[:1]):
        kept.play(each)
    for each in variants(job, scale, etas[1:]):
        kept.play(each)
    for eta in etas:
        kept.play(checked(job, 4 * scale, eta=eta))
    kept.play(checked(job, scale, "strict, recorded prior", prior="recorded"))


def play_inventory(kept: Calibrations) -> None:
    """Calibrate the experiment on inventory."""
    job, etas = inventory(), (0.4, 0.01, 0.8, 0.02, 0.1, 0.05, 0.2)
    if (scale := kept.play_experiment(job, etas)) is not None:
        for each in variants(job, scale, etas):
            kept.play(each)


def play_presets(kept: Calibrations) -> None:
    """Calibrate the presets."""
    for problem in NAMES:
        job = usual(problem)
        if (scale := kept.play(job)) is not None:
            for each in variants(job, scale, [job.options["eta"]]):
                kept.play(each)


def write(kept: Calibrations) -> None:
    """Write what passed to presets and experiments."""
    for name in NAMES:
        records = [
            CalibrationRecord.from_plain(result["calibration"])
            for job, result in kept.results.items()
            if result["calibration"] is not None and result["configuration"]["problem"] == name
        ]
        path = ROOT / "src" / "chary" / "presets" / f"{name}.toml"
        text = re.split(r"\n\[scale\]|\n\[\[calibration\]\]", path.read_text())[0].rstrip("\n") + "\n"
        old = preset(name).scale.get("hoeffding")
        new = kept.results.get(f"{name} preset", {}).get("scale") or old
        if new is not None:
            text += f"\n[scale]\n# {NOTE}\nhoeffding = {new!r}\n"
        path.write_text(text + "".join(f"\n[[calibration]]\n{_table(record)}" for record in records))
    for path in sorted((ROOT / "experiments").glob("*.toml")):
        new = kept.scales.get(path.stem.removesuffix("-selection"))
        if new is not None:
            # The scale of all runs comes first; those of studies are its multiples, or 1.
            lines = re.sub(
                r"(?m)^# (chary calibrate|recorded in|python benchmarks/calibrate).*\n", "", path.read_text()
            )
            path.write_text(
                re.sub(r"(?m)^bonus_scale = .*$", f"# {NOTE}\nbonus_scale = {new!r}", lines, count=1)
            )


def _table(record: CalibrationRecord) -> str:
    """Return a record as the lines of a TOML table, without options and a prior where there are none."""
    plain = record.to_plain()
    left_out = {"options": {}, "prior": "none", "seed": 0}
    return "".join(f"{key} = {_value(value)}\n" for key, value in plain.items() if left_out.get(key) != value)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + "}"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def main() -> None:
    """Run all calibrations that are missing, or write what passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop (default: 60)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes (default: all cores)")
    parser.add_argument("--shorter", type=int, default=1, help="divide episodes by this, to try it out")
    parser.add_argument("--out", type=Path, default=KEPT, help="file of results")
    parser.add_argument("--write", action="store_true", help="write presets and experiments, play nothing")
    given = parser.parse_args()
    if given.write:
        write(Calibrations(given.out))
        return
    until = time.monotonic() + 60 * given.minutes
    # Compiled once, and not by every process at the same time.
    simulate(make("riverswim"), CharyUCBVI(eta=0.3, bonus="hoeffding"), episodes=2, warmup=2)
    with worker_pool(given.workers) as pool, ThreadPoolExecutor(3) as threads:
        kept = Calibrations(given.out, pool, until, given.shorter)
        # Side by side: the processes do not wait for the last run of a trial.
        for chain in [threads.submit(play, kept) for play in (play_sepsis, play_inventory, play_presets)]:
            chain.result()


if __name__ == "__main__":
    main()
