"""Contract checkers for users' own parts: each raises on the first broken promise, with the way out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from chary.errors import InvalidAction, InvalidBudget, InvalidData, check_integer
from chary.shield import Plan

__all__ = ["check_plan"]

S = TypeVar("S")


def check_plan(
    plan: Plan[S],
    states: Iterable[S],
    *,
    horizon: int,
    chains: Collection[int] = (0,),
    allowed: Callable[[S], Collection[int]] | None = None,
    free_baseline: bool = True,
) -> None:
    """Check that `plan` keeps what the shield relies on, at every step and each of `states`.

    Actions are whole numbers >= 0 (and among `allowed(s)` where that is given, for the explorers of all
    `chains`). The charge of the baseline's own action is exactly 0, since V - Q(s, pi_bar(s)) = 0 (unless
    `free_baseline` is False, for plans that charge as eq. (4) does), and every other charge asked for is
    finite and >= 0: those of the explorers' actions, and of all allowed ones. Asked again, in the opposite
    order, the plan answers the same to the bit.

    Example:
        >>> class Fixed:
        ...     def explore(self, chain, clock, s): return 1
        ...     def baseline(self, t, s): return 0
        ...     def charge(self, t, s, a): return 0.3 * a
        >>> check_plan(Fixed(), range(5), horizon=3)

    Raises:
        InvalidAction: if an action is not a whole number >= 0, or is not allowed.
        InvalidBudget: if a charge is negative or not finite, or the baseline's is not 0.
        InvalidData: if an answer changes when the plan is asked again.
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    questions = [(t, s) for s in states for t in range(horizon)]
    first = [_answers(plan, t, s, chains, allowed, free_baseline) for t, s in questions]
    again = [_answers(plan, t, s, chains, allowed, free_baseline) for t, s in reversed(questions)]
    for (t, s), before, after in zip(questions, first, reversed(again), strict=True):
        for question, answer in before.items():
            if after.get(question) != answer:
                raise InvalidData(
                    f"{question!r} must not change while the plan is in use, got {answer!r} and then "
                    f"{after.get(question)!r} at t = {t}, s = {s!r}. Freeze what it reads when it is built."
                )


def _answers(
    plan: Plan[S],
    t: int,
    s: S,
    chains: Collection[int],
    allowed: Callable[[S], Collection[int]] | None,
    free_baseline: bool,
) -> dict[str, float]:
    """Return the plan's checked answers at (t, s), each under the question that it answers."""
    options = None if allowed is None else allowed(s)
    baseline = _action("baseline", plan.baseline(t, s), t, s, options)
    explored = {chain: _action("explore", plan.explore(chain, t, s), t, s, options) for chain in chains}
    priced = {baseline, *explored.values(), *(options or ())}
    charges = {a: _charge(plan.charge(t, s, a), t, s, a) for a in sorted(priced)}
    if free_baseline and charges[baseline] != 0:
        raise InvalidBudget(
            f"'charge' must be 0 for the baseline's own action, got {charges[baseline]!r} at t = {t}, "
            f"s = {s!r}, a = {baseline}. Return 0.0 where a == baseline(t, s)."
        )
    return {
        "baseline": baseline,
        **{f"explore(chain={chain})": a for chain, a in explored.items()},
        **{f"charge(a={a})": charge for a, charge in charges.items()},
    }


def _action(question: str, answer: object, t: int, s: object, options: Collection[int] | None) -> int:
    place = f"This was at t = {t}, s = {s!r}."
    action = check_integer(question, answer, minimum=0, error=InvalidAction, way_out=place)
    if options is not None and action not in options:
        raise InvalidAction(
            f"{question!r} must be an allowed action, one of {sorted(options)}, got {action}. {place}"
        )
    return action


def _charge(answer: float, t: int, s: object, a: int) -> float:
    try:
        charge = float(answer)
    except (TypeError, ValueError):
        charge = math.nan
    if not (math.isfinite(charge) and charge >= 0):
        raise InvalidBudget(
            f"'charge' must be finite and >= 0, got {answer!r} at t = {t}, s = {s!r}, a = {a}. "
            "Clip the bound at 0, and at the largest value of the problem where nothing is known."
        )
    return charge
