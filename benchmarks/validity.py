"""Violations of the promise over independent runs on inventory, docs/algorithm.md sections 1 and 7.

The promise is about whole runs: with probability >= 1 - delta no episode of a run has an expected loss above
eta, compared with its baseline. So the evidence is a binomial over runs; its Clopper-Pearson interval is
compared with delta. Bounds are `kl` with known rewards, certified. A guarantee that never explores, or where
nothing could go wrong, would show nothing. So each row also counts the runs in which actions other than the
baseline's were played, and the control, rule `unlimited` from the same warm-up, counts how often the budget
would have been broken without the shield. Rule `capped` promises only where every true gap of every baseline
played is at most its step bound: that is checked at every (t, s, a) of every episode, and runs in which it
fails do not count.

Rows with many episodes open play them through the step API, with outcomes that come late or never, section
10: an outcome with a reward above the median of the warm-up is reported ten rounds later than the others, and
8 % of those, 5 % of all, are lost. An episode whose remaining outcomes are lost is abandoned.

    python benchmarks/validity.py --runs 1000 --workers 16

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
from chary import TabularAgent, Transition
from chary._workers import usable_cores
from chary.agents import CharyUCBVI
from chary.envs import inventory
from chary.mdp import FiniteMDP
from chary.reference.planner import Solution, exact
from chary.simulation import simulate
from chary.statistics import binomial_report

ETA = 0.2
DELTA = 0.1
EPISODES = 200
STEP_BOUND = 0.2
# Rows with many episodes open: shorter seasons, rounds in which every open episode takes a step, the delay of
# good outcomes in rounds, and the share of them that is lost, 5 % of all.
HORIZON_OPEN = 5
ROUNDS = 60
DELAY = 10
LOST = 0.08
RESULTS = Path(__file__).parent / "results" / "validity.json"
# Rows that were played apart are recorded apart.
RECORDED = (RESULTS, RESULTS.with_name("validity-open.json"))


class Row(NamedTuple):
    """One line of the table: a rule and a charge, from a warm-up of this many random episodes.

    `beds` is the number of episodes that are being played at the same time.
    """

    rule: str
    charge: str
    warmup: int
    beds: int = 1


# Gaps of the baselines that 100 random episodes give exceed any step bound of use; after 200 few do.
ROWS = (
    Row("strict", "difference", 100),
    Row("strict", "coupled", 100),
    Row("unlimited", "coupled", 100),
    Row("capped", "difference", 200),
    Row("capped", "coupled", 200),
    Row("unlimited", "coupled", 200),
    Row("strict", "difference", 500, beds=200),
    Row("strict", "coupled", 500, beds=200),
    Row("unlimited", "coupled", 500, beds=200),
)


class Outcome(NamedTuple):
    """The outcome of one run; deficits and gaps are the largest of the run."""

    violated: bool
    true_deficit: float
    deficit: float
    deviating_steps: int
    largest_gap: float = 0.0
    value_failed: bool = False
    bonus_failed: bool = False
    charge_failed: bool = False
    episodes: int = 0
    lost: int = 0


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
        patience=None,
    )


def play(task: Task) -> Outcome:
    """Play one run and judge it."""
    if task.row.beds > 1:
        return Ward(task).play(ROUNDS if task.episodes == EPISODES else task.episodes // 8)
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
        episodes=task.episodes,
    )


class Ward:
    """Many episodes at once whose outcomes come late, depending on the outcome, or never."""

    def __init__(self, task: Task) -> None:
        self.mdp: FiniteMDP = inventory(horizon=HORIZON_OPEN)
        self.rng = np.random.default_rng([task.seed, 1])
        self.beds = task.row.beds
        setting = self.mdp.told("known")
        generator = np.random.default_rng([task.seed, 2])
        self.agent = TabularAgent(agent_of(task.row), setting, generator=generator, losses=True)
        log = [self.random_episode() for _ in range(task.row.warmup)]
        self.agent.warm_start(log)
        self.median = float(np.median([step.reward for steps in log for step in steps]))
        self.begun = self.lost = self.deviating = 0
        self.deficit = 0.0
        # By episode: the step and the state of those being played, the true deficit, outcomes on the way.
        self.playing: dict[int, tuple[int, int]] = {}
        self.true_deficit: dict[int, float] = {}
        self.on_the_way: dict[int, int] = {}
        self.due: dict[int, list[tuple[int, int, Transition]]] = {}
        self.solutions: dict[bytes, Solution] = {}

    def move(self, s: int, a: int) -> Transition:
        """Return what follows."""
        successors, chances, rewards = self.mdp.row(s, a)
        i = int(self.rng.choice(len(successors), p=chances))
        scale = self.mdp.scale
        reward = scale.low + scale.span * float(rewards[i])
        return Transition(s, a, reward, int(successors[i]), terminated=False)

    def random_episode(self) -> list[Transition]:
        """Return an episode of random actions."""
        s, steps = int(self.rng.choice(self.mdp.n_states, p=self.mdp.start)), []
        for _ in range(self.mdp.horizon):
            steps.append(self.move(s, int(self.rng.choice(np.flatnonzero(self.mdp.setting.allowed[s])))))
            s = steps[-1].next_state
        return steps

    def gap(self, episode: int, t: int, s: int, a: int) -> float:
        """Return the true gap of an action compared with the baseline of the episode's plan."""
        baseline = self.agent.plan_of(episode).arrays.baseline[:, : self.mdp.n_states]
        key = baseline.tobytes()
        if key not in self.solutions:
            self.solutions[key] = exact(self.mdp, baseline)
        truth = self.solutions[key]
        return float(truth.V[t, s] - truth.Q[t, self.mdp.setting.pair_index[s, a]])

    def play(self, rounds: int) -> Outcome:
        """Play so many rounds, and judge every episode that was begun."""
        for now in range(rounds):
            while len(self.playing) < self.beds:
                s = int(self.rng.choice(self.mdp.n_states, p=self.mdp.start))
                self.agent.begin(self.begun, s)
                self.playing[self.begun] = (0, s)
                self.true_deficit[self.begun], self.on_the_way[self.begun] = 0.0, 0
                self.begun += 1
            self.step(now)
            for episode, t, outcome in self.due.pop(now, ()):
                self.agent.observe(episode, outcome, t=t)
                self.on_the_way[episode] -= 1
            for episode in self.agent.outstanding:
                if episode not in self.playing and not self.on_the_way[int(episode)]:
                    self.agent.abandon(episode)
        worst = max(self.true_deficit.values())
        return Outcome(
            violated=worst > ETA + 1e-12,
            true_deficit=worst,
            deficit=self.deficit,
            deviating_steps=self.deviating,
            episodes=self.begun,
            lost=self.lost,
        )

    def step(self, now: int) -> None:
        """Decide and move in every bed."""
        names = list(self.playing)
        stages, states = zip(*self.playing.values(), strict=True)
        decisions = self.agent.act_many(names, stages, states)
        for episode, t, s, decision in zip(names, stages, states, decisions, strict=True):
            a = decision.action
            self.deficit = max(self.deficit, decision.deficit)
            if a != self.agent.plan_of(episode).baseline(t, s):
                self.deviating += 1
                self.true_deficit[episode] += max(self.gap(episode, t, s, a), 0.0)
            outcome = self.move(s, a)
            good = outcome.reward > self.median
            if good and self.rng.random() < LOST:
                self.lost += 1
            else:
                self.due.setdefault(now + DELAY * good, []).append((episode, t, outcome))
                self.on_the_way[episode] += 1
            self.playing[episode] = (t + 1, outcome.next_state)
            if t + 1 == self.mdp.horizon:
                self.agent.finish(episode)
                del self.playing[episode]


