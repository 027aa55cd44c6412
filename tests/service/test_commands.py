"""`chary serve` and `chary audit`: what is made, refused and shown, and that bad input changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from chary.cli import main
from chary.envs import TabularEnv
from chary.service import local
from chary.service.declaring import Declaration
from chary.service.engine import Engine
from chary.service.hosting import DEFAULT_PORT
from chary.service.rehearsal import truth_of
from chary.service.ward import write_files

OPTIONS = (
    *("--eta", "15", "--horizon", "6", "--n-states", "6", "--n-actions", "3"),
    *("--reward-low", "-10", "--reward-high", "100", "--bonus", "kl", "--label", "action=none,mild,strong"),
)


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def refusal(self) -> str:
        """Return the one sentence of bad input."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("chary: ")
        assert self.err.count("\n") == 1
        assert len(self.err) < 600
        return self.err


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str | Path) -> Answer:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Answer(left.value.code, out, err)

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, patients=40)
    return folder


@pytest.fixture(scope="module")
def made(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made") / "ward"
    with pytest.raises(SystemExit) as left:
        main(["serve", "init", str(directory), str(files / "visits.csv"), *OPTIONS, "--losses"])
    assert left.value.code == 0
    return directory


@pytest.fixture
def ward(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ward"))


@pytest.fixture
def played(ward: Path) -> Path:
    """A deployment with three episodes: one is closed, one abandoned, one open."""
    engine = Engine.open(ward)
    engine.set_mode("budgeted", author="tests", reason="live")
    for name in ("a", "b", "c"):
        engine.begin(name, 3, payload={"record": 7})
        engine.decide(name, 0, 3)
    engine.outcome("a", 0, "mild", 40.0, 2, False)
    engine.close("a")
    engine.taken("b", 0, None)
    engine.abandon("b", reason="left")
    engine.wait(engine.head)
    engine.finish()
    return ward


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# init


def test_init_makes_a_folder_that_its_owner_alone_can_read(ward: Path) -> None:
    assert {"chary.toml", "chary.db", "log.csv", "secret.key", "operator.token"} <= set(contents(ward))
    for name in ("secret.key", "operator.token"):
        assert stat.S_IMODE((ward / name).stat().st_mode) == 0o600
    declared = Declaration.read(ward / "chary.toml")
    assert declared.setting["actions"] == ["none", "mild", "strong"]
    assert declared.agent == {"name": "chary", "eta": 15.0, "bonus": "kl", "losses": True}
    log = declared.problem().log
    assert log is not None
    assert (log.n_episodes, log.n_transitions) == (40, 240)
    # Episodes of a log are persons: the copy numbers them.
    assert log.names is None or not log.names


def test_init_takes_labels_policies_and_known_rewards(cli: Cli, files: Path, tmp_path: Path) -> None:
    rewards = tmp_path / "euros.csv"
    rows = [
        f"{grade},{action},{100 - 18 * grade - cost}"
        for grade in range(6)
        for action, cost in (("none", 0), ("mild", 6), ("strong", 16))
    ]
    rewards.write_text("\n".join(["state,action,reward", *rows]) + "\n")
    more = ("--baseline", files / "rule.csv", "--role", "only", "--rewards", rewards, "--mode", "frozen")
    answer = cli("serve", "init", tmp_path / "ward", files / "visits.csv", *OPTIONS, *more, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["standing"].startswith("Certified")
    declared = Declaration.read(tmp_path / "ward" / "chary.toml")
    assert (declared.mode, declared.agent["reward"], declared.policy["role"]) == ("frozen", "known", "only")
    problem = declared.problem()
    assert problem.incumbent is not None
    assert problem.incumbent[0].tolist() == [0, 0, 0, 1, 1, 1]
    known = problem.setting.known
    assert known is not None
    scale = problem.setting.scale
    assert scale.low + scale.span * known.other_low[3 * 3 + 2] == pytest.approx(100 - 18 * 3 - 16)


def test_init_plans_by_worlds_as_chary_plan_does(cli: Cli, files: Path, tmp_path: Path) -> None:
    given = [each for each in OPTIONS if each not in ("--bonus", "kl")]
    for name, more, bonus in (("worlds", (), "posterior"), ("bounds", ("--delta", "0.05"), None)):
        assert cli("serve", "init", tmp_path / name, files / "visits.csv", *given, *more).code == 0
        assert Declaration.read(tmp_path / name / "chary.toml").agent.get("bonus") == bonus


def test_init_from_a_declaration_makes_the_same_deployment(cli: Cli, ward: Path, tmp_path: Path) -> None:
    text = (ward / "chary.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("deployment")]
    (ward / "mine.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = cli("serve", "init", tmp_path / "again", "--declaration", ward / "mine.toml")
    assert answer.code == 0, answer.err
    there, here = (Declaration.read(each / "chary.toml") for each in (tmp_path / "again", ward))
    assert (there.fixed, there.problem().setting.digest) == (here.fixed, here.problem().setting.digest)


def test_init_declares_early_endings_where_the_log_has_them(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "costs.csv"
    rows = ["episode,t,state,action,reward,next_state,terminated"]
    for episode in range(30):
        rows.append(f"{episode},0,low,{'AB'[episode % 2]},-2,high,no")
        rows.append(f"{episode},1,high,A,-3,{'low,no' if episode % 3 else 'high,yes'}")
        rows += [f"{episode},2,low,B,-1,low,no"] if episode % 3 else []
    log.write_text("\n".join(rows) + "\n")
    given = ("--eta", "1", "--reward-low", "-5", "--reward-high", "0", "--bonus", "kl", "--support", "2")
    labels = ("--label", "state=low,high", "--label", "action=A,B")
    answer = cli("serve", "init", tmp_path / "ward", log, *given, *labels)
    assert answer.code == 0, answer.err
    assert "early_endings" in answer.out
    declared = Declaration.read(tmp_path / "ward" / "chary.toml")
    assert declared.setting == {
        "n_states": 2, "n_actions": 2, "horizon": 3, "reward_range": [-5.0, 0.0], "early_endings": True,
        "support": 2, "states": ["low", "high"], "actions": ["A", "B"],
    }  # fmt: skip
    problem = declared.problem()
    assert problem.setting.ending == 2
    assert problem.log is not None
    truth, _ = truth_of(problem.setting, problem.log, None, seed=0)
    for seed in range(20):
        world = TabularEnv(truth)
        state, ends = int(world.reset(seed=seed)[0]), False
        while not ends and state != 2:
            after, reward, *over, _ = world.step(np.int64(0))
            state, ends = int(after), any(over)
            assert -5.0 <= float(reward) <= 0.0


BAD_INITS = {
    "no log": ((), "'LOG'"),
    "no budget": (("{log}", "--horizon", "6"), "'eta'"),
    "no such log": (("missing.csv", "--eta", "1"), "missing.csv"),
    "another horizon": (("{log}", *OPTIONS, "--horizon", "2"), "'horizon'"),
    "too few actions": (("{log}", *OPTIONS, "--n-actions", "2"), "action"),
    "a reward out of range": (("{log}", *OPTIONS, "--reward-high", "50"), "reward"),
    "no such mode": (("{log}", *OPTIONS, "--mode", "quick"), "'mode'"),
    "a label missing": (("{log}", *OPTIONS, "--label", "state=a,b"), "state"),
    "no such option": (("{log}", *OPTIONS, "--etta", "1"), "--etta"),
    "both": (("{log}", "--declaration", "x.toml", "--eta", "1"), "'declaration'"),
    "no such declaration": (("--declaration", "x.toml"), "x.toml"),
    "a rule out of range": (("{log}", *OPTIONS, "--risk", "7"), "'risk'"),
}


@pytest.mark.parametrize("case", BAD_INITS)
def test_a_bad_init_is_one_sentence_and_leaves_nothing(
    cli: Cli, files: Path, tmp_path: Path, case: str
) -> None:
    arguments, word = BAD_INITS[case]
    given = [each.format(log=files / "visits.csv") for each in arguments]
    assert word in cli("serve", "init", tmp_path / "new" / "ward", *given).refusal()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_init_overwrites_nothing(cli: Cli, files: Path, ward: Path) -> None:
    before = contents(ward)
    assert "new or empty" in cli("serve", "init", ward, files / "visits.csv", *OPTIONS).refusal()
    assert contents(ward) == before


# tokens, modes and budgets, with the service not running


def test_a_token_is_printed_once_and_listed_without_its_secret(cli: Cli, ward: Path) -> None:
    text = cli(
        "serve", "token", ward, "create", "--label", "dash", "--scope", "read", "--days", "3"
    ).out.strip()
    prefix, ident, secret = text.split("_")
    assert prefix == "chary"
    listed = json.loads(cli("serve", "token", ward, "list", "--json").out)["tokens"]
    assert [(each["label"], each["scopes"]) for each in listed][1:] == [("dash", ["read"])]
    assert secret not in json.dumps(listed)
    assert secret.encode() not in (ward / "chary.db").read_bytes()
    assert cli("serve", "token", ward, "revoke", ident, "--reason", "lost").code == 0
    assert "revoked" in cli("serve", "token", ward, "list").out
    assert "'token'" in cli("serve", "token", ward, "revoke", ident).refusal()


def test_mode_and_budget_change_with_a_reason(cli: Cli, ward: Path) -> None:
    assert "since" in cli("serve", "mode", ward).out
    assert cli("serve", "mode", ward, "budgeted", "--reason", "reviewed").code == 0
    assert "budgeted" in cli("serve", "mode", ward).out
    assert "reviewed" in cli("serve", "mode", ward).out
    assert cli("serve", "eta", ward, "4", "--reason", "careful").code == 0
    assert cli("serve", "mode", ward, "stopped", "--reason", "drill").code == 0
    assert json.loads(cli("serve", "status", ward, "--json").out)["eta"] == 4.0
    now = json.loads(cli("serve", "mode", ward, "--json").out)
    assert (now["mode"], now["reason"], now["author"]) == ("stopped", "drill", local.AUTHOR)
    engine = Engine.open(ward)
    begun = json.loads(engine.begin("x", 3).body)
    answer = json.loads(engine.decide("x", 0, 3).body)
    engine.finish()
    assert (answer["mode"], answer["explored"]) == ("stopped", False)
    assert begun["eta"] == 4.0


BAD_CALLS: dict[str, tuple[tuple[str, ...], str]] = {
    "no label": (("serve", "token", "{ward}", "create", "--scope", "read"), "'label'"),
    "no scope": (("serve", "token", "{ward}", "create", "--label", "x"), "'scope'"),
    "unknown scope": (("serve", "token", "{ward}", "create", "--label", "x", "--scope", "all"), "'scope'"),
    "no end": (
        ("serve", "token", "{ward}", "create", "--label", "x", "--scope", "read", "--days", "-1"),
        "days",
    ),
    "no id": (("serve", "token", "{ward}", "revoke"), "'ID'"),
    "no such action": (("serve", "token", "{ward}", "delete"), "'action'"),
    "no such mode": (("serve", "mode", "{ward}", "fast", "--reason", "x"), "'mode'"),
    "mode without a reason": (("serve", "mode", "{ward}", "frozen"), "'reason'"),
    "blank reason": (("serve", "mode", "{ward}", "frozen", "--reason", "  "), "'reason'"),
    "budget below nought": (("serve", "eta", "{ward}", "--reason", "x", "--", "-1"), "'eta'"),
    "no number": (("serve", "eta", "{ward}", "nan", "--reason", "x"), "'eta'"),
    "erase a stranger": (("serve", "erase", "{ward}", "nobody", "--reason", "x"), "never used"),
    "no deployment": (("serve", "status", "{other}"), "'DIR'"),
    "no deployment to run": (("serve", "run", "{other}"), "'DIR'"),
    "no deployment to check": (("audit", "verify", "{other}"), "'DIR'"),
    "no deployment to rehearse": (("serve", "rehearse", "{other}"), "'DIR'"),
    "no beds": (("serve", "rehearse", "{ward}", "--beds", "0"), "'beds'"),
    "shares above one": (
        ("serve", "rehearse", "{ward}", "--late", "0.9", "--lost", "0.2"),
        "'late' and 'lost'",
    ),
    "no time": (("serve", "rehearse", "{ward}", "--seconds", "0"), "'seconds'"),
    "no pace": (("serve", "demo", "--pace", "0"), "'pace'"),
    "demo into a full folder": (("serve", "demo", "--out", "{ward}"), "'out'"),
    "other addresses without TLS": (("serve", "run", "{ward}", "--host", "0.0.0.0"), "--insecure"),
    "no such port": (("serve", "run", "{ward}", "--port", "70000"), "'port'"),
    "a key alone": (("serve", "run", "{ward}", "--key", "key.pem"), "'certificate'"),
    "no such certificate": (
        ("serve", "run", "{ward}", "--certificate", "no.pem", "--key", "no.pem"),
        "no.pem",
    ),
    "no such kind": (("audit", "export", "{ward}", "--kind", "seen"), "'kind'"),
    "export of a stranger": (("audit", "export", "{ward}", "--episode", "nobody"), "never used"),
    "no head": (("audit", "verify", "{ward}", "--head", "xyz"), "'head'"),
    "backup onto itself": (("serve", "backup", "{ward}", "{ward}"), "'OUT'"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_one_sentence_and_changes_no_event(
    cli: Cli, ward: Path, tmp_path: Path, case: str
) -> None:
    arguments, word = BAD_CALLS[case]
    given = [each.format(ward=ward, other=tmp_path) for each in arguments]
    before = list(exported(cli, ward))
    assert word in cli(*given).refusal()
    kinds = [event["kind"] for event in list(exported(cli, ward))[len(before) :]]
    # The lock is taken to look at some of them: events of their own.
    assert set(kinds) <= {"opened", "snapshot"}


def exported(cli: Cli, ward: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, cli("audit", "export", ward).out.splitlines())


# status, audit, erase and backup


def test_status_shows_what_the_database_says(cli: Cli, played: Path) -> None:
    told = json.loads(cli("serve", "status", played, "--json").out)
    episodes = ("episodes", "open", "abandoned", "decisions", "not_taken", "outcomes", "lost")
    assert [told[name] for name in episodes] == [3, 1, 1, 3, 1, 1, 1]
    assert told["running"] is None
    assert told["mode"]["mode"] == "budgeted"
    assert told["outstanding"] == 1
    with sqlite3.connect(played / "chary.db") as database:
        explored, highest = database.execute("SELECT sum(explored), max(deficit) FROM decision").fetchone()
        head = database.execute("SELECT hex(hash) FROM event ORDER BY seq DESC LIMIT 1").fetchone()[0]
    database.close()
    assert (told["explored"], told["largest_deficit"], told["head"]) == (explored, highest, head.lower())
    shown = cli("serve", "status", played).out
    assert "Not running." in shown
    assert head.lower() in shown


def test_verify_finds_a_flipped_byte_and_a_cut_tail(cli: Cli, played: Path) -> None:
    whole = cli("audit", "verify", played)
    assert whole.code == 0
    head = json.loads(cli("audit", "verify", played, "--json").out)["head"]
    assert head in whole.out
    assert cli("audit", "verify", played, "--head", head).code == 0
    assert cli("audit", "replay", played).code == 0
    with sqlite3.connect(played / "chary.db") as database:
        database.execute("DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)")
    database.close()
    assert cli("audit", "verify", played, "--head", head).code == 1
    with sqlite3.connect(played / "chary.db") as database:
        database.execute("UPDATE event SET body = replace(body, '40.0', '41.0') WHERE kind = 'observed'")
    database.close()
    changed = cli("audit", "verify", played)
    assert changed.code == 1
    assert "was changed" in changed.out
    assert (
        "audit verify" in cli("serve", "token", played, "create", "--label", "x", "--scope", "read").refusal()
    )


def test_an_export_holds_the_bytes_of_every_hash_and_no_names(cli: Cli, played: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    assert cli("audit", "export", played, "--out", out).code == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    with sqlite3.connect(played / "chary.db") as database:
        bodies = [body for (body,) in database.execute("SELECT body FROM event ORDER BY seq")]
    database.close()
    assert len(lines) == len(bodies)
    for line, body in zip(lines, bodies, strict=True):
        assert line.endswith(f'"body": {body}}}')
        json.loads(line)
    assert "record" not in out.read_text(encoding="utf-8")
    one = cli("audit", "export", played, "--episode", "a", "--kind", "decided").out.splitlines()
    assert [json.loads(line)["kind"] for line in one] == ["decided"]
    assert cli("audit", "export", played, "--out", out).refusal()


def test_erasing_a_person_leaves_the_trail_whole(cli: Cli, played: Path) -> None:
    assert cli("serve", "erase", played, "a", "--reason", "asked for").code == 0
    assert cli("audit", "verify", played).code == 0
    with sqlite3.connect(played / "chary.db") as database:
        kept = [json.loads(content)["name"] for (content,) in database.execute("SELECT content FROM payload")]
    database.close()
    assert sorted(kept) == ["b", "c"]


def test_a_backup_taken_while_the_engine_works_restores_to_the_same_answers(
    cli: Cli, played: Path, tmp_path: Path
) -> None:
    engine = Engine.open(played)
    answer = engine.decide("c", 0, 3)
    engine.wait(engine.head)
    assert cli("serve", "backup", played, tmp_path / "copy").code == 0
    engine.finish()
    assert cli("audit", "verify", tmp_path / "copy").code == 0
    restored = Engine.open(tmp_path / "copy")
    again = restored.decide("c", 0, 3)
    restored.finish()
    assert again.body == answer.body
    assert not (tmp_path / "copy" / "running.json").exists()


def cut(ward: Path) -> None:
    database = ward / "chary.db"
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])


def flip(ward: Path) -> None:
    content = bytearray((ward / "chary.db").read_bytes())
    for place in range(200, len(content), 997):
        content[place] ^= 0x55
    (ward / "chary.db").write_bytes(bytes(content))


def statement(*sql: str) -> Callable[[Path], None]:
    def run(ward: Path) -> None:
        with sqlite3.connect(ward / "chary.db") as database:
            for each in sql:
                database.execute(each)
        database.close()

    return run


def text(name: str, content: str) -> Callable[[Path], None]:
    def write(ward: Path) -> None:
        (ward / name).write_text(content)

    return write


def without(name: str) -> Callable[[Path], None]:
    return lambda ward: (ward / name).unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "half a database": cut,
    "an empty database": text("chary.db", ""),
    "something else as a database": text("chary.db", "nothing " * 1000),
    "flipped bytes": flip,
    "no database": without("chary.db"),
    "no key": without("secret.key"),
    "another key": text("secret.key", "zz"),
    "a broken declaration": text("chary.toml", "name = ["),
    "an unknown declaration": text("chary.toml", "name = 'x'\n[agents]\n"),
    "a broken log": text("log.csv", "nothing"),
    "no log": without("log.csv"),
    "a note of another program": text("running.json", '{"url": "gopher://x", "pid": "abc"}'),
    "a note of nobody": text(
        "running.json", '{"url": "https://127.0.0.1:1", "pid": 1, "certificate": "/no"}'
    ),
    "a newer schema": statement("PRAGMA user_version = 99"),
    "no events": statement("DELETE FROM event"),
    "a table less": statement("DROP TABLE decision"),
    "broken bodies": statement("UPDATE event SET body = '{' WHERE seq > 5", "UPDATE policy SET value = '{'"),
}
LOOKS = (
    *(("serve", "status"), ("serve", "mode"), ("serve", "token", "list"), ("serve", "mode", "frozen")),
    *(("audit", "verify"), ("audit", "replay"), ("audit", "export"), ("serve", "backup", "copy")),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_deployment_is_a_sentence_whatever_is_asked_of_it(
    cli: Cli, played: Path, tmp_path: Path, damage: str
) -> None:
    DAMAGES[damage](played)
    for part, command, *rest in LOOKS:
        given = [tmp_path / each if each == "copy" else each for each in rest]
        more = ["--reason", "x"] if rest == ["frozen"] else []
        answer = cli(part, command, played, *given, *more)
        assert answer.code in (0, 1, 2), answer
        assert "defect" not in answer.err, (part, command, answer.err)
        if answer.code == 2:
            assert answer.refusal()


def test_an_engine_that_runs_elsewhere_is_not_disturbed(cli: Cli, ward: Path) -> None:
    engine = Engine.open(ward)
    assert "locked" in cli("serve", "mode", ward, "frozen", "--reason", "x").refusal()
    assert cli("serve", "status", ward).code == 0
    engine.finish()


def test_the_help_names_the_port_that_the_service_takes() -> None:
    from chary.cli.serve import PORT

    assert PORT == DEFAULT_PORT
