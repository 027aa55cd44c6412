"""The section of reproductions/README.md on the HIV experiment, from the tables that are kept there."""

# ruff: noqa: E501 - prose
from __future__ import annotations

import json
from pathlib import Path

from tabular_findings import REPRODUCTIONS, Summary, Where, markdown, rows_of, short

MILLION = 1e6
# What is smaller is rounding.
ROUNDING = 1e-9


def hiv(within: Path = REPRODUCTIONS) -> str:
    """Return the section, all of it looked up; empty if the results are not kept."""
    if not (within / "hiv" / "claims.json").is_file():
        return ""
    s = Summary("hiv", within)
    entries = rows_of(within / "hiv" / "tables" / "table-1.csv")
    by_entry = [
        [
            row["entry"],
            _millions(row, "max_return") if row["max_return"] else "not run",
            _millions(row, "paper"),
        ]
        for row in entries
    ]
    return f"""
## HIV (the paper's second figure and Table 1)

`chary reproduce hiv` gave [hiv](hiv/README.md) ({s.verdicts()}): [discounted return](hiv/figures/returns.png) and
[cumulative violations](hiv/figures/violations.png) by budget, and Table 1, mean and deviation over {entries[-1]["seeds"]} seeds:

{markdown(["maximum discounted return, millions", "here", "the paper"], by_entry)}

{judged(s, within) if "signed_deficit" in s.rows[0] else UNJUDGED}
{NETWORKS if (within / "hiv-networks").is_dir() else ""}"""


NETWORKS = """The whole experiment as it was before there was an ensemble, 120 runs with all neighbours and studies, is kept in [hiv-networks](hiv-networks/README.md): `chary` there is the agent `paper` of today.
"""
UNJUDGED = """These results are those of an earlier version, which judged an episode by the sum of signed gaps, so that a gain paid for a loss. Its violations are not those of
eq. (1), and its verdicts on them are void until the experiment is run again."""


def judged(s: Summary, within: Path) -> str:
    """Return what the report says, the main figures by budget, the baselines, and what changed."""
    told = json.loads((within / "hiv" / "claims.json").read_text())
    main = [row for row in s.rows if row["study"] == "main"]
    etas = list(dict.fromkeys(float(row["budget"]) for row in main))
    eta = 60.0 if 60.0 in etas else etas[0]
    labels = [row["algorithm"] for row in main if float(row["budget"]) == eta]
    row = s.row(Where(labels[0], eta))
    reading = "\n".join(f"- {sentence}" for sentence in told["reading"])
    return f"""{reading}

All algorithms at eta {eta:g}; deficits, budgets and values are in standardised reward, and one episode in {round(float(row["episodes"]) / float(row["audited"]))} is audited:

{markdown(HEADINGS, [_cells(s, Where(label, eta)) for label in labels])}

The true value of the baseline that judges, mean over seeds ([over time](hiv/figures/baseline.png)):

{markdown(VALUES, [_values(s, Where(label, eta)) for label in labels])}
{_changes(s, labels, eta, within)}"""


HEADINGS = (
    "algorithm",
    "maximum return, millions (95 %)",
    "runs that broke the budget",
    "violations per 1,000 audited episodes (95 %)",
    "… against the warm-up's baseline",
    "largest z*",
    "signed deficit, eq. (2)",
    "deviating steps per run",
    "exploring steps per run",
    "ledgers that cover z*, of episodes that deviated",
    "episodes below 80 % of the best, after the 200th (longest row)",
)
VALUES = (
    "algorithm",
    "warm-up's",
    "first",
    "last",
    "lowest",
    "falls per run",
    "audited episodes below the warm-up's",
)


