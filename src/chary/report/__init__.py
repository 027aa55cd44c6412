"""The report of a sweep: one page, its figures and small tables, made from the results alone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chary.errors import InvalidSetting
from chary.storage.files import DRAFT, as_json, write_file

if TYPE_CHECKING:
    from chary.assumptions import AssumptionReport
    from chary.charts import Chart
    from chary.mdp import FiniteMDP
    from chary.report.measured import Measured
    from chary.report.page import Sections
    from chary.report.tabular.claims import Claim
    from chary.sweeps.spec import Experiment

__all__ = ["REPORT_FOLDER", "write_report"]

REPORT_FOLDER = "report"

# The file that says which files of a folder a report has written. A folder is rebuilt if it holds no others.
MARK = "report-files.json"
MADE_BY = "chary report"

# Where checking the assumptions at one budget takes longer, one budget must do.
ASSUMPTION_SECONDS = 10.0


def write_report(where: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a sweep and return its page, index.html.

    Beside the page lie its figures as PNG and PDF, small tables as CSV, the claims as JSON and the experiment
    as TOML; the whole tables go to the sweep's folder `tables`, as Parquet. A report that is there already is
    rebuilt: report-files.json lists its files, and no others are ever replaced or removed.

    Args:
        where: The sweep's folder.
        out: The report's folder; by default `report` in the sweep's.

    Raises:
        InvalidSetting: if there is no sweep, none of its runs is finished, `out` holds files that no report
            wrote, the disk refuses, or a library is not installed.
        InvalidData: if a run is not what it was when it was written.
    """
    from chary.charts import draw_files
    from chary.charts.palette import require_matplotlib
    from chary.report.measured import Measured
    from chary.report.page import Page, page_bytes, plotly_script
    from chary.report.tabular.tables import claim_rows, csv_bytes
    from chary.results import load_tables, require_polars, write_tables
    from chary.sweeps.folder import SweepFolder

    require_polars()
    require_matplotlib()
    script = plotly_script()
    folder = SweepFolder(Path(where))
    experiment, states = folder.experiment(), folder.states()
    if not any(state.state in ("done", "damaged") for state in states):
        raise InvalidSetting(
            f"'DIR' must hold a finished run, got {str(where)!r} with none of {len(states)}. "
            "Start the sweep again to play them."
        )
    target = Path(where) / REPORT_FOLDER if out is None else Path(out)
    earlier = _check_target(target)
    tables = load_tables(where)
    measured = Measured(tables)
    parts = {"tabular": _tabular_parts, "hiv": _deep_parts}[experiment.family.name](experiment, measured)
    page = Page(
        experiment=experiment,
        command=str(folder.description().get("command", "")),
        states=tuple(states),
        measured=measured,
        claims=tuple(parts.claims),
        charts=tuple(parts.charts),
        differences=tuple(parts.tables["differences"]),
        assumptions=tuple(parts.assumptions),
    )
    files: dict[str, bytes] = {}
    for chart in parts.charts:
        for kind, content in draw_files(chart).items():
            files[f"figures/{chart.key}.{kind}"] = content
    for name, rows in {**parts.tables, "claims": claim_rows(parts.claims)}.items():
        files[f"tables/{name}.csv"] = csv_bytes(rows)
    files |= {
        "experiment.toml": experiment.to_toml().encode(),
        "claims.json": (
            json.dumps(json.loads(_claims_json(parts)), indent=1, ensure_ascii=False) + "\n"
        ).encode(),
        # The page last: where it is, the rest is too.
        "index.html": page_bytes(page, script, parts.sections),
    }
    write_tables(where, tables)
    _rebuild(target, files, earlier)
    return target / "index.html"


class _Parts(NamedTuple):
    """What the reports of two families of problems do not share; `tables` are rows by the file's name.

    `reading` says what matches the paper, what does not and why, where a report does.
    """

    claims: list[Claim]
    charts: list[Chart]
    tables: dict[str, list[dict[str, Any]]]
    sections: Sections
    assumptions: Sequence[AssumptionReport] = ()
    reading: Sequence[str] = ()


