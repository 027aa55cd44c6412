"""The engine: the same request gets the same bytes, another one is refused, and nothing is refunded."""

from __future__ import annotations

import asyncio
import hmac
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.service.served import ACTIONS, ETA, STATES, declaration, make

from chary.errors import InvalidData, InvalidSetting
from chary.service.answers import Answer, Refused
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.store import Reader
from chary.service.views import Views


@contextmanager
def running(directory: Path, **options: Any) -> Iterator[Engine]:
    engine = Engine.open(directory, **options)
    try:
        yield engine
    finally:
        engine.finish()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with running(make(tmp_path)) as opened:
        yield opened


def said(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.body)
    return told


def refused(status: int, code: str, call: Any, *args: Any, **kwargs: Any) -> str:
    engine = call.__self__
    before = engine.head
    with pytest.raises(Refused) as caught:
        call(*args, **kwargs)
    assert (caught.value.status, caught.value.code) == (status, code), caught.value
    assert engine.head == before == caught.value.seq
    return str(caught.value)


def step(engine: Engine, name: str, t: int, state: int, to: int) -> tuple[Answer, Answer]:
    decided = engine.decide(name, t, state)
    return decided, engine.outcome(name, t, said(decided)["action"], 1.0, to, False)


def test_the_same_request_gets_the_same_bytes_at_any_later_time(engine: Engine) -> None:
    begun = engine.begin("bed", 0, payload={"born": 1970})
    assert begun.status == 201
    # Before it is on the disk, after it, and once the episode has ended.
    assert engine.begin("bed", 0, payload={"born": 1970}) == begun._replace(status=200)
    decided, observed = step(engine, "bed", 0, 0, 1)
    action = said(decided)["action"]
    calls: list[tuple[Any, tuple[Any, ...], Answer]] = [
        (engine.decide, ("bed", 0, 0), decided),
        (engine.outcome, ("bed", 0, action, 1.0, 1, False), observed),
        (engine.taken, ("bed", 0, action), engine.taken("bed", 0, action)),
        (engine.close, ("bed",), engine.close("bed")),
    ]
    for _ in range(2):
        for call, args, first in calls:
            assert call(*args) == first
        engine.wait(engine.head)
        engine._live.prune(engine.durable_seq)
    assert engine._live.records == {}
    head = engine.head
    assert engine.begin("bed", 0, payload={"born": 1970}).body == begun.body
    assert engine.head == head


def test_another_request_for_the_same_key_is_refused_and_changes_nothing(engine: Engine) -> None:
    engine.begin("bed", 0)
    decided, _ = step(engine, "bed", 0, 0, 1)
    action = said(decided)["action"]
    refused(409, "contradiction", engine.begin, "bed", 1)
    refused(409, "contradiction", engine.begin, "bed", 0, eta=1.0)
    refused(409, "contradiction", engine.begin, "bed", 0, payload="another")
    refused(409, "contradiction", engine.decide, "bed", 0, 1)
    refused(409, "contradiction", engine.decide, "bed", 1, 2)
    refused(409, "wrong_step", engine.decide, "bed", 2, 1)
    refused(409, "wrong_step", engine.decide, "bed", -1, 1)
    refused(409, "contradiction", engine.outcome, "bed", 0, action, 2.0, 1, False)
    refused(409, "contradiction", engine.taken, "bed", 0, 1 - action)
    refused(409, "wrong_step", engine.outcome, "bed", 1, action, 1.0, 1, False)
    refused(404, "unknown_episode", engine.decide, "nobody", 0, 0)
    engine.decide("bed", 1, 1)
    refused(409, "no_outcome", engine.correct, "bed", 1, 0, 1.0, 1, False, reason="r")
    engine.close("bed")
    refused(410, "closed", engine.decide, "bed", 2, 1)


def test_a_budget_that_was_left_out_is_that_of_the_deployment(engine: Engine) -> None:
    begun = {
        "as declared": engine.begin("as declared", 0),
        "said": engine.begin("said", 0, eta=ETA),
        "own": engine.begin("own", 0, eta=3.0),
    }
    # Both ways to say the same, whatever is in force later.
    for _ in range(2):
        for name in ("as declared", "said"):
            for eta in (ETA, None):
                assert engine.begin(name, 0, eta=eta).body == begun[name].body
        assert engine.begin("own", 0, eta=3.0).body == begun["own"].body
        refused(409, "contradiction", engine.begin, "own", 0)
        refused(409, "contradiction", engine.begin, "own", 0, eta=ETA)
        refused(409, "contradiction", engine.begin, "as declared", 0, eta=3.0)
        if engine._live.eta is None:
            engine.set_eta(3.0, author="me", reason="careful")
    later = engine.begin("later", 0)
    assert engine.begin("later", 0, eta=3.0).body == later.body
    refused(409, "contradiction", engine.begin, "later", 0, eta=ETA)