def _cells(s: Summary, where: Where) -> list[str]:
    row = s.row(where)
    best = {
        end: f"{float(row[f'max_return{end}']) / MILLION:.2f}" if row[f"max_return{end}"] else ""
        for end in ("", "_low", "_high")
    }
    against = row["violations_incumbent"]
    return [
        where.algorithm,
        f"{best['']} ({best['_low']} to {best['_high']})" if best["_low"] else best[""],
        s.broken(where) if row["violations"] else "unknown",
        _interval(row, "violations_per_1000"),
        short(1000 * float(against) / float(row["audited"])) if against else "unknown",
        short(row["true_deficit_max"]) if row["true_deficit_max"] else "unknown",
        _interval(row, "signed_deficit"),
        f"{float(row['deviating_steps']):,.0f}",
        f"{float(row['exploring_steps']):,.0f}",
        f"{row['ledgers_covered']} of {row['ledgers']}" if row.get("ledgers") else "",
        f"{row['drops']} ({float(row['longest_drop']):.0f})" if row.get("drops") else "unknown",
    ]


def _values(s: Summary, where: Where) -> list[str]:
    row = s.row(where)
    names = (
        "incumbent_value",
        *(f"baseline_value_{name}" for name in ("first", "last", "lowest")),
        "baseline_falls",
    )
    below = f"{row['below_incumbent']} of {row['audited']}" if row["below_incumbent"] else "unknown"
    return [where.algorithm, *(short(row[name]) if row[name] else "unknown" for name in names), below]


def _changes(s: Summary, labels: list[str], eta: float, within: Path) -> str:
    """Return old and new figures, the verdicts that changed, and the reasons."""
    earlier = {
        row["algorithm"]: row
        for row in rows_of(within / "earlier" / "hiv.csv")
        if float(row["budget"]) == eta
    }
    if not earlier:
        return ""
    rows = []
    for label in labels:
        row, old = s.row(Where(label, eta)), earlier.get(label)
        if old is None:
            continue
        pairs = [
            (f"{float(old['max_return']) / MILLION:.2f}", f"{float(row['max_return']) / MILLION:.2f}"),
            (
                short(old["violations_per_1000"]),
                short(row["violations_per_1000"]) if row["violations"] else "unknown",
            ),
            (
                short(old["true_deficit_max"]),
                short(row["true_deficit_max"]) if row["true_deficit_max"] else "unknown",
            ),
            (short(old["deviating_steps"]), short(row["deviating_steps"])),
        ]
        rows.append([label, *(f"{was} → {now}" for was, now in pairs)])
    verdicts = {row["key"]: row["verdict"] for row in rows_of(within / "earlier" / "hiv-claims.csv")}
    moved = [
        f"{claim['key']} ({verdicts[claim['key']]} → {claim['verdict']})"
        for claim in s.claims
        if verdicts.get(claim["key"], claim["verdict"]) != claim["verdict"]
    ]
    headings = [
        "",
        "maximum return, millions",
        "violations per 1,000 audited episodes",
        "largest deficit",
        "deviating steps per run",
    ]
    return f"""
### What changed against the earlier HIV tables, and why (eta {eta:g}, before → now)

{markdown(headings, rows)}

Verdicts that changed: {", ".join(moved) or "none"}.

- **The learner.** `chary` is the paired ensemble now. What was called so before, three networks with bonuses, is `paper`, with the same options.
- **The judge.** The baselines that judge agents without a budget are learnt by an ensemble, too, from the same data as before. They are rolled back where a return falls, and pretrained by 10,000 updates in place of 2,000, as are
  the networks by which DQN, CQL and SAC play.
- **Budgets.** 80 is left out: Table 1 has 40, 60 and 100.
"""


def _interval(row: dict[str, str], name: str) -> str:
    if not row[name]:
        return "unknown"
    ends = [row[f"{name}_{end}"] for end in ("low", "high")]
    value, *interval = (
        short(float(text) if abs(float(text)) > ROUNDING else 0.0)
        for text in (row[name], *filter(None, ends))
    )
    return f"{value} ({' to '.join(interval)})" if interval else value


def _millions(row: dict[str, str], name: str) -> str:
    mean, deviation = row[name], row[f"{name}_deviation"]
    return f"{float(mean) / MILLION:.2f}" + (f" ± {float(deviation) / MILLION:.2g}" if deviation else "")
