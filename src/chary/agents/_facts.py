"""Checks of transitions: against the setting, the declared rewards, and each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents.protocol import Transition
from chary.arrays import Bools, Floats, Ints
from chary.errors import InvalidAction, InvalidData, as_float, check_integer, check_truth, check_type
from chary.mdp.setting import REWARD_TOLERANCE, Setting
from chary.storage.sealed import as_array
from chary.texts import shown

# Transitions by column, as they are counted: states, pairs, next states, scaled rewards, terminated.
Columns = tuple[Ints, Ints, Ints, Floats, Bools]
# All facts: the states that end episodes, those that were left, and the successors of each pair.
Noted = tuple[Bools, Bools, dict[int, set[int]]]


class ObservedFacts:
    """The states that end episodes and those that were left, and the successors of each pair.

    Every state ends episodes or is left, and a pair has no more successors than declared. Facts are noted
    when they are observed, not when their episode counts, so a contradiction between two open episodes is
    found at once.
    """

    __slots__ = ("_narrow", "_seen", "ends", "left", "setting")

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ends: Bools = np.array(setting.terminal)
        self.left: Bools = np.zeros(setting.n_states, dtype=bool)
        # The successors seen of pairs that cannot lead everywhere.
        self._narrow: Bools = np.asarray(setting.support < setting.n_states)
        self._seen: dict[int, set[int]] = {}

    def state(self, name: str, state: object) -> int:
        """Return `state` as a whole number, once it is one of the setting's."""
        # The common case first: every decision comes here.
        s = state if type(state) is int else check_integer(name, state, minimum=0, error=InvalidData)
        if not 0 <= s < self.setting.n_states:
            raise InvalidData(f"{name!r} must lie in 0..{self.setting.n_states - 1}, got {shown(s)}.")
        return s

    def allowed(self, name: str, s: int, action: object) -> int:
        """Return an action as a whole number, once it is allowed in a state."""
        a = check_integer(name, action, minimum=0, error=InvalidAction)
        if a >= self.setting.n_actions or self.setting.pair_index[s, a] < 0:
            raise InvalidAction(f"{name!r} must be an action allowed in state {s}, got {a}.")
        return a

    def check_left(self, s: int) -> None:
        """Raise InvalidData if an episode cannot go on in `s`, which ended another."""
        if self.ends[s]:
            raise InvalidData(
                f"'state' must be one in which an episode goes on, got {s}, which is terminal. "
                "Declare early_endings=True in the setting, or give endings a state of their own."
            )

    def checked(self, transition: Transition, place: str) -> Transition:
        """Return the transition with a scaled reward, once it agrees with all that is known.

        `place` is the episode and the step, for the error.
        """
        step = self._agrees(transition, place)
        self._check_ending(step, self.ends, self.left)
        p, x = int(self.setting.pair_index[step.state, step.action]), int(step.next_state)
        if self._narrow[p]:
            self._check_support(p, x, self._seen.get(p, set()), place)
        return step

    def note(self, step: Transition) -> None:
        """Take a checked transition for a fact."""
        self.left[step.state] = True
        if step.terminated:
            self.ends[step.next_state] = True
        p = int(self.setting.pair_index[step.state, step.action])
        if self._narrow[p]:
            self._seen.setdefault(p, set()).add(int(step.next_state))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take on the states that end episodes and those that were left, from a file.

        Raises:
            InvalidData: if a state is both, or one declared terminal does not end episodes.
        """
        S = self.setting.n_states
        self.ends = as_array("facts.ends", arrays, (S,), bool)
        self.left = as_array("facts.left", arrays, (S,), bool)
        if (self.ends & self.left).any() or not self.ends[self.setting.terminal].all():
            raise InvalidData("'facts' must separate states that end episodes from others, got one of both.")

    def recall(self, pairs: Iterable[int], successors: Iterable[int]) -> None:
        """Take the successors of a saved agent for facts."""
        for p, x in zip(pairs, successors, strict=True):
            if self._narrow[p]:
                self._seen.setdefault(p, set()).add(x)

    def checked_columns(
        self, steps: Sequence[Transition], place: Callable[[int], str]
    ) -> tuple[Columns, Noted]:
        """Return many transitions as columns with scaled rewards, once all agree, and the facts after them.

        `place` returns the episode and the step of the one of a number. `take` makes the facts known.

        Raises:
            InvalidData: by the first transition at fault, with its place.
        """
        columns = self._columns(steps)
        if columns is None:
            # Something is wrong, or of another type: check one by one.
            checked = [self._agrees(step, place(i)) for i, step in enumerate(steps)]
            states, actions, scaled, nexts, terminated = (
                np.array(column) for column in zip(*checked, strict=True)
            )
            rewards = scaled.astype(np.float64)
            pairs = self.setting.pair_index[states, actions]
        else:
            states, pairs, nexts, rewards, terminated = columns
        ends, left = self.ends.copy(), self.left.copy()
        ends[nexts[terminated]] = True
        left[states] = True
        wrong = ends[states] | (ends[nexts] & ~terminated) | (left[nexts] & terminated)
        if terminated.any() and self.setting.scale.low != 0.0:
            wrong |= terminated
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            self._check_ending(self._agrees(steps[i], place(i)), ends, left)
        seen = {p: set(successors) for p, successors in self._seen.items()}
        _, news = np.unique(pairs * self.setting.n_states + nexts, return_index=True)
        for i in np.sort(news[self._narrow[pairs[news]]]).tolist():
            p, x = int(pairs[i]), int(nexts[i])
            self._check_support(p, x, seen.setdefault(p, set()), place(i))
            seen[p].add(x)
        return (states, pairs, nexts, rewards, terminated), (ends, left, seen)

    def take(self, noted: Noted) -> None:
        """Take what `checked_columns` returned for facts."""
        self.ends, self.left, self._seen = noted

    def _columns(self, steps: Sequence[Transition]) -> Columns | None:
        """Return the columns of transitions that are plainly in order, else None."""
        if not all(type(step) is Transition for step in steps):
            return None
        try:
            states, actions, raw, nexts, terminated = (
                np.array(column) for column in zip(*steps, strict=True)
            )
        except ValueError:
            return None
        whole = all(np.issubdtype(each.dtype, np.integer) for each in (states, actions, nexts))
        if not (whole and raw.dtype == np.float64 and terminated.dtype == bool):
            return None
        if any(each.ndim != 1 for each in (states, actions, raw, nexts, terminated)):
            return None
        S, A, scale = self.setting.n_states, self.setting.n_actions, self.setting.scale
        within = (states >= 0) & (states < S) & (nexts >= 0) & (nexts < S) & (actions >= 0) & (actions < A)
        rewards = (raw - scale.low) / scale.span
        within &= (rewards >= -REWARD_TOLERANCE) & (rewards <= 1 + REWARD_TOLERANCE)
        if not within.all():
            return None
        pairs = self.setting.pair_index[states, actions]
        if self.setting.known is not None or (pairs < 0).any():
            return None
        return states.astype(np.int64), pairs, nexts.astype(np.int64), np.clip(rewards, 0.0, 1.0), terminated

    def _agrees(self, transition: Transition, place: str) -> Transition:
        """Return the transition with a scaled reward, once it agrees with the setting."""
        check_type("transition", transition, Transition, "a Transition", error=InvalidData)
        s, x = self.state("state", transition.state), self.state("next_state", transition.next_state)
        a = check_integer("action", transition.action, minimum=0, error=InvalidAction)
        if a >= self.setting.n_actions or self.setting.pair_index[s, a] < 0:
            raise InvalidAction(f"'action' must be allowed in state {s}, got {shown(a)}.")
        scale = self.setting.scale
        reward = (as_float(transition.reward) - scale.low) / scale.span
        if not -REWARD_TOLERANCE <= reward <= 1 + REWARD_TOLERANCE:
            raise InvalidData(
                f"'reward' must lie in [{scale.low:g}, {scale.high:g}], got {shown(transition.reward)} at "
                f"state {s}, action {a} in {place}. This range was declared: make a "
                "new agent with a wider reward_range=(low, high), which holds whatever can happen."
            )
        check_truth("terminated", transition.terminated, error=InvalidData)
        self._check_declared(
            int(self.setting.pair_index[s, a]), x, reward, f"state {s}, action {a} in {place}"
        )
        return Transition(s, a, min(max(reward, 0.0), 1.0), x, bool(transition.terminated))

    def _check_ending(self, step: Transition, ends: Bools, left: Bools) -> None:
        """Raise InvalidData where a state ends episodes at one time and not at another."""
        s, x = step.state, step.next_state
        if ends[s] or (ends[x] and not step.terminated):
            raise InvalidData(
                f"'terminated' must be true whenever a terminal state is reached, got a step "
                f"{'from' if ends[s] else 'to'} state {s if ends[s] else x} that goes on. "
                "Declare early_endings=True in the setting, or give endings a state of their own."
            )
        if step.terminated and (left[x] or s == x):
            raise InvalidData(
                f"'terminated' must be false where a state was left before, got true in state {x}. "
                "Declare early_endings=True in the setting, or give endings a state of their own."
            )
        if step.terminated and self.setting.scale.low != 0.0:
            raise InvalidData(
                f"'terminated' must be false where rewards have an offset, got true with rewards from "
                f"{self.setting.scale.low:g}: ending early would pay. Declare early_endings=True in the "
                "setting (docs/data.md, endings)."
            )

    def _check_support(self, pair: int, x: int, seen: set[int], place: str) -> None:
        """Raise InvalidData at one successor more than declared: the bounds rely on their number."""
        most = int(self.setting.support[pair])
        if x not in seen and len(seen) >= most:
            s = int(np.searchsorted(self.setting.pair_start, pair, side="right")) - 1
            raise InvalidData(
                f"'support' must cover the successors of state {s}, action {self.setting.pair_action[pair]}, "
                f"declared as {most}, got {x} after {', '.join(map(str, sorted(seen)))} in {place}. Declare "
                "more, or leave it out: what was promised with this number does not hold."
            )

    def _check_declared(self, pair: int, x: int, reward: float, where: str) -> None:
        """Raise InvalidData where an observed reward contradicts the declared one: the bounds rely on it."""
        known = self.setting.known
        if known is None:
            return
        begin, end = known.start[pair], known.start[pair + 1]
        place = begin + np.searchsorted(known.successor[begin:end], x)
        low, high = known.other_low[pair], known.other_high[pair]
        if place < end and known.successor[place] == x:
            low = high = known.reward[place]
        if not low - REWARD_TOLERANCE <= reward <= high + REWARD_TOLERANCE:
            raise InvalidData(
                f"'reward' must be the declared one, {low:g} to {high:g} once scaled, got {reward:g} at "
                f"{where}. Use reward='estimated' if it is not a known function of the transition."
            )


def placed(episodes: Iterable[Sequence[Transition]]) -> list[tuple[int, int, Transition]]:
    """Return the transitions of logged episodes, each with its episode and its step.

    Raises:
        InvalidData: if they are not lists of transitions.
    """
    try:
        return [(k, t, step) for k, episode in enumerate(episodes) for t, step in enumerate(episode)]
    except TypeError as problem:
        raise InvalidData(
            f"'episodes' must be lists of transitions, got {type(episodes).__name__}: {problem}."
        ) from problem
