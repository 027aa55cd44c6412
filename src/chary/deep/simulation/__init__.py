"""A training run with its judge, played in chunks of episodes, between which it can be saved and resumed.

This folder is the judge of the deep learner: nothing that learns or acts imports from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from chary.deep.environment import Environment, check_static, observation_size
from chary.deep.learners import AnyState, learner_of
from chary.deep.loop import EpisodeLog, blank_log
from chary.deep.options import DeepOptions
from chary.deep.shielding import chain_counts, rule_on_arrays
from chary.deep.simulation.audit import EpisodeAudit
from chary.deep.simulation.chunks import (
    Audits,
    Chunk,
    Kind,
    compiled_begin,
    compiled_chunk,
    compiled_incumbent,
)
from chary.deep.simulation.run import DeepRun
from chary.deep.trees import arrays_of, tree_like
from chary.errors import InvalidData, InvalidSetting, check_integer

__all__ = ["AUDIT_EVERY", "DeepRun", "DeepSimulation"]

AUDIT_EVERY = 10


@final
class DeepSimulation:
    """A training run on an environment, audited as it goes.

    It can be saved between two chunks and resumed by another DeepSimulation with the same arguments, in
    another process of the same machine: the result is the same to the last bit. Runs that differ in seed and
    budget alone share what was compiled.

    Args:
        environment: The environment to play, such as `hiv(5)`.
        options: The agent, and how it learns.
        seed: The seed of all randomness, >= 0.
        audit_every: Audit one episode in so many, >= 0: 1 audits all, 0 none.

    Attributes:
        kind: Everything that compiled calls depend on; equal kinds share them.
        rule: The budget's rule as arrays, an argument of compiled calls.
        learner: The state of the learner; None before `start`.
        incumbent: The plan at the end of the warm-up, whose baseline is the second reference.
        done: Episodes played.
        can_be_saved: Whether `state` and `restore` work; always.

    Raises:
        InvalidSetting: if something is of the wrong type, or a number is out of range.

    Example:
        >>> from chary.deep import hiv
        >>> networks = {"width": 8, "features": 8, "batch": 8, "fresh": 4, "replay": 1000}
        >>> small = DeepOptions(episodes=3, warm_up=1, pretraining=5, **networks)
        >>> simulation = DeepSimulation(hiv(5), small, audit_every=1)
        >>> simulation.start()
        >>> while simulation.done < 3:
        ...     _ = simulation.advance()
        >>> simulation.result().summary()["steps"]
        600
    """

    def __init__(
        self, environment: Environment, options: DeepOptions, *, seed: int = 0, audit_every: int = AUDIT_EVERY
    ) -> None:
        if not isinstance(options, DeepOptions):
            raise InvalidSetting(f"'options' must be DeepOptions, got {type(options).__name__}.")
        with jax.enable_x64(True):
            observation_size(environment, jax.random.key(0))
            self.rule = rule_on_arrays(options.budget_rule)
        check_static(environment)
        self.environment, self.options = environment, options
        self.seed = check_integer("seed", seed, minimum=0)
        self.audit_every = check_integer("audit_every", audit_every, minimum=0)
        self.episodes = options.episodes
        self.kind = Kind.of(environment, options, self.audit_every)
        self.learner: AnyState | None = None
        self.incumbent: Any = None
        self.done = 0
        self.can_be_saved = True
        self._logs: list[EpisodeLog] = []
        self._audits: list[Audits] = []
        self._audited: list[int] = []
        self._seconds = 0.0

    def start(self) -> None:
        """Play the warm-up and learn from it."""
        with jax.enable_x64(True):
            self.learner = compiled_begin(self.kind)(jax.random.key(self.seed))
            # A copy: chunks write into the state they are given.
            self.incumbent = jax.tree.map(jnp.copy, compiled_incumbent(self.kind)(self.learner))

    def advance(self) -> int:
        """Play one more chunk of episodes, and return how many are done.

        Raises:
            InvalidSetting: if it has not started, or all were played.
            InvalidData: if a reward or an audit is not finite, with seed, episode, state and action.
        """
        if self.learner is None or self.incumbent is None or self.done >= self.episodes:
            raise InvalidSetting(
                f"'advance' must come after 'start' and before the end, got {self.done} of {self.episodes} "
                "episodes played."
            )
        began = time.perf_counter()
        with jax.enable_x64(True):
            play = compiled_chunk(self.kind, *self.kind.next_chunk(self.done))
            self.learner, chunk = play(self.learner, self.rule, self.incumbent)
            chunk = jax.tree.map(np.asarray, chunk)
        return self.keep(chunk, time.perf_counter() - began)

    def keep(self, chunk: Chunk, seconds: float) -> int:
        """Add a chunk that was played to the run, and return how many episodes are done.

        Raises:
            InvalidData: as `advance` does; nothing is added then, and the run cannot go on.
        """
        try:
            self._check(chunk)
        except InvalidData:
            self.learner = None
            raise
        self._seconds += seconds
        self._logs.append(chunk.log)
        self.done += len(chunk.log.returns)
        if chunk.audits is not None:
            self._audits.append(chunk.audits)
            self._audited.append(self.done - 1)
        return self.done

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the rest of the run depends on: networks, optimiser, replay, keys, chain and log.

        Raises:
            InvalidSetting: if the run has not started.
        """
        if self.learner is None:
            raise InvalidSetting("'state' must come after 'start', got a run that has not started.")
        return {
            **arrays_of(self.learner, "state."),
            **arrays_of(self.incumbent, "incumbent."),
            **arrays_of(self._log(), "log."),
            **arrays_of(_joined(self._audits), "audits."),
            "seconds": np.array([self._seconds]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue where `state` was taken; in place of `start`.

        Raises:
            InvalidData: if it is not the state of such a run.
        """
        with jax.enable_x64(True):
            shapes = jax.eval_shape(compiled_begin(self.kind), jax.random.key(0))
            learner = tree_like(shapes, state, "state.")
            like = jax.eval_shape(compiled_incumbent(self.kind), shapes)
            incumbent = tree_like(like, state, "incumbent.")
        done = int(learner.episodes)
        every = self.audit_every
        audited = [k for k in range(done) if every and (k + 1) % every == 0]
        log = _rows(state, "log", self._log(), done)
        audits = _rows(state, "audits", _joined([]), len(audited))
        (seconds,) = _rows(state, "seconds", np.zeros(1), 1)
        if not 0 <= done <= self.episodes:
            raise InvalidData(
                f"a saved run must have played at most {self.episodes} episodes, got {done}. "
                "Resume it with the options it was saved with."
            )
        self.learner, self.incumbent, self.done, self._seconds = learner, incumbent, done, float(seconds)
        self._logs, self._audits = [log], [audits]
        self._audited = audited

    def rows(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the columns of the log with one number per episode, from episode `first` on, by name."""
        columns = {name: np.asarray(column) for name, column in self._log()._asdict().items()}
        return {name: column[first:] for name, column in columns.items() if column.ndim == 1}

    def planned(self) -> dict[str, float]:
        """Return the mean losses of the last episode, by network."""
        if not self.done:
            return {}
        losses = np.asarray(self._logs[-1].losses)[-1]
        return dict(zip(learner_of(self.options).losses, losses.tolist(), strict=True))

    def result(self) -> DeepRun:
        """Return the judged run; all episodes must have been played."""
        if self.learner is None or self.done < self.episodes:
            raise InvalidSetting(
                f"'episodes' must all be played before there is a result, got {self.done} of {self.episodes}."
            )
        own, incumbent, held_out = _joined(self._audits)
        return DeepRun(
            environment=self.environment,
            options=self.options,
            seed=self.seed,
            audit_every=self.audit_every,
            seconds=self._seconds,
            log=self._log(),
            audited=np.array(self._audited, np.int64),
            audit=own,
            incumbent=incumbent,
            held_out=held_out,
            chains=chain_counts(self.learner.chain),
            counts=learner_of(self.options).counts(self.options, self.learner),
            grounds=learner_of(self.options).grounds(self.options, self.learner),
        )

    def _log(self) -> EpisodeLog:
        with jax.enable_x64(True):
            none = [np.zeros((0, *leaf.shape), leaf.dtype) for leaf in blank_log(self.environment)]
        return EpisodeLog._make(np.concatenate(each) for each in zip(none, *self._logs, strict=True))

    def _check(self, chunk: Chunk) -> None:
        """Refuse to go on from numbers that are not finite: an audit of them could not find a violation."""
        fault, audits = chunk.fault, chunk.audits or ()
        played = ", ".join(f"{name} {value!r}" for name, value in self.environment.labels)
        where = f"seed {self.seed} on {played or 'the environment'}, episode {self.done + int(fault.episode)}"
        if fault.found:
            leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(fault.state)]
            state = ", ".join(f"{value:.6g}" for value in np.concatenate(leaves))
            raise InvalidData(
                f"rewards must be finite, got one that is not: {where}, from [{state}] under action "
                f"{int(fault.action)}. Check the environment there, or report it with these numbers."
            )
        if not all(np.isfinite(each.deficit) for each in audits):
            raise InvalidData(
                f"audits must be finite, got one that is not: {where} or the following ones, where the "
                "baseline went. Check the environment there, or report it with these numbers."
            )


def _joined(audits: Sequence[Audits]) -> Audits:
    none = EpisodeAudit._make([np.zeros(0, np.float64)] * 4 + [np.zeros(0, np.int32)] * 4)
    parts = (Audits(none, none, none), *audits)
    joined: Audits = jax.tree.map(lambda *leaves: np.concatenate([*map(np.atleast_1d, leaves)]), *parts)
    return joined


def _rows(arrays: Mapping[str, NDArray[Any]], name: str, like: Any, number: int) -> Any:
    """Return the saved rows of a tuple of columns or of one column: `number` of them, else as in `like`."""
    if isinstance(like, tuple):
        columns = zip(like._fields, like, strict=True)  # type: ignore[attr-defined]
        return type(like)(*(_rows(arrays, f"{name}.{each}", column, number) for each, column in columns))
    found = arrays.get(name)
    if found is None or (found.shape, found.dtype) != ((number, *like.shape[1:]), like.dtype):
        got = "none" if found is None else f"{found.dtype} of shape {found.shape}"
        raise InvalidData(
            f"{name!r} of a saved run must be {like.dtype} with {number} rows of shape {like.shape[1:]}, "
            f"got {got}."
        )
    return found
