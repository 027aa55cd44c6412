"""Interrupts at every line of every public call: a call happens, or it does not, or the agent says so.

A walk is played once, with a save before every call. Then each call is repeated from its save, interrupted at
one line of chary after the other. After each interrupt the agent is exactly as before the call, and repeats
it; or exactly as after it; or `poisoned`, refuses every call, and the save from before goes on as if nothing
had happened. CHARY_TESTS=full tries every line, with each of two errors; the short profile a few of them.
"""

from __future__ import annotations

import _thread
import sys
import threading
import timeit
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.conftest import FULL

import chary
from chary import Canary, CanaryAgent, CharyUCBVI, Rule, Setting, TabularAgent, Transition
from chary.agents._atomic import CALLS
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.errors import InvalidAction, InvalidData, OutOfOrder

PACKAGE = str(Path(chary.__file__).parent)
SETTING = Setting.declare(n_states=3, n_actions=2, horizon=3)
# Interrupts per call of a walk; None for every line.
TRIALS = None if FULL else 4

WEIGHTS = np.array([[0.25, 0.5], [0.5, 0.0]])


def bounds() -> CriticBounds:
    return CriticBounds.from_point(FunctionCritic(lambda x: x @ WEIGHTS, n_actions=2), accept="uncertified")


def new_tabular() -> TabularAgent:
    return TabularAgent(CharyUCBVI(eta=0.5, bonus="kl"), SETTING, generator=np.random.default_rng(1))


def new_canary() -> CanaryAgent:
    return CanaryAgent(Canary(eta=0.1), SETTING, incumbent=[0, 1, 0], generator=np.random.default_rng(1))


def new_critic() -> CriticShield:
    return CriticShield(bounds(), Rule.strict(0.5), n_actions=2, horizon=3)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Path], Any], Callable[[int], Any]]] = {
    "tabular": (new_tabular, TabularAgent.load, int),
    "canary": (new_canary, CanaryAgent.load, int),
    "critic": (
        new_critic,
        lambda path: CriticShield.load(path, bounds(), Rule.strict(0.5), n_actions=2, horizon=3),
        lambda s: np.array([s, 1.0]),
    ),
}


class Walk:
    """A walk as calls that can be repeated, with the save before each of them."""

    def __init__(self, kind: str, folder: Path) -> None:
        make, self.load, self.place = KINDS[kind]
        self.folder, self.agent = folder, make()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.saves = [self.saved(self.agent)]
        self.results: list[Any] = []

    def saved(self, agent: Any) -> bytes:
        path = self.folder / "agent"
        agent.save(path, overwrite=True)
        return path.read_bytes()

    def restored(self, save: bytes) -> Any:
        path = self.folder / "restored"
        path.write_bytes(save)
        return self.load(path)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((name, args, kwargs))
        self.results.append(getattr(self.agent, name)(*args, **kwargs))
        self.saves.append(self.saved(self.agent))
        return self.results[-1]

    def outcome(self, s: int, action: int, then: int) -> Transition:
        return Transition(self.place(s), action, 0.5, self.place(then), False)


def walk(kind: str, folder: Path) -> Walk:
    """Two episodes open at once, with a late outcome; one is finished, one abandoned, one is short."""
    w = Walk(kind, folder)
    w.call("begin", "a", w.place(0))
    w.call("begin", "b", w.place(1))
    first = w.call("act", "a", 0, w.place(0)).action
    second, other = w.call("act_many", ["a", "b"], [1, 0], [w.place(1), w.place(1)])
    w.call("observe", "b", w.outcome(1, other.action, 2), t=0)
    w.call("observe", "a", w.outcome(1, second.action, 0), t=1)
    w.call("finish", "a")
    w.call("observe", "a", w.outcome(0, first, 1), t=0)
    w.call("act", "b", 1, w.place(2))
    w.call("abandon", "b")
    w.call("begin", "c", w.place(2))
    w.call("finish", "c")
    return w


