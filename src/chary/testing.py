"""Contract checks for users' own parts: each raises at the first broken promise, with the way out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from chary.agents.comparison import Random
from chary.agents.own import OwnAgent, WarmStarts
from chary.agents.tabular import TabularAgent
from chary.audit import Truth, check_value_cap
from chary.critics.protocol import Critic, as_observations, checked_q_values, name_of
from chary.envs.tabular_env import TabularEnv
from chary.errors import (
    InvalidAction,
    InvalidBudget,
    InvalidData,
    InvalidMDP,
    InvalidSetting,
    as_float,
    check_integer,
    check_truth,
    check_type,
)
from chary.extensions import load, parameters_of, theirs
from chary.mdp import FiniteMDP
from chary.rollouts import rollout
from chary.shield import Plan
from chary.texts import shown

S = TypeVar("S")


@runtime_checkable
class Asked(Protocol):
    """An object with the three methods of a Plan, for states of any type."""

    explore: Callable[..., int]
    baseline: Callable[..., int]
    charge: Callable[..., float]


# Episodes before the first one, for agents that learn from such.
WARM_UP = 3
# Up to rounding: a budget in scaled units is a quotient.
BUDGET_TOLERANCE = 1e-9
# Single precision, and sums that a batch takes in another order.
BATCH_TOLERANCE = 1e-5


def check_plan(
    plan: Plan[S],
    states: Iterable[S],
    *,
    horizon: int,
    chains: Collection[int] = (0,),
    allowed: Callable[[S], Collection[int]] | None = None,
    free_baseline: bool = True,
) -> None:
    """Check that `plan` keeps the promises that the shield relies on, at every step and each of `states`.

    Actions are whole numbers >= 0 (and among `allowed(s)` where that is given, for the explorers of all
    `chains`). The charge of the baseline's own action is exactly 0, since V - Q(s, pi_bar(s)) = 0 (unless
    `free_baseline` is False, for plans that charge as eq. (4) does), and every other charge is
    finite and >= 0: those of the explorers' actions, and of all allowed ones. Called again, in the opposite
    order, the plan returns the same to the bit.

    Example:
        >>> class Fixed:
        ...     def explore(self, chain, clock, s): return 1
        ...     def baseline(self, t, s): return 0
        ...     def charge(self, t, s, a): return 0.3 * a
        >>> check_plan(Fixed(), range(5), horizon=3)

    Raises:
        InvalidAction: if an action is not a whole number >= 0, or is not allowed.
        InvalidBudget: if a charge is negative or not finite, or the baseline's is not 0.
        InvalidData: if a result changes when the plan is called again.
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    if not isinstance(plan, Asked):
        raise InvalidSetting(
            f"'plan' must have the methods explore, baseline and charge, got {type(plan).__name__}."
        )
    if allowed is not None and not callable(allowed):
        raise InvalidSetting(f"'allowed' must be a function of a state, got {shown(allowed)}.")
    check_truth("free_baseline", free_baseline)
    try:
        questions = [(t, s) for s in states for t in range(horizon)]
        chains = [check_integer("chains", chain, minimum=0) for chain in chains]
    except TypeError as problem:
        raise InvalidSetting(f"'states' and 'chains' must be lists, got {problem}.") from problem

    def answers(t: int, s: S) -> dict[str, float]:
        """Return the plan's checked results at (t, s), each under the name of its call."""
        options = None if allowed is None else allowed(s)
        baseline = _action("baseline", plan.baseline(t, s), t, s, options)
        explored = {chain: _action("explore", plan.explore(chain, t, s), t, s, options) for chain in chains}
        priced = {baseline, *explored.values(), *(options or ())}
        charges = {a: _charge(plan.charge(t, s, a), t, s, a) for a in sorted(priced)}
        if free_baseline and charges[baseline] != 0:
            raise InvalidBudget(
                f"'charge' must be 0 for the baseline's own action, got {shown(charges[baseline])} "
                f"at t = {t}, "
                f"s = {s!r}, a = {baseline}. Return 0.0 where a == baseline(t, s)."
            )
        return {
            "baseline": baseline,
            **{f"explore(chain={chain})": a for chain, a in explored.items()},
            **{f"charge(a={a})": charge for a, charge in charges.items()},
        }

    first = [answers(t, s) for t, s in questions]
    again = [answers(t, s) for t, s in reversed(questions)]
    for (t, s), before, after in zip(questions, first, reversed(again), strict=True):
        for question, answer in before.items():
            if after.get(question) != answer:
                raise InvalidData(
                    f"{question!r} must not change while the plan is in use, got {shown(answer)} and then "
                    f"{after.get(question)!r} at t = {t}, s = {s!r}. Freeze what it reads when it is built."
                )


