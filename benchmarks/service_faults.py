"""What the decision service survives: kills, power losses, and disks that fail, in full and written down.

    python benchmarks/service_faults.py kills --work DIR     # SIGKILL under load, at random and named points
    python benchmarks/service_faults.py losses --work DIR    # power losses on a simulated disk, and a control
    python benchmarks/service_faults.py disks --work DIR     # a full or broken disk at every call

Each part of a campaign is a deployment of its own, judged by the checker of histories in
tests/service/history.py, and is one line of a file in `--work`: started again, a campaign goes on there. The
result is benchmarks/results/service-NAME.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _jobs import RESULTS, ROOT

sys.path.insert(0, str(ROOT))

from tests.service.faults import wards
from tests.service.faults.breaking import FAULTS, struck_once
from tests.service.faults.kills import kill_often
from tests.service.faults.losses import careless, pull_the_plug
from tests.service.faults.nursery import Nursery

import chary
from chary.service.ward import ETA

# Kills, and power losses, per deployment.
KILLS, ROUNDS, LOSSES, CALLS = 50, 4, 25, 300
# Calls that may be struck in one life of `breaking.play`.
MOST = 4000
WARM = ("tests.service.faults.serving:warm", "tests.service.faults.breaking")


def main() -> None:
    """Run a campaign to its end, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    kills = kinds.add_parser("kills")
    kills.add_argument("--kills", type=int, default=1000)
    kills.set_defaults(campaign=kill)
    losses = kinds.add_parser("losses")
    losses.add_argument("--losses", type=int, default=1000)
    losses.set_defaults(campaign=lose)
    disks = kinds.add_parser("disks")
    disks.add_argument("--every", type=int, default=1, help="strike every so many calls, in place of each")
    disks.add_argument("--fault", choices=FAULTS, action="append", help="by default all of them")
    disks.set_defaults(campaign=break_disks)
    for each in kinds.choices.values():
        each.add_argument("--work", type=Path, required=True, help="a folder for what is done so far")
        each.add_argument("--out", type=Path, help="by default benchmarks/results/service-NAME.json")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    name = {kill: "kills", lose: "losses", break_disks: "disks"}[options.campaign]
    result = {
        # Where the folder held parts of an earlier start, they are part of the result.
        "command": " ".join(["python", "benchmarks/service_faults.py", *sys.argv[1:]]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": chary.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        **options.campaign(options),
    }
    out = options.out or RESULTS / f"service-{name}.json"
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def parts(
    work: Path, wanted: Iterable[Any], do: Callable[[Any, Path], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Do what is not done yet, one line per part, and return all lines."""
    done_in = work / "done.jsonl"
    done = [json.loads(line) for line in done_in.read_text().splitlines()] if done_in.exists() else []
    seen = {json.dumps(each["part"]) for each in done}
    for part in wanted:
        if json.dumps(part) in seen:
            continue
        folder = work / "now"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        began = time.monotonic()
        told = {"part": part, **do(part, folder), "seconds": round(time.monotonic() - began, 1)}
        with done_in.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        print(json.dumps(told), file=sys.stderr, flush=True)
        done.append(told)
    return done


def total(done: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a number over all parts."""
    return sum(each[name] for each in done)


def counted(done: Iterable[dict[str, Any]], name: str) -> dict[str, int]:
    """Return the sums of counters over all parts."""
    sums: Counter[str] = Counter()
    for each in done:
        sums.update(each[name])
    return dict(sorted(sums.items()))


def eta_of(kind: str) -> float:
    """Return the budget of an episode."""
    return ETA if kind == "worlds" else wards.BOUNDS_ETA


def kill(options: argparse.Namespace) -> dict[str, Any]:
    """Kill services of worlds and of bounds in turns."""
    with Nursery(*WARM[:1]) as nursery:

        def do(part: tuple[str, int], folder: Path) -> dict[str, Any]:
            kind, seed = part
            token = wards.make(folder / "ward", kind)
            found = asyncio.run(
                kill_often(nursery, folder / "ward", token, eta=eta_of(kind), kills=KILLS, seed=seed)
            )
            return {
                "kills": dict(found.kills),
                "attempts": found.attempts,
                "acknowledged": found.acknowledged,
                "events": found.events,
                "explored": found.explored,
                "findings": [list(each) for each in found.findings],
            }

        wanted = [(wards.KINDS[seed % 2], seed) for seed in range(-(-options.kills // KILLS))]
        done = parts(options.work, [list(part) for part in wanted], do)  # type: ignore[arg-type]
    where = counted(done, "kills")
    return {
        "kills": sum(where.values()),
        "where": where,
        "deployments": len(done),
        **{name: total(done, name) for name in ("attempts", "acknowledged", "events", "explored")},
        "findings": [each for part in done for each in part["findings"]],
        "seconds": total(done, "seconds"),
    }


def lose(options: argparse.Namespace) -> dict[str, Any]:
    """Pull the plug of engines of worlds and of bounds in turns, and of some that never sync."""

    def do(part: list[Any], folder: Path) -> dict[str, Any]:
        kind, seed, syncs = part
        wards.make(folder / "made", kind)
        with careless(not syncs):
            found = pull_the_plug(
                folder / "made",
                folder / "ward",
                eta=eta_of(kind),
                rounds=ROUNDS,
                losses=LOSSES,
                calls=CALLS,
                seed=seed,
            )
        laws = Counter(each.law for each in found.findings)
        return {
            "losses": found.losses,
            "acknowledged": found.acknowledged,
            "explored": found.explored,
            "incomplete": dict(found.dropped),
            "laws": dict(laws),
            "findings": [list(each) for each in found.findings[:20]],
        }

    number = -(-options.losses // (ROUNDS * LOSSES))
    wanted = [[wards.KINDS[seed % 2], seed, True] for seed in range(number)]
    done = parts(options.work, [*wanted, ["worlds", number, False]], do)
    kept, control = [each for each in done if each["part"][2]], [each for each in done if not each["part"][2]]
    return {
        "losses": total(kept, "losses"),
        "deployments": len(kept),
        "acknowledged": total(kept, "acknowledged"),
        "explored": total(kept, "explored"),
        "files_that_lost_writes": counted(kept, "incomplete"),
        "findings": [each for part in kept for each in part["findings"]],
        "losses_without_syncs": total(control, "losses"),
        "laws_broken_without_syncs": counted(control, "laws"),
        "seconds": total(done, "seconds"),
    }


def break_disks(options: argparse.Namespace) -> dict[str, Any]:
    """Let each call to the disk, or every so many, be the first that fails, of each kind of fault."""
    made = options.work / "made"
    if not made.exists():
        wards.make(made)
    with Nursery(*WARM) as nursery:

        def do(part: list[Any], folder: Path) -> dict[str, Any]:
            fault, number = part
            status, findings = struck_once(nursery, made, folder, fault, number)
            return {"status": status, "findings": findings}

        done: list[dict[str, Any]] = []
        for fault in options.fault or FAULTS:
            for number in range(1, MOST, options.every):
                done = parts(options.work, [[fault, number]], do)
                if next(each for each in done if each["part"] == [fault, number])["status"] == 0:
                    break
    struck = [each for each in done if each["status"]]
    return {
        "faults": {fault: sum(each["part"][0] == fault for each in struck) for fault in FAULTS},
        "ended_with": {str(key): n for key, n in Counter(each["status"] for each in struck).items()},
        "findings": [each for part in done for each in part["findings"]],
        "seconds": total(done, "seconds"),
    }


if __name__ == "__main__":
    main()
