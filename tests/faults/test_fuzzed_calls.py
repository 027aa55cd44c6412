"""Thousands of malformed calls and files: always a CharyError with a sentence, never a changed ledger."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.sweeps import SMALL

import chary
from chary import (
    CharyUCBVI,
    FiniteMDP,
    Rule,
    Setting,
    Shield,
    TabularAgent,
    Transition,
    critics,
    data,
    policies,
)
from chary.agents import AGENTS
from chary.critics import CriticBounds, CriticPlan, CriticShield, EnsembleCritics, FunctionCritic
from chary.data import Bins, Codebook, Log
from chary.envs import PROBLEMS, TabularEnv
from chary.errors import CharyError
from chary.evaluation import start_weights
from chary.mdp.setting import RewardScale
from chary.model.bounds import Bounds
from chary.results import load_results
from chary.shield import Decision, within
from chary.shield.worlds import Vote
from chary.storage.sealed import pack
from chary.sweeps.folder import FOLDER_SCHEMA
from chary.sweeps.toml import parse_experiment, read_experiment
from chary.testing import check_critic, check_plan
from chary.wrappers import Padded, Shielded, ShieldedVector, setting_of

FULL = settings().max_examples >= 1000
# Malformed calls of each area and files of each kind: each number is asserted where they are made.
CALLS = 1500 if FULL else 150
FILES = 500 if FULL else 40
# Each is read in a process of its own, since a broken one may end it.
PARQUET_FILES = 100 if FULL else 6

SOME = settings(
    max_examples=CALLS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# What no call takes, or hardly any: made anew for each, since generators can be read but once.
ODD: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: False,
    lambda: -1,
    lambda: 7,
    lambda: 1.5,
    lambda: -0.25,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -float("inf"),
    lambda: 10**400,
    lambda: -(10**400),
    lambda: 2**63,
    lambda: 2**64 + 1,
    lambda: 1 + 2j,
    lambda: Decimal("NaN"),
    lambda: Decimal("0.5"),
    lambda: Fraction(1, 3),
    lambda: "",
    lambda: "0",
    lambda: "nan",
    lambda: "nonsense",
    lambda: "two\nlines",
    lambda: "null\0byte",
    lambda: "\ud800",
    lambda: b"",
    lambda: b"0.5",
    lambda: bytearray(b"1"),
    lambda: [],
    lambda: (),
    lambda: {},
    lambda: set(),
    lambda: {1, 2},
    lambda: frozenset({0}),
    lambda: [[]],
    lambda: [1, [2, 3]],
    lambda: [None],
    lambda: [0, "1"],
    lambda: [[0.5, float("nan")]],
    lambda: [10**400],
    lambda: {"state": 0},
    lambda: {(0, 0): [(0, 1.0, 0.0)]},
    lambda: {0: {1: {2: None}}},
    lambda: range(3),
    lambda: object(),
    lambda: (i for i in range(2)),
    lambda: iter([]),
    lambda: slice(0, 1),
    lambda: np.array([]),
    lambda: np.zeros((0, 5)),
    lambda: np.array(0.5),
    lambda: np.array(1),
    lambda: np.array([1]),
    lambda: np.array([0.5]),
    lambda: np.array([1, 2, 3]),
    lambda: np.array([0, 9, -4, 2**62]),
    lambda: np.zeros((2, 3)),
    lambda: np.full((3, 3), np.nan),
    lambda: np.full(3, np.inf),
    lambda: np.full((3, 2), 1e308),
    lambda: np.array(["a", "b"]),
    lambda: np.array([b"a"]),
    lambda: [1 + 2j, 0],
    lambda: np.array([1 + 2j, 0]),
    lambda: np.array([object(), None]),
    lambda: np.array([[1], [2, 3]], dtype=object),
    lambda: np.array(None),
    lambda: np.array([True, False]),
    lambda: np.zeros((1, 1, 1, 1)),
    lambda: np.zeros(3, dtype=[("a", int)]),
    lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    lambda: np.datetime64("NaT"),
    lambda: np.float32("nan"),
    lambda: np.float64(0.5),
    lambda: np.complex64(1),
    lambda: np.bool_(True),
    lambda: np.uint64(2**64 - 1),
    lambda: np.int8(-1),
    lambda: np.str_("0"),
    lambda: Transition(0, 0, 0.0, 0, False),
    lambda: Path("nowhere"),
)

# Numbers so large that memory would run out are no malformed calls: either small, or larger than int64.
NUMBERS = st.one_of(st.integers(-5, 12), st.integers(2**63, 2**70), st.integers(-(2**70), -(2**63)))
ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(ODD).map(lambda make: make()),
    st.sampled_from(ODD).map(lambda make: make()),
    NUMBERS,
    st.floats(),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.recursive(
        st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), st.text(max_size=3)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
        ),
        max_leaves=5,
    ),
)


class Call(NamedTuple):
    """A good call: what is called with which arguments, and what must not change if it is refused."""

    function: Callable[..., object]
    arguments: Mapping[str, Any]
    watched: Callable[[], object] | None = None
    # Arguments that are left as they are.
    spared: tuple[str, ...] = ()


@dataclass
class Tally:
    """How many malformed calls an area was put to, and how many it refused."""

    made: int = 0
    refused: int = 0


def sentence(problem: CharyError) -> None:
    """Assert that the message is one readable sentence or more on one line, and no exception's own."""
    text = str(problem)
    assert text.strip(), "an empty message"
    assert "\n" not in text, text
    assert text.endswith((".", "?", "...")), text
    assert not re.match(r"[A-Z]\w*(Error|Exception|Warning)\(", text), text
    assert " " in text.strip(), text


