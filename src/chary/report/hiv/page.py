"""The parts of the page that a sweep of the deep learner has of its own."""

from __future__ import annotations

from collections.abc import Sequence

from chary.report.claims import listed, say
from chary.report.hiv.charts import TREATMENTS
from chary.report.hiv.table1 import MILLION, TABLE_1, judged_one, measured_entry
from chary.report.hiv.tables import (
    action_table,
    coverage_table,
    difference_table,
    key_table,
    summary_table,
    table_1,
    table_1_rows,
)
from chary.report.measured import Measured, Place
from chary.report.page import (
    Page,
    Sections,
    claims_section,
    figures_section,
    file_links,
    incomplete,
    provenance_section,
    ranged,
    runtime_section,
    safe,
    summaries,
    table_html,
)
from chary.report.style import looks_of
from chary.report.tabular.claims import NOT_COMPARABLE, NOT_REPRODUCED, REPRODUCED, Claim, count_verdicts
from chary.results import Estimate
from chary.sweeps.hiv import HIVConditions
from chary.sweeps.spec import MAIN

__all__ = ["DEEP_SECTIONS", "reading"]

# Patient and discount whose returns come nearest to the paper's, docs/hiv.md.
MATCHED = (5, 0.99)
# From here on a mean is another number than the paper's, and a charge covers too little.
APART, COVERED = 0.05, 0.95


def reading(conditions: HIVConditions, measured: Measured, claims: Sequence[Claim]) -> list[str]:
    """Return what matches the paper, what does not and why, a sentence or two each."""
    told = [
        "The paper names neither its patient nor its discount nor the unit of its budgets. Patient "
        f"{MATCHED[0]}, a discount of {MATCHED[1]:g} and budgets in standardised reward units come nearest "
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
        (NOT_COMPARABLE, "What this sweep cannot tell"),
    ):
        statements = [
            f"“{claim.statement.rstrip('.')}” ({claim.key})" for claim in claims if claim.verdict == verdict
        ]
        if statements:
            told.append(f"{words}: {'; '.join(statements)}.")
    return [*told, *_reasons(measured)]


def _reasons(measured: Measured) -> list[str]:
    """Return what was measured that explains the differences; nothing is said that a number does not say."""
    told = []
    entry = TABLE_1[-1]
    dqn = measured_entry(measured, entry)
    if dqn is not None:
        best = measured.mean(dqn, "max_return").value / MILLION
        if abs(best / entry.mean - 1.0) > APART:
            told.append(
                f"Deep Q-learning itself reaches {best:.3g} million here and {entry.mean:g} million in the "
                "paper. It has no budget, so that this difference is one of patients, discounts or learners, "
                "and not of exploration; other absolute numbers inherit it."
            )
    label = judged_one(measured)
    places = [
        place
        for budget in measured.budgets()
        if label is not None and measured.has(place := Place(label, budget))
    ]
    if places:
        used = [measured.mean(place, "deficit_mean").value / place.budget for place in places if place.budget]
        steps = [
            float(measured.column(place, "deviating_steps").sum() / measured.column(place, "steps").sum())
            for place in places
        ]
        if used:
            told.append(
                f"“{label}” leaves its baseline in {_percent_range(steps)} of the steps and books "
                f"{_percent_range(used)} of its budget in the mean episode. Its return is then mostly that "
                "of the baseline that it learns."
            )
        short = [
            place
            for place in places
            if len(measured.known(place, "booked_coverage"))
            and measured.mean(place, "booked_coverage").value < COVERED
        ]
        if short:
            least = min((measured.mean(place, "booked_coverage") for place in short), key=lambda e: e.value)
            told.append(
                f"At {listed([place.budget for place in short])} charges are too small too often (at worst "
                f"they cover {say(Estimate(*(100 * each for each in least)))} % of the booked deviations): "
                "where the budget is broken, this is why. Networks come without a certificate."
            )
        worst = [measured.column(place, "violation_rate").max() for place in places]
        if not short and max(worst) == 0:
            told.append("No audited episode broke its budget.")
    return told


def _percent_range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.2g}" for share in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"


