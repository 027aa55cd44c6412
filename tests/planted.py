"""Plant one mistake at a time in a copy of the tree, and report which test finds it.

Run by hand, not by `make test`:

    python tests/planted.py [--tree DIRECTORY] [--only NAME ...] [--control] [--json FILE]

Every mistake is a slip that someone could make, each in another module. A place is found by its text, in the
present module or in the one where it stood before the modules moved, so that both layouts can be tried.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".mypy_cache", ".ruff_cache", ".hypothesis", "build", "out"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A text in a module that the mistake replaces."""

    module: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """One slip, made in the first place whose module and text exist; `tests` should find it."""

    name: str
    places: tuple[Place, ...]
    tests: str


def either(new: str, old: str, right: str, wrong: str) -> tuple[Place, ...]:
    """Return one text in the present module or in the module of before."""
    return Place(new, right, wrong), Place(old, right, wrong)


MISTAKES = (
    Mistake(
        "a charge with the wrong sign",
        either(
            "shield/ledger.py",
            "shield/ledger.py",
            "Ledger(closed, ledger.deficit + cost * afforded)",
            "Ledger(closed, ledger.deficit - cost * afforded)",
        ),
        "tests/properties/test_ledger_laws.py tests/unit/test_shield.py",
    ),
    Mistake(
        "a chain's clock one episode ahead",
        either(
            "shield/chains.py",
            "shield/meta.py",
            "self.last_advanced = ended\n",
            "self.last_advanced = ended + 1\n",
        ),
        "tests/unit/test_shield.py tests/properties/test_shield_laws.py",
    ),
    Mistake(
        "a ledger that load forgets",
        either(
            "shield/account.py",
            "shield/shield.py",
            "now = cls(plan, number, Ledger(*ledger), t",
            "now = cls(plan, number, Ledger(), t",
        ),
        "tests/parity/test_saved_agents.py -k strict",
    ),
    Mistake(
        "a pinned plan that changes with what is learnt",
        either(
            "agents/_learner.py",
            "agents/_learner.py",
            "            self._part()\n        self._learn(",
            "            pass\n        self._learn(",
        ),
        "tests/unit/test_live_agent.py tests/properties/test_open_episodes.py",
    ),
    Mistake(
        "a late meta-rollout that counts twice",
        either(
            "agents/tabular.py",
            "agents/tabular.py",
            "        self._late_rollouts = waiting\n",
            "        self._late_rollouts = waiting + self._late_rollouts[:1]\n",
        ),
        "tests/unit/test_live_agent.py tests/properties/test_open_episodes.py tests/parity/test_drivers.py",
    ),
    Mistake(
        "a true gap that may be negative",
        either("audit.py", "audit.py", "true_deficit += max(gap, 0.0)", "true_deficit += gap"),
        "tests/unit/test_audit.py tests/oracles/test_audit_kernels.py",
    ),
    Mistake(
        "a bonus without its root",
        either(
            "model/radii.py",
            "model/radii.py",
            "math.sqrt(n_states * log_term / max(1.0, n))",
            "(n_states * log_term / max(1.0, n))",
        ),
        "tests/oracles/test_kernels.py",
    ),
    Mistake(
        "successors out of order",
        either(
            "model/rows.py",
            "model/rows.py",
            "        for i in range(end, place, -1):\n",
            "        place = end\n        for i in range(end, place, -1):\n",
        ),
        "tests/properties/test_counts_laws.py",
    ),
    Mistake(
        "an upper bound taken from the lower critic",
        either(
            "critics/bounds.py",
            "critics/bounds.py",
            "v_upper = upper[rows, baseline] + self.upper_shift",
            "v_upper = lower[rows, baseline] + self.upper_shift",
        ),
        "tests/unit/test_critics.py",
    ),
    Mistake(
        "a charge that swaps the bounds",
        either(
            "reference/charges.py",
            "planner/reference_charges.py",
            "total(np.where(w > 0, w * v_upper, w * v_lower))",
            "total(np.where(w > 0, w * v_lower, w * v_upper))",
        ),
        "tests/unit/test_charges.py tests/oracles/test_kernels.py",
    ),
    Mistake(
        "a compiled chain that advances in the wrong episode",
        either(
            "simulation/_chains.py",
            "_chains.py",
            "    chains.last_advanced[slot] = k\n    chains.last_refused[slot] = -1\n",
            "    chains.last_advanced[slot] = k + 1\n    chains.last_refused[slot] = -1\n",
        ),
        "tests/parity/test_drivers.py",
    ),
    Mistake(
        "a deep chain with one episode less of patience",
        either(
            "deep/shielding.py",
            "deep/shielding.py",
            "chain.open & (chain.idle >= options.patience)",
            "chain.open & (chain.idle + 1 >= options.patience)",
        ),
        "tests/parity/test_deep_authorise.py",
    ),
    Mistake(
        "a changed result that is not found out",
        (
            Place(
                "sweeps/folder.py",
                "if hashlib.sha256(files[name]).hexdigest() != manifest.get(name):",
                "if name not in manifest:",
            ),
            Place(
                "runner/folder.py",
                "if hashlib.sha256(content).hexdigest() != manifest.get(name):",
                "if name not in manifest:",
            ),
        ),
        "tests/faults/test_sweeps.py -k tampered",
    ),
    Mistake(
        "an interval that is too narrow",
        (
            Place("statistics/binomial.py", 'method="exact"', 'method="wilson"'),
            Place(
                "statistics.py", "float(beta.isf(tail, k + 1, n - k))", "float(beta.isf(tail, k, n - k + 1))"
            ),
        ),
        "tests/unit/test_statistics.py",
    ),
)


