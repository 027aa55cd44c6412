"""The compiled judge against its NumPy twin: what `simulate` reports, recomputed from the steps alone.

Baselines are got by playing every run again step by step with an agent of our own: nothing of the
compiled judge enters the expected numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chary.agents import AGENTS, AgentSpec, CharyUCBVI, Random, make_agent
from chary.agents.tabular import TabularAgent
from chary.arrays import Floats, Ints
from chary.audit import Truth, audit_episode, gap_bound
from chary.envs import TabularEnv, inventory
from chary.mdp import FiniteMDP
from chary.model.bounds import FAMILIES
from chary.planner._backup import LOWER, new_scratch
from chary.planner._full import EVALUATE_ALL, backward_into
from chary.planner.plan import TabularPlan
from chary.randomness import generator_for, seed_for
from chary.reference import charges as reference_charges
from chary.reference import planner as reference
from chary.reference.charges import Side
from chary.reference.planner import Confidence, Tally
from chary.rollouts import Episode, rollout
from chary.simulation import simulate
from chary.simulation.run import Run

ROUNDING = 1e-10
EPISODES, WARMUP = 15, 20


class Played(NamedTuple):
    """One episode with the plan it was pinned to, as it was then."""

    states: Ints
    actions: Ints
    explored: NDArray[np.bool_]
    baseline: Ints
    v_lower: Floats
    v_upper: Floats
    q_lower: Floats
    charge: Floats  # (H, P)
    tally: Tally


class Replay(NamedTuple):
    """A whole run, played again."""

    frozen: Ints
    episodes: list[Played]


def draw_mdp(rng: np.random.Generator) -> FiniteMDP:
    S, A = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    terminal = [S - 1] if S > 2 and rng.random() < 0.4 else []
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    start = rng.dirichlet(np.ones(S)) * ~np.isin(np.arange(S), terminal)
    high = float(rng.choice([1.0, 7.3]))
    return FiniteMDP.from_arrays(
        rng.dirichlet(np.full(S, 0.5), size=(S, A)),
        high * rng.random((S, A, S)),
        allowed=allowed,
        horizon=int(rng.integers(1, 7)),
        discount=float(rng.choice([1.0, 0.8])),
        terminal=terminal,
        start=start / start.sum(),
        reward_range=(0.0, high),
    )


def tally_of(plan: TabularPlan, n_states: int) -> Tally:
    rows = plan.knowledge.rows
    counts, rewards = (np.zeros((len(rows.total), n_states)) for _ in range(2))
    for p in range(len(rows.total)):
        span = slice(rows.begin[p], rows.begin[p] + rows.length[p])
        counts[p, rows.successor[span]] = rows.weight[span]
        rewards[p, rows.successor[span]] = rows.reward[span]
    return Tally(counts, rewards, rows.square_total.copy())


def lower_q_of(plan: TabularPlan, n_states: int) -> Floats:
    """Return the lower Q (H, P) of the plan's baseline."""
    rows, radii, arrays = plan.knowledge.rows, plan.knowledge.radii, plan.arrays
    H = len(arrays.baseline)
    v, q, policy = np.zeros_like(arrays.v_lower), np.zeros((H, len(rows.total))), arrays.baseline.copy()
    nobody, none = np.full(n_states, -1, dtype=np.int64), np.zeros((0, 0))
    scratch = new_scratch(n_states)
    backward_into(v, q, policy, rows, radii, LOWER, EVALUATE_ALL, nobody, none, (0, H - 1), scratch)
    return q


def replay(mdp: FiniteMDP, spec: AgentSpec, seed: int) -> Replay:
    env, setting = TabularEnv(mdp), mdp.told(spec.reward)
    agent = TabularAgent(
        spec, setting, max_episodes=EPISODES, warmup=WARMUP, generator=generator_for(seed, "agent")
    )
    dice = TabularAgent(Random(), mdp.setting, generator=generator_for(seed, "warmup agent"))
    warmup = rollout(env, dice, episodes=WARMUP, seed=seed_for(seed, "warmup world"))
    agent.warm_start([episode.transitions for episode in warmup])
    frozen = agent.frozen_baseline.copy()
    played: list[Played] = []

    def keep(episode: Episode) -> None:
        plan = agent.plan_of(episode.number)
        charge = np.zeros((setting.horizon, setting.n_pairs))
        for t, s, a in np.ndindex(setting.horizon, setting.n_states, setting.n_actions):
            if setting.pair_index[s, a] >= 0:
                charge[t, setting.pair_index[s, a]] = plan.charge(t, s, a)
        steps, arrays = episode.transitions, plan.arrays
        played.append(
            Played(
                np.array([steps[0].state, *(step.next_state for step in steps)]),
                np.array([step.action for step in steps]),
                np.array([decision.explored for decision in episode.decisions]),
                arrays.baseline.copy(),
                arrays.v_lower.copy(),
                arrays.v_upper.copy(),
                lower_q_of(plan, setting.n_states),
                charge,
                tally_of(plan, setting.n_states),
            )
        )

    for _ in rollout(env, agent, episodes=EPISODES, seed=seed_for(seed, "world"), before_finish=keep):
        pass
    return Replay(frozen, played)


