"""Add the runs of a sweep to a kept reproduction: python scripts/join_reproduction.py DIR NAME.

A long experiment may be played in pieces, by specs with fewer algorithms, and the runs of earlier pieces need
not exist any more. DIR is the folder of the new piece, with its report; NAME the reproduction that has the
others. Where both have a run, its SHA-256 must be the same: then the code of today plays what was played
before, to the last byte, and rows may stand side by side. Rows of the same algorithm are replaced where
the new piece has at least as many seeds. The frontier is drawn again from the joined table; other figures
stay, and those that only the new piece has are added.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tomllib
from collections import Counter
from pathlib import Path

from keep_reproduction import REPRODUCTIONS, check_report, rows_of, write_page

from chary.charts import Chart, Panel, Series, draw_files
from chary.charts.palette import PALETTE
from chary.sweeps.folder import SweepFolder

Row = dict[str, str]
NOTE = (
    "It was played in pieces, by specs with fewer algorithms, and joined by `scripts/join_reproduction.py`. "
)


def check_same(earlier: dict[str, str | None], new: dict[str, str | None]) -> int:
    """Return how many runs both have.

    Raises:
        SystemExit: if one of them differs, or there is none to compare.
    """
    both = [run for run in new if new[run] and earlier.get(run)]
    other = [run for run in both if new[run] != earlier[run]]
    if other or not both:
        sys.exit(
            f"runs of both pieces must have the same SHA-256, got {len(other)} of {len(both)} others. Play "
            "at least one run of the earlier piece again; where it differs, play all of it."
        )
    return len(both)


def joined(earlier: list[Row], new: list[Row], order: list[tuple[str, str]]) -> list[Row]:
    """Return the rows of two tables, by study and algorithm in the order of the experiment."""

    def name(row: Row) -> tuple[str, ...]:
        return row["study"], row["variant"], row["budget"], row["algorithm"]

    rows = {name(row): row for row in earlier}
    for row in new:
        before = rows.get(name(row))
        if before is None or float(row["seeds"]) >= float(before["seeds"]):
            rows[name(row)] = row
    return sorted(rows.values(), key=lambda row: order.index((row["study"], row["algorithm"])))


def order_of(spec: Path) -> list[tuple[str, str]]:
    """Return study and label of every algorithm of an experiment, in its order."""
    told = tomllib.loads(spec.read_text())
    studies = [("main", told), *((study["name"], study) for study in told.get("studies", []))]
    return [(name, each["label"]) for name, study in studies for each in study.get("algorithms", [])]


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write rows as CSV, with the columns of the first."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def frontier(rows: list[Row]) -> Chart:
    """Return regret against violations of the main runs, one line per group."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["study"] == "main":
            groups.setdefault(row["group"], []).append(row)
    most = max(int(row["episodes"]) for here in groups.values() for row in here)

    def column(here: list[Row], key: str) -> tuple[float, ...]:
        return tuple(float(row[key]) for row in here)

    series = tuple(
        Series(
            label=group,
            x=column(here, "violations_per_1000"),
            y=column(here, "regret"),
            low=column(here, "regret_low"),
            high=column(here, "regret_high"),
            colour=list(PALETTE.values())[i % len(PALETTE)],
            kind="path",
            marks=tuple(row["point"] for row in here),
        )
        for i, (group, here) in enumerate(groups.items())
    )
    panel = Panel(
        title="down and to the left is better",
        x_label="violations per 1,000 episodes",
        y_label="regret",
        series=series,
        x_log=True,
        x_zero=1000 / most / 3,
    )
    return Chart(
        key="frontier",
        title="Regret against violations, every method over its own settings",
        caption="",
        panels=(panel,),
        height=1.5,
    )


def main(where: Path, target: Path) -> None:
    """Join tables, figures and provenance, and write the page again."""
    report, folder = where / "report", SweepFolder(where)
    if folder.experiment().name != target.name:
        sys.exit(f"{where} must contain runs of {target.name!r}, got {folder.experiment().name!r}.")
    check_report(report)
    kept = json.loads((target / "provenance.json").read_text())
    states = folder.states()
    new = {state.id: state.sha256 for state in states if state.state == "done"}
    both = check_same(kept["results"], new)
    order = order_of(target / "experiment.toml")
    for name in ("frontier", "summary"):
        table = target / "tables" / f"{name}.csv"
        write_rows(table, joined(rows_of(table), rows_of(report / "tables" / f"{name}.csv"), order))
    for path in sorted((report / "figures").glob("study-*.png")):
        shutil.copy(path, target / "figures")
    for path in sorted((report / "tables").glob("*.csv")):
        if not (target / "tables" / path.name).exists():
            shutil.copy(path, target / "tables")
    chart = frontier(rows_of(target / "tables" / "frontier.csv"))
    (target / "figures" / "frontier.png").write_bytes(draw_files(chart)["png"])
    added = [run for run in new if not kept["results"].get(run)]
    made = [json.loads((where / "runs" / run / "provenance.json").read_text()) for run in added]
    kept["results"] |= {run: new[run] for run in added}
    kept["commits"] = dict(Counter(kept["commits"]) + Counter(str(each["commit"]) for each in made))
    done = sum(sha is not None for sha in kept["results"].values())
    kept["runs"] = {"done": done, "missing": len(kept["results"]) - done}
    kept["cpu_seconds"] += round(sum(each["cpu_seconds"] for each in made))
    kept["note"] = NOTE
    (target / "provenance.json").write_text(json.dumps(kept, indent=1) + "\n")
    write_page(target, folder.experiment(), f"out/{target.name}")
    print(f"{both} runs of both pieces are the same; {len(added)} added, {done} in all.")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(
            "The folder of a sweep and the name of a reproduction must be given. Run: python "
            "scripts/join_reproduction.py DIR NAME."
        )
    main(Path(sys.argv[1]), REPRODUCTIONS / sys.argv[2])
