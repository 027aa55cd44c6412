"""The prior of posterior worlds: what is believed of a row of P before it was tried, section 11.

`shrunk` believes that the actions of a state resemble each other: p0(. | s, a) pools the counts of the other
actions of s and backs off to the successor frequencies of the whole log with weight kappa, and
P(. | s, a) ~ Dirichlet(alpha0 * p0). `flat` believes nothing of the kind: Dirichlet(1/2, ..., 1/2) over the
declared number of successors. The evidence decides how large alpha0 is and, with `auto`, pair by pair between
the two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from chary.arrays import Floats, Ints
from chary.errors import InvalidSetting
from chary.mdp import Setting
from chary.model.rows import pair_states

PRIORS = ("auto", "shrunk", "flat")

# The values of alpha0 among which the evidence decides, and the one used before there is any.
ALPHAS = tuple(2.0**i for i in range(-2, 10))
FIRST_ALPHA = 1.0
# The weight of each possible successor under `flat`: Jeffreys' prior.
FLAT_WEIGHT = 0.5
# More successors than this must be declared possible, not assumed to be.
MOST_UNDECLARED = 64


class Prior(NamedTuple):
    """A fitted prior: alpha0 of `shrunk`, and the probability, (P,), that the row of a pair has that prior.

    `evidence` is the log evidence of the whole. The probability is 1 for the kind `shrunk` and 0 for `flat`.
    """

    alpha: float
    pools: Floats
    evidence: float


class Counts(NamedTuple):
    """Transition counts by entry, pairs and successors ascending: `start` (P + 1,), the rest (E,)."""

    start: Ints
    successor: Ints
    number: Floats

    @property
    def pair(self) -> Ints:
        """The pair of each entry, (E,)."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @property
    def totals(self) -> Floats:
        """N(s, a) by pair, (P,)."""
        return np.asarray(np.bincount(self.pair, weights=self.number, minlength=len(self.start) - 1), float)


def flat_is_possible(setting: Setting) -> bool:
    """Return whether the number of possible successors was declared, or is small."""
    most = int(setting.support.max(initial=1))
    return most <= MOST_UNDECLARED or most < setting.n_states


def check_flat(setting: Setting) -> None:
    """Raise InvalidSetting where `flat` would spread its weight over more states than anybody declared."""
    if not flat_is_possible(setting):
        most = setting.n_states
        raise InvalidSetting(
            f"'world_prior' flat needs the number of possible successors of each pair, got {most} states and "
            "no declaration. Declare 'support', or use world_prior 'shrunk'."
        )


def back_off(counts: Counts, n_states: int) -> Floats:
    """Return the successor frequencies of the whole log, (S,), with one more count spread over all states."""
    seen = np.bincount(counts.successor, weights=counts.number, minlength=n_states)
    return np.asarray((seen + 1.0 / n_states) / (seen.sum() + 1.0))


def pooled_counts(counts: Counts, setting: Setting) -> Floats:
    """Return how often other actions of its state led to the successor of each entry, (E,)."""
    key = pair_states(setting)[counts.pair] * setting.n_states + counts.successor
    _, place = np.unique(key, return_inverse=True)
    return np.asarray(np.bincount(place, weights=counts.number)[place] - counts.number)


def others_total(counts: Counts, setting: Setting) -> Floats:
    """Return how often other actions of its state were played, by pair, (P,)."""
    total, state = counts.totals, pair_states(setting)
    return np.asarray(np.bincount(state, weights=total, minlength=setting.n_states)[state] - total)


def shrunk_evidence(counts: Counts, setting: Setting, kappa: float) -> Floats:
    """Return the log evidence of each alpha0 in ALPHAS by pair, (G, P), each pair given the others."""
    # Imported here: it takes long, and only posterior worlds need it.
    from scipy.special import gammaln

    pair, totals = counts.pair, counts.totals
    pooled = pooled_counts(counts, setting) + kappa * back_off(counts, setting.n_states)[counts.successor]
    mean = pooled / (others_total(counts, setting) + kappa)[pair]
    found = []
    for a in ALPHAS:
        entries = gammaln(a * mean + counts.number) - gammaln(a * mean)
        by_pair = np.bincount(pair, weights=entries, minlength=len(totals))
        found.append(by_pair + gammaln(a) - gammaln(a + totals))
    return np.array(found)


def flat_evidence(counts: Counts, setting: Setting) -> Floats:
    """Return the log evidence of `flat` by pair, (P,): which states can follow is unknown at first.

    With m possible successors among S states, u of them seen, their labels had probability
    m! / (m - u)! * (S - u)! / S!, and the counts that of a Dirichlet-multinomial.
    """
    from scipy.special import gammaln

    n, u, S = counts.totals, np.diff(counts.start), setting.n_states
    m = np.maximum(setting.support, u)
    rows = gammaln(FLAT_WEIGHT * m) - gammaln(FLAT_WEIGHT * m + n)
    rows += gammaln(m + 1.0) - gammaln(m - u + 1.0) + gammaln(S - u + 1.0) - gammaln(S + 1.0)
    entries = gammaln(FLAT_WEIGHT + counts.number) - gammaln(FLAT_WEIGHT)
    return np.asarray(rows + np.bincount(counts.pair, weights=entries, minlength=len(n)))


def fit_prior(kind: str, counts: Counts, setting: Setting, kappa: float) -> Prior:
    """Return the prior that the counts support best.

    Under `auto` a row has either prior with probability 1/2 before it is tried, and then with its posterior
    probability; where `flat` is not possible, for want of a declared support, all are `shrunk`.
    """
    P = setting.n_pairs
    flat = flat_evidence(counts, setting) if kind == "flat" or flat_is_possible(setting) else None
    if kind == "flat":
        assert flat is not None
        return Prior(FIRST_ALPHA, np.zeros(P), float(flat.sum()))
    shrunk = shrunk_evidence(counts, setting, kappa)
    either = shrunk if kind == "shrunk" or flat is None else np.logaddexp(shrunk, flat) - math.log(2.0)
    evidence = either.sum(axis=1)
    best = int(evidence.argmax())
    pools = np.ones(P)
    if either is not shrunk:
        pools = np.exp(shrunk[best] - either[best]) / 2.0
    alpha = ALPHAS[best] if len(counts.number) else FIRST_ALPHA
    return Prior(alpha, pools, float(evidence[best]))
