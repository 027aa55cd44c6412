"""The parts of the report of an HIV sweep: claims, charts, tables and sections of the page."""

from __future__ import annotations

from collections.abc import Sequence

from chary.report.claims import NOT_COMPARABLE, NOT_REPRODUCED, REPRODUCED, Claim, listed, say_percent
from chary.report.hiv.charts import charts_of
from chary.report.hiv.claims import hiv_claims
from chary.report.hiv.tables import (
    DIFFERENCES,
    MILLION,
    TABLE_1,
    action_table,
    coverage_table,
    difference_rows,
    judged_one,
    key_cells,
    measured_entry,
    summary_cells,
    summary_rows,
    table_1,
    table_1_rows,
)
from chary.report.measured import Measured
from chary.report.page import Parts
from chary.report.tables import key_table
from chary.sweeps.hiv import HIVConditions
from chary.sweeps.spec import Experiment

# Patient and discount whose returns come closest to the paper's, docs/hiv.md.
MATCHED = (5, 0.99)
# A mean that differs by more than this share is not the paper's; a charge should cover this share.
APART, COVERED = 0.05, 0.95


def parts_of(experiment: Experiment, measured: Measured) -> Parts:
    """Return the parts of the report of an HIV sweep."""
    assert isinstance(experiment.conditions, HIVConditions)
    claims = hiv_claims(measured)
    lines = reading(experiment.conditions, measured, claims)
    entries = table_1_rows(measured)
    return Parts(
        claims=claims,
        charts=charts_of(experiment, measured),
        tables={
            "summary": summary_rows(measured),
            "table-1": entries,
            "differences": difference_rows(measured),
        },
        without=("assumptions",),
        summary=summary_cells(measured),
        compared=DIFFERENCES,
        studies_compared=False,
        values={
            "reading": lines,
            "table_1": table_1(entries),
            "key_numbers": key_table(measured, key_cells(measured)),
            "equal_seeds_share": "the warm-up",
            "treatments": action_table(measured),
            "coverage": coverage_table(measured),
        },
        reading=lines,
    )


def reading(conditions: HIVConditions, measured: Measured, claims: Sequence[Claim]) -> list[str]:
    """Return what matches the paper, what does not and why, in a sentence or two each."""
    lines = [
        "The paper states neither its patient nor its discount nor the unit of its budgets. Patient "
        f"{MATCHED[0]}, a discount of {MATCHED[1]:g} and budgets in standardised reward units come closest "
        "to its numbers: a match, and not an identification."
        + (
            ""
            if (conditions.patient, conditions.discount) == MATCHED
            else f" This sweep treats patient {conditions.patient} at {conditions.discount:g}: its numbers "
            "cannot be compared with the paper's."
        )
    ]
    for verdict, words in (
        (REPRODUCED, "What matches"),
        (NOT_REPRODUCED, "What does not"),
        (NOT_COMPARABLE, "What this sweep cannot decide"),
    ):
        statements = [
            f"“{claim.statement.rstrip('.')}” ({claim.key})" for claim in claims if claim.verdict == verdict
        ]
        if statements:
            lines.append(f"{words}: {'; '.join(statements)}.")
    return [*lines, *_reasons(measured)]


def _reasons(measured: Measured) -> list[str]:
    """Return measurements that explain the differences from the paper."""
    lines = []
    entry = TABLE_1[-1]
    dqn = measured_entry(measured, entry)
    if dqn is not None:
        best = measured.mean(dqn, "max_return").value / MILLION
        if abs(best / entry.mean - 1.0) > APART:
            lines.append(
                f"Deep Q-learning itself reaches {best:.3g} million here and {entry.mean:g} million in the "
                "paper. It has no budget: this difference is one of patients, discounts or learners, and not "
                "of exploration. Other absolute numbers inherit it."
            )
    label = judged_one(measured)
    places = [place for (place,) in measured.together(label)]
    if not places:
        return lines
    used = [measured.mean(place, "deficit_mean").value / place.budget for place in places if place.budget]
    steps = [
        float(measured.column(place, "deviating_steps").sum() / measured.column(place, "steps").sum())
        for place in places
    ]
    if used:
        lines.append(
            f"“{label}” leaves its baseline in {_percent_range(steps)} of the steps and books "
            f"{_percent_range(used)} of its budget in the mean episode. Its return is then mostly that "
            "of the baseline that it learns."
        )
    covered = {place: measured.mean(place, "booked_coverage") for place in places}
    short = {place: share for place, share in covered.items() if share.value < COVERED}
    if short:
        least = min(short.values(), key=lambda share: share.value)
        lines.append(
            f"At {listed([place.budget for place in short])} charges are too small too often (at worst "
            f"they cover {say_percent(least)} of the booked deviations): where the budget is broken, this is "
            "why. Networks come without a certificate."
        )
    elif max(measured.column(place, "violation_rate").max() for place in places) == 0:
        lines.append("No audited episode broke its budget.")
    return lines


def _percent_range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.2g}" for share in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"
