"""A program that interrupts step APIs and counts outcomes: `python tests/faults/interrupts.py`.

A walk is played once, with a save before every call. Then each call is repeated from its save, interrupted at
one line of chary after the other, by each of two errors. After each interrupt the agent is exactly as before
the call, and repeats it (`did not happen`); or exactly as after it (`happened`); or it is `poisoned` and
refuses every call. Anything else is `broken`. After each fifth interrupt the walk is played to its end, by a
poisoned agent from the save before. Arguments: the lines per call (`all`), and the kinds of agents.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tests import deep_walk

import chary
from chary import UCBVI, Canary, CanaryAgent, CharyUCBVI, Rule, Setting, TabularAgent, Transition
from chary.agents import PSRL
from chary.agents._atomic import CALLS
from chary.agents._canary_saving import record as canary_record
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.errors import OutOfOrder
from chary.storage.files import DRAFT
from chary.storage.sealed import _digest

PACKAGE = str(Path(chary.__file__).parent)
SETTING = Setting.declare(n_states=3, n_actions=2, horizon=3)
WEIGHTS = np.array([[0.25, 0.5], [0.5, 0.0]])
ERRORS = (MemoryError, KeyboardInterrupt)
# After every so many interrupts the walk is played to its end.
REST = 5


def bounds() -> CriticBounds:
    return CriticBounds.from_point(FunctionCritic(lambda x: x @ WEIGHTS, n_actions=2), accept="uncertified")


def tabular(spec: Any, replan: str = "episode") -> Callable[[], Any]:
    return lambda: TabularAgent(
        spec,
        SETTING,
        max_episodes=20,
        losses=True,
        overrides="counted",
        generator=np.random.default_rng(1),
        replan=replan,
    )


def new_canary() -> CanaryAgent:
    return CanaryAgent(Canary(eta=0.1), SETTING, incumbent=[0, 1, 0], generator=np.random.default_rng(1))


def new_critic() -> CriticShield:
    return CriticShield(bounds(), Rule.strict(0.5), n_actions=2, horizon=3)


def new_deep() -> Any:
    # The walk of other tests: what it compiles is compiled anyway.
    return deep_walk.new_agent()


def load_deep(path: Path) -> Any:
    from chary.deep import DeepAgent

    return DeepAgent.load(path)


def observed(s: int) -> Any:
    return np.array([s, 1.0])


def deep_observed(s: int) -> Any:
    return np.array([s, 1.0, 0.0, 0.5, 0.0, 0.25])


@dataclass(frozen=True)
class Kind:
    """An agent, how it is loaded, and what its states look like."""

    make: Callable[[], Any]
    load: Callable[[Path], Any] = TabularAgent.load
    place: Callable[[int], Any] = int
    proposes: bool = False


CHARY: dict[str, Any] = {"bonus": "hoeffding", "bonus_scale": 0.01}
KINDS = {
    "chary": Kind(tabular(CharyUCBVI(eta=0.5, bonus="kl")), proposes=True),
    "chains": Kind(tabular(CharyUCBVI(eta=10.0, data="meta", pool=2, **CHARY))),
    "worlds": Kind(tabular(CharyUCBVI(eta=1.0, bonus="posterior", worlds=4)), proposes=True),
    "adopting": Kind(tabular(CharyUCBVI(eta=0.5, bonus="kl"), "adopt"), proposes=True),
    "psrl": Kind(tabular(PSRL(worlds=4))),
    "ucbvi": Kind(tabular(UCBVI(**CHARY))),
    "canary": Kind(new_canary, CanaryAgent.load),
    "critic": Kind(
        new_critic,
        lambda path: CriticShield.load(path, bounds(), Rule.strict(0.5), n_actions=2, horizon=3),
        observed,
        proposes=True,
    ),
    "deep": Kind(new_deep, load_deep, deep_observed),
}


class Walk:
    """Calls that can be repeated, with the save before each of them.

    Two episodes are open at once; outcomes come late, one is of another action than the one decided; an
    episode is finished, one abandoned, one has no step.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.kind = KINDS[name]
        self.folder, self.agent = folder, self.kind.make()
        self.target = folder / "target"
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.saves, self.states = [self.saved(self.agent)], [state(self.agent)]
        self.results: list[Any] = []
        self._play()

    def _play(self) -> None:
        place, more = self.kind.place, {"proposal": 1} if self.kind.proposes else {}
        if "warm_start" in dir(self.agent):
            logged = [self._outcome(s, a, (s + a) % 3) for s in range(3) for a in range(2)]
            self._call("warm_start", [[step] for step in logged])
        self._call("begin", "a", place(0))
        self._call("begin", "b", place(1))
        first = self._call("act", "a", 0, place(0), **more).action
        if "act_many" in dir(self.agent):
            second, other = self._call("act_many", ["a", "b"], [1, 0], [place(1), place(1)])
        else:
            second, other = (self._call("act", *where, place(1)) for where in (("a", 1), ("b", 0)))
        self._call("observe", "b", self._outcome(1, other.action, 2), t=0)
        taken = int(second.action == 0)
        self._call("observe", "a", self._outcome(1, taken, 0), t=1, taken=taken)
        self._call("save", self.target, overwrite=True)
        self._call("act", "a", 2, place(0), **more)
        self._call("observe", "a", self._outcome(0, self.results[-1].action, 2), t=2)
        self._call("finish", "a")
        self._call("observe", "a", self._outcome(0, first, 1), t=0)
        self._call("act", "b", 1, place(2))
        self._call("abandon", "b")
        if "taken" in dir(self.agent):
            self._call("begin", "c", place(2))
            self._call("act", "c", 0, place(2))
            self._call("taken", "c", 0, 1 - self.results[-1].action)
            self._call("finish", "c")
            self._call("observe", "c", self._outcome(2, self.calls[-2][1][2], 0), t=0)
        if self.kind.proposes and hasattr(self.agent, "tighten"):
            self._call("begin", "d", place(2), eta=0.4)
            self._call("act", "d", 0, place(2), explore=False)
            self._call("taken", "d", 0, None)
            self._call("tighten", "d", 0.2)
            self._call("act", "d", 1, place(1), proposal=1)
            self._call("abandon", "d")
        if isinstance(self.agent, TabularAgent):
            self._call("learn", [[self._outcome(0, 1, 1)], [self._outcome(1, 0, 1)]])
            self._call("begin", "e", place(0))
            made = self._call("recommend", "e", 0, place(0))
            self._call("explain", "e", 0, place(0))
            self._call("apply", "e", 0, place(0), made)
        if getattr(self.agent, "replan", None) == "adopt":
            self._call("draft")
            self._call("learn", [[self._outcome(2, 1, 1)]])
            self._call("adopt", self._call("draft"))
            self._call("learn", [[self._outcome(2, 1, 1)]])
            self._call("discard", self._call("draft"))
        self._call("begin", "f", place(2))
        self._call("finish", "f")

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((name, args, kwargs))
        self.results.append(self.again(self.agent, len(self.results)))
        self.saves.append(self.saved(self.agent))
        self.states.append(state(self.agent))
        return self.results[-1]

    def _outcome(self, s: int, action: int, then: int) -> Transition:
        return Transition(self.kind.place(s), action, 0.5, self.kind.place(then), False)

    def again(self, agent: Any, number: int) -> Any:
        name, args, kwargs = self.calls[number]
        return getattr(agent, name)(*args, **kwargs)

    def saved(self, agent: Any) -> bytes:
        path = self.folder / "agent"
        agent.save(path, overwrite=True)
        return path.read_bytes()

    def restored(self, number: int) -> Any:
        path = self.folder / "restored"
        path.write_bytes(self.saves[number])
        return self.kind.load(path)

    def trial(self, number: int, line: int, error: type[BaseException], *, rest: bool) -> str:
        """Interrupt a call at a line, and return what came of it."""
        agent, found = self.restored(number), "did not happen"
        try:
            if not interrupted(lambda: self.again(agent, number), line, error):
                return "broken: the line was not reached"
        except Exception as problem:
            return f"broken: raised {type(problem).__name__} in place of the interrupt"
        if any(path.name.startswith(DRAFT) for path in self.folder.iterdir()):
            return "broken: left a draft behind"
        if self.target.exists() and self.target.read_bytes() not in self.saves:
            return "broken: half a file"
        if agent.poisoned:
            found = "poisoned"
            if not refuses_everything(agent, self.folder):
                return "broken: goes on although poisoned"
            if not rest:
                return found
            agent = self.restored(number)
        try:
            if state(agent) == self.states[number + 1] != self.states[number]:
                found = "happened"
            elif state(agent) != self.states[number]:
                return "broken: half a change"
            elif self.again(agent, number) != self.results[number]:
                return "broken: decides otherwise"
            end = len(self.calls) if rest else number + 1
            for later in range(number + 1, end):
                if self.again(agent, later) != self.results[later]:
                    return "broken: decides otherwise later"
            return found if state(agent) == self.states[end] else "broken: diverged"
        except Exception as problem:
            return f"broken: stuck with {type(problem).__name__}"


