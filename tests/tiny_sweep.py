"""A sweep of seconds with everything a report shows, played here and not by the runner."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import chary
from chary.simulation.run import Run, run_arrays
from chary.storage.archives import npz_bytes
from chary.storage.files import as_json
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment, Study, Variant
from chary.sweeps.tabular import Algorithm, Conditions, problem_and_agent

__all__ = ["EPISODES", "ETAS", "play", "tiny_experiment"]

ETAS = (0.05, 0.4)
EPISODES = 230

UCBVI = Algorithm(label="UCBVI", agent="ucbvi", role="unconstrained")
OURS = Algorithm(label="ours", agent="chary", role="ours")
PAPER = Algorithm(
    label="paper's variant",
    agent="chary",
    role="paper",
    options={"rule": "paper", "charge": "paper", "pool": 1, "after_refusal": "close"},
)
NAIVE = Algorithm(label="chains off", agent="chary", role="naive", options={"chains": False})


def tiny_experiment(**changes: Any) -> Experiment:
    """Return two seeds of four algorithms on inventory; the first variant of a study shares their runs."""
    at_one: dict[str, Any] = {"etas": (0.4,)}
    experiment = Experiment(
        name="tiny",
        title="A <tiny> sweep",
        conditions=Conditions(
            problem="inventory",
            episodes=EPISODES,
            warmup=20,
            seeds=2,
            etas=ETAS,
            bonus="hoeffding",
            bonus_scale=0.0002,
        ),
        algorithms=(UCBVI, Algorithm(label="baseline", agent="baseline", role="baseline"), PAPER, OURS),
        studies=(
            Study(
                name="scale",
                question="Does the scale matter?",
                algorithms=(UCBVI,),
                variants=(
                    Variant(label="as before", changes={"bonus_scale": 0.0002, **at_one}),
                    Variant(label="more", changes={"bonus_scale": 0.0008, **at_one}),
                ),
            ),
            Study(
                name="prior",
                algorithms=(UCBVI, OURS),
                variants=(Variant(label="longer warm-up", changes={"warmup": 40, **at_one}),),
            ),
            Study(
                name="chains",
                algorithms=(UCBVI, NAIVE, OURS),
                variants=(Variant(label="corridor", changes={"problem": "corridor", **at_one}),),
            ),
        ),
    )
    return experiment.changed(**changes) if changes else experiment


def play(
    folder: SweepFolder, experiment: Experiment, *, leave_out: int = 0, study: str | None = None
) -> dict[str, Run]:
    """Fill a folder as the runner does, and return the runs by id.

    The last `leave_out` places are not played, and where a study is named, no other.
    """
    folder.claim(experiment, "chary sweep tiny.toml --out 'a & b'")
    runs: dict[str, Run] = {}
    plan = [each for each in experiment.plan() if study in (None, each.study)]
    for spec in (each.spec for each in plan[: len(plan) - leave_out]):
        if spec.id in runs:
            continue
        mdp, agent = problem_and_agent(spec)
        run = chary.simulate(mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed)
        told = {key: value for key, value in run.summary().items() if key not in ("seconds", "version")}
        provenance = {
            "version": chary.__version__,
            "commit": "0" * 40,
            "packages": {"numpy": np.__version__},
            "python": "3.11",
            "machine": "a <machine>",
            "cores": 2,
            "wall_seconds": 2.0,
            "cpu_seconds": 1.5,
            "episode_seconds": 1.0,
            "finished": "2026-01-01T00:00:00+00:00",
            "resumed": 0,
        }
        folder.write(
            spec.id,
            {
                "spec.json": (spec.canonical + "\n").encode(),
                "result.npz": npz_bytes(run_arrays(run)),
                "result.json": (as_json(told) + "\n").encode(),
                "provenance.json": (json.dumps(provenance) + "\n").encode(),
            },
        )
        runs[spec.id] = run
    return runs
