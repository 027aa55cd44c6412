"""Plans by posterior worlds: today's value, what a vote affords, and what the result leans on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.cli import main
from chary.data.logs import Log
from chary.errors import CharyError
from chary.preview import Preview, preview
from chary.preview.credible import upper_of
from chary.preview.page import page_bytes
from chary.shield.worlds import Panel, upper

SIZE: dict[str, Any] = {"n_states": 3, "n_actions": 2, "horizon": 3, "reward_low": 0.0, "reward_high": 1.0}


def logged(episodes: int = 300, *, noise: float = 0.3, seed: int = 0) -> Log:
    """Return a log of a rule that plays 0, where action 1 pays more in state 1 and less in state 0."""
    chance = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for episode in range(episodes):
        state = episode % 3
        for t in range(3):
            action = int(chance.integers(2)) if chance.random() < noise else 0
            reward = {(0, 0): 0.6, (0, 1): 0.55, (1, 0): 0.2, (1, 1): 0.9}.get((state, action), 0.4)
            following = int(chance.integers(3))
            rows.append((episode, t, state, action, reward, following, False))
            state = following
    names = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return Log(**columns)


def planned(log: Log | None = None, **options: Any) -> Preview:
    given: dict[str, Any] = {"etas": [0.05, 0.5], "bonus": "posterior", "worlds": 16, "risk": 0.05, **SIZE}
    return preview(logged() if log is None else log, **(given | options))


@pytest.fixture(scope="module")
def found() -> Preview:
    return planned()


def test_the_value_of_today_s_policy_is_that_of_the_rule_and_its_gain_is_credible(found: Preview) -> None:
    told = found.credible
    assert told is not None
    # By hand: the rule plays 0; states are uniform, so a step is worth (0.6 + 0.2 + 0.4) / 3 = 0.4.
    assert told.today == "logged"
    assert told.today_value.low <= 1.2 <= told.today_value.high
    assert told.today_value.high - told.today_value.low < 0.2
    # The best plays 1 in state 1: (0.6 + 0.9 + 0.4) / 3 per step, a gain of 0.7.
    assert told.gain.low <= 0.7 <= told.gain.high
    assert told.better == 1.0
    assert told.baseline_value.mean == pytest.approx(told.today_value.mean + told.gain.mean)


def test_a_given_policy_is_today_s() -> None:
    told = planned(prior=[0, 1, 0]).credible
    assert told is not None
    assert told.today == "given"
    # It is the best one: nothing is gained.
    assert abs(told.gain.mean) < 0.05


def test_values_are_in_the_log_s_units() -> None:
    log = logged()
    shifted = Log(
        **{
            name: getattr(log, name)
            for name in ("episode", "t", "state", "action", "next_state", "terminated")
        },
        reward=np.asarray(log.reward) * 100.0 - 50.0,
    )
    told = planned(shifted, reward_low=-50.0, reward_high=50.0, etas=[5.0]).credible
    assert told is not None
    assert told.today_value.low <= 120.0 - 150.0 <= told.today_value.high


def test_a_larger_budget_affords_more_and_no_vote_exceeds_its_risk(found: Preview) -> None:
    small, large = found.outcomes
    assert (small.rule, large.rule) == ("strict", "strict")
    assert small.deviating <= large.deviating
    assert large.deviating > 0
    for outcome in found.outcomes:
        assert outcome.expected_loss is not None
        assert outcome.exceeding is not None
        # With 16 worlds and the truth as one more draw, none may exceed it at a risk below 1 / 17.
        assert outcome.exceeding == 0.0
        assert outcome.expected_loss <= outcome.charge_per_episode <= outcome.eta
    curve = found.curves[0]
    assert all(a <= b for a, b in zip(curve.deviating, curve.deviating[1:], strict=False))


def test_what_is_tried_is_listed_with_its_loss(found: Preview) -> None:
    told = found.credible
    assert told is not None
    assert told.proposals
    assert sum(each.steps for each in told.proposals) == round(
        found.outcomes[-1].deviating * found.basis.replayed_steps
    )
    for each in told.proposals:
        assert each.action != each.baseline
        assert 0 <= each.better <= 1


@pytest.mark.parametrize("risk", [0.3, 0.1, 0.001])
def test_the_vote_of_many_episodes_is_that_of_the_shield(risk: float) -> None:
    deficits = np.random.default_rng(1).random((20, 16))
    panel = Panel.of(risk, worlds=16)
    expected = [upper(row.tolist(), panel) for row in deficits]
    np.testing.assert_allclose(upper_of(deficits, panel), expected, rtol=1e-12)


def test_the_standing_is_credible_and_never_certified(found: Preview) -> None:
    assert {each.standing.level for each in found.rules} == {"credible"}
    given = found.outcomes[0].standing.given
    assert any(each.startswith("the prior: ") for each in given)
    assert any(each.startswith("logs are unconfounded") for each in given)
    inferred = planned(n_states=None, reward_high=None)
    assert {each.standing.level for each in inferred.rules} == {"uncertified"}


def test_equal_seeds_give_equal_plans_and_others_do_not(found: Preview) -> None:
    assert planned().summary() == found.summary()
    assert planned(seed=1).summary() != found.summary()


def test_page_and_sentences_say_it(found: Preview) -> None:
    words = " ".join(found.sentences())
    assert "Today's policy, the action logged most often in each state, is worth" in words
    assert "with an expected loss of" in words
    assert "known to be the best" not in words
    page = page_bytes(found, "log.csv").decode()
    assert 'id="today"' in page
    assert 'id="data"' not in page
    assert "16 posterior worlds, prior auto" in page
    bounds = preview(logged(20), etas=[0.5], bonus="kl", **SIZE)
    assert bounds.credible is None
    assert 'id="today"' not in page_bytes(bounds, "log.csv").decode()


def test_the_command_prints_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, file = logged(60), tmp_path / "log.csv"
    names = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
    lines = zip(*(getattr(log, name).tolist() for name in names), strict=True)
    text = [
        ",".join(names),
        *(",".join(str(int(v) if isinstance(v, bool) else v) for v in row) for row in lines),
    ]
    file.write_text("\n".join(text) + "\n")
    asked = ["plan", str(file), "--eta", "0.5", "--bonus", "posterior", "--worlds", "8", "--risk", "0.2"]
    with pytest.raises(SystemExit, match="0"):
        main([*asked, "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert set(told["credible"]) >= {"today_value", "baseline_value", "gain", "better", "proposals"}
    assert told["basis"]["worlds"] == 8
    assert (tmp_path / "out" / "plan.html").exists()
    with pytest.raises(SystemExit, match="0"):
        main(asked)
    assert "expected loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"worlds": 1}, "'worlds' must be a whole number >= 2, got 1"),
        ({"risk": 0.0}, "'risk' must lie in (0, 1)"),
        ({"risk": 1.0}, "'risk' must lie in (0, 1)"),
        ({"kappa": 0.0}, "'kappa' must lie in (0, inf)"),
        ({"pessimism": -1.0}, "'pessimism' must lie in [0, inf)"),
        ({"charge": "coupled"}, "'charge' must be one of worlds, got 'coupled'"),
        ({"rules": ["capped"]}, "'rule' must be strict, unlimited or closed"),
        ({"world_prior": "wide"}, "'world_prior' must be one of auto, shrunk, flat"),
        (
            {"n_states": 100, "world_prior": "flat"},
            "'world_prior' flat needs the number of possible",
        ),
        ({"horizon": 2}, "'horizon' must be at least the longest episode"),
        ({"reward_high": 0.5}, "reward"),
        ({"seed": -1}, "'seed' must be"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CharyError, match=re.escape(said)):
        planned(**options)


def test_worlds_are_no_charge_of_bounds() -> None:
    with pytest.raises(CharyError, match=re.escape("'charge' must be one of paper, coupled, difference")):
        preview(logged(5), etas=[0.5], bonus="kl", charge="worlds", **SIZE)
