"""A sweep's results as tidy tables, and the statistics that are said about them.

Two tables: `runs` has one row a planned place and judged budget, `curves` one row a point of its learning
curves. An algorithm with a budget of its own is judged at that budget; one without is judged at every budget
of its conditions, so that a row of each can be compared at equal `budget` and `seed`. The tables of a tabular
problem and of one for the deep learner have columns of their own.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Floats, Ints
from chary.audit import violates
from chary.errors import InvalidData, InvalidSetting, check_choice, check_integer, check_real
from chary.randomness import generator_for
from chary.results import hiv as _deep_results
from chary.statistics import (
    Band,
    Estimate,
    ViolationRate,
    interquartile_mean,
    matrix_of,
    small_sample_factor,
    vector_of,
    violation_rate,
)
from chary.storage.files import as_path, write_file
from chary.sweeps.family import AnyAlgorithm, AnyConditions
from chary.sweeps.folder import StoredRun, SweepFolder
from chary.sweeps.spec import MAIN, Experiment, Planned

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
    "bootstrap_of",
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


TABLES = ("runs", "curves")

# How many points a learning curve has; the last is the last episode.
POINTS = 100
# Slopes early and late in a run are those of its first and its last tenth.
TENTH = 10
RESAMPLES = 2000


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

    folder = SweepFolder(as_path("where", where))
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
    kind = {"tabular": _TABULAR, "hiv": _DEEP}[experiment.family.name]
    for run, here in places.items():
        stored = folder.read(run)
        judged = {
            budget: (kind.of_run(stored, budget) | _of_machine(stored), kind.of_curve(stored, budget, POINTS))
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
        pl.DataFrame(rows, schema=_schema(_KEYS | kind.run_columns | _MACHINE_COLUMNS)),
        pl.DataFrame(_joined(curves, kind.curve_columns), schema=_schema(_KEYS | kind.curve_columns)),
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


def bootstrap_of(
    values: ArrayLike,
    statistic: Callable[[Floats], Floats],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Band:
    """Return a function of the means over seeds, and its bootstrap interval, widened for few seeds.

    The plain percentile interval is too short: of the mean of five normal numbers it covers 84 %, not 95 %.
    Its ends are therefore moved away from the estimate by `small_sample_factor` (Hesterberg 2015), after
    which they cover as Student's interval does, and still lean to the side to which the data do. NaN for one
    seed, and where the function has no value in some resample.

    Args:
        values: One row a seed, (seeds, points); whole rows are drawn, so that what is in one stays paired.
        statistic: From means, one row a resample, (resamples, points), to numbers, (resamples, outcomes).
        confidence: Of the interval, in (0, 1).
        resamples: How often the seeds are drawn again, >= 1.
        seed: Of the draws; the same values and seed give the same interval.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> share = bootstrap_of([[1.0, 2.0], [3.0, 6.0]], lambda means: means[:, :1] / means[:, 1:])
        >>> share.mean.tolist(), share.low.tolist(), share.high.tolist()
        ([0.5], [0.5], [0.5])
    """
    sample = matrix_of("values", values)
    value = statistic(sample.mean(axis=0)[None, :])[0]
    if len(sample) == 1:
        unknown = np.full(value.shape, np.nan)
        return Band(value, unknown, unknown.copy())
    drawn = statistic(resampled_means(sample, resamples=resamples, seed=seed))
    # Between an infinite draw and a finite one there is no number, hence the nearest.
    method: Literal["linear", "nearest"] = "linear" if np.all(np.isfinite(drawn)) else "nearest"
    low, high = np.quantile(drawn, _tails(confidence), axis=0, method=method)
    factor = small_sample_factor(len(sample), confidence)
    # By the maximum: rounding must not move an end to the other side of the estimate.
    return Band(
        value,
        np.asarray(value - factor * np.maximum(value - low, 0.0)),
        np.asarray(value + factor * np.maximum(high - value, 0.0)),
    )


def bootstrap_band(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Band:
    """Return the mean over seeds and its bootstrap band, point by point, widened for few seeds.

    Args:
        values: One row a seed, (seeds, points).
        confidence: Of the interval at each point, in (0, 1).
        resamples: How often the seeds are drawn again, >= 1.
        seed: Of the draws; the same values and seed give the same band.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> bootstrap_band([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]]).high.round(2).tolist()
        [11.07, 5.0]
    """
    return bootstrap_of(values, lambda means: means, confidence=confidence, resamples=resamples, seed=seed)


def bootstrap_mean(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Return the mean of one number a seed, (seeds,), with its bootstrap interval, widened for few seeds.

    Raises:
        InvalidData: if `values` is no such array or not finite.

    Example:
        >>> bootstrap_mean([2.0, 2.0, 2.0])
        Estimate(value=2.0, low=2.0, high=2.0)
    """
    column = vector_of("values", values)[:, None]
    band = bootstrap_band(column, confidence=confidence, resamples=resamples, seed=seed)
    return band.only


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
    sample = matrix_of("values", values)
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

    Not the mean of the ratios, which one seed with next to no regret of theirs would decide. The band is
    widened for few seeds on the scale of logarithms, where a ratio and its inverse are alike.

    Args:
        ours: One row a seed, (seeds, points), nothing below 0.
        theirs: The same seeds and points; their means must be above 0.
        confidence: Of the interval at each point, in (0, 1).
        resamples: How often the seeds are drawn again, >= 1.
        seed: Of the draws.

    Raises:
        InvalidData: if the arrays do not fit each other, are not finite, or a mean of theirs is not above 0.

    Example:
        >>> ratio_band([[2.0], [6.0]], [[1.0], [3.0]]).mean.round(6).tolist()
        [2.0]
    """
    a, b = matrix_of("ours", ours), matrix_of("theirs", theirs)
    if a.shape != b.shape:
        raise InvalidData(f"'ours' and 'theirs' must have one shape, got {a.shape} and {b.shape}.")
    below = b.mean(axis=0)
    if not np.all(below > 0):
        raise InvalidData(f"'theirs' must have means above 0, got {below.min():g}.")
    points = a.shape[1]

    def log_ratio(means: Floats) -> Floats:
        # A resample without any regret of theirs has no ratio: as large as can be.
        top, bottom = means[:, :points], means[:, points:]
        ratio = np.divide(top, bottom, out=np.full(top.shape, np.inf), where=bottom > 0)
        return np.asarray(np.log(np.maximum(ratio, np.finfo(float).tiny)))

    band = bootstrap_of(np.hstack([a, b]), log_ratio, confidence=confidence, resamples=resamples, seed=seed)
    return Band(a.mean(axis=0) / below, np.exp(band.low), np.exp(band.high))


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
    a, b = vector_of("ours", ours), vector_of("theirs", theirs)
    if len(a) != len(b):
        raise InvalidData(f"'ours' and 'theirs' must be of equal seeds, got {len(a)} and {len(b)} of them.")
    return bootstrap_mean(a - b, confidence=confidence, resamples=resamples, seed=seed)


def fitted_exponent(
    episodes: ArrayLike,
    regret: ArrayLike,
    *,
    start: float = 0.5,
    stop: float = 1.0,
    less: ArrayLike | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return x where the mean cumulative regret grows like N^x over the second half of the run.

    It is the slope of log regret on log N by least squares: 1 is linear, 1/2 is UCBVI's guarantee, 0 is flat.
    NaN where the mean regret is not positive. The interval is by resampling seeds, widened for few.

    Args:
        episodes: The points, (points,), increasing.
        regret: Cumulative regret there, one row a seed, (seeds, points).
        start: Where the fit begins, as a share of the last episode.
        stop: Where it ends.
        less: Regret of another at the same seeds and points: then the *difference* of the two exponents is
            returned, with its own interval, since equal seeds have much in common.
        confidence: Of the interval, in (0, 1).
        resamples: How often the seeds are drawn again.
        seed: Of the draws.

    Raises:
        InvalidData: if shapes do not fit, or fewer than two points lie between `start` and `stop`.

    Example:
        >>> n = np.arange(1, 101)
        >>> round(fitted_exponent(n, [5 * np.sqrt(n), 7 * np.sqrt(n)]).value, 6)
        0.5
        >>> round(fitted_exponent(n, [n, 2 * n], less=[np.sqrt(n), np.sqrt(n)]).value, 6)
        0.5
    """
    at, curves = vector_of("episodes", episodes), [matrix_of("regret", regret)]
    if less is not None:
        curves.append(matrix_of("less", less))
    for each in curves:
        if each.shape != (len(curves[0]), len(at)):
            raise InvalidData(
                f"'regret' must have a row a seed and a column a point, {len(at)}, got shape {each.shape}."
            )
    inside = (at >= start * at[-1]) & (at <= stop * at[-1])
    if np.count_nonzero(inside) < 2 or at[0] <= 0:
        raise InvalidData(
            f"'episodes' must have two points or more from {start:g} to {stop:g} of the last, all > 0, "
            f"got {np.count_nonzero(inside)}."
        )
    x = np.log(at[inside])
    centred = x - x.mean()

    def slope(means: Floats) -> Floats:
        positive = np.all(means > 0, axis=1)
        logs = np.log(np.where(positive[:, None], means, 1.0))
        return np.where(positive, logs @ centred / (centred @ centred), np.nan)

    def exponent(means: Floats) -> Floats:
        first, *second = np.split(means, len(curves), axis=1)
        return (slope(first) - sum(map(slope, second)))[:, None]

    held = np.hstack([each[:, inside] for each in curves])
    return bootstrap_of(held, exponent, confidence=confidence, resamples=resamples, seed=seed).only


