"""The values of requests, checked: states and actions by number or label, rewards, budgets, texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import msgspec

from chary.errors import InvalidAction, InvalidData, as_float, did_you_mean
from chary.mdp.setting import REWARD_TOLERANCE
from chary.service.declaring import Problem, declared_states
from chary.texts import shown

# A state or an action as requests name it: its number, or the label that the setting declares.
Named = int | str

LONGEST_NAME = 200
LONGEST_TEXT = 2000
LARGEST_PAYLOAD = 64 * 1024
STEP_KEYS = ("t", "state", "action", "reward", "next_state", "terminated")
OUTCOME_KEYS = STEP_KEYS[3:]

_canonical = msgspec.json.Encoder(order="sorted").encode


@final
class Asking:
    """Checks of what requests contain, for one problem."""

    def __init__(self, problem: Problem) -> None:
        setting = problem.setting
        self._states = {label: s for s, label in enumerate(problem.states)}
        self._actions = {label: a for a, label in enumerate(problem.actions)}
        self._n_states, self._n_actions = declared_states(setting), setting.n_actions
        self._horizon = setting.horizon
        self._allowed = setting.pair_index >= 0
        self._scale = setting.scale

    def state(self, name: str, value: Named) -> int:
        """Return a state as its number."""
        if type(value) is int and 0 <= value < self._n_states:
            return value
        return _number(name, value, self._states, self._n_states)

    def allowed(self, name: str, state: int, value: Named) -> int:
        """Return an action that is allowed in a state as its number."""
        a = _number(name, value, self._actions, self._n_actions)
        if not self._allowed[state, a]:
            raise InvalidAction(f"{name!r} must be allowed in state {state}, got {shown(value)}.")
        return a

    def reward(self, value: object) -> float:
        """Return a reward within its range."""
        number = as_float(value)
        low, high = self._scale.low, self._scale.high
        room = REWARD_TOLERANCE * self._scale.span
        if not low - room <= number <= high + room:
            raise InvalidData(f"'reward' must lie in [{low:g}, {high:g}], got {shown(value)}.")
        return number

    def eta(self, value: object) -> float | None:
        """Return a budget, None for none."""
        if value is None:
            return None
        number = as_float(value)
        if not 0.0 <= number < math.inf:
            raise InvalidData(f"'eta' must be finite and >= 0, got {shown(value)}.")
        return number

    def truth(self, name: str, value: object) -> bool:
        """Return true or false."""
        if not isinstance(value, bool):
            raise InvalidData(f"{name!r} must be true or false, got {shown(value)}.")
        return value

    def name(self, value: object) -> str:
        """Return the name of an episode."""
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
            raise InvalidData(
                f"'episode' must be a text of 1 to {LONGEST_NAME} characters, got {_size_of(value)}."
            )
        return value

    def text(self, name: str, value: object) -> str:
        """Return a text, such as a reason."""
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            raise InvalidData(
                f"{name!r} must be a text of at most {LONGEST_TEXT} characters, got {_size_of(value)}."
            )
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidData(f"{name!r} must be text in UTF-8, got halves of characters.")
        return value

    def author(self, value: object) -> str:
        """Return who asks for a change."""
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
            raise InvalidData(
                f"'author' must be a text of 1 to {LONGEST_NAME} characters, got {_size_of(value)}."
            )
        return self.text("author", value)

    def payload(self, episode: str, value: object) -> str:
        """Return the text that is kept apart for an episode: its name, and what came with it."""
        try:
            content = _canonical({"name": episode, "payload": value}).decode()
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise InvalidData(f"'payload' must be what JSON can express, got {problem}.") from problem
        if len(content) > LARGEST_PAYLOAD:
            raise InvalidData(
                f"'payload' must have at most {LARGEST_PAYLOAD} characters, got {len(content)}."
            )
        return content

    def fallbacks(
        self, steps: Sequence[Mapping[str, Any]]
    ) -> list[tuple[int, int, int, tuple[float, int, bool] | None]]:
        """Return steps that a client played by itself: t, state, action, and the outcome if it is known."""
        told = []
        if not isinstance(steps, (list, tuple)) or not 0 < len(steps) <= self._horizon:
            raise InvalidData(f"'steps' must be a list of 1 to {self._horizon} steps, got {_size_of(steps)}.")
        for step in steps:
            if (
                not isinstance(step, Mapping)
                or not set(step) <= set(STEP_KEYS)
                or not {"t", "state", "action"} <= set(step)
            ):
                raise InvalidData(
                    f"'steps' must have t, state and action, and perhaps {', '.join(OUTCOME_KEYS)}, got "
                    f"{shown(step)}."
                )
            t = step["t"]
            if type(t) is not int or not 0 <= t < self._horizon:
                raise InvalidData(f"'t' must lie in 0..{self._horizon - 1}, got {shown(t)}.")
            s = self.state("state", step["state"])
            a = self.allowed("action", s, step["action"])
            given = [name for name in OUTCOME_KEYS if step.get(name) is not None]
            outcome = None
            if given:
                if len(given) < len(OUTCOME_KEYS):
                    raise InvalidData(
                        f"'steps' must have all of {', '.join(OUTCOME_KEYS)} or none, got {given}."
                    )
                outcome = (
                    self.reward(step["reward"]),
                    self.state("next_state", step["next_state"]),
                    self.truth("terminated", step["terminated"]),
                )
            told.append((t, s, a, outcome))
        return told


def _number(name: str, value: object, labels: Mapping[str, int], size: int) -> int:
    if type(value) is int:
        if 0 <= value < size:
            return value
        raise InvalidData(f"{name!r} must lie in 0..{size - 1}, got {shown(value)}.")
    if isinstance(value, str) and labels:
        if value in labels:
            return labels[value]
        raise InvalidData(
            f"{name!r} must be a number or a label that is declared, got {shown(value)}."
            f"{did_you_mean(value, labels)}"
        )
    raise InvalidData(f"{name!r} must be a whole number, got {shown(value)}.")


def _size_of(value: object) -> str:
    if isinstance(value, (str, list, tuple)):
        return f"{len(value)} of them" if not isinstance(value, str) else f"{len(value)} characters"
    return type(value).__name__
