"""Keep the small outputs of a report under reproductions/: python scripts/keep_reproduction.py DIR [COMMIT].

Tables, PNGs, claims and the spec are copied; README.md is generated from them, with the command and the
commits of the runs. Nothing in it is typed by hand. COMMIT is that of the sources, for runs that were played
from a copy without a repository.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from chary.storage.files import DRAFT
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import Experiment

ROOT = Path(__file__).resolve().parent.parent
REPRODUCTIONS = ROOT / "reproductions"
MILLION = 1e6
# The explanation of the numbers, by family of problems.
NOTES = {
    "tabular": "Regret over all episodes, mean over seeds with its 95 % bootstrap interval, widened for few "
    "seeds;",
    "deep": "Discounted returns, maximum of a run and mean of its last tenth: mean over seeds with its 95 % "
    "bootstrap interval, widened for few seeds; of the audited episodes",
}


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def interval(row: dict[str, str], name: str, digits: int = 4) -> str:
    """Return a number of the summary with its interval."""
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if not value:
        return "unknown"
    if not low:
        return f"{float(value):.{digits}g}"
    return f"{float(value):.{digits}g} ({float(low):.{digits}g} to {float(high):.{digits}g})"


def broken_runs(row: dict[str, str]) -> str:
    """Return the number of runs that broke the budget, with the interval of their share."""
    if not row["violations"]:
        return "unknown"
    low, high = (100 * float(row[f"runs_with_violations_{end}"]) for end in ("low", "high"))
    return f"{row['runs_with_violations']} of {row['seeds']} ({low:.2g} to {high:.3g} %)"


def cells_of(row: dict[str, str], _: Any) -> dict[str, str]:
    """Return a row of the summary of a tabular sweep as it is shown, by heading."""
    return {
        "eta": f"{float(row['budget']):g}",
        "algorithm": row["algorithm"],
        "seeds": row["seeds"],
        "regret (95 %)": interval(row, "regret"),
        "violations per 1,000 (95 %)": interval(row, "violations_per_1000", 3),
        "runs with any (95 %)": broken_runs(row),
        "largest z*": f"{float(row['true_deficit_max']):.3g}",
        "signed deficit (95 %)": interval(row, "signed_deficit", 3),
        "exploring steps": f"{float(row['exploring_steps']):.0f}",
        "deviating steps": f"{float(row['deviating_steps']):.0f}",
        "standing": row["standing"],
    }


def deep_cells_of(row: dict[str, str], conditions: Any) -> dict[str, str]:
    """Return a row of the summary of a sweep of the deep learner as it is shown, by heading."""
    problem = conditions.about
    returns = {
        key: str(float(value) * problem.factor) if value else ""
        for key, value in row.items()
        if key.startswith(("max_return", "late_return"))
    }
    return {
        "eta": f"{float(row['budget']):g}",
        "algorithm": row["algorithm"],
        "seeds": row["seeds"],
        f"{problem.with_unit('maximum return')} (95 %)": interval(returns, "max_return"),
        "last tenth (95 %)": interval(returns, "late_return"),
        "violations per 1,000 (95 %)": interval(row, "violations_per_1000", 3),
        "runs with any (95 %)": broken_runs(row),
        "… incumbent": f"{1000 * float(row['violations_incumbent']) / float(row['audited']):.3g}"
        if row["violations_incumbent"]
        else "unknown",
        "largest z*": f"{float(row['true_deficit_max']):.3g}" if row["true_deficit_max"] else "unknown",
        "signed deficit (95 %)": interval(row, "signed_deficit", 3),
        "booked per episode": f"{float(row['deficit_mean']):.3g}",
        "held-out charges that cover": f"{100 * float(row['held_out_coverage']):.3g} %"
        if row["held_out_coverage"]
        else "",
        "ledgers that cover z*": f"{row['ledgers_covered']} of {row['ledgers']}"
        if row.get("ledgers")
        else "",
        "drops (longest)": f"{row['drops']} ({float(row['longest_drop']):.0f})" if row.get("drops") else "",
        "exploring steps": f"{float(row['exploring_steps']):.0f}",
        "deviating steps": f"{float(row['deviating_steps']):.0f}",
        "baseline's value, first to last": f"{float(row['baseline_value_first']):.3g} to "
        f"{float(row['baseline_value_last']):.3g}, lowest {float(row['baseline_value_lowest']):.3g}",
        "falls per run": f"{float(row['baseline_falls']):.3g}",
        "standing": row["standing"],
    }


CELLS = {"tabular": cells_of, "deep": deep_cells_of}


def summary(rows: list[dict[str, str]], experiment: Experiment) -> str:
    """Return the summary as one Markdown table per study and variant."""
    parts, show = [], CELLS[experiment.family.name]
    for study, variant in dict.fromkeys((row["study"], row["variant"]) for row in rows):
        here = [
            show(row, experiment.conditions)
            for row in rows
            if (row["study"], row["variant"]) == (study, variant)
        ]
        parts.append(f"### {study}{f': {variant}' if variant else ''}")
        parts.append(table(list(here[0]), [list(cells.values()) for cells in here]))
    return "\n\n".join(parts)


def table_1(rows: list[dict[str, str]]) -> str:
    """Return the paper's Table 1 with the measured numbers next to it."""

    def cell(row: dict[str, str], name: str, deviation: str) -> str:
        if not row[name]:
            return "not run"
        spread = f" ± {float(row[deviation]) / MILLION:.2g}" if row[deviation] else ""
        return f"{float(row[name]) / MILLION:.2f}{spread}"

    return table(
        ["maximum discounted return, millions", "here", "the paper", "seeds"],
        [
            [
                row["entry"],
                cell(row, "max_return", "max_return_deviation"),
                cell(row, "paper", "paper_deviation"),
                row["seeds"],
            ]
            for row in rows
        ],
    )


