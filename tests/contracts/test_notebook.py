"""The notebook runs as it stands, and what it shows is what it showed when it was kept."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "first-steps.ipynb"
LARGEST = 300_000  # bytes: it is read, and kept in the repository


def kept() -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> list[str]:
    """What a cell shows: pictures as such, texts without their numbers, which may differ by machine."""
    texts = ["picture" if "data" in output else "".join(output["text"]) for output in cell["outputs"]]
    return [re.sub(r"-?\d[\d.,]*", "#", text) for text in texts]


def test_the_notebook_is_kept_with_its_outputs_and_small() -> None:
    cells = code_cells(kept())
    assert NOTEBOOK.stat().st_size < LARGEST
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("picture" in shown(cell) for cell in cells) == 3
    assert not [cell for cell in cells if any(output["output_type"] == "error" for output in cell["outputs"])]


def test_the_cells_run_in_their_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures need pip install 'chary[figures]'")
    plt.switch_backend("Agg")
    with plt.rc_context():
        monkeypatch.setattr(plt, "show", plt.close)
        names: dict[str, Any] = {}
        for cell in code_cells(kept()):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert max(names["booked"]) <= names["ETA"]
    assert len(names["earnings"]) == names["WEEKS"]
    assert "certified" in capsys.readouterr().out


def test_a_fresh_kernel_shows_what_was_kept() -> None:
    nbclient = pytest.importorskip("nbclient", reason="make docs installs it and runs this test")
    pytest.importorskip("ipykernel", reason="make docs installs it and runs this test")
    nbformat = pytest.importorskip("nbformat")
    config = pytest.importorskip("traitlets.config").Config({"KernelManager": {"transport": "ipc"}})
    before = kept()
    after = nbformat.read(NOTEBOOK, as_version=4)
    for cell in code_cells(after):
        cell["outputs"] = []
    with warnings.catch_warnings():
        # What the tools of Jupyter warn of is not ours to mend.
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(after, timeout=300, record_timing=False, config=config).execute()
    assert [shown(cell) for cell in code_cells(after)] == [shown(cell) for cell in code_cells(before)]
