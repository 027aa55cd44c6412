"""The prior of posterior worlds: what is believed of a row of P before it was tried, section 11.

`shrunk` believes that the actions of a state resemble each other: p0(. | s, a) pools the counts of the other
actions of s and backs off to the successor frequencies of the whole log with weight kappa, and
P(. | s, a) ~ Dirichlet(alpha0 * p0). `flat` believes nothing of the kind: Dirichlet(1/2, ..., 1/2) over the
declared number of successors. How close rows are to p0 differs from pair to pair: each has its own alpha0
or, with `auto`, is flat, with weight 1/2 or a smaller one: rows that resemble no others may lead to many
states or to few. The shares of these kinds of rows among all pairs are unknown, too.
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

# The values of alpha0 that a pair may have, and the weights of each possible successor in a row that is flat:
# Jeffreys' prior, and two that expect few successors. A row is of one of the kinds 0..KINDS - 1, those from
# FLAT on being flat. Saved agents have kinds in this order.
ALPHAS = tuple(2.0**i for i in range(-2, 10))
FLAT_WEIGHTS = (0.5, 0.1, 0.02)
FLAT = len(ALPHAS)
KINDS = FLAT + len(FLAT_WEIGHTS)
# How the prior `auto` divides the share of flat rows among these weights; `flat` has the first alone.
FLAT_SHARES = (1.0 / 3.0,) * 3
# More successors than this must be declared possible, not assumed to be.
MOST_UNDECLARED = 64


class Prior(NamedTuple):
    """What the counts say about the kinds of rows.

    `likelihood` (P, KINDS) is that of the counts of each pair, the largest being 1. `weights` (KINDS,) are
    those of the Dirichlet prior of the shares of all kinds, 0 where a kind is not possible.
    """

    likelihood: Floats
    weights: Floats


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
    """Return the log evidence of each weight in FLAT_WEIGHTS by pair, (F, P).

    Which states can follow is unknown at first: with m possible successors among S states, u of them seen,
    their labels had probability m! / (m - u)! * (S - u)! / S!, and the counts that of a
    Dirichlet-multinomial.
    """
    from scipy.special import gammaln

    n, u, S = counts.totals, np.diff(counts.start), setting.n_states
    m = np.maximum(setting.support, u)
    labels = gammaln(m + 1.0) - gammaln(m - u + 1.0) + gammaln(S - u + 1.0) - gammaln(S + 1.0)
    found = []
    for weight in FLAT_WEIGHTS:
        rows = gammaln(weight * m) - gammaln(weight * m + n)
        rows += labels
        entries = gammaln(weight + counts.number) - gammaln(weight)
        found.append(rows + np.bincount(counts.pair, weights=entries, minlength=len(n)))
    return np.array(found)


def fit_prior(kind: str, counts: Counts, setting: Setting, kappa: float) -> Prior:
    """Return what the counts say about the kinds of rows.

    Under `auto` the share of flat rows has the prior Beta(1/2, 1/2), and the others have all values of alpha0
    alike; where `flat` is not possible, for want of a declared support, no row is. Under `flat` all rows have
    the first of FLAT_WEIGHTS.
    """
    weights = np.zeros(KINDS)
    if kind != "flat":
        weights[:FLAT] = 1.0 / FLAT
    if kind == "flat":
        weights[FLAT] = 1.0
    elif kind == "auto" and flat_is_possible(setting):
        weights[FLAT:] = FLAT_SHARES
    evidence = np.full((KINDS, setting.n_pairs), -math.inf)
    if kind != "flat":
        evidence[:FLAT] = shrunk_evidence(counts, setting, kappa)
    if weights[FLAT:].any():
        evidence[FLAT:] = flat_evidence(counts, setting)
    # What is not possible does not set the scale of what is.
    evidence[weights == 0.0] = -math.inf
    likelihood = np.exp(evidence - evidence.max(axis=0)).T.copy()
    return Prior(likelihood, weights / weights.sum())