def run_of(mdp: FiniteMDP, spec: AgentSpec, seed: int, **options: Any) -> Run:
    return simulate(mdp, spec, episodes=EPISODES, warmup=WARMUP, seed=seed, record_steps=True, **options)


@st.composite
def specs(draw: st.DrawFn, mdp: FiniteMDP, *names: str) -> AgentSpec:
    name = draw(st.sampled_from(names))
    bonus = draw(st.sampled_from(FAMILIES))
    options: dict[str, Any] = {
        "eta": mdp.scale.span * draw(st.sampled_from([0.1, 0.5, 2.0])),
        "bonus": bonus,
        "bonus_scale": 1.0 if bonus in ("l1", "kl") else draw(st.sampled_from([0.01, 0.0001])),
        "reward": draw(st.sampled_from(["known", "estimated"])),
    }
    if draw(st.booleans()):
        options["prior"] = [int(np.flatnonzero(row)[-1]) if row.any() else 0 for row in mdp.setting.allowed]
    if name == "chary":
        options["charge"] = draw(st.sampled_from(["paper", "coupled", "difference"]))
        options["rule"] = draw(st.sampled_from(["strict", "unlimited"]))
    return make_agent(name, **options)


# Those whose decisions a TabularAgent repeats: the canary's and those of worlds have tests of their own.
REPLAYED = [name for name in AGENTS if name not in ("canary", "psrl")]


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_every_episode_is_judged_as_the_audit_judges_it(data: st.DataObject, seed: int) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    spec = data.draw(specs(mdp, *REPLAYED))
    run, again = run_of(mdp, spec, seed), replay(mdp, spec, seed)
    truth, span = Truth(mdp), mdp.scale.span
    # The policy of the first day is the user's where there is one.
    incumbent = again.frozen if spec.prior is None else spec.prior_actions(mdp.setting)
    worth = truth.value_of_start(truth.evaluate(incumbent).value)
    assert run.incumbent_value == pytest.approx(worth * span, abs=ROUNDING)
    assert run.steps is not None
    for k, played in enumerate(again.episodes):
        n = int(run.length[k])
        states, actions = run.steps.state[k, : n + 1], run.steps.action[k, :n]
        np.testing.assert_array_equal(states, played.states)
        np.testing.assert_array_equal(actions, played.actions)
        assert (run.steps.action[k, n:] == -1).all()
        own = audit_episode(truth, states, actions, played.baseline)
        first = audit_episode(truth, states, actions, incumbent)
        expected = np.array(
            [own.regret, own.true_deficit, own.signed_deficit, first.true_deficit, own.baseline_value]
        )
        deficits = (run.true_deficit, run.signed_deficit, run.incumbent_deficit)
        found = [a[k] for a in (run.regret, *deficits, run.baseline_value)]
        np.testing.assert_allclose(found, expected * span, rtol=0, atol=ROUNDING)
        assert run.deviating_steps[k] == (actions != played.baseline[np.arange(n), states[:-1]]).sum()
        assert run.exploring_steps[k] == played.explored.sum()
        np.testing.assert_array_equal(run.steps.explored[k, :n], played.explored)


