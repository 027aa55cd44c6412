"""Speed of the incremental planner compared with the full pass and with dense replanning.

Both planners play the same episodes in turns, a slice of them at a time, so that whatever else the machine
does meets both alike. Dense replanning, as public implementations of UCBVI do it, multiplies the whole
(S, A, S) tensor at every step; it is timed in a process whose BLAS has one thread. The planners' times are
those of whole episodes, played, judged and learnt from; that of dense replanning is of replanning alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from chary._workers import worker_pool
from chary.arrays import Floats, Ints
from chary.bench import Progress, machine, versions
from chary.bench._configurations import Configuration, configurations
from chary.bench._dense import single_threaded, time_dense, too_large
from chary.errors import MOST_EPISODES, MOST_RUNS, check_choice, check_integer, check_seed
from chary.simulation import Simulation
from chary.simulation.run import ChainLog, Run

EPISODES = 50_000
# Online episodes played before, at which microseconds per episode are reported.
AMOUNTS = (100, 5_000, 20_000, 50_000)
# Slices end here, and at every SLICES-th part of the run.
EARLY = (50, 100, 200, 500, 1_000, 2_000)
SLICES = 40
FULL, INCREMENTAL, DENSE = "full", "incremental", "dense"

COLUMNS = ("episodes played", FULL, INCREMENTAL, DENSE, "full / incremental", "dense / incremental")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The time of one configuration; where runs were repeated, medians over them.

    Args:
        settings: The agent's options, the problem's actions and the warm-up.
        us_per_episode: Microseconds by planner and by online episodes played before; None for `dense` where
            `dense_skipped` gives the reason.
        ratio_vs_full: Seconds of the full pass over those of the incremental planner, for the whole run.
        ratio_vs_full_by_slice: `min`, `median` and `max` of the same ratio over slices of the run.
        ratio_vs_dense: Seconds of as many dense replannings over those of the incremental planner.
        identical: Whether both planners' runs are the same in every bit of every array.
        seconds: By planner, for the whole run, compilation and warm-up aside.
        start_seconds: By planner: compiling or loading kernels, and the warm-up.
        seconds_50k: `seconds` of the incremental planner where 50,000 episodes were played, else None.
        peak_memory_mb: The most memory this process has held so far, in 10^6 bytes: both planners, and any
            configuration measured before.
        rows_touched: Rows that each planner evaluated per episode; for the incremental one, each read for
            several episodes at once.
        episodes_per_batch: How many episodes the incremental planner planned together.
        deviating: The share of episodes that left the baseline.
        dense_skipped: Why dense replanning was not timed.
        dense_threads: The threads of BLAS that it had.
        by_repeat: The ratios of every repeat, in order.
    """

    settings: dict[str, Any]
    us_per_episode: dict[str, dict[str, float] | None]
    ratio_vs_full: float
    ratio_vs_full_by_slice: dict[str, float]
    ratio_vs_dense: float | None
    identical: bool
    seconds: dict[str, float]
    start_seconds: dict[str, float]
    seconds_50k: float | None
    peak_memory_mb: float | None
    rows_touched: dict[str, float | None]
    episodes_per_batch: float | None
    deviating: float
    dense_skipped: str | None
    dense_threads: int | None
    by_repeat: dict[str, list[float]]

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, in the order of `COLUMNS`; the last row is the whole run."""
        episodes = self.settings["episodes"]
        us = {planner: times or {} for planner, times in self.us_per_episode.items()}
        table = [
            (amount, us[FULL][amount], us[INCREMENTAL][amount], us[DENSE].get(amount))
            for amount in us[INCREMENTAL]
        ]
        dense = median(us[DENSE].values()) if us[DENSE] else None
        whole = (1e6 * self.seconds[planner] / episodes for planner in (FULL, INCREMENTAL))
        return [
            (
                label,
                f"{full:.1f}",
                f"{incremental:.1f}",
                _or_dash(each, ".1f"),
                f"{full / incremental:.2f}",
                _or_dash(None if each is None else each / incremental, ".1f"),
            )
            for label, full, incremental, each in [*table, ("whole run", *whole, dense)]
        ]

    def describe(self) -> str:
        """Say in words what was measured."""
        spread, repeated = self.ratio_vs_full_by_slice, self.by_repeat["ratio_vs_full"]
        repeats = f", repeats {min(repeated):.2f} to {max(repeated):.2f}" if len(repeated) > 1 else ""
        against = (
            f"no dense replanning: {self.dense_skipped}"
            if self.ratio_vs_dense is None
            else f"{self.ratio_vs_dense:.3g} times as fast as dense replanning"
        )
        memory = "" if self.peak_memory_mb is None else f" Peak memory so far: {self.peak_memory_mb:.0f} MB."
        return (
            f"{self.settings['episodes']} episodes in {self.seconds[INCREMENTAL]:.2f} s: "
            f"{self.ratio_vs_full:.2f} times as fast as the full pass (slices {spread['min']:.2f} to "
            f"{spread['max']:.2f}{repeats}), {against}; results "
            f"{'identical' if self.identical else 'DIFFERENT, which is an error in chary'}; "
            f"{self.deviating:.0%} of episodes left the baseline.{memory}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """All that was measured on one problem, in the order it was."""

    problem: str
    episodes: int
    seed: int
    repeats: int
    versions: dict[str, str]
    machine: dict[str, Any]
    measurements: dict[str, Measurement]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: at the top the first configuration's, below all of them by name."""
        values = asdict(self)
        blocks = values.pop("measurements")
        first = next(iter(blocks))
        return {**values, "configuration": first, **blocks[first], "configurations": blocks}