def test_a_change_of_the_budget_says_what_it_was_and_can_be_bound_to_that(engine: Engine) -> None:
    first = engine.set_eta(5.0, author="me", reason="careful", before=ETA)
    assert said(first) == {"author": "me", "before": ETA, "eta": 5.0, "reason": "careful"}
    for before in (ETA, UNSET):
        assert engine.set_eta(5.0, author="me", reason="careful", before=before) == first
    refused(409, "contradiction", engine.set_eta, 5.0, author="me", reason="careful", before=None)
    other = engine.set_eta(7.0, author="you", reason="bolder", before=5.0)
    assert said(other)["before"] == 5.0
    # The first one, sent again late, does not undo the other.
    refused(409, "contradiction", engine.set_eta, 5.0, author="me", reason="careful", before=ETA)
    refused(422, "invalid", engine.set_eta, 5.0, author="me", reason="careful", before=-1.0)
    assert engine.deployment()["eta"] == 7.0


def test_a_mode_that_is_set_again_from_another_one_is_another_request(engine: Engine) -> None:
    frozen = engine.set_mode("frozen", author="me", reason="r", before="budgeted")
    for before in ("budgeted", None):
        assert engine.set_mode("frozen", author="me", reason="r", before=before) == frozen
    refused(409, "contradiction", engine.set_mode, "frozen", author="me", reason="r", before="apprentice")


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("begin", ("", 0)),
        ("begin", ("x" * 201, 0)),
        ("begin", ("new", 4)),
        ("begin", ("new", -1)),
        ("begin", ("new", True)),
        ("begin", ("new", "clam")),
        ("begin", ("new", 1.0)),
        ("decide", ("bed", 1, 9)),
        ("outcome", ("bed", 0, 5.0, 1.0, 1, False)),
        ("outcome", ("bed", 0, 0, float("nan"), 1, False)),
        ("outcome", ("bed", 0, 0, 10.5, 1, False)),
        ("outcome", ("bed", 0, 0, "1", 1, False)),
        ("outcome", ("bed", 0, 0, 1.0, 1, 0)),
    ],
)
def test_values_out_of_range_are_refused(engine: Engine, call: str, args: tuple[Any, ...]) -> None:
    engine.begin("bed", 0)
    engine.decide("bed", 0, 0)
    sentence = refused(422, "invalid", getattr(engine, call), *args)
    assert "must" in sentence
    assert "\n" not in sentence


def test_labels_stand_for_numbers(engine: Engine) -> None:
    engine.begin("bed", "calm")
    decided = engine.decide("bed", 0, "calm")
    assert said(decided)["label"] in ("wait", "treat")
    assert engine.decide("bed", 0, 0) == decided
    assert engine.outcome("bed", 0, said(decided)["label"], 1.0, "ill", False).status == 200
    assert "Did you mean 'calm'?" in refused(422, "invalid", engine.begin, "new", "clam")


def test_outcomes_come_late_in_any_order_and_once(engine: Engine) -> None:
    engine.begin("bed", 0)
    first = said(engine.decide("bed", 0, 0))["action"]
    second = said(engine.decide("bed", 1, 1))["action"]
    engine.close("bed")
    assert engine.open_episodes == 1
    engine.outcome("bed", 1, second, 0.5, 2, False)
    refused(422, "invalid", engine.outcome, "bed", 0, first, 0.5, 2, False)
    engine.outcome("bed", 0, first, 0.5, 1, False)
    assert engine.open_episodes == 0
    assert engine.counters["completed"] == 1


def test_an_abandoned_episode_takes_no_more_reports(engine: Engine) -> None:
    engine.begin("bed", 0)
    action = said(engine.decide("bed", 0, 0))["action"]
    gone = engine.abandon("bed", reason="moved away")
    assert said(gone) == {"lost": [0], "reason": "moved away"}
    assert engine.abandon("bed", reason="moved away") == gone
    refused(409, "contradiction", engine.abandon, "bed", reason="another")
    refused(410, "ended", engine.outcome, "bed", 0, action, 1.0, 1, False)
    refused(409, "abandoned", engine.close, "bed")
    assert engine.open_episodes == 0


