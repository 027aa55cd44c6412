"""A canary plays the same run compiled, step by step, and resumed: its coins, candidates and changes too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.parity.same_runs import check_same_run, draw_mdp, draw_prior, needed_by
from tests.parity.test_resume import play_disturbed

import chary
from chary.simulation.run import Run

EPISODES = 120


def same_run(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    spec = chary.Canary(
        eta=mdp.scale.span * float(rng.choice([0.3, 1.0, 3.0])),
        candidates=["posterior", "lower"][seed % 2],
        bonus="hoeffding",
        bonus_scale=0.01,
        ask_growth=0.1,
        share=float(rng.choice([0.5, 1.0])),
        reward=["known", "estimated"][seed % 3 == 0],
        prior=draw_prior(mdp, rng) if rng.random() < 0.6 else None,
        **needed_by("canary", mdp),
    )
    warmup = int(rng.choice([0, 5, 30]))
    options: dict[str, Any] = {"episodes": EPISODES, "warmup": warmup, "seed": seed, "record_steps": True}
    run = chary.simulate(mdp, spec, **options)
    check_same_run(run, chary.simulate(mdp, spec, **options, driver="step"))
    check_same_run(play_disturbed(mdp, spec, [0, 17, 80], **options), run)
    return run


@pytest.mark.parametrize("first", [0, 8])
def test_all_ways_to_play_a_canary_give_the_same_run(first: int) -> None:
    logs = [run.canary for run in map(same_run, range(first, first + 8)) if run.canary is not None]
    # The runs had in them what could have told the ways apart.
    assert sum((log.policy > 1).sum() for log in logs) > 30
    assert sum(len(log.changes) for log in logs) > 0
