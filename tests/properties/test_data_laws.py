"""Laws of logs: files give back what they were given, their order is nobody's business, damage is seen."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chary import CharyError, CharyUCBVI, Setting, TabularAgent, Transition
from chary.data import Bins, Codebook, Log, discretiser_from_arrays, read_log, write_log

S, A = 5, 3
NUMBERS = itertools.count()

Columns = dict[str, Any]


class Step(NamedTuple):
    action: int
    reward: float
    next_state: int


rewards = st.floats(allow_nan=False, allow_infinity=False)
steps = st.builds(Step, st.integers(0, A - 1), rewards, st.integers(0, S - 1))


@st.composite
def logs(draw: st.DrawFn, min_episodes: int = 1) -> Columns:
    """Whole episodes with labels of any size; the last state S of a terminated one is its own."""
    labels = draw(st.lists(st.integers(0, 2**63 - 1), min_size=min_episodes, max_size=4, unique=True))
    rows: list[tuple[Any, ...]] = []
    for label in labels:
        state, ended = draw(st.integers(0, S - 1)), draw(st.booleans())
        played = draw(st.lists(steps, min_size=1, max_size=5))
        for t, step in enumerate(played):
            last = ended and t == len(played) - 1
            after = S if last else step.next_state
            rows.append((label, t, state, step.action, step.reward, after, last))
            state = step.next_state
    names = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
    kinds = (np.int64, np.int64, np.int64, np.int64, np.float64, np.int64, np.bool_)
    return {
        name: np.array(cells, dtype=kind)
        for name, cells, kind in zip(names, zip(*rows, strict=True), kinds, strict=True)
    }


def same(one: Log, other: Log) -> None:
    """To the last bit, so that 0.0 is not -0.0."""
    for name, column in one.columns().items():
        assert column.dtype == other.columns()[name].dtype
        assert column.tobytes() == other.columns()[name].tobytes(), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


@given(columns=logs())
def test_a_csv_file_gives_back_every_bit(columns: Columns, folder: Path) -> None:
    there_and_back(columns, folder, ".csv")


# A process is started for every file.
@settings(max_examples=settings().max_examples // 6)
@given(columns=logs())
def test_a_parquet_file_gives_back_every_bit(columns: Columns, folder: Path) -> None:
    there_and_back(columns, folder, ".parquet")


def there_and_back(columns: Columns, folder: Path, suffix: str) -> None:
    log = Log(**columns)
    file = folder / f"{next(NUMBERS)}{suffix}"
    write_log(log, file)
    again = read_log(file)
    same(log, again)
    first = 2 if suffix == ".csv" else 1
    assert again.row.tolist() == list(range(first, first + len(log)))


@given(columns=logs(), data=st.data())
def test_any_order_of_rows_is_the_same_log(columns: Columns, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(columns["t"])))))
    log, shuffled = Log(**columns), Log(**{name: column[order] for name, column in columns.items()})
    same(log, shuffled)
    # Where a transition came from is kept: entry i of the shuffled arrays is entry order[i] of the others.
    assert order[shuffled.row].tolist() == log.row.tolist()


@given(columns=logs())
def test_transitions_go_out_and_come_back(columns: Columns) -> None:
    log = Log(**columns)
    episodes = list(log.episodes())
    assert [len(episode) for episode in episodes] == log.lengths.tolist()
    again = Log.from_transitions(episodes)
    for name in Transition._fields:
        assert getattr(again, name).tobytes() == getattr(log, name).tobytes()
    assert again.t.tolist() == log.t.tolist()


CORRUPTIONS = (
    "drop",
    "repeat",
    "shift",
    "chain",
    "early end",
    "reward",
    "negative",
    "fraction",
    "text",
    "outside",
    "action",
)


def corrupted(columns: Columns, what: str, i: int) -> Columns | None:
    """The columns with one mistake near entry i, or None where that would be no mistake."""
    changed = {name: column.copy() for name, column in columns.items()}
    later = i + 1 < len(columns["t"]) and columns["episode"][i + 1] == columns["episode"][i]
    if what in ("drop", "early end", "chain") and not later:
        return None
    if what == "drop":
        return {name: np.delete(column, i) for name, column in columns.items()}
    if what == "repeat":
        return {name: np.append(column, column[i]) for name, column in columns.items()}
    if what == "shift":
        changed["t"][i] += 1
    elif what == "chain":
        changed["next_state"][i] = (changed["next_state"][i] + 1) % S
    elif what == "early end":
        changed["terminated"][i] = True
    elif what == "reward":
        changed["reward"][i] = np.nan
    elif what == "negative":
        changed["state"][i] = -1
    elif what == "fraction":
        changed["action"] = changed["action"] + 0.0
        changed["action"][i] += 0.5
    elif what == "text":
        changed["state"] = changed["state"].astype(object)
        changed["state"][i] = "one"
    elif what == "outside":
        changed["state"][i] = S + 1
    else:
        changed["action"][i] = A
    return changed


@pytest.mark.parametrize("what", CORRUPTIONS)
@given(columns=logs(), data=st.data())
def test_any_single_mistake_is_seen(what: str, columns: Columns, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(columns["t"]) - 1))
    wrong = corrupted(columns, what, i)
    if wrong is None:
        return
    with pytest.raises(CharyError, match=r"entry \d+") as refusal:
        Log.from_arrays(**wrong, n_states=S + 1, n_actions=A)
    assert "\n" not in str(refusal.value)


@given(columns=logs())
def test_what_the_setting_accepts_an_agent_takes(columns: Columns) -> None:
    scaled = {**columns, "reward": np.mod(columns["reward"], 1.0)}
    setting = Setting.declare(n_states=S + 1, n_actions=A, horizon=5)
    log = Log.from_arrays(**scaled, setting=setting)
    agent = TabularAgent(CharyUCBVI(eta=0.5), setting)
    agent.warm_start(log.episodes())
    counts = log.to_counts(setting)
    rows = agent.plan.knowledge.rows
    assert rows.total.tolist() == counts.rows.total.tolist()
    assert rows.reward_total.tobytes() == counts.rows.reward_total.tobytes()
    assert rows.visits.tolist() == counts.rows.visits.tolist()


grids = st.lists(
    st.lists(st.integers(-9, 9), min_size=2, max_size=5, unique=True).map(sorted), min_size=1, max_size=3
)


@given(edges=grids, data=st.data())
def test_a_grid_agrees_with_a_search_by_hand(edges: list[list[int]], data: st.DataObject) -> None:
    point = data.draw(st.lists(st.floats(-12, 12), min_size=len(edges), max_size=len(edges)))
    cell = 0
    for each, value in zip(edges, point, strict=True):
        inside = [i for i in range(len(each) - 1) if value >= each[i]]
        cell = cell * (len(each) - 1) + (inside[-1] if inside else 0)
    grid = Bins(edges)
    assert grid([point]).tolist() == [cell]
    assert 0 <= cell < grid.n_states
    assert discretiser_from_arrays(grid.to_arrays())([point]).tolist() == [cell]


@given(seed=st.integers(0, 2**32), size=st.integers(3, 40), K=st.integers(1, 3))
def test_a_codebook_is_its_generators_and_an_observation_alone_is_where_it_is_among_many(
    seed: int, size: int, K: int
) -> None:
    points = np.random.default_rng(seed).normal(size=(size, 2))
    one, other = (Codebook.fit(points, K, generator=np.random.default_rng(seed)) for _ in range(2))
    assert one.centres.tobytes() == other.centres.tobytes()
    cells = one(points)
    assert cells.tolist() == [int(one(point[None])[0]) for point in points]
    assert sorted(set(cells.tolist())) == list(range(K))
    again = discretiser_from_arrays(one.to_arrays())
    assert again(points).tolist() == cells.tolist()
