"""A sweep's results as tidy tables; `chary.statistics` has the statistics over seeds.

Two tables: `runs` has one row per planned run and judged budget, `curves` one row per point of its learning
curves. An algorithm that keeps a budget is judged at that budget; one that keeps none is judged at every
budget of its conditions, so that rows can be compared at equal `budget` and `seed`. Each family of problems
has its own columns: `chary.results.tabular` and `chary.results.deep`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chary.errors import LARGEST, InvalidData, check_choice, check_installed, check_integer
from chary.results.columns import POINTS, Columns, Schema
from chary.storage.files import as_path, understood, write_files, writing
from chary.sweeps.family import AnyAlgorithm
from chary.sweeps.folder import StoredRun, SweepFolder
from chary.sweeps.spec import MAIN, Experiment, Planned
from chary.texts import shown

if TYPE_CHECKING:
    import polars as pl

__all__ = ["POINTS", "TABLES", "Tables", "load_results", "load_tables", "require_polars", "write_tables"]

TABLES = ("runs", "curves")


class Tables(NamedTuple):
    """Both tables of a sweep."""

    runs: pl.DataFrame
    curves: pl.DataFrame


def load_results(where: str | Path, *, table: str = "runs") -> pl.DataFrame:
    """Return the finished runs of a sweep as a tidy Polars table.

    Args:
        where: The sweep's folder.
        table: `runs` for one row per run and judged budget, `curves` for about 100 points of each.

    Raises:
        InvalidSetting: if there is no sweep, or Polars is not installed.
        InvalidData: if stored runs were changed; the error names all of them.
        UnknownName: if there is no such table.
    """
    check_choice("table", table, TABLES)
    return load_tables(where)[TABLES.index(table)]


def load_tables(where: str | Path) -> Tables:
    """Return both tables of `load_results`; every run is read once.

    Raises:
        InvalidSetting: if there is no sweep, or Polars is not installed.
        InvalidData: if stored runs were changed; the error names all of them.
    """
    require_polars()
    import polars as pl

    folder = SweepFolder(as_path("where", where))
    experiment = folder.experiment()
    states = folder.states()
    damaged = [state for state in states if state.state == "damaged"]
    if damaged:
        raise InvalidData(
            f"the runs of {str(where)!r} must be as they were written, got {len(damaged)} that were changed: "
            f"{'; '.join(state.reason.rstrip('.') for state in damaged)}. "
            "Recompute them, or put the files back."
        )
    done = {state.id for state in states if state.state == "done"}
    places = [place for place in _places(experiment) if place.planned.spec.id in done]
    schema: Schema[Any] = import_module(f"chary.results.{experiment.family.name}").SCHEMA
    found: dict[tuple[str, float], tuple[dict[str, Any], dict[str, Any]]] = {}
    stored: StoredRun | None = None
    # Run by run, so that each is read once and only one is kept in memory.
    for place in sorted(places, key=lambda place: place.planned.spec.id):
        if stored is None or stored.spec.id != place.planned.spec.id:
            stored = folder.read(place.planned.spec.id)
        if place.judged not in found:
            # Files can be changed and their manifest with them: malformed values may lead to anything.
            what = f"run {stored.spec.id} must contain what chary wrote, got something else"
            with understood(what), warnings.catch_warnings():
                # Runs that chary wrote lead to none.
                warnings.simplefilter("error", RuntimeWarning)
                run = schema.judged(stored, place.budget)
                found[place.judged] = (
                    _typed(schema.runs, run) | _typed(_PROVENANCE, stored),
                    _points(schema.curves, run),
                )
    rows = [_values(_KEYS, place) | found[place.judged][0] for place in places]
    curves = [_values(_KEYS, place) | found[place.judged][1] for place in places]
    return Tables(
        pl.DataFrame(rows, schema=_schema(_KEYS, schema.runs, _PROVENANCE)),
        pl.DataFrame(_joined(curves, schema.curves), schema=_schema(_KEYS, schema.curves)),
    )


def write_tables(where: str | Path, tables: Tables | None = None) -> list[Path]:
    """Write both tables of a sweep to its folder `tables`, as runs.parquet and curves.parquet.

    Args:
        where: The sweep's folder.
        tables: Both tables, if `load_tables` has read them already.

    Raises:
        InvalidSetting: if there is no sweep, Polars is not installed, or a file cannot be written.
        InvalidData: if stored runs were changed.
    """
    both = load_tables(where) if tables is None else tables
    folder = Path(where) / "tables"
    files: dict[Path, bytes] = {}
    with writing(Path(where), "DIR"):
        for name, frame in zip(TABLES, both, strict=True):
            content = io.BytesIO()
            frame.write_parquet(content)
            files[folder / f"{name}.parquet"] = content.getvalue()
        write_files(files)
    return list(files)


def require_polars() -> None:
    """Check that Polars is installed.

    Raises:
        InvalidSetting: if it is not, with the command that installs it.
    """
    check_installed("polars", "Reading results", "report")


class _Place(NamedTuple):
    """A planned run, its algorithm and one budget at which it is judged."""

    planned: Planned
    algorithm: AnyAlgorithm
    budget: float

    @property
    def judged(self) -> tuple[str, float]:
        """The run and the budget: places with equal ones share their numbers."""
        return (self.planned.spec.id, self.budget)


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
            yield _Place(planned, algorithm, budget)


def _values(columns: Mapping[str, tuple[str, Callable[[Any], Any]]], run: object) -> dict[str, Any]:
    return {name: value(run) for name, (_, value) in columns.items()}


def _typed(columns: Mapping[str, tuple[str, Callable[[Any], Any]]], run: object) -> dict[str, Any]:
    """Return the values of a run, once each is missing or of its column's type."""
    values = _values(columns, run)
    for name, value in values.items():
        kind = columns[name][0]
        if value is not None and (not isinstance(value, _TYPES[kind]) or isinstance(value, bool)):
            raise InvalidData(f"{name!r} must be {_WORDS[kind]} or missing, got {shown(value)}.")
        if kind == "Int64" and value is not None:
            check_integer(name, value, minimum=-LARGEST, error=InvalidData)
    return values


