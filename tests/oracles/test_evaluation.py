"""Plans around a policy of yours, and its value from logs, against NumPy and against the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.test_kernels import Case, case, close, draw_mdp, draw_policy, tolerance_of
from tests.properties.test_charge_laws import Instance, adversarial, steps

from chary.arrays import Floats, Ints
from chary.data import Log
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.evaluation import evaluate_policy, start_weights
from chary.mdp import FiniteMDP
from chary.mdp.setting import RewardScale, Setting
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES, Bounds
from chary.model.knowledge import Knowledge
from chary.planner._backup import LOWER, new_scratch
from chary.planner._full import CHARGES, OPTIMISE, backward_into
from chary.planner.plan import TabularPlan, own_plan, policy_values
from chary.policies import OwnBaseline
from chary.reference import planner as reference
from chary.reference.planner import Confidence, Tally
from chary.testing import check_plan

ROUNDING = 1e-9
ALL_FAMILIES = FAMILIES + UCBVI_FAMILIES
REWARDS = ("estimated", "known")
fewer = settings(max_examples=max(1, settings().max_examples // 3))
seeds = st.integers(0, 2**32 - 1)


def draw_start(setting: Setting, rng: np.random.Generator) -> Floats:
    weights = rng.random(setting.n_states) * ~setting.terminal
    return np.asarray(weights / weights.sum())


def knowledge_of(instance: Instance) -> Knowledge:
    """Return an instance's tally as the kernels keep it."""
    tally, trust = instance.tally, instance.confidence
    setting = trust.setting
    knowledge = Knowledge.empty(
        setting, trust.bounds, episodes=trust.episodes, total_episodes=trust.total_episodes
    )
    pair, successor = np.nonzero(tally.counts)
    times = tally.counts[pair, successor].astype(np.int64)
    rewards = np.clip(tally.rewards[pair, successor] / times, 0.0, 1.0)
    states = np.repeat(np.arange(setting.n_states), np.diff(setting.pair_start))
    knowledge.learn(
        np.repeat(states[pair], times),
        np.repeat(pair, times),
        np.repeat(successor, times),
        np.repeat(rewards, times),
    )
    return knowledge


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_a_plan_with_yours_alone_is_yours_everywhere_with_its_values_and_charges(
    family: str, reward: str, seed: int
) -> None:
    here, tolerance = case(seed, family, reward), tolerance_of(family, reward)
    setting = here.setting
    policy = draw_policy(setting, np.random.default_rng([seed, 1]))
    lower, upper = (
        reference.backward(here.tally, here.confidence, sign=sign, policy=policy) for sign in (-1, 1)
    )
    plans = {
        kind: TabularPlan(setting, here.knowledge, policy, charge=kind, fixed=policy) for kind in CHARGES
    }
    for kind, plan in plans.items():
        assert plan.fixed
        np.testing.assert_array_equal(plan.arrays.baseline, policy)
        close(plan.arrays.v_lower, lower.V, tolerance)
        close(plan.arrays.v_upper, upper.V, tolerance)
        if kind == "difference":
            continue
        for t in range(setting.horizon):
            for s, a in np.argwhere(setting.allowed).tolist():
                expected = here.reference_charge(kind, lower, upper, np.zeros(0), t, s, a)
                assert plan.charge(t, s, a) == pytest.approx(expected, rel=0, abs=tolerance)
    for t in range(setting.horizon):
        for s, a in np.argwhere(setting.allowed).tolist():
            assert 0 <= plans["difference"].charge(t, s, a) <= plans["coupled"].charge(t, s, a)


@pytest.mark.parametrize("family", ["l1", "kl"])
@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("charge", CHARGES)
@fewer
@given(seed=seeds)
def test_charges_against_yours_cover_the_true_gap_when_the_truth_lies_on_the_edge_of_every_ball(
    charge: str, reward: str, family: str, seed: int
) -> None:
    instance = adversarial(seed, family, reward)
    setting = instance.confidence.setting
    policy = draw_policy(setting, np.random.default_rng([seed, 1]))
    plan = TabularPlan(setting, knowledge_of(instance), policy, charge=charge, fixed=policy)
    truth = reference.exact(instance.mdp, policy)
    assert (plan.arrays.v_lower <= truth.V + ROUNDING).all()
    assert (truth.V <= plan.arrays.v_upper + ROUNDING).all()
    for t, s, a in steps(instance):
        gap = truth.V[t, s] - truth.Q[t, setting.pair_index[s, a]]
        assert gap <= plan.charge(t, s, a) + ROUNDING


