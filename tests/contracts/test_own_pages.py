"""The pages "Write your own agent" and "Write your own problem" do what they say, with the code on them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sweeps import chary
from tests.test_docs import ROOT, python_blocks

from chary.extensions import load
from chary.simulation import simulate
from chary.sweeps.perform import perform
from chary.sweeps.tabular import problem_and_agent
from chary.sweeps.toml import parse_experiment
from chary.testing import check_agent, check_problem

AGENT, PROBLEM = ROOT / "docs" / "own-agent.md", ROOT / "docs" / "own-problem.md"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def experiment_of(page: Path) -> str:
    """Return the experiment on a page: its last block of TOML."""
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return blocks[-1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the class and the function of the pages, as files of the names that they give them."""
    for page, name in ((AGENT, "psrl"), (PROBLEM, "clinic")):
        definition = python_blocks(page)[0]
        # What the page runs with it begins at the first line behind the definition.
        end = re.search(r"\n\n\n(?!class|def)", definition)
        assert end is not None
        (tmp_path / f"{name}.py").write_text(definition[: end.start()] + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    for name in ("psrl", "clinic"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("page", "block"), [(AGENT, 0), (AGENT, 1)], ids=["write your own agent", "judge any rollout"]
)
def test_a_page_shows_what_its_code_prints(
    page: Path, block: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = python_blocks(page)[block]
    exec(compile(code, "example", "exec"), {})
    printed = capsys.readouterr().out.strip()
    behind = page.read_text(encoding="utf-8").partition(code)[2]
    found = re.match(r"```\n\n```\n(.*?)\n```", behind, flags=re.DOTALL)
    assert found is not None
    assert NUMBER.sub("N", printed) == NUMBER.sub("N", found[1])
    # Another version of NumPy may draw other numbers from the same seed.
    shown = [float(n.replace(",", "")) for n in NUMBER.findall(found[1])]
    assert [float(n.replace(",", "")) for n in NUMBER.findall(printed)] == pytest.approx(shown, rel=0.5)


def test_psrl_has_the_length_that_the_page_promises(here: Path) -> None:
    lines = (here / "psrl.py").read_text(encoding="utf-8").partition("class PSRL:")[2].splitlines()
    assert 20 <= len([line for line in lines if line.strip()]) <= 30


def test_the_agent_of_the_page_keeps_the_contract_and_runs_by_name(here: Path) -> None:
    check_agent("psrl:PSRL")
    commands = re.findall(r"^chary (run .*psrl.*)$", AGENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(commands) == 1
    answer = chary(*commands[0].replace("200", "5").split())
    assert answer.returncode == 0, answer.stderr
    assert "psrl:PSRL on riverswim" in answer.stdout


def test_the_experiments_of_the_pages_can_be_played(here: Path) -> None:
    for page in (AGENT, PROBLEM):
        experiment = parse_experiment(experiment_of(page))
        experiment.check()
        assert len(experiment.plan()) > 5
    spec = parse_experiment(experiment_of(AGENT)).changed(episodes=5).plan()[0].spec
    assert spec.options["arguments"] == {"strength": 0.5}
    assert b'"agent": "psrl:PSRL"' in perform(spec, None)["result.json"]


def test_the_problem_of_the_page_keeps_the_contract_and_is_played_as_on_the_page(here: Path) -> None:
    check_problem("clinic:clinic")
    spec = parse_experiment(experiment_of(PROBLEM)).plan()[0].spec
    mdp, agent = problem_and_agent(spec)
    # The step-by-step driver plays the same bits and compiles less than the run on the page.
    run = simulate(mdp, agent, episodes=200, warmup=50, driver="step")
    printed = f"{run.violations().sum()} of 200 episodes over budget, regret {run.regret.sum():,.0f} euros"
    assert printed in PROBLEM.read_text(encoding="utf-8")
    assert load("problem", "clinic:clinic").__name__ == "clinic"
    answer = chary("check", "clinic:clinic", "--eta", 40)
    assert answer.returncode == 0, answer.stderr