def interrupted(call: Callable[[], Any], line: int, error: type[BaseException]) -> bool:
    """Make a call and raise at its `line`-th line within chary; return whether it got that far."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except error:
        return True
    finally:
        sys.settrace(before)
    return False


def lines_of(call: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def refuses_everything(agent: Any, folder: Path) -> bool:
    arguments = {"warm_start": ([],), "save": (folder / "never",), "begin": ("z", 0), "act": ("a", 0, 0)}
    for name in CALLS:
        if name not in dir(agent):
            continue
        with pytest.raises(OutOfOrder, match="Load the last save"):
            getattr(agent, name)(*arguments.get(name, ("a", 0, 0)))
    return not (folder / "never").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_at_any_line_leaves_nothing_stuck_or_diverged(kind: str, tmp_path: Path) -> None:
    w = walk(kind, tmp_path)
    counts: Counter[str] = Counter()
    for i, (name, args, kwargs) in enumerate(w.calls):

        def again(agent: Any, name: str = name, args: Any = args, kwargs: Any = kwargs) -> Any:
            return getattr(agent, name)(*args, **kwargs)

        fresh = w.restored(w.saves[i])
        total = lines_of(lambda fresh=fresh: again(fresh))  # type: ignore[misc]
        tried = range(1, total + 1) if TRIALS is None else np.linspace(1, total, TRIALS).astype(int)
        errors = (MemoryError, KeyboardInterrupt)
        for line, error in ((int(line), error) for line in tried for error in errors[: 2 if FULL else 1]):
            agent = w.restored(w.saves[i])
            assert interrupted(lambda agent=agent: again(agent), line, error)  # type: ignore[misc]
            if agent.poisoned:
                counts["poisoned"] += 1
                assert refuses_everything(agent, tmp_path)
                agent = w.restored(w.saves[i])
            elif w.saved(agent) == w.saves[i + 1] != w.saves[i]:
                counts["happened"] += 1
                continue
            else:
                counts["did not happen"] += 1
                assert w.saved(agent) == w.saves[i], f"{name} diverged at line {line}"
            assert again(agent) == w.results[i], f"{name} decides otherwise after line {line}"
            assert w.saved(agent) == w.saves[i + 1], f"{name} diverged after line {line}"
    print(kind, dict(counts))
    assert counts["did not happen"] > 0
    assert counts["poisoned"] > 0


def started(target: Callable[[], object], *, foreign: bool) -> Callable[[], object]:
    """Start a thread, `foreign` to the module threading as those of a server in C are; return its `join`."""
    over = threading.Event()

    def run() -> None:
        try:
            target()
        finally:
            over.set()

    if foreign:
        _thread.start_new_thread(run, ())
    else:
        threading.Thread(target=run).start()
    return lambda: over.wait(10)


@pytest.mark.parametrize("foreign", [False, True])
def test_another_thread_inside_is_refused_by_name(tmp_path: Path, foreign: bool) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        entered.set()
        leave.wait(10)
        return x @ WEIGHTS

    critic = CriticBounds.from_point(FunctionCritic(slow, n_actions=2), accept="uncertified")
    agent = CriticShield(critic, Rule.strict(0.5), n_actions=2, horizon=3)
    agent.begin("a", [0.0, 1.0])
    decisions: list[Any] = []
    join = started(lambda: decisions.append(agent.act("a", 0, [0.0, 1.0])), foreign=foreign)
    assert entered.wait(10)
    with pytest.raises(OutOfOrder, match="while another thread is inside CriticShield"):
        agent.finish("a")
    with pytest.raises(OutOfOrder, match="'save' must not be called while another thread"):
        agent.save(tmp_path / "half")
    leave.set()
    assert join()
    assert not agent.poisoned
    assert agent.act("a", 0, [0.0, 1.0]) == decisions[0]
    agent.save(tmp_path / "whole")
    assert not (tmp_path / "half").exists()


def test_threads_never_leave_a_file_that_cannot_be_loaded(tmp_path: Path) -> None:
    agent = new_tabular()
    refused: list[str] = []

    def play(name: str) -> None:
        for k in range(300 if FULL else 15):
            episode = f"{name}{k}"
            for call in (
                partial(agent.begin, episode, 0),
                partial(agent.act, episode, 0, 0),
                partial(agent.abandon, episode),
                partial(agent.save, tmp_path / name, overwrite=True),
            ):
                try:
                    call()
                except OutOfOrder as problem:
                    refused.append(str(problem))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=play, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert not agent.poisoned
    agent.save(tmp_path / "end")
    for path in tmp_path.iterdir():
        TabularAgent.load(path)


class Index:
    """A whole number that is another one every time it is read."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def __index__(self) -> int:
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


def test_checked_values_are_the_values_used() -> None:
    agent, other = new_tabular(), new_tabular()
    for each in (agent, other):
        each.begin("a", 0)
        each.begin("b", 0)
    plain = other.act("a", 0, 0, proposal=1)
    odd: Any = Index(0, 2)
    assert agent.act("a", 0, odd, proposal=np.array(1)) == plain  # type: ignore[arg-type]
    assert type(plain.action) is type(agent.act("a", 0, 0).action) is int
    many: list[Any] = [np.array(0)]
    assert agent.act_many(["b"], many, many, [np.array(1)]) == [other.act("b", 0, 0, proposal=1)]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("bad", "error"),
    [((["a", "b"], [0, 5], [0, 0]), OutOfOrder), ((["a", "b"], [0, 0], [0, 9]), InvalidData),
     ((["a", "a"], [0, 0], [0, 0]), OutOfOrder), ((["a", "b"], [0, 0], [0, 0], [1, 7]), InvalidAction)],
)  # fmt: skip
def test_a_bad_entry_of_many_books_nothing(bad: Any, error: type[Exception], tmp_path: Path) -> None:
    agent = new_tabular()
    agent.begin("a", 0)
    agent.begin("b", 0)
    agent.save(tmp_path / "before")
    with pytest.raises(error):
        agent.act_many(*bad)
    agent.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.slow
def test_a_call_takes_less_than_a_microsecond_more() -> None:
    agent: Any = new_tabular()
    agent.begin("a", 0)
    agent.act("a", 0, 0)
    bare = type(agent).act.__wrapped__
    times = [
        min(timeit.repeat(call, number=20_000, repeat=7)) / 20_000
        for call in (lambda: agent.act("a", 0, 0), lambda: bare(agent, "a", 0, 0))
    ]
    assert times[0] - times[1] < 1e-6
