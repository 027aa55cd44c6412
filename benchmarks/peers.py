"""Speed of a public UCBVI compared with ours, in one run on one machine.

The peer is the UCBVI of rlberry-scool 0.7.3, in a separate virtual environment (build/peers-venv, made on
demand), because it needs an older gymnasium. It plays twice: as published, in plain Python, and with its own
backward induction compiled by numba, as it was in rlberry 0.6.0, so that the missing compiler is not the
whole explanation. Ours are `UCBVI`, with no data to begin with, as the peer, and `CharyUCBVI` with the
preset's budget, scale of the bonus and warm-up. All estimate the rewards. The bonus of our `UCBVI` is `ch`,
scaled to 1 / sqrt(n), the leading term of the peer's: at scale 1 it orders nothing in all of 2,000 episodes
of inventory, and a learner that does not learn would be timed. Mean returns are printed to show what was
learnt.

Seconds are those of whole episodes: planning, acting, simulating the world, counting. Ours also judges every
episode; the peer's log is switched off, and the share of time spent in its world is printed. Imports,
compilation and warm-up are not counted. Learners take turns, one at a time, on the same MDP. The peer has
no disallowed actions, so in inventory every order is allowed, and one beyond the capacity is cut to what
fits; ours plans for all these pairs too. The peer earns the mean reward of a pair. On sepsis every learner
has --seconds, and the peer may finish its first episode, within ten times as long.

    python benchmarks/peers.py

The tables go to stdout, the numbers to benchmarks/results/peers.json; --quick records nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import chary
from _jobs import ROOT, record
from chary.presets import preset

VENV = ROOT / "build" / "peers-venv"
WORKER = Path(__file__).with_name("_peer_worker.py")
# What rlberry 0.7.3 imports for its agents; its full list adds Atari ROMs, films and OpenGL.
NEEDED = (
    "gymnasium==0.29.1",
    "numpy==2.4.6",
    "scipy==1.17.1",
    "numba==0.68.1",
    "pandas==2.3.3",
    "matplotlib==3.10.8",
    "adastop==0.1.3",
    "dill==0.4.1",
    "tqdm==4.70.1",
)
PEER = ("rlberry==0.7.3", "rlberry-scool==0.7.3")

PLAIN, COMPILED = "rlberry-scool", "rlberry-scool, compiled"
UCBVI, CHARY = "chary UCBVI", "chary CharyUCBVI"
PEERS, OURS = (PLAIN, COMPILED), (UCBVI, CHARY)

# An episode of sepsis can take the plain peer longer than its time: it may finish one within this many times.
LIMITS = 10
GUARD = 600.0
# Episodes of our first, shortest run, which estimates how many fit into the given seconds.
PROBE = 20


class PeerMissingError(Exception):
    """The peer could not be installed, or did not run."""


def install() -> Path:
    """Return the Python of the peer's environment, made and filled first where it is not there."""
    python, stamp = VENV / "bin" / "python", VENV / "installed.txt"
    wanted = "\n".join((*NEEDED, *PEER))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {PEER[-1]} into {VENV.relative_to(ROOT)}", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([sys.executable, "-m", "venv", str(VENV)])
    _call([*pip, *NEEDED])
    _call([*pip, "--no-deps", *PEER])
    stamp.write_text(wanted)
    return python


