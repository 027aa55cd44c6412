"""The judge of any rollout: what its episodes cost, as far as that can be known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from chary.agents.protocol import Transition
from chary.arrays import Bools, Floats, Ints, frozen
from chary.audit import Evaluation, Truth, audit_episode, violates
from chary.errors import InvalidData, InvalidSetting, as_float, check_real
from chary.mdp import FiniteMDP
from chary.rollouts import Episode
from chary.texts import shown

if TYPE_CHECKING:
    import gymnasium

__all__ = ["Judgement", "judge"]

NO_MDP = "regret and true deficits are unknown: the environment has no known MDP. Pass a FiniteMDP for them"
NO_BASELINE = "true deficits are unknown: they compare with a baseline. Pass baseline=... for them"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """What a rollout cost: arrays of shape (K,), one entry per episode, in the user's reward units.

    `returns` are discounted sums of the rewards that were observed and `length` the steps. `regret` is the
    loss against the optimum; `true_deficit` is z* of eq. (1) and `signed_deficit` the left side of eq. (2),
    against the baseline that was given; `largest_gap` is the largest loss at one step. What cannot be judged
    is None, and `unknown` says why.
    """

    returns: Floats
    length: Ints
    regret: Floats | None
    true_deficit: Floats | None
    signed_deficit: Floats | None
    largest_gap: Floats | None
    eta: float | None
    span: float
    unknown: str

    def violations(self, eta: float | None = None) -> Bools:
        """Return which episodes broke a budget: z* > eta + 1e-12 in scaled units.

        Raises:
            InvalidSetting: if true deficits are unknown, or there is no budget to judge by.
        """
        if self.true_deficit is None:
            raise InvalidSetting(f"'violations' must be judged by true deficits, got none: {self.unknown}.")
        budget = self.eta if eta is None else check_real("eta", eta, low=0.0)
        if budget is None:
            raise InvalidSetting("'eta' must be given to judge by, got None.")
        return np.asarray(violates(self.true_deficit / self.span, budget / self.span))

    def describe(self) -> str:
        """Return the judgement in a few sentences."""
        said = [f"{len(self.returns):,} episodes with a mean return of {self.returns.mean():.6g}."]
        if self.regret is not None:
            said.append(f"The regret is {self.regret.sum():.6g}.")
        if self.true_deficit is not None:
            said.append(f"The largest true deficit is {self.true_deficit.max():.6g}.")
            if self.eta is not None:
                broken = int(self.violations().sum())
                said.append(f"{broken:,} of {len(self.returns):,} episodes broke the budget of {self.eta:g}.")
        if self.unknown:
            said.append(f"{self.unknown[0].upper()}{self.unknown[1:]}.")
        return " ".join(said)


def judge(
    env_or_mdp: FiniteMDP | gymnasium.Env[Any, Any],
    episodes: Iterable[Episode | Sequence[Transition]],
    *,
    baseline: ArrayLike | None = None,
    eta: float | None = None,
) -> Judgement:
    """Judge the episodes of any rollout by the true MDP, whatever agent played them.

    An environment of `chary.envs` has a known MDP. For any other one, returns alone can be judged, and
    `unknown` says so: regret and true deficits compare values, which nobody knows there.

    Args:
        env_or_mdp: The problem that was played, or the environment.
        episodes: What `rollout` yields, or lists of transitions; rewards in the user's units.
        baseline: The policy that deficits compare with: actions (S,) or (H, S), or one policy per episode,
            (K, H, S). Without one there are no true deficits.
        eta: The budget of every episode, in the user's units.

    Raises:
        InvalidData: if an episode is not one of this problem.
        InvalidAction: if it contains an action that is not allowed.
        InvalidSetting: if an argument has another type, or `baseline` is no policy of this problem.

    Example:
        >>> import chary
        >>> env = chary.envs.TabularEnv(chary.envs.riverswim())
        >>> dice = chary.TabularAgent(chary.Random(), env.mdp.setting, generator=np.random.default_rng(0))
        >>> judge(env, chary.rollout(env, dice, episodes=5, seed=1), baseline=[1] * 6).true_deficit.shape
        (5,)
    """
    mdp = _mdp_of(env_or_mdp)
    budget = None if eta is None else check_real("eta", eta, low=0.0)
    if mdp is None and baseline is not None:
        raise InvalidSetting("'baseline' must come with a known MDP, got an environment without one.")
    try:
        played = [_steps(k, episode) for k, episode in enumerate(episodes)]
    except TypeError as problem:
        raise InvalidData(
            f"'episodes' must be what rollout yields, or transitions, got {problem}."
        ) from problem
    if not played:
        raise InvalidData("'episodes' must contain at least one episode, got none.")
    discount = 1.0 if mdp is None else mdp.setting.discount
    returns = [sum(discount**t * step.reward for t, step in enumerate(steps)) for steps in played]
    columns = {} if mdp is None else _judged(mdp, played, baseline)
    return Judgement(
        returns=frozen(np.array(returns, dtype=np.float64)),
        length=frozen(np.array([len(steps) for steps in played], dtype=np.int64)),
        **{name: columns.get(name) for name in ("regret", "true_deficit", "signed_deficit", "largest_gap")},
        eta=budget,
        span=1.0 if mdp is None else mdp.scale.span,
        unknown=NO_MDP if mdp is None else NO_BASELINE if baseline is None else "",
    )


def _mdp_of(env_or_mdp: object) -> FiniteMDP | None:
    if isinstance(env_or_mdp, FiniteMDP):
        return env_or_mdp
    import gymnasium

    from chary.envs.tabular_env import TabularEnv

    if not isinstance(env_or_mdp, gymnasium.Env):
        raise InvalidSetting(
            f"'env_or_mdp' must be a FiniteMDP or a Gymnasium environment, got {type(env_or_mdp).__name__}."
        )
    inside = env_or_mdp.unwrapped
    return inside.mdp if isinstance(inside, TabularEnv) else None


def _steps(k: int, episode: Episode | Iterable[Transition]) -> tuple[Transition, ...]:
    """Return the transitions of an episode, each of which begins where the last one led."""
    steps = episode.transitions if isinstance(episode, Episode) else tuple(episode)
    for t, step in enumerate(steps):
        if not isinstance(step, Transition):
            raise InvalidData(f"episode {k} must consist of transitions, got {shown(step)} at step {t}.")
        if not np.isfinite(as_float(step.reward)):
            raise InvalidData(f"'reward' must be finite, got {shown(step.reward)} in episode {k}, step {t}.")
        if t and not np.array_equal(step.state, steps[t - 1].next_state):
            raise InvalidData(
                f"'state' must be the next state of the step before, got {shown(step.state)} in episode {k}, "
                f"step {t}."
            )
    if not steps:
        raise InvalidData(f"episode {k} must have at least one step, got none.")
    return steps


def _judged(
    mdp: FiniteMDP, played: Sequence[Sequence[Transition]], baseline: ArrayLike | None
) -> dict[str, Floats]:
    """Return the columns that need the truth, those that compare with a baseline only where there is one."""
    truth = Truth(mdp)
    policies = _policies(truth, len(played), baseline)
    evaluated: tuple[Any, Evaluation] | None = None
    audits = []
    for k, (steps, policy) in enumerate(zip(played, policies, strict=True)):
        # One policy for all episodes is one array, evaluated once.
        if evaluated is None or evaluated[0] is not policy:
            evaluated = policy, truth.evaluate(policy)
        states = np.array([steps[0].state, *(step.next_state for step in steps)])
        actions = np.array([step.action for step in steps])
        audits.append(audit_episode(truth, states, actions, evaluated[1]))
        _check_possible(mdp, k, states, actions)
    names = ("regret",) if baseline is None else ("regret", "true_deficit", "signed_deficit", "largest_gap")
    return {
        name: frozen(np.array([getattr(audit, name) for audit in audits]) * mdp.scale.span) for name in names
    }


def _policies(truth: Truth, number: int, baseline: ArrayLike | None) -> list[Any]:
    """Return the baseline of each episode; the optimum stands in where there is none, for regret alone."""
    if baseline is None:
        return [truth.optimal_policy] * number
    try:
        given = np.asarray(baseline)
    except ValueError as problem:
        raise InvalidSetting(f"'baseline' must be an array of actions, got {problem}.") from problem
    if given.ndim < 3:
        return [given] * number
    if len(given) != number:
        raise InvalidSetting(f"'baseline' must be one policy or {number}, one per episode, got {len(given)}.")
    return list(given)


def _check_possible(mdp: FiniteMDP, k: int, states: Ints, actions: Ints) -> None:
    """Raise InvalidData at a transition that the MDP cannot make: another problem was played."""
    for t, action in enumerate(actions):
        pair = mdp.setting.pair_index[states[t], action]
        if states[t + 1] not in mdp.successor[mdp.row_start[pair] : mdp.row_start[pair + 1]]:
            raise InvalidData(
                f"'episodes' must be of this problem, got a step from state {states[t]} by action {action} "
                f"to state {states[t + 1]}, which has probability 0, in episode {k}, step {t}."
            )
