"""The deep learner: its parts by numbers worked by hand, its laws on a small task of a point in a square."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from chary.errors import CharyError, InvalidAction, InvalidBudget, InvalidSetting, UnknownName
from chary.shield import Rule

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
deep: Any = pytest.importorskip("chary.deep")
bonus = pytest.importorskip("chary.deep.bonus")
learner = pytest.importorskip("chary.deep.learner")
losses = pytest.importorskip("chary.deep.losses")
networks = pytest.importorskip("chary.deep.networks")
replay = pytest.importorskip("chary.deep.replay")

HORIZON = 20
SMALL = {
    "learner": "networks",
    "episodes": 30,
    "discount": 0.95,
    "width": 16,
    "features": 16,
    "batch": 16,
    "fresh": 12,
    "replay": 500,
    "warm_up": 5,
    "pretraining": 0,
    "learning_rate": 3e-3,
    "tau": 0.02,
    "beta": 1.0,
    "optimism": 1.0,
    "length_scale": 1.0,
}


MOVES = np.array([[0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def point(*, ends: bool = False) -> Any:
    """Return a point in a square that moves by 0.2 in four directions and is paid for being at the centre.

    With `ends`, leaving through the right edge ends the episode.
    """

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (2,), jnp.float64, -1.0, 1.0)

    def step(state: Any, action: Any) -> Any:
        after = state + jnp.asarray(MOVES)[action]
        out = (after[0] > 1.0) & ends
        inside = jnp.clip(after, -1.0, 1.0)
        return inside, -jnp.sum(jnp.square(inside)), out

    return deep.Environment(reset, lambda state: state, step, 4, HORIZON)


def options(**changes: Any) -> Any:
    return deep.DeepOptions(**{**SMALL, **changes})


@cache
def runner(ends: bool, given: Any) -> Any:
    return jax.jit(lambda key, rule: deep.train(point(ends=ends), given, key, rule=rule))


def run(given: Any, seed: int = 0, *, rule: Rule | None = None, ends: bool = False) -> tuple[Any, Any]:
    state, log = runner(ends, given)(jax.random.key(seed), rule or given.budget_rule)
    return state, log


def as_bytes(tree: Any) -> bytes:
    leaves = jax.tree.leaves(tree)
    plain = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return b"".join(np.asarray(leaf).tobytes() for leaf in plain)


# --- parts ---


def featurise_by_numpy(directions: Any, phases: Any, observations: Any) -> Any:
    """Return the features of `bonus.featurise`, by NumPy."""
    waves = np.cos(observations @ directions + phases)
    return np.asarray(np.sqrt(2.0 / len(phases)) * waves, np.float32)


def learn_by_numpy(inverse: Any, phi: Any, action: int) -> Any:
    """Return the inverses of `bonus.learn`, by inverting the matrix in float64."""
    after = inverse.copy()
    own = slice(action * len(phi), (action + 1) * len(phi))
    after[:, own] = np.linalg.inv(np.linalg.inv(inverse[:, own].astype(np.float64)) + np.outer(phi, phi))
    return after


def bonuses_by_numpy(inverse: Any, phi: Any, actions: Any) -> Any:
    """Return the bonuses of `bonus.bonuses`, row by row."""
    matrices = np.split(inverse, inverse.shape[1] // phi.shape[1], axis=1)
    rows = [np.sqrt(max(row @ matrices[a] @ row, 0.0)) for row, a in zip(phi, actions, strict=True)]
    return np.array(rows, np.float32)


def test_double_q_targets_by_hand() -> None:
    # Online prefers action 1, valued 4 by the target network: 1 + 0.5 + 0.9 * 4; the second transition ends.
    targets = losses.double_q_targets(
        jnp.array([1.0, 2.0]),
        jnp.array([0.5, 0.25]),
        jnp.array([0.0, 1.0]),
        jnp.array([[0.0, 3.0], [1.0, 0.0]]),
        jnp.array([[9.0, 4.0], [7.0, 7.0]]),
        0.9,
    )
    np.testing.assert_allclose(targets, [5.1, 2.25])


def test_evaluation_targets_follow_the_policy_evaluated_by_hand() -> None:
    # The policy plays 0, though 1 is worth more: 1 - 0.5 + 0.5 * 2.
    targets = losses.evaluation_targets(
        jnp.array([1.0]), jnp.array([-0.5]), jnp.array([0.0]), jnp.array([[2.0, 8.0]]), jnp.array([0]), 0.5
    )
    np.testing.assert_allclose(targets, [1.5])


def test_huber_is_a_square_and_then_its_tangent() -> None:
    np.testing.assert_allclose(losses.huber(jnp.array([0.0, -1.0, 2.0, -5.0]), 2.0), [0.0, 0.5, 2.0, 8.0])
    np.testing.assert_allclose(losses.huber(jnp.array([-5.0]), math.inf), [12.5])


def test_the_cql_penalty_by_hand() -> None:
    # log(e^0 + e^0) - 0 = log 2; log(e^1 + e^1) - 1 = log 2.
    values = jnp.array([[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(losses.cql_penalty(values, jnp.array([0, 1])), math.log(2.0), rtol=1e-6)


def test_forward_by_hand_with_time_to_go_as_last_input() -> None:
    # Inputs (2, 0.75); hidden: relu(2 + 0.75, -2) = (2.75, 0), then (6, 0.5); output 6 - 0.5.
    net = networks.Networks(
        jnp.array([[[1.0, -1.0], [1.0, 0.0]]]),
        jnp.zeros((1, 1, 2)),
        jnp.array([[[2.0, 0.0], [0.0, 2.0]]]),
        jnp.array([[[0.5, 0.5]]]),
        jnp.array([[[1.0, -1.0]]]),
        jnp.zeros((1, 1, 1)),
    )
    inputs = networks.with_time(jnp.array([2.0]), jnp.int32(5), 20)
    assert inputs.dtype == jnp.float32
    np.testing.assert_allclose(inputs, [2.0, 0.75])
    np.testing.assert_allclose(networks.forward(net, inputs[None]), [[[5.5]]])


def test_networks_side_by_side_are_networks_alone() -> None:
    three = networks.first_networks(jax.random.key(3), 4, 8, 5)
    x = jax.random.normal(jax.random.key(4), (7, 4), jnp.float32)
    together = networks.forward(three, x)
    for i in range(3):
        np.testing.assert_allclose(
            networks.forward(networks.one(three, i), x)[0], together[i], rtol=1e-5, atol=1e-6
        )


def test_the_bonus_and_its_features_are_those_of_the_numpy_twin() -> None:
    features = bonus.first_features(jax.random.key(0), 3, 64, 1.5)
    inverse = bonus.first_inverse(4, 64, 0.5)
    twin = np.array(inverse)
    rng = np.random.default_rng(1)
    learn, featurise, bonuses = jax.jit(bonus.learn), jax.jit(bonus.featurise), jax.jit(bonus.bonuses)
    for _ in range(60):
        seen, action = rng.normal(size=3).astype(np.float32), int(rng.integers(3))
        phi = featurise(features, jnp.asarray(seen))
        phi_twin = featurise_by_numpy(np.asarray(features.directions), np.asarray(features.phases), seen)
        np.testing.assert_allclose(phi, phi_twin, atol=1e-5)
        inverse, after = learn(inverse, phi, action)
        twin = learn_by_numpy(twin, phi_twin, action)
        # The bonus that comes with it is the one asked for afterwards.
        np.testing.assert_allclose(after, bonuses(inverse, phi[None], jnp.array([action]))[0], atol=1e-4)
    np.testing.assert_allclose(inverse, twin, atol=2e-4)
    asked = rng.normal(size=(32, 3)).astype(np.float32)
    actions = rng.integers(0, 4, 32).astype(np.int32)
    phi = bonus.featurise(features, asked)
    ours = bonus.bonuses(inverse, phi, actions)
    np.testing.assert_allclose(ours, bonuses_by_numpy(twin, np.asarray(phi), actions), atol=1e-4)
    # Nothing was ever seen of action 3: its bonus is that of no data.
    unseen = np.linalg.norm(phi, axis=1) / math.sqrt(0.5)
    np.testing.assert_allclose(np.asarray(ours)[actions == 3], unseen[actions == 3], rtol=1e-5)


def test_a_bonus_never_grows_and_falls_as_one_over_the_root_of_visits() -> None:
    # One feature vector of length c: after n visits b^2 = c^2 / (ridge + n c^2).
    phi = jnp.array([0.6, 0.8], jnp.float32)
    inverse = bonus.first_inverse(1, 2, 1.0)
    for n in range(1, 6):
        inverse, _ = bonus.learn(inverse, phi, 0)
        np.testing.assert_allclose(
            bonus.bonuses(inverse, phi[None], jnp.array([0])), [1 / math.sqrt(1 + n)], rtol=1e-5
        )
    np.testing.assert_array_equal(bonus.learn(inverse, phi, 0, 0.0)[0], inverse)


def test_the_ring_forgets_the_oldest_and_draws_only_what_was_kept() -> None:
    ring = replay.empty_replay(3, 2)
    for i in range(5):
        x = jnp.full(2, float(i), jnp.float32)
        ring = replay.keep(ring, x, x + 1, jnp.int32(i), jnp.float64(-i), jnp.bool_(i == 4), jnp.float32(0.5))
        if i == 0:
            alone = replay.sample(ring, jax.random.key(0), 16)
            assert set(np.asarray(alone.actions)) == {0}
    same = replay.keep(
        ring, x, x, jnp.int32(9), jnp.float64(9.0), jnp.bool_(False), jnp.float32(9.0), jnp.bool_(False)
    )
    assert as_bytes(same) == as_bytes(ring)
    batch = replay.sample(ring, jax.random.key(1), 3000)
    actions = np.asarray(batch.actions)
    np.testing.assert_array_equal(batch.rewards, -actions)
    np.testing.assert_array_equal(batch.next_inputs[:, 0], actions + 1)
    np.testing.assert_array_equal(batch.ended, actions == 4)
    renewed = replay.renew(ring, batch.places[:1], jnp.array([0.25], jnp.float32))
    again = replay.sample(renewed, jax.random.key(1), 3000)
    np.testing.assert_array_equal(again.bonuses, np.where(actions == actions[0], 0.25, 0.5))
    # 1,000 each, deviation 26: 5 of them are 130.
    assert set(actions) == {2, 3, 4}
    assert all(abs(np.sum(actions == i) - 1000) < 130 for i in (2, 3, 4))


def test_charges_are_free_for_the_baseline_and_for_nobody_else() -> None:
    # Q_lo = (1, 3, 2): the baseline plays 1. Q_hi of that is 4, so the others cost 4 - 1 and 4 - 2.
    said = learner.prices(jnp.array([[0.0, 0.0, 5.0], [9.0, 4.0, 9.0], [1.0, 3.0, 2.0]]))
    assert (int(said.explorer), int(said.baseline)) == (2, 1)
    np.testing.assert_allclose(said.charges, [3.0, 0.0, 2.0])
    # An upper bound below the lower one counts as that.
    said = learner.prices(jnp.array([[0.0, 0.0, 5.0], [9.0, -4.0, 9.0], [1.0, 3.0, 2.0]]))
    np.testing.assert_allclose(said.charges, [2.0, 0.0, 1.0])


@pytest.mark.parametrize("lower", ["lcb", "cql"])
def test_an_update_moves_every_network_towards_its_goal(lower: str) -> None:
    given = options(lower=lower, cql_weight=0.0, learning_rate=1e-3)
    state = jax.jit(partial(learner.first_state, given, 2, 4))(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 3)
    batch = replay.Batch(
        jax.random.normal(keys[0], (16, 3), jnp.float32),
        jax.random.normal(keys[1], (16, 3), jnp.float32),
        jnp.arange(16, dtype=jnp.int32) % 4,
        jax.random.normal(keys[2], (16,), jnp.float32),
        jnp.ones(16, jnp.float32),
        jnp.full(16, 7.0, jnp.float32),
        jnp.arange(16, dtype=jnp.int32),
    )
    state, batch = jax.jit(partial(learner.looked_up, given))(state, batch)
    towards = jax.jit(partial(learner.goals, given))(state, batch)
    b = bonus.bonuses(state.inverse, bonus.featurise(state.features, batch.inputs[:, :-1]), batch.actions)
    # Of the last four, the bonus is as old as it was.
    assert given.fresh == 12
    b = jnp.where(jnp.arange(16) < 12, b, 7.0)
    np.testing.assert_allclose(state.replay.rows[:16, -1], jnp.where(jnp.arange(16) < 12, b, 0.0), rtol=1e-5)
    signs = (1.0, 1.0, -1.0 if lower == "lcb" else 0.0)
    for i, sign in enumerate(signs):
        np.testing.assert_allclose(towards[i], batch.rewards + sign * b, rtol=1e-5, atol=1e-6)
    move = jax.jit(partial(learner.update, given))
    after, before = move(state, batch)
    for _ in range(20):
        after, now = move(after, batch)
    assert np.all(np.asarray(now) < np.asarray(before))
    assert int(after.updates) == 21
    assert all(leaf.dtype == jnp.float32 for leaf in (*after.networks, *after.targets, after.inverse))


def test_targets_follow_by_average_or_by_copies() -> None:
    x = jnp.ones((16, 3), jnp.float32)
    ones, none = jnp.ones(16, jnp.float32), jnp.zeros(16, jnp.int32)
    batch = replay.Batch(x, x, none, ones, ones, ones, none)
    for changes in ({"target": "polyak", "tau": 0.25}, {"target": "period", "period": 2}):
        given = options(**changes)
        state = jax.jit(partial(learner.first_state, given, 2, 4))(jax.random.key(0))
        update = jax.jit(partial(learner.update, given))
        once, _ = update(state, batch)
        twice, _ = update(once, batch)
        if given.target == "polyak":
            mixed = 0.25 * once.networks.w3 + 0.75 * state.targets.w3
            np.testing.assert_allclose(once.targets.w3, mixed, rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(once.targets.w3, state.targets.w3)
            np.testing.assert_array_equal(twice.targets.w3, twice.networks.w3)


# --- laws of training ---


def by_chance() -> float:
    """Return the mean reward of an episode of random moves, by NumPy."""
    rng, total = np.random.default_rng(0), 0.0
    for _ in range(500):
        place = rng.uniform(-1.0, 1.0, 2)
        for _ in range(HORIZON):
            place = np.clip(place + MOVES[rng.integers(4)], -1.0, 1.0)
            total -= float(np.sum(place**2))
    return total / 500


def test_dqn_improves_over_random() -> None:
    learning = options(agent="dqn", episodes=150, pretraining=50, anneal=0.4, epsilon_end=0.0)
    _, log = run(learning)
    late = float(np.mean(log.rewards[-40:]))
    assert late > 0.5 * by_chance()
    assert late > float(np.mean(log.rewards[:20]))
    np.testing.assert_array_equal(log.deficit, 0.0)


@pytest.mark.parametrize(
    "changes", [{}, {"chains": False}, {"rule": "capped", "step_bound": 0.05, "clock": "meta"}]
)
def test_chary_never_books_beyond_a_tiny_budget(changes: dict[str, Any]) -> None:
    # Without chains the first step is refused for ever, were the budget as tiny.
    eta = 0.2 if changes.get("chains", True) else 2.0
    _, log = run(options(eta=eta, **changes))
    deficit = np.asarray(log.deficit)
    assert np.all(deficit <= eta)
    assert np.any(deficit > 0.0)
    assert np.any(np.asarray(log.explored) > 0)
    if "rule" not in changes:
        # Whatever differs from the baseline was charged and booked.
        np.testing.assert_allclose(log.charges, deficit, atol=1e-12)


def test_a_larger_budget_buys_deviations_and_none_buys_none() -> None:
    given = options(eta=0.2)
    _, nothing = run(given, rule=Rule.strict(0.0))
    _, plenty = run(given, rule=Rule.strict(50.0))
    _, closed = run(given, rule=Rule.closed())
    np.testing.assert_array_equal(nothing.deviated, 0)
    np.testing.assert_array_equal(nothing.deficit, 0.0)
    np.testing.assert_array_equal(closed.explored, 0)
    assert np.sum(plenty.deviated) > 50
    assert np.all(np.asarray(plenty.steps) == HORIZON)


def test_the_papers_rule_exceeds_half_the_budget_by_one_charge_at_most() -> None:
    # What is compiled does not depend on the rule.
    _, log = run(options(eta=0.2), rule=Rule.named("paper", eta=0.4, step_bound=None, after_refusal="close"))
    assert np.all(np.asarray(log.deficit) <= 0.2 + np.asarray(log.largest_charge) + 1e-12)
    assert np.any(np.asarray(log.deficit) > 0.2)


def test_the_same_key_gives_the_same_bytes_and_another_key_others() -> None:
    given = options(eta=0.2)
    first, again, other = (as_bytes(run(given, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_seeds_and_budgets_side_by_side_are_runs_alone() -> None:
    # Products of batches round differently, and training multiplies that; over six episodes it stays small.
    given = options(episodes=6)
    budgets = (0.1, 5.0)
    rules = Rule(*(jnp.asarray(column) for column in zip(*map(Rule.strict, budgets), strict=True)))
    keys = jnp.stack([jax.random.key(seed) for seed in (3, 4)])
    both = jax.jit(jax.vmap(lambda key, rule: deep.train(point(), given, key, rule=rule)))(keys, rules)
    for i, (seed, eta) in enumerate(zip((3, 4), budgets, strict=True)):
        state, log = run(given, seed, rule=Rule.strict(eta))
        np.testing.assert_allclose(log.rewards, both[1].rewards[i], rtol=1e-6)
        np.testing.assert_allclose(log.deficit, both[1].deficit[i], rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(log.explored, both[1].explored[i])
        np.testing.assert_allclose(state.networks.w2, both[0].networks.w2[i], atol=1e-3)


@cache
def recorded(episodes: int) -> Any:
    return jax.jit(lambda s: deep.proceed(point(), options(eta=0.2), s, episodes, record=True))


@cache
def begun() -> Any:
    return jax.jit(partial(deep.begin, point(), options(eta=0.2, pretraining=50)))(jax.random.key(5))


def test_a_run_in_parts_is_the_run_to_the_last_byte() -> None:
    first, _, _ = recorded(1)(begun())
    second, _, _ = recorded(1)(first)
    together, _, _ = recorded(2)(begun())
    assert as_bytes(second) == as_bytes(together)


def test_steps_are_kept_on_request_and_the_plan_gives_them_again() -> None:
    state, log, steps = recorded(1)(begun())
    assert steps.action.shape == (1, HORIZON)
    assert steps.observation.shape == (1, HORIZON, 2)
    np.testing.assert_allclose(np.sum(steps.reward), log.rewards[0])
    assert np.sum(steps.explored) == log.explored[0]
    times = jnp.arange(HORIZON)
    inputs = jax.vmap(lambda o, t: networks.with_time(o, t, HORIZON))(steps.observation[0], times)
    said = jax.vmap(learner.prices, in_axes=1)(networks.forward(state.plan, inputs))
    np.testing.assert_array_equal(said.baseline, steps.baseline[0])
    played = np.where(steps.explored[0], said.explorer, said.baseline)
    np.testing.assert_array_equal(played, steps.action[0])


def test_nothing_is_learnt_from_steps_after_an_early_end() -> None:
    given = options(agent="random", episodes=40)
    state, log = run(given, ends=True)
    steps = np.asarray(log.steps)
    assert steps.min() < HORIZON
    assert steps.max() == HORIZON
    assert int(state.replay.written) <= HORIZON * (given.warm_up + given.episodes)
    kept = np.asarray(state.replay.rows[: min(int(state.replay.written), given.replay)])
    # A row that ended before the horizon has left through the right edge, and is the last of its episode.
    early = kept[(kept[:, 8] == 1.0) & (kept[:, 5] > 0.0)]
    assert len(early) > 0
    np.testing.assert_allclose(early[:, 3], 1.0)
    np.testing.assert_array_equal(early[:, 6], 0.0)
    # Times left fall by one step a row, or start anew after an end: nothing was kept in between.
    if int(state.replay.written) <= given.replay:
        follows = np.isclose(kept[1:, 2], kept[:-1, 5], atol=1e-6)
        np.testing.assert_array_equal(kept[1:, 2][~follows], 1.0)
        np.testing.assert_array_equal(kept[:-1, 8][~follows], 1.0)


def test_all_agents_learn_the_same_baseline_from_the_same_data() -> None:
    """What judges an agent depends on shared options and data, and not on the agent."""

    def lower_of(agent: str) -> Any:
        given = options(agent=agent, warm_up=2, pretraining=20)
        state = jax.jit(partial(deep.begin, point(), given))(jax.random.key(4))
        return networks.one(state.networks, networks.LOWER)

    reference = lower_of("chary")
    for agent in ("dqn", "cql", "sac", "random"):
        for found, expected in zip(lower_of(agent), reference, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=agent)


# --- what users get wrong ---


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"agent": "dqm"}, UnknownName),
        ({"lower": "lbc"}, UnknownName),
        ({"target": 3}, UnknownName),
        ({"rule": "capped"}, InvalidSetting),
        ({"eta": -1.0}, InvalidBudget),
        ({"eta": math.nan}, InvalidBudget),
        ({"episodes": 0}, InvalidSetting),
        ({"episodes": 2.5}, InvalidSetting),
        ({"batch": True}, InvalidSetting),
        ({"discount": 1.01}, InvalidSetting),
        ({"tau": 0.0}, InvalidSetting),
        ({"learning_rate": math.inf}, InvalidSetting),
        ({"huber": 0.0}, InvalidSetting),
        ({"radius": -0.1}, InvalidSetting),
        ({"patience": -1}, InvalidSetting),
        ({"chains": 1}, InvalidSetting),
        ({"replay": 2**31}, InvalidSetting),
        ({"pretraining": 9, "warm_up": 0}, InvalidSetting),
        ({"fresh": 0}, InvalidSetting),
        ({"ridge": "1"}, InvalidSetting),
    ],
)
def test_options_out_of_range_are_named(changes: dict[str, Any], error: type[CharyError]) -> None:
    with pytest.raises(error, match=next(iter(changes))[:4]):
        options(**changes)


def test_wrong_environments_are_refused_before_anything_is_compiled() -> None:
    given, key, good = options(), jax.random.key(0), point()
    for wrong in (
        good._replace(n_actions=0),
        good._replace(horizon=1.5),
        good._replace(observe=lambda state: state[0]),
        good._replace(step=lambda state, a: (state.astype(jnp.float32), state[0], jnp.bool_(False))),
        good._replace(step=lambda state, a: (state, state, jnp.bool_(False))),
        "a name",
    ):
        with pytest.raises(InvalidSetting):
            deep.train(wrong, given, key)
    with pytest.raises(InvalidSetting, match="options"):
        deep.train(good, {"eta": 1.0}, key)
    with pytest.raises(InvalidSetting, match="key"):
        deep.train(good, given, 0)
    with pytest.raises(InvalidAction, match="action"):
        deep.train(good, options(action=4), key)
    with pytest.raises(InvalidSetting, match="rule"):
        deep.train(good, given, key, rule=0.4)
    with jax.enable_x64(False), pytest.raises(InvalidSetting, match="x64"):
        deep.train(good, given, key)


def test_without_jax_the_extra_is_named() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('jax', 'jaxlib'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import chary, chary.deep\n"
        "chary.deep.DeepOptions(eta=1.0)\n"
        "try:\n"
        "    chary.deep.train\n"
        "except chary.CharyError as error:\n"
        "    print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip().endswith("Run: pip install 'chary[deep]'.")
