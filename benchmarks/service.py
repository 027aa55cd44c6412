"""The decision service under load, over time, and after a restart; one machine, raw sockets, 32 clients.

    python benchmarks/service.py load      # rates and latencies beside those of a trivial request
    python benchmarks/service.py memory    # resident memory over an hour of that load
    python benchmarks/service.py restart   # seconds until a deployment with a million events answers
    python benchmarks/service.py page      # put what is recorded into docs/service-promises.md

Each of the first three writes benchmarks/results/service-NAME.json, with the machine and its load. The
deployment is the ward of `chary serve demo` in mode budgeted: 6 states, 3 treatments, 6 visits, posterior
worlds, learning as it goes. A trivial request is GET /healthz on the same server: the same sockets, parser
and event loop, no engine and no disk; both are measured in turns. The clients are one process without an HTTP
library.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import chary
from _jobs import RESULTS, ROOT
from _jobs import fill as fill_page
from _service_load import Caller, Client, Fleet, Took
from _service_page import recorded
from chary.service.demo import declaration
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.findings import Findings
from chary.service.rehearsal import Hosted
from chary.service.replay import replay
from chary.service.tokens import SCOPES, mint
from chary.service.verify import verify
from chary.service.ward import GRADES, VISITS

CLIENTS = 32
# Episodes per client and round of the load.
EPISODES = 24
# Seconds of trivial requests before and after each round.
TRIVIAL_SECONDS = 4.0
# Seconds at the start of each measurement that count in no percentile: all clients connect and ask at once,
# and it takes some rounds of replies until they are spread as they are from then on.
SPREADING = 0.2
# Points of the curve of memory, and the share of an hour after which growth is judged.
POINTS, SETTLED = 60, 0.25
# How the system runs this process and those it starts: in turns with others, or (rr, fifo) before them.
SCHEDULING = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_RR: "rr", os.SCHED_FIFO: "fifo"}
# Events after the newest snapshot before a kill; snapshots are taken every 10,000 events.
TAIL = 9000


def main() -> None:
    """Measure what was asked for, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    load = kinds.add_parser("load", help="rates and latencies")
    load.add_argument("--rounds", type=int, default=10)
    load.set_defaults(measure=measure_load)
    memory = kinds.add_parser("memory", help="memory over time")
    memory.add_argument("--minutes", type=float, default=60.0)
    memory.set_defaults(measure=measure_memory)
    restart = kinds.add_parser("restart", help="restart of a large deployment")
    restart.add_argument("--events", type=int, default=1_000_000)
    restart.add_argument("--keep", type=Path, help="make the deployment here, or take the one that is here")
    restart.set_defaults(measure=measure_restart)
    filling = kinds.add_parser("fill")
    filling.add_argument("directory", type=Path)
    filling.add_argument("--events", type=int, required=True)
    filling.set_defaults(measure=fill)
    page = kinds.add_parser("page", help="put what is recorded into docs/service-promises.md")
    page.set_defaults(measure=None)
    for each in (load, memory, restart):
        each.add_argument("--out", type=Path, help="by default benchmarks/results/service-NAME.json")
    options = parser.parse_args()
    if options.measure is None:
        fill_page(ROOT / "docs" / "service-promises.md", "recorded", recorded())
        return
    if options.measure is fill:
        fill(options)
    name = options.measure.__name__.removeprefix("measure_")
    figures = {**machine(), **options.measure(options), "loadavg_at_the_end": os.getloadavg()}
    out = options.out or RESULTS / f"service-{name}.json"
    out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in figures.items() if key != "rounds"}, indent=1))


