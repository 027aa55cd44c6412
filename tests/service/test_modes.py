"""Who decides: an apprentice changes no action and learns, a stop holds at once, and budgets only fall."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.service.log import rewrite
from tests.service.served import HORIZON, STATES, make
from tests.service.wandering import Wanderer

from chary.service.answers import Answer, Refused
from chary.service.engine import Engine
from chary.service.events import Decided, decoded, encode
from chary.service.modes import INCUMBENTS, MODES
from chary.service.replay import replay

POLICY = (1, 0, 1, 1)


def said(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.body)
    return told


def with_policy(folder: Path, role: str = "prior", **changed: Any) -> Path:
    """Return a deployment whose incumbent plays `POLICY`."""
    with (folder / "today.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("state", "action"))
        rows.writerows((state, ("wait", "treat")[a]) for state, a in zip(STATES, POLICY, strict=True))
    return make(folder, policy={"file": "today.csv", "role": role}, **changed)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine.open(with_policy(tmp_path, mode="apprentice"))
    yield opened
    opened.finish()


def visit(engine: Engine, name: str, chance: Random, *, own: int | None = None) -> list[dict[str, Any]]:
    """Play one episode; treating pays, whatever the state."""
    state, told = chance.randrange(4), []
    engine.begin(name, state)
    for t in range(HORIZON):
        answer = said(engine.decide(name, t, state, fallback_action=own))
        to = chance.randrange(4)
        engine.outcome(name, t, answer["action"], 10.0 * answer["action"], to, False)
        told.append(answer)
        state = to
    engine.close(name)
    return told


def test_an_apprentice_plays_the_incumbent_or_what_people_chose(engine: Engine) -> None:
    chance = Random(0)
    recommended = set()
    for number in range(40):
        own = None if number % 2 else number // 2 % 2
        for answer in visit(engine, f"bed {number}", chance, own=own):
            assert answer["action"] == (POLICY[answer["state"]] if own is None else own)
            assert (answer["explored"], answer["charge"], answer["deficit"]) == (False, 0.0, 0.0)
            assert answer["mode"] == "apprentice"
            recommended.add((answer["recommended"]["action"], answer["recommended"]["explored"]))
    # It would have done otherwise.
    assert any(explored for _, explored in recommended)
    assert len(recommended) > 1
    assert engine.deployment()["standing"].count("unconfounded") == 1


def test_what_a_client_says_it_played_by_itself_counts_as_peoples_choice(engine: Engine) -> None:
    for name, action, leans in (("bed", POLICY[0], 0), ("chair", 1 - POLICY[0], 1)):
        engine.begin(name, 0)
        engine.fallback(name, [{"t": 0, "state": 0, "action": action}])
        assert engine.deployment()["standing"].count("unconfounded") == leans


def test_what_an_apprentice_recommends_is_what_it_would_have_done(tmp_path: Path) -> None:
    directory = with_policy(tmp_path, mode="apprentice", planning={"every": 2})
    engine = Engine.open(directory)
    chance = Random(1)
    for number in range(25):
        visit(engine, f"bed {number}", chance, own=chance.randrange(2))
    compared = 0
    for number in range(6):
        name = f"later {number}"
        engine.begin(name, number % 4)
        engine.wait(engine.head)
        copy = tmp_path / str(number)
        shutil.copytree(directory, copy)
        advice = said(engine.decide(name, 0, number % 4))["recommended"]
        other = Engine.open(copy)
        other.set_mode("budgeted", author="me", reason="compare")
        done = said(other.decide(name, 0, number % 4))
        other.finish()
        assert {key: done[key] for key in ("action", "charge", "explored")} == {
            key: advice[key] for key in ("action", "charge", "explored")
        }
        compared += done["explored"]
    engine.finish()
    assert compared


def test_an_apprentice_learns_from_what_was_done(tmp_path: Path) -> None:
    engine = Engine.open(make(tmp_path, mode="apprentice", planning={"every": 5}))
    before = np.array(engine.baseline()["actions"])
    assert (before == engine._live.incumbent).all()
    chance = Random(2)
    for number in range(400):
        visit(engine, f"bed {number}", chance, own=chance.randrange(2))
    engine._planner.finish()
    engine.begin("one more", 0)
    engine.set_mode("frozen", author="me", reason="trust the baseline")
    learnt = np.array(engine.baseline()["actions"])
    # Treating pays 10 and waiting nothing, and people tried both.
    assert (learnt == 1).all()
    assert engine.counters["plans"] > 5
    engine.begin("and one", 0)
    answer = said(engine.decide("and one", 0, 0))
    assert (answer["action"], answer["explored"], answer["mode"]) == (1, False, "frozen")
    engine.finish()


@pytest.mark.parametrize("mode", INCUMBENTS)
def test_a_fallback_action_that_was_left_out_is_the_incumbents(tmp_path: Path, mode: str) -> None:
    engine = Engine.open(with_policy(tmp_path, mode=mode))
    for name in ("left out", "the same", "another"):
        engine.begin(name, 0)
    action = POLICY[0]
    answers = {
        "left out": engine.decide("left out", 0, 0),
        "the same": engine.decide("the same", 0, 0, fallback_action=action),
        "another": engine.decide("another", 0, 0, fallback_action=1 - action),
    }
    assert ["requested" in said(answer) for answer in answers.values()] == [False, True, True]
    for name in ("left out", "the same"):
        for own in (None, action):
            assert engine.decide(name, 0, 0, fallback_action=own) == answers[name]
        with pytest.raises(Refused, match="fallback action of step 0"):
            engine.decide(name, 0, 0, fallback_action=1 - action)
    assert engine.decide("another", 0, 0, fallback_action=1 - action) == answers["another"]
    for own in (None, action):
        with pytest.raises(Refused, match="fallback action of step 0"):
            engine.decide("another", 0, 0, fallback_action=own)
    engine.finish()


def test_another_action_in_the_name_of_the_incumbent_is_named_by_the_replay(tmp_path: Path) -> None:
    """Changed together with all hashes after it, so that only deciding again tells."""
    directory = with_policy(tmp_path, mode="apprentice")
    engine = Engine.open(directory)
    answers = {}
    for name, own in (("theirs", None), ("given", 0)):
        engine.begin(name, 0)
        answers[name] = engine.decide(name, 0, 0, fallback_action=own)
    engine.finish()
    assert replay(directory).is_whole
    for name, finds in (("theirs", True), ("given", False)):
        copied, target = tmp_path / name, answers[name].seq
        shutil.copytree(directory, copied)
        rewrite(copied, target, with_the_other_action)
        found = {(each.where, each.seq) for each in replay(copied).found}
        # What a request gave cannot be computed again.
        assert (("decision", target) in found) == finds


def with_the_other_action(body: str) -> str:
    facts: Decided = decoded("decided", body, 0)
    other = 1 - facts.action
    return encode(msgspec.structs.replace(facts, action=other, label=("wait", "treat")[other])).decode()


def test_after_a_stop_nothing_explores_and_old_answers_stay(tmp_path: Path) -> None:
    engine = Engine.open(with_policy(tmp_path, mode="budgeted"))
    answers = {}
    for number in range(12):
        engine.begin(f"bed {number}", 0)
        answers[number] = engine.decide(f"bed {number}", 0, 0)
    assert any(said(answer)["explored"] for answer in answers.values())
    engine.wait(engine.stop(author="me", reason="alarm").seq)
    for number, answer in answers.items():
        assert engine.decide(f"bed {number}", 0, 0) == answer
        after = said(engine.decide(f"bed {number}", 1, 2))
        assert (after["explored"], after["charge"], after["action"]) == (False, 0.0, POLICY[2])
        assert after["deficit"] == said(answer)["deficit"]
    engine.finish()
    # A restart does not start it again.
    again = Engine.open(engine._deployment.directory)
    assert again.mode == "stopped"
    again.begin("new", 0)
    assert not said(again.decide("new", 0, 0))["explored"]
    again.finish()


@pytest.mark.parametrize("seed", range(3))
def test_ledgers_never_fall_nor_pass_the_budget_whatever_happens(tmp_path: Path, seed: int) -> None:
    engine = Engine.open(make(tmp_path, planning={"every": 3}, seed=seed))
    client = Wanderer(engine, Random(seed), modes=(), own_etas=False)
    client.requests(300)
    client.modes, client.own_etas = MODES, True
    client.requests(600)
    records: dict[str, list[dict[str, Any]]] = {}
    etas: dict[str, float] = {}
    engine.wait(engine.head)
    explored = 0
    for event in engine._reader.events():
        body = json.loads(event.body)
        if event.kind == "begun":
            etas[event.episode or ""] = body.get("eta", 50.0)
        elif event.kind == "tightened":
            etas[event.episode or ""] = body["eta"]
        elif event.kind == "decided":
            before = records.setdefault(event.episode or "", [])
            spent = before[-1]["deficit"] if before else 0.0
            assert body["deficit"] >= spent
            assert body["mode"] in (*MODES, "fallback")
            if body["explored"]:
                explored += 1
                assert body["mode"] == "budgeted"
                assert body["deficit"] <= etas[event.episode or ""] + 1e-9
            else:
                assert body["deficit"] == spent
            assert ("recommended" in body) == (body["mode"] == "apprentice")
            assert body["mode"] not in INCUMBENTS or not body["explored"]
            before.append(body)
    engine.finish()
    assert explored


def test_a_budget_changes_for_new_episodes_and_only_falls_for_open_ones(tmp_path: Path) -> None:
    engine = Engine.open(make(tmp_path))
    engine.begin("old", 0)
    changed = engine.set_eta(5.0, author="me", reason="careful")
    assert engine.set_eta(5.0, author="me", reason="careful") == changed
    engine.begin("new", 0)
    engine.begin("own", 0, eta=3.0)
    assert said(engine.begin("new", 0))["eta"] == 5.0
    assert said(engine.decide("new", 0, 0))["remaining"] <= 5.0
    assert said(engine.decide("own", 0, 0))["remaining"] <= 3.0
    assert "eta" not in said(engine.begin("old", 0))
    lowered = engine.tighten("old", 10.0, author="me", reason="careful")
    assert engine.tighten("old", 10.0, author="me", reason="careful") == lowered
    with pytest.raises(Refused, match="never raised"):
        engine.tighten("old", 11.0, author="me", reason="bold")
    lowest = engine.tighten("old", 0.0, author="me", reason="nothing more")
    assert engine.tighten("old", 10.0, author="me", reason="careful") == lowered
    assert said(lowest)["eta"] == 0.0
    assert said(engine.decide("old", 0, 0))["charge"] == 0.0
    for wrong in (-1.0, float("nan"), float("inf"), "5", None, True):
        with pytest.raises(Refused, match="'eta'"):
            engine.set_eta(wrong, author="me", reason="r")  # type: ignore[arg-type]
    engine.finish()


def test_the_baseline_to_play_alone_is_that_of_whoever_decides(tmp_path: Path) -> None:
    engine = Engine.open(with_policy(tmp_path, mode="apprentice"))
    told = engine.baseline()
    assert told["actions"] == [list(POLICY)] * HORIZON
    assert (told["states"], told["labels"]) == (list(STATES), ["wait", "treat"])
    engine.finish()


def test_an_explanation_prices_every_action_of_an_open_episode(tmp_path: Path) -> None:
    engine = Engine.open(make(tmp_path))
    engine.begin("bed", 0)
    decided = said(engine.decide("bed", 0, 0))
    told = engine.explanation("bed", 0)
    assert told is not None
    assert [action["label"] for action in told["actions"]] == ["wait", "treat"]
    assert told["deficit"] == 0.0
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    charge = {action["action"]: action["charge"] for action in told["actions"]}[decided["action"]]
    assert charge == decided["charge"] or not decided["explored"]
    assert engine.explanation("bed", 1) is None
    engine.abandon("bed")
    assert engine.explanation("bed", 0) is None
    engine.finish()


def test_episodes_may_end_early_in_any_state_where_that_is_declared(tmp_path: Path) -> None:
    told = {
        "states": list(STATES), "actions": ["wait", "treat"], "horizon": HORIZON,
        "reward_range": [-5.0, 5.0], "early_endings": True,
    }  # fmt: skip
    directory = with_policy(tmp_path, setting=told, mode="budgeted", planning={"every": 2})
    engine = Engine.open(directory)
    assert len(engine.baseline()["actions"][0]) == len(STATES)
    for number in range(20):
        name = f"bed {number}"
        engine.begin(name, 0)
        action = said(engine.decide(name, 0, 0))["action"]
        ended = engine.outcome(name, 0, action, -1.0, number % 4, True)
        assert engine.outcome(name, 0, action, -1.0, number % 4, True) == ended
        with pytest.raises(Refused, match="is over after 1 steps"):
            engine.decide(name, 1, number % 4)
        engine.close(name)
    with pytest.raises(Refused, match=r"'state' must lie in 0\.\.3"):
        engine.begin("beyond", len(STATES))
    assert engine.counters["completed"] == 20
    state = engine._live.packed()
    engine.finish()
    assert replay(directory).is_whole
    again = Engine.open(directory)
    again._live.seq -= 2  # Naming the snapshot and opening are events of their own.
    assert again._live.packed() == state
    again._live.seq += 2
    again.finish()


@pytest.mark.parametrize("agent", ["psrl", "baseline", "paper"])
def test_agents_without_a_budget_of_their_own_are_served_and_replayed(tmp_path: Path, agent: str) -> None:
    told: dict[str, dict[str, Any]] = {
        "psrl": {"name": "psrl", "worlds": 8},
        "baseline": {"name": "baseline", "bonus": "kl"},
        "paper": {"name": "chary", "eta": 50.0, "rule": "paper", "bonus": "kl"},
    }
    directory = make(tmp_path, agent=told[agent], planning={"every": 3}, limits={"snapshot_every": 100})
    engine = Engine.open(directory)
    with pytest.raises(Refused, match="'eta' of one episode can be given with rules strict and capped"):
        engine.set_eta(1.0, author="me", reason="r")
    with pytest.raises(Refused, match="rules strict and capped"):
        engine.begin("own", 0, eta=1.0)
    client = Wanderer(engine, Random(1), own_etas=False)
    client.requests(400)
    assert engine.counters["decided"] > 20
    engine.finish()
    assert replay(directory).is_whole
