"""One decision: the plan behind it, the price of an action, and whether the ledger affords it."""

from __future__ import annotations

import math
import numbers
from collections.abc import MutableSequence
from typing import NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from chary.errors import (
    InvalidAction,
    InvalidBudget,
    InvalidData,
    as_float,
    check_integer,
    check_real,
    check_truth,
)
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.rule import Rule
from chary.shield.worlds import Vote
from chary.texts import shown

S_contra = TypeVar("S_contra", contravariant=True)


class Plan(Protocol[S_contra]):
    """The part of a learner that the shield calls; its results are frozen for one episode."""

    def explore(self, chain: int, clock: int, s: S_contra) -> int:
        """Return the action of the explorer of `chain` at `clock`; an id not met before is a new chain."""

    def baseline(self, t: int, s: S_contra) -> int:
        """Return the baseline's action at (t, s)."""

    def charge(self, t: int, s: S_contra, a: int) -> float:
        """Return an upper bound >= 0 on V_t(s) - Q_t(s, a) of the baseline; its own action should cost 0."""


@runtime_checkable
class PlanOfWorlds(Plan[S_contra], Protocol[S_contra]):
    """A plan that prices a step in every world of a set, for a shield whose worlds vote."""

    def charges(self, t: int, s: S_contra, a: int) -> MutableSequence[float]:
        """Return V_t(s) - Q_t(s, a) of the baseline in each world, at least 0; the shield may change it."""


class Decision(NamedTuple):
    """The action to play at one step, and its cost.

    `charge` is the cost booked for this step, `deficit` the ledger after it and `remaining` the room
    left under the rule's limit, all in the user's units of reward. `charge_scaled`, `deficit_scaled` and
    `remaining_scaled` are the same for rewards scaled to [0, 1], and `span` is the number of the user's units
    per scaled one. `plan` is the number the episode began with; `chain` is the chain whose explorer chose the
    action, -1 where the baseline did. Where worlds decide, `vote` is the last vote of this step, and
    `deficit` is the one that their panel decides by.

    Example:
        >>> decision = Decision(2, True, 0.1, 0.1, 0.4, plan=1, chain=0, span=50.0)
        >>> decision.charge, decision.remaining, decision.remaining_scaled
        (5.0, 20.0, 0.4)
        >>> decision.describe()
        'Action 2, explored: charge 5, deficit 5, remaining 20.'
    """

    action: int
    explored: bool
    charge_scaled: float
    deficit_scaled: float
    remaining_scaled: float
    plan: int
    chain: int
    vote: Vote | None = None
    span: float = 1.0

    @property
    def charge(self) -> float:
        """The cost booked for this step, in the user's units."""
        return self.charge_scaled * self.span

    @property
    def deficit(self) -> float:
        """The ledger after this step, in the user's units."""
        return self.deficit_scaled * self.span

    @property
    def remaining(self) -> float:
        """The room left under the rule's limit, in the user's units."""
        return self.remaining_scaled * self.span

    def describe(self) -> str:
        """Return the decision in a sentence, and the vote of the worlds in another."""
        amounts = ", ".join(
            f"{name} {getattr(self, name):.4g}" for name in ("charge", "deficit", "remaining")
        )
        voted = "" if self.vote is None else f" {self.vote.describe(self.span)}"
        return f"Action {self.action}, {'explored' if self.explored else 'baseline'}: {amounts}.{voted}"


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


def price_in_worlds(
    plan: Plan[S_contra], t: int, s: S_contra, a: int, *, trusted: bool
) -> MutableSequence[float]:
    """Return the charges of an action, one per world.

    Raises:
        InvalidBudget: if one is negative and the plan is not `trusted`.
    """
    # The shield has checked that it is one when the episode began.
    charges = cast("PlanOfWorlds[S_contra]", plan).charges(t, s, a)
    if not trusted and min(charges) < 0:
        raise InvalidBudget(
            f"'charges' must be numbers >= 0, got {min(charges)!r} at t = {t}, s = {s!r}, a = {a}. "
            "Clip the gap of every world at 0."
        )
    return charges


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
            f"'charge' must be a number >= 0, got {shown(answer)} at t = {t}, s = {s!r}, a = {a}. "
            "Clip the bound at 0: max(v_upper - q_lower, 0)."
        )
    return charge


def plain_decision(decision: Decision) -> Decision:
    """Return a recorded decision with plain numbers.

    Raises:
        InvalidData: if something in it is of another type.
    """
    charge, deficit, left = (as_float(amount) for amount in decision[2:5])
    span, vote = as_float(decision.span), decision.vote
    if any(math.isnan(amount) for amount in (charge, deficit, left, span)) or not isinstance(
        vote, Vote | None
    ):
        raise InvalidData(f"'decision' must hold numbers, and a Vote or None, got {shown(decision)}.")
    if vote is not None:
        panel, worst = (check_real("vote", each, low=0.0, error=InvalidData) for each in vote[3:])
        worlds = check_integer("vote", vote.worlds, minimum=2, error=InvalidData)
        within = check_integer("vote", vote.within, minimum=0, error=InvalidData)
        if within > worlds:
            raise InvalidData(f"'vote' must be within budget in {worlds} worlds at most, got {within}.")
        vote = Vote(check_truth("vote", vote.afforded, error=InvalidData), within, worlds, panel, worst)
    return Decision(
        decision.action,
        check_truth("explored", decision.explored, error=InvalidData),
        charge,
        deficit,
        left,
        check_integer("plan", decision.plan, minimum=0, error=InvalidData),
        check_integer("chain", decision.chain, minimum=-1, error=InvalidData),
        vote,
        span,
    )
