"""Siblings resampled from a log and drawn around a finite MDP, and what is calibrated on them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_preview_worlds import logged

import chary
from chary.calibrate import LogSiblings, MDPSiblings, calibrate, calibrate_risk
from chary.calibrate.siblings import Siblings, family_of, order_of
from chary.cli import main
from chary.data import Log, write_log
from chary.errors import CharyError, InvalidData, InvalidSetting
from chary.mdp import FiniteMDP, Setting
from chary.model.risk_calibration import record_from_plain
from chary.simulation import Simulation
from chary.simulation._worlds_run import WorldsRun

SETTING = Setting.declare(n_states=3, n_actions=2, horizon=3)
AGENT = chary.CharyUCBVI(eta=0.5, bonus="posterior", worlds=4, risk=0.1)
PLAY: dict[str, Any] = {"episodes": 20, "runs": 3, "rate": 0.5, "check": True}


def custom(value: float = 0.5) -> FiniteMDP:
    P = np.array([[[0.5, 0.5], [0.9, 0.1]], [[0.2, 0.8], [0.5, 0.5]]])
    return FiniteMDP.from_arrays(P, np.array([[value, 0.2], [0.9, 0.4]]), horizon=4, name="mine")


def measured(problem: Any, agent: chary.CharyUCBVI = AGENT, **changes: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return calibrate_risk(problem, agent, executor=pool, **{**PLAY, **changes})


def test_siblings_of_a_log_scatter_around_its_frequencies() -> None:
    log = logged(400)
    family = LogSiblings(log, SETTING)
    drawn = [family.draw(seed) for seed in range(60)]
    rows = np.array([mdp.dense()[0] for mdp in drawn])
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (log.state, log.action, log.next_state), 1.0)
    shares = counts / counts.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(rows.mean(axis=0), shares, atol=0.03)
    # By hand, a Bayesian bootstrap: the variance of a share p of n is about p (1 - p) / n.
    expected = np.sqrt(shares * (1 - shares) / counts.sum(axis=2, keepdims=True))
    assert (0.6 * expected < rows.std(axis=0)).all()
    assert (rows.std(axis=0) < 1.6 * expected).all()
    # Rewards of this log are a function of state and action.
    np.testing.assert_allclose(drawn[0].dense()[1], [[0.6, 0.55], [0.2, 0.9], [0.4, 0.4]])
    assert drawn[0].setting.digest == SETTING.digest
    assert family.draw(3).digest == family.draw(3).digest != family.draw(4).digest


def test_an_action_never_logged_resembles_another_of_its_state() -> None:
    log = Log(
        episode=[0, 1, 2], t=[0, 0, 0], state=[0, 0, 1], action=[0, 0, 1], reward=[0.2, 0.4, 1.0],
        next_state=[0, 1, 2], terminated=[False, False, False],
    )  # fmt: skip
    family = LogSiblings(log, SETTING)
    mdp = family.draw(0)
    for a in (0, 1):
        x, _, r = mdp.row(0, a)
        assert set(x.tolist()) <= {0, 1}
        assert ((r >= 0.2 - 1e-12) & (r <= 0.4 + 1e-12)).all()
    assert mdp.row(1, 0)[0].tolist() == [2]
    assert set(mdp.row(2, 0)[0].tolist()) <= {0, 1, 2}
    assert "4 of 6 actions were never logged in a state and resemble others" in family.about


def test_declared_rewards_support_and_caps_are_kept_to() -> None:
    told = Setting.declare(
        n_states=3, n_actions=2, horizon=3, support=3, reward=[[0.6, 0.55], [0.2, 0.9], [0.4, 0.4]],
        reward_range=(0, 1), value_cap=0.7,
    )  # fmt: skip
    mdp = LogSiblings(logged(60), told).draw(1)
    np.testing.assert_allclose(mdp.dense()[1], [[0.6, 0.55], [0.2, 0.9], [0.4, 0.4]])
    assert (np.diff(mdp.row_start) <= 3).all()
    # The cap does not hold on siblings, which run all the same.
    assert mdp.setting.value_cap > 0.7
    Simulation(mdp, replace(AGENT, reward="known"), episodes=2)


def test_noisy_rewards_are_said_to_be_left_out() -> None:
    log = logged(200)
    chance = np.random.default_rng(0).random(len(log)) < log.reward
    columns: dict[str, Any] = {**log.columns(), "reward": chance.astype(float)}
    family = LogSiblings(Log.from_arrays(**columns), SETTING)
    assert "rewards are means by state, action and next state, without 8" in family.about
    assert "rewards are means" not in LogSiblings(log, SETTING).about


def test_runs_start_with_a_log_like_the_users() -> None:
    log = logged(500)
    family = LogSiblings(log, SETTING)
    mdp = family.draw(0)
    start = family.start(mdp, 0)
    assert start.episodes == 500
    assert len(start.pairs) == len(start.nexts) == len(start.rewards) == 1500
    actions = mdp.setting.pair_action[start.pairs]
    assert abs((actions == 0).mean() - (log.action == 0).mean()) < 0.03
    # Episodes in a row: each step starts where the last one led.
    states = start.states.reshape(500, 3)
    np.testing.assert_array_equal(states[:, 1:], start.nexts.reshape(500, 3)[:, :-1])
    share = np.array([(start.nexts[start.pairs == 0] == x).mean() for x in range(3)])
    np.testing.assert_allclose(share, mdp.dense()[0][0, 0], atol=0.1)
    run = Simulation(mdp, AGENT, episodes=3, logged=start)
    run.start()
    assert isinstance(run._run, WorldsRun)
    assert run._run.worlds.learnt == 1500


def test_episodes_that_were_cut_off_are_no_longer_in_a_sibling() -> None:
    log = Log.from_arrays(
        episode=[0, 1, 1], t=[0, 0, 1], state=[0, 0, 1], action=[0, 0, 0], reward=[0, 0, 0],
        next_state=[1, 1, 0], terminated=[False, False, False],
    )  # fmt: skip
    family = LogSiblings(log, SETTING)
    assert len(family.start(family.draw(0), 0).pairs) == 3


@pytest.mark.parametrize("make", [lambda: LogSiblings(logged(30), SETTING), lambda: MDPSiblings(custom())])
def test_workers_draw_the_same_siblings_from_a_file(make: Any, tmp_path: Path) -> None:
    family: Siblings = make()
    again = family_of(json.loads(json.dumps(order_of(family, tmp_path))))
    for seed in (0, 2**70):
        assert again.draw(seed).digest == family.draw(seed).digest
    assert again.about == family.about
    assert again.warmup == family.warmup


def test_siblings_of_an_mdp_have_its_size_and_other_numbers() -> None:
    family = MDPSiblings(custom())
    one, other = family.draw(0), family.draw(1)
    assert one.setting.digest == custom().setting.digest
    assert len({one.digest, other.digest, custom().digest}) == 3
    drawn = np.array([family.draw(seed).dense()[0] for seed in range(200)])
    np.testing.assert_allclose(drawn.mean(axis=0), custom().dense()[0], atol=0.05)


def test_a_risk_measured_on_an_mdp_holds_for_this_mdp_alone() -> None:
    found = measured(custom(), warmup=2)
    assert found.record is not None
    assert found.record.siblings == "mine, each row and each reward drawn around its own"
    run = chary.simulate(custom(), found.agent, episodes=20, warmup=2)
    assert any("the risk was measured for exactly this configuration" in each for each in run.standing.given)


def test_a_scale_calibrated_on_an_mdp_is_calibrated_on_it_and_not_on_another() -> None:
    agent = chary.CharyUCBVI(eta=0.5, bonus="hoeffding")
    with ThreadPoolExecutor(1) as pool:
        found = calibrate(custom(), agent, episodes=3, warmup=1, check=True, executor=pool)
    assert found.record is not None
    scaled = replace(found.agent, bonus_scale=0.5, calibration=replace(found.record, bonus_scale=0.5))
    here = chary.simulate(custom(), scaled, episodes=3, warmup=1).standing
    assert here.level == "calibrated"
    there = chary.simulate(custom(0.6), scaled, episodes=3, warmup=1).standing
    assert there.level == "uncertified"
    assert "a variant of it" in " ".join(there.given)


def test_the_standing_of_a_live_agent_names_the_log(tmp_path: Path) -> None:
    log = logged(40)
    own = chary.OwnBaseline.declare([0, 0, 0], SETTING, role="floor")
    found = measured(LogSiblings(log, SETTING, own, "visits.csv"))
    record = record_from_plain(json.loads(json.dumps(found.to_json()["calibration"])))
    assert record == found.record
    for spec in (found.agent, replace(found.agent, calibration=record)):
        agent = chary.TabularAgent(spec, SETTING, own=own, max_episodes=20)
        agent.warm_start(log.episodes())
        told = " ".join(agent.standing.given)
        assert "resampled from the log visits.csv (40 episodes, 120 decisions; logged actions must be" in told
        assert "exactly this configuration" in told
    other = chary.TabularAgent(found.agent, SETTING, max_episodes=21)
    other.warm_start(log.episodes())
    assert "another configuration: calibrated with prior own policy as floor" in " ".join(
        other.standing.given
    )


def test_bounds_are_calibrated_after_the_log() -> None:
    with ThreadPoolExecutor(1) as pool:
        agent = chary.CharyUCBVI(eta=0.5, bonus="bernstein")
        found = calibrate(LogSiblings(logged(20), SETTING), agent, episodes=3, check=True, executor=pool)
    assert found.record is not None
    assert found.record.warmup == 20
    agent_now = chary.TabularAgent(found.agent, SETTING, max_episodes=3)
    agent_now.warm_start(logged(20).episodes())
    assert agent_now.standing.level == "calibrated"
    assert "resampled from the log" in " ".join(agent_now.standing.given)


@pytest.mark.parametrize(
    ("problem", "agent", "options", "said"),
    [
        ([1, 2], AGENT, {}, "'problem' must be a FiniteMDP"),
        (custom(), AGENT, {"horizon": 3}, "'horizon' must come with the name of a problem"),
        (LogSiblings(logged(5), SETTING), replace(AGENT, reward="known"), {}, "'reward' can be 'known' only"),
        (LogSiblings(logged(5), SETTING), replace(AGENT, prior="recorded"), {}, "'prior' can be 'recorded'"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    problem: Any, agent: chary.CharyUCBVI, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(CharyError, match=said):
        measured(problem, agent, **options)


def test_a_log_that_contradicts_its_setting_is_refused() -> None:
    with pytest.raises(InvalidData, match="'state' must lie in"):
        LogSiblings(logged(5), Setting.declare(n_states=2, n_actions=2, horizon=3))
    with pytest.raises(InvalidSetting, match="'log' must be a Log"):
        LogSiblings([1], SETTING)  # type: ignore[arg-type]
    own = chary.OwnBaseline.declare([0, 0, 0], SETTING, role="only")
    family, bounds = LogSiblings(logged(5), SETTING, own), chary.CharyUCBVI(eta=1.0, bonus="hoeffding")
    with pytest.raises(InvalidSetting, match="'own' must be left out with bonus 'hoeffding'"):
        calibrate(family, bounds, episodes=2)


def test_the_command_calibrates_on_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "visits.csv", tmp_path / "calibration.json"
    write_log(logged(30), path)
    (tmp_path / "rule.csv").write_text("state,action\n0,0\n1,0\n2,0\n")
    asked = ["calibrate", str(path), "--eta", "0.5", "--worlds", "4", "--risk", "0.1", "--rate", "0.5"]
    asked += ["--runs", "2", "--episodes", "10", "--check", "--workers", "1"]
    with pytest.raises(SystemExit, match="0"):
        main([*asked, "--baseline", str(tmp_path / "rule.csv"), "--out", str(out)])
    assert "resampled from the log visits.csv (30 episodes, 90 decisions" in capsys.readouterr().out
    assert json.loads(out.read_text())["calibration"]["played"]["prior"] == "own policy as floor"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["LOG", "--eta", "1", "--warmup", "5"], "'warmup' must be left out with a log"),
        (["LOG", "--eta", "1", "--horizon", "1"], "'horizon' must be at least the longest episode"),
        (["LOG", "--eta", "1", "--actions", "all"], "'actions' must be left out with a log"),
        (["LOG", "--eta", "1", "--rewards", "nowhere.csv"], "'path' must be a file that can be read"),
        (["LOG"], "'eta' must be given"),
        (["nowhere.csv", "--eta", "1"], "'path' must be a file that can be read"),
        (["inventory", "--n-states", "3"], "'n_states' must come with a log"),
        (["inventory", "--ignore-extra"], "must come with a log"),
        (["LOG", "--eta", "1", "--bonus", "kl"], "'bonus' must be one of hoeffding, bernstein"),
    ],
)
def test_a_mistake_is_one_sentence(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(logged(5), tmp_path / "log.csv")
    with pytest.raises(SystemExit, match="2"):
        main(["calibrate", *(str(tmp_path / "log.csv") if each == "LOG" else each for each in options)])
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