def _tabular_parts(experiment: Experiment, measured: Measured) -> _Parts:
    from chary.report.page import SECTIONS
    from chary.report.tabular.charts import charts_of
    from chary.report.tabular.claims import Facts, answer_claims
    from chary.report.tabular.tables import difference_rows, summary_rows
    from chary.sweeps.tabular import Conditions, problem_and_agent

    assert isinstance(experiment.conditions, Conditions)
    mdp = problem_and_agent(experiment.plan()[0].spec)[0]
    assumptions = _assumptions(mdp, experiment)
    facts = Facts(
        horizon=mdp.horizon,
        states=mdp.n_states,
        actions=mdp.setting.n_actions,
        delta=experiment.conditions.delta,
        span=mdp.scale.span,
        diameter=assumptions[0].diameter.status,
        diameter_says=assumptions[0].diameter.describe(),
        questions={study.name: study.question for study in experiment.studies},
    )
    tables = {"summary": summary_rows(measured), "differences": difference_rows(measured)}
    claims, charts = answer_claims(measured, facts), charts_of(experiment, measured)
    return _Parts(claims, charts, tables, SECTIONS, assumptions)


def _deep_parts(experiment: Experiment, measured: Measured) -> _Parts:
    from chary.report.hiv.charts import deep_charts
    from chary.report.hiv.claims import hiv_claims
    from chary.report.hiv.page import DEEP_SECTIONS, reading
    from chary.report.hiv.tables import difference_rows, summary_rows, table_1_rows
    from chary.sweeps.hiv import HIVConditions

    assert isinstance(experiment.conditions, HIVConditions)
    claims = hiv_claims(measured)
    tables = {
        "summary": summary_rows(measured),
        "differences": difference_rows(measured),
        "table-1": table_1_rows(measured),
    }
    return _Parts(
        claims,
        deep_charts(experiment, measured),
        tables,
        DEEP_SECTIONS,
        reading=reading(experiment.conditions, measured, claims),
    )


def _claims_json(parts: _Parts) -> str:
    told = {"claims": [claim.to_json() for claim in parts.claims]}
    return as_json({**told, "reading": list(parts.reading)} if parts.reading else told)


def _assumptions(mdp: FiniteMDP, experiment: Experiment) -> list[AssumptionReport]:
    """Return the check of both assumptions at every budget, or at the largest where one takes long."""
    from chary.assumptions import check_assumptions

    reports: list[AssumptionReport] = []
    for eta in sorted(experiment.conditions.etas, reverse=True):
        began = time.perf_counter()
        reports.append(check_assumptions(mdp, eta))
        if time.perf_counter() - began > ASSUMPTION_SECONDS:
            break
    return reports[::-1]


def _check_target(target: Path) -> tuple[str, ...]:
    """Return the files of an earlier report in this folder, or refuse one that holds anything else."""
    if not target.exists():
        return ()
    listed = _listed(target)
    strange = sorted(
        name
        for path in ([target] if not target.is_dir() else target.rglob("*"))
        # What is empty holds nothing of anybody's, and drafts are what a killed report left.
        if (path.is_symlink() or not path.is_dir()) and not path.name.startswith(DRAFT)
        if (name := path.relative_to(target).as_posix()) not in listed
    )
    if strange:
        raise InvalidSetting(
            f"'out' must be a report or a new folder, got {str(target)!r}, which holds other files, such as "
            f"{strange[0]!r}. Choose another folder, or move them away."
        )
    return listed


def _listed(target: Path) -> tuple[str, ...]:
    """Return the files that the mark of an earlier report lists, the mark included; none without a mark."""
    try:
        told = json.loads((target / MARK).read_text(encoding="utf-8"))
        names = [str(name) for name in told["files"]] if told["made_by"] == MADE_BY else []
    except (OSError, ValueError, TypeError, KeyError):
        return ()
    # A name that leaves the folder is none that a report has written.
    return (MARK, *(name for name in names if re.fullmatch(r"(?:(?:figures|tables)/)?[\w-][\w.-]*", name)))


def _mark(names: Iterable[str]) -> bytes:
    told = {"made_by": MADE_BY, "files": sorted(set(names) - {MARK})}
    return (json.dumps(told, indent=1) + "\n").encode()


def _rebuild(target: Path, files: dict[str, bytes], earlier: tuple[str, ...]) -> None:
    """Write the files of a report, and remove those of an earlier one that it lacks.

    The mark comes first and lists what is there and what will be: whenever writing is interrupted, every file
    of ours is listed, and nothing else is ever removed.
    """
    try:
        for name in ("figures", "tables"):
            (target / name).mkdir(parents=True, exist_ok=True)
        write_file(target / MARK, _mark((*earlier, *files)))
        if "index.html" in earlier:
            (target / "index.html").unlink(missing_ok=True)
        for name, content in files.items():
            write_file(target / name, content)
        for name in set(earlier) - set(files) - {MARK}:
            (target / name).unlink(missing_ok=True)
        write_file(target / MARK, _mark(files))
    except OSError as problem:
        raise InvalidSetting(
            f"'out' must be a folder that can be written to, got {str(target)!r}: "
            f"{problem.strerror or problem}."
        ) from problem
