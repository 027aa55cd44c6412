"""The demonstration: a service on a free port, a simulated clinic of 50 beds, and what becomes of budgets.

The service is a process of its own. It starts in mode apprentice, is switched to budgeted, killed and started
again, and stopped by the kill switch; then it ends and its audit trail is checked. Every number that is told
is measured in this run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chary.errors import check_real
from chary.service import local
from chary.service.clinic import Clinic, Habits, Tally
from chary.service.declaring import Declaration
from chary.service.judging import TrueLosses, true_losses
from chary.service.rehearsal import Hosted
from chary.service.summary import summary
from chary.service.verify import verify
from chary.service.ward import (
    ETA,
    GRADES,
    HIGHEST,
    LOWEST,
    PATIENTS,
    TREATMENTS,
    VISITS,
    ward,
    write_files,
)

NAME = "ward"
RISK = 0.01
PLAYED = ("apprentice", "budgeted", "stopped")
BEDS = 50
# Seconds of each part; the service may take as long again to start.
APPRENTICE, BUDGETED, STOPPED = 12.0, 20.0, 4.0
# Seconds between two lines about what happens.
BEAT = 4.0

Say = Callable[[str], None]


def declaration(folder: Path) -> Declaration:
    """Write the log and the rule of today to a folder, and return what the demonstration declares."""
    log, rule = write_files(folder)
    return Declaration(
        name=NAME,
        setting={
            "n_states": GRADES,
            "n_actions": len(TREATMENTS),
            "actions": list(TREATMENTS),
            "horizon": VISITS,
            "reward_range": [LOWEST, HIGHEST],
        },
        agent={"name": "chary", "eta": ETA, "bonus": "posterior", "risk": RISK, "losses": True},
        policy={"file": str(rule), "role": "floor"},
        log={"file": str(log)},
        mode="apprentice",
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What the demonstration measured.

    `modes` and `clinic` are the clinic's own counts, of decisions by mode and of everything else. The true
    losses are those of exploring; they and the values of policies are by the true clinic. The other amounts
    are read from the database afterwards.
    """

    seconds: float
    modes: dict[str, dict[str, int]]
    clinic: dict[str, int]
    median_ms: float
    p99_ms: float
    eta: float
    highest_ledger: float
    ledgers_above_eta: int
    true_loss_mean: float
    true_loss_highest: float
    truly_above_eta: int
    rule_value: float
    baseline_value: float
    restart_seconds: float
    answered_otherwise: int
    refused: dict[str, int]
    refusals: dict[str, str]
    outstanding: int
    lost: int
    events: int
    audit: str

    def describe(self) -> str:
        """Return it in words."""
        clinic = self.clinic
        apprentice, budgeted = self.modes["apprentice"], self.modes["budgeted"]
        stopped = self.modes["stopped"]
        explored = budgeted["explored"]
        lines = [
            f"Measured in this run, {self.seconds:.0f} s:",
            f"  Budget       the highest ledger is {self.highest_ledger:.2f} euros of {self.eta:g}; "
            f"{self.ledgers_above_eta} of {clinic['episodes']:,} patients have one above it",
            f"  Truth        by the true clinic, exploring lost {self.true_loss_mean:.2f} euros per patient "
            f"in expectation, {self.true_loss_highest:.2f} at most; {self.truly_above_eta} lost more than "
            f"{self.eta:g}",
            f"  Worth        by the true clinic, today's rule {self.rule_value:.0f} euros per patient, and "
            f"the baseline that chary has learnt {self.baseline_value:.0f}",
            f"  Apprentice   {apprentice['decisions']:,} decisions, {apprentice['explored']} explored; "
            f"chary would have explored {apprentice['recommended']:,}",
            f"  Budgeted     {budgeted['decisions']:,} decisions, {explored:,} explored "
            f"({100 * explored / max(budgeted['decisions'], 1):.0f} %)",
            f"  Stopped      {stopped['decisions']:,} decisions, {stopped['explored']} explored",
            f"  People       {clinic['overruled']:,} overruled, {clinic['not taken']:,} not taken, "
            f"{clinic['abandoned']:,} patients left early",
            f"  Outcomes     {clinic['late outcomes']:,} late, {clinic['lost outcomes']:,} never reported",
            f"  Network      {clinic['unheard replies']:,} replies not heard, "
            f"{clinic['repeated requests']:,} requests sent twice; {self.answered_otherwise} answered "
            "otherwise when asked again",
            f"  Waiting      {self.median_ms:.0f} ms in the median, {self.p99_ms:.0f} ms at 99 %, with the "
            "restart",
            f"  Restart      {self.restart_seconds:.1f} s from SIGKILL to the next answer",
            f"  Audit trail  {self.audit}",
        ]
        lines += [
            f"  Refused      {number:,} requests, the first of them: {self.refusals[code]}"
            for code, number in self.refused.items()
        ]
        return "\n".join(lines)


