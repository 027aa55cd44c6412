"""Runs on all cores, and files of results: shared by the scripts of this folder."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from chary._workers import worker_pool

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON, and return its summary and its cumulative regret at 100 points."""
    import chary

    told = json.loads(job)
    mdp = chary.envs.make(told["problem"], **told.get("options", {}))
    spec = chary.make_agent(told["agent"], **told["settings"])
    run = chary.simulate(
        mdp,
        spec,
        episodes=told["episodes"],
        warmup=told["warmup"],
        seed=told["seed"],
        **told.get("extra", {}),
    )
    points = np.unique(np.linspace(1, told["episodes"], 100).astype(int))
    judged = run.spec.eta is not None
    return {
        **run.summary(),
        "label": told["label"],
        "points": points.tolist(),
        "cumulative_regret": np.cumsum(run.regret)[points - 1].tolist(),
        "cumulative_violations": np.cumsum(run.violations())[points - 1].tolist() if judged else None,
    }


def play_all(
    jobs: Iterable[dict[str, Any]], *, worker: Callable[[str], Any] = play, workers: int | None = None
) -> list[Any]:
    """Play all jobs in so many processes (default one per core), in order; progress goes to stderr."""
    work = [json.dumps(job) for job in jobs]
    results = []
    with worker_pool(workers or os.cpu_count() or 1) as pool:
        for result in pool.map(worker, work):
            results.append(result)
            print(f"\r{len(results)}/{len(work)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def provenance() -> dict[str, Any]:
    """Return the provenance of a recorded result."""
    import numba

    import chary

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "command": "python "
        + " ".join([Path(sys.argv[0]).resolve().relative_to(ROOT).as_posix(), *sys.argv[1:]]),
        "commit": commit.stdout.strip() or None,
        "chary": chary.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cores": os.cpu_count(),
    }


def record(name: str, result: dict[str, Any]) -> Path:
    """Write a result with its provenance to benchmarks/results, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"provenance": provenance(), **result}, indent=1) + "\n")
    temporary.replace(path)
    return path


def fill(page: Path, marker: str, text: str) -> None:
    """Put generated text between the two markers called `marker` of a page."""
    begin, end = f"<!-- begin {marker} -->", f"<!-- end {marker} -->"
    old = page.read_text()
    before, rest = old.split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
