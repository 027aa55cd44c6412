"""The constants of the ensemble's prices on a patient, fitted on seeds that are not used for judging.

python benchmarks/deep_constants.py [--seeds 100 101] [--stages 50 150 300 500] [--to FILE]

An agent is trained with the usual constants, and after some episodes its frozen baseline plays held-out
episodes with random deviations, whose true costs are rolled out: `chary.deep.calibrate.fit` finds d for 95 %
of the steps and z for 95 % of the ledgers. Coverage with the usual d stands next to it.

Writes benchmarks/results/deep-constants.json, or FILE, after every stage.
"""

from __future__ import annotations

import argparse
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from chary.deep import DeepOptions, DeepSimulation, hiv
from chary.deep.calibrate import Residuals, fit
from chary.deep.simulation.gaps import rollout_residuals

RESULTS = Path(__file__).resolve().parent / "results"
ETA, PATIENT, EPISODES, RISK = 60.0, 5, 25, 0.05


def found_on(residuals: Residuals, options: DeepOptions) -> dict[str, Any]:
    """Return the constants that cover residuals, and what the usual ones cover."""
    given = options.ensemble
    fitted = fit(residuals, given, risk=RISK)
    beyond = residuals.gap - residuals.mean - given.spread * residuals.deviation
    return {
        "deviations": fitted.steps,
        "episodes": fitted.ledgers,
        "d": fitted.options.floor,
        "z": fitted.options.z,
        "covered_by_the_usual_d": float(np.mean(beyond <= given.floor)),
        "residual_deviation": float(np.std(residuals.gap - residuals.mean)),
        "members_deviation": float(np.median(residuals.deviation)),
    }


def joined(parts: list[Residuals]) -> Residuals:
    """Return the residuals of several stages as those of separate episodes."""
    episode = np.concatenate([part.episode + EPISODES * i for i, part in enumerate(parts)])
    columns = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("gap", "mean", "deviation")
    )
    return Residuals(*columns, episode, "rollouts")


def main() -> None:
    """Train, fit, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--stages", type=int, nargs="+", default=[50, 150, 300, 500])
    parser.add_argument("--to", type=Path, default=RESULTS / "deep-constants.json")
    arguments = parser.parse_args()
    options = DeepOptions(eta=ETA)
    seeds, stages = (" ".join(map(str, each)) for each in (arguments.seeds, arguments.stages))
    result: dict[str, Any] = {
        "question": (__doc__ or "").splitlines()[0],
        "command": f"python benchmarks/deep_constants.py --seeds {seeds} --stages {stages}",
        "versions": {name: metadata.version(name) for name in ("chary", "jax", "jaxlib", "numpy")},
        "rows": [],
    }
    parts = []
    for seed in arguments.seeds:
        run = DeepSimulation(hiv(PATIENT), options, seed=seed, audit_every=0)
        run.start()
        for stage in arguments.stages:
            while run.done < stage:
                run.advance()
            with jax.enable_x64(True):
                key = jax.random.fold_in(jax.random.key(seed), stage)
                plan = run.learner.plan  # type: ignore[union-attr]
                parts.append(rollout_residuals(hiv(PATIENT), options, plan, key, episodes=EPISODES))
            result["rows"].append({"seed": seed, "episode": stage, **found_on(parts[-1], options)})
            result["together"] = found_on(joined(parts), options)
            print(result["rows"][-1], flush=True)
            arguments.to.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(result["together"])


if __name__ == "__main__":
    main()
