"""Sweeps of the deep learner for the tests: a small one, and made-up results for those that do not learn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import chary
from chary.storage.archives import npz_bytes
from chary.storage.files import as_json
from chary.sweeps.deep_problems import DEEP_PROBLEMS
from chary.sweeps.folder import SweepFolder
from chary.sweeps.run_spec import RunSpec
from chary.sweeps.spec import Experiment
from chary.sweeps.toml import parse_experiment

__all__ = ["OTHERS", "TINY", "invented", "invented_arrays", "invented_files", "tiny_experiment"]

# Networks of 8 units, 3 episodes: compiling takes longer than playing. The example of `DeepSimulation` has
# these options, too: both share what was compiled.
TINY = """
name = "tiny-hiv"
title = "HIV <in the small>"
problem = "hiv"
episodes = 3
warmup = 1
seeds = 2
etas = [40, 100]
audit_every = 1
baseline = "networks"

[learner]
pretraining = 5
width = 8
features = 8
batch = 8
fresh = 4
replay = 1000

[quick]
episodes = 2
seeds = 1
etas = [40]

[[algorithms]]
label = "DQN"
agent = "dqn"
role = "unconstrained"

[[algorithms]]
label = "chary"
agent = "chary"
role = "ours"
"""

OTHERS = """
[[algorithms]]
label = "CQL"
agent = "cql"
role = "conservative"

[[algorithms]]
label = "random"
agent = "random"
role = "baseline"

[[algorithms]]
label = "constant 3"
agent = "constant"
role = "baseline"
action = 3

[[studies]]
name = "beta"
question = "How much depends on beta?"
algorithms = ["chary"]

[[studies.variants]]
label = "half"
learner = { beta = 0.5 }
etas = [40]

[[studies.variants]]
label = "twice"
learner = { beta = 2.0 }
etas = [40]
"""

# Maximum returns in millions, as Table 1 has them, and how often 200 steps leave the baseline.
BEST = {"dqn": 3.82, "chary": 3.84, "cql": 3.75, "random": 2.0, "constant": 1.5}
LEAVES = {"dqn": 60, "chary": 8, "cql": 0, "random": 150, "constant": 100}


def tiny_experiment(*, others: bool = False, **changes: Any) -> Experiment:
    """Return DQN and chary, perhaps with the others and a study."""
    experiment = parse_experiment(TINY + OTHERS if others else TINY)
    return experiment.changed(**changes) if changes else experiment


def invented_arrays(spec: RunSpec) -> dict[str, Any]:
    """Return what a run might have found: DQN breaks budgets of 100, chary none, and CQL never leaves."""
    rng = np.random.default_rng([spec.seed, *spec.agent.encode()])
    episodes, every = spec.episodes, int(spec.options["audit_every"])
    rises = np.minimum(1.0, (np.arange(episodes) + 1) / (0.5 * episodes))
    raw = 1e6 * BEST[spec.agent] * (0.6 + 0.4 * rises) * (1 - 0.01 * rng.random(episodes))
    leaves = np.full(episodes, LEAVES[spec.agent])
    audited = np.arange(every - 1, episodes, every)
    scale = {"dqn": 150.0, "chary": 0.2 * spec.options["eta"], "random": 300.0, "constant": 200.0}
    deficit = scale.get(spec.agent, 0.0) * (0.8 + 0.4 * rng.random(len(audited)))
    shares = np.array([0.0, 0.0, 0.0, 1.0] if spec.agent == "constant" else [0.1, 0.2, 0.3, 0.4])
    shares = np.append(shares, np.zeros(len(DEEP_PROBLEMS[spec.problem].actions) - 4))
    gone = leaves[audited]
    return {
        "returns": raw / 1e4,
        "rewards": raw / 5e3,
        "raw_returns": raw,
        "steps": np.full(episodes, 200),
        "deficit": np.full(episodes, 0.3 * spec.options["eta"] if spec.agent == "chary" else 0.0),
        "explored": leaves,
        "deviated": leaves,
        "actions": np.tile((200 * shares).astype(int), (episodes, 1)),
        "charges": np.full(episodes, 5.0),
        "largest_charge": np.full(episodes, 1.0),
        "losses": np.zeros((episodes, 3)),
        "audited": audited,
        "true_deficit": deficit,
        "true_signed_deficit": deficit / 2 - 10,
        "true_largest": deficit / 4,
        "true_baseline_value": np.linspace(100, 300, len(audited)),
        "true_deviations": gone,
        "true_covered": (0.97 * gone).astype(int),
        "true_booked": gone if spec.agent == "chary" else 0 * gone,
        "true_booked_covered": gone if spec.agent == "chary" else 0 * gone,
        "incumbent_deficit": deficit + 20,
        "incumbent_signed_deficit": deficit / 2 - 30,
        "incumbent_baseline_value": np.full(len(audited), 120.0),
        "incumbent_deviations": gone + 5,
        "held_out_deviations": np.full(len(audited), 20),
        "held_out_covered": np.full(len(audited), 20),
    }


def invented_files(spec: RunSpec) -> dict[str, bytes]:
    """Return the files of a made-up run."""
    provenance = {
        "version": chary.__version__,
        "commit": "0" * 40,
        "packages": {"jax": "0.10"},
        "python": "3.11",
        "machine": "a <machine>",
        "cores": 2,
        "wall_seconds": 2.0,
        "cpu_seconds": 1.5,
        "episode_seconds": 1.0,
        "finished": "2026-01-01T00:00:00+00:00",
        "resumed": 0,
    }
    return {
        "spec.json": (spec.canonical + "\n").encode(),
        "result.npz": npz_bytes(invented_arrays(spec)),
        "result.json": (as_json({"agent": spec.agent}) + "\n").encode(),
        "provenance.json": (json.dumps(provenance) + "\n").encode(),
    }


def invented(folder: SweepFolder, experiment: Experiment, *, leave_out: int = 0) -> None:
    """Fill a folder as the runner does, with made-up results; the last `leave_out` runs are missing."""
    folder.claim(experiment, "chary sweep tiny.toml --out 'a & b'")
    specs = {each.spec.id: each.spec for each in experiment.plan()}
    for spec in list(specs.values())[: len(specs) - leave_out]:
        folder.write(spec.id, invented_files(spec))
