"""Open episodes that take turns in one compiled state: choosing, learning and closing, each by one call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from chary.agents._episodes import OpenEpisode
from chary.deep.acting import Draws
from chary.deep.calls import Calls, Own, Question, Seen, own_of, with_own
from chary.deep.learners import AnyState, learner_of
from chary.deep.observations import Floats
from chary.deep.options import DeepOptions
from chary.shield import Ledger, Rule


@dataclass(slots=True, eq=False)
class Pinned:
    """The part of an open episode that no other shares.

    `number` counts the episodes begun before, `chain` is the chain it played last. `own` is its part of the
    compiled state while another episode's part is there.
    """

    draws: Draws
    ledger: Ledger
    number: int
    chain: int = -1
    own: Own | None = None


Open: TypeAlias = OpenEpisode[Floats, Pinned]


class Unlearnt(NamedTuple):
    """The outcome observed last, of step `t` of an open episode; the next call learns from it."""

    now: Open
    t: int
    seen: Seen


@final
class Turns:
    """The compiled state, the open episode whose own part is in it, and the outcome yet to be learnt.

    Learning is put off until the next call, so that a step of a single open episode is one compiled call.
    All calls expect `jax_enable_x64` to be on.

    Args:
        options: The options of the agent.
        calls: The compiled calls.
        state: What was learnt so far.
        episodes: The open episodes.
    """

    def __init__(self, options: DeepOptions, calls: Calls, state: AnyState, episodes: Iterable[Open]) -> None:
        self.state: Any = state
        self.served: Open | None = None
        self.unlearnt: Unlearnt | None = None
        self._chains = options.chained
        self._keeps_account = learner_of(options).keeps_account
        self._calls = calls
        self._episodes = episodes

    def begin(self, number: int) -> Pinned:
        """Put a new episode into the state, and return what is pinned to it; the caller sets `served`."""
        self.learn()
        self._serve(None)
        self.state, draws, ledger = self._calls.open(self.state)
        return Pinned(draws, ledger, number)

    def choose(self, now: Open, observation: Floats, rule: Rule) -> list[float]:
        """Return action, explored, charge, deficit and chain of the next step, and book the charge.

        The chain is -1 where the episode plays on with the one it has played.
        """
        pinned, unlearnt = now.pinned, self._take_up(now)
        if now.late:
            # The observation is where the last step led.
            self._move(self._calls.move, np.bool_(now.steps[-1].decision.explored), observation)
        busy = self._busy(now)
        asked = Question(pinned.ledger, pinned.draws, rule, observation, np.int32(now.t), busy)
        if unlearnt is None:
            moved, pinned.ledger, row = self._calls.choose(self.state, asked)
            self.state = self.state._replace(**moved)
        else:
            self.state, pinned.ledger, row = self._calls.learn_and_choose(self.state, asked, unlearnt)
        # One transfer from the device for all of it.
        numbers: list[float] = np.asarray(row).tolist()
        return numbers

    def part(self, now: Open, observation: Floats) -> None:
        """Let the chain of an episode wait at `observation`, where its step was not played."""
        self._serve(now)
        self._move(self._calls.part, observation)

    def learn(self) -> None:
        """Learn from the outcome observed last."""
        if self.unlearnt is None:
            return
        (now, t, seen), self.unlearnt = self.unlearnt, None
        # After the end of its episode an outcome belongs to nobody's account.
        own = not now.released
        if seen.explored or (own and self._keeps_account):
            self._serve(now)
        self.state = self._calls.learn(self.state, now.pinned.draws, seen, np.int32(t), np.bool_(own))

    def close(self, now: Open) -> None:
        """Close an episode that makes no more decisions, and learn from its last step.

        Where the outcome of that step is not known, its chain waits where it was to be played.
        """
        unlearnt, busy = self._take_up(now), self._busy(now)
        if now.late:
            self.state = self._calls.break_off(self.state, busy, now.state)
        elif unlearnt is None:
            self.state = self._calls.close(self.state, busy)
        else:
            last = np.int32(now.t - 1)
            self.state = self._calls.learn_and_close(self.state, busy, now.pinned.draws, unlearnt, last)
        self.served = None

    def _busy(self, now: Open) -> np.bool_:
        """Return whether another open episode plays the chain; all parts but that of `now` are outside."""
        own = (other.pinned.own for other in self._episodes if other is not now)
        chains = (each.chain for each in own if each is not None and self._chains)
        return np.bool_(any(bool(chain.fed) and not bool(chain.complete) for chain in chains))

    def _serve(self, now: Open | None) -> None:
        """Put the own part of an episode into the state in place of another one's; None is a new episode."""
        if self.served is now:
            return
        if self.served is not None:
            self.served.pinned.own = own_of(self.state)
        own = None if now is None else now.pinned.own
        self.state = with_own(self._calls, self.state, own, chains=self._chains)
        if now is not None:
            now.pinned.own = None
        self.served = now

    def _take_up(self, now: Open) -> Seen | None:
        """Serve an episode, and return its last step if that is yet to be learnt, for the next call."""
        kept = self.unlearnt
        if kept is not None and kept.now is now and now.is_last(kept.t):
            self.unlearnt = None
            self._serve(now)
            return kept.seen
        self.learn()
        self._serve(now)
        return None

    def _move(self, call: Any, *told: Any) -> None:
        self.state = self.state._replace(chain=call(self.state.chain, *told))
