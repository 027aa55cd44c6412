"""Findings about the tabular problems, in sentences whose numbers and verbs are looked up in kept tables.

Nothing here is typed from a report: where a fact can turn out either way, the sentence is chosen by the table.
"""

# ruff: noqa: E501 - prose
from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPRODUCTIONS = Path(__file__).resolve().parent.parent / "reproductions"

NEIGHBOURS = ("CUCBVI", "StepMix", "EpsMix", "baseline")
FOUR = ("UCBVI", "paper's variant", "chary, capped", "chary, strict")
ALL = ("UCBVI", *NEIGHBOURS, *FOUR[1:])
SCALED = ("UCBVI", "baseline", *FOUR[1:])
CERTIFIED = ("UCBVI", "paper's variant", "chary, strict, coupled", "chary, strict, difference")
POOLS = ("1", "10", "100", "1000")


class Where(NamedTuple):
    """A row of the summary: an algorithm at a budget, in a study."""

    algorithm: str
    eta: float
    study: str = "main"
    variant: str = ""


class Summary:
    """The tables of one reproduction."""

    def __init__(self, name: str, within: Path = REPRODUCTIONS) -> None:
        tables = within / name / "tables"
        self.name = name
        self.rows, self._differences = (
            rows_of(tables / f"{kind}.csv") for kind in ("summary", "differences")
        )
        self.claims: list[dict[str, Any]] = json.loads((within / name / "claims.json").read_text())["claims"]
        self.runs: dict[str, int] = json.loads((within / name / "provenance.json").read_text())["runs"]

    @property
    def current(self) -> bool:
        """Whether the tables were made since deficits have two references."""
        return "violations_incumbent" in self.rows[0]

    def row(self, where: Where) -> dict[str, str]:
        """Return the row of an algorithm at a budget.

        Raises:
            LookupError: if there is not exactly one.
        """
        found = [row for row in self.rows if at(row, where)]
        if len(found) != 1:
            raise LookupError(f"{self.name} must have one row of {where}, got {len(found)}.")
        return found[0]

    def value(self, where: Where, name: str) -> float:
        """Return a number."""
        return float(self.row(where)[name])

    def short(self, where: Where, name: str) -> str:
        """Return a number to three digits."""
        return short(self.row(where)[name])

    def interval(self, where: Where, name: str) -> str:
        """Return a number with its interval."""
        row = self.row(where)
        return f"{short(row[name])} ({short(row[f'{name}_low'])} to {short(row[f'{name}_high'])})"

    def regret(self, where: Where) -> str:
        """Return the mean regret with its interval."""
        return self.interval(where, "regret")

    def broken(self, where: Where) -> str:
        """Return how many runs broke the budget."""
        row = self.row(where)
        return f"{row['runs_with_violations']} of {row['seeds']}"

    def steps(self, where: Where) -> tuple[str, str]:
        """Return the deviating and the exploring steps per run."""
        deviating, exploring = (self.value(where, f"{name}_steps") for name in ("deviating", "exploring"))
        return f"{deviating:,.0f}", f"{exploring:,.0f}"

    def against_incumbent(self, where: Where) -> float:
        """Return violations per 1,000 episodes, judged by the policy of the first day."""
        row = self.row(where)
        return 1000 * float(row["violations_incumbent"]) / float(row["episodes"])

    def loses(self, ours: Where, theirs: Where) -> str:
        """Return whether the first loses less, more, or neither surely; at equal seeds where it is known."""
        for row in self._differences:
            if at(row, ours) and row["less"] == theirs.algorithm and ours[1:] == theirs[1:]:
                low, high = float(row["regret_low"]), float(row["regret_high"])
                return "less than" if high < 0 else "more than" if low > 0 else "about as much as"
        a, b = self.row(ours), self.row(theirs)
        if float(a["regret_high"]) < float(b["regret_low"]):
            return "less than"
        return "more than" if float(a["regret_low"]) > float(b["regret_high"]) else "about as much as"

    def variant(self, study: str) -> str:
        """Return the only variant of a study."""
        (found,) = {row["variant"] for row in self.rows if row["study"] == study}
        return found

    def has(self, study: str) -> bool:
        """Whether a study was run."""
        return any(row["study"] == study for row in self.rows)

    def claim(self, key: str) -> dict[str, Any]:
        """Return a claim with its answer."""
        (found,) = (claim for claim in self.claims if claim["key"] == key)
        return found

    def verdicts(self, study: str = "") -> str:
        """Return the number of claims per verdict, about the main runs or those of a study."""
        end = f"-{study}" if study else ""
        counts = Counter(
            claim["verdict"]
            for claim in self.claims
            if bool(claim.get("where")) == bool(study)
            if not study or claim["key"].partition("-")[2] == end[1:]
        )
        return ", ".join(f"{number} {verdict}" for verdict, number in counts.items())

    def same(self) -> list[str]:
        """Return the sentences on budgets that made no difference, each once."""
        found: dict[str, None] = {}
        for claim in self.claims:
            start = claim["answer"].find("Results of “")
            if start >= 0 and not claim.get("where"):
                found[claim["answer"][start:].split(": these budgets")[0] + "."] = None
        return list(found)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none without the file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def at(row: dict[str, str], where: Where) -> bool:
    """Whether a row is of this algorithm, budget, study and variant."""
    return (row["algorithm"], float(row["budget"]), row["study"], row["variant"]) == where


