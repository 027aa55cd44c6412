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

import copy
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, Ints
from chary.errors import InvalidData, InvalidSetting
from chary.mdp import Setting
from chary.model._world_draws import (
    WorldRows,
    add_transitions_into,
    draw_flat_into,
    draw_kinds_into,
    draw_shrunk_into,
    relabel_into,
    rewards_of,
    sum_prior_into,
    sum_rows_into,
)
from chary.model.beliefs import (
    ALPHAS,
    FLAT,
    FLAT_WEIGHTS,
    KINDS,
    Counts,
    back_off,
    fit_prior,
    others_total,
)
from chary.model.rows import LOST

Arrays = dict[str, NDArray[Any]]

# The most jumps to store per row and world, on average, and the smallest one worth storing.
MOST_JUMPS = 24.0
LEAST_JUMP = 1e-3
# The Gibbs sweeps over the kinds of rows.
SWEEPS = 20
# The prior is fitted again when the data has grown by this share.
REFIT_GROWTH = 0.25
# Rewards, in scaled units, that differ by less are the same.
SAME_REWARD = 1e-9
# The number of transitions whose weights are drawn at once, to bound memory.
CHUNK = 4096
# What learning changes in place; all other arrays are replaced.
CHANGING = ("weight", "atom_state", "total", "reward")


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


@cache
def _jumps() -> tuple[Floats, Floats, Floats]:
    """Return by alpha0 the smallest jump, the mean number stored and the mean of all others, each (FLAT,)."""
    found = [smallest_jump(alpha) for alpha in ALPHAS]
    smallest, jumps = (np.array(each) for each in zip(*found, strict=True))
    return smallest, jumps, np.array(ALPHAS) * -np.expm1(-smallest)


