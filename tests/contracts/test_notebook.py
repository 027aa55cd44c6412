"""The notebooks run as they stand, and what they show is what they showed when they were kept."""

from __future__ import annotations

import json
import re
import sys
import warnings
from importlib.util import find_spec
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


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_is_kept_with_its_outputs_and_small(name: str) -> None:
    cells = code_cells(kept(name))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("picture" in shown(cell) for cell in cells) == PICTURES[name]
    assert not [cell for cell in cells if any(output["output_type"] == "error" for output in cell["outputs"])]


# What the text of each says, as code that runs after its last cell.
CLAIMS = {
    "first-steps": """
assert max(booked) <= ETA
assert len(earnings) == WEEKS
""",
    # Better by far more than chance: the means of rounds differ less from each other.
    "own-log-to-live": """
assert sum(earnings) / len(earnings) > worth.high + 10
assert lost > 0
assert not agent.open_episodes
""",
    # Only chary promises a budget, and the agent of the page breaks it.
    "own-agent": """
over = {name: run.violations().sum() for name, run in runs.items()}
assert over["chary"] == 0 < over["Noisy"]
assert table.height == 5 * 3
assert set(table["agent"]) == {"noisy:Noisy", "ucbvi", "chary"}
""",
}
SAYS = {
    "first-steps": "certified",
    "own-log-to-live": "credible per episode",
    "own-agent": "keeps the contract",
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_shows_what_was_kept_and_what_it_says_is_true(name: str) -> None:
    nbclient = pytest.importorskip("nbclient", reason="make docs installs it and runs this test")
    pytest.importorskip("ipykernel", reason="make docs installs it and runs this test")
    nbformat = pytest.importorskip("nbformat")
    config = pytest.importorskip("traitlets.config").Config({"KernelManager": {"transport": "ipc"}})
    before = kept(name)
    after = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in code_cells(after):
        cell["outputs"] = []
    after["cells"].append(nbformat.v4.new_code_cell(CLAIMS[name]))
    with warnings.catch_warnings():
        # What the tools of Jupyter warn of is not ours to mend.
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(after, timeout=300, record_timing=False, config=config).execute()
    assert [shown(cell) for cell in code_cells(after)[:-1]] == [shown(cell) for cell in code_cells(before)]
    assert any(SAYS[name] in text for cell in code_cells(after) for text in shown(cell))


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.skipif(find_spec("nbclient") is not None, reason="run in a kernel of its own")
def test_what_a_notebook_says_is_true_without_jupyter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures need pip install 'chary[figures]'")
    plt.switch_backend("Agg")
    monkeypatch.setattr(sys, "path", sys.path[:])
    names: dict[str, Any] = {}
    try:
        with plt.rc_context():
            monkeypatch.setattr(plt, "show", plt.close)
            for cell in code_cells(kept(name)):
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
        exec(CLAIMS[name], names)
    finally:
        # The module that a notebook writes and imports.
        sys.modules.pop("noisy", None)


def test_every_claim_belongs_to_a_notebook() -> None:
    assert set(CLAIMS) == set(SAYS) == set(PICTURES)
