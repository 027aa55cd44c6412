"""Chains, that is unfinished meta-rollouts, and the pool in which they wait for their targets."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from chary.errors import InvalidData
from chary.shield.match import Matcher, same
from chary.texts import shown

S = TypeVar("S")

# Episodes without an advance after which the agents abandon a chain, chosen by benchmarks/patience.py.
PATIENCE = 100


class Step(NamedTuple, Generic[S]):
    """One step of a chain; `transition` is the object that the agent passed with it."""

    s: S
    a: int
    s_next: S
    transition: object = None


class MetaRollout(NamedTuple, Generic[S]):
    """A finished chain: the paper's alpha-hat_m, H steps of one frozen explorer or fewer to a terminal state.

    `episodes` is N_m, every episode from the chain's start to its completion, both included. It is the
    sum of three parts, each episode in the first that applies: `exhausted`, the chain was refused in it;
    `long`, it advanced the chain by at least H/4 steps; `missed`, the rest. `fed_episodes` counts
    the episodes that advanced the chain at all.
    """

    chain: int
    steps: tuple[Step[S], ...]
    episodes: int
    fed_episodes: int
    exhausted: int
    long: int
    missed: int

    def record(self, keep: Callable[[object], Any]) -> list[Any]:
        """Return the meta-rollout as plain values, for `restored`; `keep` replaces transitions."""
        return [self.chain, _kept(self.steps, keep), *self[2:]]

    @classmethod
    def restored(cls, record: Sequence[Any], recall: Callable[[Any], object]) -> MetaRollout[S]:
        """Return the meta-rollout that `record` was called on."""
        chain, steps, *numbers = record
        return cls(chain, tuple(_recalled(steps, recall)), *numbers)


@dataclass(slots=True, eq=False)
class Chain(Generic[S]):
    """An unfinished meta-rollout; it resumes at `target`, and only there.

    `born` and `last_advanced` are readings of one clock: the number of episodes that had ended then.
    """

    id: int
    target: S
    born: int
    last_advanced: int
    waiting: bool = False
    complete: bool = False
    steps: list[Step[S]] = field(default_factory=list)
    fed_episodes: int = 0
    exhausted_episodes: int = 0
    long_episodes: int = 0
    _advances: dict[Hashable, int] = field(default_factory=dict)
    _refusals: set[Hashable] = field(default_factory=set)

    @property
    def length(self) -> int:
        """The steps played so far: the chain's own clock."""
        return len(self.steps)

    def record(self, keep: Callable[[object], Any]) -> list[Any]:
        """Return the chain as plain values, for `restored`; `keep` replaces transitions."""
        return [
            *(self.id, self.target, self.born, self.last_advanced, self.waiting, self.complete),
            _kept(self.steps, keep),
            *(self.fed_episodes, self.exhausted_episodes, self.long_episodes),
            [list(item) for item in self._advances.items()],
            sorted(self._refusals, key=repr),
        ]

    @classmethod
    def restored(cls, record: Sequence[Any], recall: Callable[[Any], object]) -> Chain[S]:
        """Return the chain that `record` was called on."""
        *plain, advances, refusals = record
        plain[6] = _recalled(plain[6], recall)
        plain += [dict(advances), set(refusals)]
        return cls(*plain)

    def advance(self, episode: Hashable, step: Step[S], *, ended: int) -> None:
        """Append a step that `episode` has played, `ended` episodes having ended by now."""
        self.steps.append(step)
        self.target = step.s_next
        self.last_advanced = ended
        self.fed_episodes += episode not in self._advances
        self._advances[episode] = self._advances.get(episode, 0) + 1

    def refuse(self, episode: Hashable) -> None:
        """Note that the ledger of `episode` could not afford this chain's next step."""
        self._refusals.add(episode)

    def settle(self, episode: Hashable, *, horizon: int) -> None:
        """Put `episode`, which will not touch this chain again, under its part of N_m."""
        steps = self._advances.pop(episode, 0)
        if episode in self._refusals:
            self._refusals.remove(episode)
            self.exhausted_episodes += 1
        elif 4 * steps >= horizon:
            self.long_episodes += 1

    def conclude(self, *, horizon: int, episodes: int) -> MetaRollout[S]:
        """Complete the chain, `episodes` being its N_m, and return the meta-rollout."""
        self.complete = True
        for episode in {*self._advances, *self._refusals}:
            self.settle(episode, horizon=horizon)
        missed = episodes - self.exhausted_episodes - self.long_episodes
        parts = (self.exhausted_episodes, self.long_episodes, missed)
        return MetaRollout(self.id, tuple(self.steps), episodes, self.fed_episodes, *parts)