def _call(command: list[str], timeout: float | None = None) -> str:
    """Run a command; return its stdout, or raise PeerMissingError with the last line of its complaint."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=timeout)
    except subprocess.CalledProcessError as problem:
        lines = [line for line in problem.stderr.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if line.startswith("ERROR")]
        said = (errors or lines)[-1].replace(str(ROOT), ".")
        raise PeerMissingError(f"{said} (status {problem.returncode})") from problem
    except subprocess.TimeoutExpired as problem:
        raise PeerMissingError(f"no answer within {problem.timeout:.0f} s") from problem
    return done.stdout


def without_limits(mdp: chary.FiniteMDP) -> chary.FiniteMDP:
    """Return the problem with all actions allowed: a disallowed one does what the last allowed one does."""
    if not mdp.restricts_actions:
        return mdp
    rows = {}
    for s in np.flatnonzero(~mdp.setting.terminal):
        for a in range(mdp.n_actions):
            like = a if mdp.setting.allowed[s, a] else int(np.flatnonzero(mdp.setting.allowed[s])[-1])
            rows[int(s), a] = list(zip(*(column.tolist() for column in mdp.row(int(s), like)), strict=True))
    return chary.FiniteMDP.from_successors(
        rows,
        n_states=mdp.n_states,
        n_actions=mdp.n_actions,
        horizon=mdp.horizon,
        name=mdp.name,
        start=mdp.start,
        terminal=np.flatnonzero(mdp.setting.terminal),
        discount=mdp.setting.discount,
        value_cap=mdp.setting.value_cap,
    )


def hand_over(mdp: chary.FiniteMDP, path: Path) -> None:
    """Write the problem for the peer: dense arrays in scaled units, terminal states absorbing."""
    P, R = mdp.dense()
    ends = np.flatnonzero(mdp.setting.terminal)
    P[ends, :, ends] = 1.0
    np.savez(
        path,
        P=P,
        R=R,
        start=mdp.start,
        terminal=mdp.setting.terminal,
        horizon=mdp.horizon,
        discount=mdp.setting.discount,
    )


def play_peer(
    python: Path, path: Path, *, compiled: bool, episodes: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Let the peer play in a separate process."""
    limits = ["--seconds", str(seconds), "--at-most", str(LIMITS * seconds)]
    told = [str(path), "--episodes", str(episodes), *limits, "--seed", str(seed)]
    # Importing and building the peer's tables are not timed, but need a limit too.
    output = _call(
        [str(python), "-I", str(WORKER), *told, *(["--compiled"] if compiled else [])],
        timeout=LIMITS * seconds + 600,
    )
    played: dict[str, Any] = json.loads(output.splitlines()[-1])
    return played


def play_ours(
    mdp: chary.FiniteMDP, label: str, *, episodes: int | None, seconds: float, seed: int
) -> dict[str, Any]:
    """Play `episodes` episodes, or about as many as fit into `seconds`, judged by two shorter runs."""

    def play(n: int) -> chary.Run:
        spec, warmup = our_agent(mdp, label, n)
        return chary.simulate(mdp, spec, episodes=n, warmup=warmup, seed=seed)

    run = play(episodes or PROBE)
    if episodes is None:
        for share in (0.3, 1.0):
            run = play(max(PROBE, int(share * seconds * run.episodes / run.seconds)))
    return {
        "episodes": run.episodes,
        "seconds": run.seconds,
        "mean_return": float(run.returns.mean()),
        "eta": run.spec.eta,
        "bonus": run.spec.bonus,
        "bonus_scale": run.spec.bonus_scale,
        "warmup": run.warmup,
    }


def our_agent(mdp: chary.FiniteMDP, label: str, episodes: int) -> tuple[chary.UCBVI | chary.CharyUCBVI, int]:
    """Return an agent of ours and its random episodes before the clock starts."""
    if label == UCBVI:
        log_term = chary.UCBVI(bonus="ch").bounds.log_term(mdp.setting, episodes)
        return chary.UCBVI(bonus="ch", bonus_scale=1 / (7 * mdp.horizon * log_term)), 0
    settings = preset(mdp.name).under("hoeffding")
    scale = settings.bonus_scale("hoeffding")
    spec = chary.CharyUCBVI(eta=settings.eta, bonus="hoeffding", bonus_scale=scale, patience=None)
    return spec, settings.warmup


