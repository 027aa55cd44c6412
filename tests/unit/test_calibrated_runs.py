"""Runs are calibrated inside what was calibrated, and say why where they are not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chary import envs
from chary.agents import CharyUCBVI
from chary.agents.tabular import TabularAgent
from chary.calibrate import ScaleCalibration, calibrate
from chary.cli import main
from chary.mdp import FiniteMDP
from chary.presets import NAMES, preset
from chary.simulation import simulate
from chary.simulation._calibration import nearest_calibration
from chary.standing import Standing

AGENT = CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.001, reward="known")
SHORT: dict[str, Any] = {"episodes": 20, "warmup": 100}


@pytest.fixture(scope="module")
def short() -> ScaleCalibration:
    """A scale that passed on siblings of inventory, for 20 episodes."""
    with ThreadPoolExecutor(1) as alone:
        found = calibrate("inventory", AGENT, **SHORT, check=True, executor=alone)
    assert found.record is not None
    return found


def standing_of(agent: CharyUCBVI, mdp: FiniteMDP | None = None, **changes: Any) -> Standing:
    return simulate(mdp or envs.make("inventory"), agent, **{**SHORT, **changes}).standing


def test_a_scale_without_a_calibration_is_uncertified() -> None:
    standing = standing_of(AGENT)
    assert standing.level == "uncertified"


def test_a_run_inside_its_calibration_is_calibrated(short: ScaleCalibration) -> None:
    standing = standing_of(short.agent)
    assert (standing.level, standing.per, standing.probability) == ("calibrated", "run", 0.9)
    assert "in 0 of 29 runs of 20 episodes" in " ".join(standing.given)


@pytest.mark.parametrize(
    ("agent", "played", "phrase"),
    [
        ({}, {"episodes": 21}, "calibrated for 20 episodes, played 21"),
        ({}, {"warmup": 50}, "calibrated for 100 warm-up episodes, played 50"),
        ({"eta": 0.2}, {}, "calibrated with eta 0.4, played with 0.2"),
        ({"charge": "paper"}, {}, "calibrated with charge coupled, played with paper"),
        ({"rule": "paper"}, {}, "calibrated with rule strict, played with paper"),
        ({"bonus_scale": 0.0009}, {}, "calibrated with bonus_scale 0.001, played with 0.0009"),
        ({"pool": 1}, {}, "calibrated with pool 1000, played with 1"),
    ],
)
def test_a_run_outside_its_calibration_says_so(
    short: ScaleCalibration, agent: dict[str, Any], played: dict[str, Any], phrase: str
) -> None:
    """A scale calibrated for 20 episodes was called calibrated in runs of any length."""
    standing = standing_of(replace(short.agent, **agent), **played)
    assert standing.level == "uncertified"
    assert phrase in " ".join(standing.given)


def test_another_problem_is_outside(short: ScaleCalibration) -> None:
    variant = standing_of(short.agent, envs.make("inventory", holding_cost=1.5))
    assert "calibrated on siblings of inventory, played a variant of it" in " ".join(variant.given)
    river = standing_of(replace(short.agent, eta=0.4), envs.make("riverswim"))
    assert "calibrated on siblings of inventory, played riverswim" in " ".join(river.given)


def test_a_live_agent_is_calibrated_in_the_same_way_also_after_a_restart(
    short: ScaleCalibration, tmp_path: Path
) -> None:
    setting = envs.make("inventory").told("known")
    fits = TabularAgent(short.agent, setting, max_episodes=20, warmup=100)
    assert fits.standing.level == "calibrated"
    fits.save(tmp_path / "agent")
    again = TabularAgent.load(tmp_path / "agent")
    assert again.spec.calibration == short.record  # type: ignore[attr-defined]
    assert again.standing == fits.standing
    longer = TabularAgent(short.agent, setting, max_episodes=50000, warmup=100)
    assert longer.standing.level == "uncertified"
    assert "calibrated for 20 episodes, played 50,000" in " ".join(longer.standing.given)
    led = TabularAgent(short.agent, setting, max_episodes=20, warmup=100, prior=[0] * setting.n_states)
    assert "calibrated with prior none, played with given" in " ".join(led.standing.given)


def test_the_command_line_takes_the_calibration_that_it_wrote(
    short: ScaleCalibration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "found.json"
    kept.write_text(json.dumps(short.to_json()))
    levels = []
    for episodes in (20, 30):
        with pytest.raises(SystemExit) as left:
            main(f"run inventory --calibration {kept} --episodes {episodes} --warmup 100 --json".split())
        assert left.value.code in (0, None)
        levels.append(json.loads(capsys.readouterr().out)["standing"]["level"])
    assert levels == ["calibrated", "uncertified"]


@pytest.mark.parametrize("name", NAMES)
def test_records_of_presets_passed_and_fit_the_runs_they_are_for(name: str) -> None:
    usual = preset(name)
    for record in usual.calibration:
        assert record.passed
        assert record.problem == name
    for bonus, scale in usual.scale.items():
        agent = CharyUCBVI(**usual.of_agent(bonus))
        assert agent.bonus_scale == scale
        found, outside = nearest_calibration(
            envs.make(name), agent, episodes=usual.under(bonus).episodes, warmup=usual.under(bonus).warmup
        )
        assert found is None or not outside
