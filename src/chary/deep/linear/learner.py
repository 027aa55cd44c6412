"""Linear worlds as a learner: sums that grow with the data, and plans that are frozen during an episode.

Transitions wait in a buffer; before an episode they are learnt, and a plan is made, once they are enough.
The ledger of worlds is kept in the account: every world's deficit, and the panel's. What a step costs is what
the panel's deficit grows by, so that `authorise` decides as in `shield.worlds.vote_into`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.learners import Learner, Observed, Offer, Sizes
from chary.deep.linear.memory import (
    Memory,
    Reservoir,
    first_memory,
    held_out_now,
    kept_rows,
    noted,
    sampled,
    scale_of,
    taught,
)
from chary.deep.linear.tested import grounds
from chary.deep.options import DeepOptions
from chary.deep.shielding import ChainState, first_chain
from chary.errors import InvalidData, InvalidSetting
from chary.linear.algebra import (
    Course,
    Sums,
    best,
    first_sums,
    quantiles_of,
    solved,
    stage,
    steps_left,
    values_at,
    waves,
)
from chary.linear.options import LinearModel
from chary.linear.worlds import SMALLEST
from chary.shield.worlds import TAIL


class Plan(NamedTuple):
    """What acts and prices during an episode.

    Args:
        theta: The coefficients of the judging worlds, (H, A, K, F).
        explorer: Those of the worlds that this episode, or its open chain, explores by, (H, A, E, F).
        frequency: Of the features, (d, F - 1).
        phase: Of the features, (F - 1,).
    """

    theta: jax.Array
    explorer: jax.Array
    frequency: jax.Array
    phase: jax.Array


class Account(NamedTuple):
    """The deficit of an episode in every judging world, (K,), and the largest that the panel has found."""

    deficits: jax.Array
    panel: jax.Array


class LinearState(NamedTuple):
    """A whole training run between two episodes.

    Args:
        sums: What the worlds are made of.
        memory: Transitions that wait, and how many were learnt.
        nodes: Observations at which values are computed.
        held: Transitions held out for the residual test.
        frequency: Of features of length scale 1, (d, F - 1).
        phase: Of features, (F - 1,).
        scale: The length scale; 0 until the first transitions are learnt.
        theta: The coefficients of the exploring worlds, (H, A, X, F).
        plan: What acts and prices, frozen during an episode.
        account: Of the episode in the state.
        chain: The meta-rollout in the making.
        key: The key of later randomness.
        episodes: Episodes played after the warm-up.
        updates: Plans made.
    """

    sums: Sums
    memory: Memory
    nodes: Reservoir
    held: Reservoir
    frequency: jax.Array
    phase: jax.Array
    scale: jax.Array
    theta: jax.Array
    plan: Plan
    account: Account
    chain: ChainState
    key: jax.Array
    episodes: jax.Array
    updates: jax.Array


def model_of(options: DeepOptions) -> LinearModel:
    """Return the model of a linear learner's options."""
    assert options.linear is not None
    return options.linear


def first_state(options: DeepOptions, sizes: Sizes, key: jax.Array) -> LinearState:
    """Return a learner without data, whose frequencies and prior are drawn by the key."""
    model = model_of(options)
    d, A, H, F = sizes.observation, sizes.actions, sizes.horizon, model.features
    K, E = model.worlds, _exploring(model)
    waves_key, phase_key, prior_key, later = jax.random.split(key, 4)
    gammas = jax.random.gamma(prior_key, 0.5, (2, A, model.lanes, F), jnp.float64)
    levels = jnp.arange(F) == 0
    frequency = jax.random.normal(waves_key, (d, F - 1), jnp.float64)
    phase = jax.random.uniform(phase_key, (F - 1,), jnp.float64, 0.0, 2.0 * jnp.pi)
    nothing = jnp.zeros((H, A, K, F))
    return LinearState(
        sums=first_sums(jnp, gammas, levels, model.low, model.high, model.prior, F),
        memory=first_memory(max(options.warm_up, 1) * H + H, d),
        nodes=Reservoir.empty(model.nodes_for(F), d),
        held=Reservoir.empty(model.held_most, 2 * d + 4),
        frequency=frequency,
        phase=phase,
        scale=jnp.float64(0.0),
        theta=jnp.zeros((H, A, model.explorers, F)),
        plan=Plan(nothing, jnp.zeros((H, A, E, F)), frequency, phase),
        account=Account(jnp.zeros(K), jnp.float64(0.0)),
        chain=first_chain(d),
        key=later,
        episodes=jnp.int32(0),
        updates=jnp.int32(0),
    )


