"""Linear worlds inside JAX: the same sums, plans and votes as in NumPy, and the same run in every driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.errors import InvalidData, InvalidSetting

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from chary.agents.protocol import Transition  # noqa: E402
from chary.deep import DeepAgent, DeepOptions, DeepSimulation, Environment  # noqa: E402
from chary.deep.learners import Sizes, learner_of  # noqa: E402
from chary.deep.linear import learner as linear  # noqa: E402
from chary.deep.linear.memory import ROWS, Memory, Reservoir, sampled, taught  # noqa: E402
from chary.linear.algebra import Sums, waves, weighed  # noqa: E402
from chary.linear.features import fourier  # noqa: E402
from chary.linear.worlds import LinearWorlds  # noqa: E402
from chary.shield.ledger import Ledger  # noqa: E402
from chary.shield.rule import Rule  # noqa: E402
from chary.shield.worlds import vote_into  # noqa: E402

MODEL: dict[str, Any] = {
    "low": -2.0, "high": 1.0, "features": 6, "worlds": 8, "explorers": 3, "prior": 0.1, "held_out": 0.1,
    "nodes": 12, "length_scale": 1.0,
}  # fmt: skip
WALK = Environment(
    reset=lambda key: 0.1 * jax.random.normal(key, (2,), jnp.float64),
    observe=lambda state: state,
    step=lambda state, a: (
        0.9 * state + 0.2 * (a - 1.0),
        -jnp.abs(state[0]),
        jnp.abs(state[0]) > 1.5,
    ),
    n_actions=3,
    horizon=5,
)


def options(**given: Any) -> DeepOptions:
    model = {**MODEL, **given.pop("model", {})}
    told = {
        "learner": "linear", "linear": model, "episodes": 6, "warm_up": 8, "pretraining": 0, "eta": 0.8,
        "batch": 1, "replay": 1, "discount": 0.9,
    }  # fmt: skip
    return DeepOptions(**{**told, **given})


def test_sums_weigh_every_transition_once_by_its_own_action() -> None:
    rng, n, C, L = np.random.default_rng(0), 150, 200, 4
    with jax.enable_x64(True):
        memory = Memory(
            jnp.asarray(rng.normal(size=(C, 2))),
            jnp.asarray(rng.normal(size=(C, 2))),
            jnp.asarray(rng.integers(0, 3, C), jnp.int32),
            jnp.asarray(rng.normal(size=C)),
            jnp.asarray(rng.random(C) < 0.2),
            jnp.zeros(C, jnp.int32),
            jnp.int32(n),
            jnp.int32(0),
            jnp.int32(0),
        )
        kept = memory.valid & jnp.asarray(rng.random(C) < 0.8)
        features, key = fourier(2, 5, 1.0), jax.random.key(3)
        none = jnp.zeros((3, L, 5))
        empty = Sums(jnp.zeros((3, L, 5, 5)), jnp.zeros((3, L, 5, 5)), none, none, none)

        def phi_of(x: Any) -> Any:
            return waves(jnp, features.frequency, features.phase, x)

        found = jax.jit(lambda: taught(empty, memory, kept, phi_of, key, L))()
        phi, after = (features(np.asarray(each)) for each in (memory.observation, memory.reached))
        after[np.asarray(memory.ended)] = 0.0
        product = 0
        for a in range(3):
            rows = np.flatnonzero(np.asarray(kept) & (np.asarray(memory.action) == a))
            weights = np.zeros((len(rows), L))
            for first in range(0, len(rows), ROWS):
                drawn = jax.random.exponential(jax.random.fold_in(key, product), (ROWS, L), jnp.float64)
                part = rows[first : first + ROWS]
                weights[first : first + ROWS] = drawn[: len(part)]
                product += 1
            gram, moves, earned = weighed(
                np, phi[rows], after[rows], np.asarray(memory.reward)[rows], weights
            )
            np.testing.assert_allclose(found.gram[a], gram, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(found.moves[a], moves, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(found.earned[a], earned, rtol=1e-11, atol=1e-12)


def test_the_plan_is_that_of_numpy_from_the_same_sums() -> None:
    told = options()
    with jax.enable_x64(True):
        state = linear.first_state(told, Sizes(2, 3, 5), jax.random.key(0))
        rng = np.random.default_rng(0)
        features = fourier(2, 6, 1.0)
        worlds = LinearWorlds(features, 3, linear.model_of(told), rng)
        phi = rng.normal(size=(40, 6))
        for a in range(3):
            parts = weighed(
                np, phi, rng.normal(size=(40, 6)), rng.normal(size=40), rng.exponential(size=(40, 11))
            )
            for name, part in zip(("gram", "moves", "earned"), parts, strict=True):
                getattr(worlds.sums, name)[a] += part
        worlds.nodes = rng.normal(size=(12, 2))
        nodes = jnp.asarray(features(worlds.nodes))
        # One place without a node changes nothing.
        nodes, present = jnp.concatenate([nodes, nodes[:1]]), jnp.arange(13) < 12
        found = linear._backwards(told, Sums(*map(jnp.asarray, worlds.sums)), nodes, present, 5)
        np.testing.assert_allclose(found, worlds.plan(5, 0.9).theta, rtol=1e-8, atol=1e-9)
    assert state.theta.shape == (5, 3, 3, 6)


def test_charges_are_what_the_vote_of_the_worlds_books() -> None:
    told = options(model={"risk": 0.2, "margin": 0.05})
    model, rule = linear.model_of(told), Rule.strict(0.8)
    with jax.enable_x64(True):
        state = linear.first_state(told, Sizes(2, 3, 5), jax.random.key(0))
        theta = jnp.asarray(np.random.default_rng(1).normal(size=state.plan.theta.shape))
        plan = state.plan._replace(theta=theta)
        rng, account = np.random.default_rng(2), state.account
        deficits, ledger = [0.0] * 8, Ledger()
        for t in range(5):
            seen = jnp.asarray(rng.normal(size=2), jnp.float32)
            offer = linear.offer(told, plan, account, seen, jnp.int32(t), None, 5)
            action = int(rng.integers(3))
            charges = np.asarray(offer.terms[action]).tolist()
            assert (action == offer.baseline) == (max(charges) == 0.0)
            vote, after = vote_into(deficits, list(charges), ledger, rule, model.panel)
            assert vote.deficit == pytest.approx(float(account.panel + offer.charges[action]), abs=1e-12)
            assert vote.afforded == bool(account.panel + offer.charges[action] <= 0.8)
            if vote.afforded:
                account = linear.booked(
                    told, account, offer, jnp.int32(t), jnp.int32(action), offer.charges[action]
                )
                np.testing.assert_allclose(account.deficits, deficits, atol=1e-12)
                assert float(account.panel) == pytest.approx(after.deficit, abs=1e-12)
            ledger = after


def test_samples_keep_the_largest_priorities() -> None:
    with jax.enable_x64(True):
        sample = Reservoir.empty(4, 1)
        for i in range(5):
            rows = jnp.arange(3.0)[:, None] + 3 * i
            sample = sampled(sample, rows, jnp.array([True, False, True]), jax.random.key(i))
        assert (np.diff(sample.priority) <= 0).all()
        assert len(set(np.asarray(sample.rows).ravel().tolist())) == 4
        assert not np.isin(np.asarray(sample.rows), [1.0, 4.0, 7.0]).any()


@pytest.fixture(scope="module")
def simulated() -> DeepSimulation:
    run = DeepSimulation(WALK, options(), seed=1, audit_every=2)
    run.start()
    while run.done < 6:
        run.advance()
    return run


def test_a_run_is_judged_and_keeps_its_ledger(simulated: DeepSimulation) -> None:
    result = simulated.result()
    assert (np.asarray(result.log.deficit) <= 0.8).all()
    assert len(result.audited) == 3
    assert np.asarray(result.audit.deviations).sum() <= np.asarray(result.log.explored).sum()
    standing = result.standing
    assert (standing.level, standing.per, standing.probability) == ("credible", "episode", 0.99)
    assert "linear in 6 random Fourier features" in standing.describe()
    assert "the linear model is untested" in standing.describe()
    assert learner_of(options()).counts(options(), simulated.learner)["plans"] >= 2


def test_a_run_whose_residuals_contradict_the_features_promises_nothing(simulated: DeepSimulation) -> None:
    state: Any = simulated.learner
    number = 400
    kept = np.asarray(state.held.rows)
    assert kept[:, -1].min() >= 0
    rows = np.repeat(kept[np.asarray(state.held.priority) >= 0.0][:1], number, axis=0)
    observed = np.random.default_rng(3).normal(size=number)
    rows[:, 0] = observed
    rows[:, 2 * state.frequency.shape[0] + 1] = np.where(np.abs(observed) < 0.5, 1.0, -1.0)
    held = state.held._replace(rows=rows, priority=np.ones(number))
    found = learner_of(options()).grounds(options(), state._replace(held=held))
    assert found.contradicted is not None
    assert found.standing.level == "uncertified"
    assert "contradicts the features" in found.standing.describe()


def test_a_restored_run_goes_on_to_the_bit(simulated: DeepSimulation) -> None:
    first = DeepSimulation(WALK, options(), seed=1, audit_every=2)
    first.start()
    first.advance()
    second = DeepSimulation(WALK, options(), seed=1, audit_every=2)
    second.restore(first.state())
    while second.done < 6:
        second.advance()
    for name, column in simulated.result().arrays().items():
        np.testing.assert_array_equal(second.result().arrays()[name], column, err_msg=name)


def test_the_step_api_of_networks_takes_linear_worlds(tmp_path: Path) -> None:
    def steps(agent: DeepAgent, first: int, number: int) -> list[float]:
        rng, told = np.random.default_rng(first), []
        for k in range(first, first + number):
            x = rng.normal(size=2).astype(np.float32)
            agent.begin(k, x)
            for t in range(5):
                action = agent.act(k, t, x).action
                after = (0.9 * x + 0.2 * (action - 1)).astype(np.float32)
                agent.observe(k, Transition(x, action, float(-abs(x[0])), after, terminated=False))
                x = after
            told.append(agent.ledger(k).deficit)
            agent.finish(k)
        return told

    agent = DeepAgent(options(warm_up=0), observation_size=2, n_actions=3, horizon=5)
    steps(agent, 0, 3)
    agent.save(tmp_path / "agent.safetensors")
    again = DeepAgent.load(tmp_path / "agent.safetensors")
    assert steps(agent, 10, 3) == steps(again, 10, 3)
    assert agent.standing.level == "credible"


def test_bad_options_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="'linear' must be a LinearModel"):
        DeepOptions(learner="linear")
    with pytest.raises(InvalidSetting, match="networks of its own"):
        options(agent="dqn")
    with pytest.raises(InvalidSetting, match="got no 'high'"):
        DeepOptions(learner="linear", linear={"low": 0})  # type: ignore[arg-type]
    sizes = Sizes(2, 3, 5)
    with jax.enable_x64(True):
        plan = linear.first_state(options(), sizes, jax.random.key(0)).plan
        linear.check_plan(options(), plan, sizes)
        with pytest.raises(InvalidData, match="by the plan it was played by"):
            linear.check_plan(options(), plan, Sizes(2, 3, 6))
        with pytest.raises(InvalidSetting, match="Plan of linear worlds"):
            linear.check_plan(options(), plan.theta, sizes)