def _summary(page: Page) -> str:
    conditions, measured = page.experiment.conditions, page.measured
    assert isinstance(conditions, HIVConditions)
    done = sum(state.state == "done" for state in page.states)
    seeds = ranged(conditions.first_seed, conditions.first_seed + conditions.seeds - 1)
    etas = ", ".join(f"{eta:g}" for eta in conditions.etas)
    labels = measured.algorithms() or {place.algorithm for place in measured.places}
    every = conditions.audit_every
    sampled = "Every episode" if every == 1 else f"One episode in {every}"
    first = (
        f"<b>{done:,} of {len(page.states):,} runs</b> are finished: {len(labels)} algorithms on problem "
        f"“{safe(conditions.problem)}”, patient {safe(str(conditions.patient))}, discount "
        f"{conditions.discount:g}, at budgets η = {etas}, seeds {seeds}, {conditions.episodes:,} episodes "
        f"each after {conditions.warmup:,} random ones. {sampled} was compared with the truth."
    )
    counts = "".join(
        f'<span class="verdict {verdict.replace(" ", "-")}">{count} {verdict}</span>'
        for verdict, count in count_verdicts(page.claims).items()
    )
    told = "".join(f"<li>{safe(line)}</li>" for line in reading(conditions, measured, page.claims))
    colours = {label: look.colour for label, look in looks_of(page.experiment).items()}
    best = (
        f"<h3>Table 1: maximum discounted return, millions</h3>{table_html(table_1(table_1_rows(measured)))}"
        "<p class='note'>Over all episodes of a run; mean and standard deviation over seeds, and the mean's "
        "95 % bootstrap interval. What stands after ± in the paper is taken for a standard deviation.</p>"
    )
    numbers = table_html(key_table(measured), colours=colours) if measured.budgets() else ""
    return (
        f'<div class="card"><ul><li>{first}</li></ul><div class="counts">{counts}</div></div>\n'
        f"{incomplete(page)}\n<div class='card'><h3 style='margin-top:0'>What matches, what does not, and why"
        f"</h3><ul>{told}</ul></div>\n{best}\n<h3>Return and violations</h3>{numbers}"
    )


def _tables(page: Page) -> str:
    measured = page.measured
    colours = {label: look.colour for label, look in looks_of(page.experiment).items()}
    parts = [
        '<p class="note">Maxima and means of discounted returns are in the problem\'s own units, deficits '
        "and budgets in standardised reward. z* is an episode's true deficit against the baseline of the "
        "algorithm's own networks, by exact rollouts. Intervals of violations take audited episodes for "
        "independent, which those of one run are not: the runs with any violation are counted beside them. "
        "Steps and seconds are means over runs.</p>"
    ]
    parts += summaries(measured, summary_table, colours)
    parts.append(
        "<h3>Treatments in the last tenth of the episodes</h3>"
        f"{table_html(action_table(measured, TREATMENTS), colours=colours)}"
    )
    parts.append(file_links(("summary", "table-1", "differences", "claims")))
    return "\n".join(parts)


def _differences(page: Page) -> str:
    note = (
        '<p class="note">The algorithm less the other at equal seeds, mean with its 95 % bootstrap interval. '
        "Equal seeds share the warm-up.</p>"
    )
    rows = [row for row in page.differences if row["study"] == MAIN]
    return f"{note}{table_html(difference_table(rows), name=1) if rows else '<p>Nothing to compare.</p>'}"


def _coverage(page: Page) -> str:
    return (
        '<p class="note">Deviations from the baseline in audited episodes whose charge was at least their '
        "true cost, by exact rollouts. Charges come from networks and random features: uncertified. Agents "
        "without a shield are charged too, and book nothing. Held out: after each audited episode one that "
        "nothing is learnt from, where the baseline plays and now and then an action at random; what a "
        "shield books is no fair sample, since it takes what is cheap.</p>"
        f"{table_html(coverage_table(page.measured))}"
    )


DEEP_SECTIONS: Sections = {
    "summary": ("Summary", _summary),
    "claims": ("Claims", claims_section),
    "figures": ("Figures", figures_section),
    "tables": ("Tables", _tables),
    "differences": ("Paired differences", _differences),
    "coverage": ("Coverage", _coverage),
    "runtime": ("Runtime", runtime_section),
    "provenance": ("Provenance", provenance_section),
}