@final
class Worlds:
    """L worlds of one problem, and the counts that they fit.

    `rows` is what kernels read, `kinds` (P, L) the kind of each row in each world, and `learnt` the number of
    transitions counted.

    Example:
        >>> setting = Setting.declare(n_states=2, n_actions=1, horizon=3)
        >>> worlds = Worlds(setting, 4, np.random.default_rng(0), kind="flat")
        >>> worlds.learn(np.array([0, 0]), np.array([1, 1]), np.array([0.5, 0.5]))
        >>> worlds.counts.number.tolist(), worlds.rows.total.shape
        ([2.0], (2, 4))
    """

    __slots__ = (
        *(
            "_arrivals",
            "_ends",
            "_fitted_at",
            "_generator",
            "_kappa",
            "_kind",
            "_lanes",
            "_lost",
            "_of_prior",
            "_rewards",
            "_setting",
        ),
        *("_sums", "counts", "kinds", "learnt", "rows"),
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
        # Of the rewards observed: sum, least and most by arrival, (3, S), and weighted sums by pair. Then two
        # atoms at the ends of their range, and the prior's part.
        self._arrivals = np.zeros((3, setting.n_states))
        self._arrivals[1] = 1.0
        self._sums = np.zeros((P, lanes))
        self._ends = np.zeros((2, P, lanes))
        self._of_prior = np.zeros((2, P, lanes))
        # Weights of lost outcomes, of the prior and of the data, (2, P, L); (2, 0, 0) where none can be lost.
        self._lost = np.zeros((2, 0, 0))
        self.kinds = np.zeros((P, lanes), dtype=np.int8)
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

    @property
    def generator(self) -> np.random.Generator:
        """The generator that all weights come from."""
        return self._generator

    @property
    def losses(self) -> bool:
        """Whether outcomes can get lost in these worlds."""
        return self._lost.shape[1] > 0

    def expect_losses(self) -> None:
        """Believe from now on that any outcome may get lost: `lost` is one more successor of every pair."""
        if not self.losses:
            self._lost = np.zeros((2, self._setting.n_pairs, self._lanes))
            self._draw_losses()
            self._sum_up()

    def learn(self, pairs: Ints, nexts: Ints, rewards: Floats) -> None:
        """Count transitions with scaled rewards, and weigh each in every world by an Exp(1).

        The next state LOST stands for an outcome that is lost.
        """
        if len(pairs) == 0:
            return
        known = nexts != LOST
        if not known.all():
            self.expect_losses()
        entries = np.full(len(pairs), LOST)
        entries[known] = self._enter(pairs[known], nexts[known])
        for first in range(0, len(pairs), CHUNK):
            part = slice(first, first + CHUNK)
            drawn, here = self._generator.standard_exponential((len(pairs[part]), self._lanes)), known[part]
            if not here.all():
                np.add.at(self._lost[1], pairs[part][~here], drawn[~here])
                drawn = drawn[here]
            add_transitions_into(
                self.rows.weight,
                self._sums,
                drawn,
                entries[part][here],
                pairs[part][here],
                rewards[part][here],
            )
        self.counts.number[:] += np.bincount(entries[known], minlength=len(self.counts.number))
        arrived, earned = nexts[known], rewards[known]
        totals = np.bincount(arrived, weights=earned, minlength=self._setting.n_states)
        # Not in place: copies share them.
        self._arrivals = self._arrivals + np.stack([totals, *np.zeros((2, len(totals)))])
        np.minimum.at(self._arrivals[1], arrived, earned)
        np.maximum.at(self._arrivals[2], arrived, earned)
        self.learnt += len(pairs)
        if self.learnt >= (1.0 + REFIT_GROWTH) * self._fitted_at:
            self._refit()
        self._sum_up()

    def copy(self) -> Worlds:
        """Return worlds that go on alone from here, to the same bits; what never changes is shared."""
        twin = copy.copy(self)
        twin._generator = copy.deepcopy(self._generator)
        twin.counts = self.counts._replace(number=self.counts.number.copy())
        # The labels of atoms change only where a row is flat in some world.
        names = [name for name in CHANGING if name != "atom_state" or not self.rows.pools.all()]
        twin.rows = self.rows._replace(**{name: getattr(self.rows, name).copy() for name in names})
        twin._sums, twin._of_prior, twin._lost = self._sums.copy(), self._of_prior.copy(), self._lost.copy()
        return twin

    def merged(self, other: Worlds) -> Worlds:
        """Return worlds of the union of two sets of data that have no transition in common.

        Gamma(a) + Gamma(b) = Gamma(a + b): what two sets of worlds drew for their data adds up. The prior is
        fitted to the union, and its part drawn again.

        Raises:
            InvalidSetting: if the other worlds are of another problem, number, or kind of prior, or have the
                same seed.
        """
        mine, theirs = self._setting.digest, other._setting.digest
        options = [(each._lanes, each._kind, each._kappa) for each in (self, other)]
        if mine != theirs or options[0] != options[1]:
            raise InvalidSetting(
                f"'other' must be worlds of the same problem with the same prior, got {options[1]} in place "
                f"of {options[0]} (worlds, prior, kappa){'' if mine == theirs else ', for another problem'}."
            )
        streams = [each._generator.bit_generator.state["state"] for each in (self, other)]
        # What a seed decides for good; the rest of a generator's state moves on.
        if streams[0]["inc"] == streams[1]["inc"]:
            raise InvalidSetting(
                "'other' must be drawn with another seed, got the same one: its data would have the same "
                "weights. Give every agent a generator of its own."
            )
        both = self.copy()
        entries = both._enter(other.counts.pair, other.counts.successor)
        both.rows.weight[entries] += other.rows.weight
        both.counts.number[entries] += other.counts.number
        both._sums += other._sums
        (total, least, most), (added, low, high) = self._arrivals, other._arrivals
        both._arrivals = np.stack([total + added, np.minimum(least, low), np.maximum(most, high)])
        if other.losses:
            if not both.losses:
                both._lost = np.zeros_like(other._lost)
            both._lost[1] += other._lost[1]
        both.learnt += other.learnt
        both._refit()
        both._sum_up()
        return both

    def lost_shares(self) -> Floats:
        """Return the shares of transitions and of rewards that are lost, (2, P, L); (2, 0, 0) for none."""
        if not self.losses:
            return self._lost
        lost, total = self._lost.sum(axis=0), self.rows.total
        weighed = total if self._rewards.declared else total - self._of_prior[0] + self._ends.sum(axis=0)
        return np.stack([lost / total, lost / weighed])

    def to_arrays(self) -> Arrays:
        """Return all that the worlds depend on but the generator, for `restore`."""
        rows = {name: array.copy() for name, array in self.rows._asdict().items()}
        numbers = np.array([self.learnt, self._fitted_at])
        own: Arrays = {
            "count": self.counts.number,
            "kinds": self.kinds,
            "arrivals": self._arrivals,
            "sums": self._sums,
            "ends": self._ends,
            "of_prior": self._of_prior,
            "lost": self._lost,
        }
        return {**rows, "numbers": numbers, **{name: array.copy() for name, array in own.items()}}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take on what `to_arrays` returned.

        Raises:
            InvalidData: if that is not of this many worlds of this problem.
        """
        check_worlds(arrays, self._setting, self._lanes)
        self.rows = WorldRows(**{name: np.array(arrays[name]) for name in WorldRows._fields})
        self.counts = Counts(self.rows.start, self.rows.successor, np.array(arrays["count"]))
        self.learnt, self._fitted_at = (int(each) for each in arrays["numbers"])
        self.kinds, self._arrivals = np.array(arrays["kinds"]), np.array(arrays["arrivals"])
        self._sums, self._ends = np.array(arrays["sums"]), np.array(arrays["ends"])
        self._of_prior, self._lost = np.array(arrays["of_prior"]), np.array(arrays["lost"])

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
        setting, S = self._setting, self._setting.n_states
        # The old atoms go before there are new ones: together they are most of the memory.
        nothing: Arrays = {"atom_state": np.zeros(0, np.int32), "atom_weight": np.zeros(0, np.float32)}
        self.rows = self.rows._replace(**nothing)
        prior = fit_prior(self._kind, self.counts, setting, self._kappa)
        self._fitted_at = self.learnt
        start, successor, number = self.counts
        self.kinds = np.zeros((setting.n_pairs, self._lanes), dtype=np.int8)
        draw_kinds_into(
            self.kinds, prior.likelihood, prior.weights, self.counts.totals > 0, SWEEPS, self._generator
        )
        smallest, jumps, below = _jumps()
        flat, pooling = self.kinds >= FLAT, np.minimum(self.kinds, FLAT - 1)
        possible = np.maximum(setting.support, np.diff(start))
        numbers = self._generator.poisson(jumps[pooling.T])
        np.copyto(numbers, possible, where=flat.T)
        atom_start = np.zeros(numbers.size + 1, dtype=np.int64)
        np.cumsum(numbers, out=atom_start[1:])
        states, weights = (np.zeros(atom_start[-1], dtype=each) for each in (np.int32, np.float32))
        spread, pair_start = self._kappa * back_off(self.counts, S), np.array(setting.pair_start)
        pools = np.where(flat, 0.0, below[pooling])
        draw_shrunk_into(
            states, weights, atom_start, start, successor, number, spread, pair_start, self.kinds, smallest,
            self._generator,
        )  # fmt: skip
        draw_flat_into(
            states, weights, atom_start, start, successor, S, self.kinds, FLAT, np.array(FLAT_WEIGHTS),
            self._generator,
        )  # fmt: skip
        self.rows = self.rows._replace(
            atom_start=atom_start,
            atom_state=states,
            atom_weight=weights,
            pooled=number.copy(),
            rest=1.0 / (others_total(self.counts, setting) + self._kappa),
            back_off=spread,
            pools=pools,
        )
        self._rewards = self._rewards._replace(arrival=self._mean_rewards())
        sum_prior_into(self._of_prior, self.rows, self._rewards, pair_start, float(spread.sum()))
        self._draw_ends()
        if self.losses:
            self._draw_losses()

    def _mean_rewards(self) -> Floats:
        """Return the mean reward on arrival in each state, (S,), with one more count of the mean of all."""
        if self._rewards.declared:
            return np.zeros(self._setting.n_states)
        number = np.bincount(
            self.counts.successor, weights=self.counts.number, minlength=self._setting.n_states
        )
        overall = (self._arrivals[0].sum() + 0.5) / (self.learnt + 1.0)
        return np.asarray((self._arrivals[0] + overall) / (number + 1.0))

    def _draw_ends(self) -> None:
        """Draw the prior's part of the rewards of every pair, as weights of two atoms at 0 and 1.

        Either a pair earns what arrivals in its successors earn: then its rewards have the prior's weights of
        its row. Or they are unrelated to that, and the atoms have total weight Gamma(1). The share of the
        latter is estimated by the pairs that led to states where all arrivals earned the same.
        """
        if self._rewards.declared:
            return
        others = np.maximum(np.bincount(self.counts.successor, minlength=self._setting.n_states) - 1, 0)
        differ = self._arrivals[2] - self._arrivals[1] > SAME_REWARD
        unrelated = (others[differ].sum() + 1.0) / (others.sum() + 2.0)
        shape, (mass, earned) = self.kinds.shape, self._of_prior
        free = self._generator.random(shape) < unrelated
        weight = np.where(free, self._generator.standard_gamma(1.0, shape), mass)
        expected = np.clip(earned / mass, 0.0, 1.0)
        share = np.where(free, self._generator.beta(0.5, 0.5, shape), expected)
        self._ends = np.stack([weight * (1.0 - share), weight * share])

    def _draw_losses(self) -> None:
        """Draw the prior's weight of the successor `lost`.

        Where a row is flat it is one more possible successor. Where it pools, a share of alpha0: the losses
        of the whole log, with half a count more. Those are counted by their weights, whose mean they are.
        """
        lost = float(self._lost[1].mean(axis=1).sum())
        rate = (lost + 0.5) / (self.learnt + 1.0)
        shape = np.append(rate * np.array(ALPHAS), FLAT_WEIGHTS)[self.kinds]
        self._lost[0] = self._generator.standard_gamma(shape)

    def _sum_up(self) -> None:
        lost = self._lost.sum(axis=0)
        sum_rows_into(self.rows, self._rewards, self._of_prior, self._sums, self._ends, lost)


def _moved(array: NDArray[Any], kept: Ints, n: int) -> NDArray[Any]:
    """Return n entries: those kept at their new places, and 0 at the others."""
    moved = np.zeros((n, *array.shape[1:]))
    moved[kept] = array
    return moved


def check_worlds(arrays: Mapping[str, NDArray[Any]], setting: Setting, lanes: int) -> None:
    """Raise InvalidData unless saved arrays are of so many worlds of this problem: kernels trust them."""
    P, S, L = setting.n_pairs, setting.n_states, lanes
    entries, atoms = (np.shape(arrays[name])[:1] for name in ("successor", "atom_state"))
    floats = {
        **{"weight": (*entries, L), "pooled": entries, "rest": (P,), "back_off": (S,), "count": entries},
        **dict.fromkeys(("pools", "total", "reward", "sums"), (P, L)),
        **{"ends": (2, P, L), "of_prior": (2, P, L), "arrivals": (3, S)},
        "lost": (2, P, L) if np.size(arrays["lost"]) else (2, 0, 0),
    }
    for name, shape in floats.items():
        array = np.asarray(arrays[name])
        fits = array.dtype == np.float64 and array.shape == shape
        if not (fits and bool((np.isfinite(array) & (array >= 0)).all())):
            raise InvalidData(f"{name!r} must be float64 numbers >= 0 of shape {shape}, got others.")
    states, weights = np.asarray(arrays["atom_state"]), np.asarray(arrays["atom_weight"])
    fits = states.dtype == np.int32 and weights.dtype == np.float32 and states.shape == weights.shape == atoms
    fits = fits and bool(
        ((states >= 0) & (states < S)).all() and (np.isfinite(weights) & (weights >= 0)).all()
    )
    successor = np.asarray(arrays["successor"])
    fits = fits and successor.dtype == np.int64 and bool(((successor >= 0) & (successor < S)).all())
    for name, rows, size in (("start", P, entries), ("atom_start", P * L, atoms)):
        start = np.asarray(arrays[name])
        fits = fits and start.dtype == np.int64 and start.shape == (rows + 1,) and start[0] == 0
        fits = fits and bool((np.diff(start) >= 0).all()) and (int(start[-1]),) == size
    if fits:
        pair = np.repeat(np.arange(P), np.diff(arrays["start"]))
        kinds = np.asarray(arrays["kinds"])
        fits = bool((np.diff(pair * S + successor) > 0).all()) and kinds.dtype == np.int8
        fits = fits and kinds.shape == (P, L) and bool(((kinds >= 0) & (kinds < KINDS)).all())
        fits = fits and bool(((kinds >= FLAT) == (np.asarray(arrays["pools"]) == 0.0)).all())
        fits = fits and bool((np.asarray(arrays["total"]) > 0).all())
    if not fits:
        raise InvalidData("'worlds' must hold the rows of this problem, got others.")
    numbers = np.asarray(arrays["numbers"])
    if numbers.dtype != np.int64 or numbers.shape != (2,) or not 0 <= numbers[1] <= numbers[0]:
        raise InvalidData("'numbers' must be how much was learnt, and when the prior was fitted, got others.")
