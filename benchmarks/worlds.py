"""Posterior worlds measured: small problems, the honesty of their risk, a clinic, and chains.

python benchmarks/worlds.py [--part small|risk|clinic|chains] [--problem NAME] [--method NAME] [--seeds 10]

Every part has one configuration, the defaults of `CharyUCBVI(bonus="posterior")`, which were chosen on seeds
from 1000 on; the seeds here are 0, 1, ...

- `small`: riverswim, corridor, inventory and a random MDP, after 500 random episodes, after 5, and after a
  log of 500 episodes of an incumbent, 5 % of whose decisions are random; 1,000 episodes, known rewards.
  Worlds with chains on and off, the posterior baseline alone, PSRL and UCBVI (kl). Where rewards depend on
  the successor, another row gives worlds the expected rewards r(s, a) in place of r(s, a, s'), and after
  5 random episodes PSRL and UCBVI, too.
- `risk`: violations per 1,000 episodes at nominal 5 %, 1 % and 0.1 %, after 5 random episodes: inventory, 100
  siblings of it, and 100 MDPs with deterministic rows, whose actions are unrelated. The interval is a cluster
  bootstrap over runs. The row of sepsis is looked up in reproductions/sepsis-worlds.
- `clinic`: 12 states, 3 actions, horizon 6, costs in euros; 2,000 logged episodes of a rule with 15 % noise.
  How much of the gap between rule and optimum the baseline closes by the log alone, and after 3,000 patients.
- `chains`: a toll road, on which what is worth learning lies behind two tolls; one chain at a time, up to
  100, and none, from the first episode on.

Runs are written to benchmarks/results/worlds-PART.json as they end, and tables to docs/worlds-measured.md.
A run that is recorded there is not played again: a part can be stopped, continued, and, with `--problem`,
played piece by piece. `--again` plays all of it, `--redraw` nothing. `--quick` and `--first-seed` record
nothing, unless `--record-as NAME` puts the runs into benchmarks/results/NAME.json and leaves the page alone.

`--flat-shares "A B C"` divides the share of flat rows among their weights 1/2, 0.1 and 0.02: "1 0 0"
is the prior `auto` as it was before there were small weights.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, provenance, record, table
from _worlds_play import LOG, LOGGED, NAMES, PATIENTS, incumbent, play, play_clinic, problem_of

# Of the prototype's table, docs/algorithm.md section 11; the random MDP has a budget of its own.
BUDGETS = {"riverswim": 0.3, "corridor": 0.4, "inventory": 0.1, "random": 0.3}
STARTS = {500: "500 random episodes", 5: "5 random episodes", LOG: f"log of {LOGGED} episodes"}
EPISODES = 1_000
WORLDS: dict[str, Any] = {"bonus": "posterior"}
# Given r(s, a) in place of r(s, a, s').
GIVEN = "expected rewards"
EXPECTED = f"worlds, {GIVEN}"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "worlds": ("chary", WORLDS),
    "worlds, chains off": ("chary", {**WORLDS, "chains": False}),
    EXPECTED: ("chary", WORLDS),
    "posterior baseline alone": ("chary", {**WORLDS, "rule": "closed"}),
    "PSRL": ("psrl", {}),
    "UCBVI, kl": ("ucbvi", {"bonus": "kl"}),
    f"PSRL, {GIVEN}": ("psrl", {}),
    f"UCBVI, kl, {GIVEN}": ("ucbvi", {"bonus": "kl"}),
}
# Played after 5 random episodes alone, where the information matters most.
FEW_STARTS = (f"PSRL, {GIVEN}", f"UCBVI, kl, {GIVEN}")
RISKS = (0.05, 0.01, 0.001)
SIBLINGS, SHORT = 100, 150
TOLL_ETA = 0.25
ALONE = "worlds, one chain at a time"
TOLLED: dict[str, tuple[str, dict[str, Any]]] = {
    ALONE: ("chary", {**WORLDS, "pool": 1}),
    **{
        label: VARIANTS[label]
        for label in ("worlds", "worlds, chains off", "posterior baseline alone", "PSRL")
    },
}
# With "prior", what was played before a change of the prior is not taken for what it is now.
SETTINGS = {"budgets": BUDGETS, "worlds": WORLDS, "prior": "flat 1/2, 0.1, 0.02; patience 100"}

Job = dict[str, Any]
Found = dict[str, Any]


def job(label: str, problem: str, agent: str, settings: dict[str, Any], **told: Any) -> dict[str, Any]:
    """Return a run as JSON; rewards are known."""
    return {
        "label": label,
        "problem": problem,
        "agent": agent,
        "settings": {"reward": "known", **settings},
        "episodes": EPISODES,
        **told,
    }


def per_thousand(runs: list[dict[str, Any]]) -> str:
    """Return the violations per 1,000 episodes, with the interval over runs."""
    from chary.statistics import violation_rate

    found = violation_rate([r["violations"] for r in runs], [r["episodes"] for r in runs])
    low, high = found.interval
    return f"{1000 * found.rate:.2f} [{1000 * low:.2f}, {1000 * high:.2f}]"


def spread(runs: list[dict[str, Any]], name: str, digits: int = 0) -> str:
    """Return the mean over runs, and the least and the most."""
    values = [r[name] for r in runs]
    return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def small(seeds: range, quick: bool) -> list[Job]:
    """Return the runs on the small problems."""
    return [
        job(
            label,
            problem,
            agent,
            {**settings, "eta": BUDGETS[problem]},
            warmup=start,
            seed=seed,
            expected=label.endswith(GIVEN),
        )
        for problem in BUDGETS
        for start in STARTS
        for label, (agent, settings) in VARIANTS.items()
        for seed in seeds
        # Rewards of the other problems do not depend on the successor.
        if not label.endswith(GIVEN) or problem in ("corridor", "inventory")
        if label not in FEW_STARTS or start == 5
        if not quick or (problem, start) in (("riverswim", 5), ("inventory", LOG))
    ]


def small_table(results: list[Found]) -> str:
    """Return a row per problem, start and method; the incumbent of a log, played on, needs no run."""
    rows = []
    for problem, start in itertools.product(BUDGETS, STARTS):
        here = [r for r in results if (r["problem"], r["warmup"]) == (problem, start)]
        for label in VARIANTS:
            runs = [r for r in here if r["label"] == label]
            if runs:
                deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
                cells = [label, spread(runs, "regret"), per_thousand(runs), deviating]
                rows.append([problem, STARTS[start], *cells])
        if here and start == LOG:
            rows.append([problem, STARTS[start], "the incumbent", f"{incumbent_regret(problem):.0f}", "", ""])
    header = ["problem", "before", "method", "regret, mean (least to most)"]
    return table([*header, "violations per 1,000", "deviating steps, %"], rows)


def incumbent_regret(problem: str) -> float:
    """Return the expected regret of a small problem's incumbent over all episodes."""
    from chary.audit import Truth

    truth = Truth(problem_of({"problem": problem}))
    own = truth.evaluate(incumbent(truth.mdp)).value
    return EPISODES * truth.mdp.setting.scale.span * truth.value_of_start(truth.optimal_value - own)


