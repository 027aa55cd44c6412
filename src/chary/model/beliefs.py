"""The prior of posterior worlds: what is believed of a row of P before it was tried, section 11.

`shrunk` believes that the actions of a state resemble each other: p0(. | s, a) pools the counts of the other
actions of s and backs off to the successor frequencies of the whole log with weight kappa, and
P(. | s, a) ~ Dirichlet(alpha0 * p0). `flat` believes nothing of the kind: Dirichlet(1/2, ..., 1/2) over the
declared number of successors. The evidence decides how large alpha0 is and, with `auto`, between the two.
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
    """A fitted prior: its kind, alpha0 (0 under `flat`), and the log evidence of both kinds.

    The evidence is NaN for a kind that was not asked for.
    """

    shrunk: bool
    alpha: float
    shrunk_evidence: float = math.nan
    flat_evidence: float = math.nan


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


def check_flat(setting: Setting) -> None:
    """Raise InvalidSetting where `flat` would spread its weight over more states than anybody declared."""
    most = int(setting.support.max(initial=1))
    if most > MOST_UNDECLARED and most == setting.n_states:
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
    """Return the log evidence of each alpha0 in ALPHAS: Dirichlet-multinomial, each pair given the others."""
    # Imported here: it takes long, and only posterior worlds need it.
    from scipy.special import gammaln

    pair, totals = counts.pair, counts.totals
    pooled = pooled_counts(counts, setting) + kappa * back_off(counts, setting.n_states)[counts.successor]
    mean = pooled / (others_total(counts, setting) + kappa)[pair]
    tried = totals[totals > 0]
    found = [
        (gammaln(a) - gammaln(a + tried)).sum()
        + (gammaln(a * mean + counts.number) - gammaln(a * mean)).sum()
        for a in ALPHAS
    ]
    return np.array(found)


def flat_evidence(counts: Counts, setting: Setting) -> float:
    """Return the log evidence of `flat`: which states the possible successors are is unknown at first.

    With m possible successors among S states, u of them seen, their labels had probability
    m! / (m - u)! * (S - u)! / S!, and the counts that of a Dirichlet-multinomial.
    """
    from scipy.special import gammaln

    totals, seen, S = counts.totals, np.diff(counts.start), setting.n_states
    tried = totals > 0
    n, u = totals[tried], seen[tried]
    m = np.maximum(setting.support, seen)[tried]
    rows = gammaln(FLAT_WEIGHT * m) - gammaln(FLAT_WEIGHT * m + n)
    rows += gammaln(m + 1.0) - gammaln(m - u + 1.0) + gammaln(S - u + 1.0) - gammaln(S + 1.0)
    entries = gammaln(FLAT_WEIGHT + counts.number) - gammaln(FLAT_WEIGHT)
    return float(rows.sum() + entries.sum())


def fit_prior(kind: str, counts: Counts, setting: Setting, kappa: float) -> Prior:
    """Return the prior that the counts support best: alpha0, and with `auto` the kind.

    Before anything was counted, `auto` is `flat` where that is possible: it assumes less.
    """
    if kind == "flat":
        return Prior(shrunk=False, alpha=0.0)
    by_alpha = shrunk_evidence(counts, setting, kappa)
    best = int(by_alpha.argmax())
    alpha, evidence = ALPHAS[best] if len(counts.number) else FIRST_ALPHA, float(by_alpha[best])
    if kind == "shrunk":
        return Prior(True, alpha, shrunk_evidence=evidence)
    try:
        check_flat(setting)
    except InvalidSetting:
        return Prior(True, alpha, shrunk_evidence=evidence)
    flat = flat_evidence(counts, setting)
    return Prior(evidence > flat, alpha if evidence > flat else 0.0, evidence, flat)
