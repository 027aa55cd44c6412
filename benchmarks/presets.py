"""What `chary run PROBLEM` gives with its preset: chary, its baseline alone and UCBVI, on ten seeds.

python benchmarks/presets.py [--problem riverswim] [--seeds 10] [--redraw]

Seeds are 0, 1, ...; the presets were chosen on seeds from 1000 on. A run that benchmarks/results/presets.json
has with the same options and worlds is not played again, so that problems and seeds can be added one at a
time. Writes that file and the table of docs/presets.md.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, provenance, record, table
from chary.presets import NAMES, preset

NAME = "presets"
PLAYERS = ("chary", "baseline", "ucbvi")
# What posterior worlds are now. Runs of earlier ones are played again, and marked in the table until then.
WORLDS = "prior auto with flat weights 1/2, 0.1 and 0.02; planned again as the data after "
WORLDS += "the log grows; a tail fitted to the deficits where a vote alone cannot tell the risk"


def play(job: str) -> dict[str, Any]:
    """Play one run of a preset and its references, described in JSON, as `chary run` does."""
    import chary
    from chary.simulation.references import references

    told = json.loads(job)
    usual, mdp = preset(told["problem"]), chary.envs.make(told["problem"])
    spec = chary.CharyUCBVI(**usual.of_agent())
    agents = {"chary": spec, **references(spec, usual.bounds, usual.bonus_scale(usual.bounds))}
    found: dict[str, Any] = {"seed": told["seed"]}
    for name, agent in agents.items():
        run = chary.simulate(mdp, agent, episodes=usual.episodes, warmup=usual.warmup, seed=told["seed"])
        found[name] = {
            "regret": float(run.regret.sum()),
            "violations": int(run.violations(usual.eta).sum()),
            "deviating": float(run.deviating_steps.sum() / run.length.sum()),
            "standing": run.standing.label,
            "seconds": run.seconds,
        }
    return found


def settings_of(problem: str) -> dict[str, Any]:
    """Return what the preset of a problem plays: recorded runs of another one are played again."""
    usual = preset(problem)
    return {"episodes": usual.episodes, "warmup": usual.warmup, "bounds": usual.bounds, **usual.of_agent()}


def kept() -> dict[str, Any]:
    """Return the recorded runs by problem, those of the presets of today."""
    path = RESULTS / f"{NAME}.json"
    problems = json.loads(path.read_text())["problems"] if path.exists() else {}
    return {name: each for name, each in problems.items() if each["settings"] == settings_of(name)}


def spread(values: list[float]) -> str:
    """Return the mean over seeds, and the least and the most."""
    digits = 0 if np.mean(values) >= 100 else 1
    return f"{np.mean(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def rows_of(problems: dict[str, Any]) -> list[list[str]]:
    """Return a row per problem with recorded runs."""
    rows = []
    for name in NAMES:
        if name not in problems:
            continue
        told, runs = problems[name]["settings"], problems[name]["runs"]
        episodes = told["episodes"] * len(runs)
        regrets = {player: [run[player]["regret"] for run in runs] for player in PLAYERS}
        broken = {player: sum(run[player]["violations"] for run in runs) for player in PLAYERS}
        ahead = sum(a < b for a, b in zip(regrets["chary"], regrets["baseline"], strict=True))
        rows.append(
            [
                name if problems[name].get("worlds") == WORLDS else f"{name} †",
                f"{told['episodes']:,} after {told['warmup']:,}, eta {told['eta']:g}",
                *(spread(regrets[player]) for player in PLAYERS),
                f"{ahead} of {len(runs)}",
                f"{broken['chary']:,} of {episodes:,}",
                f"{broken['ucbvi']:,}",
                f"{100 * np.mean([run['chary']['deviating'] for run in runs]):.2f}",
                runs[0]["chary"]["standing"],
            ]
        )
    return rows


def main() -> None:
    """Play what is missing of some problems and write the table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", action="append", choices=NAMES, help="by default all of them")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--redraw", action="store_true", help="write the table again, play nothing")
    told = parser.parse_args()
    for problem in [] if told.redraw else told.problem or NAMES:
        before = kept().get(problem, {})
        mine = before.get("runs", []) if before.get("worlds") == WORLDS else []
        seeds = [seed for seed in range(told.seeds) if seed not in {run["seed"] for run in mine}]
        if not seeds:
            continue
        played = play_all([{"problem": problem, "seed": seed} for seed in seeds], worker=play)
        runs = sorted([*mine, *played], key=lambda run: int(run["seed"]))
        # Read again: another problem may have been played meanwhile.
        problems = kept()
        of_all = {"settings": settings_of(problem), "worlds": WORLDS, "provenance": provenance()}
        problems[problem] = {**of_all, "runs": runs}
        record(NAME, {"problems": problems})
    header = ["problem", "episodes", "chary", "baseline alone", "UCBVI", "below the baseline"]
    header += ["chary over budget", "UCBVI over budget", "deviating steps, %", "standing"]
    text = table(header, rows_of(kept()))
    print(text)
    fill(ROOT / "docs" / "presets.md", NAME, text)


if __name__ == "__main__":
    main()
