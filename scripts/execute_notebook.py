"""Run notebooks and store their outputs: python scripts/execute_notebook.py notebooks/*.ipynb."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config


def execute(path: Path) -> None:
    """Run a notebook, remove times and counts that would differ each time, and write it in place."""
    notebook = nbformat.read(path, as_version=4)
    # File sockets, because the kernel warns of open ports.
    config = Config({"KernelManager": {"transport": "ipc"}})
    NotebookClient(notebook, timeout=300, record_timing=False, config=config).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(nbformat.writes(notebook, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(Path(name))