def test_a_closed_episode_that_is_abandoned_repeats_both_answers_after_a_restart(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with running(directory) as engine:
        engine.begin("bed", 0)
        engine.decide("bed", 0, 0)
        closed, gone = engine.close("bed"), engine.abandon("bed")
    with running(directory) as engine:
        assert (engine.close("bed"), engine.abandon("bed")) == (closed, gone)


def test_a_correction_is_kept_and_what_was_learnt_stays(engine: Engine) -> None:
    engine.begin("bed", 0)
    decided, observed = step(engine, "bed", 0, 0, 1)
    action = said(decided)["action"]
    engine.close("bed")
    engine.wait(engine.head)
    engine._live.prune(engine.durable_seq)
    first = engine.correct("bed", 0, action, 2.0, 1, False, reason="typing mistake")
    # A retry at once, before the first is on the disk.
    assert engine.correct("bed", 0, action, 2.0, 1, False, reason="typing mistake") == first
    second = engine.correct("bed", 0, action, 3.0, 1, False, reason="again")
    assert second.seq == first.seq + 1
    assert engine.correct("bed", 0, action, 2.0, 1, False, reason="typing mistake") == first
    assert engine.outcome("bed", 0, action, 1.0, 1, False) == observed
    engine.wait(engine.head)
    shown = Views(engine._deployment.directory).decision("bed", 0)
    assert shown is not None
    assert (shown["outcome"]["reward"], shown["correction"]["reward"]) == (1.0, 3.0)


def test_steps_played_by_the_client_are_noted_once(engine: Engine) -> None:
    engine.begin("bed", 0)
    steps: list[dict[str, Any]] = [
        {"t": 0, "state": 0, "action": 1, "reward": 1.0, "next_state": 1, "terminated": False},
        {"t": 1, "state": 1, "action": 0},
    ]
    told = engine.fallback("bed", steps)
    assert said(told) == {"steps": [0, 1]}
    head = engine.head
    assert engine.fallback("bed", steps).body == told.body
    assert engine.head == head
    refused(409, "contradiction", engine.fallback, "bed", [{"t": 1, "state": 1, "action": 1}])
    refused(422, "invalid", engine.fallback, "bed", [{"t": 2, "state": 1}])
    refused(422, "invalid", engine.fallback, "bed", [])
    assert said(engine.outcome("bed", 1, 0, 2.0, 2, False))["reward"] == 2.0


def test_a_fallback_where_a_decision_was_made_is_what_was_taken(engine: Engine) -> None:
    engine.begin("bed", 0)
    action = said(engine.decide("bed", 0, 0))["action"]
    engine.fallback("bed", [{"t": 0, "state": 0, "action": 1 - action}])
    refused(409, "contradiction", engine.outcome, "bed", 0, action, 1.0, 1, False)
    assert engine.outcome("bed", 0, 1 - action, 1.0, 1, False).status == 200


def test_no_more_episodes_than_the_limit_are_open(tmp_path: Path) -> None:
    with running(make(tmp_path, limits={"open_episodes": 2})) as engine:
        first = engine.begin("a", 0)
        engine.begin("b", 0)
        assert "No more than 2" in refused(429, "too_many_open", engine.begin, "c", 0)
        assert engine.begin("a", 0).body == first.body
        engine.abandon("b")
        assert engine.begin("c", 0).status == 201


def test_names_and_payloads_lie_apart_and_are_erased(engine: Engine) -> None:
    engine.begin("Ada Lovelace", 0, payload={"ward": "north-wing"})
    engine.close("Ada Lovelace")
    engine.wait(engine.head)
    directory = engine._deployment.directory
    names = (b"Ada Lovelace", b"north-wing")

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in directory.glob("chary.db*"))

    assert all(name in kept() for name in names)
    erased = engine.erase("Ada Lovelace", author="me", reason="asked for")
    assert engine.erase("Ada Lovelace", author="me", reason="asked for") == erased
    engine.wait(erased.seq)
    engine._committer.finish()
    assert not any(name in kept() for name in names)
    refused(410, "erased", engine.begin, "Ada Lovelace", 0)


def test_modes_say_who_decides_and_a_late_change_cannot_undo_a_stop(engine: Engine) -> None:
    stopped = engine.stop(author="me", reason="alarm")
    assert engine.stop(author="me", reason="alarm") == stopped
    refused(409, "contradiction", engine.set_mode, "budgeted", author="me", reason="r", before="frozen")
    refused(422, "invalid", engine.set_mode, "sleeping", author="me", reason="r")
    refused(422, "invalid", engine.set_mode, "frozen", author="", reason="r")
    assert engine.mode == "stopped"
    engine.set_mode("frozen", author="me", reason="checked", before="stopped")
    assert said(engine.stop(author="me", reason="alarm"))["before"] == "frozen"
    engine.wait(engine.head)
    now = Views(engine._deployment.directory).mode()["mode"]
    assert (now["mode"], now["author"], now["reason"]) == ("stopped", "me", "alarm")


