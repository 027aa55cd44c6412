"""Growth of time per episode and of memory with states, actions, horizon and data, on random sparse MDPs.

python benchmarks/scaling.py [--repeats 3] [--minutes 4] [--whole] [--quick] [--redraw]

One quantity changes at a time around a centre of 1,000 states, 5 actions, horizon 20 and 8 visits per pair on
average (2,000 episodes of data); a pair has 5 successors. Along states, actions and horizon the visits per
pair stay the same, not the episodes; otherwise large problems would look cheap because little is known. Data
are uniformly random episodes; after them the agent plays for a second and a half, or until it has added a
quarter to the data, and what is timed is the last two thirds, at least 32 episodes: planning, playing,
booking and judging. Time is processor time, which other processes disturb little; the kernels have one thread
and wait for nothing. The bonus is scaled to 0.05 / sqrt(n) whatever the size of the problem, and the budget
is 0.02 per step: bounds are informative, and episodes explore similarly at all sizes. That matters: once all
chains of the pool are open no explorer is planned, and episodes cost less. Here that happens only with little
data (`open` in the table).

Every point is measured in a separate process, after one tiny run that loads the compiled kernels: memory is
the peak resident set above that of the process at that time, the MDP itself included. Repeats have seeds 0,
1,
... (of the MDP and of the run) and go over all points in different orders. Exponents are least squares
through the medians in log-log, with their standard error; `end` is the exponent between the last two points,
which shows the large end where the small one is all constants. Planner `full` is left out where
S * A * H > 1,000,000.

Where memory goes, in bytes; P = S * A pairs, 16 lanes:

    512 (H + 1) S   values in lanes: lower, optimistic, upper and true (planner `incremental` alone)
    124 H S         what lanes play, of which 96 only where two of them differ (the same)
    2 pool H S      explorers of open chains, touched as chains open
    56 (H + 1) S    values one by one, of the plan and of the judge
    8 H P           the optimal Q of the judge, and once more the explorer's with planner `full`
    24 entries      transitions observed; up to 2.25 times that with room to grow, twice while repacked
    about 700 P     places, totals and radii of the rows; the MDP, the judge's rows and the world
    about 200 K     the log of K episodes

One more point, 20,000 states, 10 actions, horizon 20 and 50,000 episodes, must stay below 2 GiB. It counts
50,000 random episodes, then plays for `--minutes`; with `--whole` it plays all 50,000, after none, which
takes hours.

Writes benchmarks/results/scaling.json and scaling.png; --quick (fewer points, one repeat) writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from _jobs import RESULTS, record
from chary._workers import worker_pool

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from chary import CharyUCBVI, FiniteMDP

MIB = 2**20
SUCCESSORS = 5
VISITS = 8.0  # of a pair, on average
ETA_A_STEP, STEP_BOUND, POOL, BONUS = 0.02, 0.1, 100, 0.05
LEAST_TIMED = 32  # episodes: two batches of the incremental planner
MOST_PLAYED = 20_000
FULL_LIMIT = 1_000_000  # S * A * H
BIG_LIMIT_MIB = 2048
BIG_EPISODES = 50_000
PLANNERS = ("incremental", "full")


class Point(NamedTuple):
    """The sizes of one problem, and how many random episodes of data come before the agent plays."""

    states: int
    actions: int
    horizon: int
    episodes: int


CENTRE = Point(1_000, 5, 20, 2_000)
BIG = Point(20_000, 10, 20, BIG_EPISODES)
AXES: dict[str, list[int]] = {
    "states": [200, 500, 1_000, 3_000, 8_000, 20_000],
    "actions": [2, 5, 10, 20, 40],
    "horizon": [5, 10, 20, 40, 80],
    "episodes": [100, 500, 2_000, 10_000, 50_000],
}
QUICK_AXES: dict[str, list[int]] = {
    "states": [200, 1_000, 4_000],
    "actions": [2, 5, 20],
    "horizon": [5, 20, 60],
    "episodes": [100, 2_000, 20_000],
}


class Fit(NamedTuple):
    """A line in log-log: y = factor * x ** exponent; `end` is the exponent between the last two points."""

    exponent: float
    error: float
    factor: float
    end: float


def points_of(axis: str, values: list[int]) -> list[Point]:
    """Return the points of one axis; except along `episodes`, visits per pair stay the same."""
    points = [CENTRE._replace(**{axis: value}) for value in values]
    if axis == "episodes":
        return points
    return [p._replace(episodes=round(VISITS * p.states * p.actions / p.horizon)) for p in points]


def peak_mib() -> float:
    """Return the largest resident set of this process so far."""
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def held_mib() -> float:
    """Return the resident set of this process now or, where that is not available, the largest so far."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * resource.getpagesize() / MIB if told.exists() else peak_mib()


