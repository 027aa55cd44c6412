"""What a step costs and whether it is afforded, before anything is booked; recorded decisions as the same."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Generic, NamedTuple, TypeVar

from chary.shield.account import Account
from chary.shield.chains import Chain
from chary.shield.decision import Decision, Plan, afford, price, price_in_worlds
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.rule import Rule
from chary.shield.worlds import Vote, Votes

S = TypeVar("S")


class Weighed(NamedTuple, Generic[S]):
    """What is to be done at a step: the action and its cost, the ledger after it, and what chains do.

    `chosen` is the chain that explores, `refused` those that were not afforded before it, and `proposals` the
    actions that chains proposed.
    """

    explored: bool
    action: int
    cost: float
    ledger: Ledger
    vote: Vote | None
    chosen: Chain[S] | None
    refused: tuple[Chain[S], ...]
    proposals: tuple[int, ...] = ()


def put(
    plan: Plan[S],
    t: int,
    s: S,
    action: int,
    ledger: Ledger,
    deficits: MutableSequence[float],
    rule: Rule,
    votes: Votes | None,
) -> tuple[bool, float, Ledger, Vote | None]:
    """Return whether a step is afforded, its cost, the ledger after it, and the vote if there is one.

    Each world's own charge is added to `deficits` with the vote: no call of the plan may come after it.
    """
    if votes is None:
        return *afford(ledger, price(plan, t, s, action), rule), None
    charges = price_in_worlds(plan, t, s, action, trusted=votes.trusted)
    vote, after = votes.vote(deficits, charges, ledger, rule, votes.panel)
    return vote.afforded, after.deficit - ledger.deficit if vote.afforded else 0.0, after, vote


def settle_debts(now: Account[S]) -> None:
    """Book in every world the steps that were applied without asking the plan."""
    for t, s, action in now.owed:
        charges = price_in_worlds(now.plan, t, s, action, trusted=True)
        for k in range(len(now.deficits)):
            now.deficits[k] = charges[k] + now.deficits[k]
    now.owed.clear()


def recorded(
    now: Account[S],
    decision: Decision,
    candidates: tuple[Chain[S], ...],
    proposal: int | None,
    explore: bool,
    votes: Votes | None,
) -> Weighed[S] | None:
    """Return a recorded decision as it was weighed, None where it cannot have been.

    `candidates` are the chains that may try here, in their order. Prices are taken from the record.
    """
    before, rule, vote = now.ledger, now.rule, decision.vote
    asked = proposal is not None or bool(candidates)
    chosen, refused = None, candidates
    if decision.chain >= 0:
        places = [i for i, chain in enumerate(candidates) if chain.id == decision.chain]
        if not places:
            return None
        chosen, refused = candidates[places[0]], candidates[: places[0]]
    if rule.closes:
        if chosen is not None and refused:
            return None
        refused = refused[:1]
    if (vote is not None) != (asked and votes is not None):
        return None
    if vote is not None and (vote.afforded != decision.explored or vote.worlds != len(now.deficits)):
        return None
    if not decision.explored:
        if chosen is not None:
            return None
        after = refuse(before, rule) if asked else before
        return Weighed(False, decision.action, 0.0, after, vote, None, refused)
    if (chosen is None) != (proposal is not None) or not explore:
        return None
    if proposal is not None and decision.action != proposal:
        return None
    if vote is None:
        charge = decision.charge_scaled
        afforded, cost, after = afford(before, charge, rule) if charge >= 0 else (False, 0.0, before)
        return Weighed(True, decision.action, cost, after, None, chosen, refused) if afforded else None
    afforded, told = authorise(Ledger(before.closed, 0.0), True, vote.deficit, rule)
    after = Ledger(told.closed, vote.deficit)
    cost = after.deficit - before.deficit
    return Weighed(True, decision.action, cost, after, vote, chosen, refused) if afforded else None
