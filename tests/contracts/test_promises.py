"""Every output of a result says what it promises: its level, what it holds for, and all that it leans on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chary.agents.tabular import TabularAgent
from chary.cli import app
from chary.data import Log, write_log
from chary.evaluation import evaluate_policy
from chary.mdp import Setting
from chary.standing import MARKOV, MARKOV_CELLS, NETWORKS, STATIONARY, UNCONFOUNDED, Standing

GOLDEN = Path(__file__).parents[1] / "golden"
# Two parts of a promise in words; the third is a list of conditions, one of which every promise has.
LABEL = re.compile(r"(certified|credible|calibrated|uncertified) per (run|episode|evaluation)", re.IGNORECASE)
RUN = ("run", "riverswim", "--episodes", 3, "--warmup", 2)


def standings(value: Any) -> Iterator[Standing]:
    """Find every standing in JSON."""
    if isinstance(value, dict):
        if "level" in value:
            yield Standing.from_json(value)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from standings(each)


def called(*arguments: object) -> str:
    answer = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def decisions(rewards: list[int]) -> Log:
    """Single decisions in one state, each rewarded by its own action."""
    n, zeros = len(rewards), [0] * len(rewards)
    return Log.from_arrays(
        episode=range(n),
        t=zeros,
        state=zeros,
        action=rewards,
        reward=rewards,
        next_state=zeros,
        terminated=zeros,
    )


def assert_said(text: str, *conditions: str) -> None:
    """Check that a text for readers has all three parts."""
    words = " ".join(unescape(text).split())
    assert LABEL.search(words)
    for condition in (MARKOV, *conditions):
        assert condition in words, condition


def test_a_run_says_its_promise_in_words_and_in_json(tmp_path: Path) -> None:
    assert_said(called(*RUN), STATIONARY)
    (found,) = standings(json.loads(called(*RUN, "--json", "--out", tmp_path / "out")))
    assert (found.level, found.per, found.probability) == ("credible", "episode", 0.999)
    assert MARKOV in found.given
    assert list(standings(json.loads((tmp_path / "out" / "run.json").read_text()))) == [found]


def test_a_plan_says_its_promise_in_words_in_json_and_on_its_page(tmp_path: Path) -> None:
    write_log(decisions([0, 1] * 20), tmp_path / "log.csv")
    asked = ("plan", tmp_path / "log.csv", "--eta", "0.5", "--eta", "1")
    inferred = "read off the log and not declared"
    assert_said(called(*asked), UNCONFOUNDED, inferred)
    told = json.loads(called(*asked, "--json", "--out", tmp_path / "out"))
    # The worlds' rule with two budgets, the rule itself, and the recommended configuration with its outcome.
    assert len(list(standings(told))) == 5
    by_bounds = json.loads(called(*asked, "--bonus", "kl", "--json"))
    # Three rules with two budgets each, the three rules, and the recommended configuration with its outcome.
    assert len(list(standings(by_bounds))) == 11
    assert all(each.level == "uncertified" for each in standings(by_bounds))
    assert all(each.level == "uncertified" and UNCONFOUNDED in each.given for each in standings(told))
    page = (tmp_path / "out" / "plan.html").read_text(encoding="utf-8")
    assert_said(page, UNCONFOUNDED, inferred)


def test_an_evaluation_says_its_promise() -> None:
    setting = Setting.declare(n_states=1, n_actions=2, horizon=1)
    found = evaluate_policy(decisions([0, 1] * 20), [0], setting)
    assert_said(found.describe(), UNCONFOUNDED)
    assert list(standings(found.to_json())) == [found.standing]


@pytest.mark.parametrize("name", ["chary-strict", "chary-capped-kl", "chary-paper", "chary-meta"])
def test_a_saved_agent_of_version_0_1_says_its_promise(name: str, tmp_path: Path) -> None:
    agent = TabularAgent.load(GOLDEN / f"{name}.npz")
    # Such a file does not tell whether logs were learnt from, so they may have been.
    assert {MARKOV, UNCONFOUNDED} < set(agent.standing.given)
    agent.save(tmp_path / "again.npz")
    assert TabularAgent.load(tmp_path / "again.npz").standing == agent.standing


def test_a_saved_agent_with_a_discretiser_names_its_cells_first() -> None:
    assert TabularAgent.load(GOLDEN / "chary-discretised.npz").standing.given[0] == MARKOV_CELLS


@pytest.mark.parametrize(("family", "condition"), [("tabular", STATIONARY), ("hiv", NETWORKS)])
@pytest.mark.usefixtures("undrawn")
def test_a_report_says_its_promises_on_its_page_and_in_json(
    family: str, condition: str, tmp_path: Path
) -> None:
    for package in ("polars", "plotly", "matplotlib", "jinja2", "jax"):
        pytest.importorskip(package)
    folder = shutil.copytree(GOLDEN / f"{family}-sweep", tmp_path / "sweep")
    found = list(standings(json.loads(called("report", folder, "--json"))))
    assert any({condition, MARKOV} < set(each.given) for each in found)
    # Agents without a budget are said to promise nothing.
    assert any(each.per is None for each in found)
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert_said(page, condition, "no promise")
    assert list(standings(json.loads((folder / "report" / "claims.json").read_text()))) == found
