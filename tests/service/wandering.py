"""A client that does whatever clients may do, in any order: late, lost and overruled outcomes, and so on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from chary.service.answers import Answer, Refused
from chary.service.engine import Engine


@dataclass
class Stay:
    """An episode as its client sees it."""

    name: str
    state: int
    t: int = 0
    # Steps whose outcomes are to be told: t, the action decided, and where it led.
    owed: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Wanderer:
    """Makes requests at random; `answers` counts those that were answered, `refusals` the others.

    Args:
        engine: A deployment without terminal states.
        chance: The source of chance.
        prefix: What names of episodes begin with, so that no other client uses them.
        modes: The modes that are set now and then; none for never.
        own_etas: Whether episodes get budgets of their own.
    """

    engine: Engine
    chance: Random
    prefix: str = ""
    modes: tuple[str, ...] = ("apprentice", "budgeted", "budgeted", "frozen", "stopped")
    own_etas: bool = True
    stays: list[Stay] = field(default_factory=list)
    past: list[str] = field(default_factory=list)
    answers: int = 0
    refusals: int = 0
    begun: int = 0

    def __post_init__(self) -> None:
        setting = self.engine.deployment()["setting"]
        self.states, self.actions = setting["n_states"], setting["n_actions"]
        self.horizon = setting["horizon"]
        self.low, self.high = setting["reward_range"]
        self.eta = float(self.engine.deployment()["eta"] or 1.0)

    def requests(self, n: int) -> None:
        """Make so many requests."""
        calls: list[tuple[int, Callable[[], Any]]] = [
            (3, self.begin), (10, self.decide), (8, self.report), (2, self.close), (1, self.abandon),
            (1, self.taken), (1, self.fallback), (1, self.correct), (1, self.tighten),
        ]  # fmt: skip
        weights, some = zip(*calls, strict=True)
        for _ in range(n):
            call = self.chance.choices(some, weights)[0]
            if self.chance.random() < 0.01 and self.modes:
                call = self.set_mode
            elif self.chance.random() < 0.01:
                call = self.erase
            try:
                call()
            except Refused:
                self.refusals += 1
            else:
                self.answers += 1

    def begin(self) -> None:
        if len(self.stays) > 12:
            return
        stay = Stay(f"{self.prefix}{self.begun}", self.chance.randrange(self.states))
        self.begun += 1
        eta = self.chance.random() * self.eta if self.own_etas and self.chance.random() < 0.2 else None
        self.engine.begin(stay.name, stay.state, eta=eta)
        self.stays.append(stay)

    def decide(self) -> Answer | None:
        stay = self._one()
        if stay is None:
            return None
        own = self.chance.randrange(self.actions) if self.chance.random() < 0.1 else None
        answer = self.engine.decide(stay.name, stay.t, stay.state, fallback_action=own)
        stay.owed.append((stay.t, json.loads(answer.body)["action"], self.chance.randrange(self.states)))
        stay.t, stay.state = stay.t + 1, stay.owed[-1][2]
        return answer

    def report(self) -> None:
        stay = self._one()
        if stay is None or not stay.owed:
            return
        t, action, to = stay.owed[self.chance.randrange(len(stay.owed))]
        if self.chance.random() < 0.1:
            action = self.chance.randrange(self.actions)
        reward = self.low + self.chance.random() * (self.high - self.low)
        self.engine.outcome(stay.name, t, action, reward, to, False)
        stay.owed = [each for each in stay.owed if each[0] != t]

    def taken(self) -> None:
        stay = self._one()
        if stay is None or not stay.owed:
            return
        t, action, _ = stay.owed[-1]
        other = self.chance.choice([action, self.chance.randrange(self.actions), None])
        self.engine.taken(stay.name, t, other)
        if other is None:
            stay.owed.pop()

    def fallback(self) -> None:
        stay = self._one()
        if stay is None or stay.t == self.horizon:
            return
        action, to = self.chance.randrange(self.actions), self.chance.randrange(self.states)
        self.engine.fallback(stay.name, [{"t": stay.t, "state": stay.state, "action": action}])
        stay.owed.append((stay.t, action, to))
        stay.t, stay.state = stay.t + 1, to

    def close(self) -> None:
        stay = self._one()
        if stay is None:
            return
        self.engine.close(stay.name)
        if not stay.owed:
            self._gone(stay)

    def abandon(self) -> None:
        stay = self._one()
        if stay is not None:
            self._gone(stay)
            self.engine.abandon(stay.name, reason="left")

    def correct(self) -> None:
        if self.past:
            self.engine.correct(self.chance.choice(self.past), 0, 0, self.low, 0, False, reason="a slip")

    def tighten(self) -> None:
        stay = self._one()
        if stay is not None:
            self.engine.tighten(stay.name, self.chance.random() * self.eta, author="w", reason="r")

    def set_mode(self) -> None:
        mode = self.chance.choice(self.modes)
        self.engine.set_mode(mode, author="w", reason=f"after {self.engine.head}")

    def erase(self) -> None:
        if self.past:
            self.engine.erase(self.chance.choice(self.past), author="w", reason="asked for")

    def _one(self) -> Stay | None:
        return self.chance.choice(self.stays) if self.stays else None

    def _gone(self, stay: Stay) -> None:
        self.stays.remove(stay)
        self.past.append(stay.name)