def machine() -> dict[str, Any]:
    """Return where and with what this is measured."""
    return {
        "command": " ".join(["python", "benchmarks/service.py", *sys.argv[1:]]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": chary.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "scheduling": SCHEDULING[os.sched_getscheduler(0)],
        "loadavg_at_the_start": os.getloadavg(),
    }


def deployed(directory: Path) -> str:
    """Make the ward's deployment in mode budgeted, and return a token with all scopes."""
    with tempfile.TemporaryDirectory() as folder:
        Deployment.create(directory, declaration(Path(folder)))
    token = mint(SCOPES, "benchmark")
    engine = Engine.open(directory)
    engine.add_token(
        token.id, token.digest, scopes=token.scopes, label=token.label, expires=None, author="benchmark"
    )
    engine.set_mode("budgeted", author="benchmark", reason="benchmark")
    engine.finish()
    return token.text


class Beds:
    """The clients of the load: each has a share of the episodes, and a generator of random states."""

    def __init__(self, caller: Caller, called: str) -> None:
        self.caller, self.called, self.numbers = caller, called, count()

    def names(self) -> list[list[str]]:
        """Return new names of episodes, per client."""
        return [[f"{self.called}-{next(self.numbers)}" for _ in range(EPISODES)] for _ in range(CLIENTS)]

    def trivial(self) -> Client:
        """Ask for nothing, again and again."""
        request = self.caller.request("GET", "/healthz")
        while True:
            yield "trivial", request

    def begin(self, names: Sequence[str], starts: Sequence[int]) -> Client:
        """Open episodes."""
        for name, state in zip(names, starts, strict=True):
            yield "begin", self._post("/v1/episodes", {"episode": name, "state": state})

    def decide(
        self, names: Sequence[str], starts: Sequence[int], played: list[list[Any]], seed: int
    ) -> Client:
        """Ask for all decisions of episodes, one after the other; what was decided goes into `played`."""
        chance = Random(seed)
        for name, start in zip(names, starts, strict=True):
            state, steps = start, []
            for t in range(VISITS):
                asked = self._post(f"/v1/episodes/{name}/decisions", {"t": t, "state": state})
                status, body = yield "decide", asked
                assert status == 200, body
                after = chance.randrange(GRADES)
                steps.append((t, json.loads(body)["action"], after))
                state = after
            played.append(steps)

    def report(self, names: Sequence[str], played: list[list[Any]]) -> Client:
        """Report what came of all decisions, and close the episodes."""
        for name, steps in zip(names, played, strict=True):
            for t, action, after in steps:
                told = {"t": t, "action": action, "reward": 50.0, "next_state": after}
                yield "outcome", self._post(f"/v1/episodes/{name}/outcomes", told)
            yield "close", self._post(f"/v1/episodes/{name}/close", {})

    def whole(self, seed: int) -> Client:
        """Play whole episodes without end: begin, decide and report step by step, close."""
        chance = Random(seed)
        while True:
            name, state = f"{self.called}-{next(self.numbers)}", chance.randrange(GRADES)
            path = f"/v1/episodes/{name}"
            yield "begin", self._post("/v1/episodes", {"episode": name, "state": state})
            for t in range(VISITS):
                asked = self._post(f"{path}/decisions", {"t": t, "state": state})
                status, body = yield "decide", asked
                assert status == 200, body
                action, state = json.loads(body)["action"], chance.randrange(GRADES)
                told = {"t": t, "action": action, "reward": 50.0, "next_state": state}
                yield "outcome", self._post(f"{path}/outcomes", told)
            yield "close", self._post(f"{path}/close", {})

    def _post(self, path: str, body: Any) -> bytes:
        return self.caller.request("POST", path, json.dumps(body, separators=(",", ":")).encode())


def rate_of(took: Sequence[Took], name: str = "") -> float:
    """Return answers per second, from the first request sent to the last reply read."""
    begin = min(each.sent for each in took)
    end = max(each.sent + each.seconds for each in took)
    return sum(each.name == name or not name for each in took) / (end - begin)


def once_spread(took: Sequence[Took]) -> list[Took]:
    """Return the answers to requests that were sent once the clients were spread."""
    begin = min(each.sent for each in took) + SPREADING
    return [each for each in took if each.sent >= begin]


def in_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50_ms": round(1e3 * statistics.median(ordered), 3),
        "p99_ms": round(1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
    }


def address_of(hosted: Hosted) -> tuple[str, int]:
    """Return where a service listens."""
    host, _, port = hosted.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def measure_load(options: argparse.Namespace) -> dict[str, Any]:
    """Alternate trivial requests, decisions alone, and whole episodes; the first round only warms up."""
    rounds: list[dict[str, Any]] = []
    samples: dict[str, list[float]] = {"trivial": [], "decide": [], "whole": []}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "ward"
        token = deployed(directory)
        with Hosted(directory) as hosted:
            hosted.start()
            place = address_of(hosted)
            beds = Beds(Caller(f"{place[0]}:{place[1]}", token), "load")
            stays = Fleet(place, [beds.whole(seed) for seed in range(CLIENTS)])
            idle = Fleet(place, [beds.trivial() for _ in range(CLIENTS)])
            for number in range(options.rounds + 1):
                before = idle.drive(TRIVIAL_SECONDS)
                decided = decisions(place, beds, number)
                between = idle.drive(TRIVIAL_SECONDS)
                whole = stays.drive(2 * TRIVIAL_SECONDS)
                after = idle.drive(TRIVIAL_SECONDS)
                if number == 0:
                    continue
                told = {
                    "trivial_per_second": [rate_of(each) for each in (before, between, after)],
                    "decisions_per_second": rate_of(decided),
                    "whole_requests_per_second": rate_of(whole),
                    "whole_decisions_per_second": rate_of(whole, "decide"),
                    "loadavg": os.getloadavg()[0],
                    "commit_ms": 1e3 * metric(place, token, "chary_commit_seconds"),
                }
                told["ratio"] = told["decisions_per_second"] / statistics.mean(told["trivial_per_second"][:2])
                told["whole_ratio"] = told["whole_requests_per_second"] / statistics.mean(
                    told["trivial_per_second"][1:]
                )
                for name, some in (
                    ("trivial", [before, between, after]), ("decide", [decided]), ("whole", [whole])
                ):  # fmt: skip
                    seconds = [each.seconds for part in some for each in once_spread(part)]
                    samples[name] += seconds
                    told[f"{name}_p99_ms"] = in_ms(seconds)["p99_ms"]
                told["commits_above_trivial"] = (told["decide_p99_ms"] - told["trivial_p99_ms"]) / told[
                    "commit_ms"
                ]
                rounds.append(told)
                print(json.dumps(told), file=sys.stderr, flush=True)
            hosted.stop()
    apart = ("trivial_per_second", "loadavg")
    return {
        "clients": CLIENTS,
        "trivial_per_second": spread(x for each in rounds for x in each["trivial_per_second"]),
        **{name: spread(each[name] for each in rounds) for name in rounds[0] if name not in apart},
        "latencies": {name: in_ms(seconds) for name, seconds in samples.items()},
        "rate_kept": statistics.median(each["ratio"] for each in rounds) >= 0.5,
        "p99_kept": statistics.median(each["commits_above_trivial"] for each in rounds) <= 4,
        "niceness": os.nice(0),
        "rounds": rounds,
    }


def decisions(place: tuple[str, int], beds: Beds, number: int) -> list[Took]:
    """Open episodes, ask for all their decisions, and report them; return the decisions alone."""
    names, chance = beds.names(), Random(number)
    starts = [[chance.randrange(GRADES) for _ in each] for each in names]
    played: list[list[Any]] = [[] for _ in names]
    pairs = list(zip(names, starts, strict=True))
    Fleet(place, [beds.begin(*each) for each in pairs]).drive()
    asking = [beds.decide(*each, played[place_], 1000 * number + place_) for place_, each in enumerate(pairs)]
    took = Fleet(place, asking).drive()
    Fleet(place, [beds.report(each, steps) for each, steps in zip(names, played, strict=True)]).drive()
    return took


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return the median and the extremes."""
    some = sorted(values)
    return {"median": statistics.median(some), "lowest": some[0], "highest": some[-1]}


def metric(place: tuple[str, int], token: str, name: str) -> float:
    """Return one number of the page for Prometheus."""
    asked = Caller(place[0], token).request("GET", "/metrics")
    heard: list[bytes] = []

    def ask() -> Client:
        answer = yield "metrics", asked
        heard.append(answer[1])

    Fleet(place, [ask()]).drive()
    lines = heard[0].decode().splitlines()
    found = [line for line in lines if line.split()[0] in (name, f"{name}_total")]
    return float(found[0].split()[1])


def measure_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Play whole episodes for a long time, and read the resident memory of the server as it goes."""
    curve = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "ward"
        token = deployed(directory)
        with Hosted(directory) as hosted:
            hosted.start()
            place = address_of(hosted)
            beds = Beds(Caller(f"{place[0]}:{place[1]}", token), "memory")
            stays = Fleet(place, [beds.whole(seed) for seed in range(CLIENTS)])
            began, decided, requests = time.monotonic(), 0, 0
            for _ in range(POINTS):
                took = stays.drive(60 * options.minutes / POINTS)
                requests += len(took)
                decided += sum(each.name == "decide" for each in took)
                point = {
                    "minutes": (time.monotonic() - began) / 60,
                    "decisions": decided,
                    "mib": (hosted.memory() or 0) / 2**20,
                    "loadavg": os.getloadavg()[0],
                }
                curve.append(point)
                print(json.dumps(point), file=sys.stderr, flush=True)
            hosted.stop()
        size = (directory / "chary.db").stat().st_size
    late = curve[int(SETTLED * len(curve)) :]
    hours, mib = [each["minutes"] / 60 for each in late], [each["mib"] for each in late]
    slope = statistics.linear_regression(hours, mib).slope
    span = late[-1]["decisions"] - late[0]["decisions"]
    return {
        "clients": CLIENTS,
        "minutes": curve[-1]["minutes"],
        "requests": requests,
        "decisions": decided,
        "mib_at_a_quarter": late[0]["mib"],
        "mib_at_the_end": late[-1]["mib"],
        "mib_per_hour_after_a_quarter": slope,
        "bytes_per_decision_after_a_quarter": (late[-1]["mib"] - late[0]["mib"]) * 2**20 / span,
        "database_bytes_per_decision": size / decided,
        "rounds": curve,
    }


def measure_restart(options: argparse.Namespace) -> dict[str, Any]:
    """Fill a deployment through the engine itself, kill that process, and start the service.

    It is killed when the next snapshot is nearly due, so that the first start has the longest tail to apply.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = options.keep or Path(folder) / "ward"
        began, found = time.monotonic(), directory.exists()
        if not found:
            deployed(directory)
            filling = [sys.executable, __file__, "fill", str(directory), "--events", str(options.events)]
            ended = subprocess.run(filling, check=False).returncode
            assert ended == -signal.SIGKILL, ended
        made = time.monotonic() - began
        journal = (directory / "chary.db-wal").stat().st_size
        events, newest = sizes(directory)
        starts, opened = [], []
        for _ in range(4):
            with Hosted(directory) as hosted:
                starts.append(hosted.start())
                hosted.kill()
            opened.append(last_start(directory))
        size = (directory / "chary.db").stat().st_size
        audits = {"verify": audited(verify, directory), "replay": audited(replay, directory)}
    return {
        "events": events,
        "events_after_the_newest_snapshot": events - newest,
        "database_bytes": size,
        "wal_bytes": journal,
        "seconds_to_fill": None if found else made,
        "starts": [{"until_it_answers": all_, **engine} for all_, engine in zip(starts, opened, strict=True)],
        "kept": max(starts) <= 5.0,
        # Every hash and table; every decision computed again, and the state compared with the snapshots.
        "audits": audits,
    }


def audited(audit: Callable[[Path], Findings], directory: Path) -> dict[str, Any]:
    """Return what an audit found, and what it took."""
    began, used = time.monotonic(), time.process_time()
    found = audit(directory)
    return {
        "seconds": time.monotonic() - began,
        "processor_seconds": time.process_time() - used,
        "events": found.events,
        "decisions": found.decisions,
        "snapshots": found.snapshots,
        "findings": [finding.message for finding in found.found],
    }


def sizes(directory: Path) -> tuple[int, int]:
    """Return the number of events of a deployment, and the event of its newest snapshot."""
    with contextlib.closing(sqlite3.connect(directory / "chary.db")) as connection:
        ((events,),) = connection.execute("SELECT max(seq) FROM event")
        ((newest,),) = connection.execute("SELECT max(seq) FROM snapshot")
    return int(events), int(newest)


def last_start(directory: Path) -> dict[str, Any]:
    """Return what the service logged of its last start: events replayed, and seconds of recovery."""
    lines = (directory / "service.log").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    last = [each for each in told if each.get("event") == "opened"][-1]
    used = last["processor_seconds"]
    return {"replayed": last["replayed"], "recovery": last["seconds"], "processor_seconds": used}


def fill(options: argparse.Namespace) -> None:
    """Play episodes through the engine until the log has so many events, and end by SIGKILL."""
    directory: Path = options.directory
    engine, chance, number = Engine.open(directory), Random(0), 0
    while True:
        name, state = f"fill-{number}", chance.randrange(GRADES)
        number += 1
        engine.begin(name, state)
        for t in range(VISITS):
            action, after = json.loads(engine.decide(name, t, state).body)["action"], chance.randrange(GRADES)
            engine.outcome(name, t, action, 50.0, after, False)
            state = after
        closed = engine.close(name)
        if number % 64 == 0:
            engine.wait(closed.seq)
            if engine.head >= options.events:
                events, newest = sizes(directory)
                if events - newest > TAIL:
                    os.kill(os.getpid(), signal.SIGKILL)
        if number % 5000 == 0:
            print(f"\r{engine.head:,} events", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