def bench(
    problem: str = "sepsis",
    *,
    episodes: int = EPISODES,
    only: Sequence[str] = (),
    seed: int = 0,
    repeats: int = 1,
    progress: Progress | None = None,
) -> Benchmark:
    """Time the incremental planner against the full pass and dense replanning.

    Args:
        problem: A problem's name.
        episodes: Number of online episodes per run, >= 1; ignored for hiv.
        only: Configuration to measure, by default all; repeat the option for several.
        seed: Random seed.
        repeats: Number of measurements per configuration, >= 1.
        progress: Called now and then with a label, episodes done and episodes in all.

    Raises:
        UnknownName: if there is no such problem or configuration.
        InvalidSetting: if a number is out of range.

    Example:
        >>> bench("riverswim", episodes=5, only=["strict"]).measurements["strict"].identical
        True
    """
    known = configurations(problem)
    names = list(dict.fromkeys(check_choice("config", name, known) for name in only)) or list(known)
    check_integer("episodes", episodes, minimum=1, largest=MOST_EPISODES)
    check_seed(seed)
    check_integer("repeats", repeats, minimum=1, largest=MOST_RUNS)
    measurements = {}
    with single_threaded(), worker_pool(1) as pool:
        for name in names:
            measurements[name] = _measure(known[name](), episodes, seed, repeats, pool, progress)
    return Benchmark(
        problem=problem,
        episodes=episodes,
        seed=seed,
        repeats=repeats,
        versions=_versions(),
        machine=machine(),
        measurements=measurements,
    )


def identical(first: Run, second: Run) -> bool:
    """Return whether two runs are the same in every bit of every array, their chains included."""
    return _same(first, second) and _same(first.chains, second.chains)


def _same(first: Run | ChainLog, second: Run | ChainLog) -> bool:
    for each in fields(first):
        one, other = getattr(first, each.name), getattr(second, each.name)
        if isinstance(one, np.ndarray) and (one.shape != other.shape or one.tobytes() != other.tobytes()):
            return False
    return True


