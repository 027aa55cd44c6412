"""The paired ensemble: its formulas beside their NumPy twins, and its laws on the small walk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deep_walk import HORIZON, START, go_on, new_agent, small, walk_in_jax

from chary.errors import CharyError, InvalidSetting, UnknownName
from chary.reference import ensemble as twin
from chary.shield import Rule

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")
account: Any = pytest.importorskip("chary.deep.ensemble.account")
ensemble: Any = pytest.importorskip("chary.deep.ensemble.learner")
learners: Any = pytest.importorskip("chary.deep.learners")
pricing: Any = pytest.importorskip("chary.deep.ensemble.pricing")
rollback: Any = pytest.importorskip("chary.deep.ensemble.rollback")
options_of: Any = pytest.importorskip("chary.deep.ensemble.options").EnsembleOptions
networks: Any = pytest.importorskip("chary.deep.networks")
replay: Any = pytest.importorskip("chary.deep.replay")
trees: Any = pytest.importorskip("chary.deep.trees")

OPTIONS = options_of(members=4)
# Small prices for the walk, whose rewards are of the order of 1.
CHEAP = {"members": 3, "floor": 0.05, "offset": 0.01, "margin": 0.05, "z": 1.0, "spread": 0.5}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def walks(agent: str = "chary", **changes: Any) -> Any:
    return small(agent, **{"learner": "ensemble", "ensemble": CHEAP, **changes})


priced = jax.jit(partial(pricing.paired_gaps, OPTIONS))
charged = jax.jit(partial(pricing.pooled_charges, OPTIONS))


def values_of(seed: int, scale: float = 3.0) -> Any:
    return np.random.default_rng(seed).normal(size=(4, 5)) * scale


@pytest.mark.parametrize("seed", range(5))
def test_gaps_are_those_of_the_numpy_twin_and_the_baseline_is_free(seed: int) -> None:
    values = values_of(seed)
    gaps = priced(values)
    for action in range(5):
        baseline, mean, deviation = twin.paired_gap(values, action)
        assert int(gaps.baseline) == baseline
        if action == baseline:
            assert float(gaps.mean[action]) == float(gaps.width[action]) == 0.0
            continue
        assert float(gaps.mean[action]) == pytest.approx(mean, rel=1e-12)
        assert float(gaps.width[action]) == pytest.approx(
            twin.half_width(OPTIONS.spread, OPTIONS.floor, deviation), rel=1e-12
        )
        assert float(pricing.step_bounds(OPTIONS, gaps)[action]) == pytest.approx(
            max(mean + OPTIONS.spread * deviation + OPTIONS.floor, 0.0), rel=1e-12
        )


def test_the_pooled_ledger_grows_by_what_the_twin_says_and_never_shrinks() -> None:
    pool, deviations, total = jnp.zeros(2), [], 0.0
    for seed in range(20):
        gaps = priced(values_of(seed))
        terms = pricing.pooled_terms(OPTIONS, gaps, jnp.float64(1.0))
        costs = charged(pool, terms)
        assert float(costs[int(gaps.baseline)]) == 0.0
        assert np.all(np.asarray(costs) >= 0.0)
        action = (int(gaps.baseline) + 1) % 5
        deviations.append((float(gaps.mean[action]), float(gaps.width[action])))
        total += float(costs[action])
        pool = pool + terms[action]
        bound = twin.pooled_bound(deviations, offset=OPTIONS.offset, z=OPTIONS.z)
        assert total == pytest.approx(bound, rel=1e-9)


def test_prices_do_not_depend_on_the_order_of_members() -> None:
    values = values_of(3)
    one, other = priced(values), priced(values[[2, 0, 3, 1]])
    assert int(one.baseline) == int(other.baseline)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.width, other.width, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_a_charge_that_is_refused(bad: float) -> None:
    values = values_of(1)
    values[2, 0] = bad
    gaps = priced(values)
    costs = np.asarray(charged(jnp.zeros(2), pricing.pooled_terms(OPTIONS, gaps, jnp.float64(1.0))))
    assert int(gaps.baseline) != 0
    assert np.isnan(costs[0])
    assert costs[int(gaps.baseline)] == 0.0


@settings(max_examples=40, deadline=None)
@given(
    seen=st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 5)), min_size=1, max_size=30),
    window=st.sampled_from([1, 3]),
)
def test_rollback_is_that_of_the_twin(seen: list[tuple[float, float]], window: int) -> None:
    with jax.enable_x64(True):
        given = options_of(members=2, margin=4.0, window=window, retreat=2, longest_retreat=4)
        step = judge(given)
        plain = twin.Rollback(4.0, window, 2, 4)
        now = rollback.first_rollback(given, named(-1))
        for candidate, (returned, booked) in enumerate(seen):
            played = int(now.best.w1[0, 0, 0]) if int(now.left) else candidate
            assert played == plain.plays(candidate)
            now = step(now, named(played), now.left > 0, True, returned, booked)
            plain.judge(played, returned, booked)
            assert (int(now.left), int(now.retreats), int(now.length)) == (
                plain.left,
                plain.retreats,
                plain.length,
            )
            assert int(now.best.w1[0, 0, 0]) == plain.best
            assert bool(now.probation) == plain.probation
            assert float(now.mean) == pytest.approx(plain.mean, abs=1e-9)


@cache
def judge(given: Any) -> Any:
    return jax.jit(partial(rollback.judged, given))


def named(number: int) -> Any:
    """Return members that are known by their weights."""
    like = networks.first_networks(jax.random.key(0), 2, 2, 2, 2)
    return networks.Networks(*(jnp.full_like(leaf, number) for leaf in like))


def test_an_episode_whose_return_is_not_known_is_not_judged() -> None:
    first = rollback.first_rollback(OPTIONS, named(0))
    after = judge(OPTIONS)(first, named(1), False, False, 9.0, 0.0)
    assert (int(after.number), float(after.mean)) == (0, -np.inf)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_goals_are_those_of_the_twin_over_the_steps_left(discount: float) -> None:
    given = walks(discount=discount, warm_up=0, pretraining=0)
    sizes = learners.Sizes(6, 4, HORIZON)
    state = jax.jit(partial(ensemble.first_state, given, sizes))(jax.random.key(2))
    state = state._replace(
        targets=networks.Networks(*(leaf + 0.1 for leaf in state.networks)), episodes=jnp.int32(7)
    )
    rng = np.random.default_rng(0)
    seen, reached = rng.normal(size=(2, 4, 6)).astype(np.float32)
    times, ended = np.array([0, 2, 4, 5]), np.array([0.0, 0.0, 1.0, 1.0], np.float32)
    rows = jax.vmap(networks.with_time, (0, 0, None))
    observed, until = np.array([5.0, 6.0, 7.0, 8.0], np.float32), np.array([8.0, 7.0, 0.0, 9.0], np.float32)
    batch = replay.Batch(
        rows(seen, times, HORIZON),
        rows(reached, times + 1, HORIZON),
        jnp.zeros(4, jnp.int32),
        jnp.asarray([1.0, -1.0, 0.5, 2.0], jnp.float32),
        jnp.asarray(ended),
        jnp.zeros(4, jnp.float32),
        jnp.arange(4),
        jnp.asarray(np.stack([observed, until], axis=1)),
    )
    found = np.asarray(jax.jit(partial(ensemble.goals, given))(state, batch))
    f = np.asarray(networks.forward(state.targets, batch.next_inputs), np.float64)
    for i, t in enumerate(times):
        values = twin.steps_left(t + 1, HORIZON, discount) * f[:, i]
        target = twin.member_target(
            float(batch.rewards[i]),
            bool(ended[i]),
            values,
            discount,
            # It counts in episodes 0 to until - 1.
            observed=float(observed[i]) if until[i] > 7 else None,
            share=given.ensemble.observed_share,
        )
        wanted = target / twin.steps_left(t, HORIZON, discount)
        np.testing.assert_allclose(found[:, i], wanted, rtol=2e-5, err_msg=str(i))


def test_returns_to_go_are_those_of_the_twin_and_only_of_whole_episodes() -> None:
    rewards, deviated = np.array([1.0, 2.0, -1.0, 4.0]), np.array([False, True, False, False])
    now = account.first_account(6)._replace(
        rewards=jnp.asarray([*rewards, 9.0, 9.0]),
        deviated=jnp.asarray([*deviated, True, True]),
        written=jnp.asarray([1, 2, 3, 4, 0, 0], jnp.int32),
        length=jnp.int32(4),
    )
    to_go, clean = twin.returns_to_go(rewards, deviated, 0.9)
    found = account.returns_of(now, 0.9)
    assert bool(found.complete)
    np.testing.assert_allclose(np.asarray(found.to_go)[:4], to_go)
    assert float(found.whole) == pytest.approx(to_go[0])
    assert np.asarray(found.clean).tolist() == [*clean, False, False]
    for part in (now._replace(length=jnp.int32(0)), now._replace(written=now.written.at[1].set(0))):
        nothing = account.returns_of(part, 0.9)
        assert not bool(nothing.complete)
        assert not np.asarray(nothing.clean).any()


@cache
def played(given: Any, episodes: int = 12) -> Any:
    with jax.enable_x64(True):
        run = jax.jit(
            lambda key: deep.proceed(
                walk_in_jax(), given, deep.begin(walk_in_jax(), given, key), episodes, record=True
            )
        )
        state, log, steps = run(jax.random.key(3))
        return trees.arrays_of(state), *jax.tree.map(np.asarray, (log, steps))


@pytest.mark.parametrize("explorer", ["upper", "paired", "thompson"])
def test_the_ledger_never_exceeds_the_budget_and_every_deviation_is_booked(explorer: str) -> None:
    given = walks(ensemble={**CHEAP, "explorer": explorer})
    _, log, steps = played(given)
    assert np.all(log.deficit <= given.eta)
    assert np.all(log.explored == log.deviated)
    assert log.deviated.sum() > 0
    np.testing.assert_allclose(log.charges, log.deficit, atol=1e-9)
    # The pooled price of a step is not the bound of its own gap.
    deviated = steps.action != steps.baseline
    assert np.all(steps.bound[~deviated] == 0.0)
    assert np.any(steps.bound[deviated] > 0.0)


def test_nothing_deviates_until_new_networks_have_shown_their_return() -> None:
    _, log, _ = played(walks(eta=1e6))
    assert log.deviated[0] == 0
    assert log.deviated[1:].sum() > 0


def test_an_observed_return_is_kept_where_the_baseline_played_on() -> None:
    given = walks(eta=0.0, warm_up=0, pretraining=0)
    state, log, _ = played(given, 2)
    rows = state["replay.rows"][: 2 * HORIZON, -2:]
    rewards = state["replay.rows"][: 2 * HORIZON, 15]
    for k in range(2):
        own = slice(k * HORIZON, (k + 1) * HORIZON)
        to_go, _ = twin.returns_to_go(rewards[own].astype(float), np.zeros(HORIZON, bool), given.discount)
        np.testing.assert_allclose(rows[own, 0], to_go, rtol=1e-5)
        assert np.all(rows[own, 1] == k + 1 + given.ensemble.observed_for)
        assert to_go[0] == pytest.approx(log.returns[k], rel=1e-6)


def test_members_that_are_not_finite_never_play_and_are_replaced() -> None:
    given = walks()
    with jax.enable_x64(True):
        state = jax.jit(partial(deep.begin, walk_in_jax(), given))(jax.random.key(0))
        poison = networks.Networks(*(leaf.at[1].set(jnp.nan) for leaf in state.targets))
        proceed = jax.jit(lambda state: deep.proceed(walk_in_jax(), given, state, 1, record=True))
        after, log, steps = proceed(state._replace(targets=poison, networks=poison))
    assert np.isfinite(np.asarray(log.deficit)).all()
    assert float(log.deficit[0]) <= given.eta
    assert np.isfinite(np.asarray(steps.bound)).all()
    assert all(np.isfinite(leaf).all() for leaf in (*after.plan.members, *after.networks, *after.targets))
    assert np.asarray(after.unsound).tolist() == [0, 1, 0]
    assert ensemble.ENSEMBLE.counts(given, after)["unsound_members"] == 1


@pytest.mark.parametrize("agent", ["dqn", "cql", "sac", "random", "constant"])
def test_every_agent_learns_the_same_members_from_the_same_data(agent: str) -> None:
    """What judges an agent depends on shared options and data, and not on the agent."""

    def members(name: str) -> Any:
        given = walks(name, warm_up=2, pretraining=20)
        state = jax.jit(partial(deep.begin, walk_in_jax(), given))(jax.random.key(4))
        return ensemble.incumbent(given, state).members

    for found, expected in zip(members(agent), members("chary"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("agent", "changes"),
    [
        ("chary", {}),
        ("chary", {"chains": True, "clock": "meta"}),
        ("chary", {"charge_from": "start", "ensemble": {**CHEAP, "explorer": "thompson"}}),
        ("sac", {}),
        ("cql", {}),
    ],
)
def test_the_step_api_does_what_the_compiled_loop_does(agent: str, changes: dict[str, Any]) -> None:
    episodes = 6
    given = walks(agent, warm_up=0, pretraining=0, **changes)
    state, log, steps = played(given, episodes)
    mine = new_agent(agent, 3, **{**vars_of(given), "warm_up": 0, "pretraining": 0})
    for k in range(episodes):
        decisions = go_on(mine, HORIZON)
        mine.finish(k)
        assert [decision.action for decision in decisions] == steps.action[k].tolist()
        assert [decision.explored for decision in decisions] == steps.explored[k].tolist()
        assert decisions[-1].deficit == pytest.approx(log.deficit[k], rel=1e-5)
    found, wanted = trees.arrays_of(mine._turns.state), state
    assert list(found) == list(wanted)
    for name in wanted:
        if not name.startswith("key"):
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


def vars_of(given: Any) -> dict[str, Any]:
    names = ("learner", "ensemble", "chains", "clock", "charge_from")
    return {name: getattr(given, name) for name in names}


def test_open_episodes_keep_their_pools_and_returns_apart(tmp_path: Any) -> None:
    given = vars_of(walks()) | {"eta": 5.0}
    together, alone = new_agent(**given), new_agent(**given)
    for agent in (together, alone):
        agent.begin("a", START)
    together.begin("b", START)
    place = {"a": START, "b": START}
    for t in range(3):
        for name in ("a", "b"):
            decision = together.act(name, t, place[name])
            if name == "a":
                # Frozen at the same time and with the same pool: the other episode changes nothing.
                assert alone.act("a", t, place["a"]) == decision
    assert float(together.ledger("a").deficit) == float(alone.ledger("a").deficit)
    together.save(tmp_path / "agent.safetensors")
    copy = deep.DeepAgent.load(tmp_path / "agent.safetensors")
    for name in ("a", "b"):
        assert copy.act(name, 3, START) == together.act(name, 3, START)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"members": 1}, InvalidSetting),
        ({"explorer": "ucb"}, UnknownName),
        ({"observed_share": 1.5}, InvalidSetting),
        ({"floor": -1.0}, InvalidSetting),
        ({"z": np.nan}, InvalidSetting),
        ({"window": 0}, InvalidSetting),
        ({"longest_retreat": 1}, InvalidSetting),
        ({"memberz": 5}, UnknownName),
    ],
)
def test_options_out_of_range_are_named(changes: dict[str, Any], error: type[CharyError]) -> None:
    with pytest.raises(error, match=next(iter(changes))):
        walks(ensemble=changes)
    if "memberz" not in changes:
        with pytest.raises(error, match=next(iter(changes))):
            options_of(**changes)


def test_the_papers_agent_learns_by_three_networks() -> None:
    assert (small("paper", learner=None).learns_by, small(learner=None).learns_by) == ("networks", "ensemble")
    with pytest.raises(InvalidSetting, match="learner"):
        small("paper", learner="ensemble")
    assert small("paper", learner=None).chained
    every = small(learner=None)
    assert (every.chained, every.every_step) == (False, True)
    assert not every.budget_rule.closes
    assert Rule.strict(0.75) == every.budget_rule