def summarise(row: Row, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return one row's numbers; runs of `capped` count only where the gap assumption held in fact."""
    counted = [o for o in outcomes if row.rule != "capped" or o.largest_gap <= STEP_BOUND]
    report = binomial_report(sum(o.violated for o in counted), len(counted), DELTA)
    return {
        **row._asdict(),
        "agent": agent_of(row).options(),
        "runs": len(outcomes),
        "runs_counted": len(counted),
        "episodes": sum(o.episodes for o in outcomes),
        "lost_outcomes": sum(o.lost for o in outcomes),
        "violations": report.to_json(),
        "deviating_runs": sum(o.deviating_steps > 0 for o in counted),
        "deviating_share": sum(o.deviating_steps > 0 for o in counted) / max(1, len(counted)),
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
        f"{'rule':10} {'charge':11} {'open':>4} {'warm-up':>7} {'runs':>5} {'violated':>8} "
        f"{'95 % interval':>16} {'deviating':>9} {'steps':>6} {'max z*':>7} {'ledger':>7}"
    ]
    for row in summaries:
        found = row["violations"]
        lines.append(
            f"{row['rule']:10} {row['charge']:11} {row.get('beds', 1):4} {row['warmup']:7} "
            f"{row['runs_counted']:5} {found['failures']:8} {found['low']:7.4f} {found['high']:8.4f} "
            f"{row['deviating_runs']:9} {row['median_deviating_steps']:6.0f} {row['max_true_deficit']:7.4f} "
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
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes; all cores by default")
    parser.add_argument("--row", type=int, action="append", help="a row by number, from 0; all by default")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file for the numbers")
    parser.add_argument(
        "--publish", action="store_true", help="put the recorded results into README.md, play nothing"
    )
    options = parser.parse_args()
    if options.publish:
        from _jobs import ROOT, fill

        rows = [row for path in RECORDED for row in json.loads(path.read_text())["rows"]]
        fill(ROOT / "README.md", "validity", f"```\n{table(rows)}\n```")
        return
    rows = [ROWS[i] for i in options.row] if options.row else ROWS
    # One run of each row compiles, so that the processes find everything in the cache.
    for row in rows:
        play(Task(row, 0, 8))
    began = time.perf_counter()
    summaries = measure(options.runs, processes=options.workers, rows=rows)
    seconds = time.perf_counter() - began
    print(table(summaries))
    settings = {
        "problem": "inventory",
        "eta": ETA,
        "delta": DELTA,
        "episodes": EPISODES,
        "step_bound": STEP_BOUND,
        "many_open": {"horizon": HORIZON_OPEN, "rounds": ROUNDS, "delay": DELAY, "lost": LOST},
        "seeds": [0, options.runs - 1],
    }
    machine = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "chary": chary.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "workers": options.workers,
    }
    command = f"python benchmarks/validity.py {' '.join(sys.argv[1:])}"
    content = {"command": command, "settings": settings, "versions": machine, "seconds": round(seconds, 1)}
    write(options.out, {**content, "rows": summaries})


if __name__ == "__main__":
    main()