def put(call: Call, changes: Mapping[str, Any], tally: Tally) -> None:
    """Make one malformed call and hold it against the law."""
    before = None if call.watched is None else call.watched()
    tally.made += 1
    try:
        call.function(**{**call.arguments, **changes})
    except CharyError as problem:
        tally.refused += 1
        sentence(problem)
        if call.watched is not None:
            assert same(before, call.watched()), "a refused call has changed something"


def same(a: object, b: object) -> bool:
    """Return whether two records are the same to the bit, NaN included."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def fuzzed(data: st.DataObject, calls: list[Callable[[], Call]], tally: Tally) -> None:
    """Draw a good call, put malformed values into one or more of its arguments, and make it."""
    call = data.draw(st.sampled_from(calls), label="call")()
    names = [name for name in call.arguments if name not in call.spared]
    wrong = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), label="names")
    put(call, {name: data.draw(ANYTHING, label=name) for name in wrong}, tally)


# Good calls, area by area.

S, A, H, END = 4, 2, 3, 3


@cache
def setting() -> Setting:
    return Setting.declare(
        n_states=S, n_actions=A, horizon=H, terminal=[END], allowed=[[1, 1], [1, 0], [1, 1], [0, 0]]
    )


@cache
def mdp() -> FiniteMDP:
    return chary.envs.riverswim(horizon=4)


def agent(name: str = "chary", **options: Any) -> TabularAgent:
    """Return an agent with an episode at its second step and one whose outcome is late."""
    spec = chary.make_agent(name, **{"eta": 0.5, **options})
    made = TabularAgent(spec, setting(), max_episodes=50, generator=np.random.default_rng(1))
    made.begin("a", 0)
    first = made.act("a", 0, 0)
    made.observe("a", Transition(0, first.action, 0.5, 2, False))
    made.begin(7, 1)
    made.act(7, 0, 1)
    return made


def on_agent(call: str, arguments: dict[str, Any], *, name: str = "chary", adapt: Any = None) -> Call:
    made = agent(name)
    method = getattr(made, call)
    return Call(method if adapt is None else adapt(method), arguments, made._record)


def observing(method: Callable[..., object]) -> Callable[..., object]:
    def call(
        episode: Any, t: Any, state: Any, action: Any, reward: Any, next_state: Any, terminated: Any
    ) -> object:
        return method(episode, Transition(state, action, reward, next_state, terminated), t=t)

    return call


OUTCOME = {"t": 0, "state": 1, "action": 0, "reward": 0.5, "next_state": 2, "terminated": False}
QUESTIONS = {"episodes": ["a", 7], "t": [1, 1], "states": [2, 0], "proposals": [0, None]}


def from_folder(call: Callable[[Path], Call]) -> Callable[[], Call]:
    """Return a maker of calls that need a folder of their own."""
    return lambda: call(_folder())


_FOLDERS: list[TemporaryDirectory[str]] = []


def _folder() -> Path:
    _FOLDERS.append(TemporaryDirectory())
    return Path(_FOLDERS[-1].name)


def listing(folder: Path) -> Callable[[], object]:
    return lambda: {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def saving(folder: Path) -> Call:
    made = agent()
    return Call(
        lambda path, overwrite: made.save(inside(folder, path), overwrite=overwrite),
        {"path": "agent.npz", "overwrite": False},
        made._record,
    )


def applying(bonus: str) -> Call:
    """Return a call that applies what the agent would decide, field by field."""
    options: dict[str, Any] = {"worlds": 4, "risk": 0.3} if bonus == "posterior" else {}
    made = agent(bonus=bonus, **options)
    told = made.recommend("a", 1, 2)
    vote = {} if told.vote is None else {f"vote_{name}": value for name, value in told.vote._asdict().items()}

    def call(episode: Any, t: Any, state: Any, proposal: Any, explore: Any, **fields: Any) -> None:
        parts = [fields.pop(name) for name in vote]
        decision = Decision(**{**fields, "vote": Vote(*parts) if parts else fields["vote"]})
        made.apply(episode, t, state, decision, proposal=proposal, explore=explore)

    plain = {**told._asdict(), "proposal": None, "explore": True, **vote}
    return Call(call, {"episode": "a", "t": 1, "state": 2, **plain}, made._record)


def adopting() -> Call:
    made = TabularAgent(CharyUCBVI(eta=0.5), setting(), replan="adopt")
    made.begin("a", 0)
    return Call(made.adopt, {"draft": made.draft()}, made._record)


def inside(folder: Path, path: Any) -> Any:
    """Return a path as it was drawn, but in the folder: what is drawn must not litter the checkout."""
    if isinstance(path, str) and path and "/" not in path:
        return f"{folder}/{path}"
    return folder / path if isinstance(path, Path) else path


TABULAR: list[Callable[[], Call]] = [
    lambda: on_agent("begin", {"episode": 9, "state": 0}),
    lambda: on_agent("begin", {"episode": 9, "state": 0}, name="stepmix"),
    lambda: on_agent("act", {"episode": "a", "t": 1, "state": 2, "proposal": 1}),
    lambda: on_agent("act", {"episode": 7, "t": 0, "state": 1, "proposal": None}),
    lambda: on_agent("act", {"episode": "a", "t": 1, "state": 2, "proposal": None}, name="random"),
    lambda: on_agent("act_many", QUESTIONS),
    lambda: on_agent("act_many", QUESTIONS | {"proposals": None}, name="ucbvi"),
    lambda: on_agent("observe", {"episode": 7, **OUTCOME}, adapt=observing),
    lambda: on_agent("observe", {"episode": "a", **OUTCOME, "state": 0, "action": 0}, adapt=observing),
    lambda: on_agent("observe", {"episode": 7, "transition": Transition(1, 0, 0.5, 2, False), "t": None}),
    lambda: on_agent("finish", {"episode": "a"}),
    lambda: on_agent("finish", {"episode": 7}),
    lambda: on_agent("abandon", {"episode": "a"}),
    lambda: on_agent("plan_of", {"episode": "a"}),
    lambda: on_agent("eta_of", {"episode": "a"}),
    lambda: on_agent("begin", {"episode": 9, "state": 0, "eta": 0.25}),
    lambda: on_agent("act", {"episode": "a", "t": 1, "state": 2, "explore": False}),
    lambda: on_agent(
        "act_many", {"episodes": ["a", 7], "t": [1, 1], "states": [2, 0], "explore": [True, False]}
    ),
    lambda: on_agent("taken", {"episode": 7, "t": 0, "action": None}),
    lambda: on_agent("taken", {"episode": 7, "t": 0, "action": 0}),
    lambda: on_agent("tighten", {"episode": "a", "eta": 0.25}),
    lambda: on_agent("recommend", {"episode": "a", "t": 1, "state": 2, "proposal": 1}),
    lambda: on_agent("explain", {"episode": "a", "t": 1, "state": 2}),
    lambda: on_agent("explain", {"episode": 7, "t": 0, "state": 1}, name="random"),
    lambda: on_agent("learn", {"episodes": [[Transition(0, 1, 0.5, 2, False)]]}),
    lambda: on_agent(
        "apply",
        {"episode": "a", "t": 1, "state": 2, "decision": agent().recommend("a", 1, 2), "explore": True},
    ),
    lambda: applying("kl"),
    lambda: applying("posterior"),
    adopting,
    from_folder(saving),
    lambda: Call(TabularAgent.load, {"path": "nowhere", "setting": setting()}),
]


def warm_starting() -> Call:
    made = TabularAgent(CharyUCBVI(eta=0.5), setting())
    step = Transition(0, 1, 0.5, 2, False)
    return Call(made.warm_start, {"episodes": [[step]]}, made._record)


def warm_starting_with() -> Call:
    made = TabularAgent(CharyUCBVI(eta=0.5), setting())

    def call(state: Any, action: Any, reward: Any, next_state: Any, terminated: Any) -> None:
        good = Transition(0, 0, 0.25, 1, False)
        made.warm_start([[good], [Transition(state, action, reward, next_state, terminated)]])

    good = {"state": 2, "action": 1, "reward": 0.5, "next_state": END, "terminated": True}
    return Call(call, good, made._record)


OPTIONS: dict[str, Any] = {
    "rule": "strict",
    "step_bound": None,
    "after_refusal": None,
    "charge": "coupled",
    "pool": 3,
    "clock": "episode",
    "data": "all",
    "patience": None,
    "chains": True,
}
COMMON: dict[str, Any] = {
    "eta": 0.5,
    "bonus": "kl",
    "bonus_scale": 1.0,
    "delta": 0.1,
    "reward": "estimated",
    "prior": None,
}


def spec_and_agent(name: str) -> Callable[[], Call]:
    """Return a maker of a specification with all its options, put to work: both check."""
    own = {
        "chary": OPTIONS,
        "cucbvi": {"alpha": 0.1},
        "canary": {"candidates": "lower", "share": 0.5, "ask_growth": 0.25, "return_cap": 3.0},
    }.get(name, {})

    def call(**options: Any) -> object:
        spec = chary.make_agent(name, **options)
        chance = np.random.default_rng(0)
        made: TabularAgent | chary.CanaryAgent
        if isinstance(spec, chary.Canary):
            made = chary.CanaryAgent(spec, setting(), generator=chance)
        else:
            made = TabularAgent(spec, setting(), max_episodes=5, generator=chance)
        made.begin(0, 0)
        return made.act(0, 0, 0)

    return lambda: Call(call, COMMON | own)


CONSTRUCTORS: list[Callable[[], Call]] = [
    lambda: Call(
        TabularAgent,
        {
            "spec": CharyUCBVI(eta=0.5),
            "setting": setting(),
            "max_episodes": 5,
            "warmup": 0,
            "generator": np.random.default_rng(0),
            "prior": [0, 0, 0, 0],
            "own": None,
            "oracle_value": None,
            "replan": "adopt",
        },
    ),
    lambda: Call(
        played_by_oracle,
        {"max_episodes": 5, "warmup": 0, "generator": np.random.default_rng(0), "oracle_value": np.ones(S)},
    ),
    warm_starting,
    warm_starting_with,
    *(spec_and_agent(name) for name in AGENTS),
    lambda: Call(chary.make_agent, {"name": "chary", "eta": 0.5}),
    lambda: Call(Rule.strict, {"eta": 0.5, "after_refusal": "pause"}),
    lambda: Call(Rule.capped, {"eta": 0.5, "step_bound": 0.1, "after_refusal": "pause"}),
    lambda: Call(Rule.paper, {"eta": 0.5, "after_refusal": "close"}),
    lambda: Call(Rule.named, {"name": "capped", "eta": 0.5, "step_bound": 0.1, "after_refusal": "pause"}),
    lambda: Call(within, {"radius": 0.5}),
    lambda: Call(Bounds, {"family": "kl", "scale": 1.0, "delta": 0.1}),
]


def played_by_oracle(**options: Any) -> object:
    spec = chary.make_agent("stepmix", eta=0.5, baseline_value="oracle")
    made = TabularAgent(spec, setting(), **options)
    made.begin(0, 0)
    return made.act(0, 0, 0)


class Fixed:
    """A plan that explores with 1 and charges 0.3 for it."""

    def explore(self, chain: int, clock: int, s: Any) -> int:
        return 1

    def baseline(self, t: int, s: Any) -> int:
        return 0

    def charge(self, t: int, s: Any, a: int) -> float:
        return 0.3 * a


class Answering(Fixed):
    """A plan whose answers are given."""

    def __init__(self, explore: Any, baseline: Any, charge: Any) -> None:
        self.answers = explore, baseline, charge

    def explore(self, chain: int, clock: int, s: Any) -> Any:
        return self.answers[0]

    def baseline(self, t: int, s: Any) -> Any:
        return self.answers[1]

    def charge(self, t: int, s: Any, a: int) -> Any:
        return self.answers[2]


def shield(match: Any = chary.shield.same) -> Shield[Any]:
    made: Shield[Any] = Shield(Rule.strict(0.4), horizon=3, pool=2, match=match)
    made.begin("a", Fixed())
    made.decide("a", 0, (0.0, 1.0))
    made.observe("a", (1.0, 1.0), terminated=False)
    made.begin("b", Fixed())
    made.decide("b", 0, (0.0, 1.0))
    return made


def on_shield(call: str, arguments: dict[str, Any], match: Any = chary.shield.same) -> Call:
    made = shield(match)
    return Call(getattr(made, call), arguments, lambda: made.record(repr))


def deciding_by(explore: Any, baseline: Any, charge: Any, begun: Shield[Any]) -> object:
    begun.begin("c", Answering(explore, baseline, charge))
    try:
        return begun.decide("c", 0, 5)
    finally:
        begun.abandon("c")


SHIELDS: list[Callable[[], Call]] = [
    lambda: Call(
        Shield,
        {
            "rule": Rule.strict(0.4),
            "horizon": 3,
            "pool": 1,
            "clock": "meta",
            "patience": 2,
            "chains": True,
            "match": chary.shield.same,
        },
    ),
    lambda: on_shield("begin", {"episode": "c", "plan": Fixed(), "number": 4}),
    lambda: on_shield("decide", {"episode": "a", "t": 1, "s": (1.0, 1.0), "proposal": 1}),
    lambda: on_shield("decide", {"episode": "a", "t": 1, "s": (1.0, 1.0), "proposal": None}),
    lambda: on_shield("decide", {"episode": "a", "t": 1, "s": (1.0, 1.0)}, match=within(0.1)),
    lambda: on_shield("decide", {"episode": "b", "t": 0, "s": (0.0, 1.0)}, match=within(0.1)),
    lambda: on_shield("observe", {"episode": "b", "s_next": (1.0, 1.0), "terminated": False}),
    lambda: on_shield(
        "observe", {"episode": "b", "s_next": (1.0, 1.0), "terminated": False}, match=within(0.1)
    ),
    lambda: on_shield("finish", {"episode": "a"}),
    lambda: on_shield("abandon", {"episode": "b"}),
    lambda: on_shield("ledger", {"episode": "a"}),
    lambda: Call(
        deciding_by, {"explore": 1, "baseline": 0, "charge": 0.1, "begun": shield()}, spared=("begun",)
    ),
]


P = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0, 0, 1], [0, 0, 1]]])
R = np.array([[0.0, 1.0], [0.5, 0.5], [0.0, 0.0]])
MDP_OPTIONS: dict[str, Any] = {
    "horizon": 3,
    "name": "three",
    "start": 0,
    "terminal": [2],
    "discount": 0.9,
    "value_cap": 3.0,
    "support": 3,
    "reward_range": (0.0, 1.0),
    "pad": False,
    "recorded_policy": [0, 1, 0],
}
DENSE = {"P": P, "R": R, "allowed": np.ones((3, 2), dtype=bool), **MDP_OPTIONS}
ROWS = {(0, 0): [(1, 1.0, 0.0)], (1, 0): [(0, 0.5, 1.0), (2, 0.5, 0.0)]}
DECLARED: dict[str, Any] = {
    "n_states": 3,
    "n_actions": 2,
    "horizon": 3,
    "allowed": None,
    "terminal": [2],
    "discount": 1.0,
    "value_cap": None,
    "support": None,
    "scale": RewardScale(),
}


def made_problem(name: Any, **options: Any) -> object:
    return chary.envs.make(name, **options)


MODELS: list[Callable[[], Call]] = [
    lambda: Call(Setting.declare, DECLARED),
    lambda: Call(RewardScale.of, {"reward_range": (0.0, 2.0)}),
    lambda: Call(Setting.from_arrays, {"arrays": setting().to_arrays()}),
    lambda: Call(lambda **arrays: Setting.from_arrays(arrays), setting().to_arrays()),
    lambda: Call(lambda **arrays: Setting.from_arrays(dotted(arrays)), underscored(mdp().told("known"))),
    lambda: Call(FiniteMDP.from_arrays, DENSE),
    lambda: Call(FiniteMDP.from_arrays, DENSE),
    lambda: Call(FiniteMDP.from_sparse, DENSE | {"P": sparse.coo_array(P.reshape(6, 3))}),
    lambda: Call(
        FiniteMDP.from_sparse, DENSE | {"P": [sparse.coo_array(P[:, 0]), sparse.coo_array(P[:, 1])]}
    ),
    lambda: Call(
        FiniteMDP.from_successors,
        {"rows": ROWS, "n_states": 3, "n_actions": 2, **MDP_OPTIONS, "recorded_policy": None},
    ),
    lambda: Call(mdp().told, {"reward": "known"}),
    lambda: Call(mdp().row, {"s": 0, "a": 0}),
    lambda: Call(TabularEnv, {"mdp": mdp()}),
    lambda: Call(stepped, {"seed": 3, "action": 0}),
    *(partial(Call, made_problem, {"name": name, "horizon": 3}) for name in PROBLEMS),
    lambda: Call(chary.envs.riverswim, {"horizon": 5}),
    lambda: Call(lambda name, seed: chary.envs.sibling(name, seed), {"name": "riverswim", "seed": 1}),
    lambda: Call(
        chary.check_assumptions,
        {"mdp": mdp(), "eta": 0.5, "step_bound": 0.1, "rng": np.random.default_rng(0)},
    ),
    lambda: Call(
        chary.simulate,
        {
            "mdp": mdp(),
            "agent": CharyUCBVI(eta=0.5),
            "episodes": 2,
            "warmup": 1,
            "seed": 0,
            "coverage": "played",
            "record_steps": False,
            "driver": "compiled",
            "planner": "incremental",
            "check_every": 0,
            "progress": None,
        },
    ),
]


def underscored(told: Setting) -> dict[str, Any]:
    return {name.replace(".", "__"): array for name, array in told.to_arrays().items()}


def dotted(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): array for name, array in arrays.items()}


def stepped(seed: Any, action: Any) -> object:
    env = TabularEnv(mdp())
    env.reset(seed=seed)
    return env.step(action)


def log() -> Log:
    return Log(**COLUMNS)


COLUMNS: dict[str, Any] = {
    "episode": [0, 0, 1],
    "t": [0, 1, 0],
    "state": [0, 1, 2],
    "action": [1, 0, 1],
    "reward": [0.0, 0.5, 1.0],
    "next_state": [1, 2, 3],
    "terminated": [False, False, True],
}
LOGGED: dict[str, Any] = {
    "setting": None,
    "reward_range": (0.0, 1.0),
    "n_states": 4,
    "n_actions": 2,
}


def reading(folder: Path, suffix: str) -> Call:
    data.write_log(log(), folder / f"log{suffix}")
    told = {"path": folder / f"log{suffix}", **LOGGED, "delimiter": ",", "ignore_extra": False}
    return Call(data.read_log, told)


def writing(folder: Path) -> Call:
    return Call(
        lambda log, path, overwrite: data.write_log(log, inside(folder, path), overwrite=overwrite),
        {"log": log(), "path": "log.csv", "overwrite": False},
        listing(folder),
    )


def keeping(folder: Path) -> Call:
    return Call(
        lambda discretiser, path, overwrite: data.save_discretiser(
            discretiser, inside(folder, path), overwrite=overwrite
        ),
        {"discretiser": Bins([[0, 1, 2]]), "path": "bins.npz", "overwrite": False},
        listing(folder),
    )


LOGS: list[Callable[[], Call]] = [
    lambda: Call(Log, COLUMNS | {"row": [2, 3, 4], "unit": "row"}),
    lambda: Call(Log.from_arrays, COLUMNS | LOGGED),
    lambda: Call(Log.from_transitions, {"episodes": [[Transition(0, 1, 0.5, 2, True)]]}),
    lambda: Call(
        lambda **step: Log.from_transitions([[Transition(**step)]]),
        {"state": 0, "action": 1, "reward": 0.5, "next_state": 2, "terminated": True},
    ),
    lambda: Call(log().checked, LOGGED),
    lambda: Call(log().checked, dict.fromkeys(LOGGED) | {"setting": setting()}),
    lambda: Call(log().to_counts, {"setting": setting()}),
    lambda: Call(log().with_own_ending, {"state": 9}),
    lambda: Call(log().padded, {"horizon": 3}),
    lambda: Call(log().check_shape, {"setting": setting()}),
    lambda: Call(data.inspect, {"log": log(), "setting": setting()}),
    from_folder(lambda folder: reading(folder, ".csv")),
    from_folder(lambda folder: reading(folder, ".parquet")),
    from_folder(writing),
    from_folder(keeping),
    lambda: Call(data.read_observations, {"path": "nowhere.csv"}),
    lambda: Call(data.load_discretiser, {"path": "nowhere.npz"}),
    lambda: Call(data.read_minari, {"dataset": "nowhere"}),
    lambda: Call(Bins, {"edges": [[0, 1, 2], [0, 5, 9]], "outside": "clamp"}),
    lambda: Call(Bins.uniform, {"low": [0.0], "high": [1.0], "counts": [4], "outside": "refuse"}),
    lambda: Call(
        lambda observations: Bins([[0, 1, 2]], outside="refuse")(observations), {"observations": [[0.5]]}
    ),
    lambda: Call(Codebook, {"centres": [[0.0], [1.0]], "scale": [2.0]}),
    lambda: Call(lambda observations: Codebook([[0.0], [1.0]])(observations), {"observations": [[0.5]]}),
    lambda: Call(
        Codebook.fit,
        {
            "observations": [[0.0], [1.0], [3.0]],
            "n_states": 2,
            "generator": np.random.default_rng(0),
            "iterations": 5,
            "sample": 3,
            "standardise": True,
        },
    ),
    lambda: Call(data.discretiser_from_arrays, {"arrays": Bins([[0, 1]]).to_arrays()}),
    lambda: Call(lambda **arrays: data.discretiser_from_arrays(arrays), Bins([[0, 1], [0, 2]]).to_arrays()),
    lambda: Call(lambda **arrays: data.discretiser_from_arrays(arrays), Codebook([[0.0]]).to_arrays()),
    lambda: Call(Bins.from_arrays, {"arrays": Bins([[0, 1]]).to_arrays()}),
    lambda: Call(Codebook.from_arrays, {"arrays": Codebook([[0.0]]).to_arrays()}),
]


class Predicting:
    """A model that answers what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def predict(self, observations: Any, deterministic: bool = True) -> Any:
        return self.answer