def agent_for(mdp: FiniteMDP, episodes: int) -> CharyUCBVI:
    """Return the agent, with a bonus of BONUS / sqrt(n)."""
    import chary
    from chary.model.bounds import Bounds

    log_term = Bounds(family="hoeffding", delta=0.1).log_term(mdp.setting, episodes)
    certified = 4 * float(mdp.setting.value_bounds[0]) * math.sqrt(mdp.n_states * log_term)
    return chary.CharyUCBVI(
        eta=ETA_A_STEP * mdp.horizon,
        rule="capped",
        step_bound=STEP_BOUND,
        charge="coupled",
        bonus="hoeffding",
        bonus_scale=BONUS / certified,
        delta=0.1,
        pool=POOL,
        patience=None,
    )


def measure(job: str) -> dict[str, Any]:
    """Measure one point in this process, described in JSON."""
    import chary
    from chary.simulation import Simulation
    from chary.simulation._compiled import CompiledRun

    told = json.loads(job)
    point, planner, seed, seconds = Point(*told["point"]), told["planner"], told["seed"], told["seconds"]
    tiny = chary.envs.random(n_states=20, n_actions=2, horizon=4, successors=3)
    chary.simulate(tiny, agent_for(tiny, 40), episodes=40, warmup=10, planner=planner)
    before = held_mib()

    warmup, episodes = point.episodes, point.episodes + MOST_PLAYED
    if told["whole"]:
        warmup, episodes = 0, point.episodes
    mdp = chary.envs.random(
        n_states=point.states,
        n_actions=point.actions,
        horizon=point.horizon,
        successors=SUCCESSORS,
        seed=seed,
    )
    agent = agent_for(mdp, episodes)
    simulation = Simulation(mdp, agent, episodes=episodes, warmup=warmup, seed=seed, planner=planner)
    simulation.start()
    done = 0
    began = reported = time.perf_counter()
    busy = time.process_time()
    # A small problem would double its data within a second: the number of episodes is limited too.
    most = max(3 * LEAST_TIMED, point.episodes // 4)
    # The first blocks are short and leave lanes empty: the clock starts after a third of the time.
    since: tuple[float, int] | None = None
    while done < episodes:
        done, now = simulation.advance(), time.perf_counter()
        spent = max((now - began) / max(seconds, 1e-9), 0.0 if told["loud"] else done / most)
        if since is None and spent >= 1 / 3:
            since = time.process_time(), done
        elif since and spent >= 1 and done - since[1] >= LEAST_TIMED and not told["whole"]:
            break
        if told["loud"] and now - reported > 1:
            reported = now
            pace = (now - began) / done
            print(f"\rbig point: {done} episodes, {pace:.3f} s each ", end="", file=sys.stderr, flush=True)
    now, busy_now = time.perf_counter(), time.process_time()
    timed_from, first = since or (busy, 0)
    run = simulation._run
    assert isinstance(run, CompiledRun)
    rows, chains, log = run.knowledge.rows, run.chains, simulation.log
    return {
        "planner": planner,
        "point": point._asdict(),
        "seed": seed,
        "bonus_scale": agent.bonus_scale,
        "warmup": warmup,
        "played": done,
        "timed": done - first,
        "seconds": now - began,
        "microseconds": 1e6 * (busy_now - timed_from) / (done - first),
        "share_of_a_core": (busy_now - busy) / (now - began),
        "memory_mib": peak_mib() - before,
        "process_mib": peak_mib(),
        "entries": int(rows.length.sum()),
        "pairs_seen": float((rows.total > 0).mean()),
        "exploring_steps": float(log.exploring_steps[:done].mean()),
        "deviating_steps": float(log.deviating_steps[:done].mean()),
        "chains_open": int((chains.status != 0).sum()),
        "pool_mib": chains.explorer.nbytes / MIB,
    }


def in_fresh_process(
    point: Point, planner: str, seed: int, seconds: float, *, loud: bool = False, whole: bool = False
) -> dict[str, Any]:
    """Measure one point in a process that has done nothing before."""
    job = {"point": point, "planner": planner, "seed": seed, "seconds": seconds, "loud": loud, "whole": whole}
    with worker_pool(1) as pool:
        return pool.submit(measure, json.dumps(job)).result()


def measure_all(axes: dict[str, list[int]], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Measure every point with both planners, each repeat in its own order; progress goes to stderr."""
    points = sorted({point for axis, values in axes.items() for point in points_of(axis, values)})
    jobs = [
        (point, planner)
        for point in points
        for planner in PLANNERS
        if planner != "full" or math.prod(point[:3]) <= FULL_LIMIT
    ]
    # A first process compiles what the cache lacks: compiling takes memory too.
    in_fresh_process(CENTRE, PLANNERS[0], 0, 0.0)
    results = []
    for seed in range(repeats):
        for i in np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(jobs)):
            point, planner = jobs[int(i)]
            results.append(in_fresh_process(point, planner, seed, seconds))
            print(f"\r{len(results)}/{repeats * len(jobs)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def summarise(axes: dict[str, list[int]], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, by axis and planner, the values along it, median, least and most at each, and the fits."""
    summary: dict[str, Any] = {}
    for axis, values in axes.items():
        for planner in PLANNERS:
            curve: dict[str, Any] = {"values": []}
            for value, point in zip(values, points_of(axis, values), strict=True):
                runs = [r for r in results if r["planner"] == planner and r["point"] == point._asdict()]
                if not runs:
                    continue
                curve["values"].append(value)
                for measured in ("microseconds", "memory_mib", "entries", "deviating_steps", "chains_open"):
                    found = [r[measured] for r in runs]
                    spread = [float(np.median(found)), float(min(found)), float(max(found))]
                    curve.setdefault(measured, []).append(spread)
            for measured in ("microseconds", "memory_mib"):
                medians = [median for median, _, _ in curve[measured]]
                curve[f"{measured}_fit"] = fit(curve["values"], medians)._asdict()
            summary.setdefault(axis, {})[planner] = curve
    return summary


def fit(x: list[int], y: list[float]) -> Fit:
    """Return the least-squares line through log x and log y."""
    u, v = np.log(x), np.log(y)
    centred = u - u.mean()
    exponent = float(centred @ v / (centred @ centred))
    intercept = float(v.mean() - exponent * u.mean())
    left = v - intercept - exponent * u
    error = math.sqrt(float(left @ left) / (len(u) - 2) / float(centred @ centred))
    end = float((v[-1] - v[-2]) / (u[-1] - u[-2]))
    return Fit(exponent, error, math.exp(intercept), end)


def print_tables(summary: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Print every point, then every exponent, and how much of a core the runs had."""
    row = "{:<9} {:>6} {:<12} {:>28} {:>24} {:>9} {:>4}"
    print(row.format("axis", "value", "planner", "us per episode", "MiB", "entries", "open"))
    for axis, planners in summary.items():
        for planner, curve in planners.items():
            for i, value in enumerate(curve["values"]):
                m, low, high = curve["microseconds"][i]
                micro = f"{m:,.0f} [{low:,.0f}, {high:,.0f}]"
                m, low, high = curve["memory_mib"][i]
                memory = f"{m:.1f} [{low:.1f}, {high:.1f}]"
                entries, waiting = curve["entries"][i][0], curve["chains_open"][i][0]
                print(row.format(axis, value, planner, micro, memory, f"{entries:,.0f}", f"{waiting:.0f}"))
    print(f"\n{'exponent of':<11} {'planner':<12} {'time':>15} {'end':>6} {'memory':>15} {'end':>6}")
    for axis, planners in summary.items():
        for planner, curve in planners.items():
            fits = [Fit(**curve[f"{measured}_fit"]) for measured in ("microseconds", "memory_mib")]
            cells = "  ".join(f"{f.exponent:>6.2f} +- {f.error:.2f} {f.end:>6.2f}" for f in fits)
            print(f"{axis:<11} {planner:<12}  {cells}")
    shares = [r["share_of_a_core"] for r in results]
    print(f"\nThe runs had {np.median(shares):.0%} of a core, {min(shares):.0%} at worst.")


def print_big(big: dict[str, Any]) -> None:
    """Print the cost of the largest point."""
    S, A, H, K = Point(**big["point"])
    dense = S * A * S
    print(
        f"\n{S:,} states, {A} actions, horizon {H}: {big['warmup']:,} random episodes counted, then "
        f"{big['played']:,} of {K:,} played in {big['seconds'] / 60:.1f} minutes, "
        f"{big['microseconds'] / 1e6:.3f} s of processor time per episode.\n"
        f"Transitions observed: {big['entries']:,} entries; S * A * S = {dense:,}, "
        f"{dense // big['entries']:,} times as many.\n"
        f"Peak: {big['memory_mib']:.0f} MiB, the whole process {big['process_mib']:.0f} MiB; "
        f"{big['chains_open']} of {POOL} chains were open, a full pool holds {big['pool_mib']:.0f} MiB. "
        f"Even with all of that on top: {_worst(big):.0f} MiB, limit {BIG_LIMIT_MIB}: "
        f"{'kept' if _worst(big) < BIG_LIMIT_MIB else 'BROKEN'}."
    )


def _worst(big: dict[str, Any]) -> float:
    return float(big["process_mib"] + big["pool_mib"])


def draw(summary: dict[str, Any]) -> None:
    """Draw time above and memory below, one column per axis."""
    from chary.charts.palette import INK, require_matplotlib

    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 6.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(summary), sharex="col", sharey="row")
    title = (
        f"Random MDPs with {SUCCESSORS} successors a pair, around {CENTRE.states:,} states, {CENTRE.actions} "
        f"actions, horizon {CENTRE.horizon} and {CENTRE.episodes:,} episodes of data"
    )
    figure.suptitle(title, fontsize=12, color=INK, x=0.01, ha="left")
    for column, (axis, planners) in enumerate(summary.items()):
        _panel(panels[0, column], planners, "microseconds", 1e-3, axis[0].upper())
        _panel(panels[1, column], planners, "memory_mib", 1.0, axis[0].upper())
        name = "episodes of data" if axis == "episodes" else axis
        panels[0, column].set_title(f"{name}, {axis[0].upper()}", fontsize=10, color=INK, loc="left")
        ticks = planners[PLANNERS[0]]["values"]
        panels[1, column].set_xticks(ticks, [f"{x:,}" for x in ticks], fontsize=8)
        panels[1, column].minorticks_off()
    panels[0, 0].set_ylabel("milliseconds per episode", color=INK)
    panels[1, 0].set_ylabel("peak memory, MiB", color=INK)
    path = RESULTS / "scaling.png"
    temporary = path.with_suffix(".tmp")
    figure.savefig(temporary, format="png")
    temporary.replace(path)


def _panel(axes: Axes, planners: dict[str, Any], measured: str, unit: float, symbol: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    from chary.charts.palette import INK, PALETTE

    colours = dict(zip(PLANNERS, (PALETTE["blue"], PALETTE["vermillion"]), strict=True))
    for planner, curve in planners.items():
        x = np.array(curve["values"])
        median, least, most = unit * np.array(curve[measured]).T
        line = Fit(**curve[f"{measured}_fit"])
        colour = colours[planner]
        axes.errorbar(
            x, median, [median - least, most - median], fmt="o", color=colour, markersize=4.5, elinewidth=1.2
        )
        label = f"{planner}: ${symbol}^{{{line.exponent:.2f} \\pm {line.error:.2f}}}$"
        axes.plot(x, unit * line.factor * x**line.exponent, color=colour, linewidth=1.4, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    # Room for the legend above the points of all panels.
    axes.margins(y=0.22)
    axes.legend(frameon=False, fontsize=10, loc="upper left")


def main() -> None:
    """Measure, print, record and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="of every point, seeded 0, 1, ...")
    parser.add_argument("--minutes", type=float, default=4.0, help="time to play the big point")
    parser.add_argument("--whole", action="store_true", help="play all 50,000 episodes of the big point")
    parser.add_argument(
        "--quick", action="store_true", help="few points to check that it runs; records nothing"
    )
    parser.add_argument("--redraw", action="store_true", help="print and draw recorded results")
    told = parser.parse_args()
    if told.redraw:
        recorded = json.loads((RESULTS / "scaling.json").read_text())
        print_tables(recorded["summary"], recorded["runs"])
        print_big(recorded["big"])
        draw(recorded["summary"])
        return
    axes, repeats, seconds, minutes = AXES, told.repeats, 1.5, told.minutes
    if told.quick:
        axes, repeats, seconds, minutes = QUICK_AXES, 1, 0.5, min(told.minutes, 0.25)
    results = measure_all(axes, repeats, seconds)
    summary = summarise(axes, results)
    print_tables(summary, results)
    big = in_fresh_process(BIG, PLANNERS[0], 0, 60 * minutes, loud=True, whole=told.whole)
    print(file=sys.stderr)
    print_big(big)
    if not told.quick:
        settings = {
            "rule": "capped",
            "eta_a_step": ETA_A_STEP,
            "step_bound": STEP_BOUND,
            "charge": "coupled",
            "bonus": "hoeffding",
            "bonus_after_one_visit": BONUS,
            "pool": POOL,
            "successors": SUCCESSORS,
        }
        seeds = list(range(repeats))
        record(
            "scaling",
            {"settings": settings, "seeds": seeds, "big": big, "summary": summary, "runs": results},
        )
        draw(summary)
    if _worst(big) >= BIG_LIMIT_MIB:
        sys.exit(1)


if __name__ == "__main__":
    main()