def _points(columns: Columns[Any], run: object) -> dict[str, Any]:
    """Return the curves of a run, once all have as many points."""
    values = _values(columns, run)
    lengths = {name: np.shape(value) for name, value in values.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidData(f"curves must have the same points, got {shown(lengths)}.")
    return values


def _joined(curves: list[dict[str, Any]], columns: Columns[Any]) -> dict[str, Any]:
    """Return the points of all runs as one set of columns, with the keys repeated."""
    if not curves:
        return {}
    joined: dict[str, Any] = {}
    for key in _KEYS:
        joined[key] = [each[key] for each in curves for _ in range(len(each["episode"]))]
    for key in columns:
        column = np.concatenate([each[key] for each in curves])
        # NaN marks a window without data, for example without a new chain: a missing value.
        joined[key] = [None if value != value else value for value in column.tolist()]
    return joined


_TYPES: Mapping[str, Any] = {"String": str, "Float64": (int, float), "Int64": int}
_WORDS = {"String": "a text", "Float64": "a number", "Int64": "a whole number"}

_KEYS: Mapping[str, tuple[str, Callable[[_Place], Any]]] = {
    "study": ("String", lambda place: place.planned.study),
    "variant": ("String", lambda place: place.planned.variant),
    "algorithm": ("String", lambda place: place.planned.algorithm),
    "role": ("String", lambda place: place.algorithm.role),
    "agent": ("String", lambda place: place.algorithm.agent),
    "eta": ("Float64", lambda place: place.planned.eta),
    "budget": ("Float64", lambda place: place.budget),
    "seed": ("Int64", lambda place: place.planned.seed),
    "run": ("String", lambda place: place.planned.spec.id),
}


def _made(name: str) -> Callable[[StoredRun], Any]:
    """Return the function that looks a name up in a run's provenance."""
    return lambda stored: stored.provenance.get(name)


def _text(name: str) -> Callable[[StoredRun], str | None]:
    return lambda stored: None if (value := stored.provenance.get(name)) is None else str(value)


def _machine(stored: StoredRun) -> str | None:
    name, device = _text("machine")(stored), stored.provenance.get("device")
    return name if device is None else f"{name} with {device}"


def _packages(stored: StoredRun) -> str | None:
    packages = stored.provenance.get("packages") or {}
    return ", ".join(f"{name} {version}" for name, version in sorted(packages.items())) or None


# How long a run took, on which machine and with which versions; results do not depend on these.
_PROVENANCE: Mapping[str, tuple[str, Callable[[StoredRun], Any]]] = {
    "seconds": ("Float64", _made("wall_seconds")),
    "cpu_seconds": ("Float64", _made("cpu_seconds")),
    "episode_seconds": ("Float64", _made("episode_seconds")),
    **{name: ("String", _text(name)) for name in ("version", "commit", "python")},
    "machine": ("String", _machine),
    "finished": ("String", _text("finished")),
    "packages": ("String", _packages),
    "cores": ("Int64", _made("cores")),
    "resumed": ("Int64", _made("resumed")),
}


def _schema(*columns: Mapping[str, tuple[str, object]]) -> dict[str, Any]:
    import polars as pl

    return {name: getattr(pl, kind) for each in columns for name, (kind, _) in each.items()}
