"""The audit of the deep learner against rollouts in plain Python, and the performance difference identity."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from chary.errors import InvalidData, InvalidSetting

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
deep: Any = pytest.importorskip("chary.deep")
audit = pytest.importorskip("chary.deep.simulation.audit")
networks = pytest.importorskip("chary.deep.networks")
problems = pytest.importorskip("chary.deep.simulation.hiv")

GAMMA, H = 0.9, 14
OPTIONS = deep.DeepOptions(
    agent="random", learner="networks", discount=GAMMA, width=8, warm_up=1, pretraining=0
)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Place(NamedTuple):
    """A state of two parts, one of them a number."""

    at: Any
    fuel: Any


MOVES = np.array([[0.45, 0.1], [-0.35, 0.2], [0.05, -0.4]])


@cache
def ship() -> Any:
    """A point that is moved, paid for where it gets, and lost far from the centre: then all ends."""

    def step(state: Any, action: Any) -> Any:
        at = 0.9 * state.at + jnp.asarray(MOVES)[action]
        fuel = state.fuel - 0.1 * (action == 0)
        lost = jnp.sum(jnp.square(at)) > 3.0
        return Place(at, fuel), jnp.cos(3.0 * at[0]) + at[1] * fuel, lost

    def reset(key: Any) -> Any:
        return Place(jax.random.uniform(key, (2,), jnp.float64, -0.5, 0.5), jnp.float64(1.0))

    return deep.Environment(reset, lambda s: jnp.append(s.at, s.fuel), step, 3, H)


@cache
def patient() -> Any:
    """Three months of a treatment."""
    return problems.hiv(5)._replace(horizon=18)


WORLDS: dict[str, Any] = {"ship": ship, "patient": patient}


@cache
def plan_of(inputs: int, actions: int, seed: int = 0) -> Any:
    """Networks whose best action varies with place and time."""
    first = networks.first_networks(jax.random.key(seed), inputs, 8, actions)
    biases = jax.random.normal(jax.random.key(seed + 100), first.b1.shape, jnp.float32)
    # Time, the last input, counts for more, so that a mistake of one step shows.
    steep = first._replace(w1=(3.0 * first.w1).at[:, -1].multiply(3.0), b1=biases)
    places = jax.random.normal(jax.random.key(seed + 200), (64, inputs), jnp.float32)
    return steep._replace(b3=-jnp.mean(networks.forward(steep, places), axis=1, keepdims=True))


def plan_for(world: str, seed: int = 0) -> Any:
    return plan_of(4, 3, seed) if world == "ship" else plan_of(7, 4, seed)


@cache
def compiled(world: str) -> Any:
    environment = WORLDS[world]()
    return jax.jit(environment.step), jax.jit(environment.observe)


def best(world: str, plan: Any, state: Any, t: int, horizon: int) -> int:
    """The baseline by NumPy."""
    w1, b1, w2, b2, w3, b3 = (np.asarray(leaf)[networks.LOWER] for leaf in plan)
    seen = np.asarray(compiled(world)[1](state))
    x = np.append(seen, (horizon - t) / horizon).astype(np.float32)
    hidden = np.maximum(np.maximum(x @ w1 + b1, 0) @ w2 + b2, 0)
    return int(np.argmax(hidden @ w3.T + b3))


def played(world: str, plan: Any, share: float, seed: int) -> Any:
    """Play an episode of the baseline that leaves it at a share of all steps, as the loop logs it.

    What follows an early end is NaN.
    """
    environment = WORLDS[world]()
    step = compiled(world)[0]
    rng = np.random.default_rng(seed)
    state, going, rows = environment.reset(jax.random.key(seed)), True, []
    for t in range(environment.horizon):
        baseline = best(world, plan, state, t, environment.horizon)
        other = (baseline + rng.integers(1, environment.n_actions)) % environment.n_actions
        action = int(other if rng.random() < share else baseline)
        after, reward, ended = step(state, action)
        spoilt = np.float64(reward if going else np.nan)
        kept = jax.tree.map(lambda x, going=going: np.asarray(x) if going else np.full_like(x, np.nan), state)
        seen = np.asarray(environment.observe(state), np.float32)
        charge, explored = np.float64(rng.normal()), bool(rng.random() < 0.5)
        rows.append(
            deep.StepLog(kept, seen, np.int32(action), np.int32(baseline), explored, charge, spoilt, going)
        )
        state, going = after, going and not bool(ended)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def rolled(world: str, plan: Any, state: Any, t: int) -> float:
    """V of the baseline at one state, by plain Python; no value is taken over from another state."""
    environment, step, total, first = WORLDS[world](), compiled(world)[0], 0.0, t
    while t < environment.horizon:
        state, reward, ended = step(state, best(world, plan, state, t, environment.horizon))
        total += GAMMA ** (t - first) * float(reward)
        t += 1
        if ended:
            break
    return total


def truth(world: str, plan: Any, steps: Any) -> tuple[Any, Any]:
    """Gap and V of every step: two rollouts a step, one of them after the action played."""
    environment, step = WORLDS[world](), compiled(world)[0]
    deficits, values = np.zeros(environment.horizon), np.zeros(environment.horizon)
    for t in np.flatnonzero(steps.played):
        state = jax.tree.map(lambda leaf, t=t: leaf[t], steps.state)
        after, reward, ended = step(state, int(steps.action[t]))
        later = 0.0 if ended else rolled(world, plan, after, int(t) + 1)
        values[t] = rolled(world, plan, state, int(t))
        deficits[t] = values[t] - (float(reward) + GAMMA * later)
    return deficits, values


@cache
def by_jax(world: str, lanes: int = audit.LANES) -> Any:
    return jax.jit(partial(audit.audit_steps, WORLDS[world](), OPTIONS, lanes=lanes))


@cache
def whole_by_jax(world: str, options: Any = OPTIONS) -> Any:
    return jax.jit(partial(audit.audit_episode, WORLDS[world](), options))


def audited_steps(world: str, plan: Any, steps: Any, lanes: int = audit.LANES) -> Any:
    return by_jax(world, lanes)(plan, steps)


def returns(steps: Any) -> float:
    weights = GAMMA ** np.arange(len(steps.reward))
    return float(np.sum(np.where(steps.played, weights * steps.reward, 0.0)))


@pytest.mark.parametrize(
    ("world", "share", "seed"),
    [("ship", 1.0, 0), ("ship", 0.3, 1), ("ship", 0.5, 2), ("patient", 1.0, 0), ("patient", 0.3, 1)],
)
def test_the_truth_is_that_of_plain_rollouts(world: str, share: float, seed: int) -> None:
    plan = plan_for(world, seed)
    steps = played(world, plan, share, seed)
    deficits, values = truth(world, plan, steps)
    found = audited_steps(world, plan, steps)
    np.testing.assert_allclose(found.value, values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.gap, deficits, rtol=1e-9, atol=1e-9)
    # Otherwise nothing was looked at.
    assert np.max(np.abs(deficits)) > 1e-3


@pytest.mark.parametrize("lanes", [1, 3, 100])
def test_the_number_of_lanes_changes_nothing(lanes: int) -> None:
    plan = plan_for("ship")
    steps = played("ship", plan, 0.7, 4)
    few, usual = audited_steps("ship", plan, steps, lanes), audited_steps("ship", plan, steps)
    for one, other in zip(few, usual, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_the_loss_is_the_sum_of_discounted_gaps(world: str, share: float) -> None:
    plan = plan_for(world, 3)
    steps = played(world, plan, share, 7)
    found = audited_steps(world, plan, steps)
    loss = float(found.value[0]) - returns(steps)
    weighed = float(np.sum(GAMMA ** np.arange(len(steps.reward)) * np.asarray(found.gap)))
    assert loss == pytest.approx(weighed, rel=1e-9, abs=1e-9)
    whole = whole_by_jax(world)(plan, steps)
    assert float(whole.signed_deficit) == pytest.approx(loss, rel=1e-9, abs=1e-9)
    assert float(whole.baseline_value) == pytest.approx(float(found.value[0]), rel=1e-9)


@pytest.mark.parametrize("world", WORLDS)
def test_values_along_the_baseline_are_the_returns_that_followed(world: str) -> None:
    plan = plan_for(world, 5)
    steps = played(world, plan, 0.0, 3)
    tail, tails = 0.0, np.zeros(len(steps.reward))
    for t in reversed(range(len(tails))):
        tail = steps.reward[t] + GAMMA * tail if steps.played[t] else 0.0
        tails[t] = tail
    # With other actions in the log every value is rolled out anew.
    unlike = steps._replace(action=np.where(steps.played, (steps.baseline + 1) % 3, steps.action))
    found = audited_steps(world, plan, unlike)
    np.testing.assert_allclose(found.value, tails, rtol=1e-9)
    np.testing.assert_allclose(audited_steps(world, plan, steps).value, tails, rtol=1e-12)


def test_the_baselines_own_action_costs_exactly_nothing() -> None:
    plan = plan_for("patient", 2)
    steps = played("patient", plan, 0.4, 5)
    followed = steps.action == steps.baseline
    deficit = np.asarray(audited_steps("patient", plan, steps).gap)
    assert np.all(deficit[followed] == 0.0)
    assert np.all(deficit[~followed] != 0.0)
    assert 0 < np.sum(followed) < len(followed)


def test_what_comes_after_an_early_end_is_worth_nothing() -> None:
    plan = plan_for("ship", 3)
    steps = played("ship", plan, 1.0, 3)
    length = int(np.sum(steps.played))
    assert 0 < length < H
    found = audited_steps("ship", plan, steps)
    assert np.all(np.asarray(found.value)[length:] == 0.0)
    assert np.all(np.asarray(found.gap)[length:] == 0.0)
    # The last step ends it: its Q is its reward.
    last = length - 1
    assert float(found.gap[last]) == pytest.approx(float(found.value[last]) - steps.reward[last], abs=1e-12)
    whole = whole_by_jax("ship")(plan, steps)
    assert int(whole.deviations) == length


@pytest.mark.parametrize("charge_from", ["step", "start"])
def test_an_episode_sums_its_steps(charge_from: str) -> None:
    plan = plan_for("ship", 6)
    steps = played("ship", plan, 0.6, 8)
    deficits, values = truth("ship", plan, steps)
    weights = GAMMA ** np.arange(H)
    due = deficits * weights if charge_from == "start" else deficits
    # Some charges a little above, some a little below, and some that only the scale tells apart.
    steps = steps._replace(charge=due + np.where(np.arange(H) % 3 == 0, -1e-6, 1e-6))
    options = deep.DeepOptions(agent="random", learner="networks", discount=GAMMA, charge_from=charge_from)
    found = whole_by_jax("ship", options)(plan, steps)
    deviated = steps.played & (steps.action != steps.baseline)
    covered = deviated & (steps.charge >= due)
    assert np.min(due) < 0
    assert float(found.deficit) == pytest.approx(np.sum(np.maximum(due, 0)), rel=1e-9)
    assert float(found.largest) == pytest.approx(np.max(deficits), rel=1e-9)
    assert float(found.baseline_value) == pytest.approx(values[0], rel=1e-9)
    assert int(found.deviations) == np.sum(deviated)
    assert int(found.covered) == np.sum(covered)
    assert int(found.booked) == np.sum(deviated & steps.explored)
    assert int(found.booked_covered) == np.sum(covered & steps.explored)
    assert 0 < int(found.booked_covered) < int(found.covered) < int(found.deviations)


@cache
def there_and_back() -> Any:
    """Action 1 costs 1 at even steps and pays 1 at odd ones; action 0 does nothing."""

    def step(state: Any, action: Any) -> Any:
        return (
            state + 1.0,
            jnp.where(action == 1, jnp.where(state % 2 == 0, -1.0, 1.0), 0.0),
            jnp.bool_(False),
        )

    return deep.Environment(lambda key: jnp.float64(0.0), lambda s: s[None], step, 2, 4)


@pytest.mark.parametrize("charge_from", ["step", "start"])
def test_a_gain_does_not_pay_for_a_loss(charge_from: str) -> None:
    """Eq. (1): gaps 1, -1, 1, -1 against a baseline that does nothing are a deficit of 2, and not of 0."""
    plan = jax.tree.map(jnp.zeros_like, plan_of(2, 2))
    plan = plan._replace(b3=plan.b3.at[:, :, 0].set(1.0))
    options = deep.DeepOptions(agent="random", learner="networks", discount=0.5, charge_from=charge_from)
    no, states = np.zeros(4, bool), np.arange(4.0)
    rewards, ones = np.array([-1.0, 1.0, -1.0, 1.0]), np.ones(4, np.int32)
    seen = states[:, None].astype(np.float32)
    steps = deep.StepLog(states, seen, ones, 0 * ones, no, np.zeros(4), rewards, ~no)
    found = audit.audit_episode(there_and_back(), options, plan, steps)
    assert float(found.deficit) == (2.0 if charge_from == "step" else 1.25)
    # Eq. (2), discounted from the start: 1 - 1/2 + 1/4 - 1/8.
    assert float(found.signed_deficit) == 0.625
    assert float(found.largest) == 1.0


def test_the_log_says_what_the_baseline_did() -> None:
    plan = plan_for("ship", 0)
    steps = played("ship", plan, 1.0, 0)
    turned = steps.baseline.copy()
    # As if rounding had decided otherwise: the first step of that rollout is the logged one.
    turned[0] = 3 - turned[0] - steps.action[0]
    found = audited_steps("ship", plan, steps._replace(baseline=turned))
    state = jax.tree.map(lambda leaf: leaf[0], steps.state)
    after, reward, ended = compiled("ship")[0](state, int(turned[0]))
    assert not ended
    expected = float(reward) + GAMMA * rolled("ship", plan, after, 1)
    assert float(found.value[0]) == pytest.approx(expected, rel=1e-9)


def test_many_episodes_at_once_are_as_one_by_one() -> None:
    plan = plan_for("ship", 4)
    episodes = [played("ship", plan, share, seed) for seed, share in enumerate((0.0, 0.2, 1.0))]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *episodes)
    together = jax.jit(jax.vmap(partial(audit.audit_episode, ship(), OPTIONS), (None, 0)))(plan, stacked)
    for k, steps in enumerate(episodes):
        alone = whole_by_jax("ship")(plan, steps)
        for one, all_of_them in zip(alone, together, strict=True):
            np.testing.assert_allclose(all_of_them[k], one, rtol=1e-12, atol=1e-12)


def test_an_episode_of_the_loop_is_audited_by_the_plan_it_was_played_by() -> None:
    options = deep.DeepOptions(
        agent="paper",
        discount=GAMMA,
        width=8,
        warm_up=2,
        pretraining=20,
        features=8,
        batch=8,
        eta=1e3,
        fresh=4,
    )

    def run(key: Any) -> Any:
        state = deep.begin(ship(), options, key)
        return deep.proceed(ship(), options, state, 1, record=True)

    state, log, steps = jax.jit(run)(jax.random.key(3))
    episode = jax.tree.map(lambda leaf: np.asarray(leaf[0]), steps)
    deficits, values = truth("ship", state.plan, episode)
    found = whole_by_jax("ship", options)(state.plan, episode)
    assert float(found.deficit) == pytest.approx(np.sum(np.maximum(deficits, 0)), rel=1e-9, abs=1e-9)
    assert float(found.signed_deficit) == pytest.approx(values[0] - float(log.returns[0]), rel=1e-9, abs=1e-9)
    assert int(found.booked) == int(found.deviations) == int(log.deviated[0]) > 0


MISTAKES = {
    "next value not discounted": ("earned + discount * after", "earned + after"),
    "next value of this step": (
        "value, (jnp.where(deviates, rollout - q",
        "q, (jnp.where(deviates, rollout - q",
    ),
    "rollout discounted a step late": ("nothing + 1.0, nothing)", "nothing + options.discount, nothing)"),
    "rollout not discounted": ("now.weight * options.discount", "now.weight"),
    "time one behind": (
        "_baseline(environment, options, plan, state, t + 1)",
        "_baseline(environment, options, plan, state, t)",
    ),
    "another network": (
        "(options, plan, seen, times, environment.horizon)",
        "(options, jax.tree.map(lambda leaf: leaf[::-1], plan), seen, times, environment.horizon)",
    ),
    "end overlooked": ("now.live & ~(moves & ended)", "now.live"),
    "late lanes move at once": ("now.live & (starts <= t)", "now.live"),
    "first action asked anew": ("actions = steps.baseline[starts]", "actions = steps.action[starts]"),
    "one step short": ("(t < horizon) & jnp.any", "(t < horizon - 1) & jnp.any"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    right, wrong = MISTAKES[mistake]
    source = inspect.getsource(audit)
    assert source.count(right) == 1
    space: dict[str, Any] = {"__name__": "mistaken"}
    exec(compile(source.replace(right, wrong), "mistaken.py", "exec"), space)
    worst = 0.0
    check = jax.jit(partial(space["audit_steps"], ship(), OPTIONS))
    for seed, share in ((0, 1.0), (1, 0.5), (2, 0.3)):
        plan = plan_for("ship", seed)
        steps = played("ship", plan, share, seed)
        found = check(plan, steps)
        worst = max(worst, float(np.max(np.abs(found.gap - truth("ship", plan, steps)[0]))))
    assert worst > 1e-3


def bad_inputs() -> dict[str, Any]:
    """Calls that are wrong in one way each; made late, since arrays are made in float64."""
    plan = plan_for("ship")
    steps = played("ship", plan, 0.5, 0)
    run = audit.audit_episode

    return {
        "no environment": lambda: run(None, OPTIONS, plan, steps),
        "no options": lambda: run(ship(), {}, plan, steps),
        "no plan": lambda: run(ship(), OPTIONS, None, steps),
        "no steps": lambda: run(ship(), OPTIONS, plan, None),
        "another plan": lambda: run(ship(), OPTIONS, plan_for("patient"), steps),
        "one network": lambda: run(ship(), OPTIONS, networks.one(plan, 2), steps),
        "another environment": lambda: run(patient(), OPTIONS, plan_for("patient"), steps),
        "another horizon": lambda: run(ship()._replace(horizon=H + 1), OPTIONS, plan, steps),
        "two episodes": lambda: run(ship(), OPTIONS, plan, jax.tree.map(lambda x: np.stack([x, x]), steps)),
        "too few actions": lambda: run(ship(), OPTIONS, plan, steps._replace(action=steps.action[:3])),
        "no lanes": lambda: run(ship(), OPTIONS, plan, steps, lanes=0),
        "half a lane": lambda: run(ship(), OPTIONS, plan, steps, lanes=0.5),
        "float32": lambda: jax.enable_x64(False)(run)(ship(), OPTIONS, plan, steps),
    }


def test_bad_input_is_an_error_in_words() -> None:
    for case, call in bad_inputs().items():
        with pytest.raises((InvalidData, InvalidSetting)) as caught:
            call()
        assert str(caught.value).startswith("'"), case