def risk(seeds: range, quick: bool) -> list[Job]:
    """Return the runs that measure the risk against the nominal one."""
    jobs = []
    for nominal in RISKS:
        settings = {**WORLDS, "risk": nominal}
        told = {"warmup": 5, "risk": nominal}
        inventory = {**settings, "eta": BUDGETS["inventory"]}
        for seed in seeds:
            jobs.append(job("inventory", "inventory", "chary", inventory, seed=seed, **told))
        for i in range(4 if quick else SIBLINGS):
            one = {**told, "seed": i, "mdp_seed": i, "episodes": SHORT}
            jobs.append(job("siblings of inventory", "siblings", "chary", inventory, **one))
            other = {**settings, "eta": 0.3}
            jobs.append(job("deterministic, unrelated", "deterministic", "chary", other, **one))
    return jobs


def risk_table(results: list[dict[str, Any]]) -> str:
    """Return a row per problem, with a column per nominal risk."""
    rows = []
    for label in dict.fromkeys(r["label"] for r in results):
        runs = {
            nominal: [r for r in results if (r["label"], r["risk"]) == (label, nominal)] for nominal in RISKS
        }
        worst = max(r["worst"] for each in runs.values() for r in each)
        deviating = " / ".join(
            f"{100 * np.mean([r['deviating'] for r in each]):.2f}" for each in runs.values()
        )
        rows.append([label, *(per_thousand(each) for each in runs.values()), deviating, f"{worst:.2f}"])
    rows.append(sepsis_row())
    header = ["violations per 1,000 [95 % interval over runs]"]
    header += [f"nominal {1000 * nominal:g}" for nominal in RISKS]
    return table([*header, "deviating steps, %", "largest z*"], rows)


