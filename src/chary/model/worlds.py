"""Posterior worlds: weighted draws of P and R from the posterior, kept up to date with the data, section 11.

A world holds unnormalised weights W(s, a, x) ~ Gamma(alpha0 * p0(x | s, a) + n(s, a, x)); divided by their
sum they are a draw of P(. | s, a) from its Dirichlet posterior. Gamma(a + n) = Gamma(a) + Gamma(n): the part
of the data is a sum of independent Exp(1), one per transition and world, and the part of the prior is drawn
again when the prior is fitted again.

Under the prior `shrunk`, alpha0 * p0 is spread over all states, too many to store. A gamma process is the sum
of its jumps. Those above a smallest size e are drawn exactly and stored; those below enter by their mean.
So every mean is exact, and the variance of the prior's part is short by a share 1 - (1 + e) exp(-e): 0.9 % at
alpha0 = 16, less below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, Ints
from chary.mdp import Setting
from chary.model._world_draws import (
    WorldRows,
    add_transitions_into,
    draw_flat_into,
    draw_shrunk_into,
    relabel_into,
    rewards_of,
    sum_prior_into,
    sum_rows_into,
)
from chary.model.beliefs import FIRST_ALPHA, FLAT_WEIGHT, Counts, Prior, back_off, fit_prior, others_total

Arrays = dict[str, NDArray[Any]]

# The most jumps to store per row and world, on average, and the smallest one worth storing.
MOST_JUMPS = 24.0
LEAST_JUMP = 1e-3
# The prior is fitted again when the data has grown by this share.
REFIT_GROWTH = 0.25
# The number of transitions whose weights are drawn at once, to bound memory.
CHUNK = 4096


def smallest_jump(alpha: float) -> tuple[float, float]:
    """Return the smallest jump to store of a gamma process of mass `alpha`, and the mean number stored.

    Example:
        >>> smallest, jumps = smallest_jump(16.0)
        >>> round(smallest, 2), round(jumps)
        (0.14, 24)
    """
    # Imported here: it takes long, and only posterior worlds need it.
    from scipy.special import exp1

    low, high = math.log(LEAST_JUMP), math.log(50.0)
    if alpha * exp1(LEAST_JUMP) > MOST_JUMPS:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if alpha * exp1(math.exp(middle)) > MOST_JUMPS else (low, middle)
    return math.exp(low), alpha * float(exp1(math.exp(low)))


@final
class Worlds:
    """L worlds of one problem, and the counts that they fit.

    `rows` is what kernels read, `prior` what was fitted last and `learnt` the number of transitions counted.

    Example:
        >>> setting = Setting.declare(n_states=2, n_actions=1, horizon=3)
        >>> worlds = Worlds(setting, 4, np.random.default_rng(0), kind="flat")
        >>> worlds.learn(np.array([0, 0]), np.array([1, 1]), np.array([0.5, 0.5]))
        >>> worlds.counts.number.tolist(), worlds.rows.total.shape
        ([2.0], (2, 4))
    """

    __slots__ = (
        *(
            "_ends",
            "_fitted_at",
            "_generator",
            "_kappa",
            "_kind",
            "_lanes",
            "_of_prior",
            "_rewards",
            "_setting",
        ),
        *("_sums", "counts", "learnt", "prior", "rows"),
    )

    def __init__(
        self,
        setting: Setting,
        lanes: int,
        generator: np.random.Generator,
        *,
        kind: str,
        kappa: float = 100.0,
    ) -> None:
        P = setting.n_pairs
        self._setting, self._lanes, self._generator = setting, lanes, generator
        self._kind, self._kappa = kind, kappa
        self._rewards = rewards_of(setting)
        self.learnt, self._fitted_at = 0, 0
        self.counts = Counts(np.zeros(P + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
        # Weighted sums of the rewards observed, two atoms at the ends of their range, and the prior's part.
        self._sums = np.zeros((P, lanes))
        self._ends = generator.standard_gamma(FLAT_WEIGHT, (2, P, lanes))
        self._of_prior = np.zeros((2, P, lanes))
        self.prior = Prior(FIRST_ALPHA, np.zeros(P), 0.0)
        self.rows = WorldRows(
            start=self.counts.start,
            successor=self.counts.successor,
            weight=np.zeros((0, lanes)),
            atom_start=np.zeros(P * lanes + 1, dtype=np.int64),
            atom_state=np.zeros(0, dtype=np.int32),
            atom_weight=np.zeros(0, dtype=np.float32),
            pooled=np.zeros(0),
            rest=np.zeros(P),
            back_off=np.zeros(setting.n_states),
            pools=np.zeros((P, lanes)),
            total=np.zeros((P, lanes)),
            reward=np.zeros((P, lanes)),
        )
        self._refit()
        self._sum_up()

    def learn(self, pairs: Ints, nexts: Ints, rewards: Floats) -> None:
        """Count transitions with scaled rewards, and weigh each in every world by an Exp(1)."""
        if len(pairs) == 0:
            return
        entries = self._enter(pairs, nexts)
        for first in range(0, len(pairs), CHUNK):
            part = slice(first, first + CHUNK)
            drawn = self._generator.standard_exponential((len(pairs[part]), self._lanes))
            add_transitions_into(
                self.rows.weight, self._sums, drawn, entries[part], pairs[part], rewards[part]
            )
        self.counts.number[:] += np.bincount(entries, minlength=len(self.counts.number))
        self.learnt += len(pairs)
        if self.learnt >= (1.0 + REFIT_GROWTH) * self._fitted_at:
            self._refit()
        self._sum_up()

    def to_arrays(self) -> Arrays:
        """Return all that the worlds depend on but the generator, for `restore`."""
        rows = {name: array.copy() for name, array in self.rows._asdict().items()}
        numbers = np.array([self.learnt, self._fitted_at])
        alpha, pools, evidence = self.prior
        prior = np.array([alpha, evidence, *pools])
        own = {"sums": self._sums.copy(), "ends": self._ends.copy(), "of_prior": self._of_prior.copy()}
        return {**rows, "count": self.counts.number.copy(), "numbers": numbers, "prior": prior, **own}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take on what `to_arrays` returned."""
        self.rows = WorldRows(**{name: np.array(arrays[name]) for name in WorldRows._fields})
        self.counts = Counts(self.rows.start, self.rows.successor, np.array(arrays["count"]))
        self.learnt, self._fitted_at = (int(each) for each in arrays["numbers"])
        alpha, evidence = (float(each) for each in arrays["prior"][:2])
        self.prior = Prior(alpha, np.array(arrays["prior"][2:]), evidence)
        self._sums, self._ends = np.array(arrays["sums"]), np.array(arrays["ends"])
        self._of_prior = np.array(arrays["of_prior"])

    def _enter(self, pairs: Ints, nexts: Ints) -> Ints:
        """Return the entries of transitions, after making those that are new."""
        S, rows = self._setting.n_states, self.rows
        known, asked = self.counts.pair * S + self.counts.successor, pairs * S + nexts
        keys = np.union1d(known, asked)
        n = len(keys)
        if n > len(known):
            kept = np.searchsorted(keys, known)
            pair, successor = np.divmod(keys, S)
            start = np.searchsorted(pair, np.arange(self._setting.n_pairs + 1))
            new = np.ones(n, dtype=bool)
            new[kept] = False
            relabel_into(rows.atom_state, rows.atom_start, rows.start, rows.pools, pair[new], successor[new])
            self.counts = Counts(start, successor, _moved(self.counts.number, kept, n))
            self.rows = rows._replace(
                start=start,
                successor=successor,
                weight=_moved(rows.weight, kept, n),
                pooled=_moved(rows.pooled, kept, n),
            )
        return np.searchsorted(keys, asked)

    def _refit(self) -> None:
        """Fit the prior to the counts, and draw its part of every world again."""
        setting, L = self._setting, self._lanes
        P, S = setting.n_pairs, setting.n_states
        self.prior = fit_prior(self._kind, self.counts, setting, self._kappa)
        self._fitted_at = self.learnt
        start, successor, number = self.counts
        pools = (self._generator.random((P, L)) < self.prior.pools[:, None]).astype(np.float64)
        smallest, jumps = smallest_jump(self.prior.alpha)
        possible = np.maximum(setting.support, np.diff(start))
        numbers = np.where(pools.T > 0.0, self._generator.poisson(jumps, (L, P)), possible)
        atom_start = np.concatenate([[0], np.cumsum(numbers)])
        states, weights = (np.zeros(atom_start[-1], dtype=each) for each in (np.int32, np.float32))
        spread, pair_start = self._kappa * back_off(self.counts, S), np.array(setting.pair_start)
        draw_shrunk_into(
            states, weights, atom_start, start, successor, number, spread, pair_start, pools, smallest,
            self._generator,
        )  # fmt: skip
        draw_flat_into(states, weights, atom_start, start, successor, S, pools, FLAT_WEIGHT, self._generator)
        mean_below = self.prior.alpha * -math.expm1(-smallest)
        self.rows = self.rows._replace(
            atom_start=atom_start,
            atom_state=states,
            atom_weight=weights,
            pooled=number.copy(),
            rest=mean_below / (others_total(self.counts, setting) + self._kappa),
            back_off=spread,
            pools=pools,
        )
        sum_prior_into(
            self._of_prior, self.rows, self._rewards, np.array(setting.pair_start), float(spread.sum())
        )

    def _sum_up(self) -> None:
        sum_rows_into(self.rows, self._rewards, self._of_prior, self._sums, self._ends)


def _moved(array: NDArray[Any], kept: Ints, n: int) -> NDArray[Any]:
    """Return n entries: those kept at their new places, and 0 at the others."""
    moved = np.zeros((n, *array.shape[1:]))
    moved[kept] = array
    return moved
