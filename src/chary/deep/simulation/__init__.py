"""A whole training run with its judge, a chunk of episodes at a time, to be watched, stopped and saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.audit import violates
from chary.deep.learner import State
from chary.deep.loop import EpisodeLog, begin, blank_log, proceed
from chary.deep.options import DeepOptions
from chary.deep.saving import arrays_of, tree_like
from chary.deep.shielding import rule_on_arrays
from chary.deep.simulation.audit import EpisodeAudit, audit_episode
from chary.deep.simulation.held_out import held_out_audit
from chary.deep.simulation.hiv import hiv
from chary.envs.hiv import patient
from chary.errors import InvalidData, InvalidSetting, check_integer
from chary.shield.rule import Rule

__all__ = ["AUDIT_EVERY", "DeepRun", "DeepSimulation"]

AUDIT_EVERY = 10
# What held-out episodes are for: how many actions were looked at, and how many of their charges sufficed.
COVERAGE = ("deviations", "covered")
# Folded into a run's key for the episodes that are held out.
HELD_OUT = 1
# Episodes of one compiled call where no audit divides them.
CHUNK = 10


class _Fault(NamedTuple):
    """The first step of a chunk with a reward that is not finite, if `found`."""

    found: jax.Array
    episode: jax.Array
    state: jax.Array
    action: jax.Array


class _Chunk(NamedTuple):
    """What one compiled call returns beside the state; both audits are None where nothing is audited."""

    log: EpisodeLog
    audit: EpisodeAudit | None
    held_out: EpisodeAudit | None
    fault: _Fault


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeepRun:
    """A training run and the truth about a sample of its episodes, in standardised units of reward.

    Args:
        patient: Who was treated.
        options: Who treated, and how it learnt.
        seed: Where randomness came from.
        audit_every: One episode in so many was audited; 0 for none.
        seconds: What playing took.
        log: What each episode came to.
        audited: Which episodes were audited, shape (n,).
        audit: The truth about them, each of shape (n,).
        held_out: The truth about an episode held out after each of them, with random deviations.
        chains: Meta-rollouts started, finished and abandoned, and episodes in which none moved.
    """

    patient: str | int
    options: DeepOptions
    seed: int
    audit_every: int
    seconds: float
    log: EpisodeLog
    audited: NDArray[np.int64]
    audit: EpisodeAudit
    held_out: EpisodeAudit
    chains: Mapping[str, int]

    @property
    def raw_returns(self) -> Floats:
        """Discounted returns in the simulator's own units."""
        treated = patient(self.patient)
        steps = np.asarray(self.log.steps)
        weights = np.power(self.options.discount, np.arange(int(steps.max())))
        total = np.concatenate([[0.0], np.cumsum(weights)])[steps]
        return np.asarray(self.log.returns * treated.reward_std + treated.reward_mean * total)

    def violations(self, eta: float) -> NDArray[np.bool_]:
        """Return which audited episodes lost more than `eta` against their baseline, shape (n,)."""
        from_start = self.options.charge_from == "start"
        return np.asarray(violates(np.asarray(self.audit.loss if from_start else self.audit.deficit), eta))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything by name: (K, ...) for every episode, (n,) for audited ones as `true_...`."""
        log = {name: np.asarray(value) for name, value in self.log._asdict().items()}
        audit = {f"true_{name}": np.asarray(value) for name, value in self.audit._asdict().items()}
        held_out = {f"held_out_{name}": np.asarray(getattr(self.held_out, name)) for name in COVERAGE}
        return {**log, "raw_returns": self.raw_returns, "audited": self.audited, **audit, **held_out}

    def summary(self) -> dict[str, Any]:
        """Return the run in one flat dictionary of plain numbers."""
        raw, log, audit = self.raw_returns, self.log, self.audit
        shielded = self.options.agent == "chary"
        eta = self.options.eta if shielded else None
        return {
            "problem": "hiv",
            "patient": self.patient,
            "agent": self.options.agent,
            "eta": eta,
            "seed": self.seed,
            "episodes": len(raw),
            "steps": int(log.steps.sum()),
            "best_raw_return": float(raw.max()),
            "best_episode": int(raw.argmax()),
            "mean_raw_return": float(raw.mean()),
            "last_raw_return": float(raw[-max(1, len(raw) // 10) :].mean()),
            "max_deficit": float(log.deficit.max()),
            "explored": int(log.explored.sum()),
            "deviated": int(log.deviated.sum()),
            **{f"chains_{name}": number for name, number in self.chains.items()},
            "audit_every": self.audit_every,
            "audited": len(self.audited),
            "violations": None if eta is None else int(self.violations(eta).sum()),
            "max_true_deficit": float(audit.deficit.max()) if len(self.audited) else None,
            "deviations": int(audit.deviations.sum()),
            "covered": int(audit.covered.sum()),
            "booked": int(audit.booked.sum()),
            "booked_covered": int(audit.booked_covered.sum()),
            "held_out_deviations": int(self.held_out.deviations.sum()),
            "held_out_covered": int(self.held_out.covered.sum()),
            "seconds": self.seconds,
        }


@final
class DeepSimulation:
    """A training run on a patient, judged as it goes.

    It can be saved between two chunks and resumed by another DeepSimulation with the same arguments, in
    another process of the same machine: the result is the same to the last bit. Runs that differ in seed and
    budget alone share what was compiled.

    Args:
        options: Who plays, and how it learns.
        patient: "base" or a number in 0..5.
        seed: Where all randomness comes from, >= 0.
        audit_every: Audit one episode in so many, >= 0: 1 audits all, 0 none.

    Raises:
        InvalidSetting: if a number is out of range.
        UnknownName: if there is no such patient.

    Example:
        >>> small = DeepOptions(episodes=2, warm_up=1, pretraining=0, width=4, features=4, batch=4)
        >>> simulation = DeepSimulation(small, audit_every=0)
        >>> simulation.start()
        >>> while simulation.done < 2:
        ...     _ = simulation.advance()
        >>> simulation.result().summary()["steps"]
        400
    """

    def __init__(
        self, options: DeepOptions, *, patient: str | int = 5, seed: int = 0, audit_every: int = AUDIT_EVERY
    ) -> None:
        if not isinstance(options, DeepOptions):
            raise InvalidSetting(f"'options' must be DeepOptions, got {type(options).__name__}.")
        hiv(patient)
        self.options, self.patient = options, patient
        self.seed = check_integer("seed", seed, minimum=0)
        self.audit_every = check_integer("audit_every", audit_every, minimum=0)
        self.episodes = options.episodes
        self._chunk = min(audit_every or CHUNK, options.episodes)
        with jax.enable_x64(True):
            self._rule = rule_on_arrays(options.budget_rule)
        self._state: State | None = None
        self._logs: list[EpisodeLog] = []
        self._audits: list[EpisodeAudit] = []
        self._held_out: list[EpisodeAudit] = []
        self._audited: list[int] = []
        self._seconds = 0.0
        self.done = 0

    def start(self) -> None:
        """Play the warm-up and learn from it."""
        with jax.enable_x64(True):
            self._state = _begins(self.patient, _shared(self.options))(jax.random.key(self.seed))

    def advance(self) -> int:
        """Play one more chunk of episodes, and return how many are done.

        Raises:
            InvalidSetting: if it has not started, or all were played.
            InvalidData: if the equations could not be integrated, naming state and action.
        """
        if self._state is None or self.done >= self.episodes:
            raise InvalidSetting(
                f"'advance' must come after 'start' and before the end, got {self.done} of {self.episodes} "
                "episodes played."
            )
        began = time.perf_counter()
        with jax.enable_x64(True):
            play = _plays(self.patient, _shared(self.options), *self._next())
            self._state, chunk = play(self._state, self._rule)
            chunk = jax.tree.map(np.asarray, chunk)
        self._check(chunk)
        return self._took(chunk, time.perf_counter() - began)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the rest of the run depends on: networks, optimiser, replay, keys, chain and log.

        Raises:
            InvalidSetting: if the run has not started.
        """
        if self._state is None:
            raise InvalidSetting("'state' must come after 'start', got a run that has not started.")
        return {
            **arrays_of(self._state, "state."),
            **arrays_of(self._log(), "log."),
            **arrays_of(_joined(self._audits), "audit."),
            **arrays_of(_joined(self._held_out), "held_out."),
            "seconds": np.array([self._seconds]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was taken; in place of `start`.

        Raises:
            InvalidData: if it is not the state of such a run.
        """
        with jax.enable_x64(True):
            begins = _begins(self.patient, _shared(self.options))
            whole = tree_like(jax.eval_shape(begins, jax.random.key(0)), state, "state.")
        done = int(whole.episodes)
        every = self.audit_every
        audited = [k for k in range(done) if every and (k + 1) % every == 0]
        log = EpisodeLog._make(
            _rows(state, f"log.{name}", like, done) for name, like in self._log()._asdict().items()
        )
        audit, held_out = (
            EpisodeAudit._make(
                _rows(state, f"{kind}.{name}", like, len(audited))
                for name, like in _joined([])._asdict().items()
            )
            for kind in ("audit", "held_out")
        )
        seconds = _rows(state, "seconds", np.zeros(1), 1)
        if not 0 <= done <= self.episodes:
            raise InvalidData(
                f"a saved run must have played at most {self.episodes} episodes, got {done}. "
                "Resume it with the options it was saved with."
            )
        self._state, self.done, self._seconds = whole, done, float(seconds[0])
        self._logs, self._audits, self._held_out = [log], [audit], [held_out]
        self._audited = audited

    def result(self) -> DeepRun:
        """Return the judged run; all episodes must have been played."""
        if self._state is None or self.done < self.episodes:
            raise InvalidSetting(
                f"'episodes' must all be played before there is a result, got {self.done} of {self.episodes}."
            )
        chain = self._state.chain
        return DeepRun(
            patient=self.patient,
            options=self.options,
            seed=self.seed,
            audit_every=self.audit_every,
            seconds=self._seconds,
            log=self._log(),
            audited=np.array(self._audited, np.int64),
            audit=_joined(self._audits),
            held_out=_joined(self._held_out),
            chains={
                name: int(getattr(chain, name)) for name in ("started", "finished", "abandoned", "blocked")
            },
        )

    def _log(self) -> EpisodeLog:
        with jax.enable_x64(True):
            none = [np.zeros((0, *leaf.shape), leaf.dtype) for leaf in blank_log(hiv(self.patient))]
        return EpisodeLog._make(np.concatenate(each) for each in zip(none, *self._logs, strict=True))

    def _took(self, chunk: _Chunk, seconds: float) -> int:
        """Keep what a chunk came to, and return how many episodes are done."""
        self._seconds += seconds
        self._logs.append(chunk.log)
        self.done += len(chunk.log.returns)
        if chunk.audit is not None and chunk.held_out is not None:
            self._audits.append(chunk.audit)
            self._held_out.append(chunk.held_out)
            self._audited.append(self.done - 1)
        return self.done

    def _next(self) -> tuple[int, bool]:
        """Return how many episodes the next chunk has, and whether its last one is audited."""
        number = min(self._chunk, self.episodes - self.done)
        return number, self.audit_every > 0 and number == self.audit_every

    def _check(self, chunk: _Chunk) -> None:
        """Refuse to go on from numbers that are not finite: no audit could tell a violation by them."""
        fault, rollouts = chunk.fault, (chunk.audit, chunk.held_out)
        where = f"seed {self.seed} on patient {self.patient!r}, episode {self.done + int(fault.episode)}"
        if fault.found:
            state = ", ".join(f"{value:.6g}" for value in np.asarray(fault.state))
            raise InvalidData(
                f"rewards must be finite, got one that is not: {where}: the equations could not be "
                f"integrated from [{state}] under action {int(fault.action)}. Report it with these numbers."
            )
        if any(each is not None and not np.isfinite(each.deficit) for each in rollouts):
            raise InvalidData(
                f"audits must be finite, got one that is not: {where} or the following ones: the equations "
                "could not be integrated where the baseline went. Report it with these numbers."
            )


def _joined(audits: Sequence[EpisodeAudit]) -> EpisodeAudit:
    none = [np.zeros(0, np.float64)] * 4 + [np.zeros(0, np.int32)] * 4
    parts = [tuple(map(np.atleast_1d, each)) for each in audits]
    return EpisodeAudit._make(np.concatenate(each) for each in zip(none, *parts, strict=True))


def _rows(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any], number: int) -> NDArray[Any]:
    """Return saved rows, which must be so many and otherwise like the given ones."""
    found = arrays.get(name)
    if found is None or (found.shape, found.dtype) != ((number, *like.shape[1:]), like.dtype):
        got = "none" if found is None else f"{found.dtype} of shape {found.shape}"
        raise InvalidData(
            f"{name!r} of a saved run must be {like.dtype} with {number} rows of shape {like.shape[1:]}, "
            f"got {got}."
        )
    return found


def _shared(options: DeepOptions) -> DeepOptions:
    """Return options without the budget, which compiled code is told as it runs."""
    return replace(options, eta=1.0, step_bound=None if options.step_bound is None else 1.0)


@lru_cache(maxsize=16)
def _begins(patient: str | int, options: DeepOptions) -> Callable[[jax.Array], State]:
    environment = hiv(patient)
    return jax.jit(lambda key: begin(environment, options, key))


@lru_cache(maxsize=32)
def _plays(
    patient: str | int, options: DeepOptions, number: int, audits: bool
) -> Callable[[State, Rule], tuple[State, _Chunk]]:
    """Return what plays so many episodes and audits the last of them, if asked."""
    environment = hiv(patient)

    def play(state: State, rule: Rule) -> tuple[State, _Chunk]:
        state, log, steps = proceed(environment, options, state, number, rule=rule, record=True)
        audit = held_out = None
        if audits:
            last = jax.tree.map(lambda rows: rows[-1], steps)
            audit = audit_episode(environment, options, state.plan, last)
            # A key of its own: what is held out changes nothing of the run.
            key = jax.random.fold_in(state.key, HELD_OUT)
            held_out = held_out_audit(environment, options, state.plan, key)
        bad = ~jnp.isfinite(steps.reward).ravel()
        first = jnp.argmax(bad)
        episode, t = first // environment.horizon, first % environment.horizon
        fault = _Fault(jnp.any(bad), episode, steps.state[episode, t], steps.action[episode, t])
        return state, _Chunk(log, audit, held_out, fault)

    # The state is given away: its replay is written in place.
    return jax.jit(play, donate_argnums=0)
