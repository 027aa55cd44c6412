"""What was recorded of the decision service, in words: every figure is looked up in benchmarks/results/."""

# ruff: noqa: E501 - prose

from __future__ import annotations

import json
import textwrap
from typing import Any

from _jobs import RESULTS

# Columns of a paragraph on the page.
WIDTH = 150


def recorded() -> str:
    """Return what the page says of each campaign and measurement."""
    parts = (_kills, _losses, _disks, _load, _memory, _restart)
    return "\n".join(
        textwrap.fill(part(), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for part in parts
    )


def _of(name: str) -> tuple[dict[str, Any], str]:
    """Return a result, and the words that lead to it."""
    file = f"service-{name}.json"
    told: dict[str, Any] = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    return told, f"`{told['command']}`, [recorded](../benchmarks/results/{file})"


def _first(told: dict[str, Any]) -> str:
    """Return what is to be said of a measurement that had the processors before other programs."""
    return "" if told["scheduling"] == "other" else ", where its other programs had to wait (`chrt -r 1`)"


def _kills() -> str:
    told, source = _of("kills")
    named = sum(n for where, n in told["where"].items() if "random" not in where)
    return (
        f"- **Kills**: {told['kills']:,} under load, {named:,} of them at named points, in {told['deployments']} "
        f"deployments, with {told['acknowledged']:,} acknowledged answers: {len(told['findings'])} findings ({source})."
    )


def _losses() -> str:
    told, source = _of("losses")
    missing = told["laws_broken_without_syncs"]["what was acknowledged is in the log"]
    return (
        f"- **Power losses**: {told['losses']:,}, with {told['acknowledged']:,} acknowledged answers: "
        f"{len(told['findings'])} findings. The control, {told['losses_without_syncs']} losses without syncs, fails as "
        f"it must: {missing:,} times something acknowledged was missing ({source})."
    )


def _disks() -> str:
    told, source = _of("disks")
    ended = told["ended_with"]
    faults = ", ".join(f"{n:,} {name}" for name, n in told["faults"].items())
    return (
        f"- **Failing disks**: {sum(told['faults'].values()):,} calls to the disk were the first that failed "
        f"({faults}); {ended.get('70', 0):,} ended the process with status 70, {ended.get('2', 0):,} refused a start. "
        f"{len(told['findings'])} findings after the next start ({source})."
    )


def _load() -> str:
    told, source = _of("load")

    def ms(name: str) -> str:
        latency = told["latencies"][name]
        return f"{latency['p50_ms']:.1f} ms in the median and {latency['p99_ms']:.1f} ms at 99 %"

    above = told["commits_above_trivial"]
    first = _first(told)
    return (
        f"- **Load**, {told['clients']} clients on two cores that they share with the service: "
        f"{told['decisions_per_second']['median']:,.0f} durable decisions per second, {ms('decide')}, against "
        f"{told['trivial_per_second']['median']:,.0f} trivial requests (`GET /healthz`) on the same server in turns, "
        f"{ms('trivial')}: a ratio of {told['ratio']['median']:.2f} ({told['ratio']['lowest']:.2f} to "
        f"{told['ratio']['highest']:.2f}). At 99 %, a decision takes {above['median']:.1f} commits more "
        f"({above['lowest']:.1f} to {above['highest']:.1f}); a commit of all that waits takes "
        f"{told['commit_ms']['median']:.1f} ms. Whole episodes, with begins and outcomes: "
        f"{told['whole_requests_per_second']['median']:,.0f} requests per second, {ms('whole')}. The machine's load was "
        f"{told['loadavg_at_the_start'][0]:.1f} at the start{first} ({source})."
    )


def _memory() -> str:
    told, source = _of("memory")
    return (
        f"- **Memory** over {told['minutes']:.0f} minutes of {told['clients']} clients, {told['requests']:,} requests: "
        f"{told['mib_at_a_quarter']:.1f} MiB after a quarter of the time and {told['mib_at_the_end']:.1f} at the end. The "
        f"database grew by {told['database_bytes_per_decision']:.0f} bytes per decision ({source})."
    )


def _restart() -> str:
    told, source = _of("restart")
    slowest = max(start["until_it_answers"] for start in told["starts"])
    verified, replayed = told["audits"]["verify"], told["audits"]["replay"]
    findings = len(verified["findings"]) + len(replayed["findings"])
    return (
        f"- **Restart** with {told['events']:,} events, {told['events_after_the_newest_snapshot']:,} of them after the "
        f"newest snapshot, at a load of {told['loadavg_at_the_start'][0]:.0f}{_first(told)}: {slowest:.2f} s until it answers, the "
        f"slowest of {len(told['starts'])}. Checking all hashes and tables (`verify`) takes {verified['seconds']:.0f} s, "
        f"making all {replayed['decisions']:,} decisions once more (`replay`) {replayed['seconds']:.0f} s: {findings} "
        f"findings ({source})."
    )
