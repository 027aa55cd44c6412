"""Interrupts, threads and values that change: a call happens, or it does not, or the agent says so.

CHARY_TESTS=full interrupts every line of every call, see `interrupts.py`; the short profile a few of them.
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
from typing import Any

import numpy as np
import pytest
from tests.conftest import FULL
from tests.faults.interrupts import KINDS, SETTING, WEIGHTS, bounds, interrupted, trials

from chary import CharyUCBVI, Rule, TabularAgent, Transition
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.data import Bins, load_discretiser
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder
from chary.shield import Ledger


def new_tabular() -> TabularAgent:
    return TabularAgent(CharyUCBVI(eta=0.5, bonus="kl"), SETTING, generator=np.random.default_rng(1))


# The deep learner has a file of its own, which runs where its kernels are compiled.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "deep"])
def test_an_interrupt_at_any_line_leaves_nothing_stuck_or_diverged(kind: str, tmp_path: Path) -> None:
    # Interrupts per call of a walk; None for every line, with each of two errors.
    counts = Counter(found for _, found in trials(kind, tmp_path, None if FULL else 3))
    print(kind, dict(counts))
    assert set(counts) == {"did not happen", "happened", "poisoned"}


class Defect(CharyError):
    """A refusal that comes too late."""

    def __init__(self) -> None:
        super().__init__("'change' must not be refused halfway.")


@pytest.mark.parametrize("kind", ["chary", "canary", "worlds"])
def test_a_refusal_in_the_middle_of_a_change_does_not_pass_for_one_before_it(
    kind: str, tmp_path: Path
) -> None:
    counts = Counter(found for _, found in trials(kind, tmp_path, 8, [Defect]))
    assert set(counts) == {"did not happen", "happened", "poisoned"}


def test_a_save_that_fails_keeps_no_discretiser(tmp_path: Path) -> None:
    agent, cells = new_tabular(), Bins([[0.0, 0.5, 1.0]])
    agent.save(tmp_path / "before")
    with pytest.raises(InvalidSetting, match="a file that can be written"):
        agent.save(tmp_path / "no folder" / "agent", discretiser=cells)
    agent.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    agent.save(tmp_path / "cells", discretiser=cells)
    agent.save(tmp_path / "again")
    assert (tmp_path / "cells").read_bytes() == (tmp_path / "again").read_bytes() != b""
    assert load_discretiser(tmp_path / "again").n_states == cells.n_states


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


def test_a_call_from_within_a_call_is_refused(tmp_path: Path) -> None:
    refusals: list[str] = []

    def meddling(x: Any) -> Any:
        for call in (partial(shield.act, "a", 0, [0.0, 1.0]), partial(shield.save, tmp_path / "half")):
            with pytest.raises(OutOfOrder) as refusal:
                call()
            refusals.append(str(refusal.value))
        assert not shield.poisoned
        return x @ WEIGHTS

    critic = CriticBounds.from_point(FunctionCritic(meddling, n_actions=2), accept="uncertified")
    shield = CriticShield(critic, Rule.strict(0.5), n_actions=2, horizon=3)
    shield.begin("a", [0.0, 1.0])
    decision = shield.act("a", 0, [0.0, 1.0], proposal=1)
    assert len(refusals) >= 2
    assert all("from within another call of the same CriticShield" in each for each in refusals)
    assert not (tmp_path / "half").exists()
    shield.save(tmp_path / "whole")
    assert (
        CriticShield.load(tmp_path / "whole", bounds(), Rule.strict(0.5), n_actions=2, horizon=3).ledger("a")
        == shield.ledger("a")
        == Ledger(deficit=decision.deficit)
    )


def test_a_call_that_kept_its_place_when_it_was_interrupted_stands_in_nobodys_way() -> None:
    made = 0
    for line in range(1, 500):
        agent = new_tabular()
        if not interrupted(partial(agent.begin, "a", 0), line, KeyboardInterrupt):
            break
        # Another thread, while the one that was interrupted goes on.
        answers: list[Any] = []

        def ask(agent: TabularAgent = agent, answers: list[Any] = answers) -> None:
            try:
                agent.begin("b", 0)
            except OutOfOrder as problem:
                answers.append(str(problem))
            else:
                answers.append("begun")

        poisoned = agent.poisoned
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        made += answers == ["begun"]
        assert answers == ["begun"] or (poisoned and "Load the last save" in answers[0]), (line, answers)
    assert made > 3


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


class Real:
    """A number that is another one every time it is read."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def __float__(self) -> float:
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "deep"])
def test_values_that_change_are_read_once(kind: str, tmp_path: Path) -> None:
    def played(whole: Any, real: Any) -> tuple[bytes, list[Any]]:
        agent, place = KINDS[kind].make(), KINDS[kind].place
        state = (lambda s: whole(s, 7)) if place is int else place
        if "warm_start" in dir(agent):
            logged = [(0, 1, 0.5), (1, 0, 0.25)]
            agent.warm_start(
                [[Transition(state(s), whole(a, 1 - a), real(r, 9.0), state(2), False)] for s, a, r in logged]
            )
        agent.begin("a", state(0))
        agent.begin(np.int64(5), state(1))
        first = agent.act("a", whole(0, 2), state(0))
        other = 1 - first.action
        outcome = Transition(state(0), whole(other, first.action), real(0.5, 7.0), state(1), False)
        agent.observe("a", outcome, t=whole(0, 1), taken=whole(other, first.action))
        decisions = [first, agent.act("a", whole(1, 0), state(1)), agent.act(5, whole(0, 1), state(1))]
        agent.finish("a")
        agent.abandon(np.int64(5))
        agent.save(tmp_path / "agent", overwrite=True)
        return (tmp_path / "agent").read_bytes(), decisions

    assert played(Index, Real) == played(lambda value, *_: value, lambda value, *_: value)


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
