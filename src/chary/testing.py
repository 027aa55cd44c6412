"""Contract checks for users' own parts: each raises at the first broken promise, with the way out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from chary.critics.protocol import Critic, as_observations, checked_q_values, name_of
from chary.errors import (
    InvalidAction,
    InvalidBudget,
    InvalidData,
    InvalidSetting,
    as_float,
    check_integer,
    check_truth,
)
from chary.shield import Plan
from chary.texts import shown

S = TypeVar("S")


@runtime_checkable
class Asked(Protocol):
    """An object with the three methods of a Plan, for states of any type."""

    explore: Callable[..., int]
    baseline: Callable[..., int]
    charge: Callable[..., float]


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
