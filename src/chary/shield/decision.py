"""One decision: the plan behind it, the price of an action, and whether the ledger affords it."""

from __future__ import annotations

import math
import numbers
from typing import NamedTuple, Protocol, TypeVar

from chary.errors import InvalidAction, InvalidBudget, as_float, check_integer
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.rule import Rule

S_contra = TypeVar("S_contra", contravariant=True)


class Plan(Protocol[S_contra]):
    """The part of a learner that the shield calls; its results are frozen for one episode."""

    def explore(self, chain: int, clock: int, s: S_contra) -> int:
        """Return the action of the explorer of `chain` at `clock`; an id not met before is a new chain."""

    def baseline(self, t: int, s: S_contra) -> int:
        """Return the baseline's action at (t, s)."""

    def charge(self, t: int, s: S_contra, a: int) -> float:
        """Return an upper bound >= 0 on V_t(s) - Q_t(s, a) of the baseline; its own action should cost 0."""


class Decision(NamedTuple):
    """The action to play at one step, and its cost.

    `charge` is the cost booked for this step, `deficit` the ledger after it and `remaining` the room
    left under the rule's limit. `plan` is the number the episode began with; `chain` is the chain whose
    explorer chose the action, -1 where the baseline did.
    """

    action: int
    explored: bool
    charge: float
    deficit: float
    remaining: float
    plan: int
    chain: int


def afford(ledger: Ledger, charge: float, rule: Rule) -> tuple[bool, float, Ledger]:
    """Return whether a step is afforded, what is booked for it, and the ledger after it.

    A charge that is not finite is a refusal and is never booked.
    """
    if not math.isfinite(charge):
        return False, 0.0, refuse(ledger, rule)
    afforded, after = authorise(ledger, True, charge, rule)
    return afforded, min(charge, rule.step_bound) if afforded else 0.0, after


def room(rule: Rule, deficit: float) -> float:
    """Return how much of the rule's limit is left."""
    return rule.limit if rule.limit == math.inf else max(rule.limit - deficit, 0.0)


def as_action(question: str, answer: object) -> int:
    """Return what a method of a plan returned as an action, or raise InvalidAction."""
    # The common case first: every decision comes here, and every chain that waits there.
    if type(answer) is int and answer >= 0:
        return answer
    return check_integer(
        question, answer, minimum=0, error=InvalidAction, way_out="A plan returns an action's index."
    )


def price(plan: Plan[S_contra], t: int, s: S_contra, a: int) -> float:
    """Return the charge of an action.

    Raises:
        InvalidBudget: if it is negative, or not a number.
    """
    answer = plan.charge(t, s, a)
    # The common case first: most decisions come here.
    if type(answer) is float and answer >= 0.0:
        return answer
    charge = as_float(answer)
    if math.isnan(charge) and not isinstance(answer, numbers.Real):
        charge = -math.inf
    if charge < 0:
        raise InvalidBudget(
            f"'charge' must be a number >= 0, got {answer!r} at t = {t}, s = {s!r}, a = {a}. "
            "Clip the bound at 0: max(v_upper - q_lower, 0)."
        )
    return charge