def sepsis_row() -> list[str]:
    """Return the row of ICU-Sepsis from the kept tables; what has not been played yet is a dash."""
    kept = ROOT / "reproductions" / "sepsis-worlds" / "tables"

    def rows(name: str) -> dict[str, dict[str, str]]:
        with (kept / f"{name}.csv").open(newline="") as file:
            return {row["algorithm"]: row for row in csv.DictReader(file) if row["study"] == "main"}

    rates, most = rows("frontier"), rows("summary")
    found = {nominal: f"worlds, risk {100 * nominal:g} %" for nominal in RISKS}
    there = [label for label in found.values() if label in rates]

    def rate(row: dict[str, str]) -> str:
        middle, low, high = (
            float(row[f"violations_per_1000{end}"] or "nan") for end in ("", "_low", "_high")
        )
        return f"{middle:.2f} [{low:.2f}, {high:.2f}]"

    deviating = (
        f"{100 * float(rates[label]['deviating_share']):.2f}" if label in there else "-"
        for label in found.values()
    )
    return [
        f"ICU-Sepsis ({max((int(rates[label]['seeds']) for label in there), default=0)} runs)",
        *(rate(rates[label]) if label in there else "-" for label in found.values()),
        " / ".join(deviating),
        f"{max((float(most[label]['true_deficit_max']) for label in there), default=0.0):.2f}",
    ]


def clinic(seeds: range, quick: bool) -> list[Job]:
    """Return the runs of the clinic."""
    patients = 100 if quick else PATIENTS
    return [
        {"label": reward, "problem": "clinic", "seed": seed, "episodes": patients}
        for reward in ("known", "estimated")
        for seed in seeds
    ]


def clinic_table(results: list[dict[str, Any]]) -> str:
    """Return a row per knowledge of the rewards."""
    rows = []
    for label in ("known", "estimated"):
        runs = [
            {**r, "log": 100 * r["closed_by_log"], "late": 100 * r["closed_live"]}
            for r in results
            if r["label"] == label
        ]
        over = 100 * sum(r["violations"] for r in runs) / sum(r["episodes"] for r in runs)
        deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
        ends = [f"{np.mean([r[name] for r in runs]):,.0f}" for name in ("rule", "optimum")]
        shares = [spread(runs, "log", 1), spread(runs, "late", 1)]
        rows.append([label, *ends, *shares, f"{over:.3f}", deviating])
    header = ["costs", "rule, euros", "optimum, euros", "gap closed by the log, %", "gap closed live, %"]
    return table([*header, "patients over budget, %", "deviating steps, %"], rows)


def chains(seeds: range, quick: bool) -> list[Job]:
    """Return the runs of the toll road with chains and without."""
    return [
        job(
            label,
            "toll-road",
            agent,
            {**settings, "eta": TOLL_ETA},
            warmup=0,
            seed=seed,
            episodes=200 if quick else EPISODES,
        )
        for label, (agent, settings) in TOLLED.items()
        for seed in seeds
    ]


def chains_table(results: list[dict[str, Any]]) -> str:
    """Return a row per method."""
    rows = []
    for label in dict.fromkeys(r["label"] for r in results):
        runs = [r for r in results if r["label"] == label]
        deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
        rows.append(
            [label, spread(runs, "regret"), spread(runs, "regret_late", 1), per_thousand(runs), deviating]
        )
    header = ["toll road", "regret", "of which in the last fifth", "violations per 1,000"]
    return f"{table([*header, 'deviating steps, %'], rows)}\n\n{paired(results)}"


