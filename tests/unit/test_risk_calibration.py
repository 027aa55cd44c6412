"""The risk of posterior worlds, measured on siblings: what passes, is recorded, and is said of runs."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import beta

import chary
from chary.calibrate import RiskCalibration, calibrate_risk, risk
from chary.cli import main
from chary.envs import make
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.model.risk_calibration import RiskRecord, rate_limit, record_from_plain

AGENT = chary.CharyUCBVI(eta=0.3, bonus="posterior", worlds=4, risk=0.1, reward="known")
PLAY: dict[str, Any] = {"episodes": 20, "warmup": 2, "runs": 3}


def invented(monkeypatch: pytest.MonkeyPatch, rates: dict[str, Any]) -> list[tuple[float, str]]:
    """Let runs break the budget as told by kind of siblings, and return the list of what is asked for."""
    asked: list[tuple[float, str]] = []

    def play(work: str) -> tuple[int, bool]:
        given = json.loads(work)
        nominal, siblings = given["agent"]["risk"], given["siblings"]
        if given["run"] == 0:
            asked.append((nominal, siblings))
        return int(rates[siblings](nominal)), True

    monkeypatch.setattr(risk, "_play", play)
    return asked


def calibrated(**changes: Any) -> RiskCalibration:
    with ThreadPoolExecutor(1) as pool:
        return calibrate_risk("riverswim", AGENT, executor=pool, **{**PLAY, **changes})


def test_the_limit_is_never_below_that_of_independent_episodes_nor_that_of_whole_runs() -> None:
    # By hand: no violation in 10,000 episodes, 1 - 0.05^(1/10000).
    assert rate_limit([0] * 20, [500] * 20) == pytest.approx(1 - 0.05 ** (1 / 10_000))
    # All violations in one run: far above the limit of independent episodes.
    together, spread = rate_limit([0] * 19 + [20], [500] * 20), rate_limit([1] * 20, [500] * 20)
    alone = beta.ppf(0.95, 21, 10_000 - 20)
    assert spread == pytest.approx(alone)
    assert together > 1.5 * alone


def test_the_largest_risk_that_passes_is_confirmed_on_other_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    # Violations of 1,000 episodes at a nominal risk: half of it.
    asked = invented(monkeypatch, dict.fromkeys(("search", "check"), lambda nominal: 500 * nominal))
    found = calibrated(episodes=1000, runs=20, rate=0.05)
    assert asked == [(0.1, "search"), *asked[1:-1], (found.risk, "check")]
    assert found.risk is not None
    assert found.record is not None
    assert found.record.upper <= 0.05
    failed = [trial.risk for trial in found.trials if trial.verdict == "failed"]
    assert failed[0] == 0.1
    assert found.agent.risk == found.risk
    assert found.agent.calibration is found.record


def test_a_risk_that_fails_on_fresh_siblings_gives_way_to_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = {"search": lambda nominal: 0, "check": lambda nominal: 1000 * (nominal > 0.15)}
    asked = invented(monkeypatch, chance)
    found = calibrated(episodes=1000, runs=20, rate=0.05)
    assert [each for each, siblings in asked if siblings == "check"] == [
        max(each for each, siblings in asked if siblings == "search"),
        found.risk,
    ]
    assert found.risk == 0.1


def test_where_nothing_passes_there_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    invented(monkeypatch, dict.fromkeys(("search", "check"), lambda nominal: 500))
    found = calibrated(episodes=1000, runs=20, rate=0.05)
    assert found.record is None
    assert found.agent is AGENT
    assert "No nominal risk kept the rate of violations at 0.05" in found.describe()
    assert {trial.verdict for trial in found.trials} == {"failed"}
    assert {trial.siblings for trial in found.trials} == {"search"}


def test_a_check_tests_one_risk_on_fresh_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = invented(monkeypatch, {"check": lambda nominal: 0})
    assert calibrated(check=True).risk == 0.1
    assert asked == [(0.1, "check")]


def test_the_standing_names_the_measurement_of_exactly_this_configuration() -> None:
    found = calibrated(check=True, rate=0.9)
    assert found.record is not None
    run = chary.simulate(make("riverswim"), found.agent, episodes=20, warmup=2, seed=0)
    assert run.standing.level == "credible"
    assert found.record.given in run.standing.given
    assert "of 60 episodes" in found.record.given
    longer = chary.simulate(make("riverswim"), found.agent, episodes=21, warmup=2, seed=0)
    (said,) = [each for each in longer.standing.given if "the risk was measured" in each]
    assert said == ("the risk was measured for another configuration: calibrated for 20 episodes, played 21")


def test_a_variant_of_the_problem_is_not_what_was_measured() -> None:
    found = calibrated(check=True, rate=0.9)
    run = chary.simulate(make("riverswim", horizon=7), found.agent, episodes=20, warmup=2, seed=0)
    (said,) = [each for each in run.standing.given if "the risk was measured" in each]
    assert said == (
        "the risk was measured for another configuration: "
        "calibrated on siblings of riverswim, played a variant of it"
    )


@pytest.mark.parametrize(
    ("use", "phrase"),
    [
        ({}, ""),
        ({"logs": True}, "calibrated after random episodes, played after logs"),
        ({"losses": True}, "calibrated without lost outcomes, played with them"),
        ({"own": "only"}, "calibrated with prior none, played with own policy as only"),
    ],
)
def test_a_live_agent_names_what_it_does_otherwise_than_the_measured_runs(
    use: dict[str, Any], phrase: str
) -> None:
    found = calibrated(check=True, rate=0.9)
    assert found.record is not None
    setting = make("riverswim").told("known")
    own = None
    if "own" in use:
        own = chary.OwnBaseline.declare([0] * setting.n_states, setting, role=use["own"])
    live = chary.TabularAgent(
        found.agent, setting, max_episodes=20, warmup=2, own=own, losses=use.get("losses", False)
    )
    if "logs" in use:
        live.warm_start([[chary.Transition(1, 0, 0.0, 0, False)]])
    (said,) = [each for each in live.standing.given if "the risk was measured" in each]
    assert (found.record.given in said) == (not phrase)
    assert phrase in said


def test_a_record_is_read_back_and_speaks_for_its_options_alone() -> None:
    record = calibrated(check=True, rate=0.9).record
    assert record is not None
    assert record_from_plain(json.loads(json.dumps(record.to_plain()))) == record
    used = {"problem": "riverswim", **AGENT.calibrated(20, 2)}
    assert record.mismatches(used) == ()
    for change in ({"worlds": 8}, {"kappa": 5.0}, {"eta": 0.2}, {"growth": 0.1}, {"risk": 0.05}):
        other = replace(AGENT, **change).calibrated(20, 2)
        assert [each.split()[2] for each in record.mismatches(other)] == list(change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": 0.0}, "'rate' must lie in (0, 1)"),
        ({"violations": [1]}, "'runs' must be a whole number >= 2, got 1"),
        ({"violations": [1, 21]}, "'violations' must be at most 'episodes', 20, per run, got 21."),
        ({"played": {"risk": 0.1}}, "'played' must contain 'episodes'"),
        ({"played": {"risk": 2, "episodes": 20}}, "'risk' must lie in (0, 1)"),
        ({"extra": 1}, "a calibration's keys must be among"),
        ({"played": 3}, "a calibration must have all its keys with values of their type"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(change: dict[str, Any], said: str) -> None:
    plain = RiskRecord(
        problem="riverswim",
        options={},
        played={"risk": 0.1, "episodes": 20},
        rate=0.1,
        violations=(0, 1),
        exploring=1.0,
    ).to_plain()
    with pytest.raises((InvalidData, InvalidSetting, UnknownName), match=re.escape(said)):
        record_from_plain(plain | change)


@pytest.mark.parametrize(
    ("agent", "changes", "said"),
    [
        ({"bonus": "kl", "charge": "coupled"}, {}, "'bonus' must be 'posterior' to calibrate a risk"),
        ({"eta": None, "rule": "unlimited"}, {}, "'eta' must be finite"),
        ({"prior": [0] * 6}, {}, "'prior' must be none or 'recorded'"),
        ({}, {"runs": 1}, "'runs' must be a whole number >= 2, got 1"),
        ({}, {"rate": 1.0}, "'rate' must lie in (0, 1)"),
        ({}, {"rate": 0.001}, "'runs' times 'episodes' must be large enough to show a rate of 0.001"),
        ({"risk": 1e-4}, {}, "'runs' times 'episodes' must be large enough"),
        ({}, {"minutes": 0}, "'minutes' must lie in (0, inf]"),
    ],
)
def test_a_calibration_that_cannot_succeed_is_refused(
    agent: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(CharyError, match=re.escape(said)):
        calibrate_risk("riverswim", replace(AGENT, **agent), **{**PLAY, **changes})


def test_records_of_scales_and_risks_are_not_mixed_up() -> None:
    record = calibrated(check=True, rate=0.9).record
    with pytest.raises(InvalidSetting, match="must be the record of a calibrated bonus scale"):
        chary.CharyUCBVI(eta=0.3, bonus="hoeffding", calibration=record)


def test_the_command_writes_what_run_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "risk.json"
    play = ["--episodes", "20", "--warmup", "2", "--eta", "0.3"]
    posterior = ["--bonus", "posterior", "--worlds", "4", "--risk", "0.1"]
    asked = ["--runs", "3", "--check", "--workers", "1", "--rate", "0.9"]
    with pytest.raises(SystemExit, match="0"):
        main(["calibrate", "riverswim", *play, *posterior, *asked, "--out", str(out)])
    assert "Use risk 0.1 for at most 0.9 violations per episode" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["run", "riverswim", *play, "--worlds", "4", "--calibration", str(out), "--json"])
    run = json.loads(capsys.readouterr().out)
    assert (run["bonus"], run["risk"]) == ("posterior", 0.1)
    assert any("the risk was measured for exactly this" in each for each in run["standing"]["given"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--bonus", "posterior", "--precision", "1.2"],
            "'precision' must be left out with bonus",
        ),
        (["--bonus", "hoeffding", "--rate", "0.1"], "'rate' must be left out with bonus 'hoeffding'"),
        (["--bonus", "posterior", "--worlds", "1"], "'worlds' must be a whole number >= 2, got 1"),
        (["--bonus", "posterior", "--risk", "0"], "'risk' must lie in (0, 1)"),
    ],
)
def test_options_of_the_other_kind_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["calibrate", "riverswim", *options])
    assert said in capsys.readouterr().err
