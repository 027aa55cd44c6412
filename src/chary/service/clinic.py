"""A simulated clinic that calls the service: many episodes at once, with people and networks that fail.

Behind the beds is a true problem, which only the simulated patients know. Decisions are asked for over HTTP,
outcomes come late, twice or never, actions are overruled, replies are not heard and asked for again. Whatever
is asked again must be answered with the same bytes, and the clinic counts where it is not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from chary.envs.tabular_env import TabularEnv
from chary.errors import InvalidSetting, check_integer, check_real
from chary.mdp import FiniteMDP
from chary.randomness import generator_for, seed_for
from chary.service.line import Line, LineLost, Reply

# Answers after which the same request is sent again: the service starts, stops, or has too much to do.
AGAIN = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
# Seconds between two attempts, at first and at most.
PAUSE, LONGEST_PAUSE = 0.05, 1.0
# The longest delay of an outcome, as a multiple of the mean.
LATEST = 3.0
SHARES = ("late", "lost", "overruled", "skipped", "confirmed", "leaving", "repeated", "unheard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What happens in a clinic, and how often.

    Args:
        beds: Number of episodes open at once, >= 1.
        pace: Mean number of seconds between two steps of an episode; 0 for no pause.
        late: Share of outcomes that are reported late.
        delay: Mean number of seconds by which they are late.
        lost: Share of outcomes that are never reported.
        overruled: Share of decisions in whose place somebody plays another action.
        skipped: Share of decisions that are not played, and nothing is known to be played.
        confirmed: Share of decisions that are confirmed before their outcome is known.
        leaving: Share of steps after which the episode is abandoned.
        repeated: Share of requests that are sent twice.
        unheard: Share of requests whose first reply is not heard, so that they are sent again.
        patience: Seconds for which a request is tried before it is given up.
        seed: Random seed of all of it.
    """

    beds: int = 50
    pace: float = 0.2
    late: float = 0.3
    delay: float = 2.0
    lost: float = 0.02
    overruled: float = 0.05
    skipped: float = 0.01
    confirmed: float = 0.2
    leaving: float = 0.005
    repeated: float = 0.03
    unheard: float = 0.03
    patience: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("beds", self.beds, minimum=1)
        check_integer("seed", self.seed, minimum=0, largest=None)
        for name in ("pace", "delay", "patience"):
            check_real(name, getattr(self, name), low=0.0, high=3600.0)
        for name in SHARES:
            check_real(name, getattr(self, name), low=0.0, high=1.0)
        for names in (("late", "lost"), ("overruled", "skipped", "confirmed"), ("repeated", "unheard")):
            if sum(getattr(self, name) for name in names) > 1.0:
                shares = ", ".join(f"{getattr(self, name):g}" for name in names)
                raise InvalidSetting(f"{' and '.join(map(repr, names))} must sum to at most 1, got {shares}.")


class Attempt(NamedTuple):
    """One request as it was sent, and what became of it: no status where no reply was heard."""

    method: str
    path: str
    body: bytes
    sent: float
    done: float
    status: int | None
    reply: bytes


