"""The step-by-step driver and the compiled one: equal bits, for every agent and every option."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chary.agents import AGENTS, UCBVI, AgentSpec, Baseline, CharyUCBVI, make_agent
from chary.agents.chary_ucbvi import DATA
from chary.agents.neighbours import BASELINE_VALUES
from chary.envs import corridor, inventory, riverswim
from chary.mdp import REWARD_KNOWLEDGE, FiniteMDP
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES
from chary.planner._kernels import CHARGES
from chary.run import ChainLog, Run, Steps
from chary.shield import AFTER_REFUSAL, CLOCKS, RULES
from chary.simulation import simulate

EPISODES = 25
POOLS = (1, 3, 1000)
PATIENCE = (None, 0, 2)
# Scales at which a handful of episodes leaves bounds that are neither vacuous nor of no width.
SCALES = {"hoeffding": 0.002, "l1": 1.0, "kl": 1.0, "bernstein": 0.01, "ch": 0.01, "bf": 0.001}

# The space of options is large, and a pair of runs takes milliseconds.
more = settings(max_examples=3 * settings().max_examples)


def draw_mdp(rng: np.random.Generator) -> FiniteMDP:
    """Return any small MDP: with terminal states, restricted actions, declared supports, units of its own."""
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    terminal = [S - 1] if S > 2 and rng.random() < 0.4 else []
    possible = rng.random((S, A, S)) < 0.7
    possible[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    P = (rng.dirichlet(np.full(S, 0.5), size=(S, A)) + 1e-3) * possible
    P /= P.sum(axis=2, keepdims=True)
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    R = rng.random((S, A, S)) if rng.random() < 0.7 else rng.integers(0, 2, size=(S, A, S)).astype(float)
    start = rng.dirichlet(np.ones(S)) * ~np.isin(np.arange(S), terminal)
    # From these units rewards do not always come back to the same bits.
    low, high = (0.0, float(rng.choice([1.0, 7.3]))) if terminal else (2.1873, 11.1951)
    return FiniteMDP.from_arrays(
        P,
        low + (high - low) * R,
        allowed=allowed,
        horizon=int(rng.integers(1, 7)),
        discount=float(rng.choice([1.0, 0.9])),
        terminal=terminal,
        start=start / start.sum(),
        support=possible.sum(axis=2) if rng.random() < 0.5 else None,
        reward_range=(low, high),
    )


def draw_prior(mdp: FiniteMDP, rng: np.random.Generator) -> list[int]:
    return [int(rng.choice(np.flatnonzero(row))) if row.any() else 0 for row in mdp.setting.allowed]


def runs(mdp: FiniteMDP, spec: AgentSpec, *, episodes: int = EPISODES, **options: Any) -> tuple[Run, Run]:
    compiled, step = (
        simulate(mdp, spec, episodes=episodes, record_steps=True, driver=driver, **options)
        for driver in ("compiled", "step")
    )
    return compiled, step


def check_equal(one: object, other: object, names: Any) -> None:
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, name
            assert mine.shape == theirs.shape, name
            assert mine.tobytes() == theirs.tobytes(), name
        else:
            assert mine == theirs, name


def check_same_run(compiled: Run, step: Run) -> None:
    apart = {"seconds", "chains", "steps", "spec"}
    check_equal(compiled, step, [name for name in Run.__dataclass_fields__ if name not in apart])
    check_equal(compiled.chains, step.chains, ChainLog.__dataclass_fields__)
    check_equal(compiled.steps, step.steps, Steps.__dataclass_fields__)


names = st.sampled_from([*["chary"] * 6, *(name for name in AGENTS if name != "chary")])


@st.composite
def specs(draw: st.DrawFn, mdp: FiniteMDP) -> AgentSpec:
    """Return any agent with any options that fit together."""
    name, span = draw(names), mdp.scale.span
    bonus = draw(st.sampled_from([*FAMILIES, *(UCBVI_FAMILIES if name == "ucbvi" else ())]))
    options: dict[str, Any] = {
        "bonus": bonus,
        "bonus_scale": 1.0 if SCALES[bonus] == 1 else SCALES[bonus] * draw(st.sampled_from([1.0, 0.1])),
        "reward": draw(st.sampled_from(REWARD_KNOWLEDGE)),
        "delta": draw(st.sampled_from([0.1, 0.9])),
        "eta": span * draw(st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0])),
    }
    if draw(st.booleans()):
        options["prior"] = draw_prior(mdp, np.random.default_rng(draw(st.integers(0, 99))))
    if name == "chary":
        rule, chains = draw(st.sampled_from(RULES)), draw(st.sampled_from([True, True, True, False]))
        options |= {
            "rule": rule,
            "chains": chains,
            "step_bound": span * draw(st.sampled_from([0.05, 0.5])) if rule == "capped" else None,
            "after_refusal": draw(st.sampled_from(AFTER_REFUSAL)) if chains else None,
            "charge": draw(st.sampled_from(CHARGES)),
            "clock": draw(st.sampled_from(CLOCKS)),
            "data": draw(st.sampled_from(DATA)),
            "pool": draw(st.sampled_from(POOLS)),
            "patience": draw(st.sampled_from(PATIENCE)),
        }
    if name in ("cucbvi", "stepmix", "epsmix"):
        options["baseline_value"] = draw(st.sampled_from(BASELINE_VALUES))
    return make_agent(name, **options)


@more
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), warmup=st.sampled_from([0, 5, 60]))
def test_any_agent_on_any_problem_plays_the_same_run_twice(
    data: st.DataObject, seed: int, warmup: int
) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    spec = data.draw(specs(mdp))
    coverage = data.draw(st.sampled_from(["played", "everywhere"]))
    check_same_run(*runs(mdp, spec, warmup=warmup, seed=seed, coverage=coverage))


PROBLEMS = {
    "inventory": inventory(horizon=8),
    "money": inventory(horizon=8, units="money"),
    "corridor": corridor(length=3, horizon=8),
    "riverswim": riverswim(horizon=8),
    "terminal": draw_mdp(np.random.default_rng(10)),
}


def test_the_problems_tried_have_all_that_can_go_wrong() -> None:
    assert PROBLEMS["terminal"].setting.terminal.any()
    assert PROBLEMS["terminal"].restricts_actions
    assert PROBLEMS["inventory"].restricts_actions
    assert PROBLEMS["money"].scale.low < 0


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_plays_the_same_run_on_every_problem(name: str, problem: str) -> None:
    mdp = PROBLEMS[problem]
    spec = make_agent(name, eta=0.4 * mdp.scale.span, bonus="bernstein", bonus_scale=0.01, reward="known")
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


@pytest.mark.parametrize("name", AGENTS)
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