@pytest.mark.parametrize("family", ALL_FAMILIES)
@fewer
@given(seed=seeds)
def test_the_floor_departs_from_yours_only_where_its_lower_bound_beats_the_upper_one_of_yours(
    family: str, seed: int
) -> None:
    here = case(seed, family, "estimated")
    setting, S = here.setting, here.setting.n_states
    policy = draw_policy(setting, np.random.default_rng([seed, 1]))
    plan = own_plan(setting, here.knowledge, OwnBaseline.declare(policy, setting, role="floor"))
    improved, yours = plan.arrays, policy_values(here.knowledge, policy, +1)
    other = improved.baseline[:, :S] != policy
    assert plan.fixed == (not other.any())
    assert (improved.v_lower[:-1][other] > yours[:-1][other]).all()
    # Where yours is kept, no action is known to be better.
    rows, radii, none = here.knowledge.rows, here.knowledge.radii, np.zeros((0, 0))
    for t in range(setting.horizon):
        v, room = improved.v_lower.copy(), np.zeros_like(policy)
        backward_into(
            v, none, room, rows, radii, LOWER, OPTIMISE, np.full(S, -1), none, (t, t), new_scratch(S)
        )
        kept = ~other[t]
        assert ((v[t] <= yours[t]) | (room[t] == policy[t]))[kept].all()


@pytest.mark.parametrize("family", ["l1", "kl"])
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_the_floor_is_nowhere_worse_than_yours_when_the_truth_lies_on_the_edge_of_every_ball(
    reward: str, family: str, seed: int
) -> None:
    instance = adversarial(seed, family, reward)
    setting = instance.confidence.setting
    policy = draw_policy(setting, np.random.default_rng([seed, 1]))
    own = OwnBaseline.declare(policy, setting, role="floor")
    plan = own_plan(setting, knowledge_of(instance), own)
    yours, improved = (reference.exact(instance.mdp, each).V for each in (policy, plan.arrays.baseline))
    assert (improved >= yours - ROUNDING).all()


def queries(here: Case) -> dict[str, Any]:
    allowed = here.setting.allowed
    return {
        "states": np.flatnonzero(~here.setting.terminal).tolist(),
        "horizon": here.setting.horizon,
        "allowed": lambda s: np.flatnonzero(allowed[s]).tolist(),
    }


@pytest.mark.parametrize("charge", ["coupled", "difference"])
@pytest.mark.parametrize("role", ["prior", "floor", "only"])
@fewer
@given(seed=seeds)
def test_plans_of_every_role_keep_the_contract(role: str, charge: str, seed: int) -> None:
    here, rng = case(seed, "kl", "estimated"), np.random.default_rng([seed, 1])
    own = OwnBaseline.declare(draw_policy(here.setting, rng), here.setting, role=role)
    check_plan(own_plan(here.setting, here.knowledge, own, charge=charge), **queries(here))


def test_before_any_data_the_baseline_is_yours_in_every_role() -> None:
    setting = Setting.declare(n_states=4, n_actions=3, horizon=3, terminal=[3])
    policy = draw_policy(setting, np.random.default_rng(5))
    nothing = Knowledge.empty(setting, Bounds(), episodes=None, total_episodes=None)
    for role in ("prior", "floor", "only"):
        own = OwnBaseline.declare(policy, setting, role=role)
        plan = own_plan(setting, nothing, own)
        np.testing.assert_array_equal(plan.arrays.baseline, policy)
        assert plan.fixed == (role != "prior")


