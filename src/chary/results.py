"""A sweep's results as tidy tables, and the statistics that are said about them.

Two tables: `runs` has one row a planned place and judged budget, `curves` one row a point of its learning
curves. An algorithm with a budget of its own is judged at that budget; one without is judged at every budget
of its conditions, so that a row of each can be compared at equal `budget` and `seed`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.audit import violates
from chary.errors import InvalidData, InvalidSetting, check_choice, check_integer, check_real
from chary.randomness import generator_for
from chary.runner.folder import StoredRun, SweepFolder
from chary.runner.spec import MAIN, Algorithm, Conditions, Experiment, Planned
from chary.statistics import Interval, clopper_pearson
from chary.store import write_file

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "POINTS",
    "TABLES",
    "Band",
    "Estimate",
    "Tables",
    "ViolationRate",
    "bootstrap_band",
    "bootstrap_mean",
    "fitted_exponent",
    "interquartile_mean",
    "load_results",
    "load_tables",
    "paired_difference",
    "ratio_band",
    "require_polars",
    "resampled_means",
    "violation_rate",
    "write_tables",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TABLES = ("runs", "curves")

# How many points a learning curve has; the last is the last episode.
POINTS = 100
# Slopes early and late in a run are those of its first and its last tenth.
TENTH = 10
RESAMPLES = 2000


class Band(NamedTuple):
    """A mean and its interval, point by point, each (points,); NaN for the interval of a single seed."""

    mean: Floats
    low: Floats
    high: Floats


class Estimate(NamedTuple):
    """A number and its interval; NaN for the interval where one seed cannot tell."""

    value: float
    low: float
    high: float

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0.0

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0.0


class ViolationRate(NamedTuple):
    """How often a budget was broken: by episode and, since those of one run are dependent, by run."""

    violations: int
    episodes: int
    interval: Interval
    broken_runs: int
    runs: int
    run_interval: Interval

    @property
    def rate(self) -> float:
        """The share of episodes that broke the budget."""
        return self.violations / self.episodes


class Tables(NamedTuple):
    """Both tables of a sweep, from one reading of its runs."""

    runs: pl.DataFrame
    curves: pl.DataFrame


def load_results(where: str | Path, *, table: str = "runs") -> pl.DataFrame:
    """Return the finished runs of a sweep as a tidy Polars table.

    Args:
        where: The sweep's folder.
        table: `runs` for one row a run and judged budget, `curves` for about 100 points of each.

    Raises:
        InvalidSetting: if there is no sweep, or Polars is not installed.
        InvalidData: if a run is not what it was when it was written, naming all of them.
        UnknownName: if there is no such table.
    """
    check_choice("table", table, TABLES)
    tables = load_tables(where)
    return tables.runs if table == "runs" else tables.curves


def load_tables(where: str | Path) -> Tables:
    """Return both tables of `load_results`, reading every run once.

    Raises:
        InvalidSetting: if there is no sweep, or Polars is not installed.
        InvalidData: if a run is not what it was when it was written, naming all of them.
    """
    require_polars()
    import polars as pl

    folder = SweepFolder(Path(where))
    experiment = folder.experiment()
    states = folder.states()
    damaged = [state for state in states if state.state == "damaged"]
    if damaged:
        raise InvalidData(
            f"the runs of {str(where)!r} must be as they were written, got {len(damaged)} that are not: "
            f"{'; '.join(state.reason.rstrip('.') for state in damaged)}. "
            "Recompute them, or put the files back."
        )
    done = {state.id for state in states if state.state == "done"}
    places: dict[str, list[_Place]] = {}
    for place in _places(experiment):
        if place.planned.spec.id in done:
            places.setdefault(place.planned.spec.id, []).append(place)
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for run, here in places.items():
        stored = folder.read(run)
        judged = {
            budget: (_run_columns(stored, budget), _curve_columns(stored, budget))
            for budget in dict.fromkeys(place.budget for place in here)
        }
        for place in here:
            columns, points = judged[place.budget]
            rows.append(place.keys() | columns)
            curves.append(place.keys() | points)
    # In the order of the plan, whichever place a run was first read for.
    order = {key: i for i, key in enumerate(place.order for place in _places(experiment))}
    rows.sort(key=lambda row: order[_order(row)])
    curves.sort(key=lambda row: order[_order(row)])
    return Tables(
        pl.DataFrame(rows, schema=_schema(_KEYS | _RUN_COLUMNS)),
        pl.DataFrame(_joined(curves), schema=_schema(_KEYS | _CURVE_COLUMNS)),
    )


def write_tables(where: str | Path, tables: Tables | None = None) -> list[Path]:
    """Write both tables of a sweep to its folder `tables`, as runs.parquet and curves.parquet.

    Args:
        where: The sweep's folder.
        tables: What `load_tables` returned, to save reading the runs again.

    Raises:
        InvalidSetting: if there is no sweep, Polars is not installed, or the disk refuses.
        InvalidData: if a run is not what it was when it was written.
    """
    both = load_tables(where) if tables is None else tables
    folder = Path(where) / "tables"
    written = []
    try:
        folder.mkdir(exist_ok=True)
        for name, frame in zip(TABLES, both, strict=True):
            content = io.BytesIO()
            frame.write_parquet(content)
            written.append(folder / f"{name}.parquet")
            write_file(written[-1], content.getvalue())
    except OSError as problem:
        raise InvalidSetting(
            f"'DIR' must be a folder that can be written to, got {str(where)!r}: "
            f"{problem.strerror or problem}."
        ) from problem
    return written


def require_polars() -> None:
    """Raise InvalidSetting, with the way out, where Polars is not installed."""
    try:
        import polars  # noqa: F401
    except ImportError as problem:
        raise InvalidSetting(
            "'polars' must be installed to read results as tables, got none. "
            "Run: pip install 'chary[report]'."
        ) from problem


def bootstrap_band(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Band:
    """Return the mean over seeds and its percentile bootstrap band, point by point.

    Args:
        values: One row a seed, (seeds, points).
        confidence: How much of the resampled means the band holds, in (0, 1).
        resamples: How often the seeds are drawn again, >= 1.
        seed: Of the draws; the same values and seed give the same band.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> bootstrap_band([[1.0, 5.0], [3.0, 5.0]])
        Band(mean=array([2., 5.]), low=array([1., 5.]), high=array([3., 5.]))
    """
    sample = _matrix("values", values)
    means = sample.mean(axis=0)
    if len(sample) == 1:
        unknown = np.full(means.shape, np.nan)
        return Band(means, unknown, unknown.copy())
    drawn = resampled_means(sample, resamples=resamples, seed=seed)
    low, high = np.quantile(drawn, _tails(confidence), axis=0)
    return Band(means, low, high)


def bootstrap_mean(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Return the mean of one number a seed, (seeds,), with its percentile bootstrap interval.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> bootstrap_mean([2.0, 2.0, 2.0])
        Estimate(value=2.0, low=2.0, high=2.0)
    """
    column = _vector("values", values)[:, None]
    band = bootstrap_band(column, confidence=confidence, resamples=resamples, seed=seed)
    return Estimate(float(band.mean[0]), float(band.low[0]), float(band.high[0]))


