"""Violations of the promise over independent runs on inventory, docs/algorithm.md sections 1 and 7.

The promise is about whole runs: with probability >= 1 - delta no episode of a run loses more than eta
compared with its baseline. So the evidence is a binomial over runs; its Clopper-Pearson interval is compared
with delta. Bounds are `kl` with known rewards, certified. A guarantee that never explores, or where nothing
could go wrong, would show nothing. So each row also counts the runs in which actions other than the
baseline's were played, and the control, rule `unlimited` from the same warm-up, counts how often the budget
would have been broken without the shield. Rule `capped` promises only where every true gap of every baseline
played is at most its step bound: that is checked at every (t, s, a) of every episode, and runs in which it
fails do not count.

    python benchmarks/validity.py --runs 1000

Runs are seeded 0, 1, ...; the table goes to stdout, the numbers to benchmarks/results/validity.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

import chary
from chary.agents import CharyUCBVI
from chary.envs import inventory
from chary.simulation import simulate
from chary.statistics import binomial_report

ETA = 0.2
DELTA = 0.1
EPISODES = 200
STEP_BOUND = 0.2
RESULTS = Path(__file__).parent / "results" / "validity.json"


class Row(NamedTuple):
    """One line of the table: a rule and a charge, from a warm-up of this many random episodes."""

    rule: str
    charge: str
    warmup: int


# Gaps of the baselines that 100 random episodes give exceed any step bound of use; after 200 few do.
ROWS = (
    Row("strict", "difference", 100),
    Row("strict", "coupled", 100),
    Row("unlimited", "coupled", 100),
    Row("capped", "difference", 200),
    Row("capped", "coupled", 200),
    Row("unlimited", "coupled", 200),
)


class Outcome(NamedTuple):
    """The outcome of one run; deficits and gaps are the largest of the run."""

    violated: bool
    true_deficit: float
    deficit: float
    deviating_steps: int
    largest_gap: float
    value_failed: bool
    bonus_failed: bool
    charge_failed: bool


class Task(NamedTuple):
    """One run to do."""

    row: Row
    seed: int
    episodes: int


def agent_of(row: Row) -> CharyUCBVI:
    """Return chary with the rule and the charge of a row, and its defaults otherwise."""
    return CharyUCBVI(
        eta=ETA,
        rule=row.rule,
        step_bound=STEP_BOUND if row.rule == "capped" else None,
        charge=row.charge,
        bonus="kl",
        reward="known",
        delta=DELTA,
    )


def play(task: Task) -> Outcome:
    """Play one run and judge it."""
    run = simulate(
        inventory(),
        agent_of(task.row),
        episodes=task.episodes,
        warmup=task.row.warmup,
        seed=task.seed,
        coverage="everywhere" if task.row.rule == "capped" else "played",
    )
    return Outcome(
        violated=bool(run.violations(ETA).any()),
        true_deficit=float(run.true_deficit.max()),
        deficit=float(run.deficit.max()),
        deviating_steps=int(run.deviating_steps.sum()),
        largest_gap=float(run.largest_gap.max()),
        value_failed=bool(run.value_failed.any()),
        bonus_failed=bool(run.bonus_failed.any()),
        charge_failed=bool(run.charge_failed.any()),
    )


def summarise(row: Row, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return one row's numbers; runs of `capped` count only where the gap assumption held in fact."""
    counted = [o for o in outcomes if row.rule != "capped" or o.largest_gap <= STEP_BOUND]
    report = binomial_report(sum(o.violated for o in counted), len(counted), DELTA)
    return {
        **row._asdict(),
        "agent": agent_of(row).options(),
        "runs": len(outcomes),
        "runs_counted": len(counted),
        "violations": report.to_json(),
        "deviating_runs": sum(o.deviating_steps > 0 for o in counted),
        "median_deviating_steps": float(np.median([o.deviating_steps for o in counted])),
        "max_true_deficit": max(o.true_deficit for o in counted),
        "median_true_deficit": float(np.median([o.true_deficit for o in counted])),
        "max_booked_deficit": max(o.deficit for o in counted),
        "largest_gap_looked_at": max(o.largest_gap for o in outcomes),
        "runs_with_value_failure": sum(o.value_failed for o in outcomes),
        "runs_with_bonus_failure": sum(o.bonus_failed for o in outcomes),
        "runs_with_charge_failure": sum(o.charge_failed for o in outcomes),
    }


def play_all(tasks: list[Task], processes: int) -> Iterator[Outcome]:
    """Yield the outcomes in the order of the tasks."""
    if processes == 1:
        yield from map(play, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(play, tasks, chunksize=5)


def measure(
    runs: int, *, episodes: int = EPISODES, processes: int = 1, rows: Iterable[Row] = ROWS
) -> list[dict[str, Any]]:
    """Play `runs` runs of every row and return their summaries."""
    rows = tuple(rows)
    # One stream of tasks, so that one set of processes serves all rows.
    stream = play_all([Task(row, seed, episodes) for row in rows for seed in range(runs)], processes)
    summaries = []
    for row in rows:
        outcomes = []
        for outcome in islice(stream, runs):
            outcomes.append(outcome)
            if len(outcomes) % 50 == 0:
                print(f"{row.rule} {row.charge}: {len(outcomes)} of {runs}", file=sys.stderr)
        summaries.append(summarise(row, outcomes))
    return summaries


def table(summaries: list[dict[str, Any]]) -> str:
    """Return the summaries as plain text."""
    lines = [
        f"{'rule':10} {'charge':11} {'warm-up':>7} {'runs':>5} {'violated':>8} {'95 % interval':>16} "
        f"{'deviating':>9} {'steps':>6} {'max z*':>7} {'ledger':>7}"
    ]
    for row in summaries:
        found = row["violations"]
        lines.append(
            f"{row['rule']:10} {row['charge']:11} {row['warmup']:7} {row['runs_counted']:5} "
            f"{found['failures']:8} {found['low']:7.4f} {found['high']:8.4f} {row['deviating_runs']:9} "
            f"{row['median_deviating_steps']:6.0f} {row['max_true_deficit']:7.4f} "
            f"{row['max_booked_deficit']:7.4f}"
        )
    return "\n".join(lines)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON under a temporary name, then rename."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    partial.replace(path)


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="runs of each row, seeded 0, 1, ...")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file for the numbers")
    parser.add_argument(
        "--publish", action="store_true", help="put the recorded results into README.md, play nothing"
    )
    options = parser.parse_args()
    if options.publish:
        from _jobs import ROOT, fill

        recorded = json.loads(options.out.read_text())
        fill(ROOT / "README.md", "validity", f"```\n{table(recorded['rows'])}\n```")
        return
    # One run compiles, so that the processes find everything in the cache.
    play(Task(ROWS[0], 0, 1))
    began = time.perf_counter()
    summaries = measure(options.runs, processes=options.processes)
    seconds = time.perf_counter() - began
    print(table(summaries))
    settings = {
        "problem": "inventory",
        "eta": ETA,
        "delta": DELTA,
        "episodes": EPISODES,
        "step_bound": STEP_BOUND,
        "seeds": [0, options.runs - 1],
    }
    machine = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "chary": chary.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "processes": options.processes,
    }
    command = f"python benchmarks/validity.py --runs {options.runs}"
    content = {"command": command, "settings": settings, "versions": machine, "seconds": round(seconds, 1)}
    write(options.out, {**content, "rows": summaries})


if __name__ == "__main__":
    main()