def plant(mistake: Mistake, tree: Path) -> str:
    """Make the mistake in a tree and return the module."""
    for place in mistake.places:
        path = tree / "src" / "chary" / place.module
        if path.exists() and (text := path.read_text(encoding="utf-8")).count(place.right) == 1:
            path.write_text(text.replace(place.right, place.wrong), encoding="utf-8")
            return place.module
    raise SystemExit(f"{mistake.name!r} fits nowhere in {tree}: give it a place that exists.")


def first_failure(tree: Path, tests: str) -> str | None:
    """Return the first test that fails in a tree."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", "--tb=line"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests.split()],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = re.search(r"^FAILED (\S+?::.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found.group(1) if found else None


def main() -> int:
    """Read what to try from the command line; the exit code is how many mistakes were not found."""
    parser = argparse.ArgumentParser(description="Plant mistakes in copies of a tree.")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--only", nargs="*", default=[], help="Parts of the names of the mistakes to plant.")
    parser.add_argument("--control", action="store_true", help="Plant nothing: the tests have to pass.")
    parser.add_argument("--json", type=Path, help="Where to write what was found.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "build").mkdir()
        return tried(asked, Path(scratch))


def tried(asked: argparse.Namespace, scratch: Path) -> int:
    """Try the mistakes asked for in copies below `scratch`, and return how many were not found."""
    rows, missed = [], 0
    for mistake in MISTAKES:
        if asked.only and not any(part in mistake.name for part in asked.only):
            continue
        copy = shutil.copytree(asked.tree, scratch / "tree", ignore=LEFT_OUT, symlinks=True)
        # What was compiled for the last copy is found unless its source changed: times are kept in a copy.
        (copy / "build").symlink_to(scratch / "build")
        module = "nothing" if asked.control else plant(mistake, copy)
        began = time.perf_counter()
        found = first_failure(copy, mistake.tests)
        shutil.rmtree(copy)
        seconds = round(time.perf_counter() - began)
        missed += (found is None) is not asked.control
        rows.append({"mistake": mistake.name, "module": module, "found by": found, "seconds": seconds})
        print(f"{mistake.name} ({module}): {found or 'NOT FOUND'}, {seconds} s", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return missed


if __name__ == "__main__":
    sys.exit(main())
