"""A plan that contradicts what was declared is refused, and episodes go on under the last good one."""

from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.service.log import rewrite, rows
from tests.service.served import direct, make

from chary.agents.draft import Draft
from chary.service import logs, planning
from chary.service.engine import Engine
from chary.service.replay import replay
from chary.service.summary import summary
from chary.service.verify import verify

CAP = 5.0
SETTING = {
    "n_states": 2, "n_actions": 2, "horizon": 2, "reward_range": [0.0, 10.0], "value_cap": CAP, "support": 1,
}  # fmt: skip


def capped(folder: Path, every: int) -> Path:
    """Return a deployment that declares that nobody earns more than `CAP` in an episode."""
    return make(
        folder, setting=SETTING, agent={"name": "chary", "eta": 8.0, "bonus": "kl"}, planning={"every": every}
    )


def treat(engine: Engine, number: int, reward: float) -> dict[str, Any]:
    """Treat a patient, who is observed to earn so much per step whatever is done."""
    name = f"bed {number}"
    engine.begin(name, 0)
    for t in range(2):
        decided = json.loads(engine.decide(name, t, 0).body)
        engine.outcome(name, t, decided["action"], reward, 0, False)
    engine.close(name)
    return dict(decided)


def contradict(engine: Engine, *, upto: int) -> list[dict[str, Any]]:
    """Treat patients, first as declared and then better, until two plans were refused."""
    told = [treat(engine, number, 1.0) for number in range(20)]
    for number in range(20, upto):
        told.append(treat(engine, number, 10.0))
        # Plans are made in another thread, which takes turns with this one.
        time.sleep(0.0 if engine._planner.inline else 0.002)
        if engine.counters["plans_refused"] > 1:
            return told
    raise AssertionError("no plan was refused")


@pytest.mark.parametrize("every", [0, 10])
def test_a_plan_that_contradicts_the_declaration_is_refused_and_the_last_one_stays(
    tmp_path: Path, every: int
) -> None:
    directory = capped(tmp_path, every)
    stream = io.StringIO()
    with logs.as_lines(stream), direct(directory) as clinic:
        engine = clinic.engine
        told = contradict(engine, upto=1000)
        plans = engine.counters["plans"]
        assert plans > 0
        # The first plan is made without being adopted.
        assert told[-1]["plan"] == plans + 1
        assert clinic.call("POST", "/v1/episodes", {"episode": "one more", "state": 0}).status == 201
        mode = clinic.call("GET", "/v1/mode").json()
        assert "'value_cap' must bound the value of every policy" in mode["plan_refused"]["reason"]
        page = clinic.call("GET", "/metrics").body.decode()
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        assert found["chary_plans_refused_total"] == engine.counters["plans_refused"]
        state, head = engine._live.packed(), engine.head
        engine.wait(head)
        crashed = tmp_path / "crashed"
        shutil.copytree(directory, crashed)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["level"] for line in lines if line["event"] == "plan refused"} == {"error"}
    assert "value_cap" in summary(directory)["plan_refused"]
    assert verify(directory).found == []
    assert replay(directory).found == []
    # A start after a crash applies refusals as they were, and goes on.
    again = Engine.open(crashed)
    again._live.seq -= 1
    assert again._live.packed() == state
    again._live.seq += 1
    treat(again, 2000, 10.0)
    again.finish()


def test_a_plan_that_was_refused_without_a_reason_is_named_by_the_replay(tmp_path: Path) -> None:
    directory = capped(tmp_path, 0)
    engine = Engine.open(directory)
    contradict(engine, upto=1000)
    engine.finish()
    ((refused,),) = rows(directory, "SELECT min(seq) FROM event WHERE kind = 'plan_refused'")
    rewrite(directory, refused, lambda body: body.replace("at least", "at most"))
    assert ("plan", refused) in {(each.where, each.seq) for each in replay(directory).found}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_plan_that_could_not_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is no refusal, such as too little memory, does not end all planning."""
    engine = Engine.open(make(tmp_path))
    make_it, tried = Draft.make, []

    def hardly(draft: Draft) -> None:
        tried.append(draft.version)
        if len(tried) < 3:
            raise MemoryError
        make_it(draft)

    monkeypatch.setattr(planning, "AFTER_FAILURE", 0.0)
    monkeypatch.setattr(Draft, "make", hardly)
    number = 0
    while not engine.counters["plans"]:
        name, state = f"bed {number}", "calm"
        engine.begin(name, state)
        engine.outcome(name, 0, json.loads(engine.decide(name, 0, state).body)["action"], 1.0, state, False)
        engine.close(name)
        number += 1
        time.sleep(0.002)
        assert number < 2000
    assert tried[:3] == tried[:1] * 3
    engine.finish()