@pytest.mark.parametrize("family", ["hoeffding", "kl"])
@fewer
@given(seed=seeds)
def test_a_prior_that_changes_with_the_step_decides_ties_and_nothing_else(family: str, seed: int) -> None:
    here = case(seed, family, "estimated")
    setting, S = here.setting, here.setting.n_states
    policy = draw_policy(setting, np.random.default_rng([seed, 1]))
    plan = TabularPlan(setting, here.knowledge, policy)
    v, q = np.zeros_like(plan.arrays.v_lower), np.zeros((setting.horizon, setting.n_pairs))
    rows, radii, none = here.knowledge.rows, here.knowledge.radii, np.zeros((0, 0))
    room, nobody, stages = np.zeros_like(policy), np.full(S, -1), (0, setting.horizon - 1)
    backward_into(v, q, room, rows, radii, LOWER, OPTIMISE, nobody, none, stages, new_scratch(S))
    np.testing.assert_array_equal(plan.arrays.v_lower, v)
    for t, s in np.ndindex(policy.shape):
        if not setting.terminal[s]:
            span = slice(setting.pair_start[s], setting.pair_start[s + 1])
            winners = setting.pair_action[span][q[t, span] == q[t, span].max()]
            expected = policy[t, s] if policy[t, s] in winners else winners[0]
            assert plan.baseline(t, s) == expected
    upper = policy_values(here.knowledge, plan.arrays.baseline, +1)
    np.testing.assert_array_equal(plan.arrays.v_upper, upper)