@dataclass(slots=True)
class Tally:
    """What a clinic has seen so far.

    `counts` are by name, `modes` those of decisions by mode, `refusals` by the service's word for them,
    `waits` the seconds until a decision was answered, retries included. `spent` is each episode's deficit as
    last answered, and `differing` lists requests that were answered otherwise when they were sent again.
    """

    counts: Counter[str] = field(default_factory=Counter)
    modes: dict[str, Counter[str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    def of_mode(self, mode: str) -> Counter[str]:
        """Return the counts of the decisions in a mode."""
        return self.modes.setdefault(mode, Counter())

    def over_budget(self) -> list[str]:
        """Return the episodes whose ledger exceeds their budget."""
        return [name for name, deficit in self.spent.items() if deficit > self.budget[name]]

    def highest_share(self) -> float:
        """Return the largest share of its budget that an episode has spent, 0 where none has one."""
        shares = (
            deficit / self.budget[name] for name, deficit in self.spent.items() if self.budget[name] > 0
        )
        return max(shares, default=0.0)

    def wait_ms(self, share: float) -> float:
        """Return the milliseconds within which this share of the decisions were answered."""
        return 1000.0 * float(np.quantile(self.waits, share)) if self.waits else 0.0


class Refusal(Exception):
    """The service refused a request, as it said."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Unanswered(Exception):
    """The service did not answer for as long as the clinic waits."""


class Clinic:
    """Beds with simulated patients, whose decisions come from a service.

    Args:
        url: Where the service is.
        token: What allows the clinic to decide and to report.
        truth: The true problem; the service sees only states and rewards.
        habits: What happens, and how often.
        eta: The budget of an episode, where its answer names no other.
        labels: The texts of states and actions, where the service has them.
        watch: Called with every attempt, for example to write a history.
        called: What names of episodes begin with.
    """

    def __init__(
        self,
        url: str,
        token: str,
        truth: FiniteMDP,
        habits: Habits,
        *,
        eta: float = np.inf,
        labels: Mapping[str, Sequence[str]] | None = None,
        watch: Callable[[Attempt], None] | None = None,
        called: str = "stay",
    ) -> None:
        self.url, self.token, self.truth, self.habits = url, token, truth, habits
        self.tally, self.eta = Tally(), eta
        self._labels = dict(labels or {})
        self._number = {text: a for a, text in enumerate(self._labels.get("action", ()))}
        self._watch, self._called = watch, called
        self._stopping = asyncio.Event()
        self._errands: set[asyncio.Task[None]] = set()
        self._baseline: list[list[int]] | None = None

    async def run(self, *, seconds: float | None = None, episodes: int | None = None) -> Tally:
        """Fill the beds until `seconds` have passed, `episodes` have begun, or `stop` is called.

        Episodes that are open then end as they would; late outcomes are reported and lost ones given up.
        """
        left = iter(range(episodes)) if episodes is not None else iter(lambda: 0, 1)
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.stop)
        try:
            async with asyncio.TaskGroup() as beds:
                for number in range(self.habits.beds):
                    beds.create_task(self._bed(number, left))
            while self._errands:
                await asyncio.gather(*self._errands)
        finally:
            if timer is not None:
                timer.cancel()
            for errand in self._errands:
                errand.cancel()
        return self.tally

    def stop(self) -> None:
        """Admit nobody any more."""
        self._stopping.set()

    async def _bed(self, number: int, left: Any) -> None:
        """Treat one patient after the other in one bed."""
        chance = generator_for(self.habits.seed, f"bed {number}")
        line = Line(self.url, self.token, timeout=max(1.0, self.habits.patience))
        stays = 0
        try:
            while not self._stopping.is_set() and next(left, None) is not None:
                name = f"{self._called}-{number}-{stays}"
                stays += 1
                stay = _Stay(self, line, chance, name)
                try:
                    await stay.live()
                except Refusal as refusal:
                    self._note(refusal)
                except Unanswered:
                    self.tally.counts["given up"] += 1
        finally:
            await line.end()

    async def ask(self, line: Line, chance: np.random.Generator, method: str, path: str, body: Any) -> Any:
        """Send a request until it is answered, with the network's usual faults, and return the answer.

        Raises:
            Refusal: if the service refuses it.
            Unanswered: if it does not answer within the clinic's patience.
        """
        content = json.dumps(body, separators=(",", ":")).encode()
        fault = chance.random()
        began = time.monotonic()
        if fault < self.habits.unheard:
            self.tally.counts["unheard replies"] += 1
            await self._unheard(line, method, path, content)
        reply = await self._until_answered(line, method, path, content, began)
        if fault > 1.0 - self.habits.repeated:
            self.tally.counts["repeated requests"] += 1
            again = await self._until_answered(line, method, path, content, time.monotonic())
            # An episode that is begun again is no longer created: the status may differ, the bytes may not.
            # A refusal says how things stand, which may have changed.
            if again.body != reply.body and reply.status < HTTPStatus.BAD_REQUEST:
                self.tally.differing.append(f"{method} {path}: {reply.body!r}, then {again.body!r}")
        answer = json.loads(reply.body) if reply.body else {}
        if reply.status >= HTTPStatus.BAD_REQUEST:
            raise Refusal(reply.status, str(answer.get("error")), str(answer.get("message")))
        return answer

    async def _unheard(self, line: Line, method: str, path: str, content: bytes) -> None:
        sent = time.monotonic()
        try:
            with suppress(LineLost):
                await line.send_and_hang_up(method, path, content)
        finally:
            # Noted also where the line was lost: part of it may have been all of it.
            self._seen(Attempt(method, path, content, sent, time.monotonic(), None, b""))

    async def _until_answered(
        self, line: Line, method: str, path: str, content: bytes, began: float
    ) -> Reply:
        pause = PAUSE
        while True:
            sent = time.monotonic()
            try:
                reply = await line.call(method, path, content)
            except LineLost:
                self.tally.counts["lost connections"] += 1
                self._seen(Attempt(method, path, content, sent, time.monotonic(), None, b""))
            except asyncio.CancelledError:
                # A report of a patient who was given up meanwhile: it may have arrived.
                self._seen(Attempt(method, path, content, sent, time.monotonic(), None, b""))
                raise
            else:
                self.tally.counts["answers"] += 1
                self._seen(Attempt(method, path, content, sent, time.monotonic(), reply.status, reply.body))
                if reply.status not in AGAIN:
                    return reply
            if time.monotonic() - began > self.habits.patience:
                raise Unanswered(path)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _seen(self, attempt: Attempt) -> None:
        if self._watch is not None:
            self._watch(attempt)

    def _note(self, refusal: Refusal) -> None:
        self.tally.refusals[refusal.code] += 1
        self.tally.messages.setdefault(refusal.code, str(refusal))

    def errand(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Do something that no bed waits for, such as a late report."""
        task = asyncio.create_task(self._errand(work))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task

    async def _errand(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Refusal as refusal:
            self._note(refusal)
        except Unanswered:
            self.tally.counts["given up"] += 1

    def state(self, s: int) -> int | str:
        """Return a state as the service calls it."""
        names = self._labels.get("state")
        return s if names is None else names[s]

    def action(self, a: int) -> int | str:
        """Return an action as the service calls it."""
        names = self._labels.get("action")
        return a if names is None else names[a]

    def number_of(self, action: int | str) -> int:
        """Return the number of an action that the service named."""
        return self._number[action] if isinstance(action, str) else action


class _Stay:
    """One episode: a patient who is admitted, treated step by step, and discharged or lost."""

    def __init__(self, clinic: Clinic, line: Line, chance: np.random.Generator, name: str) -> None:
        self.clinic, self.line, self.chance, self.name = clinic, line, chance, name
        self.habits, self.tally = clinic.habits, clinic.tally
        self.path = f"/v1/episodes/{quote(name, safe='')}"
        self.world = TabularEnv(clinic.truth)
        self.reports: list[asyncio.Task[None]] = []
        self.lost = False

    async def live(self) -> None:
        """Go through the whole episode."""
        clinic, tally = self.clinic, self.tally
        state, _ = self.world.reset(seed=seed_for(self.habits.seed, self.name))
        opened = await self._ask("/v1/episodes", {"episode": self.name, "state": clinic.state(int(state))})
        tally.counts["episodes"] += 1
        tally.budget[self.name] = float(opened.get("eta", clinic.eta))
        over, t = False, 0
        while not over:
            after, over, left = await self._step(t, int(state))
            state = np.int64(after)
            t += 1
            if left:
                return
            await asyncio.sleep(self.chance.exponential(self.habits.pace) if self.habits.pace else 0)
        await self._ask(f"{self.path}/close", {})
        tally.counts["completed"] += 1
        if self.lost:
            clinic.errand(self._give_up)

    async def _step(self, t: int, state: int) -> tuple[int, bool, bool]:
        """Play one step; return the next state, and whether the episode ended or was left."""
        clinic, tally, habits, chance = self.clinic, self.tally, self.habits, self.chance
        asked = time.monotonic()
        answer = await self._ask(f"{self.path}/decisions", {"t": t, "state": clinic.state(state)})
        tally.waits.append(time.monotonic() - asked)
        self._count(answer)
        decided = clinic.number_of(answer["action"])
        played, known = decided, True
        what = chance.random()
        others = [a for a in np.flatnonzero(clinic.truth.setting.allowed[state]).tolist() if a != decided]
        taken = f"{self.path}/decisions/{t}/taken"
        if what < habits.overruled and others:
            played = int(chance.choice(others))
            tally.counts["overruled"] += 1
            await self._ask(taken, {"action": clinic.action(played)})
        elif what < habits.overruled + habits.skipped and others:
            played, known = int(chance.choice(others)), False
            tally.counts["not taken"] += 1
            await self._ask(taken, {"action": None})
        elif what > 1.0 - habits.confirmed:
            tally.counts["confirmed"] += 1
            await self._ask(taken, {"action": clinic.action(decided)})
        after, reward, terminated, cut, _ = self.world.step(np.int64(played))
        if int(after) == clinic.truth.setting.ending:
            # The state of early endings has no name: what is told is that the process ended.
            after, terminated = np.int64(state), True
        if known:
            outcome = {
                "t": t,
                "action": clinic.action(played),
                "reward": float(reward),
                "next_state": clinic.state(int(after)),
                "terminated": bool(terminated),
            }
            await self._hand_in(outcome)
        left = not (terminated or cut) and chance.random() < habits.leaving
        if left:
            tally.counts["abandoned"] += 1
            for report in self.reports:
                report.cancel()
            await self._ask(f"{self.path}/abandon", {"reason": "left early"})
        return int(after), bool(terminated or cut), left

    def _count(self, answer: Mapping[str, Any]) -> None:
        """Count a decision: in all, and by the mode in which it was made."""
        tally, recommended = self.tally, answer.get("recommended") or {}
        seen = {
            "decisions": True,
            "explored": bool(answer["explored"]),
            "recommended": bool(recommended.get("explored")),
            "otherwise": bool(recommended) and recommended["action"] != answer["action"],
        }
        for counts in (tally.counts, tally.of_mode(str(answer["mode"]))):
            counts.update(name for name, fact in seen.items() if fact)
        tally.spent[self.name] = float(answer["deficit"])

    async def _hand_in(self, outcome: Mapping[str, Any]) -> None:
        """Report an outcome: now, later or never."""
        fate = self.chance.random()
        if fate < self.habits.lost:
            self.tally.counts["lost outcomes"] += 1
            self.lost = True
        elif fate < self.habits.lost + self.habits.late:
            self.tally.counts["late outcomes"] += 1
            self.reports.append(self.clinic.errand(partial(self._report_later, outcome)))
        else:
            await self._ask(f"{self.path}/outcomes", outcome)

    async def _report_later(self, outcome: Mapping[str, Any]) -> None:
        """Report an outcome after a while, on a line of its own."""
        await asyncio.sleep(min(self.chance.exponential(self.habits.delay), LATEST * self.habits.delay))
        await self._on_own_line(f"{self.path}/outcomes", outcome)

    async def _give_up(self) -> None:
        """Declare lost what was not reported, once all late reports have arrived."""
        await asyncio.gather(*self.reports, return_exceptions=True)
        self.tally.counts["given up as lost"] += 1
        await self._on_own_line(f"{self.path}/abandon", {"reason": "an outcome was lost"})

    async def _on_own_line(self, path: str, body: Mapping[str, Any]) -> None:
        line = Line(self.clinic.url, self.clinic.token)
        try:
            await self.clinic.ask(line, self.chance, "POST", path, body)
        finally:
            await line.end()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self.clinic.ask(self.line, self.chance, "POST", path, body)