def short(value: str | float) -> str:
    """Return a number to three digits, from a hundred on without decimals."""
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


HEADINGS = (
    "algorithm",
    "regret (95 %)",
    "runs that broke the budget",
    "violations per 1,000 episodes (95 %)",
    "… against the first day's policy",
    "deviating steps per run",
    "exploring steps per run",
)


def cells(s: Summary, where: Where) -> list[str]:
    """Return an algorithm's cells under `HEADINGS`."""
    return [
        where.algorithm,
        s.regret(where),
        s.broken(where),
        s.interval(where, "violations_per_1000"),
        short(s.against_incumbent(where)),
        *s.steps(where),
    ]


def table(s: Summary, labels: Sequence[str], eta: float, study: str = "main", variant: str = "") -> str:
    """Return the table of some algorithms."""
    return markdown(HEADINGS, [cells(s, Where(label, eta, study, variant)) for label in labels])


def scale_table(s: Summary, eta: float) -> str:
    """Return regret, violations and broken runs by scale and algorithm."""
    variants = list(dict.fromkeys(row["variant"] for row in s.rows if row["study"] == "scale"))
    rows = []
    for label in SCALED:
        found = []
        for variant in variants:
            where = Where(label, eta, "scale", variant)
            found.append(
                f"{short(s.value(where, 'regret'))}; {s.short(where, 'violations_per_1000')}; {s.broken(where)}"
            )
        rows.append([label, *found])
    return markdown(["regret; violations per 1,000; runs that broke the budget", *variants], rows)


def baseline_table(
    s: Summary, labels: Sequence[str], eta: float, study: str = "main", variant: str = ""
) -> str:
    """Return the true value of the baseline over time."""
    rows = []
    for label in labels:
        row = s.row(Where(label, eta, study, variant))
        names = ("incumbent_value", "baseline_value_first", "baseline_value_last", "baseline_value_lowest")
        values = [f"{float(row[name]):.4g}" if row[name] else "" for name in names]
        falls = f"{float(row['baseline_falls']):,.0f}" if row["baseline_falls"] else ""
        rows.append([label, *values, falls])
    return markdown(
        [
            "true value",
            "first day's policy",
            "baseline, first",
            "last",
            "lowest in any run",
            "episodes in which it fell",
        ],
        rows,
    )


def verdict_table(s: Summary) -> str:
    """Return the verdict of each claim for the main runs and wherever a study asked for it."""
    studies = list(dict.fromkeys(c["key"].partition("-")[2] for c in s.claims if c.get("where")))
    names = {c["key"].partition("-")[2]: c["where"] for c in s.claims if c.get("where")}
    known = {claim["key"]: claim["verdict"] for claim in s.claims}
    rows = []
    for claim in s.claims:
        if not claim.get("where") and any(f"{claim['key']}-{study}" in known for study in studies):
            others = [known.get(f"{claim['key']}-{study}", "") for study in studies]
            rows.append([claim["key"], claim["statement"], claim["verdict"], *others])
    return markdown(["", "claim", "main runs", *(names[study] for study in studies)], rows)