def opened(options: DeepOptions, state: LinearState, key: jax.Array) -> LinearState:
    """Learn what waits and plan, if it is enough; then choose the explorer of a new episode."""
    learn_key, lane_key = jax.random.split(key)
    state = lax.cond(
        _due(options, state), lambda now: planned(options, now, learn_key), lambda now: now, state
    )
    model = model_of(options)
    if model.explorer == "optimistic":
        explorer = state.theta
    else:
        lane = jax.random.randint(lane_key, (), 0, model.explorers, jnp.int32)
        explorer = lax.dynamic_slice_in_dim(state.theta, lane, 1, axis=2)
    if options.chained:
        explorer = jnp.where(state.chain.open, state.plan.explorer, explorer)
    account = jax.tree.map(jnp.zeros_like, state.account)
    return state._replace(plan=state.plan._replace(explorer=explorer), account=account)


def offer(
    options: DeepOptions,
    plan: Plan,
    account: Account,
    observation: jax.Array,
    t: jax.Array,
    clock: jax.Array | None,
    horizon: int,
) -> Offer:
    """Return the plan at one observation; the charge of an action is what the panel's deficit grows by."""
    model, when = model_of(options), t if clock is None else clock
    phi = waves(jnp, plan.frequency, plan.phase, observation.astype(jnp.float64)[None])
    q = _q(options, plan.theta, phi, t, horizon)[..., 0]
    exploring = _q(options, plan.explorer, phi, when, horizon)[..., 0]
    optimism = model.attitude.optimism
    wanted = jnp.argmax(exploring[:, 0]) if optimism is None else best(jnp, exploring, optimism)
    baseline = best(jnp, q, -model.pessimism)
    deviates = jnp.arange(q.shape[0]) != baseline
    gaps = jnp.where(deviates[:, None], jnp.maximum(q[baseline] - q, 0.0) + model.margin, 0.0)
    if options.charge_from == "start":
        gaps = gaps * jnp.power(jnp.float64(options.discount), t)
    after = jnp.maximum(_panel(model, account.deficits + gaps), account.panel)
    return Offer(
        explorer=wanted.astype(jnp.int32),
        baseline=baseline.astype(jnp.int32),
        charges=jnp.where(deviates, after - account.panel, 0.0),
        bounds=_panel(model, gaps),
        values=jnp.mean(q, axis=1).astype(jnp.float32),
        terms=gaps,
    )


def proposal(
    options: DeepOptions, state: LinearState, observation: jax.Array, t: jax.Array, horizon: int
) -> jax.Array:
    """Raise InvalidSetting: agents with networks of their own cannot learn by linear worlds."""
    raise InvalidSetting(f"'learner' must be 'ensemble' or 'networks' for {options.agent!r}, got 'linear'.")


def booked(
    options: DeepOptions, account: Account, said: Offer, t: jax.Array, action: jax.Array, cost: jax.Array
) -> Account:
    """Return the account after an action was chosen; the baseline's costs nothing in any world."""
    deficits = account.deficits + said.terms[action]
    return Account(deficits, jnp.maximum(_panel(model_of(options), deficits), account.panel))


def remember(
    options: DeepOptions,
    state: LinearState,
    seen: Observed,
    t: jax.Array,
    horizon: int,
    counts: jax.Array,
    own: jax.Array | bool,
) -> LinearState:
    """Return the state with one transition more that waits, if it `counts`."""
    return state._replace(memory=noted(state.memory, seen, t, counts))


def learn(options: DeepOptions, state: LinearState, uniforms: jax.Array) -> tuple[LinearState, jax.Array]:
    """Return the state as it is: worlds learn before an episode."""
    return state, jnp.zeros(3, jnp.float32)


def closed(options: DeepOptions, state: LinearState) -> LinearState:
    """Return the state as it is."""
    return state


def incumbent(options: DeepOptions, state: LinearState) -> Plan:
    """Return a plan of the present baseline, with all that waits."""
    return planned(options, state, state.key).plan


def baseline_of(
    options: DeepOptions, plan: Plan, observations: jax.Array, times: jax.Array, horizon: int
) -> jax.Array:
    """Return the baseline's actions (B,) at observations (B, d) and times (B,)."""

    def one(seen: jax.Array, t: jax.Array) -> jax.Array:
        phi = waves(jnp, plan.frequency, plan.phase, seen.astype(jnp.float64)[None])
        q = _q(options, plan.theta, phi, jnp.minimum(t, horizon - 1), horizon)[..., 0]
        found: jax.Array = best(jnp, q, -model_of(options).pessimism).astype(jnp.int32)
        return found

    return jax.vmap(one)(observations, times)


def with_explorer(options: DeepOptions, plan: Plan, other: Plan) -> Plan:
    """Return the plan with the explorer of another."""
    return plan._replace(explorer=other.explorer)


