"""Posterior worlds step by step and compiled: the same trajectories, ledgers and chains, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.parity.same_runs import PROBLEMS, check_same_run, draw_mdp, draw_prior

from chary.agents import PSRL, CharyUCBVI, WorldsSpec
from chary.envs import riverswim
from chary.mdp import FiniteMDP
from chary.simulation import simulate

WORLDS: dict[str, Any] = {"bonus": "posterior", "worlds": 6, "risk": 0.2}
SPECS: dict[str, dict[str, Any]] = {
    "ledger of worlds": {},
    "normal quantile": {"risk": 0.01},
    "one ledger": {"charge": "quantile"},
    "one ledger, capped": {"charge": "quantile", "rule": "capped", "step_bound": 0.1},
    "one ledger, paper": {"charge": "quantile", "rule": "paper"},
    "optimistic": {"explorer": "optimistic"},
    "chains off": {"chains": False},
    "meta clock": {"clock": "meta", "pool": 2},
    "patience": {"patience": 2, "pool": 2, "after_refusal": "close"},
    "every episode": {"growth": 0.0},
    "rarely": {"growth": 0.5},
    "closed": {"rule": "closed"},
    "unlimited": {"rule": "unlimited"},
    "known rewards": {"reward": "known", "world_prior": "flat"},
    "pessimistic": {"pessimism": 0.5, "world_prior": "shrunk", "kappa": 5.0},
}


def check_both(mdp: FiniteMDP, spec: WorldsSpec, *, seed: int = 0, episodes: int = 25) -> int:
    compiled, step = (
        simulate(mdp, spec, episodes=episodes, warmup=4, seed=seed, record_steps=True, driver=driver)
        for driver in ("compiled", "step")
    )
    check_same_run(compiled, step)
    return int(compiled.deviating_steps.sum())


@pytest.mark.parametrize("name", SPECS)
def test_both_drivers_play_the_same_run(name: str) -> None:
    deviating = 0
    for i, problem in enumerate(("riverswim", "money", "terminal")):
        mdp = PROBLEMS[problem]
        options = {"eta": 0.6 * mdp.scale.span, **WORLDS, **SPECS[name]}
        if "step_bound" in options:
            options["step_bound"] *= mdp.scale.span
        deviating += check_both(mdp, CharyUCBVI(**options), seed=i)
    assert (deviating > 0) == (name != "closed")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_posterior_sampling_plays_the_same_run(problem: str) -> None:
    assert check_both(PROBLEMS[problem], PSRL(worlds=4)) > 0


@pytest.mark.parametrize("seed", range(6))
def test_any_small_problem_is_played_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    spec = CharyUCBVI(
        eta=float(rng.choice([0.1, 0.5, 2.0])) * mdp.scale.span,
        prior=draw_prior(mdp, rng) if rng.random() < 0.5 else None,
        charge=str(rng.choice(["worlds", "quantile"])),
        explorer=str(rng.choice(["sampled", "optimistic"])),
        chains=bool(rng.random() < 0.7),
        growth=float(rng.choice([0.0, 0.1])),
        reward=str(rng.choice(["known", "estimated"])),
        ties=str(rng.choice(["shuffled", "index"])),
        **WORLDS,
    )
    check_both(mdp, spec, seed=seed)


def test_a_long_run_draws_the_prior_again_and_stays_the_same() -> None:
    assert check_both(riverswim(horizon=8), CharyUCBVI(eta=0.5, **WORLDS), episodes=150) > 0
