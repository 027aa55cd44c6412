"""The step-by-step driver and the compiled one: equal bits, for every agent and every option."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parity.same_runs import (
    BY_BOUNDS,
    PATIENCE,
    POOLS,
    PROBLEMS,
    SCALES,
    check_same_run,
    draw_mdp,
    needed_by,
    specs,
)

from chary.agents import UCBVI, AgentSpec, Baseline, CharyUCBVI, make_agent
from chary.agents.chary_ucbvi import DATA
from chary.envs import inventory, riverswim
from chary.mdp import FiniteMDP
from chary.model.bounds import UCBVI_FAMILIES
from chary.planner._full import CHARGES
from chary.shield import AFTER_REFUSAL, CLOCKS, RULES
from chary.simulation import simulate
from chary.simulation.run import Run

EPISODES = 25
# The space of options is large, and a pair of runs takes milliseconds.
more = settings(max_examples=3 * settings().max_examples)


def runs(mdp: FiniteMDP, spec: AgentSpec, *, episodes: int = EPISODES, **options: Any) -> tuple[Run, Run]:
    compiled, step = (
        simulate(mdp, spec, episodes=episodes, record_steps=True, driver=driver, **options)
        for driver in ("compiled", "step")
    )
    return compiled, step


@more
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), warmup=st.sampled_from([0, 5, 60]))
def test_any_agent_on_any_problem_plays_the_same_run_twice(
    data: st.DataObject, seed: int, warmup: int
) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    spec = data.draw(specs(mdp))
    coverage = data.draw(st.sampled_from(["played", "everywhere"]))
    check_same_run(*runs(mdp, spec, warmup=warmup, seed=seed, coverage=coverage))


def test_the_problems_tried_have_all_that_can_go_wrong() -> None:
    assert PROBLEMS["terminal"].setting.terminal.any()
    assert PROBLEMS["terminal"].restricts_actions
    assert PROBLEMS["inventory"].restricts_actions
    assert PROBLEMS["money"].scale.low < 0


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", BY_BOUNDS)
def test_every_agent_plays_the_same_run_on_every_problem(name: str, problem: str) -> None:
    mdp = PROBLEMS[problem]
    options = {"eta": 0.4 * mdp.scale.span, "bonus": "bernstein", "bonus_scale": 0.01, "reward": "known"}
    spec = make_agent(name, **options, **needed_by(name, mdp))
    compiled, step = runs(mdp, spec, warmup=30, seed=3)
    check_same_run(compiled, step)
    if name == "chary":
        assert compiled.deviating_steps.sum() > 0


@pytest.mark.parametrize("bonus", UCBVI_FAMILIES)
def test_ucbvi_with_its_own_bonuses_plays_the_same_run(bonus: str) -> None:
    check_same_run(*runs(riverswim(horizon=8), UCBVI(bonus=bonus, bonus_scale=SCALES[bonus]), warmup=10))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("rule", ["strict", "capped", "paper"])
def test_every_way_to_keep_chains_plays_the_same_run(rule: str, clock: str, data: str) -> None:
    # H = 4: one step more or less decides whether an episode was a long one for its chain.
    mdp = inventory(capacity=3, horizon=4)
    explored = refused = stitched = abandoned = 0
    choices = list(itertools.product(CHARGES, POOLS, PATIENCE, AFTER_REFUSAL))
    for i, (charge, pool, patience, after) in enumerate(choices):
        # One in three, spread over all pairs of options: hypothesis tries the rest.
        if (i + i // 6 + i // 18) % 3 != RULES.index(rule) % 3:
            continue
        spec = CharyUCBVI(
            eta=0.4,
            rule=rule,
            step_bound=0.15 if rule == "capped" else None,
            charge=charge,
            clock=clock,
            data=data,
            pool=pool,
            patience=patience,
            after_refusal=after,
            bonus="hoeffding",
            bonus_scale=0.002,
        )
        compiled, step = runs(mdp, spec, episodes=20, warmup=20, seed=i)
        check_same_run(compiled, step)
        explored += int(compiled.exploring_steps.sum())
        refused += int(compiled.chains.exhausted.sum() + compiled.chains.blocked)
        stitched += int((compiled.chains.fed > 1).sum())
        abandoned += compiled.chains.abandoned
    # The runs had in them what could have told the drivers apart.
    assert min(explored, refused, stitched, abandoned) > 0


def test_a_long_run_repacks_its_counts_and_stays_the_same() -> None:
    mdp = FiniteMDP.from_arrays(
        np.full((12, 3, 12), 1 / 12),
        np.random.default_rng(0).random((12, 3)),
        horizon=12,
        start=np.full(12, 1 / 12),
    )
    spec = CharyUCBVI(eta=1.0, bonus="hoeffding", bonus_scale=0.01, data="meta", pool=1000)
    compiled, step = runs(mdp, spec, episodes=150, warmup=20)
    check_same_run(compiled, step)
    assert compiled.chains.finished > 10


@pytest.mark.parametrize("name", BY_BOUNDS)
def test_same_seed_same_bytes_and_other_seed_other_bytes(name: str) -> None:
    mdp = inventory(horizon=8)
    spec = make_agent(name, eta=0.4, bonus="bernstein", bonus_scale=0.01)
    one, again, other = (
        simulate(mdp, spec, episodes=EPISODES, warmup=10, seed=seed, record_steps=True) for seed in (1, 1, 2)
    )
    check_same_run(one, again)
    assert one.steps is not None
    assert other.steps is not None
    assert one.steps.state.tobytes() != other.steps.state.tobytes()


def test_the_baseline_agent_needs_no_upper_bounds_but_its_judge_does() -> None:
    # Both drivers judge coverage of V_hi everywhere, though this agent never computes it.
    compiled, step = runs(riverswim(horizon=8), Baseline(bonus="l1"), warmup=30, coverage="everywhere")
    check_same_run(compiled, step)
    assert not compiled.value_failed.any()
