"""The parts of the report of a sweep of the deep learner: claims, charts, tables and sections of the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chary.report.claims import (
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    REPRODUCED,
    Claim,
    listed,
    say_percent,
    say_value,
)
from chary.report.deep.charts import charts_of
from chary.report.deep.hiv_claims import hiv_claims
from chary.report.deep.own_claims import own_claims
from chary.report.deep.tables import (
    MILLION,
    TABLE_1,
    action_table,
    baseline_table,
    coverage_table,
    difference_rows,
    differences_of,
    judged_one,
    key_cells,
    measured_entry,
    summary_cells,
    summary_rows,
    table_1,
    table_1_rows,
    total,
)
from chary.report.measured import Measured
from chary.report.page import Parts
from chary.report.tables import key_table
from chary.sweeps.deep import DeepConditions
from chary.sweeps.spec import Experiment

# Patient and discount whose returns come closest to the paper's, docs/hiv.md.
MATCHED = (5, 0.99)
# A mean that differs by more than this share is not the paper's; a charge should cover this share.
APART, COVERED = 0.05, 0.95
# Below this share of deviating steps, an algorithm's return is mostly that of its baseline.
FEW = 0.05


def parts_of(experiment: Experiment, measured: Measured) -> Parts:
    """Return the parts of the report; the paper's claims and its Table 1 for the paper's problem alone."""
    assert isinstance(experiment.conditions, DeepConditions)
    conditions, problem = experiment.conditions, experiment.conditions.about
    claims = [*hiv_claims(measured), *own_claims(measured)] if problem.of_paper else []
    lines = reading(experiment.conditions, measured, claims)
    entries = table_1_rows(measured) if problem.of_paper else []
    return Parts(
        claims=claims,
        charts=charts_of(experiment, measured),
        tables={
            "summary": summary_rows(measured),
            **({"table-1": entries} if entries else {}),
            "differences": difference_rows(problem, measured),
        },
        without=("assumptions",) if problem.of_paper else ("assumptions", "claims"),
        summary=summary_cells(problem, measured),
        compared=differences_of(problem),
        studies_compared=False,
        values={
            "reading": lines,
            "problem": problem,
            "own": ", ".join(
                f"{name} {value}" for name, value in conditions.about.stored(conditions.own).items()
            ),
            "table_1": table_1(entries) if entries else None,
            "key_numbers": key_table(measured, key_cells(problem, measured)),
            "equal_seeds_share": "the warm-up",
            "treatments": action_table(problem, measured),
            "baselines": baseline_table(measured),
            "coverage": coverage_table(measured),
        },
        reading=lines,
    )


def reading(conditions: DeepConditions, measured: Measured, claims: Sequence[Claim]) -> list[str]:
    """Return what matches the paper, what does not and why, in a sentence or two each."""
    if not conditions.about.of_paper:
        return _reasons(measured, of_paper=False)
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
    return [*lines, *_reasons(measured, of_paper=True)]


def _reasons(measured: Measured, *, of_paper: bool) -> list[str]:
    """Return measurements that explain the differences from the paper, each from the tables."""
    lines = []
    entry = TABLE_1[-1]
    dqn = measured_entry(measured, entry) if of_paper else None
    if dqn is not None:
        best = measured.mean(dqn, "max_return").value / MILLION
        if abs(best / entry.mean - 1.0) > APART:
            lines.append(
                f"Deep Q-learning itself reaches {best:.3g} million here and {entry.mean:g} million in the "
                "paper. It has no budget: this difference is one of patients, discounts or learners, and not "
                "of exploration. Other absolute numbers inherit it."
            )
    return [*lines, *_judges(measured), *_ours(measured), *_baselines(measured)]


def _judges(measured: Measured) -> list[str]:
    """Return by what the algorithms of the main comparison are judged."""
    by: dict[str, list[str]] = {}
    for label in measured.algorithms():
        place = next(place for (place,) in measured.together(label))
        by.setdefault(measured.text(place, "judge"), []).append(label)
    if not by:
        return []
    if len(by) == 1:
        (judge,) = by
        return [
            "All algorithms are judged by baselines learnt from their own data with the same options "
            f"({judge}), and by the baseline at the end of the warm-up as a second reference."
        ]
    groups = "; ".join(f"{judge}: {_quoted(labels)}" for judge, labels in by.items())
    return [
        "The algorithms are judged by baselines learnt with different options, and violations can only be "
        f"compared within these groups: {groups}."
    ]


def _ours(measured: Measured) -> list[str]:
    """Return the promise of the judged algorithm, how far it left its baseline, and what that cost."""
    label = judged_one(measured)
    places = [place for (place,) in measured.together(label)]
    if not places:
        return []
    lines = [f"The promise of “{label}”. {measured.standing(places[0]).describe()}"]
    used = [measured.mean(place, "deficit_mean").value / place.budget for place in places if place.budget]
    steps = [
        float(measured.column(place, "deviating_steps").sum() / measured.column(place, "steps").sum())
        for place in places
    ]
    if used:
        lines.append(
            f"“{label}” leaves its baseline in {_percent_range(steps)} of the steps and books "
            f"{_percent_range(used)} of its budget in the mean episode."
            + (" Its return is then mostly that of the baseline that it learns." if max(steps) < FEW else "")
        )
    covered = {place: measured.mean(place, "booked_coverage") for place in places}
    short = {place: share for place, share in covered.items() if share.value < COVERED}
    if short:
        least = min(short.values(), key=lambda share: share.value)
        lines.append(
            f"At {listed([place.budget for place in short])} charges are too small too often: at worst they "
            f"cover {say_percent(least)} of the booked deviations. Networks come without a certificate."
        )
    counts = [total(measured, place, "violations") for place in places]
    if any(count is None for count in counts):
        lines.append(
            "Some runs were judged by version 0.1, which let gains pay for losses: whether they kept their "
            "budget is unknown. Play them again in a new folder."
        )
        return lines
    of = sum(int(measured.column(place, "audited").sum()) for place in places)
    own, incumbent = sum(filter(None, counts)), [total(measured, p, "violations_incumbent") for p in places]
    told = (
        f"{own:,} of {of:,} audited episodes of “{label}” broke their budget"
        if own
        else (f"No audited episode of “{label}”, of {of:,}, broke its budget")
    )
    if None not in incumbent:
        signed = [measured.mean(place, "incumbent_signed_mean").value for place in places]
        ends = " to ".join(dict.fromkeys(say_value(value) for value in (min(signed), max(signed))))
        told += (
            f". Against the warm-up's baseline {sum(filter(None, incumbent)):,} had a deficit above it, "
            "which nothing promises: eq. (1) counts losses and no gains. With gains, eq. (2), the mean "
            f"loss against that baseline is {ends}"
        )
    return [*lines, f"{told}."]


def _baselines(measured: Measured) -> list[str]:
    """Return whether the baselines of the judged algorithm became worse over time."""
    label = judged_one(measured)
    places = [place for (place,) in measured.together(label)]
    if not places:
        return []
    audited = np.concatenate([measured.column(place, "audited") for place in places])
    fell = np.concatenate([measured.known(place, "baseline_falls") for place in places])
    told = (
        f"The baseline of “{label}” was worth less than at the audited episode before in "
        f"{fell.sum():,.0f} of {(audited - 1).sum():,.0f} cases"
        if fell.any()
        else f"The baseline of “{label}” was never worth less than at the audited episode before"
    )
    below = [total(measured, place, "below_incumbent") for place in places]
    if None not in below:
        told += f", and less than the warm-up's in {sum(filter(None, below)):,} of {audited.sum():,.0f}"
    worse = " A budget is kept against the present baseline, and says nothing about its falls."
    return [f"{told}.{worse if fell.any() else ''}"]


def _quoted(labels: Sequence[str]) -> str:
    return ", ".join(f"“{label}”" for label in labels)


def _percent_range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.2g}" for share in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"