def resampled_means(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return the means of resampled seeds, (resamples, points), from values of shape (seeds, points).

    Columns of one array are resampled together: what is computed from several of them, as a ratio, keeps
    seeds paired.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> means = resampled_means([[1.0, 2.0], [3.0, 6.0]])
        >>> means.shape, bool(np.all(means[:, 1] == 2 * means[:, 0]))
        ((2000, 2), True)
    """
    sample = _matrix("values", values)
    return np.asarray(_weights(len(sample), resamples, seed) @ sample)


def ratio_band(
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Band:
    """Return the ratio of the means over equal seeds and its bootstrap band, point by point.

    Not the mean of the ratios, which one seed with next to no regret of theirs would decide.

    Args:
        ours: One row a seed, (seeds, points).
        theirs: The same seeds and points; their means must be above 0.
        confidence: How much of the resampled ratios the band holds, in (0, 1).
        resamples: How often the seeds are drawn again, >= 1.
        seed: Of the draws.

    Raises:
        InvalidData: if the arrays do not fit each other, are not finite, or a mean of theirs is not above 0.

    Example:
        >>> ratio_band([[2.0], [6.0]], [[1.0], [3.0]]).mean
        array([2.])
    """
    a, b = _matrix("ours", ours), _matrix("theirs", theirs)
    if a.shape != b.shape:
        raise InvalidData(f"'ours' and 'theirs' must have one shape, got {a.shape} and {b.shape}.")
    below = b.mean(axis=0)
    if not np.all(below > 0):
        raise InvalidData(f"'theirs' must have means above 0, got {below.min():g}.")
    ratio = a.mean(axis=0) / below
    if len(a) == 1:
        unknown = np.full(ratio.shape, np.nan)
        return Band(ratio, unknown, unknown.copy())
    top, bottom = (resampled_means(each, resamples=resamples, seed=seed) for each in (a, b))
    # A resample without any regret of theirs has no ratio: as large as can be.
    drawn = np.divide(top, bottom, out=np.full(top.shape, np.inf), where=bottom > 0)
    low, high = np.quantile(drawn, _tails(confidence), axis=0, method="nearest")
    return Band(ratio, low, high)


def interquartile_mean(values: ArrayLike) -> float:
    """Return the mean of the middle half of the values, (seeds,).

    Where a quarter of them is no whole number, those at the edges count in part.

    Raises:
        InvalidData: if `values` is empty or not finite.

    Example:
        >>> interquartile_mean([0.0, 1.0, 3.0, 100.0]), interquartile_mean([7.0])
        (2.0, 7.0)
    """
    ordered = np.sort(_vector("values", values))
    edges = np.arange(len(ordered) + 1) / len(ordered)
    weights = np.diff(np.clip(edges, 0.25, 0.75))
    return float(weights @ ordered / weights.sum())


def paired_difference(
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the mean of ours - theirs over equal seeds with its bootstrap interval.

    Entry i of both is of the same seed: the world and the warm-up are then the same, and what differs between
    seeds alone drops out.

    Raises:
        InvalidData: if the arrays are not of one length, empty or not finite.

    Example:
        >>> paired_difference([3.0, 13.0], [1.0, 11.0])
        Estimate(value=2.0, low=2.0, high=2.0)
    """
    a, b = _vector("ours", ours), _vector("theirs", theirs)
    if len(a) != len(b):
        raise InvalidData(f"'ours' and 'theirs' must be of equal seeds, got {len(a)} and {len(b)} of them.")
    return bootstrap_mean(a - b, confidence=confidence, resamples=resamples, seed=seed)


def violation_rate(violations: ArrayLike, episodes: ArrayLike, *, confidence: float = 0.95) -> ViolationRate:
    """Return how often a budget was broken, with Clopper-Pearson intervals.

    The interval over episodes takes them for independent. Episodes of one run are not: they share data and a
    baseline, so that violations come in bursts, and the interval is too narrow. Runs are independent; so the
    share of runs with any violation is given beside it, and is what `delta` promises.

    Args:
        violations: How many episodes of each run broke the budget, (runs,).
        episodes: How many each played, (runs,).
        confidence: Of both intervals, in (0, 1).

    Raises:
        InvalidData: if the arrays are not of one length, or no counts.

    Example:
        >>> rate = violation_rate([0, 2], [500, 500])
        >>> rate.rate, rate.broken_runs, round(rate.interval.high, 4)
        (0.002, 1, 0.0072)
    """
    broken, played = _vector("violations", violations), _vector("episodes", episodes)
    if len(broken) != len(played):
        raise InvalidData(
            f"'violations' and 'episodes' must be of the same runs, got {len(broken)} and {len(played)}."
        )
    if not (np.all(broken >= 0) and np.all(broken <= played) and np.all(played >= 1)):
        raise InvalidData("'violations' must be counts of at most 'episodes' each, got others.")
    total, among = int(broken.sum()), int(played.sum())
    runs = int(np.count_nonzero(broken))
    return ViolationRate(
        total,
        among,
        clopper_pearson(total, among, confidence),
        runs,
        len(broken),
        clopper_pearson(runs, len(broken), confidence),
    )


def fitted_exponent(
    episodes: ArrayLike,
    regret: ArrayLike,
    *,
    start: float = 0.5,
    stop: float = 1.0,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return x where the mean cumulative regret grows like N^x over the second half of the run.

    It is the slope of log regret on log N by least squares: 1 is linear, 1/2 is UCBVI's guarantee, 0 is flat.
    NaN where the mean regret is not positive. The interval is by resampling seeds.

    Args:
        episodes: The points, (points,), increasing.
        regret: Cumulative regret there, one row a seed, (seeds, points).
        start: Where the fit begins, as a share of the last episode.
        stop: Where it ends.
        confidence: Of the interval, in (0, 1).
        resamples: How often the seeds are drawn again.
        seed: Of the draws.

    Raises:
        InvalidData: if shapes do not fit, or fewer than two points lie between `start` and `stop`.

    Example:
        >>> n = np.arange(1, 101)
        >>> round(fitted_exponent(n, [5 * np.sqrt(n), 7 * np.sqrt(n)]).value, 6)
        0.5
    """
    at, curves = _vector("episodes", episodes), _matrix("regret", regret)
    if curves.shape[1] != len(at):
        raise InvalidData(f"'regret' must have a column a point, {len(at)}, got {curves.shape[1]}.")
    inside = (at >= start * at[-1]) & (at <= stop * at[-1])
    if np.count_nonzero(inside) < 2 or at[0] <= 0:
        raise InvalidData(
            f"'episodes' must have two points or more from {start:g} to {stop:g} of the last, all > 0, "
            f"got {np.count_nonzero(inside)}."
        )
    x = np.log(at[inside])
    centred = x - x.mean()

    def slopes(means: Floats) -> Floats:
        positive = np.all(means > 0, axis=1)
        logs = np.log(np.where(positive[:, None], means, 1.0))
        return np.where(positive, logs @ centred / (centred @ centred), np.nan)

    held = curves[:, inside]
    value = float(slopes(held.mean(axis=0)[None, :])[0])
    if len(held) == 1:
        return Estimate(value, np.nan, np.nan)
    drawn = slopes(_weights(len(held), resamples, seed) @ held)
    low, high = np.quantile(drawn, _tails(confidence))
    return Estimate(value, float(low), float(high))


class _Place(NamedTuple):
    """A planned run, the algorithm that plays it and one budget it is judged at."""

    planned: Planned
    algorithm: Algorithm
    conditions: Conditions
    budget: float

    @property
    def order(self) -> tuple[Any, ...]:
        each = self.planned
        return (each.study, each.variant, each.algorithm, each.eta, self.budget, each.seed)

    def keys(self) -> dict[str, Any]:
        each = self.planned
        return {
            "study": each.study,
            "variant": each.variant,
            "algorithm": each.algorithm,
            "role": self.algorithm.role,
            "agent": self.algorithm.agent,
            "eta": each.eta,
            "budget": self.budget,
            "seed": each.seed,
            "run": each.spec.id,
        }


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("study", "variant", "algorithm", "eta", "budget", "seed"))


def _places(experiment: Experiment) -> Iterator[_Place]:
    conditions = {(MAIN, ""): experiment.conditions}
    algorithms = {(MAIN, each.label): each for each in experiment.algorithms}
    for study in experiment.studies:
        for variant in study.variants:
            conditions[study.name, variant.label] = experiment.conditions_of(variant)
        for each in study.algorithms or experiment.algorithms:
            algorithms[study.name, each.label] = each
    for planned in experiment.plan():
        here = conditions[planned.study, planned.variant]
        algorithm = algorithms[planned.study, planned.algorithm]
        for budget in here.etas if planned.eta is None else (planned.eta,):
            yield _Place(planned, algorithm, here, budget)


def _run_columns(stored: StoredRun, budget: float) -> dict[str, Any]:
    """Return one row of `runs`, the keys left out."""
    told, arrays, spec = stored.summary, stored.arrays, stored.spec
    regret = np.asarray(arrays["regret"], dtype=float)
    half, tenth = len(regret) // 2, max(1, len(regret) // TENTH)
    violations = int(_broken(stored, "true_deficit", budget).sum())
    chains = _Chains.of(arrays)
    limit = np.log(1.0 / float(told["delta"]))
    missed_at_most = (chains.exhausted + chains.long) * max(6.0 * limit - 1.0, 0.0)
    finished = chains.length > 0
    return {
        "problem": spec.problem,
        "episodes": spec.episodes,
        "warmup": spec.warmup,
        "bonus": spec.options.get("bonus"),
        "bonus_scale": spec.options.get("bonus_scale"),
        "delta": told["delta"],
        "reward_span": told["reward_span"],
        "standing": told["standing"],
        "regret": float(regret.sum()),
        "regret_first_half": float(regret[:half].sum()),
        "regret_second_half": float(regret[half:].sum()),
        "regret_early_slope": float(regret[:tenth].mean()),
        "regret_late_slope": float(regret[-tenth:].mean()),
        "mean_return": told["mean_return"],
        "violations": violations,
        "violations_frozen": int(_broken(stored, "frozen_deficit", budget).sum()),
        "violation_rate": violations / len(regret),
        "deficit_mean": float(arrays["deficit"].mean()),
        "deficit_max": float(arrays["deficit"].max()),
        "true_deficit_mean": float(arrays["true_deficit"].mean()),
        "true_deficit_max": float(arrays["true_deficit"].max()),
        "largest_gap": told["largest_gap"],
        "exploring_steps": int(arrays["exploring_steps"].sum()),
        "deviating_steps": int(arrays["deviating_steps"].sum()),
        "steps": int(arrays["length"].sum()),
        "chains_started": told["chains_started"],
        "chains_finished": told["chains_finished"],
        "chains_abandoned": told["chains_abandoned"],
        "chains_blocked": told["chains_blocked"],
        "chain_episodes_mean": float(chains.length[finished].mean()) if finished.any() else None,
        "chain_episodes_max": int(chains.length.max()) if finished.any() else None,
        "chain_exhausted": int(chains.exhausted[finished].sum()),
        "chain_long": int(chains.long[finished].sum()),
        "chain_missed": int(chains.missed[finished].sum()),
        "chain_long_max": int(chains.long[finished].max()) if finished.any() else None,
        "chains_within_missed_bound": int((chains.missed <= missed_at_most)[finished].sum()),
        "chains_within_length_bound": int(
            (chains.length <= np.maximum(30.0 * chains.exhausted * limit, 1.0))[finished].sum()
        ),
        "value_failures": told["value_coverage_failures"],
        "bonus_failures": told["bonus_coverage_failures"],
        "charge_failures": told["charge_coverage_failures"],
        "seconds": stored.provenance.get("wall_seconds"),
        "cpu_seconds": stored.provenance.get("cpu_seconds"),
        "episode_seconds": stored.provenance.get("episode_seconds"),
        **_provenance(stored.provenance),
    }


def _provenance(told: dict[str, Any]) -> dict[str, Any]:
    """Return where a run was made, in words; nothing here is part of its results."""
    packages = told.get("packages") or {}
    words = {name: told.get(name) for name in ("version", "commit", "python", "machine", "finished")}
    return {
        **{name: None if value is None else str(value) for name, value in words.items()},
        "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())) or None,
        "cores": told.get("cores"),
        "resumed": told.get("resumed"),
    }


def _curve_columns(stored: StoredRun, budget: float) -> dict[str, Any]:
    """Return the columns of `curves` of one run, each (points,)."""
    arrays = stored.arrays
    episodes = len(arrays["regret"])
    at = _points(episodes)
    width = np.diff(at, prepend=0)
    broken = _broken(stored, "true_deficit", budget)
    starts = np.concatenate(([0], at[:-1]))
    chains = _Chains.of(arrays)
    window = np.searchsorted(at, chains.born, side="right")
    # The length of a chain that was not finished is not known: late windows favour short ones.
    counted = chains.length > 0
    finished = np.bincount(window[counted], minlength=len(at))

    def summed(name: str) -> Floats:
        return np.add.reduceat(np.asarray(arrays[name], dtype=float), starts)

    def by_chain(values: Ints) -> Floats:
        total = np.bincount(window[counted], weights=values[counted], minlength=len(at))
        return np.asarray(np.where(finished > 0, total / np.maximum(finished, 1), np.nan))

    return {
        "episode": at,
        "regret": np.cumsum(summed("regret")),
        "violations": np.cumsum(np.add.reduceat(broken.astype(np.int64), starts)),
        "deficit_mean": summed("deficit") / width,
        "true_deficit_mean": summed("true_deficit") / width,
        "true_deficit_max": np.maximum.reduceat(np.asarray(arrays["true_deficit"], dtype=float), starts),
        "exploring_steps": summed("exploring_steps") / width,
        "deviating_steps": summed("deviating_steps") / width,
        "chains_born": np.bincount(window, minlength=len(at)),
        "chains_finished": finished,
        "chain_episodes": by_chain(chains.length),
        "chain_exhausted": by_chain(chains.exhausted),
        "chain_long": by_chain(chains.long),
        "chain_missed": by_chain(chains.missed),
    }


class _Chains(NamedTuple):
    """The chains of a run, (chains,): `length` is N_m, 0 while unfinished, and falls into the last three."""

    born: Ints
    length: Ints
    exhausted: Ints
    long: Ints
    missed: Ints

    @classmethod
    def of(cls, arrays: dict[str, NDArray[np.generic]]) -> _Chains:
        born, length, exhausted, long = (
            np.asarray(arrays[f"chain_{name}"], dtype=np.int64)
            for name in ("born", "episodes", "exhausted", "long")
        )
        return cls(born, length, exhausted, long, np.where(length > 0, length - exhausted - long, 0))


def _points(episodes: int) -> Ints:
    """Return up to `POINTS` whole numbers, evenly spaced, the last of them `episodes`.

    Example:
        >>> _points(3), _points(1000)[[0, 1, -1]]
        (array([1, 2, 3]), array([  10,   20, 1000]))
    """
    count = min(POINTS, episodes)
    return np.unique(np.round(np.arange(1, count + 1) * (episodes / count)).astype(np.int64))


def _broken(stored: StoredRun, name: str, budget: float) -> NDArray[np.bool_]:
    # In scaled units, as Run.violations judges.
    span = float(stored.summary["reward_span"])
    deficit = np.asarray(stored.arrays[name], dtype=float)
    return np.asarray(violates(deficit / span, budget / span))


def _joined(curves: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the points of all runs as one set of columns, keys repeated."""
    if not curves:
        return {}
    joined: dict[str, Any] = {}
    for key in _KEYS:
        joined[key] = [each[key] for each in curves for _ in range(len(each["episode"]))]
    for key in _CURVE_COLUMNS:
        column = np.concatenate([each[key] for each in curves])
        # NaN stands for a window in which no chain was born: a missing value, not a number.
        joined[key] = [None if value != value else value for value in column.tolist()]
    return joined


_KEYS = {
    "study": "String",
    "variant": "String",
    "algorithm": "String",
    "role": "String",
    "agent": "String",
    "eta": "Float64",
    "budget": "Float64",
    "seed": "Int64",
    "run": "String",
}
_RUN_COLUMNS = {
    "problem": "String",
    "episodes": "Int64",
    "warmup": "Int64",
    "bonus": "String",
    "bonus_scale": "Float64",
    "delta": "Float64",
    "reward_span": "Float64",
    "standing": "String",
    "regret": "Float64",
    "regret_first_half": "Float64",
    "regret_second_half": "Float64",
    "regret_early_slope": "Float64",
    "regret_late_slope": "Float64",
    "mean_return": "Float64",
    "violations": "Int64",
    "violations_frozen": "Int64",
    "violation_rate": "Float64",
    "deficit_mean": "Float64",
    "deficit_max": "Float64",
    "true_deficit_mean": "Float64",
    "true_deficit_max": "Float64",
    "largest_gap": "Float64",
    "exploring_steps": "Int64",
    "deviating_steps": "Int64",
    "steps": "Int64",
    "chains_started": "Int64",
    "chains_finished": "Int64",
    "chains_abandoned": "Int64",
    "chains_blocked": "Int64",
    "chain_episodes_mean": "Float64",
    "chain_episodes_max": "Int64",
    "chain_exhausted": "Int64",
    "chain_long": "Int64",
    "chain_missed": "Int64",
    "chain_long_max": "Int64",
    "chains_within_missed_bound": "Int64",
    "chains_within_length_bound": "Int64",
    "value_failures": "Int64",
    "bonus_failures": "Int64",
    "charge_failures": "Int64",
    "seconds": "Float64",
    "cpu_seconds": "Float64",
    "episode_seconds": "Float64",
    "version": "String",
    "commit": "String",
    "python": "String",
    "machine": "String",
    "finished": "String",
    "packages": "String",
    "cores": "Int64",
    "resumed": "Int64",
}
_CURVE_COLUMNS = {
    "episode": "Int64",
    "regret": "Float64",
    "violations": "Int64",
    "deficit_mean": "Float64",
    "true_deficit_mean": "Float64",
    "true_deficit_max": "Float64",
    "exploring_steps": "Float64",
    "deviating_steps": "Float64",
    "chains_born": "Int64",
    "chains_finished": "Int64",
    "chain_episodes": "Float64",
    "chain_exhausted": "Float64",
    "chain_long": "Float64",
    "chain_missed": "Float64",
}


def _schema(columns: dict[str, str]) -> dict[str, Any]:
    import polars as pl

    return {name: getattr(pl, kind) for name, kind in columns.items()}


def _weights(seeds: int, resamples: int, seed: int) -> Floats:
    """Return how much each seed counts in each resample, (resamples, seeds): rows sum to 1."""
    check_integer("resamples", resamples, minimum=1)
    drawn = generator_for(seed, "bootstrap").multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples)
    return np.asarray(drawn / float(seeds))


def _tails(confidence: float) -> tuple[float, float]:
    sure = check_real("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    return (1.0 - sure) / 2.0, (1.0 + sure) / 2.0


def _matrix(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or 0 in array.shape or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite and of shape (seeds, points), got shape {array.shape}.")
    return array


def _vector(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.all(np.isfinite(array)):
        raise InvalidData(f"{name!r} must be finite numbers, one each, got shape {array.shape}.")
    return array