class _Place(NamedTuple):
    """A planned run, the algorithm that plays it and one budget it is judged at."""

    planned: Planned
    algorithm: AnyAlgorithm
    conditions: AnyConditions
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
    """Return one row of `runs`, keys and provenance left out."""
    told, arrays, spec = stored.summary, stored.arrays, stored.spec
    regret = np.asarray(arrays["regret"], dtype=float)
    half, tenth = len(regret) // 2, max(1, len(regret) // TENTH)
    violations = int(_broken(stored, "true_deficit", budget).sum())
    chains = _Chains.of(arrays)
    limit = np.log(1.0 / float(told["delta"]))
    missed_at_most = (chains.exhausted + chains.long) * max(6.0 * limit - 1.0, 0.0)
    finished = chains.length > 0
    # Of a chain that was not finished nothing is stored but its birth: it has lasted this long at least.
    ages = len(regret) - chains.born[~finished]
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
        "signed_deficit_mean": float(arrays["signed_deficit"].mean()),
        "largest_gap": told["largest_gap"],
        "exploring_steps": int(arrays["exploring_steps"].sum()),
        "deviating_steps": int(arrays["deviating_steps"].sum()),
        "steps": int(arrays["length"].sum()),
        "chains_started": told["chains_started"],
        "chains_finished": told["chains_finished"],
        "chains_abandoned": told["chains_abandoned"],
        "chains_blocked": told["chains_blocked"],
        "chains_unfinished": len(ages),
        "chains_unfinished_episodes": int(ages.sum()),
        "chains_unfinished_oldest": int(ages.max()) if len(ages) else None,
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
    }