class _TimedRun:
    """One planner's run in progress: its simulation, and how long it took to come to each point."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        began = time.perf_counter()
        simulation.start()
        self.start_seconds = time.perf_counter() - began
        self._points = [(0, 0.0)]

    def advance(self) -> None:
        """Play one block."""
        began = time.perf_counter()
        done = self.simulation.advance()
        elapsed = time.perf_counter() - began
        self._points.append((done, self._points[-1][1] + elapsed))

    def seconds_at(self, ends: Ints) -> Floats:
        """Return the seconds at some numbers of episodes; within a block they pass evenly."""
        episodes, seconds = zip(*self._points, strict=True)
        return np.asarray(np.interp(ends, episodes, seconds), dtype=np.float64)


class _Timed(NamedTuple):
    """One interleaved measurement: seconds by planner at the ends of slices, and dense ones by amount."""

    ends: Ints
    seconds: dict[str, Floats]
    starts: dict[str, float]
    dense: dict[int, float]
    skipped: str | None
    runs: dict[str, Run]


def _amounts(episodes: int) -> tuple[int, ...]:
    """Return the amounts of data to report at: those within the run, and its end."""
    return tuple(sorted({amount for amount in AMOUNTS if amount <= episodes} | {episodes}))


def _ends(episodes: int) -> Ints:
    """Return where slices end: often at first, then SLICES times per run, and at every amount reported."""
    every = {round(episodes * i / SLICES) for i in range(1, SLICES + 1)}
    return np.array(
        sorted(end for end in {*EARLY, *_amounts(episodes), *every} if 0 < end <= episodes), dtype=np.int64
    )


def _measure(
    configuration: Configuration,
    episodes: int,
    seed: int,
    repeats: int,
    pool: ProcessPoolExecutor,
    progress: Progress | None,
) -> Measurement:
    """Measure one configuration `repeats` times."""
    name, mdp, spec, warmup = configuration
    total = 2 * episodes * repeats
    played: list[_Timed] = []

    def report(done: int) -> None:
        if progress is not None:
            progress(f"{name} on {mdp.name}", len(played) * 2 * episodes + done, total)

    for _ in range(repeats):
        played.append(_play(configuration, episodes, seed, pool, report))

    amounts, both = _amounts(episodes), (FULL, INCREMENTAL)
    by_planner: dict[str, dict[str, float] | None] = {
        planner: {
            str(amount): median(_us_around(amount, each.ends, each.seconds[planner]) for each in played)
            for amount in amounts
        }
        for planner in both
    }
    skipped = next((each.skipped for each in played if each.skipped), None)
    dense = {} if skipped else {n: [1e6 * each.dense[n] for each in played] for n in amounts}
    by_planner[DENSE] = None if skipped else {str(n): median(us) for n, us in dense.items()}
    totals = {planner: [float(each.seconds[planner][-1]) for each in played] for planner in both}
    vs_full = [full / own for full, own in zip(*totals.values(), strict=True)]
    vs_dense = [
        median(each.dense.values()) * episodes / own
        for each, own in zip(played, totals[INCREMENTAL], strict=True)
        if not skipped
    ]
    slices = {
        planner: np.concatenate([np.diff(each.seconds[planner], prepend=0.0) for each in played])
        for planner in both
    }
    by_slice = (slices[FULL] / slices[INCREMENTAL]).tolist()
    seconds = {planner: median(total) for planner, total in totals.items()}
    run = played[-1].runs[INCREMENTAL]
    planning, told = run.planning, mdp.setting
    # An explorer is made for every chain that starts: an optimum over all pairs, as the lower one is.
    explorers = run.chains.started / episodes
    return Measurement(
        settings={
            **spec.options(),
            "eta": spec.eta,
            "delta": spec.delta,
            "episodes": episodes,
            "warmup": warmup,
            "states": mdp.n_states,
            "actions": mdp.n_actions,
            "pairs": told.n_pairs,
            "horizon": mdp.horizon,
        },
        us_per_episode=by_planner,
        ratio_vs_full=median(vs_full),
        ratio_vs_full_by_slice={"min": min(by_slice), "median": median(by_slice), "max": max(by_slice)},
        ratio_vs_dense=None if skipped else median(vs_dense),
        identical=all(identical(each.runs[FULL], each.runs[INCREMENTAL]) for each in played),
        seconds=seconds,
        start_seconds={planner: median(each.starts[planner] for each in played) for planner in both},
        seconds_50k=seconds[INCREMENTAL] if episodes == 50_000 else None,
        peak_memory_mb=_peak_memory_mb(),
        rows_touched={
            FULL: mdp.horizon * (told.n_pairs + mdp.n_states + explorers * told.n_pairs),
            INCREMENTAL: planning["rows"] / episodes if planning else None,
        },
        episodes_per_batch=episodes / planning["batches"] if planning else None,
        deviating=float((run.deviating_steps > 0).mean()),
        dense_skipped=skipped,
        dense_threads=None if skipped else 1,
        by_repeat={"ratio_vs_full": vs_full, "ratio_vs_dense": vs_dense},
    )


def _us_around(amount: int, ends: Ints, seconds: Floats) -> float:
    """Return microseconds per episode in the slices before and after an amount of episodes."""
    at, since = np.concatenate([[0], ends]), np.concatenate([[0.0], seconds])
    i = int(np.searchsorted(at, amount))
    first, last = i - 1, min(i + 1, len(at) - 1)
    return float(1e6 * (since[last] - since[first]) / (at[last] - at[first]))


def _play(
    configuration: Configuration,
    episodes: int,
    seed: int,
    pool: ProcessPoolExecutor,
    report: Callable[[int], None],
) -> _Timed:
    """Play one run with each planner in turns, and replan densely at every amount."""
    _, mdp, spec, warmup = configuration
    report(0)
    playing: dict[str, _TimedRun] = {}
    for planner in (FULL, INCREMENTAL):
        playing[planner] = _TimedRun(
            Simulation(
                mdp, spec, episodes=episodes, warmup=warmup, seed=seed, coverage="played", planner=planner
            )
        )
        report(0)
    dense: dict[int, float] = {}
    skipped = too_large(mdp)
    turns = list(playing.values())
    ends = _ends(episodes)
    for end in ends.tolist():
        for turn in turns:
            while turn.simulation.done < end:
                turn.advance()
                report(sum(each.simulation.done for each in turns))
        # Neither planner is always the one that goes first.
        turns.reverse()
        if end in _amounts(episodes) and skipped is None:
            try:
                dense[end] = pool.submit(time_dense, mdp.n_states, mdp.n_actions, mdp.horizon).result()
            except (MemoryError, BrokenProcessPool):
                skipped = "there is not enough memory for a dense tensor"
    return _Timed(
        ends,
        {planner: each.seconds_at(ends) for planner, each in playing.items()},
        {planner: each.start_seconds for planner, each in playing.items()},
        dense,
        skipped,
        {planner: each.simulation.result() for planner, each in playing.items()},
    )


def _peak_memory_mb() -> float | None:
    """Return the most memory this process has held, in 10^6 bytes; None where that is not known."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # KiB, but bytes on macOS: getrusage(2) of either.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def _versions() -> dict[str, str]:
    built: Any = np.show_config(mode="dicts")
    blas = built["Build Dependencies"]["blas"]
    blas_version = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    return {**versions("numpy", "numba"), "blas": blas_version}


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