def writing_policy(folder: Path) -> Call:
    return Call(
        lambda path, table, setting, overwrite: policies.save_policy(
            inside(folder, path), table, setting, overwrite=overwrite
        ),
        {"path": "rule.npz", "table": [0, 0, 1, 0], "setting": setting(), "overwrite": False},
        listing(folder),
    )


POLICIES: list[Callable[[], Call]] = [
    lambda: Call(policies.as_policy_table, {"policy": [0, 0, 1, 0], "setting": setting()}),
    lambda: Call(lambda answer: policies.as_policy_table(lambda state: answer, setting()), {"answer": 0}),
    lambda: Call(
        lambda answer: policies.as_policy_table(policies.SB3Policy(Predicting((answer, None))), setting()),
        {"answer": 0},
    ),
    lambda: Call(
        lambda answer, observations: policies.as_policy_table(
            policies.D3RLPyPolicy(Predicting(answer), observations), setting()
        ),
        {"answer": np.array([0, 0, 1]), "observations": np.eye(S)},
    ),
    lambda: Call(policies.SB3Policy, {"model": Predicting(0), "observations": None}),
    lambda: Call(policies.D3RLPyPolicy, {"model": Predicting(0), "observations": np.eye(S)}),
    from_folder(writing_policy),
    lambda: Call(policies.load_policy, {"path": "nowhere", "setting": setting()}),
    lambda: Call(
        policies.OwnBaseline.declare,
        {"policy": [0, 0, 1, 0], "setting": setting(), "role": "floor"},
    ),
    lambda: Call(
        policies.OwnBaseline.declare, {"policy": [0, 0, 1, 0], "setting": setting(), "role": "only"}
    ),
    lambda: Call(policies.raw_value, {"value": 1.0, "setting": setting()}),
    lambda: Call(policies.scaled_value, {"value": 1.0, "setting": setting()}),
    lambda: Call(
        chary.evaluate_policy,
        {
            "log": log(),
            "policy": [0, 0, 1, 0],
            "setting": setting(),
            "bounds": Bounds(),
            "method": "model",
            "delta": 0.1,
            "return_range": None,
        },
    ),
    lambda: Call(
        chary.evaluate_policy,
        {
            "log": Log(**{name: column[2:] for name, column in COLUMNS.items()}),
            "policy": [0, 0, 1, 0],
            "setting": setting(),
            "method": "returns",
            "delta": 0.1,
            "return_range": (0.0, 3.0),
        },
    ),
    lambda: Call(start_weights, {"log": log(), "setting": setting()}),
]


