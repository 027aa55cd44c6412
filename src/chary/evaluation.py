"""The value of a policy from logged decisions alone: an estimate, an interval, and its standing."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from chary.arrays import Floats, Ints
from chary.data.logs import Log, check_log
from chary.errors import InvalidData, InvalidSetting, check_choice, check_real, check_type
from chary.mdp.setting import Setting
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.model.radii import exact_radii
from chary.planner._backup import LOWER, UPPER
from chary.planner.plan import check_cap, policy_values
from chary.policies import Policy, as_policy_table, raw_value, scaled_value
from chary.standing import Grounds, Standing
from chary.texts import shown

__all__ = ["METHODS", "Evaluation", "evaluate_policy", "start_weights"]


METHODS = ("model", "returns")

# The tolerance of one reward, see REWARD_TOLERANCE, applies at every step.
RETURN_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The value of a policy at the start of an episode, in the user's units.

    `lower` and `upper` hold together with probability 1 - `delta`, as sure as `standing` is; `note` names
    what they rely on.
    """

    estimate: float
    lower: float
    upper: float
    standing: Standing
    method: str
    delta: float
    episodes: int
    transitions: int
    note: str

    def describe(self) -> str:
        """Return the evaluation in one sentence, and what it relies on."""
        return (
            f"worth {self.estimate:.4g}, from {self.lower:.4g} to {self.upper:.4g} with probability "
            f"{1 - self.delta:g}, by {self.method} of {self.episodes} episodes. {self.note} "
            f"{self.standing.describe()}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as plain numbers and words."""
        return {**asdict(self), "standing": self.standing.to_json()}


class _Value(NamedTuple):
    """An estimate and its interval in scaled units, with their standing and a note."""

    estimate: float
    lower: float
    upper: float
    standing: Standing
    note: str


def evaluate_policy(
    log: Log,
    policy: Policy,
    setting: Setting,
    *,
    bounds: Bounds | None = None,
    method: str = "model",
    delta: float | None = None,
    return_range: tuple[float, float] | None = None,
) -> Evaluation:
    """Return the value of a policy at the start of an episode, from a log of decisions.

    - `model`: the counts of any log and the bounds of a family give the lower and the upper value of the
      policy, averaged over the logged start states. The estimate treats the counts as exact; where the log
      does not contain the policy's action, it and the lower bound count the lowest reward.
    - `returns`: the mean return of the logged episodes, for a log of this policy: every action must be the
      policy's, and every episode complete. The interval is the empirical Bernstein one of Maurer and Pontil
      (2009, Theorem 4) on both sides; episodes must be independent, and start like those to come.

    Args:
        log: The logged decisions.
        policy: Anything that `chary.policies.as_policy_table` takes.
        setting: The problem; the log is compared with it.
        bounds: The family, for `model`; `kl` by default. Families that need a number of episodes get that of
            the log.
        method: `model` or `returns`.
        delta: The probability with which the interval may miss the value; that of the bounds by default.
        return_range: For `returns`: the lowest and the highest return of an episode in the user's units,
            if they are closer than H times the range of rewards.

    Raises:
        InvalidData: naming the row, if the log contradicts the setting or, for `returns`, the policy.
        CharyError: if an option is invalid.

    Example:
        >>> coin = Setting.declare(n_states=1, n_actions=1, horizon=1)
        >>> n = 400
        >>> zeros = np.zeros(n, dtype=int)
        >>> log = Log(episode=np.arange(n), t=zeros, state=zeros, action=zeros, reward=np.arange(n) % 2,
        ...           next_state=zeros, terminated=zeros)
        >>> found = evaluate_policy(log, [0], coin, method="returns")
        >>> found.estimate, round(found.lower, 2), round(found.upper, 2), found.standing.label
        (0.5, 0.41, 0.59, 'certified per evaluation (0.9)')
    """
    check_log(log)
    check_choice("method", method, METHODS)
    family = Bounds() if bounds is None else bounds
    check_type("bounds", family, Bounds, "Bounds", way_out="Use Bounds(family='kl').")
    if delta is not None:
        chance = check_real("delta", delta, low=0, high=1, open_low=True, open_high=True)
        family = replace(family, delta=chance)
    if method == "model" and return_range is not None:
        raise InvalidSetting(
            f"'return_range' must be left out with method 'model', got {shown(return_range)}. "
            "Declare a value_cap in the setting."
        )
    table, logged = as_policy_table(policy, setting), log.n_transitions
    log = log.checked(setting=setting).with_endings_of(setting)
    if method == "model":
        value = _by_model(log, table, setting, family)
    else:
        value = _by_returns(log, table, setting, family.delta, return_range)
    return Evaluation(
        **{name: raw_value(getattr(value, name), setting) for name in ("estimate", "lower", "upper")},
        standing=value.standing,
        method=method,
        delta=family.delta,
        episodes=log.n_episodes,
        transitions=logged,
        note=value.note,
    )


def start_weights(log: Log, setting: Setting) -> Floats:
    """Return the share of episodes of the log that start in each state, (S,), summing to 1.

    Args:
        log: The logged decisions.
        setting: The problem.

    Raises:
        InvalidData: if the setting does not have a state of the log.
    """
    check_log(log)
    log.check_shape(setting)
    counts = np.bincount(log.state[log.t == 0], minlength=setting.n_states)
    return np.asarray(counts / counts.sum())


def _by_model(log: Log, table: Ints, setting: Setting, bounds: Bounds) -> _Value:
    episodes = log.n_episodes
    knowledge = Knowledge.empty(setting, bounds, episodes=episodes, total_episodes=episodes)
    pairs = setting.pair_index[log.state, log.action]
    # Copies, which can be written to: for others the kernel would be compiled again.
    knowledge.learn(np.array(log.state), pairs, np.array(log.next_state), log.scaled_rewards(setting))
    knowledge.radii.terminal[log.next_state[log.terminated]] = True
    start = start_weights(log, setting)
    below, above = (policy_values(knowledge, table, sign) for sign in (LOWER, UPPER))
    check_cap(setting, bounds, knowledge, table, below)
    lower, upper = float(start @ below[0]), float(start @ above[0])
    # The counts as if they were exact, within the same value bounds as the others.
    vmax = np.array(setting.value_bounds)
    plain = exact_radii(setting)._replace(vmax=vmax, terminal=knowledge.radii.terminal)
    estimate = float(start @ policy_values(Knowledge(knowledge.rows, plain), table, LOWER)[0])
    unseen = _unseen_states(knowledge, table, start)
    note = "Holds for the start states as they were logged."
    if unseen:
        note += (
            f" The log does not contain the policy's action in {unseen} of the states it would reach: from "
            f"there on the estimate and the lower bound count {setting.scale.low:g} per step."
        )
    used = Grounds(
        bounds=bounds,
        delta=bounds.delta,
        setting=setting,
        logs=True,
        dropped=log.dropped is not None,
        discretised=log.discretised,
        also=("new episodes start like those of the log",),
    )
    return _Value(estimate, lower, upper, used.evaluation, note)


def _unseen_states(knowledge: Knowledge, table: Ints, start: Floats) -> int:
    """Return the number of states, reached by the counts, in which the policy's action was never logged."""
    rows, terminal = knowledge.rows, knowledge.radii.terminal
    here, unseen = start > 0, np.zeros(len(start), dtype=bool)
    for actions in table:
        there = np.zeros_like(here)
        for s in np.flatnonzero(here & ~terminal).tolist():
            p = rows.pair_index[s, actions[s]]
            unseen[s] |= rows.total[p] == 0
            there[rows.successor[rows.begin[p] : rows.begin[p] + rows.length[p]]] = True
        here = there
    return int(unseen.sum())


def _by_returns(
    log: Log, table: Ints, setting: Setting, delta: float, return_range: tuple[float, float] | None
) -> _Value:
    _check_played(log, table)
    _check_whole(log, setting)
    discounted = setting.discount**log.t * log.scaled_rewards(setting)
    returns = np.add.reduceat(discounted, np.flatnonzero(log.t == 0))
    # The largest return, not the largest value: a cap on the mean does not bound a single episode.
    low, high = 0.0, float(np.sum(setting.discount ** np.arange(setting.horizon)))
    if return_range is not None:
        low, high = _as_range(return_range, setting, (low, high))
        tolerance = RETURN_TOLERANCE * setting.horizon
        wrong = (returns < low - tolerance) | (returns > high + tolerance)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise InvalidData(
                "'return_range' must contain every logged return, got "
                f"{raw_value(float(returns[first]), setting):g} in episode "
                f"{int(log.episode[log.t == 0][first])} and {int(wrong.sum()) - 1} more."
            )
    n, mean = len(returns), float(returns.mean())
    radius = math.inf
    if n > 1:
        # ln(4 / delta): half of delta for each side.
        chance = math.log(4 / delta)
        radius = math.sqrt(2 * float(returns.var(ddof=1)) * chance / n)
        radius += 7 * (high - low) * chance / (3 * (n - 1))
    lower, cap = max(low, mean - radius), float(setting.value_bounds[0])
    if lower > cap:
        raise InvalidData(
            f"'value_cap' must bound every policy's value, got {raw_value(cap, setting):g} where the logged "
            f"returns are at least {raw_value(lower, setting):g}. Declare a larger one."
        )
    # By chance the mean of a sample may exceed the cap; the value does not.
    upper = min(high, cap, mean + radius)
    note = "Holds for independent episodes that start like those to come."
    alike = "episodes are independent and start like those to come"
    left_out = log.dropped is not None
    used = Grounds(delta=delta, setting=setting, dropped=left_out, discretised=log.discretised, also=(alike,))
    return _Value(min(mean, upper), lower, upper, used.evaluation, note)


def _check_played(log: Log, table: Ints) -> None:
    wanted = table[log.t, log.state]
    log.places.refuse(
        "action",
        "be the policy's own for method 'returns'",
        log.action != wanted,
        lambda i: f"{log.action[i]} and not {wanted[i]} at t = {log.t[i]}, s = {log.state[i]},",
        "Use method 'model' for a log of another policy.",
    )


def _check_whole(log: Log, setting: Setting) -> None:
    last = np.append(log.t[1:] == 0, True)
    log.places.refuse(
        "terminated",
        f"be true at the last step of an episode shorter than {setting.horizon} for method 'returns'",
        last & ~log.terminated & (log.t < setting.horizon - 1),
        lambda i: f"false at t = {log.t[i]}",
        "Declare the horizon of these episodes, or use method 'model'.",
    )


def _as_range(
    return_range: tuple[float, float], setting: Setting, widest: tuple[float, float]
) -> tuple[float, float]:
    """Return the user's range of returns in scaled units, at most as wide as rewards allow."""
    try:
        low, high = (scaled_value(end, setting) for end in return_range)
    except (TypeError, ValueError) as problem:
        raise InvalidSetting(
            f"'return_range' must be two finite numbers, got {shown(return_range)}."
        ) from problem
    low, high = max(low, widest[0]), min(high, widest[1])
    if not low < high:
        raise InvalidSetting(
            f"'return_range' must be (low, high) with low < high, and among the returns that rewards in "
            f"[{setting.scale.low:g}, {setting.scale.high:g}] allow, got {shown(return_range)}."
        )
    return low, high