@pytest.mark.parametrize("charge", CHARGES)
@fewer
@given(seed=seeds)
def test_a_prior_written_out_for_every_step_is_the_same_prior(charge: str, seed: int) -> None:
    here = case(seed, "hoeffding", "estimated")
    prior = draw_policy(here.setting, np.random.default_rng([seed, 1]))[0]
    written = np.repeat(prior[None], here.setting.horizon, axis=0)
    once, often = (
        TabularPlan(here.setting, here.knowledge, each, charge=charge) for each in (prior, written)
    )
    for one, other in zip(once.arrays, often.arrays, strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_action_that_is_not_allowed_never_reaches_the_kernels() -> None:
    setting = Setting.declare(n_states=2, n_actions=2, horizon=1, allowed=[[1, 0], [1, 1]])
    nothing = Knowledge.empty(setting, Bounds(), episodes=None, total_episodes=None)
    with pytest.raises(CharyError, match="t = 0, s = 0"):
        TabularPlan(setting, nothing, np.zeros(2, dtype=np.int64), fixed=np.ones((1, 2), dtype=np.int64))


def play(mdp: FiniteMDP, policy: Ints | None, episodes: int, rng: np.random.Generator) -> Log:
    """Log whole episodes of a policy (H, S), or of chance; rewards in the problem's own units."""
    columns: dict[str, Any] = {
        name: [] for name in ("episode", "t", "state", "action", "reward", "next_state", "terminated")
    }
    acting = np.flatnonzero(~mdp.setting.terminal)
    for k in range(episodes):
        s = int(acting[k % len(acting)])
        for t in range(mdp.horizon):
            allowed = np.flatnonzero(mdp.setting.allowed[s])
            a = int(rng.choice(allowed)) if policy is None else int(policy[t, s])
            successors, chances, rewards = mdp.row(s, a)
            place = int(rng.choice(len(successors), p=chances / chances.sum()))
            x = int(successors[place])
            ended = bool(mdp.setting.terminal[x])
            earned = mdp.scale.low + float(rewards[place]) * mdp.scale.span
            for name, cell in zip(columns, (k, t, s, a, earned, x, ended), strict=True):
                columns[name].append(cell)
            if ended:
                break
            s = x
    return Log(**columns)


def tally_of(log: Log, setting: Setting) -> Tally:
    counts, earned = (np.zeros((setting.n_pairs, setting.n_states)) for _ in range(2))
    squares = np.zeros(setting.n_pairs)
    pair = setting.pair_index[log.state, log.action]
    reward = (log.reward - setting.scale.low) / setting.scale.span
    np.add.at(counts, (pair, log.next_state), 1.0)
    np.add.at(earned, (pair, log.next_state), reward)
    np.add.at(squares, pair, reward**2)
    return Tally(counts, earned, squares)


def plug_in_value(tally: Tally, setting: Setting, policy: Ints) -> Floats:
    """Return V_0 of a policy where counts are the truth and pairs never seen are worth 0."""
    v = np.zeros(setting.n_states)
    for t in reversed(range(setting.horizon)):
        now = np.zeros(setting.n_states)
        for s in np.flatnonzero(~setting.terminal):
            p = setting.pair_index[s, policy[t, s]]
            n = tally.counts[p].sum()
            if n:
                now[s] = (tally.rewards[p].sum() + setting.discount * tally.counts[p] @ v) / n
        v = now
    return v


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("reward", REWARDS)
@fewer
@given(seed=seeds)
def test_the_model_gives_the_references_bounds_at_the_logged_starts(
    family: str, reward: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mdp = draw_mdp(rng)
    setting = mdp.told(reward)
    log = play(mdp, None, int(rng.integers(1, 40)), rng)
    policy = draw_policy(setting, rng)
    bounds = Bounds(family=family)
    found = evaluate_policy(log, policy, setting, bounds=bounds)
    tally = tally_of(log, setting)
    trust = Confidence(setting=setting, bounds=bounds, episodes=log.n_episodes, total_episodes=log.n_episodes)
    starts = log.state[log.t == 0]
    lower, upper = (
        reference.backward(tally, trust, sign=sign, policy=policy).V[0, starts].mean() for sign in (-1, 1)
    )
    tolerance = tolerance_of(family, reward)
    assert found.lower == pytest.approx(lower, rel=0, abs=tolerance)
    assert found.upper == pytest.approx(upper, rel=0, abs=tolerance)
    plain = plug_in_value(tally, setting, policy)[starts].mean()
    assert found.estimate == pytest.approx(plain, rel=0, abs=ROUNDING)
    assert found.lower - ROUNDING <= found.estimate <= found.upper + ROUNDING
    assert (found.standing.level == "certified", found.method) == (bounds.certified, "model")
    assert (found.episodes, found.transitions) == (log.n_episodes, log.n_transitions)


def priced(mdp: FiniteMDP, scale: RewardScale, **options: Any) -> tuple[Setting, Setting]:
    """Return a problem's setting as it is, and with rewards in other units."""
    shape = {"n_states": mdp.n_states, "n_actions": mdp.n_actions, "horizon": mdp.horizon}
    kept = {**shape, "allowed": mdp.setting.allowed, "discount": mdp.setting.discount, **options}
    return Setting.declare(**kept), Setting.declare(**kept, scale=scale)


@pytest.mark.parametrize("method", ["model", "returns"])
@pytest.mark.parametrize("scale", [RewardScale(-10.0, 30.0), RewardScale(5.0, 6.0), RewardScale(0.0, 4.0)])
def test_values_are_in_the_users_own_units(method: str, scale: RewardScale) -> None:
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.ones(3), size=(3, 2))
    mdp = FiniteMDP.from_arrays(P, rng.random((3, 2)), horizon=4, discount=0.9)
    policy = draw_policy(mdp.setting, rng)
    log = play(mdp, policy, 200, rng)
    columns: dict[str, Any] = {**log.columns(), "reward": scale.low + log.reward * scale.span}
    dear = Log(**columns)
    scaled, raw = priced(mdp, scale)
    one = evaluate_policy(log, policy, scaled, method=method)
    other = evaluate_policy(dear, policy, raw, method=method)
    offset = scale.low * (1 + 0.9 + 0.9**2 + 0.9**3)
    for name in ("estimate", "lower", "upper"):
        expected = offset + scale.span * getattr(one, name)
        assert getattr(other, name) == pytest.approx(expected, abs=1e-9), name


def coins(heads: int, tails: int, horizon: int = 1) -> Log:
    """Log episodes of one step in one state that earn 1 or 0."""
    n = heads + tails
    nothing = np.zeros(n, dtype=np.int64)
    return Log(
        episode=np.arange(n),
        t=nothing,
        state=nothing,
        action=nothing,
        reward=np.repeat([1.0, 0.0], [heads, tails]),
        next_state=nothing if horizon == 1 else nothing + 1,
        terminated=np.full(n, horizon > 1),
    )


ONE_STEP = Setting.declare(n_states=1, n_actions=1, horizon=1)


def test_the_interval_of_returns_is_maurer_and_pontils() -> None:
    found = evaluate_policy(coins(600, 400), [0], ONE_STEP, method="returns", delta=0.05)
    # Mean 0.6, sample variance 1000/999 * 0.24; sqrt(2 v ln(80) / 1000) + 7 ln(80) / (3 * 999).
    radius = math.sqrt(2 * 0.24 * 1000 / 999 * math.log(80) / 1000) + 7 * math.log(80) / 2997
    assert found.estimate == pytest.approx(0.6)
    assert found.lower == pytest.approx(0.6 - radius)
    assert found.upper == pytest.approx(0.6 + radius)
    assert (found.standing.label, found.method) == ("certified per evaluation (0.95)", "returns")
    assert found.delta == 0.05
    assert (found.episodes, found.transitions) == (1000, 1000)
    assert found.note == "Holds for independent episodes that start like those to come."


def test_one_episode_tells_nothing_beyond_the_range() -> None:
    found = evaluate_policy(coins(1, 0), [0], ONE_STEP, method="returns")
    assert (found.estimate, found.lower, found.upper) == (1.0, 0.0, 1.0)


def test_the_range_of_returns_is_that_of_episodes_not_of_values() -> None:
    # Rewards of 0 to 1 at three steps: an episode may earn 3, even where no policy is worth more than 1.
    capped = Setting.declare(n_states=2, n_actions=1, horizon=3, terminal=[1], value_cap=1.0)
    found = evaluate_policy(coins(300, 700, horizon=3), [0, 0], capped, method="returns", delta=0.1)
    chance = math.log(40)
    radius = math.sqrt(2 * 0.21 * 1000 / 999 * chance / 1000) + 7 * 3 * chance / 2997
    assert found.lower == pytest.approx(0.3 - radius)
    told = evaluate_policy(
        coins(300, 700, horizon=3), [0, 0], capped, method="returns", delta=0.1, return_range=(0, 1)
    )
    assert told.lower == pytest.approx(0.3 - radius + 7 * 2 * chance / 2997)


def test_a_cap_that_the_returns_belie_is_refused() -> None:
    low = Setting.declare(n_states=1, n_actions=1, horizon=1, value_cap=0.3)
    with pytest.raises(InvalidData, match=r"'value_cap' must bound every policy's value, got 0\.3"):
        evaluate_policy(coins(900, 100), [0], low, method="returns")
    # A mean that is above the cap by chance is no proof.
    assert evaluate_policy(coins(4, 6), [0], low, method="returns").estimate == 0.3


@pytest.mark.parametrize("method", ["model", "returns"])
def test_intervals_cover_the_true_value_as_often_as_they_promise(method: str) -> None:
    rng = np.random.default_rng(11)
    P = rng.dirichlet(np.ones(4), size=(4, 2))
    mdp = FiniteMDP.from_arrays(P, rng.random((4, 2, 4)), horizon=3, discount=0.9)
    policy = draw_policy(mdp.setting, rng)
    value = reference.exact(mdp, policy).V[0].mean()
    found = [
        evaluate_policy(play(mdp, policy, 100, rng), policy, mdp.setting, method=method) for _ in range(60)
    ]
    missed = sum(not each.lower <= value <= each.upper for each in found)
    # 60 tosses with a chance of 0.1: 19 or more misses are less likely than 1e-5.
    assert missed < 19
    assert np.mean([each.estimate for each in found]) == pytest.approx(value, abs=0.05)
    # An interval that tells nothing would cover, too.
    assert np.mean([each.upper - each.lower for each in found]) < 0.8 * float(mdp.setting.value_bounds[0])


def test_what_the_log_does_not_show_is_said_and_counts_nothing() -> None:
    setting = Setting.declare(n_states=2, n_actions=2, horizon=2)
    log = Log(
        episode=[0, 0],
        t=[0, 1],
        state=[0, 1],
        action=[0, 0],
        reward=[0.5, 0.5],
        next_state=[1, 1],
        terminated=[0, 0],
    )
    shown = evaluate_policy(log, [0, 0], setting)
    assert shown.estimate == 1.0
    assert "does not contain" not in shown.note
    half = evaluate_policy(log, [0, 1], setting)
    assert half.estimate == 0.5
    assert "does not contain the policy's action in 1 of the states" in half.note
    assert "worth 0.5" in half.describe()
    assert half.to_json()["note"] == half.note


def test_a_log_that_another_policy_made_is_refused_with_its_rows() -> None:
    setting = Setting.declare(n_states=1, n_actions=2, horizon=1)
    log = Log(
        episode=[4, 5, 6],
        t=[0, 0, 0],
        state=[0, 0, 0],
        action=[1, 0, 0],
        reward=[0, 0, 0],
        next_state=[0, 0, 0],
        terminated=[0, 0, 0],
        row=[2, 3, 4],
        unit="row",
    )
    with pytest.raises(InvalidData, match=r"got 0 and not 1 at t = 0, s = 0, in row 3 and 1 more row\."):
        evaluate_policy(log, [1], setting, method="returns")


def test_an_episode_that_was_cut_off_has_no_return() -> None:
    longer = Setting.declare(n_states=1, n_actions=1, horizon=2)
    with pytest.raises(InvalidData, match=r"shorter than 2 .* got false at t = 0 in entry 0 and 9 more"):
        evaluate_policy(coins(5, 5), [0], longer, method="returns")
    # The model has no use for endings.
    assert evaluate_policy(coins(5, 5), [0], longer).estimate == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"log": None}, InvalidSetting, "'log' must be a Log"),
        ({"setting": None}, InvalidSetting, "'setting' must be a Setting"),
        ({"policy": [0, 0]}, InvalidSetting, "'policy' must be actions"),
        ({"method": "model!"}, UnknownName, "Did you mean 'model'"),
        ({"method": ["model"]}, UnknownName, "'method' must be one of"),
        ({"bounds": "kl"}, InvalidSetting, "'bounds' must be Bounds"),
        ({"delta": 0}, InvalidSetting, "'delta' must lie in"),
        ({"delta": float("nan")}, InvalidSetting, "'delta' must lie in"),
        ({"return_range": (0, 1)}, InvalidSetting, "'return_range' must be left out"),
        ({"method": "returns", "return_range": (1, 0)}, InvalidSetting, "low < high"),
        ({"method": "returns", "return_range": (2, 3)}, InvalidSetting, "low < high"),
        ({"method": "returns", "return_range": 1}, InvalidSetting, "must be two finite numbers"),
        ({"method": "returns", "return_range": (0, math.inf)}, InvalidSetting, "must be two finite numbers"),
        ({"method": "returns", "return_range": (0, 1, 2)}, InvalidSetting, "must be two finite numbers"),
        ({"method": "returns", "return_range": (0, 0.5)}, InvalidData, "got 1 in episode 0 and 1 more"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], error: type[CharyError], match: str) -> None:
    given_options: dict[str, Any] = {"log": coins(2, 2), "policy": [0], "setting": ONE_STEP, **change}
    with pytest.raises(error, match=match):
        evaluate_policy(**given_options)


def test_start_weights_are_how_often_episodes_start_where() -> None:
    log = Log(
        episode=[0, 0, 1, 2, 3],
        t=[0, 1, 0, 0, 0],
        state=[0, 2, 2, 2, 0],
        action=[0, 0, 0, 0, 0],
        reward=[0, 0, 0, 0, 0],
        next_state=[2, 0, 0, 0, 0],
        terminated=[0, 0, 0, 0, 0],
    )
    setting = Setting.declare(n_states=4, n_actions=1, horizon=2)
    assert start_weights(log, setting).tolist() == [0.5, 0, 0.5, 0]
    with pytest.raises(InvalidData, match="'state' must lie in"):
        start_weights(log, Setting.declare(n_states=2, n_actions=1, horizon=2))
    with pytest.raises(InvalidSetting, match="'log' must be a Log"):
        start_weights([], setting)  # type: ignore[arg-type]