def paired(results: list[Found]) -> str:
    """Return sentences on what chains save, seed by seed."""
    from chary.statistics import bootstrap_mean

    regret: dict[str, dict[int, float]] = {}
    for r in results:
        regret.setdefault(r["label"], {})[r["seed"]] = r["regret"]
    off, said = regret.get("worlds, chains off", {}), []
    for label, pool in ((ALONE, "one chain at a time"), ("worlds", "up to 100 chains")):
        on = regret.get(label, {})
        saved = [off[seed] - on[seed] for seed in sorted(on.keys() & off.keys())]
        if len(saved) > 1:
            found = bootstrap_mean(saved)
            said.append(
                f"With the same seed, regret is {np.mean(saved):,.0f} larger without chains than with "
                f"{pool}, in the mean of {len(saved)} runs (95 % interval {found.low:,.0f} to "
                f"{found.high:,.0f})."
            )
    return " ".join(said)


Part = tuple[Callable[[range, bool], list[Job]], Callable[[list[Found]], str], Callable[[str], Found]]
PARTS: dict[str, Part] = {
    "small": (small, small_table, play),
    "risk": (risk, risk_table, play),
    "clinic": (clinic, clinic_table, play_clinic),
    "chains": (chains, chains_table, play),
}


def name_of(told: Found) -> tuple[Any, ...]:
    """Return what tells a run, or its job, from the others of its part."""
    return tuple(told.get(name) for name in NAMES)


def kept_runs(path: Path) -> dict[tuple[Any, ...], Found]:
    """Return the runs recorded with the present settings, by name."""
    if not path.is_file():
        return {}
    recorded = json.loads(path.read_text())
    same = {name: recorded["settings"].get(name) for name in SETTINGS} == SETTINGS
    return {name_of(run): run for run in recorded["runs"]} if same else {}


def main() -> None:
    """Measure, print and record the parts asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="repeat it for several; default all")
    parser.add_argument("--problem", action="append", help="play the runs of this problem alone")
    parser.add_argument("--method", action="append", help="play the runs of this method alone")
    parser.add_argument("--start", choices=[str(start) for start in STARTS], action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--flat-shares", metavar="A B C", help="of the weights of rows of kind flat")
    parser.add_argument("--workers", type=int, help="processes at once; default one per core")
    parser.add_argument("--again", action="store_true", help="play recorded runs again")
    parser.add_argument("--quick", action="store_true", help="few runs, to check that it runs")
    parser.add_argument("--redraw", action="store_true", help="draw tables of recorded runs, play nothing")
    parser.add_argument("--record-as", metavar="NAME", help="record there, and leave the page alone")
    told = parser.parse_args()
    seeds = range(told.first_seed, told.first_seed + (2 if told.quick else told.seeds))
    trial = told.quick or told.first_seed != 0 or told.flat_shares is not None
    wanted = {"problem": told.problem, "label": told.method, "warmup": told.start}
    for part in told.part or PARTS:
        jobs_of, table_of, worker = PARTS[part]
        name = told.record_as or (None if trial else f"worlds-{part}")
        done = kept_runs(RESULTS / f"{name}.json") if name else {}
        asked = [
            {**each, "flat_shares": told.flat_shares}
            for each in jobs_of(seeds, told.quick)
            if all(values is None or str(each.get(key)) in values for key, values in wanted.items())
        ]
        missing = [] if told.redraw else [each for each in asked if told.again or name_of(each) not in done]
        # Piece by piece: whatever stops this loses one of them at most.
        for _, piece in itertools.groupby(missing, key=lambda each: (each["problem"], each.get("warmup"))):
            for run in play_all(list(piece), worker=worker, workers=told.workers):
                done[name_of(run)] = {**run, "commit": provenance()["commit"]}
            if name:
                settings = {**SETTINGS, "seeds": told.seeds, "first_seed": told.first_seed}
                record(name, {"settings": settings, "runs": list(done.values())})
        runs = [run for run in done.values() if run.get("flat_shares") == told.flat_shares]
        text = table_of(runs)
        print(f"\n{text}", flush=True)
        print(f"{sum(run.get('cpu_seconds', 0.0) for run in runs):,.0f} s of processor time")
        if name and not told.record_as:
            fill(ROOT / "docs" / "worlds-measured.md", f"worlds-{part}", text)


if __name__ == "__main__":
    main()