def study(
    mdp: chary.FiniteMDP, python: Path | None, *, episodes: int | None, seconds: float, repeats: int
) -> dict[str, Any]:
    """Let all learners take turns on one problem; without `episodes`, each for `seconds`."""
    played: dict[str, list[dict[str, Any]]] = {label: [] for label in (*PEERS, *OURS)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        hand_over(mdp, path)

        def peer(label: str, seed: int) -> dict[str, Any]:
            if python is None:
                raise PeerMissingError("not installed")
            return play_peer(
                python,
                path,
                compiled=label == COMPILED,
                episodes=episodes or sys.maxsize,
                seconds=seconds,
                seed=seed,
            )

        def ours(label: str, seed: int) -> dict[str, Any]:
            return play_ours(mdp, label, episodes=episodes, seconds=seconds, seed=seed)

        # Compiled before the first turn, so that all turns are short and close in time.
        for label in OURS:
            play_ours(mdp, label, episodes=2, seconds=seconds, seed=0)
        turns: list[tuple[str, Callable[[str, int], dict[str, Any]]]] = []
        turns += [(label, peer) for label in PEERS] + [(label, ours) for label in OURS]
        for seed in range(repeats):
            for label, play in turns:
                print(f"{mdp.name}, {seed + 1}/{repeats}: {label}", file=sys.stderr)
                try:
                    played[label].append(play(label, seed))
                except PeerMissingError as problem:
                    played[label].append({"episodes": 0, "seconds": 0.0, "error": str(problem)})
    return {
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "horizon": mdp.horizon,
        "repeats": repeats,
        "seconds_limit": None if episodes else seconds,
        "learners": {label: summary(runs) for label, runs in played.items()},
        "ratios": {
            f"{theirs} / {own}": spread(
                [a / b for a, b in zip(_costs(played[theirs]), _costs(played[own]), strict=True) if a and b]
            )
            for theirs in PEERS
            for own in OURS
        },
    }


def _costs(runs: list[dict[str, Any]]) -> list[float | None]:
    """Return microseconds per episode of each run, None where no episode was finished."""
    return [1e6 * run["seconds"] / run["episodes"] if run["episodes"] else None for run in runs]


def spread(values: list[float]) -> dict[str, float] | None:
    """Return median, minimum and maximum of the measurements, or None if there are none."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the runs of one learner, and the spread of their microseconds per episode."""
    return {
        "microseconds_per_episode": spread([cost for cost in _costs(runs) if cost is not None]),
        "runs": [{key: value for key, value in run.items() if key != "versions"} for run in runs],
        "versions": next((run["versions"] for run in runs if "versions" in run), None),
    }


def report(studies: dict[str, Any]) -> str:
    """Return two tables: microseconds per episode, and the ratio of the peer's to ours."""
    head = f"{'':10} {'learner':24} {'episodes':>8} {'µs per episode':>14} {'min .. max':>20}"
    lines = [f"{head} {'in world':>8} {'return':>7}"]
    for problem, result in studies.items():
        for label, learner in result["learners"].items():
            cost, runs = learner["microseconds_per_episode"], learner["runs"]
            if cost is None:
                waited = [run["broken_off_after"] for run in runs if run.get("broken_off_after")]
                why = f"no episode within {max(waited):.0f} s" if waited else runs[-1]["error"]
                lines.append(f"{problem:10} {label:24} {why}")
                continue
            finished = [run for run in runs if run["episodes"]]
            count, earned = (
                statistics.median(run[key] for run in finished) for key in ("episodes", "mean_return")
            )
            worlds = [run["world_seconds"] / run["seconds"] for run in finished if "world_seconds" in run]
            world = f"{statistics.median(worlds):.1%}" if worlds else "-"
            span = _range(cost, len(finished))
            row = f"{problem:10} {label:24} {count:8,.0f} {cost['median']:14,.1f} {span:>20}"
            lines.append(f"{row} {world:>8} {earned:7.3f}")
    lines += ["", f"{'':10} {'peer / ours':42} {'median':>10} {'min .. max':>20}"]
    for problem, result in studies.items():
        for pair, ratio in result["ratios"].items():
            if ratio is not None:
                span = _range(ratio, result["repeats"])
                lines.append(f"{problem:10} {pair:42} {ratio['median']:10,.1f} {span:>20}")
    return "\n".join(lines)


def _range(measured: dict[str, float], runs: int) -> str:
    return f"{measured['min']:,.1f} .. {measured['max']:,.1f}" if runs > 1 else "one run"


def processor() -> str:
    """Return the processor's name, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes of inventory")
    parser.add_argument("--repeats", type=int, default=3, help="turns on inventory, seeded 0, 1, ...")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of each learner on sepsis")
    parser.add_argument("--sepsis-repeats", type=int, default=1, help="turns on sepsis")
    parser.add_argument(
        "--quick", action="store_true", help="one short turn to check that it runs; records nothing"
    )
    told = parser.parse_args()
    if told.quick:
        told.episodes, told.repeats, told.seconds, told.sepsis_repeats = 200, 1, 2.0, 1
    python: Path | None = None
    error: str | None = None
    try:
        python = install()
    except PeerMissingError as problem:
        error = str(problem)
        print(f"rlberry-scool cannot be installed, so that only ours is timed: {error}", file=sys.stderr)
    shop, ward = without_limits(chary.envs.inventory()), chary.envs.sepsis(actions="all")
    studies = {
        # The limit is only a guard here: all learners play the same number of episodes.
        shop.name: study(shop, python, episodes=told.episodes, seconds=GUARD, repeats=told.repeats),
        ward.name: study(ward, python, episodes=None, seconds=told.seconds, repeats=told.sepsis_repeats),
    }
    print(report(studies))
    if told.quick:
        return
    machine = {"processor": processor(), "system": platform.system()}
    record("peers", {"machine": machine, "installed": [*NEEDED, *PEER], "error": error, **studies})


if __name__ == "__main__":
    main()
