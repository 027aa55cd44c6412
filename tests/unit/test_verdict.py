"""The verdict of a plan: what it recommends, that it runs as pasted, and step bounds against the log."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_preview import bandit, walk
from tests.unit.test_preview_worlds import logged

import chary
from chary.data import Log, read_log, usual_policy, write_log
from chary.errors import InvalidSetting
from chary.preview import Preview, preview
from chary.preview.options import Source
from chary.preview.page import page_bytes
from chary.preview.words import state_name
from chary.storage.files import as_json
from chary.sweeps.toml import parse_experiment

# Three episodes by step, state, next state, reward and whether it ended there.
LEAVES = [
    [(0, "in", "out", 1, "no"), (1, "out", "gone", -1, "yes")],
    [(0, "in", "gone", -1, "yes")],
    [(0, "in", "out", 1, "no"), (1, "out", "in", 0, "no"), (2, "in", "out", 1, "no")],
]
DECLARED: dict[str, Any] = {"reward_low": 0.0, "reward_high": 1.0, "worlds": 16, "risk": 0.05}


def planned(log: Log, **options: Any) -> Preview:
    return preview(log, **{"etas": [0.05, 0.5], **DECLARED, **options})


def pasted(found: Preview, folder: Path) -> dict[str, Any]:
    """The names that the program of a verdict leaves behind."""
    names: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(found.verdict.python, names)
    finally:
        os.chdir(before)
    assert printed.getvalue().count("leans on") == 1
    return names


def test_worlds_are_recommended_where_bounds_would_try_nothing() -> None:
    found = planned(logged(40), unit="points")
    told = found.verdict
    assert told.explores
    assert told.agent["bonus"] == "posterior"
    assert told.agent["rule"] == "strict"
    assert told.sentence == found.sentences()[0]
    assert f"a budget of {told.agent['eta']:g} points per episode" in told.sentence
    assert told.gain is not None
    # By hand, in test_preview_worlds: the best policy gains 0.7 on the rule of the log.
    assert told.gain.low <= 0.7 <= told.gain.high
    certified = preview(logged(40), etas=[0.05, 0.5], bonus="kl", reward_low=0.0, reward_high=1.0)
    assert certified.outcomes[1].deviating == 0.0
    # Asked for bounds, the verdict still names what would explore.
    assert certified.verdict.agent["bonus"] == "posterior"


def test_proved_bounds_are_recommended_where_they_try_as_much() -> None:
    found = planned(logged(2000), etas=[0.5])
    told = found.verdict
    assert (told.agent["bonus"], told.agent["delta"]) == ("kl", 0.1)
    assert "certified bounds (kl)" in told.sentence
    assert told.outcome.deviating >= 0.5 * found.outcomes[0].deviating
    assert told.gain is not None
    # The baseline is that of the bounds, which is as good here.
    assert told.gain.low <= 0.7 <= told.gain.high


def test_the_smallest_budget_that_allows_most_is_recommended() -> None:
    found = planned(logged(), etas=[0.5, 5.0, 50.0])
    shares = {each.eta: each.deviating for each in found.outcomes}
    eta = found.verdict.agent["eta"]
    assert shares[eta] >= 0.75 * max(shares.values())
    assert all(share < 0.75 * max(shares.values()) for other, share in shares.items() if other < eta)


def test_a_budget_that_buys_nothing_is_said_to() -> None:
    told = planned(logged(), etas=[1e-9]).verdict
    assert not told.explores
    assert told.sentence.startswith("Exploring would buy nothing yet: no budget given affords")
    same = planned(bandit({0: [1.0] * 500}), etas=[0.1], n_actions=1).verdict
    assert not same.explores
    assert "no explorer wants anything else" in same.sentence


@pytest.mark.parametrize("change", ["plain", "padded", "own ending", "seen", "declared"])
def test_the_program_makes_the_agent_that_was_planned(change: str, tmp_path: Path) -> None:
    # Nothing can be tried with so little: worlds are recommended all the same.
    options: dict[str, Any] = {"etas": [1e-6]}
    log = walk(40, low=-2.0, ends=True) if change == "padded" else walk(40)
    if change == "padded":
        options["reward_low"] = -2.0
    elif change == "own ending":
        columns: dict[str, Any] = {name: np.array(column) for name, column in log.columns().items()}
        columns["terminated"][4] = True
        log = Log.from_arrays(**columns)
    elif change == "seen":
        options |= {"allowed": "seen", "support": 3, "value_cap": 5.0}
    write_log(log, tmp_path / "log.csv")
    if change == "declared":
        (tmp_path / "rule.csv").write_text("state,action\n" + "".join(f"{s},1\n" for s in range(4)))
        options |= {"baseline": str(tmp_path / "rule.csv"), "role": "floor", "discount": 0.9}
    found = planned(log, **options, source=Source(name="log.csv"))
    names = pasted(found, tmp_path)
    agent = names["agent"]
    assert found.verdict.agent["bonus"] == "posterior"
    if change not in ("own ending", "declared"):
        # To the bit: the same worlds, drawn from the same seed.
        assert found.credible is not None
        value = agent.plan.arrays.value[0, log.state[log.t == 0], :16].mean(axis=0)
        setting = names["setting"]
        offset = setting.scale.low * setting.horizon
        mean = float(value.mean()) * setting.scale.span + offset
        assert mean == pytest.approx(found.credible.baseline_value.mean, rel=1e-12)
    assert (
        agent.standing.given == found.verdict.standing.given or found.verdict.standing.level == "uncertified"
    )
    agent.begin("next", 0)
    assert agent.act("next", 0, 0).remaining <= found.verdict.agent["eta"]


def test_a_pasted_program_goes_live_on_episodes_that_end_early(tmp_path: Path) -> None:
    # The file has the user's words, and the rule has no action in the state where episodes are over.
    rows = [f"{k},{t},{a},{b},wait,{r},{end}" for k in range(9) for t, a, b, r, end in LEAVES[k % 3]]
    (tmp_path / "log.csv").write_text("who,t,state,next_state,action,pay,left\n" + "\n".join(rows) + "\n")
    (tmp_path / "rule.csv").write_text("state,action\nin,wait\nout,wait\n")
    labels = {"state": ["in", "out", "gone"], "action": ["wait", "call"]}
    reading: dict[str, Any] = {"columns": {"episode": "who", "reward": "pay", "terminated": "left"}}
    log = read_log(tmp_path / "log.csv", labels=labels, **reading)
    options: dict[str, Any] = {"n_states": 3, "n_actions": 2, "horizon": 3, "reward_low": -1.0}
    options |= {"labels": labels, "baseline": str(tmp_path / "rule.csv")}
    found = planned(log, **options, source=Source(name="log.csv", reading=reading))
    assert found.verdict.python.count('"gone"') == 1  # written once, used twice
    names = pasted(found, tmp_path)
    agent = names["agent"]
    assert "report an early ending with terminated=True" in found.verdict.python
    agent.begin("next", 0)
    first = agent.act("next", 0, 0)
    agent.observe("next", chary.Transition(0, first.action, 1.0, 1, terminated=False))
    second = agent.act("next", 1, 1)
    agent.observe("next", chary.Transition(1, second.action, -1.0, 2, terminated=True))
    agent.finish("next")
    assert agent.open_episodes == ()

    (tmp_path / "rule.csv").write_text("state,action\nout,wait\n")
    with pytest.raises(InvalidSetting, match=r"got none for in\. Add a row for each"):
        planned(log, **options)


def test_known_rewards_are_read_and_used(tmp_path: Path) -> None:
    rewards = {(0, 0): 0.6, (0, 1): 0.55, (1, 0): 0.2, (1, 1): 0.9, (2, 0): 0.4, (2, 1): 0.4}
    lines = [f"{s},{a},{r}" for (s, a), r in rewards.items()]
    (tmp_path / "pay.csv").write_text("\n".join(["state,action,reward", *lines]))
    write_log(logged(), tmp_path / "log.csv")
    found = preview(
        logged(), etas=[0.5], worlds=16, rewards=str(tmp_path / "pay.csv"), source=Source(name="log.csv")
    )
    assert found.basis.reward == "known"
    assert (found.basis.reward_low, found.basis.reward_high) == (0.2, 0.9)
    assert found.verdict.agent["reward"] == "known"
    assert pasted(found, tmp_path)["agent"].setting.known is not None
    with pytest.raises(chary.errors.InvalidData, match="'reward' must be the one the setting declares"):
        preview(logged(), etas=[0.5], rewards=[[0.6, 0.6], [0.2, 0.9], [0.4, 0.4]])


def test_a_policy_of_the_users_is_the_floor_and_todays() -> None:
    rule = [0, 0, 0]
    found = planned(logged(), baseline=rule)
    assert found.credible is not None
    assert found.credible.today == "given"
    assert found.basis.baseline == "floor"
    assert any("your own policy" in each for each in found.verdict.standing.given)
    only = planned(logged(), baseline=rule, role="only")
    assert only.credible is not None
    assert only.credible.gain.mean == 0.0
    by_bounds = planned(logged(), baseline=rule, role="only", bonus="kl", worlds=64, risk=0.001)
    assert by_bounds.charges.differing > 0


def test_the_toml_is_an_algorithm_of_an_experiment() -> None:
    lines = ['name = "x"', 'title = "x"', 'problem = "inventory"', "episodes = 5", "warmup = 1", "seeds = 1"]
    lines.append('bonus = "kl"')
    parse_experiment("\n".join([*lines, planned(logged()).verdict.toml]))


def test_the_command_can_be_typed() -> None:
    source = Source(name="my visits.csv", arguments=("--column", "episode=patient"))
    words = shlex.split(planned(logged(40), source=source).verdict.cli)
    assert words[:5] == ["chary", "calibrate", "my visits.csv", "--column", "episode=patient"]
    # Proved bounds need no calibration.
    words = shlex.split(planned(logged(2000), etas=[0.5], source=source).verdict.cli)
    assert words[:3] == ["chary", "plan", "my visits.csv"]
    assert words[words.index("--bonus") + 1] == "kl"


def test_the_log_refutes_a_step_bound_below_a_gap_that_it_shows() -> None:
    # By hand: in state 1 action 0 pays 0.2 where the baseline's pays 0.9, a gap of 0.7 in the last step.
    found = planned(logged(), etas=[0.5, 1.0, 2.0], step_bound=0.52)
    told = {each.bound: each for each in found.step_bounds}
    assert {bound: each.refuted for bound, each in told.items()} == {
        0.25: True,
        0.5: True,
        0.52: True,
        1.0: False,
    }
    worst = told[1.0].worst
    assert worst is not None
    assert (worst.state, worst.action) == (1, 0)
    assert worst.gap.low <= 0.7 <= worst.gap.high
    assert told[0.25].refuting <= told[0.25].compared
    said = " ".join(found.sentences())
    assert "The log refutes step bounds of 0.25, 0.5 and 0.52, as rule capped or paper would assume" in said
    by_bounds = planned(logged(), etas=[0.5], bonus="kl", rules=["strict", "capped", "paper"])
    refuted = {each.rule: by_bounds.refuted(each) is not None for each in by_bounds.outcomes}
    assert refuted == {"strict": False, "capped": True, "paper": True}


def test_an_action_that_was_never_tried_refutes_nothing() -> None:
    found = planned(bandit({0: [1.0] * 200}), etas=[0.5], n_actions=2)
    assert [(each.refuted, each.compared, each.worst) for each in found.step_bounds] == [(False, 0, None)]


def test_numbers_have_thousands_separators_and_the_users_unit() -> None:
    log = logged()
    columns: dict[str, Any] = {**log.columns(), "reward": 10_000.0 * np.asarray(log.reward)}
    found = preview(
        Log.from_arrays(**columns),
        etas=[5_000.0],
        reward_low=0.0,
        reward_high=10_000.0,
        worlds=16,
        unit="euros",
    )
    said = found.sentences()
    assert "a budget of 5,000 euros per episode" in said[0]
    assert re.search(r"is worth \d\d,\d{3} euros \(\d\d,\d{3} to \d\d,\d{3}\)", " ".join(said))
    assert json.loads(as_json(found.summary()))["verdict"]["agent"]["eta"] == 5000.0


def test_states_and_actions_have_the_users_names_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    labels = {"state": ["calm", "tense", "<over>"], "action": ["listen", "talk"]}
    found = planned(logged(40), labels=labels, step_bound=0.01, first_step=1)
    told = " ".join(found.sentences())
    bound = next(each for each in found.step_bounds if each.refuted)
    worst = bound.worst
    assert worst is not None
    place = f"action “{labels['action'][worst.action]}” in state “{labels['state'][worst.state]}” at step"
    assert f"{place} {worst.t + 1} loses" in told
    assert not re.search(r"(state|action) \d", told)
    basis = json.loads(as_json(found.summary()))["basis"]
    assert (basis["state_labels"], basis["action_labels"]) == (labels["state"], labels["action"])
    page = page_bytes(found, "log.csv").decode()
    assert "<td>calm</td>" in page.replace(' class="name"', "").replace(' class="number"', "")
    assert "<over>" not in page
    by_bounds = preview(logged(40), etas=[0.5], bonus="kl", reward_low=0.0, reward_high=1.0, labels=labels)
    assert by_bounds.helpful
    helped = next(
        each for each in by_bounds.sentences() if each.startswith("Of single actions") or "tries" in each
    )
    assert not re.search(r"(state|action) \d", helped)


def test_the_state_after_an_early_ending_has_words_of_its_own() -> None:
    log = Log.from_transitions(
        [[chary.Transition(0, 0, -1.0, 1, True)], [chary.Transition(1, 1, 0.0, 0, False)]]
    )
    basis = preview(log, etas=[1.0], worlds=4, labels={"state": ["a", "b"], "action": ["x", "y"]}).basis
    assert [state_name(basis, s) for s in (1, 2)] == ["b", "after an early ending"]
    assert state_name(planned(logged(5)).basis, 3) == "3"


def test_a_plan_of_a_data_frame_runs_once_the_log_is_written(tmp_path: Path) -> None:
    # The user's words and steps from 1 stay in the frame: what is written has numbers, from step 0.
    rows = [(k, t + 1, a, b, "wait", r, end) for k in range(9) for t, a, b, r, end in LEAVES[k % 3]]
    names = ("who", "t", "state", "next_state", "action", "pay", "left")
    words: dict[str, Any] = {
        "columns": {"episode": "who", "reward": "pay", "terminated": "left"},
        "labels": {"state": ["in", "out", "gone"], "action": ["wait", "call"]},
        "first_step": 1,
    }
    frame = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    log = Log.from_dataframe(frame, **words)
    for rule in (None, str(tmp_path / "rule.csv")):
        (tmp_path / "rule.csv").write_text("state,action\nin,wait\nout,wait\n")
        found = preview(log, etas=[1.0], worlds=8, risk=0.2, n_actions=2, baseline=rule, **words)
        program = found.verdict.python
        assert 'First write the log of this plan: chary.data.write_log(log, "log.csv")' in program
        assert "The range was read off the log" in program
        write_log(log, tmp_path / "log.csv", overwrite=True)
        left = pasted(found, tmp_path)
        assert left["agent"].setting.horizon == 3
        assert ("own" in left) == (rule is not None)
    declared = preview(
        log, etas=[1.0], worlds=8, risk=0.2, n_actions=2, reward_low=-2, reward_high=2, **words
    )
    assert "The range was read off" not in declared.verdict.python


@pytest.mark.parametrize(
    ("role", "told"),
    [
        (None, "compared with the learnt baseline, which may already differ from today's policy"),
        ("prior", "compared with the learnt baseline, which may already differ from today's policy"),
        ("floor", "compared with today's policy as the log improves it"),
        ("only", "what an episode loses compared with today's policy."),
    ],
)
def test_the_verdict_says_what_the_budget_is_counted_from(role: str | None, told: str) -> None:
    own: dict[str, Any] = {} if role is None else {"baseline": [0] * 3, "role": role}
    for etas in ([0.5], [1e-9]):
        found = planned(logged(40), etas=etas, **own)
        assert told in found.verdict.sentence
        assert ("usual_policy(log, setting)" in found.verdict.python) == (role is None)


def test_todays_policy_is_what_the_log_has_most_often() -> None:
    log = logged(40)
    setting = chary.Setting.declare(n_states=4, n_actions=2, horizon=3, early_endings=True)
    policy = usual_policy(log, setting)
    by_hand = [
        np.bincount(log.action[log.state == s], minlength=2).argmax() if (log.state == s).any() else 0
        for s in range(4)
    ]
    assert policy.tolist() == by_hand
    # It can be declared as it is, though the setting has a state after all others.
    assert chary.OwnBaseline.declare(policy, setting, role="only").table[0, :4].tolist() == by_hand
    narrow = chary.Setting.declare(n_states=4, n_actions=1, horizon=3, early_endings=True)
    with pytest.raises(chary.errors.InvalidData, match="'action' must"):
        usual_policy(log, narrow)
