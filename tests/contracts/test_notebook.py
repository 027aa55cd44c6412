"""The notebooks run as they stand, and what they show is what they showed when they were kept."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
# The number of pictures in each.
PICTURES = {"first-steps": 3, "own-agent": 2, "own-log-to-live": 2}
LARGEST = 300_000  # bytes: they are read, and kept in the repository


def kept(name: str) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> list[str]:
    """What a cell shows: pictures as such, texts without their numbers, which may differ by machine."""
    texts = ["picture" if "data" in output else "".join(output["text"]) for output in cell["outputs"]]
    return [re.sub(r"-?\d[\d.,]*", "#", text) for text in texts]


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the cells of a notebook in their order, and return the names that they leave."""
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures need pip install 'chary[figures]'")
    plt.switch_backend("Agg")
    names: dict[str, Any] = {}
    with plt.rc_context():
        monkeypatch.setattr(plt, "show", plt.close)
        for cell in code_cells(kept(name)):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_is_kept_with_its_outputs_and_small(name: str) -> None:
    cells = code_cells(kept(name))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("picture" in shown(cell) for cell in cells) == PICTURES[name]
    assert not [cell for cell in cells if any(output["output_type"] == "error" for output in cell["outputs"])]


def test_the_first_steps_keep_their_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run("first-steps", monkeypatch)
    assert max(names["booked"]) <= names["ETA"]
    assert len(names["earnings"]) == names["WEEKS"]
    assert "certified" in capsys.readouterr().out


def test_an_own_log_leads_to_an_agent_that_earns_more_than_the_rule_in_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run("own-log-to-live", monkeypatch)
    earned = names["earnings"]
    # By far more than chance: the means of rounds differ less from each other.
    assert sum(earned) / len(earned) > names["worth"].high + 10
    assert names["lost"] > 0
    assert not names["agent"].open_episodes
    assert "credible per episode" in capsys.readouterr().out


def test_an_agent_of_your_own_is_judged_beside_the_others_and_swept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    try:
        names = run("own-agent", monkeypatch)
    finally:
        sys.modules.pop("noisy", None)
    over = {name: run.violations().sum() for name, run in names["runs"].items()}
    # What the text says: only chary promises a budget, and the agent of the page breaks it.
    assert over["chary"] == 0 < over["Noisy"]
    assert names["table"].height == 5 * 3
    assert set(names["table"]["agent"]) == {"noisy:Noisy", "ucbvi", "chary"}
    assert "keeps the contract" in capsys.readouterr().out


@pytest.mark.parametrize("name", PICTURES)
def test_a_fresh_kernel_shows_what_was_kept(name: str) -> None:
    nbclient = pytest.importorskip("nbclient", reason="make docs installs it and runs this test")
    pytest.importorskip("ipykernel", reason="make docs installs it and runs this test")
    nbformat = pytest.importorskip("nbformat")
    config = pytest.importorskip("traitlets.config").Config({"KernelManager": {"transport": "ipc"}})
    before = kept(name)
    after = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in code_cells(after):
        cell["outputs"] = []
    with warnings.catch_warnings():
        # What the tools of Jupyter warn of is not ours to mend.
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(after, timeout=300, record_timing=False, config=config).execute()
    assert [shown(cell) for cell in code_cells(after)] == [shown(cell) for cell in code_cells(before)]