def check_critic(critic: Critic, observations: ArrayLike, n_actions: int) -> None:
    """Check that `critic` keeps the promises that `CriticShield` relies on, at each of `observations`.

    Its values are finite and of shape (B, A). A second call returns the same to the bit, and one observation
    alone has the same values as in a batch, up to 1e-5 of their size (or of 1). It does not write to the
    observations.

    Args:
        critic: The critic to check.
        observations: (B, ...) observations, any number of them.
        n_actions: The number A of actions.

    Example:
        >>> from chary.critics import FunctionCritic
        >>> check_critic(FunctionCritic(lambda x: x * [1.0, 2.0], n_actions=2), [[0.5], [3.0]], n_actions=2)

    Raises:
        InvalidSetting: if it is not a critic.
        InvalidData: naming the critic and the promise that it breaks.
    """
    seen = as_observations("observations", observations)
    given = seen.copy()
    first = checked_q_values(critic, given, n_actions)
    name = name_of(critic)
    if not np.array_equal(given, seen):
        raise InvalidData(f"'q_values' of {name} must not write to the observations. Copy them first.")
    if not np.array_equal(checked_q_values(critic, given, n_actions), first):
        raise InvalidData(
            f"'q_values' of {name} must be the same at a second call, got others. Switch off dropout and "
            "noise, and do not train it meanwhile."
        )
    for row, observation in enumerate(seen):
        alone = checked_q_values(critic, observation[np.newaxis].copy(), n_actions)[0]
        apart = np.abs(alone - first[row]) > BATCH_TOLERANCE * np.maximum(np.abs(first[row]), 1.0)
        if apart.any():
            a = int(apart.argmax())
            raise InvalidData(
                f"'q_values' of {name} must not depend on the rest of the batch, got "
                f"{shown(first[row, a])} in it "
                f"and {alone[a]!r} alone for observation {row}, action {a}. Normalise by fixed numbers."
            )


def check_agent(
    agent: OwnAgent | str | Callable[..., Any],
    mdp: FiniteMDP | None = None,
    *,
    episodes: int = 10,
    seed: int = 0,
) -> None:
    """Check that an agent of your own keeps the promises that `simulate` and sweeps rely on.

    It plays `mdp` twice, made anew from the same seed. Its actions are whole numbers, allowed where they are
    played, and the same both times; it draws from the generator that it is given, and not from those of
    Python and NumPy that all programs share. Where it returns Decisions, the deficit never falls during an
    episode, and stays within the agent's budget if it has one.

    Args:
        agent: The agent as in `OwnAgent`, or such a specification with arguments and a budget.
        mdp: The problem, by default a maze of four rooms with an exit, where some actions are not allowed.
        episodes: The number of episodes.
        seed: The seed of world and agent.

    Example:
        >>> class Lowest:
        ...     def __init__(self, setting): self.allowed = setting.allowed
        ...     def begin(self, episode, state): ...
        ...     def act(self, episode, t, state): return self.allowed[state].argmax()
        ...     def observe(self, episode, transition): ...
        ...     def finish(self, episode): ...
        >>> check_agent(Lowest)

    Raises:
        InvalidAction: if an action is not a whole number, or is not allowed.
        InvalidData: if a second run from the same seed differs, a global generator was used, or a deficit
            falls.
        InvalidBudget: if a deficit exceeds the budget.
        FailedCode: if the agent raises.
    """
    spec = agent if isinstance(agent, OwnAgent) else OwnAgent(agent)
    problem = _maze() if mdp is None else mdp
    check_type("mdp", problem, FiniteMDP, "a FiniteMDP", way_out="Use chary.envs.make for a name.")
    env, what = TabularEnv(problem), f"agent {spec.label!r}"
    limit = math.inf if spec.eta is None else spec.eta / problem.scale.span
    dice = TabularAgent(Random(), problem.setting, generator=np.random.default_rng(seed))
    before = [episode.transitions for episode in rollout(env, dice, episodes=WARM_UP, seed=seed)]

    def played() -> list[tuple[int, float]]:
        """Return every action and the ledger after it."""
        generator = np.random.default_rng(seed)
        made = spec.made(problem.told(spec.reward), generator=generator, episodes=episodes)
        found = []
        with theirs(what):
            if isinstance(made, WarmStarts):
                made.warm_start(before)
            for episode in rollout(env, made, episodes=episodes, seed=seed + 1):
                deficits = [0.0, *(decision.deficit for decision in episode.decisions)]
                if any(after < earlier for earlier, after in pairwise(deficits)):
                    raise InvalidData(
                        f"'deficit' must never fall in an episode, got {shown(deficits)} of {what}."
                    )
                if deficits[-1] > limit + BUDGET_TOLERANCE:
                    raise InvalidBudget(
                        f"'deficit' must be at most the budget, {limit:g} in scaled units, got "
                        f"{deficits[-1]:g} of {what}."
                    )
                found += [(decision.action, decision.deficit) for decision in episode.decisions]
        return found

    shared = _shared_generators()
    first = played()
    if _shared_generators() != shared:
        raise InvalidData(
            f"{what} must draw from its 'generator' alone, but used a global one. Take `generator` as a "
            "parameter and draw from it."
        )
    if played() != first:
        raise InvalidData(
            f"{what} must play the same from the same seed, got other actions the second time. Keep nothing "
            "in the class or module, and draw from its 'generator' alone."
        )


