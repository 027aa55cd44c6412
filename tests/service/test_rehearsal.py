"""The simulated clinic, the rehearsal and the demonstration, with the service as a process of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.test_http import certificate

from chary.audit import Truth
from chary.errors import InvalidSetting
from chary.mdp import Setting
from chary.service import local
from chary.service.clinic import Attempt, Clinic, Habits
from chary.service.demo import declaration
from chary.service.judging import true_losses
from chary.service.line import Line, LineLost
from chary.service.rehearsal import Hosted, NotServing, findings, truth_of
from chary.service.summary import summary
from chary.service.verify import verify
from chary.service.ward import ETA, GRADES, TREATMENTS, VISITS, todays_rule, ward

# Everything that can go wrong does, often.
HABITS = Habits(
    beds=8,
    pace=0.01,
    delay=0.1,
    lost=0.05,
    overruled=0.1,
    skipped=0.05,
    leaving=0.03,
    repeated=0.2,
    unheard=0.2,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic")
    local.make(folder / "ward", declaration(folder))
    return folder / "ward"


def test_what_the_clinic_counts_is_what_the_database_says(directory: Path) -> None:
    attempts: list[Attempt] = []
    with Hosted(directory) as hosted:
        hosted.start()
        token = local.local_token(directory)
        service = local.running(directory)
        assert service is not None
        local.call(service, directory, "PUT", "/v1/mode", {"mode": "budgeted", "reason": "tests"})
        clinic = Clinic(
            hosted.url, token, ward(), HABITS, eta=ETA, labels={"action": TREATMENTS}, watch=attempts.append
        )
        tally = asyncio.run(clinic.run(episodes=60))
        asyncio.run(unanswered(hosted))
        hosted.stop()
    counts, told = tally.counts, summary(directory)
    assert tally.differing == []
    assert tally.over_budget() == []
    assert 0.0 < tally.highest_share() <= 1.0
    assert counts["explored"] > 0
    # Where a reply was not heard the service has acted all the same, and the clinic knows no less for it.
    assert (told["episodes"], told["decisions"], told["explored"]) == (
        counts["episodes"], counts["decisions"], counts["explored"]
    )  # fmt: skip
    assert told["ledgers_above_their_budget"] == 0
    losses = true_losses(directory, ward(), ETA)
    assert losses.episodes == 60
    assert 0.0 < losses.highest <= ETA
    assert losses.above == 0
    assert true_losses(directory, ward(), losses.highest / 2).above > 0
    assert told["largest_deficit"] == max(tally.spent.values())
    for name in ("unheard replies", "repeated requests", "late outcomes", "overruled", "not taken"):
        assert counts[name] > 0, name
    assert len([each for each in attempts if each.status is None]) >= counts["unheard replies"] * 0.9
    assert verify(directory).is_whole
    assert not (directory / local.RUNNING).exists()


async def unanswered(hosted: Hosted) -> None:
    """A line that was hung up opens another, and a token that nobody knows is refused."""
    line = Line(hosted.url, "chary_nobody_nothing")
    await line.send_and_hang_up("GET", "/v1/mode")
    assert (await line.call("GET", "/v1/mode")).status == 401
    assert (await line.call("GET", "/healthz")).status == 200
    await line.end()
    nowhere = Line("http://127.0.0.1:9", timeout=1.0)
    with pytest.raises(LineLost):
        await nowhere.call("GET", "/")
    with pytest.raises(InvalidSetting):
        Line("ftp://127.0.0.1")


def test_a_service_that_cannot_start_says_why(directory: Path) -> None:
    with Hosted(directory) as first:
        first.start()
        with Hosted(directory) as second, pytest.raises(NotServing, match="locked"):
            second.start()


def test_commands_on_this_machine_reach_a_service_behind_tls(directory: Path, tmp_path: Path) -> None:
    proof, key = certificate(tmp_path, "clinic.example")
    with Hosted(directory, "--certificate", str(proof), "--key", str(key)) as hosted:
        hosted.start()
        assert hosted.url.startswith("https://")
        service = local.running(directory)
        assert service is not None
        assert local.call(service, directory, "GET", "/v1/mode")["mode"]
        with pytest.raises(local.Unreachable, match="no such path"):
            local.call(service, directory, "GET", "/v2")
        # Another certificate in its place is not taken for it.
        other, _ = certificate(tmp_path, "other.example")
        with pytest.raises(local.Unreachable, match="must answer"):
            local.call(service._replace(certificate=str(other)), directory, "GET", "/v1/mode")
        # A note of a process that has gone does not lead to whoever answers there now.
        note = (directory / local.RUNNING).read_text()
        gone = subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
        )
        (directory / local.RUNNING).write_text(note.replace(str(service.pid), gone.stdout.strip()))
        assert local.running(directory) is None
        (directory / local.RUNNING).write_text(note)
        assert local.running(directory) == service
        # Nor does a note of an instance before, or one that was copied with its folder.
        for changed in (
            json.dumps({**json.loads(note), "instance": "0" * 32}),
            json.dumps({name: value for name, value in json.loads(note).items() if name != "instance"}),
        ):
            (directory / local.RUNNING).write_text(changed)
            assert local.running(directory) is None
        (directory / local.RUNNING).write_text(note)
        shutil.copytree(directory, tmp_path / "copy")
        assert (tmp_path / "copy" / local.RUNNING).read_text() == note
        assert local.running(tmp_path / "copy") is None
        # After a kill the note of the place stays, and nobody answers there.
        hosted.kill()
    assert (directory / local.RUNNING).exists()
    assert local.running(directory) is None


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [sys.executable, "-m", "chary", *arguments], capture_output=True, text=True, timeout=250, check=False
    )
    assert run.returncode == 0, run.stderr
    return run


def test_a_rehearsal_measures_a_copy_and_leaves_the_deployment_alone(directory: Path) -> None:
    before = {file.name: file.read_bytes() for file in directory.glob("*.*") if "-shm" not in file.name}
    run = command(
        "serve", "rehearse", str(directory), "--seconds", "2", "--beds", "6", "--pace", "0.02", "--json"
    )
    told: dict[str, Any] = json.loads(run.stdout)
    assert told["episodes"] > 6
    assert told["decisions"] > told["episodes"]
    assert told["over_budget"] == 0
    assert 0.0 < told["restart_seconds"] < 200.0
    assert told["truth"] == "a problem resampled from the log"
    assert (told["truly_above"], told["explored"] > 0) == (0, True)
    assert 0.0 <= told["true_loss_mean"] <= told["true_loss_highest"] <= told["eta"]
    assert -60.0 < told["incumbent_value"] < 600.0
    assert not [each for each in told["findings"] if "defect" in each]
    after = {file.name: file.read_bytes() for file in directory.glob("*.*") if "-shm" not in file.name}
    assert after == before


def test_the_demonstration_keeps_what_it_says(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(
        command("serve", "demo", "--pace", "0.12", "--out", str(tmp_path / "demo"), "--json").stdout
    )
    assert set(told["modes"]) == {"apprentice", "budgeted", "stopped"}
    for mode in ("apprentice", "stopped"):
        assert told["modes"][mode]["decisions"] > 0
        assert told["modes"][mode]["explored"] == 0
    assert told["modes"]["budgeted"]["explored"] > 0
    assert (told["ledgers_above_eta"], told["answered_otherwise"]) == (0, 0)
    assert 0.0 < told["highest_ledger"] <= told["eta"]
    assert told["truly_above_eta"] == 0
    assert told["true_loss_highest"] <= told["eta"]
    # Today's rule from a uniformly random grade, by the clinic that is known: no number of the run.
    rule = Truth(ward()).evaluate([todays_rule(grade) for grade in range(GRADES)]).value
    assert told["rule_value"] == pytest.approx(rule[0].mean() * 110.0 - 10.0 * VISITS)
    assert "as they were written" in told["audit"]
    assert verify(tmp_path / "demo" / "ward").is_whole


def test_findings_name_what_would_go_wrong() -> None:
    clinic = Clinic("http://127.0.0.1:9", "", ward(), Habits(), eta=1.0)
    tally = clinic.tally
    tally.counts.update({"decisions": 50, "lost outcomes": 5})
    tally.refusals["too_many_open"], tally.messages["too_many_open"] = 3, "Close some."
    tally.differing.append("POST /x: b'1', then b'2'")
    tally.spent["a"], tally.budget["a"] = 2.0, 1.0
    said = list(findings(tally, 1.0, losses=False))
    assert [each.split()[0] for each in said] == ["1", "1", "3", "None", "10.0"]
    assert "10.0 % of the outcomes were lost" in said[-1]
    tally.counts["explored"] = 1
    assert len(list(findings(tally, 1.0, losses=True))) == 3


def test_without_a_log_a_problem_is_drawn_within_the_declaration() -> None:
    setting = Setting.declare(
        n_states=5, n_actions=2, horizon=3, terminal=[4], support=2, reward_range=(0.0, 9.0),
        allowed=[[True, True]] * 3 + [[True, False]] * 2, reward=lambda s, a: 2.0 * s + a,
    )  # fmt: skip
    truth, about = truth_of(setting, None, None, seed=3)
    assert "at random" in about
    assert (truth.setting.allowed == setting.allowed).all()
    assert (np.diff(truth.row_start) <= 2).all()
    after, probability, reward = truth.row(3, 0)
    assert probability.sum() == pytest.approx(1.0)
    assert reward * 9.0 == pytest.approx(np.full(len(after), 6.0))
    assert truth.start[4] == 0.0


def test_the_state_of_early_endings_keeps_to_itself_in_a_drawn_problem() -> None:
    setting = Setting.declare(
        n_states=3, n_actions=2, horizon=4, reward_range=(-6.0, 2.0), early_endings=True
    )
    truth, _ = truth_of(setting, None, None, seed=1)
    assert setting.ending == 3
    assert truth.setting.ending == 3
    after, probability, reward = truth.row(3, 0)
    assert (after.tolist(), probability.tolist()) == ([3], [1.0])
    assert truth.scale.low + truth.scale.span * reward[0] == pytest.approx(0.0)
    assert truth.start[3] == 0.0
