"""The ledger of worlds: one deficit per world, and one vote on every step, docs/algorithm.md section 11."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from chary.errors import check_integer, check_real
from chary.shield.ledger import Ledger, authorise
from chary.shield.rule import Rule

# The share of the worlds, 1 in so many, that the tail beyond all of them is fitted to.
TAIL = 8


class Panel(NamedTuple):
    """The part of the worlds that must agree: all but `allowed` or, where that is -1, all and a tail beyond.

    `reach` is how many mean excesses the tail goes beyond the worlds that it is fitted to.

    Example:
        >>> Panel.of(0.05, worlds=64)[0], Panel.of(0.001, worlds=64).allowed
        (2, -1)
        >>> round(Panel.of(0.001, worlds=64).z, 2)
        3.09
    """

    allowed: int
    z: float
    reach: float = 0.0

    @classmethod
    def of(cls, risk: float, *, worlds: int) -> Panel:
        """Return the panel for the probability `risk`, in (0, 1), of exceeding the budget in an episode.

        The truth is one more draw from the posterior. By symmetry it is among the m + 1 largest of it and n
        worlds with probability (m + 1) / (n + 1), so m worlds may exceed the budget if that is at most
        `risk`. Where it is not even for m = 0, no world may, and besides the quantile of 1 - `risk` must be
        within the budget, by two laws: mean + z * sd of all worlds, which is the normal one, and u + e *
        `reach`, where the largest eighth of the worlds exceeds u by e on average. That is the exponential
        one, and larger where few worlds lose much and most lose nothing.
        """
        risk = check_real("risk", risk, low=0.0, high=1.0, open_low=True, open_high=True)
        check_integer("worlds", worlds, minimum=2)
        # The tiny term: 0.05 * 20 is 1.
        allowed, fitted = math.floor(risk * (worlds + 1) + 1e-9) - 1, worlds // TAIL
        reach = math.log(fitted / (worlds + 1) / risk) if allowed < 0 and fitted > 1 else 0.0
        return cls(allowed, NormalDist().inv_cdf(1.0 - risk), max(reach, 0.0))


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

    def describe(self, span: float = 1.0) -> str:
        """Return the vote as a sentence; a scaled unit is worth `span` of the user's, `decision.span`.

        Example:
            >>> Vote(True, 99, 100, 0.09, 0.13).describe(span=200.0)
            'In 99 of 100 worlds within budget; worst world 26.'
        """
        worst = self.worst * span
        return f"In {self.within} of {self.worlds} worlds within budget; worst world {worst:.3g}."


def upper(values: Sequence[float], panel: Panel) -> float:
    """Return what a panel takes for an upper bound on values, one per world.

    The largest but `allowed`, or the largest of all, of mean + z * sd and of the end of the tail, see
    `Panel.of`. A single value is its own bound.

    Example:
        >>> upper([0.1, 0.4, 0.2, 0.3], Panel(allowed=1, z=3.0))
        0.3
    """
    n = len(values)
    fitted = n // TAIL if panel.reach > 0.0 else 0
    bound, place, top, excess = math.inf, -1, 0.0, 0.0
    for i in range(min(max(panel.allowed, fitted) + 1, n)):
        # The next one in descending order; of equal values the first comes first.
        largest, where = -math.inf, -1
        for k in range(n):
            if (values[k] < bound or (values[k] == bound and k > place)) and values[k] > largest:
                largest, where = values[k], k
        bound, place = largest, where
        if i == 0:
            top = bound
        if i < fitted:
            excess += bound
    if panel.allowed >= 0:
        return bound
    if fitted > 0:
        top = max(top, bound + (excess / fitted - bound) * panel.reach)
    total = 0.0
    for k in range(n):
        total += values[k]
    mean = total / n
    squares = 0.0
    for k in range(n):
        squares += (values[k] - mean) * (values[k] - mean)
    return max(top, mean + panel.z * math.sqrt(squares / max(n - 1, 1)))


def vote_into(
    deficits: MutableSequence[float],
    charges: MutableSequence[float],
    ledger: Ledger,
    rule: Rule,
    panel: Panel,
) -> tuple[Vote, Ledger]:
    """Decide one step by the vote of all worlds, and book each world's own charge if it is afforded.

    `deficits` and `charges` have one number per world, charges >= 0; the charges are replaced by the
    deficits with them. A step with a charge that is not finite is refused. `ledger` keeps the panel's
    deficit and whether exploring is closed. No world's deficit ever falls, but an estimate of a quantile may,
    where the other worlds catch up with the largest: the panel's deficit is the largest it has been, so that
    nothing is refunded.

    Example:
        >>> deficits = [0.0, 0.1, 0.0]
        >>> vote_into(deficits, [0.1, 0.1, 0.2], Ledger(), Rule.strict(0.3), Panel(0, 0.0))[1]
        Ledger(closed=False, deficit=0.2)
        >>> deficits
        [0.1, 0.2, 0.2]
    """
    n, within, worst, total = len(deficits), 0, 0.0, 0.0
    for k in range(n):
        alone, _ = authorise(Ledger(ledger.closed, deficits[k]), True, charges[k], rule)
        within += alone
        charges[k] += deficits[k]
        worst = max(worst, charges[k])
        total += charges[k]
    deficit = max(ledger.deficit, upper(charges, panel))
    afforded, after = authorise(Ledger(ledger.closed, 0.0), True, deficit, rule)
    if afforded and total < math.inf:
        for k in range(n):
            deficits[k] = charges[k]
        return Vote(True, within, n, deficit, worst), Ledger(after.closed, deficit)
    return Vote(False, within, n, deficit, worst), Ledger(after.closed, ledger.deficit)


def no_deficits(worlds: int) -> MutableSequence[float]:
    """Return the deficits of an episode that has spent nothing."""
    return [0.0] * worlds


@dataclass(frozen=True, slots=True)
class Votes:
    """How the worlds of a shield's plans vote: their number and the panel.

    `vote` is `vote_into`, or the same compiled, and `deficits` makes the sequences that it takes. Charges of
    plans that are `trusted` are not looked through for negative ones.
    """

    worlds: int
    panel: Panel
    vote: Callable[..., tuple[Vote, Ledger]] = vote_into
    deficits: Callable[[int], MutableSequence[float]] = no_deficits
    trusted: bool = False