def test_a_token_is_kept_as_a_hash_until_it_is_revoked(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with running(directory) as engine:
        engine.add_token("t1", "ab" * 32, scopes=("read",), label="ward", expires=None, author="me")
        refused(
            409,
            "contradiction",
            engine.add_token,
            "t1",
            "cd" * 32,
            scopes=(),
            label="",
            expires=None,
            author="",
        )
    with running(directory) as engine:
        assert engine.tokens["t1"]["digest"] == "ab" * 32
        engine.revoke_token("t1", author="me", reason="lost")
        refused(404, "unknown_token", engine.revoke_token, "t1", author="me", reason="lost")
        assert engine.tokens == {}
    assert [(token["id"], token["revoked"] is not None) for token in Views(directory).tokens()] == [
        ("t1", True)
    ]


def test_answers_may_leave_once_they_are_on_the_disk(engine: Engine) -> None:
    async def two_beds() -> None:
        answers = [engine.begin(name, 0) for name in ("a", "b")]
        await asyncio.gather(*(engine.durable(answer.seq) for answer in answers))
        assert engine.durable_seq >= answers[-1].seq
        await engine.durable(answers[0].seq)

    asyncio.run(two_beds())
    # Another loop, as when a server is started anew in the same process.
    asyncio.run(two_beds_again(engine))


async def two_beds_again(engine: Engine) -> None:
    answer = engine.decide("a", 0, 0)
    await engine.durable(answer.seq)
    assert [event["seq"] for event in Views(engine._deployment.directory).events(after=answer.seq - 1)] == [
        answer.seq
    ]


def test_a_deployment_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with pytest.raises(InvalidSetting, match="must be new or empty"):
        Deployment.create(directory, declaration(tmp_path))
    for wrong in (
        {"setting": {"n_states": 2, "n_actions": 2}},
        {"setting": {"n_states": 2, "n_actions": 2, "horizon": 2, "colour": "red"}},
        {"agent": {"name": "canary", "eta": 1.0}},
        {"agent": {"name": "epsmix", "eta": 1.0, "bonus": "kl"}},
        {"agent": {"name": "chary"}},
        {"mode": "asleep"},
        {"limits": {"open_episodes": 0}},
        {"planning": {"sometimes": 1}},
        {"policy": {"file": "nowhere.csv"}},
        {"log": {}, "seed": -1},
    ):
        with pytest.raises(ValueError, match="must"):
            Deployment.create(tmp_path / "new", declaration(tmp_path, **wrong))
    assert [path.name for path in tmp_path.iterdir()] == ["clinic"]
    assert (directory / "secret.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidData, match="chary serve init"):
        Engine.open(tmp_path)


def test_one_process_at_a_time_has_a_deployment(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with running(directory), pytest.raises(InvalidSetting, match="another process of chary has locked"):
        Engine.open(directory)


def test_both_libraries_of_sqlite_run_it(tmp_path: Path) -> None:
    pytest.importorskip("apsw")
    directory = make(tmp_path)
    with running(directory, connection="apsw") as engine:
        answer = engine.begin("bed", 0)
        assert engine.about["sqlite"].startswith("apsw 3.")
    with running(directory) as engine:
        assert engine.begin("bed", 0) == answer._replace(status=200)


def test_a_name_stands_for_its_keyed_hash(tmp_path: Path) -> None:
    deployment = Deployment.open(make(tmp_path))
    for name in ("bed", "", "x" * 200, "\udc80 \u00e9"):
        encoded = name.encode("utf-8", "surrogatepass")
        whole = hmac.new(deployment.secret, encoded, "sha256").hexdigest()
        assert deployment.identity(name) == whole[:32]


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("agent", ["bounds", "worlds"])
def test_a_deployment_with_known_rewards_labels_and_a_log_opens_and_decides(
    tmp_path: Path, agent: str, horizon: int
) -> None:
    rewards = [
        f"{state},{action},{8.0 * number}" for number, (state, action) in enumerate(product(STATES, ACTIONS))
    ]
    (tmp_path / "rewards.csv").write_text("\n".join(["state,action,reward", *rewards]) + "\n")
    log = [f"e{n},0,calm,wait,0.0,{STATES[n % 3]},false" for n in range(9)]
    header = "episode,t,state,action,reward,next_state,terminated"
    (tmp_path / "log.csv").write_text("\n".join([header, *log]) + "\n")
    options: dict[str, Any] = {"bonus": "kl"} if agent == "bounds" else {"bonus": "posterior", "worlds": 8}
    directory = make(
        tmp_path,
        setting={
            "states": list(STATES), "actions": list(ACTIONS), "horizon": horizon, "rewards": "rewards.csv",
        },
        agent={"name": "chary", "eta": 60.0, "reward": "known", **options},
        log={"file": "log.csv"},
    )  # fmt: skip
    with running(directory) as engine:
        engine.begin("bed", "calm")
        decided = said(engine.decide("bed", 0, "calm"))
        paid = 8.0 * decided["action"]
        refused(422, "invalid", engine.outcome, "bed", 0, decided["action"], paid + 1, "ill", False)
        assert engine.outcome("bed", 0, decided["action"], paid, "ill", False).status == 200
    text = (directory / "log.csv").read_text()
    (directory / "log.csv").write_text(text.replace("e8,", "f8,"))
    with pytest.raises(InvalidData, match="must be the log that the deployment was made with"):
        Engine.open(directory)
    (tmp_path / "log.csv").write_text(text.replace("e8,0,calm,wait,0.0", "e8,0,calm,wait,7.0"))
    with pytest.raises(InvalidData, match="must be the one the setting declares"):
        Deployment.create(
            tmp_path / "other", declaration(tmp_path, log={"file": "log.csv"}, setting=_told(directory))
        )


def _told(directory: Path) -> dict[str, Any]:
    return dict(Deployment.open(directory).declaration.setting)


def test_an_episode_that_a_step_not_taken_completes_leaves_its_place_to_others(tmp_path: Path) -> None:
    directory = make(tmp_path, limits={"open_episodes": 1})
    with running(directory) as engine:
        for name in ("bed", "chair"):
            engine.begin(name, 0)
            engine.decide(name, 0, 0)
            engine.close(name)
            assert engine.open_episodes == 1
            engine.wait(engine.taken(name, 0, None).seq)
            assert engine.open_episodes == 0
        assert engine.counters["completed"] == 2
        engine._live.prune(engine.durable_seq)
        assert engine._live.records == {}


def test_what_was_erased_while_a_reader_held_the_log_is_gone_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(directory: Path) -> bool:
        return any(b"A-2231" in file.read_bytes() for file in directory.glob("chary.db*"))

    directory, killed = make(tmp_path), tmp_path / "killed"
    with running(directory) as engine:
        for number in range(40):
            engine.wait(engine.begin(f"chair {number}", 0).seq)
        engine.wait(engine.begin("Ada", 0, payload="A-2231").seq)
        reader = Reader(directory / "chary.db")
        with reader.at_one_moment():
            reader.query("SELECT count(*) FROM event")
            engine.wait(engine.erase("Ada", author="me", reason="asked for").seq)
            shutil.copytree(directory, killed)
        reader.close()
    assert left(killed)
    monkeypatch.setattr("chary.service.committer.ROWS_PER_CHECKPOINT", 5)
    with running(killed) as engine:
        for number in range(12):
            engine.wait(engine.begin(f"bed {number}", 0).seq)
        for _ in range(200):
            if not left(killed):
                break
            time.sleep(0.01)
        assert not left(killed)


def test_a_budget_above_that_of_the_deployment_is_an_operators(engine: Engine) -> None:
    refused(403, "scope", engine.begin, "bed", 0, eta=ETA + 1, operator=False)
    engine.set_eta(5.0, author="me", reason="careful")
    refused(403, "scope", engine.begin, "bed", 0, eta=6.0, operator=False)
    begun = engine.begin("bed", 0, eta=6.0, operator=True)
    # What was granted is answered again.
    assert engine.begin("bed", 0, eta=6.0, operator=False).body == begun.body
    assert engine.begin("chair", 0, eta=5.0, operator=False).status == 201


def test_what_remains_of_an_episode_is_what_its_last_tightening_left(tmp_path: Path) -> None:
    directory = make(tmp_path)
    with running(directory) as engine:
        engine.begin("bed", 0)
        spent = said(engine.decide("bed", 0, 0))["deficit"]
        views = Views(directory)
        for eta in (30.0, 0.0):
            engine.wait(engine.tighten("bed", eta, author="me", reason="careful").seq)
            told = views.episode("bed")
            assert told is not None
            assert (told["eta"], told["remaining"]) == (eta, max(eta - spent, 0.0))
        views.close()
