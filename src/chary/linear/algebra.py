"""The algebra of linear worlds, written once for NumPy and JAX; `xp` is one of the two.

World k explains the reward and the value features psi behind a step by ridge regressions on the features phi
of the state, one per action a, in which every transition i has a weight w_ik ~ Exp(1) of its own:

    G = sum w phi phi^T + prior,   B = sum w phi psi'^T,   c = sum w phi r
    theta_t = G^-1 (c + gamma B v_{t+1} + g_t p),   Q_t(s, a) = phi(s) . theta_t, clipped

v_{t+1} are the coefficients of V_{t+1} on psi, by default phi: its values at the nodes, projected. p is the
prior's part, and g_t = 1 + gamma + ... the discounted number of steps left. Since no target needs a
transition again, memory does not grow with the data. L worlds, of which the first K judge; A actions, F
features, V value features, M nodes. The slow twin is `reference.linear`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

# An array of NumPy or of JAX.
Array: TypeAlias = Any


class Sums(NamedTuple):
    """The weighted sums that worlds are made of.

    Args:
        gram: G, (A, L, F, F), the prior's part included.
        moves: B, (A, L, F, V).
        earned: c, (A, L, F).
        pull: p, (A, L, F): the prior's pseudo-observations of values, per unit of g_t.
        lost: The sum of w phi over lost outcomes, (A, L, F).
    """

    gram: Array
    moves: Array
    earned: Array
    pull: Array
    lost: Array


class Solved(NamedTuple):
    """G^-1 times the other sums: `moves` (A, L, F, V), the others (A, L, F)."""

    moves: Array
    earned: Array
    pull: Array
    lost: Array


class Course(NamedTuple):
    """What a backward pass needs besides the sums.

    Args:
        nodes: The features of the nodes, (M, F).
        projector: From values at the nodes to coefficients, (V, M).
        low: The least value of every stage, (H + 1,), 0 at the end.
        high: The largest one.
        weight: g_t, (H + 1,).
    """

    nodes: Array
    projector: Array
    low: Array
    high: Array
    weight: Array


class Attitude(NamedTuple):
    """The attitude of a plan to doubt.

    Args:
        judges: K; the baseline is chosen by these worlds, and the others explore.
        pessimism: The baseline is the argmax of mean - `pessimism` * sd over the judging worlds.
        optimism: None gives every exploring world its own best action; else all of them have the argmax of
            mean + `optimism` * sd.
    """

    judges: int
    pessimism: float
    optimism: float | None


def waves(xp: Any, frequency: Array, phase: Array, x: Array) -> Array:
    """Return random Fourier features of observations (n, d), (n, F): a constant, and waves.

    `frequency` has shape (d, F - 1) and `phase` (F - 1,).
    """
    number = phase.shape[0]
    values = xp.cos(x @ frequency + phase) * (2.0 / max(number, 1)) ** 0.5
    return xp.concatenate([xp.ones((x.shape[0], 1)), values], axis=1)


def weighed(xp: Any, phi: Array, after: Array, rewards: Array, drawn: Array) -> tuple[Array, Array, Array]:
    """Return the sums G (L, F, F), B (L, F, V) and c (L, F) of transitions of one action.

    `phi` has shape (n, F), `after` (n, V), and `drawn` (n, L) are the weights.
    """
    (n, features), ahead = phi.shape, after.shape[1]
    rows = (drawn.T[:, None, :] * phi.T[None]).reshape(-1, n)
    both = rows @ xp.concatenate([phi, after, rewards[:, None]], axis=1)
    both = both.reshape(drawn.shape[1], features, features + ahead + 1)
    return both[:, :, :features], both[:, :, features:-1], both[:, :, -1]


def first_sums(
    xp: Any, gammas: Array, levels: Array, low: float, high: float, strength: float, ahead: int
) -> Sums:
    """Return the sums without data: two pseudo-observations of every coefficient, at the ends of its range.

    Their weights are `strength` times `gammas` (2, A, L, F), draws of Gamma(1/2). The ends are the least and
    the largest value for features that are `levels` (F,), which stand for a value alone, and plus and minus
    half the range for waves around one. `ahead` is V.
    """
    half = (high - low) / 2.0
    ends = xp.where(levels, low, -half), xp.where(levels, high, half)
    weight = strength * gammas
    total = weight[0] + weight[1]
    nothing = xp.zeros_like(total)
    moves = xp.zeros((*total.shape, ahead))
    gram = total[..., None] * xp.eye(total.shape[-1])
    return Sums(gram, moves, nothing, weight[0] * ends[0] + weight[1] * ends[1], nothing)


def solved(xp: Any, sums: Sums) -> Solved:
    """Solve the regressions of all worlds."""
    sides = xp.stack([sums.earned, sums.pull, sums.lost], axis=-1)
    found = xp.linalg.solve(sums.gram, xp.concatenate([sums.moves, sides], axis=-1))
    size = sums.moves.shape[-1]
    return Solved(found[..., :size], *(found[..., size + i] for i in range(3)))


def coefficients(parts: Solved, ahead: Array, discount: float, weight: Array, lost: Array) -> Array:
    """Return theta (A, L, F) of one stage; `ahead` (L, V) is v of the next one.

    `lost` is the worth of lost outcomes.
    """
    moved = (parts.moves @ ahead[None, :, :, None])[..., 0]
    return parts.earned + discount * moved + parts.pull * weight + parts.lost * lost


def mean_and_sd(xp: Any, values: Array, axis: int) -> tuple[Array, Array]:
    """Return mean and standard deviation over worlds, with n - 1 in the denominator."""
    n = values.shape[axis]
    mean = xp.mean(values, axis=axis)
    spread = xp.sum((values - xp.expand_dims(mean, axis)) ** 2, axis=axis)
    return mean, xp.sqrt(spread / max(n - 1, 1))


def best(xp: Any, q: Array, factor: float) -> Array:
    """Return the argmax over actions of mean + factor * sd of q (A, L, ...), over L; of equals the first."""
    mean, sd = mean_and_sd(xp, q, 1)
    return xp.argmax(mean + factor * sd, axis=0)


def chosen(xp: Any, q: Array, attitude: Attitude) -> tuple[Array, Array]:
    """Return the baseline's actions (M,) and every world's value (L, M), from its q (A, L, M)."""
    judges, (_, optimism) = attitude.judges, attitude[1:]
    baseline = best(xp, q[:, :judges], -attitude.pessimism)
    judged = xp.take_along_axis(q[:, :judges], baseline[None, None, :], axis=0)[0]
    if q.shape[1] == judges:
        return baseline, judged
    if optimism is None:
        explored = xp.max(q[:, judges:], axis=0)
    else:
        hopeful = best(xp, q[:, judges:], optimism)
        explored = xp.take_along_axis(q[:, judges:], hopeful[None, None, :], axis=0)[0]
    return baseline, xp.concatenate([judged, explored])


def values_at(xp: Any, theta: Array, phi: Array, low: Array, high: Array) -> Array:
    """Return q (A, L, n) of states with features `phi` (n, F)."""
    actions, worlds, features = theta.shape
    q = (theta.reshape(-1, features) @ phi.T).reshape(actions, worlds, -1)
    return xp.clip(q, low, high)


def stage(
    xp: Any, parts: Solved, course: Course, attitude: Attitude, discount: float, ahead: Array, t: Array
) -> tuple[Array, Array]:
    """Return theta (A, L, F) of stage t and v (L, V), from v of the next: one step of the backward pass."""
    theta = coefficients(parts, ahead, discount, course.weight[t], course.low[t])
    q = values_at(xp, theta, course.nodes, course.low[t], course.high[t])
    _, values = chosen(xp, q, attitude)
    return theta, values @ course.projector.T


def evaluated(
    xp: Any,
    parts: Solved,
    course: Course,
    baseline: Array,
    discount: float,
    ahead: Array,
    t: Array,
) -> tuple[Array, Array]:
    """Return what `stage` does for a given policy at the nodes (M,), with lost outcomes worth the most."""
    theta = coefficients(parts, ahead, discount, course.weight[t], course.high[t])
    q = values_at(xp, theta, course.nodes, course.low[t], course.high[t])
    values = xp.take_along_axis(q, baseline[None, None, :], axis=0)[0]
    return theta, values @ course.projector.T


def steps_left(horizon: int, discount: float) -> list[float]:
    """Return g_t for t = 0..H, the discounted number of steps left.

    Example:
        >>> steps_left(2, 0.5)
        [1.5, 1.0, 0.0]
    """
    found = [0.0]
    for _ in range(horizon):
        found.append(1.0 + discount * found[-1])
    return found[::-1]


def quantiles_of(xp: Any, deficits: Array, allowed: int, z: float, reach: float, fitted: int) -> Array:
    """Return `shield.worlds.upper` of deficits (..., K) on arrays, a tail fitted to `fitted`."""
    ordered = xp.sort(deficits, axis=-1)[..., ::-1]
    if allowed >= 0:
        return ordered[..., allowed]
    top = ordered[..., 0]
    if reach > 0.0 and fitted > 0:
        edge = ordered[..., fitted]
        excess = xp.mean(ordered[..., :fitted], axis=-1) - edge
        top = xp.maximum(top, edge + excess * reach)
    mean, sd = mean_and_sd(xp, deficits, deficits.ndim - 1)
    return xp.maximum(top, mean + z * sd)
