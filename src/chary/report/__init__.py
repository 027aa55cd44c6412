"""The report of a sweep: one page, its figures and small tables, made from the stored results alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidSetting
from chary.storage.files import DRAFT, as_json, read_json, write_file, write_files, writing

if TYPE_CHECKING:
    from chary.report.measured import Measured
    from chary.report.page import Parts

__all__ = ["REPORT_FOLDER", "write_report"]

REPORT_FOLDER = "report"

# The list of the files that a report has written. A folder with other files is not touched.
MARK = "report-files.json"
MADE_BY = "chary report"


def write_report(where: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a sweep and return its page, index.html.

    The folder also contains the figures as PNG and PDF, small tables as CSV, the claims as JSON and the
    experiment as TOML; the whole tables go to the sweep's folder `tables`, as Parquet. An existing report is
    rebuilt: report-files.json lists its files, and no others are ever replaced or removed.

    Args:
        where: The sweep's folder.
        out: The report's folder; by default `report` in the sweep's.

    Raises:
        InvalidSetting: if there is no sweep, none of its runs is finished, `out` contains other files
            than those of a report, a file cannot be written, or a library is not installed.
        InvalidData: if stored runs were changed.
    """
    from chary.charts import draw_files
    from chary.charts.palette import require_matplotlib
    from chary.pages import require_jinja
    from chary.report.measured import Measured
    from chary.report.page import Page, page_bytes, plotly_script
    from chary.report.tables import claim_rows, csv_bytes
    from chary.results import load_tables, require_polars, write_tables
    from chary.sweeps.folder import SweepFolder

    require_polars()
    require_matplotlib()
    require_jinja()
    script = plotly_script()
    folder = SweepFolder(Path(where))
    experiment, states = folder.experiment(), folder.states()
    if not any(state.state in ("done", "damaged") for state in states):
        raise InvalidSetting(
            f"'DIR' must contain a finished run, got {str(where)!r} with 0 of {len(states)} finished. "
            "Start the sweep again to play them."
        )
    target = Path(where) / REPORT_FOLDER if out is None else Path(out)
    earlier = _check_target(target)
    tables = load_tables(where)
    measured = Measured(tables)
    parts: Parts = import_module(f"chary.report.{experiment.family.name}").parts_of(experiment, measured)
    page = Page(
        experiment=experiment,
        command=str(folder.description().get("command", "")),
        states=states,
        measured=measured,
        parts=parts,
    )
    files: dict[str, bytes] = {}
    for chart in parts.charts:
        for kind, content in draw_files(chart).items():
            files[f"figures/{chart.key}.{kind}"] = content
    claims = {"claims": claim_rows(parts.claims)} if parts.claims else {}
    for name, rows in {**parts.tables, **claims}.items():
        files[f"tables/{name}.csv"] = csv_bytes(rows)
    files |= {
        "experiment.toml": experiment.to_toml().encode(),
        "claims.json": _claims_json(parts, measured),
        # The page is last: if it exists, the rest does too.
        "index.html": page_bytes(page, script),
    }
    write_tables(where, tables)
    _rebuild(target, files, earlier)
    return target / "index.html"


def _claims_json(parts: Parts, measured: Measured) -> bytes:
    content: dict[str, Any] = {"claims": [claim.to_json() for claim in parts.claims]}
    from chary.report.tables import promises_of

    content["promises"] = [
        {"of": having, "standing": standing.to_json()}
        for having, standing in promises_of(measured, measured.places).items()
    ]
    if parts.reading:
        content["reading"] = list(parts.reading)
    # Through as_json, which writes numbers that are not finite as null.
    return (json.dumps(json.loads(as_json(content)), indent=1, ensure_ascii=False) + "\n").encode()


def _check_target(target: Path) -> tuple[str, ...]:
    """Return the files of an earlier report in this folder; a folder with other files is refused."""
    if not target.exists():
        return ()
    listed = _listed(target)
    strange = sorted(
        name
        for path in ([target] if not target.is_dir() else target.rglob("*"))
        # Empty folders do not count, nor do the drafts of a killed report.
        if (path.is_symlink() or not path.is_dir()) and not path.name.startswith(DRAFT)
        if (name := path.relative_to(target).as_posix()) not in listed
    )
    if strange:
        raise InvalidSetting(
            f"'out' must be a report or a new folder, got {str(target)!r}, which contains other files, such "
            f"as {strange[0]!r}. Choose another folder, or move them away."
        )
    return listed


def _listed(target: Path) -> tuple[str, ...]:
    """Return the files listed by the mark of an earlier report, the mark included; none without a mark."""
    mark = read_json(target / MARK) or {}
    if mark.get("made_by") != MADE_BY or not isinstance(mark.get("files"), list):
        return ()
    names = [str(name) for name in mark["files"]]
    # A name that leaves the folder was not written by a report.
    return (MARK, *(name for name in names if re.fullmatch(r"(?:(?:figures|tables)/)?[\w-][\w.-]*", name)))


def _mark(names: Iterable[str]) -> bytes:
    mark = {"made_by": MADE_BY, "files": sorted(set(names) - {MARK})}
    return (json.dumps(mark, indent=1) + "\n").encode()


def _rebuild(target: Path, files: dict[str, bytes], earlier: tuple[str, ...]) -> None:
    """Write the files of a report, and remove those of an earlier one that it lacks.

    A disk that is full leaves an earlier report as it was. The mark is renamed first and lists all old and
    new files: if writing is interrupted, every file of ours is listed, and nothing else is ever removed.
    """
    with writing(target):
        mark = {MARK: _mark((*earlier, *files))}
        write_files({target / name: content for name, content in {**mark, **files}.items()})
        for name in set(earlier) - set(files) - {MARK}:
            (target / name).unlink(missing_ok=True)
        write_file(target / MARK, _mark(files))