def bonus_fails(
    mdp: FiniteMDP, confidence: Confidence, played: Played, value: Floats, p: int, t: int
) -> bool:
    """Return whether section 3's event fails at one pair, by the reference's own b."""
    tally = played.tally
    if reference.visits(tally, p) == 0:
        return False
    row = slice(mdp.row_start[p], mdp.row_start[p + 1])
    gamma = mdp.setting.discount
    true = mdp.probability[row] @ (mdp.reward[row] + gamma * value[t + 1, mdp.successor[row]])
    mean = tally.rewards[p].sum() / reference.visits(tally, p)
    estimate = mean + gamma * reference.frequencies(tally, p) @ value[t + 1]
    side: Side = "above" if true > estimate else "below"
    b = reference_charges.deviation_bound(
        tally, confidence, p, played.v_lower[t + 1], played.v_upper[t + 1], side=side
    )
    return bool(abs(true - estimate) > b + 1e-9)


def expected_coverage(
    mdp: FiniteMDP, confidence: Confidence, truth: Truth, played: Played, *, everywhere: bool
) -> tuple[bool, bool, bool, float]:
    """Return whether a value bound, a bonus and a charge failed in an episode, and the largest gap there."""
    setting = mdp.setting
    value, q = truth.evaluate(played.baseline)
    places = [(t, p) for t in range(setting.horizon) for p in range(setting.n_pairs)]
    if not everywhere:
        places = [
            (int(t), int(setting.pair_index[played.states[t], played.actions[t]]))
            for t in np.flatnonzero(played.explored)
            # Only a step that differs from the baseline's leans on a bound.
            if played.actions[t] != played.baseline[t, played.states[t]]
        ]
    failed, largest = [False, False, False], 0.0
    for t, p in places:
        s, a = int(truth.pair_state[p]), int(setting.pair_action[p])
        a1 = int(played.baseline[t, s])
        gap = float(value[t, s] - q[t, p]) if a != a1 else 0.0
        largest = max(largest, gap)
        failed[0] |= bool(played.v_upper[t, s] < value[t, s] - 1e-9)
        failed[0] |= bool(played.q_lower[t, p] > q[t, p] + 1e-9)
        failed[2] |= bool(played.charge[t, p] < gap - 1e-9)
        p1 = int(setting.pair_index[s, a1])
        for pair in {p} if everywhere else {p, p1}:
            failed[1] |= bonus_fails(mdp, confidence, played, value, pair, t)
    return failed[0], failed[1], failed[2], largest


@pytest.mark.parametrize("coverage", ["played", "everywhere"])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_coverage_is_judged_as_the_definitions_say(coverage: str, data: st.DataObject, seed: int) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    spec = data.draw(specs(mdp, "chary"))
    run, again = run_of(mdp, spec, seed, coverage=coverage), replay(mdp, spec, seed)
    truth, everywhere = Truth(mdp), coverage == "everywhere"
    confidence = Confidence(
        setting=mdp.told(spec.reward), bounds=spec.bounds, episodes=EPISODES, total_episodes=EPISODES + WARMUP
    )
    for k, played in enumerate(again.episodes):
        expected = expected_coverage(mdp, confidence, truth, played, everywhere=everywhere)
        found = run.value_failed[k], run.bonus_failed[k], run.charge_failed[k]
        assert found == expected[:3], k
        assert run.largest_gap[k] == pytest.approx(expected[3] * mdp.scale.span, rel=0, abs=ROUNDING)
        if everywhere:
            bound = gap_bound(truth, played.baseline) * mdp.scale.span
            assert run.largest_gap[k] == pytest.approx(bound, rel=0, abs=ROUNDING)


def test_narrow_bounds_fail_and_the_judge_says_so() -> None:
    # With next to no bonus every kind of failure happens, so the comparisons above compare something.
    spec = CharyUCBVI(eta=5.0, bonus="hoeffding", bonus_scale=1e-6)
    run = run_of(inventory(horizon=6), spec, 0, coverage="everywhere")
    assert run.value_failed.any()
    assert run.bonus_failed.any()
    assert run.charge_failed.any()
    assert run.true_deficit.max() > 0


def test_returns_are_discounted_sums_in_the_users_units() -> None:
    mdp = inventory(horizon=6, units="money")
    run = run_of(mdp, Random(), 0)
    assert run.steps is not None
    for k in range(EPISODES):
        raw = []
        for t in range(mdp.horizon):
            s, a, x = run.steps.state[k, t], run.steps.action[k, t], run.steps.state[k, t + 1]
            successors, _, rewards = mdp.row(int(s), int(a))
            raw.append(mdp.scale.low + mdp.scale.span * rewards[list(successors).index(x)])
        assert run.returns[k] == pytest.approx(sum(raw), abs=ROUNDING)
