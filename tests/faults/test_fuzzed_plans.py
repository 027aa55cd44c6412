"""Malformed declarations, files and logs for plans and calibrations: a result or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.test_bad_logs import answer, cells
from tests.faults.test_fuzzed_calls import Call, Tally, fuzzed
from tests.unit.test_preview_worlds import logged

import chary
from chary.calibrate import LogSiblings, MDPSiblings
from chary.calibrate.siblings import check_family, siblings_of
from chary.data import Log, read_policy, read_rewards
from chary.mdp import Setting
from chary.preview import preview

SETTING = Setting.declare(n_states=3, n_actions=2, horizon=3)
AGENT = chary.CharyUCBVI(eta=0.5, bonus="posterior", worlds=2, risk=0.4)
OPTIONS: dict[str, Any] = {
    "etas": [0.2, 0.5],
    "horizon": 3,
    "discount": 0.9,
    "reward_low": 0.0,
    "reward_high": 1.0,
    "rewards": [[0.6, 0.55], [0.2, 0.9], [0.4, 0.4]],
    "unit": "euros",
    "n_states": 3,
    "n_actions": 2,
    "value_cap": 3.0,
    "support": 3,
    "allowed": "all",
    "baseline": [0, 0, 0],
    "role": "floor",
    "prior": None,
    "bonus": "posterior",
    "worlds": 2,
    "world_prior": "auto",
    "kappa": 10.0,
    "pessimism": 0.0,
    "risk": 0.4,
    "seed": 0,
    "rules": ["strict"],
    "step_bound": 0.3,
    "holdout": 0.0,
}
SHORT: Log = logged(6)
CALLS: list[Callable[[], Call]] = [
    # Options of a plan are many, and one call takes a tenth of a second: few are changed at a time.
    lambda: Call(preview, {"log": SHORT, **OPTIONS}, spared=("log",)),
    lambda: Call(LogSiblings, {"log": SHORT, "setting": SETTING, "own": None}),
    lambda: Call(MDPSiblings, {"mdp": chary.envs.riverswim(horizon=4)}),
    lambda: Call(
        lambda problem, warmup, **options: check_family(siblings_of(problem, options), AGENT, warmup),
        {"problem": "riverswim", "warmup": 2, "horizon": 4},
        spared=("warmup",),
    ),
    lambda: Call(Log.from_dataframe, {"frame": SHORT.columns(), "columns": None, "labels": None}),
]
UNITS: dict[str, Any] = {
    "n_states": 3,
    "n_actions": 2,
    "horizon": 3,
    "reward_range": (-2.0, 5.0),
    "reward": [[1.0, 2.0], [0.0, -1.0], [5.0, 5.0]],
    "value_cap": 12.0,
    "discount": 1.0,
}


@pytest.mark.parametrize(("calls", "most"), [(CALLS, 60), ([lambda: Call(Setting.declare, UNITS)], 400)])
def test_malformed_declarations_are_refused_in_a_sentence(calls: list[Callable[[], Call]], most: int) -> None:
    tally = Tally()

    @settings(max_examples=most)
    @given(data=st.data())
    def attempt(data: st.DataObject) -> None:
        fuzzed(data, calls, tally)

    attempt()
    assert tally.made >= most
    assert tally.refused > tally.made // 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("declared")


rows = st.lists(st.lists(cells, max_size=5).map(",".join), max_size=6).map("\n".join)
heads = st.sampled_from(["state,action\n", "t,state,action\n", "state,action,reward\n", "reward,state\n", ""])


@given(
    head=heads,
    body=rows,
    content=st.one_of(st.none(), st.binary(max_size=100)),
    suffix=st.sampled_from(["csv", "parquet"]),
)
def test_a_random_file_is_a_declaration_or_a_sentence(
    head: str, body: str, content: bytes | None, suffix: str, folder: Path
) -> None:
    path = folder / f"declared.{suffix}"
    path.write_bytes((head + body).encode() if content is None else content)
    answer(lambda: read_policy(path, n_states=3, horizon=2))
    answer(lambda: read_rewards(path, n_states=3, n_actions=2, labels={"action": ["a", "b"]}))


@settings(max_examples=25)
@given(data=st.data())
def test_siblings_of_any_log_are_problems_of_its_size(data: st.DataObject) -> None:
    episodes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    states = st.integers(0, 2)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("episode", "t", "state", "action", "reward", "next_state")
    }
    for k, length in enumerate(episodes):
        state = data.draw(states)
        for t in range(length):
            after = data.draw(states)
            row = (k, t, state, data.draw(st.integers(0, 1)), data.draw(st.floats(-3, 7)), after)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
            state = after
    log = Log(**columns, terminated=np.zeros(len(columns["t"]), dtype=bool))  # type: ignore[arg-type]
    setting = Setting.declare(n_states=3, n_actions=2, horizon=3, reward_range=(-3.0, 7.0))
    family = LogSiblings(log, setting)
    mdp = family.draw(data.draw(st.integers(0, 2**64)))
    P, R = mdp.dense()
    np.testing.assert_allclose(P.sum(axis=2), 1.0)
    assert ((R >= 0) & (R <= 1)).all()
    start = family.start(mdp, 0)
    assert len(start.pairs) == len(log)
    assert mdp.setting.digest == setting.digest