def target_of(name: str, within: Path) -> Path:
    """Return the folder of a reproduction.

    Raises:
        SystemExit: before anything is written, if the name leaves `within` or the folder has other files.
    """
    target = within / name
    if not name or name.startswith(".") or target.resolve().parent != within.resolve() or target.is_symlink():
        sys.exit(f"the experiment's name must be that of a folder within {within}, got {name!r}.")
    kept = {"claims.json", "experiment.toml", "provenance.json", "README.md"}
    for path in sorted(target.rglob("*")):
        inside = path.relative_to(target).as_posix()
        if path.is_dir() and not path.is_symlink() and inside in ("figures", "tables"):
            continue
        if inside in kept or (inside.startswith("figures/") and path.suffix == ".png"):
            continue
        if inside.startswith("tables/") and path.suffix == ".csv":
            continue
        sys.exit(f"{target} must contain a reproduction and nothing else, got {inside!r}. Move it away.")
    return target


def check_report(report: Path) -> None:
    """Check that a report is complete; its page is written last.

    Raises:
        SystemExit: if a part is missing.
    """
    names = ("index.html", "claims.json", "experiment.toml", "tables/summary.csv")
    missing = [name for name in names if not (report / name).is_file()]
    if missing or not any((report / "figures").glob("*.png")):
        missing = missing or ["figures/*.png"]
        sys.exit(
            f"{report} must contain a whole report, missing are {missing}. Run: chary report {report.parent}."
        )


def main(where: Path, within: Path = REPRODUCTIONS, commit: str = "unknown") -> Path:
    """Build the folder next to the earlier one, and replace that when it is complete."""
    folder = SweepFolder(where)
    name, report = folder.experiment().name, where / "report"
    target = target_of(name, within)
    check_report(report)
    within.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=within, prefix=DRAFT) as draft:
        built, earlier = Path(draft) / "new", Path(draft) / "earlier"
        built.mkdir()
        fill(built, where, folder, report, commit)
        if target.exists():
            target.rename(earlier)
        try:
            built.rename(target)
        except OSError:
            if earlier.exists():
                earlier.rename(target)
            raise
    return target