async def show(folder: Path, say: Say, *, pace: float = 1.0) -> Shown:
    """Play the demonstration in a folder, which must be empty, and say what happens.

    Args:
        folder: Where the log, the rule and the deployment are written.
        say: Called with every line.
        pace: Factor on the length of every part.
    """
    began = time.monotonic()
    check_real("pace", pace, low=0.0, open_low=True, high=100.0)
    directory = folder / NAME
    say(
        f"A clinic treats high blood pressure: {VISITS} visits per patient, {GRADES} grades, "
        f"{len(TREATMENTS)} treatments. Patients are simulated. The service starts from a log of "
        f"{PATIENTS:,} patients, who were treated by today's rule."
    )
    say("The deployment is made, which takes about half a minute where kernels must be compiled.")
    standing = local.make(directory, declaration(folder))
    say(f"Exploring may cost a patient {ETA:g} euros in expectation, not more. {standing}")
    say("")
    with Hosted(directory) as hosted:
        waited = await asyncio.to_thread(hosted.start)
        say(f"[{_clock(began)}] The service answers at {hosted.url}, {waited:.1f} s after its start.")
        say("         Look at it meanwhile:")
        say(f"           chary serve status {directory}")
        say(f"           TOKEN=$(cat {directory}/operator.token)")
        say(f'           curl -H "Authorization: Bearer $TOKEN" {hosted.url}/v1/deployment')
        say(f'           curl -H "Authorization: Bearer $TOKEN" {hosted.url}/metrics')
        clinic = Clinic(
            hosted.url,
            local.local_token(directory),
            ward(),
            Habits(beds=BEDS),
            eta=ETA,
            labels={"action": TREATMENTS},
        )
        beds = asyncio.create_task(clinic.run())
        told = _Told(clinic.tally, say, began)
        say(f"[{_clock(began)}] {BEDS} beds fill. Mode apprentice: today's rule decides, chary learns.")
        await told.lines(APPRENTICE * pace)
        await _operate(directory, "PUT", "/v1/mode", {"mode": "budgeted", "reason": "what was shown"})
        say(f"[{_clock(began)}] Mode budgeted: chary decides, within the budget of each patient.")
        await told.lines(BUDGETED * pace / 2)
        counts = clinic.tally.counts
        open_now = counts["episodes"] - counts["completed"] - counts["abandoned"]
        hosted.kill()
        say(f"[{_clock(began)}] The process is killed (SIGKILL) with {open_now} patients in their beds.")
        restart = await asyncio.to_thread(hosted.start)
        say(f"[{_clock(began)}] Started again, it answers after {restart:.1f} s. Beds repeat what got lost.")
        await told.lines(BUDGETED * pace / 2)
        await _operate(directory, "POST", "/v1/stop", {"reason": "the end of the demonstration"})
        say(f"[{_clock(began)}] The kill switch: mode stopped, today's rule alone decides.")
        await told.lines(STOPPED * pace)
        clinic.stop()
        say(f"[{_clock(began)}] No more patients are admitted; the last reports arrive.")
        tally = await beds
        await asyncio.to_thread(hosted.stop)
        say(f"[{_clock(began)}] The service has stopped; its audit trail is checked.")
    findings = await asyncio.to_thread(verify, directory)
    for each in findings.found:
        say(each.message)
    losses = await asyncio.to_thread(true_losses, directory, ward(), ETA)
    return _shown(tally, summary(directory), losses, findings.describe(), time.monotonic() - began, restart)


def _shown(
    tally: Tally, found: dict[str, Any], losses: TrueLosses, audit: str, seconds: float, restart: float
) -> Shown:
    counted = ("decisions", "explored", "recommended", "otherwise")
    clinic = (
        *("episodes", "completed", "abandoned", "answers", "overruled", "not taken", "confirmed"),
        *(
            "late outcomes",
            "lost outcomes",
            "unheard replies",
            "repeated requests",
            "lost connections",
            "given up",
        ),
    )
    return Shown(
        seconds=seconds,
        modes={mode: {name: tally.of_mode(mode)[name] for name in counted} for mode in PLAYED},
        clinic={name: tally.counts[name] for name in clinic},
        median_ms=tally.wait_ms(0.5),
        p99_ms=tally.wait_ms(0.99),
        eta=ETA,
        highest_ledger=found["largest_deficit"],
        ledgers_above_eta=found["ledgers_above_their_budget"],
        true_loss_mean=losses.mean,
        true_loss_highest=losses.highest,
        truly_above_eta=losses.above,
        rule_value=losses.incumbent_value,
        baseline_value=losses.baseline_value,
        restart_seconds=restart,
        answered_otherwise=len(tally.differing),
        refused=dict(tally.refusals),
        refusals=tally.messages,
        outstanding=found["outstanding"],
        lost=found["lost"],
        events=found["events"],
        audit=audit,
    )


class _Told:
    """Lines about what happens, by the clinic's own count."""

    def __init__(self, tally: Tally, say: Say, began: float) -> None:
        self._tally, self._say, self._began = tally, say, began

    async def lines(self, seconds: float) -> None:
        """Say what has happened every few seconds, until `seconds` have passed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(BEAT, left))
            counts, tally = self._tally.counts, self._tally
            self._say(
                f"[{_clock(self._began)}]   {counts['episodes']:,} patients, {counts['decisions']:,} "
                f"decisions, {counts['explored']:,} explored; {counts['overruled']:,} overruled, "
                f"{counts['late outcomes']:,} outcomes late, {counts['lost outcomes']:,} lost; the fullest "
                f"ledger {max(tally.spent.values(), default=0.0):.2f} of {ETA:g}"
            )


async def _operate(directory: Path, method: str, path: str, body: dict[str, Any]) -> None:
    def call() -> None:
        service = local.running(directory)
        assert service is not None
        local.call(service, directory, method, path, body)

    await asyncio.to_thread(call)


def _clock(began: float) -> str:
    return f"{time.monotonic() - began:4.0f} s"
