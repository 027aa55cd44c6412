"""What a budget would buy, from logs alone: against the shield, the agent, and numbers worked by hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import chary.preview.analysis as analysis
from chary.agents import CharyUCBVI
from chary.agents.tabular import TabularAgent
from chary.cli.options import command
from chary.cli.plan import COMMANDS
from chary.data import Log, write_log
from chary.errors import CharyError, InvalidData, InvalidSetting
from chary.planner.plan import optimistic_policy
from chary.preview import Preview, preview
from chary.preview.measure import ReplayedCharges, grid_of, play, smallest_eta
from chary.preview.options import PreviewOptions
from chary.preview.page import PAGE_LIMIT, page_bytes
from chary.preview.problem import learn_log, make_problem
from chary.shield import Shield
from chary.standing import MARKOV, MARKOV_CELLS, UNCONFOUNDED
from chary.storage.files import as_json

STATES, ACTIONS, HORIZON = 4, 3, 5
HABIT = (0.1, 0.8, 0.1)


def walk(episodes: int = 60, *, seed: int = 0, low: float = 0.0, ends: bool = False) -> Log:
    """A log of a walk on a line: the higher, the better it pays; action 2 climbs best, habit is action 1."""
    generator = np.random.default_rng(seed)
    steps = []
    for k in range(episodes):
        state = int(generator.integers(STATES - 1))
        for t in range(HORIZON):
            action = int(generator.choice(ACTIONS, p=HABIT))
            up = generator.random() < 0.3 * action + 0.1
            after = min(state + 1, STATES - 1) if up else max(state - 1, 0)
            done = ends and after == STATES - 1
            reward = low + (1.0 - low) * float(generator.random() < after / STATES)
            steps.append((k, t, state, action, reward, after, done))
            if done:
                break
            state = after
    names = ("episode", "t", "state", "action", "reward", "next_state", "terminated")
    columns: dict[str, Any] = {name: [step[i] for step in steps] for i, name in enumerate(names)}
    return Log.from_arrays(**columns)


def known(log: Log, **options: Any) -> Preview:
    return preview(
        log, **{"etas": [0.5, 2.0], "bonus": "kl", "reward_low": 0.0, "reward_high": 1.0, **options}
    )


def bandit(rewards: dict[int, list[float]]) -> Log:
    """One state, one step: the rewards that each action earned."""
    played = [(a, r) for a, several in rewards.items() for r in several]
    zeros = [0] * len(played)
    return Log.from_arrays(
        episode=range(len(played)),
        t=zeros,
        state=zeros,
        action=[a for a, _ in played],
        reward=[r for _, r in played],
        next_state=zeros,
        terminated=zeros,
    )


@pytest.mark.parametrize("family", ["kl", "hoeffding", "bernstein", "l1"])
def test_the_plan_is_the_one_an_agent_would_begin_with(family: str) -> None:
    log = walk()
    declared = PreviewOptions(etas=[1.0], discount=0.9, reward_low=0.0, reward_high=1.0)
    problem = make_problem(log, declared)
    # A preview has no seed, by which an agent would shuffle its ties.
    spec = CharyUCBVI(eta=1.0, bonus=family, ties="index")
    agent = TabularAgent(spec, problem.setting, max_episodes=100, warmup=log.n_episodes)
    agent.warm_start(log.episodes())
    mine = learn_log(log, np.arange(len(log)), problem.setting, spec.bounds, max_episodes=100)
    theirs = agent.plan.knowledge
    np.testing.assert_array_equal(mine.rows.total, theirs.rows.total)
    np.testing.assert_allclose(mine.radii.width, theirs.radii.width, rtol=1e-12)
    np.testing.assert_allclose(mine.radii.reward_above, theirs.radii.reward_above, atol=1e-12)
    np.testing.assert_array_equal(
        optimistic_policy(problem.setting, mine), optimistic_policy(problem.setting, theirs)
    )


@pytest.mark.parametrize("charge", ["coupled", "paper", "difference"])
@pytest.mark.parametrize("after_refusal", ["pause", "close"])
@pytest.mark.parametrize("rule", ["strict", "capped", "paper", "unlimited", "closed"])
def test_the_replay_books_what_the_shield_books(rule: str, after_refusal: str, charge: str) -> None:
    log = walk(400, ends=True)
    eta = 2.0
    options: dict[str, Any] = {"after_refusal": after_refusal, "charge": charge}
    options["step_bound"] = 1.2 if rule == "capped" else None
    found = known(log, etas=[eta], rules=[rule], **options)
    spec = CharyUCBVI(eta=eta, rule=rule, **options)
    setting = make_problem(log, PreviewOptions(etas=[eta], reward_low=0.0, reward_high=1.0)).setting
    agent = TabularAgent(spec, setting)
    agent.warm_start(log.episodes())
    plan = agent.plan
    explorer = optimistic_policy(setting, plan.knowledge)
    shield: Shield[int] = Shield(spec.resolved_rule(1.0), horizon=HORIZON)
    explored = deviating = strayed = 0
    booked = 0.0
    for k, episode in enumerate(log.episodes()):
        shield.begin(k, plan)
        apart = 0
        for t, step in enumerate(episode):
            wanted = int(explorer[t, step.state])
            decision = shield.decide(k, t, step.state, proposal=wanted)
            explored += decision.explored
            apart += decision.explored and wanted != plan.baseline(t, step.state)
            booked += decision.charge
            shield.observe(k, step.next_state, terminated=step.terminated)
        shield.finish(k)
        deviating += apart
        strayed += apart > 0
    outcome = found.outcomes[0]
    assert outcome.explored == explored / len(log)
    assert outcome.deviating == deviating / len(log)
    assert outcome.episodes_deviating == strayed / log.n_episodes
    assert outcome.charge_per_step == pytest.approx(booked / len(log))
    assert outcome.standing.per == spec.grounds().standing.per
    if rule not in ("closed", "unlimited"):
        assert 0 < outcome.deviating < found.charges.differing


def test_an_action_is_known_best_only_above_every_upper_bound() -> None:
    sure = known(bandit({0: [1.0] * 400, 1: [0.0] * 400}))
    assert (sure.baseline.best, sure.baseline.states_best) == (1.0, 1)
    open_ = known(bandit({0: [1.0] * 10, 1: [1.0] * 9}))
    assert (open_.baseline.chosen, open_.baseline.states_best) == (1.0, 0)
    blank = known(bandit({0: [0.0], 1: [0.0]}))
    assert (blank.baseline.tied, blank.baseline.worth_something) == (1.0, 0.0)
    alone = known(bandit({1: [1.0] * 9}), allowed="seen")
    assert (alone.baseline.only, alone.baseline.best) == (1.0, 0.0)


def test_shares_of_what_is_known_sum_to_one_at_every_step() -> None:
    found = known(walk(400))
    parts = found.baseline
    assert parts.best + parts.chosen + parts.tied + parts.only == pytest.approx(1.0)
    assert [stage.t for stage in parts.by_stage] == list(range(HORIZON))
    for stage in parts.by_stage:
        assert stage.best + stage.chosen + stage.tied + stage.only == pytest.approx(1.0)
    assert sum(stage.steps for stage in parts.by_stage) == found.basis.replayed_steps
    assert parts.best == pytest.approx(sum(s.best * s.steps for s in parts.by_stage) / 2000)


def test_charges_are_quantiles_over_the_steps_that_differ() -> None:
    # Action 1 earned 1 in 20 tries, action 0 was never tried: it may be worth 0, so it is charged V_hi = 1.
    found = known(bandit({1: [1.0] * 20}), etas=[0.5, 1.0])
    assert found.charges.differing == 1.0
    assert found.charges.overall == found.charges.at_start == (1.0,) * 41
    assert found.charges.mean == found.charges.mean_differing == 1.0
    strict = {each.eta: each for each in found.outcomes if each.rule == "strict"}
    assert (strict[0.5].deviating, strict[1.0].deviating) == (0.0, 1.0)


def test_budgets_and_charges_are_in_the_users_units() -> None:
    log = walk(ends=False)
    tenfold: dict[str, Any] = {**log.columns(), "reward": 10 * log.reward}
    small = known(log, etas=[0.7])
    large = known(Log.from_arrays(**tenfold), etas=[7.0], reward_high=10.0)
    assert large.charges.mean == pytest.approx(10 * small.charges.mean)
    assert large.outcomes[0].deviating == small.outcomes[0].deviating
    assert large.outcomes[0].charge_per_step == pytest.approx(10 * small.outcomes[0].charge_per_step)
    assert large.thresholds[2].eta_deviating == pytest.approx(10 * (small.thresholds[2].eta_deviating or 0))


def test_strict_never_books_beyond_eta_and_paper_says_where_it_does() -> None:
    found = known(walk(), etas=[0.0, 0.3, 1.0, 3.0])
    for outcome in found.outcomes:
        if outcome.rule != "paper":
            assert outcome.episodes_over_eta == 0.0
    assert any(outcome.episodes_over_eta > 0 for outcome in found.outcomes if outcome.rule == "paper")


def test_no_budget_buys_only_what_is_free_and_enough_buys_everything() -> None:
    first = known(walk(), etas=[0.0, 1e6], rules=["strict"])
    none, all_of_it = first.outcomes
    assert none.charge_per_step == 0.0
    assert all_of_it.explored == 1.0
    assert all_of_it.deviating == first.charges.differing
    assert all_of_it.charge_per_step == pytest.approx(first.charges.mean)


def test_thresholds_buy_their_share_and_a_little_less_does_not() -> None:
    log = walk()
    found = known(log, rules=["strict"])
    wanted = found.thresholds[-1]
    assert wanted.share == 0.5
    assert wanted.eta_deviating is not None
    at, below = (
        known(log, rules=["strict"], etas=[factor * wanted.eta_deviating]).outcomes[0].deviating
        for factor in (1.0, 0.97)
    )
    assert at >= 0.5 * found.charges.differing > below


def test_the_smallest_budget_is_found_where_a_measure_steps() -> None:
    grid = [0.0, 1.0, 2.0, 4.0, 8.0]
    assert smallest_eta(grid, lambda eta: eta, 3.0) == pytest.approx(3.0, rel=0.01)
    assert smallest_eta(grid, lambda eta: eta, 9.0) is None
    assert smallest_eta(grid, lambda eta: 1.0 * (eta > 0), 0.5) == 0.0


def test_nothing_to_charge_has_no_grid() -> None:
    replay = ReplayedCharges((np.zeros(3),), (np.zeros(3, dtype=bool),), 3, 3)
    assert grid_of(replay, 1.0) == [0.0]
    assert play(CharyUCBVI(eta=0.0), replay, 1.0).explored == 1.0


def test_held_out_episodes_are_replayed_and_not_learnt_from() -> None:
    log = walk(50)
    found = known(log, holdout=0.2)
    assert (found.basis.learnt_episodes, found.basis.replayed_episodes) == (40, 10)
    head = known(walk(50), holdout=0.0)
    assert found.basis.pairs_seen <= head.basis.pairs_seen
    changed: dict[str, Any] = {name: np.array(column) for name, column in log.columns().items()}
    changed["reward"][log.episode >= 40] = 0.0
    assert known(Log.from_arrays(**changed), holdout=0.2).charges == found.charges
    with pytest.raises(InvalidSetting, match="holdout"):
        known(walk(1), holdout=0.5)


def test_a_large_replay_is_a_sample_that_is_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MOST_PRICING", 700)
    first, again = known(walk()), known(walk())
    assert as_json(first.summary()) == as_json(again.summary())
    assert first.basis.replayed_episodes < first.basis.episodes
    assert any(f"{first.basis.replayed_episodes} of the episodes" in note for note in first.notes)


def test_negative_rewards_with_endings_are_filled_up_and_not_counted() -> None:
    log = walk(low=-2.0, ends=True)
    found = known(log, etas=[1.0], reward_low=-2.0)
    assert found.basis.replayed_steps == found.basis.learnt_steps == len(log)
    assert found.basis.states == STATES + 1
    assert found.baseline.states == STATES - 1
    assert any("filled up" in note for note in found.notes)


def test_endings_in_states_that_others_pass_get_a_state_of_their_own() -> None:
    columns: dict[str, Any] = {name: np.array(column) for name, column in walk().columns().items()}
    columns["terminated"][HORIZON - 1] = True
    found = known(Log.from_arrays(**columns))
    assert found.basis.states == STATES + 1
    assert any("endings were given" in note for note in found.notes)


def test_only_actions_seen_are_proposed_where_asked() -> None:
    log = bandit({0: [1.0] * 20, 1: [0.0] * 20})
    assert known(log, n_actions=5).basis.pairs == 5
    assert known(log, n_actions=5, allowed="seen").basis.pairs == 2


def test_the_logged_action_decides_ties_where_asked() -> None:
    log = bandit({0: [0.0], 1: [0.0, 0.0], 2: [0.0]})
    # The explorer wants the least tried, 0; the baseline is 0 by number and 1 by habit.
    assert (known(log).charges.differing, known(log, prior="logged").charges.differing) == (0.0, 1.0)
    assert known(log, prior="logged").basis.prior == "logged"
    assert known(log, prior=np.array([2])).basis.prior == "given"


def test_more_visits_to_a_helpful_pair_lower_the_charges() -> None:
    found = known(walk(300))
    assert found.helpful
    for pair in found.helpful:
        assert pair.charge_after < pair.charge_before
    assert [p.charge_after for p in found.helpful] == sorted(p.charge_after for p in found.helpful)
    assert found.charges.mean_doubled is not None
    assert found.charges.mean_differing is not None
    assert found.charges.mean_doubled < found.charges.mean_differing


def test_a_pair_never_tried_is_supposed_to_be_like_others_there() -> None:
    found = known(bandit({1: [1.0] * 20}))
    pair = found.helpful[0]
    assert (pair.state, pair.action, pair.visits, pair.supposed, pair.role) == (
        0,
        0,
        0,
        "other actions",
        "explorer",
    )


def test_rewards_taken_from_the_log_are_said_to_be() -> None:
    assert any("range of rewards" in note for note in preview(walk(), etas=[1.0]).notes)
    assert not any("range of rewards" in note for note in known(walk()).notes)


DECLARED: dict[str, Any] = {
    "horizon": HORIZON,
    "n_states": STATES,
    "n_actions": ACTIONS,
    "reward_low": 0.0,
    "reward_high": 1.0,
}


def test_what_was_read_off_the_log_is_never_certified() -> None:
    assert {each.standing.label for each in known(walk()).rules} == {"uncertified per run"}
    for name in DECLARED:
        declared = {each: value for each, value in DECLARED.items() if each != name}
        found = preview(walk(), etas=[0.5, 1.0], bonus="kl", **declared)
        standings = [each.standing for each in found.outcomes] + [each.standing for each in found.rules]
        assert {each.label for each in standings} == {"uncertified per run"}, name
        assert all("read off the log and not declared" in each.given[0] for each in standings), name
    seen = preview(walk(), etas=[0.5], **DECLARED, allowed="seen").rules[0].standing
    assert seen.given[0] == "which actions are allowed where, read off the log and not declared"


def test_what_was_declared_is_certified_given_all_it_leans_on() -> None:
    rules = {
        each.rule: each.standing for each in preview(walk(), etas=[0.5, 1.0], bonus="kl", **DECLARED).rules
    }
    assert {each.label for each in rules.values()} == {"certified per run (0.9)"}
    assert all({MARKOV, UNCONFOUNDED} < set(each.given) for each in rules.values())
    gaps = "gaps <= step bound: no true gap of a baseline exceeds eta / 2"
    assert [gaps in rules[rule].given for rule in ("strict", "capped", "paper")] == [False, True, True]


def test_a_scale_without_a_calibration_is_uncertified_in_a_plan() -> None:
    options = DECLARED | {"bonus": "hoeffding", "bonus_scale": 0.1, "max_episodes": 100}
    standing = preview(walk(), etas=[0.5], **options).rules[0].standing
    assert standing.label == "uncertified per run"
    assert standing.given[0] == "scale 0.1 of bonus hoeffding, which has no calibration"


def test_cells_of_observations_are_named_first() -> None:
    columns: dict[str, Any] = walk().columns()
    cells = Log(**columns, discretised=True)
    assert preview(cells, etas=[0.5]).rules[0].standing.given[0] == MARKOV_CELLS


def test_the_summary_is_plain_json() -> None:
    told = json.loads(as_json(known(walk()).summary()))
    assert told["basis"]["episodes"] == 60
    assert len(told["outcomes"]) == 6
    assert all(isinstance(sentence, str) for sentence in told["sentences"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"etas": []}, "etas"),
        ({"etas": 0.5}, "etas"),
        ({"etas": "0.5"}, "etas"),
        ({"etas": [-1.0]}, "eta"),
        ({"etas": [math.nan]}, "eta"),
        ({"etas": [math.inf]}, "eta"),
        ({"etas": ["much"]}, "eta"),
        ({"etas": [None]}, "eta"),
        ({"etas": range(1000)}, "etas"),
        ({"horizon": 2}, "horizon"),
        ({"horizon": 2.5}, "horizon"),
        ({"horizon": 10**9}, "horizon"),
        ({"discount": 0.0}, "discount"),
        ({"discount": None}, "discount"),
        ({"reward_low": math.nan}, "reward_low"),
        ({"reward_low": 2.0}, "reward_low"),
        ({"reward_high": 0.5}, "reward"),
        ({"n_states": 2}, "state"),
        ({"n_states": 10**12}, "n_states"),
        ({"n_actions": 1}, "action"),
        ({"n_actions": "two"}, "n_actions"),
        ({"value_cap": -1.0}, "value_cap"),
        ({"support": 0}, "support"),
        ({"support": 1}, "support"),
        ({"allowed": "some"}, "allowed"),
        ({"prior": "habit"}, "prior"),
        ({"prior": [9] * STATES}, "prior"),
        ({"prior": [[1, 2], [3]]}, "prior"),
        ({"prior": object()}, "prior"),
        ({"bonus": "guess"}, "bonus"),
        ({"bonus": "hoeffding"}, "max_episodes"),
        ({"bonus": "ch"}, "bonus"),
        ({"max_episodes": 0}, "max_episodes"),
        ({"bonus_scale": 0.5}, "bonus_scale"),
        ({"delta": 1.0}, "delta"),
        ({"charge": "nothing"}, "charge"),
        ({"rules": []}, "rules"),
        ({"rules": 3}, "rules"),
        ({"rules": ["lax"]}, "rule"),
        ({"rules": [["strict"]]}, "rule"),
        ({"rules": ["strict"], "step_bound": 1.0}, "step_bound"),
        ({"step_bound": 0.0}, "step_bound"),
        ({"step_bound": "wide"}, "step_bound"),
        ({"more_visits": 10**12}, "more_visits"),
        ({"after_refusal": "stop"}, "after_refusal"),
        ({"holdout": 1.0}, "holdout"),
        ({"holdout": "half"}, "holdout"),
        ({"more_visits": 0}, "more_visits"),
        ({"baseline": [0, 9, 0, 0]}, "policy"),
        ({"baseline": [0, 1]}, "policy"),
        ({"baseline": "nowhere.csv"}, "path"),
        ({"baseline": "rule.txt"}, "path"),
        ({"baseline": [0] * STATES, "prior": "logged"}, "prior"),
        ({"role": "king"}, "role"),
        ({"rewards": [[1.0]]}, "reward"),
        ({"rewards": "nowhere.csv"}, "path"),
        ({"rewards": [[0.5] * ACTIONS] * STATES}, "reward"),
        ({"unit": 7}, "unit"),
        ({"unit": "e" * 100}, "unit"),
        ({"bonus": "posterior", "step_bound": -1.0}, "step_bound"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_option(options: dict[str, Any], named: str) -> None:
    with pytest.raises(CharyError, match=f"'{named}") as caught:
        known(walk(5), **options)
    assert "\n" not in str(caught.value)


def test_something_else_than_a_log_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'log'"):
        preview([1, 2, 3], etas=[1.0])  # type: ignore[arg-type]


def test_support_must_cover_what_was_seen() -> None:
    with pytest.raises(InvalidData, match="'support' must cover the successors of every pair, got 1 as one"):
        known(walk(), support=1)
    assert known(walk(), support=2).charges.mean < known(walk()).charges.mean


def test_the_page_needs_nothing_else_and_stays_small() -> None:
    pytest.importorskip("matplotlib")
    page = page_bytes(known(walk()), "<b>visits</b>.csv").decode()
    assert len(page) < PAGE_LIMIT
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "&lt;b&gt;visits&lt;/b&gt;.csv" in page
    assert page.count("data:image/png;base64,") == 3


@pytest.mark.parametrize(
    "make", [lambda: bandit({0: [1.0] * 400, 1: [0.0] * 400}), lambda: bandit({0: [1.0]}), walk]
)
def test_every_preview_has_a_page(make: Callable[[], Log]) -> None:
    pytest.importorskip("matplotlib")
    assert b"In plain words" in page_bytes(preview(make(), etas=[0.0, 1.0]), "log")


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)
    for name, function in COMMANDS.items():
        command(app, name, function)
    return app


def test_the_command_writes_a_page_and_the_same_json(app: typer.Typer, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_log(walk(), tmp_path / "log.csv")
    out = tmp_path / "plan"
    command = ["plan", str(tmp_path / "log.csv"), "--eta", "0.5", "--eta", "2", "--out", str(out), "--json"]
    first = CliRunner().invoke(app, command)
    assert first.exception is None, first.exception
    assert sorted(path.name for path in out.iterdir()) == ["plan.html", "plan.json"]
    assert first.stdout == (out / "plan.json").read_text()
    assert {each["eta"] for each in json.loads(first.stdout)["outcomes"]} == {0.5, 2.0}
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, CharyError)
    assert CliRunner().invoke(app, [*command, "--overwrite"]).exception is None


def test_the_command_leads_with_the_verdict_and_tells_all_if_asked(app: typer.Typer, tmp_path: Path) -> None:
    write_log(walk(), tmp_path / "log.csv")
    # With more, bounds would try as much as worlds on this log, and be recommended.
    command = ["plan", str(tmp_path / "log.csv"), "--eta", "0.3", "--rule", "strict"]
    short, whole = (CliRunner().invoke(app, [*command, *more]) for more in ([], ["--verbose"]))
    assert short.exception is whole.exception is None
    assert short.stdout.splitlines()[0] == whole.stdout.splitlines()[0]
    assert short.stdout.count("\n") < 40 < whole.stdout.count("\n")
    said = (
        "Uncertified per episode, because this was read off the log and not declared: horizon 5; rewards in"
    )
    assert said in short.stdout
    assert "The log contains 60 episodes with 300 decisions." in whole.stdout
    assert "Uncertified per episode: the ledger keeps the budget" in whole.stdout
    assert "Rule capped" not in whole.stdout
    for text in ("    agent.warm_start(log.episodes())", "chary calibrate"):
        assert text in short.stdout
        assert text in whole.stdout
    declared = "--horizon 5 --reward-low -1 --reward-high 2 --n-states 4 --n-actions 3".split()
    surely = CliRunner().invoke(app, [*command, *declared]).stdout
    assert re.search(r"Credible per episode: .*\nIt leans on this: .* --verbose lists", surely)


def test_a_declared_step_bound_that_the_log_refutes_is_a_warning(app: typer.Typer, tmp_path: Path) -> None:
    log = bandit({0: [1.0] * 200, 1: [0.0] * 200})
    write_log(log, tmp_path / "log.csv")
    command = ["plan", str(tmp_path / "log.csv"), "--eta", "0.5"]
    assert "Warning" not in CliRunner().invoke(app, command).stdout
    warned = CliRunner().invoke(app, [*command, "--step-bound", "0.1"]).stdout
    assert "Warning: The log refutes a step bound of 0.1" in warned
    assert "refutes a step bound of 0.25" not in warned


@pytest.mark.parametrize("options", [["--eta", "-1"], [], ["--eta", "1", "--horizon", "2"]])
def test_a_mistake_writes_nothing(app: typer.Typer, tmp_path: Path, options: list[str]) -> None:
    pytest.importorskip("matplotlib")
    write_log(walk(), tmp_path / "log.csv")
    out = tmp_path / "deep" / "plan"
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "log.csv"), *options, "--out", str(out)])
    assert isinstance(result.exception, CharyError)
    assert not (tmp_path / "deep").exists()