def q(slope: float = 1.0) -> FunctionCritic:
    def values(observations: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(observations)[:, :1] * [slope, 2 * slope]

    return FunctionCritic(values, n_actions=2)


def bounds() -> CriticBounds:
    return CriticBounds(q(), q(1.5), level="uncertified")


def critic_shield() -> CriticShield:
    made = CriticShield(bounds(), Rule.strict(5.0), n_actions=2, horizon=3)
    made.begin("a", np.array([1.0]))
    made.act("a", 0, np.array([1.0]), proposal=0)
    made.observe("a", Transition(np.array([1.0]), 0, 0.0, np.array([2.0]), False))
    made.begin(7, np.array([0.5]))
    made.act(7, 0, np.array([0.5]), proposal=0)
    return made


def on_critic_shield(call: str, arguments: dict[str, Any], adapt: Any = None) -> Call:
    made = critic_shield()
    method = getattr(made, call)
    return Call(
        method if adapt is None else adapt(method),
        arguments,
        lambda: (pack("critic shield", *made._record()), repr(list(made._episodes)), made._shape),
    )


def observing_shield(method: Callable[..., object]) -> Callable[..., object]:
    def call(episode: Any, **fields: Any) -> object:
        return method(episode, Transition(**fields))

    return call


def held_out() -> list[critics.HeldOutEpisode]:
    return [critics.HeldOutEpisode([[0.5], [1.0]], [1], [2.0 + k], True) for k in range(25)]  # type: ignore[arg-type]


CRITICS: list[Callable[[], Call]] = [
    lambda: Call(FunctionCritic, {"function": len, "n_actions": 2}),
    lambda: Call(
        lambda answer, observations, n_actions: critics.checked_q_values(
            FunctionCritic(lambda x: answer, n_actions=2), observations, n_actions
        ),
        {"answer": [[0.0, 1.0]], "observations": [[0.5]], "n_actions": 2},
    ),
    lambda: Call(critics.checked_q_values, {"critic": q(), "observations": [[0.5]], "n_actions": 2}),
    lambda: Call(
        CriticBounds,
        {"lower": q(), "upper": q(), "level": "uncertified", "lower_shift": 0.0, "upper_shift": 0.1},
    ),
    lambda: Call(CriticBounds.from_point, {"critic": q(), "accept": "uncertified"}),
    lambda: Call(CriticBounds.from_ensemble, {"ensemble": EnsembleCritics([q(), q(2.0)])}),
    lambda: on_critic_shield("taken", {"episode": 7, "t": 0, "action": None}),
    lambda: Call(bounds().evaluate, {"observations": [[0.5]], "n_actions": 2, "masks": [[True, False]]}),
    lambda: Call(bounds().shifted, {"lower": 0.1, "upper": 0.2, "level": "calibrated"}),
    lambda: Call(EnsembleCritics, {"critics": [q(), q(2.0)], "how": "mean-sd", "width": 2.0}),
    lambda: Call(EnsembleCritics([q(), q(2.0)]).q_bounds, {"observations": [[0.5]], "n_actions": 2}),
    lambda: Call(
        CriticPlan, {"bounds": bounds(), "n_actions": 2, "allowed": None, "explorer": None, "memory": 4}
    ),
    lambda: Call(
        lambda mask: CriticPlan(bounds(), n_actions=2, allowed=lambda s: mask).baseline(0, [0.5]),
        {"mask": [1, 0]},
    ),
    lambda: Call(CriticPlan(bounds(), n_actions=2).price, {"observations": [[0.5]], "masks": [[1, 0]]}),
    lambda: Call(CriticPlan(bounds(), n_actions=2).charge, {"t": 0, "s": [0.5], "a": 0}),
    lambda: Call(CriticPlan(bounds(), n_actions=2).baseline, {"t": 0, "s": [0.5]}),
    lambda: Call(
        CriticShield,
        {
            "bounds": bounds(),
            "rule": Rule.strict(1.0),
            "n_actions": 2,
            "horizon": 3,
            "allowed": None,
            "memory": 9,
        },
    ),
    lambda: on_critic_shield("begin", {"episode": "b", "state": [0.1]}),
    lambda: on_critic_shield("act", {"episode": "a", "t": 1, "state": [2.0], "proposal": 0, "mask": [1, 1]}),
    lambda: on_critic_shield(
        "act_many",
        {
            "episodes": ["a", 7],
            "t": [1, 0],
            "states": [[2.0], [0.5]],
            "proposals": [0, 0],
            "masks": [None, [1, 1]],
        },
    ),
    lambda: on_critic_shield(
        "observe",
        {
            "episode": 7,
            "state": [0.5],
            "action": 0,
            "reward": 0.5,
            "next_state": [0.25],
            "terminated": False,
        },
        adapt=observing_shield,
    ),
    lambda: on_critic_shield("finish", {"episode": "a"}),
    lambda: on_critic_shield("abandon", {"episode": 7}),
    lambda: on_critic_shield("plan_of", {"episode": 7}),
    lambda: on_critic_shield("ledger", {"episode": 7}),
    lambda: Call(
        critics.HeldOutEpisode,
        {
            "observations": [[0.5], [1.0]],
            "actions": [1],
            "rewards": [2.0],
            "terminated": True,
            "masks": [[1, 1]],
        },
    ),
    lambda: Call(
        critics.calibrate_critics,
        {
            "bounds": bounds(),
            "episodes": held_out(),
            "n_actions": 2,
            "discount": 0.9,
            "alpha": 0.2,
            "tighten": False,
            "cut_off": "refuse",
            "test": held_out(),
        },
    ),
    lambda: Call(critics.episodes_needed, {"alpha": 0.1}),
    lambda: Call(check_critic, {"critic": q(), "observations": [[0.5], [0.25]], "n_actions": 2}),
    lambda: Call(
        check_plan,
        {
            "plan": Fixed(),
            "states": [0, 1],
            "horizon": 2,
            "chains": (0,),
            "allowed": None,
            "free_baseline": True,
        },
    ),
    lambda: Call(
        lambda explore, baseline, charge: check_plan(Answering(explore, baseline, charge), [0], horizon=1),
        {"explore": 0, "baseline": 0, "charge": 0.0},
    ),
]


def shielded() -> tuple[Shielded, TabularAgent]:
    guard = TabularAgent(CharyUCBVI(eta=0.5), mdp().setting)
    env = Shielded(TabularEnv(mdp()), guard)
    env.reset(seed=0)
    return env, guard


def shielded_vector() -> tuple[ShieldedVector, TabularAgent]:
    guard = TabularAgent(CharyUCBVI(eta=0.5), mdp().setting)
    envs = ShieldedVector(SyncVectorEnv([lambda: TabularEnv(mdp())] * 2), guard)
    envs.reset(seed=0)
    return envs, guard


def on_shielded(call: str, arguments: dict[str, Any], make: Callable[[], tuple[Any, TabularAgent]]) -> Call:
    env, guard = make()
    return Call(getattr(env, call), arguments, guard._record)


def playing(env: Any, agent: Any, episodes: Any, first: Any, seed: Any, horizon: Any) -> object:
    return next(
        iter(chary.rollout(env, agent, episodes=episodes, first=first, seed=seed, horizon=horizon)), None
    )


def playing_many(envs: Any, agent: Any, episodes: Any, first: Any, seed: Any) -> object:
    played = chary.rollout_many(envs, agent, episodes=episodes, first=first, seed=seed)
    try:
        return next(iter(played), None)
    finally:
        played.close()  # type: ignore[attr-defined]


WRAPPERS: list[Callable[[], Call]] = [
    lambda: Call(
        setting_of,
        {
            "env": Padded(TabularEnv(mdp()), horizon=6),
            "horizon": 6,
            "reward_range": (0.0, 1.0),
            "discount": 0.9,
            "allowed": None,
            "terminal": None,
        },
    ),
    lambda: Call(setting_of, {"env": TabularEnv(mdp()), "horizon": 3}),
    lambda: Call(Padded, {"env": TabularEnv(mdp()), "horizon": 5}),
    lambda: Call(
        Shielded,
        {
            "env": TabularEnv(mdp()),
            "guard": TabularAgent(CharyUCBVI(eta=0.5), mdp().setting),
            "horizon": 3,
            "numbers": itertools.count(),
        },
    ),
    lambda: Call(
        ShieldedVector,
        {
            "envs": SyncVectorEnv([lambda: TabularEnv(mdp())] * 2),
            "guard": TabularAgent(CharyUCBVI(eta=0.5), mdp().setting),
            "horizon": 4,
            "numbers": itertools.count(),
        },
    ),
    lambda: on_shielded("step", {"action": 0}, shielded),
    lambda: on_shielded("reset", {"seed": 1}, shielded),
    lambda: on_shielded("step", {"actions": [0, 1]}, shielded_vector),
    lambda: on_shielded("reset", {"seed": [1, 2], "options": None}, shielded_vector),
    lambda: Call(
        playing,
        {
            "env": TabularEnv(mdp()),
            "agent": TabularAgent(CharyUCBVI(eta=0.5), mdp().setting),
            "episodes": 1,
            "first": 0,
            "seed": 0,
            "horizon": 3,
        },
    ),
    lambda: Call(
        playing_many,
        {
            "envs": SyncVectorEnv([lambda: TabularEnv(mdp())] * 2),
            "agent": TabularAgent(CharyUCBVI(eta=0.5), mdp().setting),
            "episodes": 1,
            "first": 0,
            "seed": 0,
        },
    ),
    lambda: Call(load_results, {"where": "nowhere", "table": "runs"}),
]

AREAS = {
    "agents at work": TABULAR,
    "specifications": CONSTRUCTORS,
    "shields": SHIELDS,
    "problems": MODELS,
    "logs": LOGS,
    "policies": POLICIES,
    "critics": CRITICS,
    "environments": WRAPPERS,
}


@pytest.mark.parametrize("area", AREAS)
def test_a_malformed_call_is_refused_in_a_sentence_and_changes_nothing(area: str) -> None:
    tally = Tally()

    @SOME
    @given(st.data())
    def search(data: st.DataObject) -> None:
        fuzzed(data, AREAS[area], tally)

    try:
        search()
    finally:
        while _FOLDERS:
            _FOLDERS.pop().cleanup()
    print(f"{area}: {tally}")  # shown by pytest -rP
    assert tally.made >= CALLS
    # Many odd values are good ones here and there, but a search that finds nothing to refuse is none.
    assert tally.refused >= tally.made // 2, tally


# Files: each is written well, then spoilt, and read.


def csv_text() -> bytes:
    folder = _folder()
    data.write_log(log(), folder / "log.csv")
    return (folder / "log.csv").read_bytes()


def parquet_bytes() -> bytes:
    folder = _folder()
    data.write_log(log(), folder / "log.parquet")
    return (folder / "log.parquet").read_bytes()


def policy_bytes() -> bytes:
    folder = _folder()
    policies.save_policy(folder / "policy.npz", [0, 0, 1, 0], setting())
    return (folder / "policy.npz").read_bytes()


def discretiser_bytes() -> bytes:
    folder = _folder()
    data.save_discretiser(Bins([[0, 1, 2], [0, 5, 9]]), folder / "bins.npz")
    return (folder / "bins.npz").read_bytes()


def agent_bytes() -> bytes:
    folder = _folder()
    agent().save(folder / "agent.npz")
    return (folder / "agent.npz").read_bytes()


def sweep_description() -> bytes:
    experiment = parse_experiment(SMALL)
    return json.dumps(
        {"schema": FOLDER_SCHEMA, "experiment": experiment.to_json(), "command": "chary sweep"}
    ).encode()


def reading_sweep(path: Path) -> object:
    return load_results(path.parent)


OBSERVATIONS = """episode,t,state_0,action,reward,next_state_0,terminated
0,0,0.5,1,0.0,1.5,0
0,1,1.5,0,1.0,2.0,1
"""

# By the name of the file: what is in it, and what reads it.
READERS: dict[str, tuple[Callable[[], bytes], Callable[[Path], object]]] = {
    "log.csv": (csv_text, data.read_log),
    "observations.csv": (OBSERVATIONS.encode, data.read_observations),
    "log.parquet": (parquet_bytes, data.read_log),
    "policy.npz": (policy_bytes, lambda path: policies.load_policy(path, setting())),
    "discretiser.npz": (discretiser_bytes, data.load_discretiser),
    "agent.npz": (agent_bytes, TabularAgent.load),
    "experiment.json": (sweep_description, reading_sweep),
    "experiment.toml": (SMALL.encode, read_experiment),
}


@cache
def good_content(name: str) -> bytes:
    return READERS[name][0]()


def spoilt(data: st.DataObject, content: bytes) -> bytes:
    """Return a file cut off, with bytes flipped, put in, taken out or moved, or another one altogether."""
    place = data.draw(st.integers(0, max(len(content) - 1, 0)), label="place")
    how = data.draw(
        st.sampled_from(["cut", "flip", "put in", "take out", "swap", "lines", "other"]), label="how"
    )
    if how == "cut":
        return content[:place]
    if how == "flip":
        changed = bytearray(content)
        for i in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
            changed[i] ^= data.draw(st.integers(1, 255))
        return bytes(changed)
    if how == "put in":
        return content[:place] + data.draw(st.binary(min_size=1, max_size=30)) + content[place:]
    if how == "take out":
        return content[:place] + content[place + data.draw(st.integers(1, 200)) :]
    if how == "swap":
        return content[place:] + content[:place]
    if how == "lines":
        lines = content.split(b"\n")
        first = data.draw(st.integers(0, len(lines) - 1))
        odd = data.draw(st.sampled_from(ODD_LINES))
        return b"\n".join([*lines[:first], odd, *lines[first + data.draw(st.integers(0, 2)) :]])
    other = data.draw(st.sampled_from([each for each in READERS if good_content(each) != content]))
    return data.draw(st.one_of(st.just(good_content(other)), st.binary(max_size=200)))


ODD_LINES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b'"',
    b",,,,,,",
    b"nan,nan,nan,nan,nan,nan,nan",
    b"0,0,0,0,inf,0,0",
    b"0,0," + b"9" * 5000 + b",0,0,0,0",
    b"1,0,1e999,0,0,0,0",
    b"episode,t,state,action,reward,next_state,terminated",
    b"state_0,next_state_0",
    b"eta = nan",
    b"episodes = " + b"9" * 400,
    b"[[algorithms]]",
    b"name = 3",
    b"seeds = []",
    b'{"schema": 1}',
    b"[" * 3000,
)


@pytest.mark.parametrize("name", READERS)
def test_a_malformed_file_is_refused_in_a_sentence(name: str) -> None:
    tally = Tally()
    good, read = READERS[name]
    files = PARQUET_FILES if name.endswith(".parquet") else FILES

    @settings(SOME, max_examples=files)
    @given(st.data())
    def search(data: st.DataObject) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(spoilt(data, good_content(name)))
            attempt(read, path, tally)

    try:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(good())
            read(path)
        search()
    finally:
        while _FOLDERS:
            _FOLDERS.pop().cleanup()
    print(f"{name}: {tally}")
    assert tally.made >= files
    assert tally.refused >= tally.made // 4, tally


def attempt(read: Callable[[Path], object], path: Path, tally: Tally) -> None:
    put(Call(lambda: read(path), {}), {}, tally)


@pytest.mark.slow
def test_the_long_profile_makes_ten_thousand_malformed_calls_and_thousands_of_files() -> None:
    assert len(AREAS) * CALLS >= 10_000
    assert (len(READERS) - 1) * FILES + PARQUET_FILES >= 3_000