def promise(s: Summary, key: str = "b5") -> str:
    """Return what the runs say about the promise per run."""
    rows = s.claim(key)["numbers"]
    above = [row for row in rows if row["verdict"] == "above" or 2 * row["failures"] > row["runs"]]
    if above:
        listed = ", ".join(f"{row['failures']} of {row['runs']} at eta {row['budget']:g}" for row in above)
        return f"its runs broke the budget more often than the promised one in {1 / rows[0]['delta']:.0f}: {listed}"
    most = max(row["failures"] for row in rows)
    runs = rows[0]["runs"]
    return f"at most {most} of {runs} runs broke the budget, which is compatible with the promised one in {1 / rows[0]['delta']:.0f} and, with {runs} runs, does not prove it"


def promised(s: Summary, labels: Sequence[str], eta: float, study: str = "main", variant: str = "") -> str:
    """Return what the results of some algorithms promise, and what that leans on."""
    found = []
    for label in labels:
        row = s.row(Where(label, eta, study, variant))
        leans_on = f" ({row['given']})" if row["given"] else ""
        found.append(f"{label}: {row['standing']}{leans_on}")
    return "; ".join(found)


def kept_ones(s: Summary, labels: Sequence[str], eta: float) -> str:
    """Return how many runs of each algorithm broke the budget, in words."""
    return ", ".join(f"{s.broken(Where(label, eta))} of {label}" for label in labels)


def fell(s: Summary, label: str, eta: float, study: str = "main", variant: str = "") -> str:
    """Return how often the baseline fell, in a sentence."""
    row = s.row(Where(label, eta, study, variant))
    if not row["baseline_falls"]:
        return ""
    falls, below = float(row["baseline_falls"]), float(row["baseline_below_incumbent"])
    often = "never fell" if falls == 0 else f"fell in {falls:,.0f} episodes per run"
    where = (
        f"was at worst {below:.3g} below the first day's policy"
        if below > 1e-9
        else "was never below the first day's policy"
    )
    return f"The baseline of {label} {often} and {where}."


def learns(s: Summary, where: Where) -> str:
    """Return whether violations against the first day's policy are rarer than against the own baseline."""
    own, first = s.value(where, "violations_per_1000"), s.against_incumbent(where)
    return f"{short(own)} per 1,000 episodes against its own baseline, {short(first)} against the first day's policy"


def against_earlier(
    name: str, s: Summary, labels: Sequence[str], eta: float, within: Path = REPRODUCTIONS
) -> str:
    """Return old and new figures of the main runs, and the verdicts that changed."""
    old = {
        row["algorithm"]: row
        for row in rows_of(within / "earlier" / f"{name}.csv")
        if float(row["budget"]) == eta
    }
    rows = []
    for label in labels:
        where, before = Where(label, eta), old[label]
        pairs = [
            (short(before["regret"]), short(s.value(where, "regret"))),
            (short(before["violations_per_1000"]), s.short(where, "violations_per_1000")),
            (f"{before['runs_with_violations']} of {before['seeds']}", s.broken(where)),
            (short(before["deviating_steps"]), s.short(where, "deviating_steps")),
        ]
        rows.append([label, *(f"{was} → {now}" for was, now in pairs)])
    figures = markdown(
        ["", "regret", "violations per 1,000", "runs that broke the budget", "deviating steps per run"], rows
    )
    verdicts = {row["key"]: row["verdict"] for row in rows_of(within / "earlier" / f"{name}-claims.csv")}
    moved = []
    for claim in s.claims:
        key, now = claim["key"], claim["verdict"]
        if claim.get("where") or verdicts.get(key) == now:
            continue
        moved.append(f"{key} ({verdicts.get(key, 'new')} → {now})")
    return f"{figures}\n\nVerdicts that changed: {', '.join(moved) or 'none'}."
