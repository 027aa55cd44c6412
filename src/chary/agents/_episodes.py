"""The episode protocol: the order of calls that every step API of chary keeps, written once.

`TabularAgent`, `CriticShield` and `DeepAgent` differ in their states and in how they decide. They share the
rules of this module: episodes are opened by name; step `t` is decided once and repeated on request; outcomes
come late and in any order; an episode is finished or abandoned. `S` is the type of a state (a whole number,
an array), `P` the type of what a step API pins to an episode (its plan, its ledger, its random numbers).

Every method that can raise does so before it changes anything. A step API first calls the checks, then does
its own work, then calls the method that notes it, so that a call that raises leaves everything as it was:

    begin    name = episodes.unused(episode); check the state; episodes.open(name, state, pinned)
    act      now = episodes.named("act", episode); check the state
             decided = episodes.ask(now, t, state): repeat this decision if it is not None, else decide.
             Where `now.late` holds, `state` is the first news of where the last step led.
             episodes.decide(now, state, decision, baseline)
    observe  now = episodes.named("observe", episode); t = episodes.step_of(now, t)
             check the transition; `if not episodes.is_news(now, t, step, taken): return`
             Where `now.is_last(t)` holds and the step was not late, `step` is the first news of where it led.
             episodes.note(now, t, step); then as in `finish` after `close`
    finish   now = episodes.named("finish", episode); episodes.check_goes_on(now); episodes.close(now)
             `if episodes.settle(now, release):` learn from the outcomes of `now.steps`
             `release(now)` is called once, when the place where the last step led is known.
    abandon  now = episodes.named("abandon", episode); undo what `release` would have closed, unless
             `now.released`; episodes.drop(now)
    load     episodes.restore(now) for each episode of the file, which checks that its steps follow

`observe(..., taken=a)` reports that `a` was played and not the action decided, as when a clinician overrules
the agent. Whatever was booked for the decision stays booked. The step of a chain did not happen: the chain
waits where it was, so the override of a step that fed a chain must be observed before the next decision.
`Played.overruled` marks such a step; each step API decides whether to learn from it.

`taken(episode, t, a)` reports what was played before its outcome is known, and None that nothing known to be
was: such a step has no outcome, and is not outstanding.

    taken    now = episodes.named("taken", episode); t = episodes.step_of(now, t); check the action
             `if not episodes.is_report(now, t, action): return`; episodes.report(now, t, action)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from chary.errors import InvalidAction, InvalidData, OutOfOrder, check_integer
from chary.shield import Decision
from chary.texts import shown

S = TypeVar("S")
P = TypeVar("P")

# The name of an episode: a number, or a text of the user's choice.
EpisodeId: TypeAlias = int | str
# Reported in place of an action: the one decided was not played, and nothing known to be was.
NOT_TAKEN = -1


class Transition(NamedTuple):
    """One step in the environment; the reward is in the user's units.

    `state` and `next_state` are whole numbers for tabular agents, and observations for the others.
    """

    state: Any
    action: int
    reward: float
    next_state: Any
    terminated: bool


@dataclass(slots=True, eq=False)
class Played(Generic[S]):
    """A decided step; its `outcome` may come late, or never: then it is `lost` with its episode.

    `taken` is the action that was reported before the outcome, or NOT_TAKEN, or None for no report.
    """

    decision: Decision
    state: S
    outcome: Transition | None = None
    lost: bool = False
    taken: int | None = None

    @property
    def played(self) -> int:
        """The action that was played as far as is known, the one decided without any news; or NOT_TAKEN."""
        if self.taken is not None:
            return self.taken
        return self.decision.action if self.outcome is None else self.outcome.action

    @property
    def overruled(self) -> bool:
        """Whether another action was played than the one decided."""
        return self.played != self.decision.action

    @property
    def missing(self) -> bool:
        """Whether an outcome is still to come."""
        return self.outcome is None and self.taken != NOT_TAKEN


@dataclass(slots=True, eq=False)
class OpenEpisode(Generic[S, P]):
    """One open episode: where it is, and what was decided on the way.

    `closing` means that no more decisions will be requested, `released` that only late outcomes are missing.
    """

    name: EpisodeId
    state: S
    pinned: P
    steps: list[Played[S]] = field(default_factory=list)
    terminated: bool = False
    closing: bool = False
    released: bool = False

    @property
    def t(self) -> int:
        """The next step to decide."""
        return len(self.steps)

    @property
    def late(self) -> bool:
        """True while the outcome of the last decided step is not known."""
        steps = self.steps
        return len(steps) > 0 and steps[-1].outcome is None

    @property
    def outstanding(self) -> list[int]:
        """The steps whose outcomes are not known yet."""
        return [t for t, step in enumerate(self.steps) if step.missing]

    def is_last(self, t: int) -> bool:
        """Return whether `t` is the step decided last."""
        return t + 1 == len(self.steps)

    @property
    def flags(self) -> list[bool]:
        """The flags as a file keeps them, for `restored`."""
        return [self.terminated, self.closing, self.released]

    @classmethod
    def restored(
        cls, name: object, state: S, pinned: P, steps: list[Played[S]], flags: Sequence[object]
    ) -> OpenEpisode[S, P]:
        """Return the episode of a file with these `flags`."""
        terminated, closing, released = map(bool, flags)
        return cls(check_episode_id(name), state, pinned, steps, terminated, closing, released)


class Episodes(Generic[S, P]):
    """The open episodes of a step API, and the rules of the protocol.

    Args:
        horizon: H, the largest number of steps of an episode.
        same: Whether two states are the same one.
        show: A state as error messages print it.
        may_go_on: Called with the state given to `act` while the last outcome is not known; raises
            InvalidData if that state ends episodes.
    """

    def __init__(
        self,
        horizon: int,
        *,
        same: Callable[[S, S], bool] = operator.eq,
        show: Callable[[S], str] = repr,
        may_go_on: Callable[[S], None] | None = None,
    ) -> None:
        self._horizon = horizon
        self._same = same
        self._show = show
        self._may_go_on = may_go_on
        self._open: dict[EpisodeId, OpenEpisode[S, P]] = {}
        # Since the agent was made or loaded: episodes begun, steps decided, and those of them that explored,
        # that were compared with a baseline's action, and that deviated from it.
        self.begun = self.steps = self.explored = self.compared = self.deviating = 0

    @classmethod
    def of_arrays(cls, horizon: int) -> Episodes[S, P]:
        """Return the episodes of a step API whose states are arrays."""
        return cls(horizon, same=_same_arrays, show=_shown)

    def __iter__(self) -> Iterator[OpenEpisode[S, P]]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    @property
    def names(self) -> tuple[EpisodeId, ...]:
        """The episodes begun and neither complete nor abandoned."""
        return tuple(self._open)

    @property
    def outstanding(self) -> dict[EpisodeId, tuple[int, ...]]:
        """The steps of open episodes that were decided and whose outcomes are not known yet."""
        steps = {name: tuple(now.outstanding) for name, now in self._open.items()}
        return {name: missing for name, missing in steps.items() if missing}

    def unused(self, episode: object) -> EpisodeId:
        """Return the name of an episode that may begin.

        Raises:
            InvalidData: if it is not a name.
            OutOfOrder: if such an episode is open.
        """
        name = check_episode_id(episode)
        if name in self._open:
            raise OutOfOrder(
                f"'begin' must open a new episode, got {shown(episode)}, which is open. Finish it first."
            )
        return name

    def open(self, name: EpisodeId, state: S, pinned: P) -> None:
        """Open an episode whose name is unused."""
        self._open[name] = OpenEpisode(name, state, pinned)
        self.begun += 1

    def named(self, call: str, episode: EpisodeId) -> OpenEpisode[S, P]:
        """Return an open episode.

        Raises:
            OutOfOrder: if there is none of that name.
        """
        now = self._open.get(episode) if isinstance(episode, (int, str, np.integer)) else None
        if now is None or isinstance(episode, bool):
            raise OutOfOrder(f"{call!r} must name an open episode, got {shown(episode)}. Call begin first.")
        return now

    def ask(self, now: OpenEpisode[S, P], t: object, s: S) -> Decision | None:
        """Return the decision made at step `t` before, or None where a new one may be made in `s`.

        Raises:
            OutOfOrder: if `t` is neither the next step nor one decided before, or the episode is over.
            InvalidData: if `s` is not the state that the episode is in, or was in at step `t`.
        """
        decided = len(now.steps)
        step = t if type(t) is int else check_integer("t", t, minimum=0, error=OutOfOrder)
        over = now.terminated or now.closing or decided == self._horizon
        if step == decided and not over:
            if now.late:
                if self._may_go_on is not None:
                    self._may_go_on(s)
            elif not self._same(s, now.state):
                raise InvalidData(
                    f"'state' must be the state observed last, {self._show(now.state)}, got {self._show(s)}. "
                    "Finish the episode before deciding in the next one's first state."
                )
            return None
        if 0 <= step < decided:
            self._check_decided_in(now.steps[step], s)
            return now.steps[step].decision
        if over:
            ended = f"ended at step {decided - 1}" if now.terminated else "is over"
            raise OutOfOrder(
                f"'t' must be a step of episode {now.name!r}, got {shown(t)}. It {ended}"
                f"{'.' if now.closing else ': call finish, and begin another one.'}"
            )
        raise OutOfOrder(
            f"'t' must be the next step of episode {now.name!r}, got {shown(t)}. Call act with t = {decided}."
        )

    def decide(
        self, now: OpenEpisode[S, P], s: S, decision: Decision, baseline: int | None = None
    ) -> Decision:
        """Note the decision of the next step, made in `s`, and return it; `baseline` is an action."""
        now.state = s
        now.steps.append(Played(decision, s))
        self.steps += 1
        self.explored += decision.explored
        if baseline is not None:
            self.compared += 1
            self.deviating += decision.action != baseline
        return decision

    def step_of(self, now: OpenEpisode[S, P], t: object) -> int:
        """Return the step that an outcome belongs to; None stands for the only one outstanding.

        Raises:
            OutOfOrder: if step `t` was not decided, or None does not single out a step.
        """
        if t is None:
            outstanding = now.outstanding
            if not outstanding:
                raise OutOfOrder(
                    f"'observe' must follow an action, got an outcome of no step in episode {now.name!r}. "
                    "Call act first."
                )
            if len(outstanding) > 1:
                raise OutOfOrder(
                    f"'t' must be given where several outcomes are outstanding, got None in episode "
                    f"{now.name!r}, where {outstanding} are."
                )
            return outstanding[0]
        step = check_integer("t", t, minimum=0, error=OutOfOrder)
        if step >= len(now.steps):
            raise OutOfOrder(
                f"'t' must be a step decided in episode {now.name!r}, got {step} of {len(now.steps)}. "
                "Call act first."
            )
        return step

    def is_news(self, now: OpenEpisode[S, P], t: int, step: Transition, taken: object = None) -> bool:
        """Return whether `step` is a new outcome of step `t`; False if it was observed before.

        Raises:
            InvalidAction: if another action was played than decided and `taken` does not name it.
            InvalidData: if the outcome contradicts the states decided in, or the one observed before.
            OutOfOrder: if an override comes after a chain has gone on with the step.
        """
        played = now.steps[t]
        self._check_action(now, t, step.action, taken)
        self._check_decided_in(played, step.state)
        if not now.is_last(t) and not self._same(step.next_state, now.steps[t + 1].state):
            raise InvalidData(
                f"'next_state' must be the state decided in at step {t + 1}, "
                f"{self._show(now.steps[t + 1].state)}, got {self._show(step.next_state)}."
            )
        if played.outcome is None:
            return True
        if not self._agree(played.outcome, step):
            raise InvalidData(
                f"'transition' must be what was observed at step {t} before, got another one. "
                "An outcome is reported once; the same one again changes nothing."
            )
        return False

    def note(self, now: OpenEpisode[S, P], t: int, step: Transition) -> None:
        """Note the outcome of step `t`."""
        now.steps[t].outcome = step
        if now.is_last(t):
            now.state, now.terminated = step.next_state, step.terminated

    def is_report(self, now: OpenEpisode[S, P], t: int, action: int) -> bool:
        """Return whether `action`, or NOT_TAKEN, is news of what was played at step `t`.

        Raises:
            InvalidAction: if something else was reported or observed before.
            OutOfOrder: if an override comes after a chain has gone on with the step, or NOT_TAKEN once it is
                known where the step led.
        """
        played = now.steps[t]
        if played.taken is not None or played.outcome is not None:
            if played.played != action:
                raise InvalidAction(
                    f"'action' must be what was reported or observed at step {t} before, "
                    f"{_called(played.played)}, got {_called(action)}."
                )
            return False
        if action == NOT_TAKEN and not now.is_last(t):
            raise OutOfOrder(
                f"'action' can be None only before the next decision, got it for step {t} of {now.t} in "
                f"episode {now.name!r}. Whether a step counts must not depend on where it led: abandon the "
                "episode where it is not known what was played."
            )
        if action != played.decision.action:
            self._check_in_time(now, t)
        return True

    def report(self, now: OpenEpisode[S, P], t: int, action: int) -> None:
        """Note what was played at step `t`, which is news."""
        now.steps[t].taken = action

    def check_goes_on(self, now: OpenEpisode[S, P]) -> None:
        """Check that an episode may be closed.

        Raises:
            OutOfOrder: if it is closing already.
        """
        if now.closing:
            raise OutOfOrder(
                f"'finish' must name an episode that goes on, got {shown(now.name)}, which waits "
                "for the outcomes "
                f"of steps {now.outstanding}. Observe or abandon it."
            )

    def close(self, now: OpenEpisode[S, P]) -> None:
        """Note that no more decisions will be requested."""
        now.closing = True

    def settle(self, now: OpenEpisode[S, P], release: Callable[[OpenEpisode[S, P]], None]) -> bool:
        """Return whether a closing episode is complete, and forget it then.

        `release` is called once, as soon as the place where the last step led is known.
        """
        if not now.closing or (now.late and now.steps[-1].missing):
            return False
        if not now.released:
            release(now)
            now.released = True
        if now.outstanding:
            return False
        del self._open[now.name]
        return True

    def drop(self, now: OpenEpisode[S, P]) -> None:
        """Forget an episode; what is outstanding of it is lost."""
        for step in now.steps:
            step.lost = step.missing
        del self._open[now.name]

    def restore(self, now: OpenEpisode[S, P]) -> None:
        """Take on an open episode of a file.

        Raises:
            InvalidData: if its steps do not follow from each other.
        """
        follows = len(now.steps) <= self._horizon
        for step, after in pairwise(now.steps):
            outcome = step.outcome
            follows &= outcome is None or not outcome.terminated
            follows &= outcome is None or self._same(outcome.next_state, after.state)
        last = now.steps[-1] if now.steps else None
        outcome = None if last is None else last.outcome
        follows &= now.terminated == (outcome is not None and outcome.terminated)
        if last is not None and not now.released:
            follows &= self._same(now.state, last.state if outcome is None else outcome.next_state)
        if not follows:
            raise InvalidData("'open' must hold episodes whose steps follow from each other, got others.")
        self._open[now.name] = now

    def _check_action(self, now: OpenEpisode[S, P], t: int, action: int, taken: object) -> None:
        decision, reported = now.steps[t].decision, now.steps[t].taken
        if taken is not None and check_integer("taken", taken, minimum=0, error=InvalidAction) != action:
            raise InvalidAction(
                f"'taken' must be the action of the transition, {action}, got {shown(taken)}."
            )
        if reported is not None:
            if action != reported:
                raise InvalidAction(
                    f"'action' must be what was reported as taken at step {t}, {_called(reported)}, got "
                    f"{action}."
                )
            return
        if action == decision.action:
            return
        if taken is None:
            raise InvalidAction(
                f"'action' must be the one decided, {decision.action}, got {action}. "
                f"If it was played all the same, pass taken={action}."
            )
        if now.steps[t].outcome is None:
            self._check_in_time(now, t)

    def _check_in_time(self, now: OpenEpisode[S, P], t: int) -> None:
        if now.steps[t].decision.chain >= 0 and not now.is_last(t):
            raise OutOfOrder(
                f"'taken' must be given before the next decision where a chain explored, got it for step {t} "
                f"of {now.t} in episode {now.name!r}. Observe such a step before the next act, or abandon "
                "the episode."
            )

    def _check_decided_in(self, played: Played[S], s: S) -> None:
        if not self._same(s, played.state):
            raise InvalidData(
                f"'state' must be the one decided in, {self._show(played.state)}, got {self._show(s)}."
            )

    def _agree(self, one: Transition, other: Transition) -> bool:
        same = self._same(one.state, other.state) and self._same(one.next_state, other.next_state)
        numbers = (one.action, one.reward, one.terminated)
        return same and numbers == (other.action, other.reward, other.terminated)


def check_episode_id(episode: object) -> EpisodeId:
    """Return the name of an episode, a number of NumPy's as one of Python's.

    Raises:
        InvalidData: if it is neither a whole number nor a text.
    """
    if type(episode) is int or isinstance(episode, str):
        return episode
    if isinstance(episode, np.integer):
        return int(episode)
    raise InvalidData(f"'episode' must be a whole number or a text, got {shown(episode)}.")


def _called(action: int) -> str:
    return "None" if action == NOT_TAKEN else str(action)


def _same_arrays(one: Any, other: Any) -> bool:
    # NaN stands for a state that a file of version 0.1.0 does not have.
    return bool(np.array_equal(one, other, equal_nan=True))


def _shown(state: Any) -> str:
    return " ".join(np.array2string(state, precision=6, separator=", ", threshold=8).split())
