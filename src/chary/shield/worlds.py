"""The ledger of worlds: one deficit per world, and one vote on every step, docs/algorithm.md section 11."""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from statistics import NormalDist
from typing import NamedTuple

from chary.errors import check_integer, check_real
from chary.shield.ledger import Ledger, authorise
from chary.shield.rule import Rule


class Panel(NamedTuple):
    """The part of the worlds that must agree: all but `allowed`, or with none allowed mean + `z` * sd.

    Example:
        >>> Panel.of(0.05, worlds=64)[0], round(Panel.of(0.001, worlds=64).z, 2)
        (3, 3.09)
    """

    allowed: int
    z: float

    @classmethod
    def of(cls, risk: float, *, worlds: int) -> Panel:
        """Return the panel for the probability `risk`, in (0, 1), of exceeding the budget in an episode.

        A share `risk` of the worlds may exceed it. Where that is less than one world, the normal quantile
        z of 1 - `risk` takes its place.
        """
        risk = check_real("risk", risk, low=0.0, high=1.0, open_low=True, open_high=True)
        check_integer("worlds", worlds, minimum=2)
        return cls(math.floor(risk * worlds), NormalDist().inv_cdf(1.0 - risk))


class Vote(NamedTuple):
    """The outcome of one vote: whether the step is afforded, and the deficits if it is played.

    In `within` of `worlds` worlds the episode would stay within its budget; `deficit` is the deficit that
    the panel decides by, and `worst` that of the worst world.
    """

    afforded: bool
    within: int
    worlds: int
    deficit: float
    worst: float

    def describe(self) -> str:
        """Return the vote as a sentence, deficits in scaled units.

        Example:
            >>> Vote(True, 99, 100, 0.09, 0.13).describe()
            'In 99 of 100 worlds within budget; worst world 0.13.'
        """
        return f"In {self.within} of {self.worlds} worlds within budget; worst world {self.worst:.3g}."


def upper(values: Sequence[float], panel: Panel) -> float:
    """Return what a panel takes for an upper bound on values, one per world.

    The largest but `allowed`, or mean + z * sd, which is the value itself where there is only one.

    Example:
        >>> upper([0.1, 0.4, 0.2, 0.3], Panel(allowed=1, z=3.0))
        0.3
    """
    n = len(values)
    if panel.allowed > 0 and n > 1:
        bound, place = math.inf, -1
        for _ in range(min(panel.allowed + 1, n)):
            # The next one in descending order; of equal values the first comes first.
            largest, where = -math.inf, -1
            for k in range(n):
                if (values[k] < bound or (values[k] == bound and k > place)) and values[k] > largest:
                    largest, where = values[k], k
            bound, place = largest, where
        return bound
    total = 0.0
    for k in range(n):
        total += values[k]
    mean = total / n
    squares = 0.0
    for k in range(n):
        squares += (values[k] - mean) * (values[k] - mean)
    return mean + panel.z * math.sqrt(squares / max(n - 1, 1))


def vote_into(
    deficits: MutableSequence[float],
    charges: MutableSequence[float],
    ledger: Ledger,
    rule: Rule,
    panel: Panel,
) -> tuple[Vote, Ledger]:
    """Decide one step by the vote of all worlds, and book each world's own charge if it is afforded.

    `deficits` and `charges` have one number per world, charges finite and >= 0; the charges are replaced by
    the deficits with them. `ledger` keeps the panel's deficit and whether exploring is closed.

    Example:
        >>> deficits = [0.0, 0.1, 0.0]
        >>> vote_into(deficits, [0.1, 0.1, 0.2], Ledger(), Rule.strict(0.3), Panel(0, 0.0))[1]
        Ledger(closed=False, deficit=0.16666666666666666)
        >>> deficits
        [0.1, 0.2, 0.2]
    """
    n, within, worst = len(deficits), 0, 0.0
    for k in range(n):
        alone, _ = authorise(Ledger(ledger.closed, deficits[k]), True, charges[k], rule)
        within += alone
        charges[k] += deficits[k]
        worst = max(worst, charges[k])
    deficit = upper(charges, panel)
    afforded, after = authorise(Ledger(ledger.closed, 0.0), True, deficit, rule)
    if afforded:
        for k in range(n):
            deficits[k] = charges[k]
        return Vote(True, within, n, deficit, worst), Ledger(after.closed, deficit)
    return Vote(False, within, n, deficit, worst), Ledger(after.closed, ledger.deficit)