class Pool(Generic[S]):
    """The open chains: at most `size`, each either fed by one episode or waiting at its target."""

    def __init__(self, size: int, match: Matcher[S]) -> None:
        self._size = size
        self._match = match
        self._exact = match is same
        self._waiting: dict[int, Chain[S]] = {}
        self._at: dict[S, list[Chain[S]]] = {}
        self._open = 0
        # The number of chains ever started; also the id of the next one.
        self.started = 0

    def __len__(self) -> int:
        return self._open

    @property
    def has_room(self) -> bool:
        """True if one more chain may be opened."""
        return self._open < self._size

    @property
    def free(self) -> int:
        """How many more chains may be opened."""
        return self._size - self._open

    def restore(self, started: int, chains: Iterable[Chain[S]]) -> None:
        """Take on open chains and the number of those ever started."""
        self.started = started
        for chain in chains:
            if not chain.complete:
                self._open += 1
            if chain.waiting:
                self.wait(chain, chain.target)

    def check(self, name: str, s: S) -> None:
        """Raise InvalidData if `s` cannot serve as a target under this pool's matcher."""
        if self._exact:
            try:
                hash(s)
            except TypeError:
                raise InvalidData(
                    f"{name!r} must be hashable to be matched by `same`, got {type(s).__name__}. "
                    "Pass a whole number or a tuple, or a shield with match=within(radius)."
                ) from None
            return
        try:
            self._match(s, s)
        except (TypeError, ValueError) as problem:
            raise InvalidData(
                f"{name!r} must be a state that 'match' can compare, got {type(s).__name__}: {problem}."
            ) from problem

    def check_continues(self, how: str, reached: S | None, s: S) -> None:
        """Raise InvalidData if `s` is not the state `reached` before: a chain would break there.

        Only states compared by `same` can be distinguished without doubt; others are trusted.
        """
        if self._exact and reached is not s and _differ(reached, s):
            raise InvalidData(
                f"'s' must be the state {how}, {reached!r}, got {shown(s)}. "
                "Finish the episode before deciding in the next one's first state."
            )

    def keep(self, s: S) -> S:
        """Return `s` as it may be stored: a copy where the environment could overwrite it."""
        return s if self._exact else copy.copy(s)

    def waiting(self) -> tuple[Chain[S], ...]:
        """Return all waiting chains, oldest first."""
        return tuple(self._waiting[i] for i in sorted(self._waiting))

    def waiting_at(self, s: S) -> Sequence[Chain[S]]:
        """Return the waiting chains whose target matches `s`, oldest first; read it before any is taken."""
        if self._exact:
            return self._at.get(s, ())
        return [chain for chain in self.waiting() if self._match(chain.target, s)]

    def draft(self, s: S, *, ended: int) -> Chain[S]:
        """Return the chain that would be started at `s`; the pool is unchanged until it is admitted."""
        return Chain(self.started, s, born=ended, last_advanced=ended)

    def admit(self, chain: Chain[S]) -> None:
        """Open a drafted chain: it now counts as started and takes room."""
        self.started += 1
        self._open += 1

    def wait(self, chain: Chain[S], target: S) -> None:
        """Let an open chain wait for `target`."""
        chain.target = self.keep(target)
        chain.waiting = True
        self._waiting[chain.id] = chain
        if self._exact:
            bisect.insort(self._at.setdefault(target, []), chain, key=attrgetter("id"))

    def take(self, chain: Chain[S]) -> None:
        """Hand a waiting chain to an episode: no other can take it until it is let go."""
        chain.waiting = False
        del self._waiting[chain.id]
        if self._exact:
            here = self._at[chain.target]
            here.remove(chain)
            if not here:
                del self._at[chain.target]

    def remove(self, chain: Chain[S]) -> None:
        """Forget an open chain, waiting or fed: it no longer takes room."""
        if chain.waiting:
            self.take(chain)
        self._open -= 1


def _differ(reached: object, s: object) -> bool:
    try:
        return bool(reached != s)
    except (TypeError, ValueError):
        # Arrays compare entry by entry, or not at all.
        return True


def _kept(steps: Iterable[Step[S]], keep: Callable[[object], Any]) -> list[list[Any]]:
    return [[step.s, step.a, step.s_next, keep(step.transition)] for step in steps]


def _recalled(steps: Iterable[Sequence[Any]], recall: Callable[[Any], object]) -> list[Step[Any]]:
    return [Step(s, a, s_next, recall(kept)) for s, a, s_next, kept in steps]