def _of_machine(stored: StoredRun) -> dict[str, Any]:
    """Return how long a run took and where it was made, in words; nothing here is part of its results."""
    told = stored.provenance
    packages = told.get("packages") or {}
    words = {name: told.get(name) for name in ("version", "commit", "python", "machine", "finished")}
    if told.get("device") is not None:
        words["machine"] = f"{words['machine']} with {told['device']}"
    return {
        "seconds": told.get("wall_seconds"),
        "cpu_seconds": told.get("cpu_seconds"),
        "episode_seconds": told.get("episode_seconds"),
        **{name: None if value is None else str(value) for name, value in words.items()},
        "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())) or None,
        "cores": told.get("cores"),
        "resumed": told.get("resumed"),
    }


def _curve_columns(stored: StoredRun, budget: float, points: int) -> dict[str, Any]:
    """Return the columns of `curves` of one run, each (points,)."""
    arrays = stored.arrays
    episodes = len(arrays["regret"])
    at = _points(episodes, points)
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


def _points(episodes: int, points: int = POINTS) -> Ints:
    """Return up to `points` whole numbers, evenly spaced, the last of them `episodes`.

    Example:
        >>> _points(3), _points(1000)[[0, 1, -1]]
        (array([1, 2, 3]), array([  10,   20, 1000]))
    """
    count = min(points, episodes)
    return np.unique(np.round(np.arange(1, count + 1) * (episodes / count)).astype(np.int64))


def _broken(stored: StoredRun, name: str, budget: float) -> NDArray[np.bool_]:
    # In scaled units, as Run.violations judges.
    span = float(stored.summary["reward_span"])
    deficit = np.asarray(stored.arrays[name], dtype=float)
    return np.asarray(violates(deficit / span, budget / span))


def _joined(curves: list[dict[str, Any]], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the points of all runs as one set of columns, keys repeated."""
    if not curves:
        return {}
    joined: dict[str, Any] = {}
    for key in _KEYS:
        joined[key] = [each[key] for each in curves for _ in range(len(each["episode"]))]
    for key in columns:
        column = np.concatenate([each[key] for each in curves])
        # NaN stands for a window in which nothing was seen, as no chain was born: a missing value, no number.
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
    "signed_deficit_mean": "Float64",
    "largest_gap": "Float64",
    "exploring_steps": "Int64",
    "deviating_steps": "Int64",
    "steps": "Int64",
    "chains_started": "Int64",
    "chains_finished": "Int64",
    "chains_abandoned": "Int64",
    "chains_blocked": "Int64",
    "chains_unfinished": "Int64",
    "chains_unfinished_episodes": "Int64",
    "chains_unfinished_oldest": "Int64",
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
}
_MACHINE_COLUMNS = {
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


class _Kind(NamedTuple):
    """The tables of a family of problems: their columns, and what fills them."""

    run_columns: dict[str, str]
    curve_columns: dict[str, str]
    of_run: Callable[[StoredRun, float], dict[str, Any]]
    of_curve: Callable[[StoredRun, float, int], dict[str, Any]]


_TABULAR = _Kind(_RUN_COLUMNS, _CURVE_COLUMNS, _run_columns, _curve_columns)
_DEEP = _Kind(
    _deep_results.RUN_COLUMNS,
    _deep_results.CURVE_COLUMNS,
    _deep_results.run_columns,
    _deep_results.curve_columns,
)


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