def fill(target: Path, where: Path, folder: SweepFolder, report: Path, commit: str) -> None:
    """Copy the small files, and write the page that shows them."""
    experiment = folder.experiment()
    shutil.copytree(report / "tables", target / "tables")
    (target / "figures").mkdir()
    for figure in sorted((report / "figures").glob("*.png")):
        shutil.copy(figure, target / "figures")
    for name in ("claims.json", "experiment.toml"):
        shutil.copy(report / name, target)
    states = folder.states()
    made = [
        json.loads((where / "runs" / state.id / "provenance.json").read_text())
        for state in states
        if state.state == "done"
    ]
    provenance = {
        # An absolute path is of no use on another machine.
        "command": folder.description()["command"].replace(str(where.resolve()), where.as_posix()),
        "runs": dict(Counter(state.state for state in states)),
        "commits": dict(Counter(str(each["commit"] or commit) for each in made)),
        "versions": {"chary": made[0]["version"], "python": made[0]["python"], **made[0]["packages"]},
        "machine": f"{made[0]['machine']}, {made[0]['cores']} cores",
        "cpu_seconds": round(sum(each["cpu_seconds"] for each in made)),
        "results": {state.id: state.sha256 for state in states},
    }
    (target / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
    write_page(target, experiment, where.as_posix())


def write_page(target: Path, experiment: Experiment, where_from: str) -> None:
    """Write the page of a kept reproduction from its own files; its runs lay in `where_from`."""
    told = json.loads((target / "claims.json").read_text())
    claims, family = told["claims"], experiment.family.name
    provenance = json.loads((target / "provenance.json").read_text())
    # Reports that compare with the paper's Table 1 say how far it was matched.
    compared = target / "tables" / "table-1.csv"
    commits = ", ".join(f"`{commit[:9]}` ({n} runs)" for commit, n in provenance["commits"].items())
    counts = ", ".join(f"{number} {state}" for state, number in provenance["runs"].items())
    answers = {
        where: table(
            ["", "claim", "answer", "found"],
            [
                [c["key"], c["statement"], f"**{c['verdict']}**", c["answer"]]
                for c in claims
                if c.get("where", "") == where
            ],
        )
        for where in dict.fromkeys(c.get("where", "") for c in claims)
    }
    figures = sorted((target / "figures").iterdir())
    parts = [
        f"# {experiment.title or experiment.name}",
        f"Made by `{provenance['command']}`, then `python scripts/keep_reproduction.py {where_from}`. "
        f"{provenance.get('note', '')}"
        f"Runs: {counts}; at commit {commits}; {provenance['cpu_seconds'] / 3600:.1f} hours of one core in "
        "all. The spec is [experiment.toml](experiment.toml), the SHA-256 of every result and all versions "
        "are in [provenance.json](provenance.json). The report with the same figures to point at is "
        f"`{where_from}/report/index.html` once the command has run.",
        *([table_1(rows_of(compared)), *told["reading"]] if compared.is_file() else []),
        *(["## The paper's claims"] if claims else []),
        *(
            f"### Under other conditions: {where}\n\n{text}" if where else text
            for where, text in answers.items()
        ),
        *(["The rule behind each verdict is in [tables/claims.csv](tables/claims.csv)."] if claims else []),
        "## Figures",
        "\n".join(f"![{path.stem}](figures/{path.name})" for path in figures),
        "## Numbers",
        NOTES[family] + " violations per 1,000 episodes with an interval from resampling whole runs, "
        "because episodes of one run depend on each other; the runs with any violation with the "
        "Clopper-Pearson interval of their share.",
        summary(rows_of(target / "tables" / "summary.csv"), experiment),
    ]
    text = "\n\n".join(parts) + "\n"
    (target / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(
            "The folder of one sweep must be given. Run: python scripts/keep_reproduction.py DIR [COMMIT]."
        )
    print(main(Path(sys.argv[1]), commit=(*sys.argv, "unknown")[2]) / "README.md")