def check_plan(options: DeepOptions, plan: Any, sizes: Sizes) -> None:
    """Raise a CharyError unless this is a plan of linear worlds of these sizes."""
    if not isinstance(plan, Plan):
        raise InvalidSetting(
            f"'plan' must be a Plan of linear worlds, such as 'state.plan', got {type(plan).__name__}."
        )
    model, shape = model_of(options), jnp.shape(plan.theta)
    wanted = (sizes.horizon, sizes.actions, model.worlds, model.features)
    if shape != wanted or jnp.shape(plan.frequency) != (sizes.observation, model.features - 1):
        raise InvalidData(
            f"'plan' must have coefficients of shape {wanted} for observations of length "
            f"{sizes.observation}, got {shape}. Audit an episode by the plan it was played by."
        )


def counts(options: DeepOptions, state: LinearState) -> dict[str, int]:
    """Return the number of plans made."""
    return {"plans": int(state.updates)}


def planned(options: DeepOptions, state: LinearState, key: jax.Array) -> LinearState:
    """Return the state after all that waits is learnt, with a new plan."""
    model, memory = model_of(options), state.memory
    kept_key, weight_key, node_key, held_key = jax.random.split(key, 4)
    scale = scale_of(state.scale, memory, model.length_scale)
    frequency = state.frequency / scale
    kept = kept_rows(memory, model.held_out, kept_key)

    def phi_of(x: jax.Array) -> Any:
        return waves(jnp, frequency, state.phase, x)

    sums = taught(state.sums, memory, kept, phi_of, weight_key, model.lanes)
    nodes = sampled(state.nodes, memory.reached, kept & ~memory.ended, node_key)
    held = sampled(state.held, held_out_now(memory), memory.valid & ~kept, held_key)
    number = memory.learnt + jnp.sum(kept, dtype=jnp.int32)
    first = jnp.where(memory.learnt == 0, number, memory.before)
    memory = memory._replace(used=jnp.int32(0), learnt=number, before=first)
    horizon = state.theta.shape[0]
    theta = _backwards(options, sums, phi_of(nodes.rows), nodes.priority >= 0.0, horizon)
    plan = state.plan._replace(theta=theta[:, :, : model.worlds], frequency=frequency)
    return state._replace(
        sums=sums,
        memory=memory,
        nodes=nodes,
        held=held,
        scale=scale,
        theta=theta[:, :, model.worlds :],
        plan=plan,
        updates=state.updates + 1,
    )


def _backwards(
    options: DeepOptions, sums: Sums, nodes: jax.Array, present: jax.Array, horizon: int
) -> jax.Array:
    """Return the coefficients of all stages, (H, A, L, F)."""
    model = model_of(options)
    phi = jnp.where(present[:, None], nodes, 0.0)
    weight = jnp.array(steps_left(horizon, options.discount))
    projector = jnp.linalg.pinv(phi, rtol=SMALLEST)
    course = Course(phi, projector, model.low * weight, model.high * weight, weight)
    parts = solved(jnp, sums)

    def back(ahead: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        theta, now = stage(jnp, parts, course, model.attitude, options.discount, ahead, t)
        return now, theta

    end = jnp.zeros((model.lanes, model.features))
    theta: jax.Array = lax.scan(back, end, jnp.arange(horizon), reverse=True)[1]
    return theta


def _due(options: DeepOptions, state: LinearState) -> jax.Array:
    """Return whether what waits is enough to plan again, or the buffer could not take another episode."""
    memory = state.memory
    share = model_of(options).growth * (memory.learnt - memory.before)
    full = memory.used + state.theta.shape[0] > memory.reward.shape[0]
    return (memory.used >= jnp.maximum(share, 1.0)) | full | (state.updates == 0)


def _q(options: DeepOptions, theta: jax.Array, phi: jax.Array, t: jax.Array, horizon: int) -> Any:
    """Return q (A, L, n) at features (n, F) and stage t, from coefficients (H, A, L, F)."""
    model = model_of(options)
    left = jnp.array(steps_left(horizon, options.discount))[t]
    return values_at(jnp, theta[t], phi, model.low * left, model.high * left)


def _panel(model: LinearModel, deficits: jax.Array) -> Any:
    allowed, z, reach = model.panel
    fitted = model.worlds // TAIL if reach > 0.0 else 0
    return quantiles_of(jnp, deficits, allowed, z, reach, fitted)


def _exploring(model: LinearModel) -> int:
    return model.explorers if model.explorer == "optimistic" else 1


LINEAR = Learner(
    losses=("none", "none_2", "none_3"),
    keeps_account=False,
    first=first_state,
    opened=opened,
    offer=offer,
    proposal=proposal,
    booked=booked,
    remember=remember,
    learn=learn,
    closed=closed,
    incumbent=incumbent,
    baseline=baseline_of,
    with_explorer=with_explorer,
    check_plan=check_plan,
    counts=counts,
    grounds=grounds,
)