def state(agent: Any) -> str:
    """Return a digest of all that a save of an agent would contain."""
    arrays, about = canary_record(agent) if isinstance(agent, CanaryAgent) else agent._record()
    return _digest(arrays, json.loads(json.dumps(about)))


def interrupted(
    call: Callable[[], Any],
    line: int,
    error: type[BaseException],
    within: tuple[str, ...] = (PACKAGE,),
) -> bool:
    """Make a call and raise at its `line`-th line within these folders; return whether it got that far."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(within):
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
        pass
    finally:
        sys.settrace(before)
    return left <= 0


def lines_of(call: Callable[[], Any], within: tuple[str, ...] = (PACKAGE,)) -> int:
    """Return how many lines of these folders a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(within):
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
    """Return whether every call names the way out, and none writes a file."""
    arguments = {"warm_start": ([],), "save": (folder / "never",), "begin": ("z", 0)}
    for name in CALLS:
        if name not in dir(agent):
            continue
        try:
            getattr(agent, name)(*arguments.get(name, ("a", 0, 0)))
        except OutOfOrder as problem:
            if "Load the last save" not in str(problem):
                return False
        else:
            return False
    return not (folder / "never").exists()


def trials(
    name: str, folder: Path, lines: int | None, errors: Sequence[type[BaseException]] = ERRORS
) -> Iterator[tuple[str, str]]:
    """Yield the call and the outcome of interrupts at so many lines of each call; None for all of them."""
    walk = Walk(name, folder)
    tried = 0
    for number, (call, *_) in enumerate(walk.calls):
        # Kernels are loaded once per process, in the first call that needs them.
        walk.again(walk.restored(number), number)
        fresh = walk.restored(number)
        total = lines_of(partial(walk.again, fresh, number))
        chosen = range(1, total + 1) if lines is None else np.linspace(1, total, lines).astype(int).tolist()
        for line in chosen:
            for error in errors if lines is None else errors[:1]:
                tried += 1
                yield call, walk.trial(number, line, error, rest=tried % REST == 0)


if __name__ == "__main__":
    asked = None if sys.argv[1:2] in ([], ["all"]) else int(sys.argv[1])
    for each in sys.argv[2:] or KINDS:
        with tempfile.TemporaryDirectory() as where:
            counts = Counter(found for _, found in trials(each, Path(where), asked))
        print(json.dumps({"agent": each, "interrupts": counts.total(), **counts}), flush=True)
