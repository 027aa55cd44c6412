"""The ledger of one episode and the one place where a budget decision is made."""

from __future__ import annotations

from typing import NamedTuple

from chary.shield.rule import Rule


class Ledger(NamedTuple):
    """The deficit booked in an episode, the paper's zeta of eq. (4), and whether exploring is closed."""

    closed: bool = False
    deficit: float = 0.0


def authorise(ledger: Ledger, candidate: bool, charge: float, rule: Rule) -> tuple[bool, Ledger]:
    """Decide one step and return whether it may explore, with the ledger after it.

    `candidate` says whether anything wants to explore here; `charge` is finite and >= 0.
    Only operators that mean the same for Python numbers, NumPy lanes, numba and JAX are used,
    so that every driver runs this very function.

    Example:
        >>> authorise(Ledger(), True, 0.3, Rule.strict(0.4))
        (True, Ledger(closed=False, deficit=0.3))
        >>> authorise(Ledger(deficit=0.3), True, 0.3, Rule.strict(0.4))
        (False, Ledger(closed=False, deficit=0.3))
    """
    uncapped = charge <= rule.step_bound
    cost = charge * uncapped + rule.step_bound * (uncapped ^ True)
    afforded = candidate & (ledger.closed ^ True) & (ledger.deficit + rule.lookahead * cost <= rule.limit)
    closed = ledger.closed | (rule.closes & candidate & (afforded ^ True))
    return afforded, Ledger(closed, ledger.deficit + cost * afforded)


def refuse(ledger: Ledger, rule: Rule) -> Ledger:
    """Return the ledger after a step that may not even be priced (its charge is not finite)."""
    return Ledger(ledger.closed | rule.closes, ledger.deficit)
