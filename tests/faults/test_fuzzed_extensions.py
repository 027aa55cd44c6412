"""Malformed agents, problems, rollouts, callbacks and names of the user's own: always one sentence."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.test_own_agents import Dice
from tests.faults.test_fuzzed_calls import (
    ANYTHING,
    CALLS,
    SOME,
    Call,
    Tally,
    from_folder,
    fuzzed,
    inside,
    sentence,
)
from tests.unit.test_extensions import SWEEP

import chary
from chary import Setting, Transition
from chary.callbacks import Told
from chary.callbacks.loggers import CSVLogger
from chary.errors import CharyError
from chary.sweeps.toml import parse_experiment
from chary.testing import check_agent, check_problem

H = 3


@cache
def river() -> chary.FiniteMDP:
    return chary.envs.riverswim(horizon=H)


class Answers(Dice):
    """An agent whose answers are given."""

    def __init__(self, setting: Setting, *, generator: Any, answer: Any, deficit: Any) -> None:
        super().__init__(setting, generator=generator)
        self.answer, self.deficit = answer, deficit

    def act(self, episode: object, t: int, state: int) -> Any:
        if self.deficit is None:
            return self.answer
        return chary.shield.Decision(self.answer, True, 0.0, self.deficit, 0.0, 0, -1)


def played(agent: Any, arguments: Any, eta: Any, prior: Any, episodes: Any, warmup: Any) -> object:
    spec = chary.OwnAgent(agent, arguments=arguments, eta=eta, prior=prior)
    return chary.simulate(river(), spec, episodes=episodes, warmup=warmup)


def answering(answer: Any, deficit: Any) -> object:
    spec = chary.OwnAgent(Answers, arguments={"answer": answer, "deficit": deficit})
    return chary.simulate(river(), spec, episodes=1)


def judged(state: Any, action: Any, reward: Any, next_state: Any, baseline: Any, eta: Any) -> object:
    found = chary.judge(
        river(), [[Transition(state, action, reward, next_state, False)]], baseline=baseline, eta=eta
    )
    return found.describe()


def told(callbacks: Any) -> object:
    return Told(callbacks)


PLAYED: dict[str, Any] = {
    "agent": Dice,
    "arguments": {"loaded": 1},
    "eta": 0.5,
    "prior": None,
    "episodes": 2,
    "warmup": 1,
}
AREA: list[Callable[[], Call]] = [
    lambda: Call(played, PLAYED),
    lambda: Call(answering, {"answer": 1, "deficit": None}),
    lambda: Call(answering, {"answer": 1, "deficit": 0.1}),
    lambda: Call(
        judged,
        {"state": 0, "action": 1, "reward": 0.0, "next_state": 1, "baseline": [0] * 6, "eta": 0.5},
    ),
    lambda: Call(
        chary.judge,
        {
            "env_or_mdp": river(),
            "episodes": [[Transition(0, 1, 0.0, 1, False)]],
            "baseline": [[0] * 6] * H,
            "eta": None,
        },
    ),
    lambda: Call(check_agent, {"agent": Dice, "mdp": river(), "episodes": 2, "seed": 0}),
    lambda: Call(check_problem, {"problem": "chary.envs:riverswim", "horizon": H}),
    lambda: Call(chary.make_agent, {"name": "json:loads", "eta": 0.5, "arguments": {}}),
    lambda: Call(lambda name: chary.envs.make(name), {"name": "json:loads"}),
    lambda: Call(told, {"callbacks": []}),
    from_folder(
        lambda folder: Call(
            lambda path, every: CSVLogger(inside(folder, path), every=every), {"path": "log", "every": 2}
        )
    ),
]


def test_malformed_calls_are_refused_in_one_sentence() -> None:
    tally = Tally()

    @SOME
    @given(st.data())
    def search(data: st.DataObject) -> None:
        fuzzed(data, AREA, tally)

    search()
    assert tally.made >= CALLS
    assert tally.refused > tally.made / 3


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["mine:Mine", "a:b:c", "mine:", "os:system", "chary", "x" * 300 + ":y"]),
    st.lists(st.integers(), max_size=2),
    st.dates(),
)
TABLE = tomllib.loads(SWEEP)
KEYS = (
    "problem",
    "episodes",
    "etas",
    "agent",
    "label",
    "keeps_budget",
    "action",
    "arguments",
    "prior",
    "options",
)


@SOME
@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(min_size=1, max_size=6), VALUES, min_size=1, max_size=3)
)
def test_a_malformed_experiment_of_ones_own_is_refused_and_imports_nothing(changes: dict[str, Any]) -> None:
    known = {key: value for key, value in changes.items() if value is not None}
    of_all = {key: value for key, value in known.items() if key in TABLE}
    first = {**TABLE["algorithms"][0], **{key: each for key, each in known.items() if key not in TABLE}}
    try:
        text = tomli_w.dumps({**TABLE, **of_all, "algorithms": [first, *TABLE["algorithms"][1:]]})
    except (ValueError, TypeError, OverflowError):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chary.extensions.import_module", None)
        try:
            ids = [each.spec.id for each in parse_experiment(text).plan()]
        except CharyError as problem:
            sentence(problem)
        else:
            assert ids == [each.spec.id for each in parse_experiment(text).plan()]


@given(ANYTHING)
def test_whatever_a_name_is_it_is_refused_or_text(name: Any) -> None:
    try:
        chary.make_agent(name)
    except CharyError as problem:
        sentence(problem)
