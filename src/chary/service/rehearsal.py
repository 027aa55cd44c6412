"""A dress rehearsal: the service as a process of its own, and a simulated clinic that calls it.

The deployment that is rehearsed is not touched: a copy of its declaration is served from a temporary folder.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from chary.calibrate.siblings import LogSiblings, known_rewards
from chary.errors import CharyError, check_real
from chary.mdp import FiniteMDP, Setting
from chary.randomness import generator_for
from chary.service import local
from chary.service.clinic import Clinic, Habits, Tally
from chary.service.deployment import Deployment
from chary.service.judging import true_losses

if TYPE_CHECKING:
    from chary.data import Log
    from chary.policies import OwnBaseline

# Seconds to wait for a service to start (kernels may have to be compiled) and to stop.
LONGEST_START, LONGEST_STOP = 300.0, 60.0
# What the process prints, in the folder of the deployment.
LOG = "service.log"
# The most states that may follow one, in a problem drawn at random.
SUCCESSORS = 5


class NotServing(CharyError):
    """A service that did not start, or ended by itself; the message has its last sentence."""


class Hosted:
    """The service of a deployment as a process of its own, on a free port of this machine.

    Used as a context manager, it ends the process at the end.

    Args:
        directory: The deployment.
        arguments: More arguments of `chary serve run`.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory, self._arguments = directory, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / LOG
        self.url, self._port = "", 0

    def __enter__(self) -> Hosted:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def start(self) -> float:
        """Start the service and return the seconds until it answered; again, at the port of the first time.

        Raises:
            NotServing: if it ends, or does not answer in time.
        """
        began = time.monotonic()
        command = [sys.executable, "-m", "chary", "serve", "run", str(self.directory)]
        command += ["--port", str(self._port), *self._arguments]
        with self._log.open("ab") as log:
            # Ctrl-C is for the process that started this one, and that then stops the service.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while (waited := time.monotonic() - began) < LONGEST_START:
            if self._process.poll() is not None:
                raise NotServing(f"the service must start, and ended with {self._last_words()}")
            found = local.running(self.directory)
            if found is not None and found.pid == self._process.pid:
                self.url, self._port = found.url, urlsplit(found.url).port or 0
                return waited
            time.sleep(0.02)
        self.kill()
        raise NotServing(f"the service must answer within {LONGEST_START:g} s, which it did not.")

    def stop(self) -> float:
        """Stop the service as a system does, by SIGTERM, and return the seconds until it had ended.

        Raises:
            NotServing: if it did not end in time, or not with exit code 0.
        """
        began = time.monotonic()
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(LONGEST_STOP)
        except subprocess.TimeoutExpired as late:
            self.kill()
            raise NotServing(f"the service must stop within {LONGEST_STOP:g} s, which it did not.") from late
        if code:
            raise NotServing(f"the service must stop with exit code 0, and ended with {self._last_words()}")
        return time.monotonic() - began

    def kill(self) -> None:
        """End the service at once, by SIGKILL, as a failure of the machine would."""
        process = self._running()
        process.kill()
        process.wait()

    def memory(self) -> int | None:
        """Return the bytes of memory that the service takes, None where the system does not tell."""
        try:
            pages = Path(f"/proc/{self._running().pid}/statm").read_text(encoding="ascii").split()[1]
        except (OSError, IndexError):
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        code = self._running().returncode
        return f"exit code {code}: {lines[-1] if lines else 'no word'}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rehearsal measured; times in milliseconds, amounts in the user's units.

    `highest_share` is the largest share of its budget that any episode has spent, and `findings` say what
    would go wrong, one sentence each. The true losses are those of exploring, by the problem behind the
    patients, which the service does not know.
    """

    seconds: float
    episodes: int
    decisions: int
    decisions_per_second: float
    requests: int
    median_ms: float
    p99_ms: float
    slowest_ms: float
    explored: int
    overruled: int
    not_taken: int
    late: int
    lost: int
    abandoned: int
    unheard: int
    repeated: int
    eta: float
    over_budget: int
    highest_share: float
    true_loss_mean: float
    true_loss_highest: float
    truly_above: int
    incumbent_value: float
    baseline_value: float
    restart_seconds: float
    bytes_per_decision: float
    memory_bytes: int | None
    truth: str
    findings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)

    def describe(self) -> str:
        """Return it in words, one line per thing."""
        share = 100 * self.explored / max(self.decisions, 1)
        memory = "" if self.memory_bytes is None else f"; {self.memory_bytes / 2**20:.0f} MiB of memory"
        lines = [
            f"Patients   simulated by {self.truth}",
            f"Rates      {self.episodes:,} episodes, {self.decisions:,} decisions in {self.seconds:.0f} s: "
            f"{self.decisions_per_second:.0f} decisions per second, {self.requests:,} requests",
            f"Waiting    {self.median_ms:.0f} ms in the median, {self.p99_ms:.0f} ms at 99 %, "
            f"{self.slowest_ms:.0f} ms at most, retries included",
            f"Budgets    {self.over_budget} of {self.episodes:,} ledgers above {self.eta:g}; "
            f"the fullest has {100 * self.highest_share:.0f} % of its budget spent",
            f"Exploring  {self.explored:,} decisions explored, {share:.1f} %",
            f"Truth      exploring lost {self.true_loss_mean:.3g} per episode in expectation, "
            f"{self.true_loss_highest:.3g} at most; {self.truly_above:,} lost more than {self.eta:g}",
            f"Worth      in truth, the incumbent's policy {self.incumbent_value:.4g} per episode, and the "
            f"baseline that was learnt {self.baseline_value:.4g}",
            f"People     {self.overruled:,} overruled, {self.not_taken:,} not taken, "
            f"{self.abandoned:,} episodes left",
            f"Outcomes   {self.late:,} late, {self.lost:,} lost",
            f"Network    {self.unheard:,} replies not heard, {self.repeated:,} requests sent twice",
            f"Restart    {self.restart_seconds:.1f} s after SIGKILL, until it answered",
            f"Size       {self.bytes_per_decision:.0f} bytes on the disk per decision{memory}",
        ]
        return "\n".join(
            lines + [f"Finding    {each}" for each in self.findings or ("nothing that would go wrong",)]
        )


def truth_of(
    setting: Setting, log: Log | None, own: OwnBaseline | None, *, seed: int
) -> tuple[FiniteMDP, str]:
    """Return a problem that a log might come from, and where it comes from in words.

    Without a log its rows are drawn at random: then rates and latencies mean something, and what is learnt
    does not.
    """
    if log is not None:
        return LogSiblings(log, setting, own).draw(seed), "a problem resampled from the log"
    return _imagined(setting, seed), "a problem drawn at random, since there is no log"


def _imagined(setting: Setting, seed: int) -> FiniteMDP:
    """Return a problem of this setting with random rows, and random rewards where they are not known."""
    chance, S = generator_for(seed, "an imagined problem"), setting.n_states
    scale, rows = setting.scale, {}
    for p in range(setting.n_pairs):
        state = int(np.searchsorted(setting.pair_start, p, side="right")) - 1
        over = state == setting.ending
        k = 1 if over else min(int(setting.support[p]), S, SUCCESSORS)
        after = np.array([state]) if over else np.sort(chance.choice(S, size=k, replace=False))
        weight = chance.dirichlet(np.ones(k))
        earned = np.full(k, -scale.low / scale.span if over else chance.random())
        if setting.known is not None:
            earned = known_rewards(setting.known, np.full(k, p), after)
        raw = scale.low + scale.span * earned
        listed = zip(after.tolist(), weight.tolist(), raw.tolist(), strict=True)
        rows[state, int(setting.pair_action[p])] = list(listed)
    starting = ~setting.terminal & (np.arange(S) != setting.ending)
    made = FiniteMDP.from_successors(
        rows,
        n_states=S,
        n_actions=setting.n_actions,
        horizon=setting.horizon,
        start=starting / starting.sum(),
        terminal=np.flatnonzero(setting.terminal).tolist(),
        reward_range=(scale.low, scale.high),
        name="imagined",
    )
    return replace(made, setting=replace(made.setting, ending=setting.ending))


def rehearse(
    directory: Path, folder: Path, habits: Habits, *, seconds: float, mode: str, say: Callable[[str], None]
) -> Measured:
    """Serve a copy of a deployment from an empty folder, let a clinic call it, kill it once, and measure.

    Args:
        directory: The deployment; nothing in it changes, and it may be running.
        folder: Where the copy is made.
        habits: What happens in the clinic.
        seconds: For how long patients are admitted.
        mode: The mode of the copy.
        say: Called with a line for every part.

    Raises:
        CharyError: if the copy cannot be made or served.
    """
    check_real("seconds", seconds, low=0.0, open_low=True, high=86400.0)
    declared = Deployment.open(directory).declaration
    problem = declared.problem()
    truth, about = truth_of(problem.setting, problem.log, problem.own, seed=habits.seed)
    copy = folder / "rehearsal"
    local.make(copy, replace(declared, mode=mode))
    labels = {"state": problem.states, "action": problem.actions}
    eta = math.inf if problem.spec.eta is None else problem.spec.eta
    with Hosted(copy) as hosted:
        hosted.start()
        say(f"A copy of {directory} answers at {hosted.url}; {habits.beds} beds fill for {seconds:g} s.")
        clinic = Clinic(
            hosted.url,
            local.local_token(copy),
            truth,
            habits,
            eta=eta,
            labels={name: texts for name, texts in labels.items() if texts},
        )
        restart, memory, took = asyncio.run(_rehearsed(clinic, hosted, seconds, say))
        hosted.stop()
    tally = clinic.tally
    counts, decisions = tally.counts, tally.counts["decisions"]
    losses = true_losses(copy, truth, eta)
    size = sum(file.stat().st_size for file in copy.glob("chary.db*"))
    return Measured(
        seconds=took,
        episodes=counts["episodes"],
        decisions=decisions,
        decisions_per_second=decisions / took,
        requests=counts["answers"],
        median_ms=tally.wait_ms(0.5),
        p99_ms=tally.wait_ms(0.99),
        slowest_ms=tally.wait_ms(1.0),
        explored=counts["explored"],
        overruled=counts["overruled"],
        not_taken=counts["not taken"],
        late=counts["late outcomes"],
        lost=counts["lost outcomes"],
        abandoned=counts["abandoned"],
        unheard=counts["unheard replies"],
        repeated=counts["repeated requests"],
        eta=eta,
        over_budget=len(tally.over_budget()),
        highest_share=tally.highest_share(),
        true_loss_mean=losses.mean,
        true_loss_highest=losses.highest,
        truly_above=losses.above,
        incumbent_value=losses.incumbent_value,
        baseline_value=losses.baseline_value,
        restart_seconds=restart,
        bytes_per_decision=size / max(decisions, 1),
        memory_bytes=memory,
        truth=about,
        findings=tuple(findings(tally, eta, losses=bool(declared.agent.get("losses")))),
    )


async def _rehearsed(
    clinic: Clinic, hosted: Hosted, seconds: float, say: Callable[[str], None]
) -> tuple[float, int | None, float]:
    """Run a clinic; half-way the service is killed and started again. Return what that took, and memory."""
    began = time.monotonic()
    beds = asyncio.create_task(clinic.run())
    await asyncio.sleep(seconds / 2)
    hosted.kill()
    restart = await asyncio.to_thread(hosted.start)
    say(f"Half-way the process was killed (SIGKILL); it answered again after {restart:.1f} s.")
    await asyncio.sleep(seconds / 2)
    clinic.stop()
    took = time.monotonic() - began
    await beds
    return restart, hosted.memory(), took


def findings(tally: Tally, eta: float, *, losses: bool) -> Iterator[str]:
    """Yield what would go wrong, one sentence each; nothing where all went well."""
    counts, decisions = tally.counts, max(tally.counts["decisions"], 1)
    if tally.differing:
        yield (
            f"{len(tally.differing)} requests were answered otherwise when they were sent again, which is a "
            f"defect of chary; the first is {tally.differing[0]}."
        )
    over = tally.over_budget()
    if over:
        yield f"{len(over)} ledgers are above their budget of {eta:g}, which is a defect of chary."
    for code, number in tally.refusals.most_common():
        yield f"{number} requests were refused ({code}): {tally.messages[code]}"
    if counts["given up"]:
        yield f"{counts['given up']} requests were not answered within the clinic's patience."
    if not counts["explored"]:
        yield (
            f"None of {counts['decisions']:,} decisions explored: chary plan says what a budget would buy, "
            "and GET /v1/episodes/NAME/decisions/T why a step did not explore."
        )
    if counts["lost outcomes"] and not losses:
        share = 100 * counts["lost outcomes"] / decisions
        yield (
            f"{share:.1f} % of the outcomes were lost, and the bounds allow for losses from the first one on "
            "only: declare losses = true under [agent], so that they do so from the first episode on."
        )