def check_problem(problem: str | Callable[..., Any], **options: Any) -> None:
    """Check that a problem of your own can be played, compared and named in a sweep.

    The function returns a FiniteMDP, the same one to the bit at every call; an option `horizon`, if it has
    one, is the horizon; no policy is worth more than the declared `value_cap`; and policies differ in value,
    since nothing can be learnt otherwise.

    Args:
        problem: A function, or "module:name" of one.
        **options: Its options.

    Example:
        >>> import chary
        >>> check_problem(chary.envs.corridor, length=4)

    Raises:
        InvalidMDP: if it returns something else, another problem each time, or one without a decision.
        FailedCode: if the function raises.
    """
    make = load("problem", problem) if isinstance(problem, str) else problem
    if not callable(make):
        raise InvalidSetting(f"'problem' must be a function, got {type(make).__name__}.")

    def made(**given: Any) -> FiniteMDP:
        with theirs("'problem'"):
            mdp = make(**{**options, **given})
        check_type("problem", mdp, FiniteMDP, "a function that returns a FiniteMDP", error=InvalidMDP)
        assert isinstance(mdp, FiniteMDP)
        return mdp

    first, again = made(), made()
    arrays = ("row_start", "successor", "probability", "reward", "start")
    same = all(np.array_equal(getattr(first, name), getattr(again, name)) for name in arrays)
    if not same or first.setting.digest != again.setting.digest:
        raise InvalidMDP(
            "'problem' must be the same at every call, got another the second time. Draw from a generator "
            "with a fixed seed, which may be an option."
        )
    if (
        "horizon" in parameters_of(make)
        and (other := made(horizon=first.horizon + 1).horizon) != first.horizon + 1
    ):
        raise InvalidMDP(f"'horizon' must be that of the option, {first.horizon + 1}, got {other}.")
    truth = Truth(first)
    best = truth.value_of_start(truth.optimal_value)
    check_value_cap(float(truth.optimal_value.max()), first.setting.value_cap)
    if best - truth.value_of_start(truth.solve(worst=True).value) <= BUDGET_TOLERANCE:
        raise InvalidMDP(
            f"'problem' must have policies that differ in value, got one where all are worth {best:.6g} in "
            "scaled units."
        )


def _maze() -> FiniteMDP:
    """Return four rooms and an exit: a terminal state, actions that are not allowed, rewards in [0, 4]."""
    rows = {
        (0, 0): [(0, 0.5, 1.0), (1, 0.5, 0.0)],
        (0, 2): [(2, 0.8, 0.0), (0, 0.2, 0.0)],
        (1, 1): [(0, 0.3, 2.0), (3, 0.7, 0.0)],
        (2, 0): [(1, 1.0, 0.0)],
        (2, 1): [(4, 0.5, 4.0), (2, 0.5, 0.0)],
        (2, 2): [(0, 1.0, 1.0)],
        (3, 0): [(3, 0.6, 1.0), (0, 0.4, 0.0)],
        (3, 2): [(2, 1.0, 0.0)],
    }
    options: dict[str, Any] = {
        "terminal": [4],
        "start": [0.6, 0.4, 0.0, 0.0, 0.0],
        "reward_range": (0.0, 4.0),
    }
    return FiniteMDP.from_successors(rows, n_states=5, n_actions=3, horizon=6, name="maze", **options)


def _shared_generators() -> tuple[object, ...]:
    """Return the state of the generators that all programs share."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), name, np.asarray(keys).tobytes(), *rest


def _action(question: str, answer: object, t: int, s: object, options: Collection[int] | None) -> int:
    place = f"This was at t = {t}, s = {s!r}."
    action = check_integer(question, answer, minimum=0, error=InvalidAction, way_out=place)
    if options is not None and action not in options:
        raise InvalidAction(
            f"{question!r} must be an allowed action, one of {sorted(options)}, got {action}. {place}"
        )
    return action


def _charge(answer: float, t: int, s: object, a: int) -> float:
    charge = as_float(answer)
    if not (math.isfinite(charge) and charge >= 0):
        raise InvalidBudget(
            f"'charge' must be finite and >= 0, got {shown(answer)} at t = {t}, s = {s!r}, a = {a}. "
            "Clip the bound at 0, and at the largest value of the problem where nothing is known."
        )
    return charge
