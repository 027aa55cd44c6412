"""Recovery: whenever the process ends, the next one has the same bytes, by a snapshot or by all events."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import FULL
from tests.service.served import make
from tests.service.wandering import Wanderer

from chary.errors import CharyError, InvalidData
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.events import NOTHING
from chary.service.live import Live
from chary.service.recovery import chained, check_first, load
from chary.service.replay import replay
from chary.service.store import Head, Reader
from chary.service.verify import verify

AGENTS: dict[str, dict[str, Any]] = {
    "bounds": {"name": "chary", "eta": 8.0, "bonus": "kl", "losses": True},
    "counted": {"name": "chary", "eta": 8.0, "bonus": "kl", "overrides": "counted"},
    "worlds": {"name": "chary", "eta": 20.0, "bonus": "posterior", "worlds": 16},
}
SEEDS = range(6 if FULL else 2)
REQUESTS = 1500 if FULL else 500


def wandered(tmp_path: Path, agent: str, seed: int, *, every: int = 3) -> tuple[Path, bytes]:
    """Return a copy of a deployment at work, as a crash leaves it, and the state that was in memory."""
    directory = make(
        tmp_path, agent=AGENTS[agent], planning={"every": every}, limits={"snapshot_every": 150}, seed=seed
    )
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(seed))
    while client.answers < REQUESTS:
        client.requests(50)
        engine.wait(engine.head)
        # Packed now, and named by the next request.
        engine._snapshots.finish()
    assert client.refusals > 0
    while engine._committer._besides:
        time.sleep(0.01)
    crashed = tmp_path / "crashed"
    shutil.copytree(directory, crashed)
    state = engine._live.packed()
    engine.finish()
    return crashed, state


def by_all_events(directory: Path) -> Live:
    deployment = Deployment.open(directory)
    reader = Reader(deployment.database)
    live = Live.new(deployment.declaration)
    for event in chained(reader.events(), Head(0, NOTHING)):
        live.apply(event.seq, event.episode, event.t, event.facts(), event.body.encode())
        live.prune(event.seq)
    reader.close()
    return live


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("agent", AGENTS)
def test_snapshot_and_tail_equal_all_events_and_what_was_in_memory(
    tmp_path: Path, agent: str, seed: int
) -> None:
    crashed, state = wandered(tmp_path, agent, seed)
    deployment = Deployment.open(crashed)
    reader = Reader(deployment.database)
    loaded = load(deployment, reader, check_first(deployment, reader))
    reader.close()
    assert loaded.snapshot > 2
    assert loaded.tail > 0
    assert loaded.live.packed() == state
    every = by_all_events(crashed)
    assert every.packed() == state
    assert loaded.live.records == every.records
    found = replay(crashed)
    assert found.found == []
    assert found.snapshots == 2
    assert verify(crashed).found == []


def test_decisions_go_on_after_a_crash_as_they_would_have(tmp_path: Path) -> None:
    crashed, _ = wandered(tmp_path, "bounds", 1)
    twice = []
    for name in ("one", "two"):
        directory = tmp_path / name
        shutil.copytree(crashed, directory)
        if name == "two":
            _without_snapshots(directory)
        engine = Engine.open(directory)
        client = Wanderer(engine, Random(5), prefix="later-", modes=())
        engine.set_mode("budgeted", author="t", reason="r")
        # Threads make plans and snapshots, whenever they get to it; without any, both go the same way.
        engine._planner.every = engine._snapshots._every = 10**6
        if engine._live.agent.drafted is not None:
            engine._live.agent.drafted.make()
        client.requests(300)
        engine.wait(engine.head)
        twice.append((engine.head, engine._live.packed()))
        engine.finish()
    assert twice[0] == twice[1]


def _without_snapshots(directory: Path) -> None:
    import sqlite3

    with sqlite3.connect(directory / "chary.db") as connection:
        connection.execute("DELETE FROM snapshot")
    connection.close()


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    import sqlite3

    crashed, state = wandered(tmp_path, "bounds", 0)
    with sqlite3.connect(crashed / "chary.db") as connection:
        connection.execute(
            "UPDATE part SET content = zeroblob(100) WHERE snapshot = (SELECT max(seq) FROM snapshot)"
        )
    connection.close()
    engine = Engine.open(crashed)
    engine._live.seq -= 1  # Opening is an event of its own.
    assert engine._live.packed() == state
    engine._live.seq += 1
    engine.finish()
    assert [finding.where for finding in verify(crashed).found] == ["snapshot"]


@pytest.mark.parametrize("column", ["kind", "schema", "episode", "t", "body", "prev", "hash", "at", "epoch"])
def test_a_changed_event_of_the_tail_is_refused_at_the_start(tmp_path: Path, column: str) -> None:
    import sqlite3

    directory = make(tmp_path)
    engine = Engine.open(directory)
    engine.begin("bed", 0)
    engine.decide("bed", 0, 0)
    engine.wait(engine.head)
    crashed = tmp_path / "crashed"
    shutil.copytree(directory, crashed)
    engine.finish()
    text = column in ("kind", "episode", "body")
    changed = f"substr({column}, 1, 1) || 'x' || substr({column}, 3)" if text else f"{column} + 1"
    if column in ("prev", "hash"):
        changed = "zeroblob(32)"
    with sqlite3.connect(crashed / "chary.db") as connection:
        connection.execute(f"UPDATE event SET {column} = {changed} WHERE kind = 'decided'")
    connection.close()
    with pytest.raises(InvalidData, match=r"^event 6 must be as it was written.*Restore the last backup"):
        Engine.open(crashed)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("eta = 50.0", "eta = 60.0", "the same setting, agent, policy"),
        ("horizon = 3", "horizon = 4", "the same setting, agent, policy"),
        ('deployment = "', 'deployment = "0', "must be that of deployment"),
        ("[setting]", "[setting]\ncolour = 1", "known keys only, got 'colour'"),
        ("[setting]", "[setting", "must be TOML"),
    ],
)
def test_a_changed_declaration_is_refused_in_one_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    directory = make(tmp_path)
    file = directory / "chary.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(CharyError, match=sentence):
        Engine.open(directory)
    file.write_text(text.replace('name = "clinic"', 'name = "another name"'))
    Engine.open(directory).finish()


@pytest.mark.parametrize("name", ["chary.db", "secret.key"])
def test_a_missing_or_mutilated_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    directory = make(tmp_path)
    file = directory / name
    content = file.read_bytes()
    for wrong in (None, b"", content[: len(content) // 2]):
        if wrong is None:
            file.unlink()
        else:
            file.write_bytes(wrong)
        with pytest.raises(CharyError, match=r"Restore"):
            Engine.open(directory)
    file.write_bytes(content)
    Engine.open(directory).finish()


def test_files_of_two_deployments_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = make(tmp_path / "a", name="ours"), make(tmp_path / "b", name="theirs")
    shutil.copy(theirs / "chary.db", ours / "chary.db")
    with pytest.raises(InvalidData, match="Put the files of one deployment together"):
        Engine.open(ours)


def test_a_recommendation_after_a_crash_counts_what_was_spent_before_it(tmp_path: Path) -> None:
    directory = make(tmp_path, agent=AGENTS["worlds"])
    engine = Engine.open(directory)
    spent = []
    for number in range(40):
        name = f"bed {number}"
        engine.begin(name, 0)
        if json.loads(engine.decide(name, 0, 0).body)["deficit"] > 0:
            spent.append(name)
    assert spent
    engine.wait(engine.head)
    crashed = tmp_path / "crashed"
    shutil.copytree(directory, crashed)
    again = Engine.open(crashed)
    for each in (engine, again):
        each.set_mode("apprentice", author="tests", reason="to compare")
    for name in spent:
        assert again.decide(name, 1, 1).body == engine.decide(name, 1, 1).body
    engine.finish()
    again.finish()


def test_rows_of_another_type_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SQLite reads a page that a power loss has torn."""
    crashed, _ = wandered(tmp_path, "bounds", 0)
    query = Reader.query

    def torn(reader: Reader, sql: str, values: Any = ()) -> list[Any]:
        rows = query(reader, sql, values)
        return [(None, None, None)] * len(rows) if "FROM decision" in sql else rows

    monkeypatch.setattr(Reader, "query", torn)
    with pytest.raises(InvalidData, match="Restore the last backup"):
        Engine.open(crashed)
