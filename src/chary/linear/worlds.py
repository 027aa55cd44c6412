"""Linear worlds: K posterior draws of a linear model, kept as sums that every transition is added to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Bools, Floats, Ints
from chary.errors import InvalidData, check_integer
from chary.linear.algebra import (
    Course,
    Solved,
    Sums,
    best,
    evaluated,
    first_sums,
    solved,
    stage,
    steps_left,
    values_at,
    weighed,
)
from chary.linear.features import Features
from chary.linear.options import LinearModel
from chary.randomness import beside
from chary.storage.sealed import as_array

Arrays = dict[str, NDArray[Any]]

# Transitions whose weights are drawn at once, as in `model.worlds`.
CHUNK = 4096
# Transitions in one product, to bound memory.
ROWS = 64
# Directions in which nodes vary by less than this share of the largest are left out of the projection.
SMALLEST = 1e-3


class Steps(NamedTuple):
    """Transitions as columns: observations (n, d), the rest (n,).

    Of one that is `lost` only observation, action and time are read.
    """

    observation: Floats
    action: Ints
    reward: Floats
    after: Floats
    ended: Bools
    time: Ints
    lost: Bools

    def at(self, rows: Any) -> Steps:
        """Return some of the rows."""
        return Steps(*(column[rows] for column in self))


def no_steps(size: int) -> Steps:
    """Return no transitions of observations of that length."""
    return Steps(
        np.zeros((0, size)),
        np.zeros(0, dtype=np.int64),
        np.zeros(0),
        np.zeros((0, size)),
        np.zeros(0, dtype=bool),
        np.zeros(0, dtype=np.int64),
        np.zeros(0, dtype=bool),
    )


def joined(batches: list[Steps]) -> Steps:
    """Return batches as one; there must be one at least."""
    return Steps(*(np.concatenate(column) for column in zip(*batches, strict=True)))


class Pseudo(NamedTuple):
    """A prior of transitions: `steps` that count like those observed, with weights Gamma(`shape`), (n,).

    With one-hot features and every state as a successor of every pair, each with shape 1/2, worlds are those
    of the flat prior of `model.worlds`.
    """

    steps: Steps
    shape: Floats


class Coefficients(NamedTuple):
    """The values of a plan.

    Args:
        theta: Of Q, (H, A, L, F): the first K worlds value the baseline, every other one its own explorer.
        top: Of Q of the baseline where lost outcomes are worth the most, (H, A, K, F); (0, 0, 0, 0) where
            none was lost.
        low: The least value of every stage, (H + 1,).
        high: The largest one.
    """

    theta: Floats
    top: Floats
    low: Floats
    high: Floats


@final
class LinearWorlds:
    """L worlds of one linear model.

    `sums` is what they are made of, `learnt` the number of transitions learnt, `held` those held out, and
    `nodes` (m, d) the observations at which values are computed: a uniform sample of all that were learnt.

    Args:
        features: Of an observation.
        n_actions: A.
        model: Worlds, prior and range of rewards.
        generator: All weights come from it.
        pseudo: A prior of transitions, in place of the one on coefficients.
        ahead: The value features; None takes `features`.

    Example:
        >>> from chary.linear.features import fourier
        >>> model = LinearModel(low=0.0, high=1.0, worlds=2, explorers=1)
        >>> worlds = LinearWorlds(fourier(1, 4, 1.0), 2, model, np.random.default_rng(0))
        >>> worlds.sums.gram.shape, worlds.learnt
        ((2, 3, 4, 4), 0)
    """

    __slots__ = (
        *("_actions", "_generator", "_held_priority", "_model", "_own", "_priority"),
        *("ahead", "features", "held", "learnt", "losses", "nodes", "sums"),
    )

    def __init__(
        self,
        features: Features,
        n_actions: int,
        model: LinearModel,
        generator: np.random.Generator,
        *,
        pseudo: Pseudo | None = None,
        ahead: Features | None = None,
    ) -> None:
        self.features, self._model, self._generator = features, model, generator
        self.ahead = features if ahead is None else ahead
        # Nodes and transitions held out are drawn apart: with and without them weights are the same.
        self._own = beside(generator, "linear")
        self._actions = n_actions
        shape = (2, n_actions, model.lanes, features.number)
        gammas = self._own.standard_gamma(0.5, shape)
        strength = model.prior if pseudo is None else 0.0
        self.sums: Sums = first_sums(
            np, gammas, features.levels, model.low, model.high, strength, self.ahead.number
        )
        # Sums are changed in place.
        self.sums = Sums(*(np.array(each) for each in self.sums))
        self.learnt, self.losses = 0, 0
        self.held, self._held_priority = no_steps(features.size), np.zeros(0)
        self.nodes, self._priority = np.zeros((0, features.size)), np.zeros(0)
        if self.ahead.kind == "one_hot":
            self.nodes = np.arange(self.ahead.number, dtype=np.float64)[:, None]
        if pseudo is not None:
            drawn = self._own.standard_gamma(pseudo.shape[:, None], (len(pseudo.shape), model.lanes))
            self.add(pseudo.steps, drawn)

    @property
    def generator(self) -> np.random.Generator:
        """The generator that all weights come from."""
        return self._generator

    def learn(self, steps: Steps) -> None:
        """Weigh each transition in every world by an Exp(1), or hold it out."""
        number = len(steps.action)
        if number == 0:
            return
        kept = np.ones(number, dtype=bool)
        if self._model.held_out > 0.0:
            kept = (self._own.random(number) >= self._model.held_out) | steps.lost
            self._hold_out(steps.at(~kept))
        taught = steps.at(kept)
        for first in range(0, len(taught.action), CHUNK):
            part = taught.at(slice(first, first + CHUNK))
            self.add(part, self._generator.standard_exponential((len(part.action), self._model.lanes)))
        self.learnt += len(taught.action)
        self.losses += int(taught.lost.sum())
        self._sample(taught.after[~taught.lost & ~taught.ended])

    def add(self, steps: Steps, drawn: Floats) -> None:
        """Add transitions with given weights (n, L)."""
        known = ~steps.lost
        phi, after = self.features(steps.observation), np.zeros((len(known), self.ahead.number))
        goes_on = known & ~steps.ended
        after[goes_on] = self.ahead(steps.after[goes_on])
        rewards = np.where(known, steps.reward, 0.0)
        for a in range(self._actions):
            mine = np.flatnonzero(steps.action == a)
            for first in range(0, len(mine), ROWS):
                rows = mine[first : first + ROWS]
                gram, moves, earned = weighed(np, phi[rows], after[rows], rewards[rows], drawn[rows])
                self.sums.gram[a] += gram
                self.sums.moves[a] += moves
                self.sums.earned[a] += earned
            gone = mine[~known[mine]]
            if len(gone):
                self.sums.lost[a] += drawn[gone].T @ phi[gone]

    def plan(self, horizon: int, discount: float) -> Coefficients:
        """Plan all worlds backwards, t = H-1..0.

        Raises:
            InvalidData: if a regression cannot be solved.
        """
        model, course = self._model, self.course(horizon, discount)
        try:
            parts: Solved = solved(np, self.sums)
        except np.linalg.LinAlgError as problem:
            raise InvalidData(
                "features must be linearly independent on the data and the prior, got a singular regression. "
                "Give fewer features, or a stronger prior."
            ) from problem
        shape = (horizon, self._actions, model.lanes, self.features.number)
        theta, ahead = np.empty(shape), np.zeros((model.lanes, self.ahead.number))
        for t in reversed(range(horizon)):
            theta[t], ahead = stage(np, parts, course, model.attitude, discount, ahead, t)
        if not np.isfinite(theta).all():
            raise InvalidData("values must be finite, got others. Check 'low', 'high' and the observations.")
        top = np.zeros((0, 0, 0, 0))
        if self.losses:
            top = self._topped(parts, course, theta, discount)
        return Coefficients(theta, top, course.low, course.high)

    def course(self, horizon: int, discount: float) -> Course:
        """Return what a backward pass needs besides the sums."""
        weight = np.array(steps_left(horizon, discount))
        nodes = self.nodes if len(self.nodes) else np.zeros((1, self.features.size))
        phi = self.features(nodes)
        projector = np.linalg.pinv(self.ahead(nodes), rcond=SMALLEST)
        return Course(phi, projector, self._model.low * weight, self._model.high * weight, weight)

    def _topped(self, parts: Solved, course: Course, theta: Floats, discount: float) -> Floats:
        """Return the baseline's coefficients where what was lost is worth the most, (H, A, K, F)."""
        K = self._model.worlds
        judging = Solved(*(each[:, :K] for each in parts))
        top, ahead = np.empty((*theta.shape[:2], K, theta.shape[3])), np.zeros((K, self.ahead.number))
        for t in reversed(range(len(theta))):
            q = values_at(np, theta[t, :, :K], course.nodes, course.low[t], course.high[t])
            baseline = best(np, q, -self._model.pessimism)
            top[t], ahead = evaluated(np, judging, course, baseline, discount, ahead, t)
        return top

    def _hold_out(self, steps: Steps) -> None:
        priority = np.concatenate([self._held_priority, self._own.random(len(steps.action))])
        both = joined([self.held, steps])
        keep = np.sort(np.argsort(-priority, kind="stable")[: self._model.held_most])
        self.held, self._held_priority = both.at(keep), priority[keep]

    def _sample(self, reached: Floats) -> None:
        """Let observations into the nodes, so that these are a uniform sample of all that were reached."""
        if self.ahead.kind == "one_hot":
            return
        priority = np.concatenate([self._priority, self._own.random(len(reached))])
        both = np.concatenate([self.nodes, reached])
        most = self._model.nodes_for(self.ahead.number)
        keep = np.sort(np.argsort(-priority, kind="stable")[:most])
        self.nodes, self._priority = both[keep], priority[keep]

    def states(self) -> list[dict[str, Any]]:
        """Return the states of the two generators, as plain values."""
        return [dict(each.bit_generator.state) for each in (self._generator, self._own)]

    def _take_states(self, states: list[Mapping[str, Any]]) -> None:
        mine, apart = states
        self._generator.bit_generator.state = dict(mine)
        self._own.bit_generator.state = dict(apart)

    def to_arrays(self) -> Arrays:
        """Return all that the worlds depend on but features and generators, for `restore`."""
        held = {f"held.{name}": column for name, column in self.held._asdict().items()}
        arrays: Arrays = {
            **self.sums._asdict(),
            **held,
            "held.priority": self._held_priority,
            "nodes": self.nodes,
            "priority": self._priority,
            "numbers": np.array([self.learnt, self.losses]),
        }
        return {name: np.array(array) for name, array in arrays.items()}

    def restore(
        self, arrays: Mapping[str, NDArray[Any]], states: list[Mapping[str, Any]] | None = None
    ) -> None:
        """Take on what `to_arrays` returned, and the generators' `states`.

        Raises:
            InvalidData: if that is not of worlds of this model.
        """
        A, L, F, d = self._actions, self._model.lanes, self.features.number, self.features.size
        shapes = [(A, L, F, F), (A, L, F, self.ahead.number), *[(A, L, F)] * 3]
        sums = [
            as_array(name, arrays, shape, np.float64)
            for name, shape in zip(Sums._fields, shapes, strict=True)
        ]
        if not all(np.isfinite(each).all() for each in sums):
            raise InvalidData("sums of saved worlds must be finite, got others.")
        kept = as_array("held.priority", arrays, (None,), np.float64)
        blank = no_steps(d)
        columns = [
            as_array(f"held.{name}", arrays, (len(kept), *like.shape[1:]), like.dtype.type)
            for name, like in zip(Steps._fields, blank, strict=True)
        ]
        nodes = as_array("nodes", arrays, (None, d), np.float64)
        ranks = 0 if self.ahead.kind == "one_hot" else len(nodes)
        priority = as_array("priority", arrays, (ranks,), np.float64)
        numbers = as_array("numbers", arrays, (2,), np.int64)
        told = [nodes, *(each for each in columns if each.dtype == np.float64)]
        if (numbers < 0).any() or not all(np.isfinite(each).all() for each in told):
            raise InvalidData("counts and nodes of saved worlds must be sound, got others.")
        if states is not None:
            self._take_states(states)
        self.sums, self.held, self._held_priority = Sums(*sums), Steps(*columns), kept
        self.nodes, self._priority = nodes, priority
        self.learnt, self.losses = check_integer("learnt", int(numbers[0]), minimum=0), int(numbers[1])
