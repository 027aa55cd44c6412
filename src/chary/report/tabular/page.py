"""The parts of the report of a tabular sweep: claims, charts, tables and sections of the page."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from chary.assumptions import AssumptionReport, check_assumptions
from chary.mdp import FiniteMDP
from chary.pages import Table
from chary.report.claims import PAPER, Claim, say
from chary.report.measured import Measured, Place
from chary.report.page import Parts
from chary.report.style import algorithms_of
from chary.report.tables import key_table
from chary.report.tabular.charts import charts_of
from chary.report.tabular.claims import Facts, answer_claims
from chary.report.tabular.claims.facts import same_results
from chary.report.tabular.frontier import frontier_rows, frontier_table
from chary.report.tabular.tables import (
    DIFFERENCES,
    canary_rows,
    canary_table,
    difference_rows,
    key_cells,
    summary_cells,
    summary_rows,
)
from chary.statistics import binomial_report
from chary.sweeps.spec import MAIN, Experiment
from chary.sweeps.tabular import Conditions, known_problem

# If checking the assumptions at one budget takes longer, the others are not checked.
ASSUMPTION_SECONDS = 10.0


def parts_of(experiment: Experiment, measured: Measured) -> Parts:
    """Return the parts of the report of a tabular sweep."""
    conditions = experiment.conditions
    assert isinstance(conditions, Conditions)
    mdp = known_problem(experiment.plan()[0].spec)
    assumptions = [] if mdp is None else _assumptions(mdp, conditions.etas)
    claims: list[Claim] = []
    if mdp is not None:
        facts = Facts(
            horizon=mdp.horizon,
            states=mdp.n_states,
            actions=mdp.setting.n_actions,
            delta=conditions.delta,
            span=mdp.scale.span,
            diameter=assumptions[0].diameter.status,
            diameter_says=assumptions[0].diameter.describe(),
            questions={study.name: study.question for study in experiment.studies},
        )
        asked = [study.name for study in experiment.studies if study.claims]
        claims = answer_claims(measured, facts, asked)
    of_paper = any(algorithm.role == PAPER for algorithm in algorithms_of(experiment))
    if not of_paper:
        # A sweep without the paper's algorithm was not made for its claims.
        claims = [claim for claim in claims if claim.findings]
    leaning = any("gaps" in fact for place in measured.places for fact in measured.standing(place).given)
    canaries = canary_rows(measured)
    frontier = frontier_rows(experiment, measured)
    return Parts(
        claims=claims,
        charts=charts_of(experiment, measured),
        tables={
            "summary": summary_rows(measured),
            "differences": difference_rows(measured),
            **({"frontier": frontier} if frontier else {}),
            **({"canary": canaries} if canaries else {}),
        },
        summary=summary_cells(measured),
        compared=DIFFERENCES,
        without=[
            *([] if claims else ["claims"]),
            *([] if assumptions and (of_paper or leaning) else ["assumptions"]),
        ],
        values={
            "frontier": frontier_table(experiment, measured),
            "canaries": canary_table(canaries),
            "smallest": _smallest_budget(measured, of_paper),
            "target": next((claim for claim in claims if claim.key == "g1" and claim.findings), None),
            "same": [line for label in measured.algorithms() if (line := same_results(measured, label))],
            "key_numbers": key_table(measured, key_cells(measured)),
            "equal_seeds_share": "the warm-up and the world's randomness",
            "assumptions": _assumption_table(measured, assumptions),
            "last_assumption": assumptions[-1] if assumptions else None,
            **_coverage(measured, conditions.delta),
        },
    )


def _assumptions(mdp: FiniteMDP, etas: Sequence[float]) -> list[AssumptionReport]:
    """Return the check of both assumptions at every budget, or at the largest if one takes long."""
    reports: list[AssumptionReport] = []
    for eta in sorted(etas, reverse=True):
        began = time.perf_counter()
        reports.append(check_assumptions(mdp, eta))
        if time.perf_counter() - began > ASSUMPTION_SECONDS:
            break
    return reports[::-1]


def _smallest_budget(measured: Measured, of_paper: bool) -> dict[str, str] | None:
    """Return how often each algorithm broke the smallest budget, and its regret, in a sentence around it."""
    budgets = measured.budgets()
    roles = ("unconstrained", "conservative", "paper", "ours", "chosen") if of_paper else ("",)
    places = [
        place
        for role in roles
        for label in measured.algorithms(roles=(role,) if role else ())
        if measured.has(place := Place(label, budgets[0]))
    ]
    if not places:
        return None
    rates = [measured.rate(place).rate for place in places]
    words = []
    for place, rate in zip(places, rates, strict=True):
        regret = say(measured.mean(place, "regret")._replace(low=math.nan))
        often = f"in {100 * rate:.2g} % of episodes (regret {regret})" if any(rates) else regret
        words.append(f"{place.algorithm} {often}")
    listed = f"{', '.join(words)}."
    budget = f"{budgets[0]:g}"
    if any(rates):
        return {"before": "The smallest budget, ", "budget": budget, "after": f", was broken by {listed}"}
    before = "No algorithm broke even the smallest budget, "
    return {"before": before, "budget": budget, "after": f". Regret: {listed}"}


def _assumption_table(measured: Measured, assumptions: Sequence[AssumptionReport]) -> Table:
    rows = []
    for report in assumptions:
        places = [place for place in measured.places if place.study == MAIN and place.budget == report.eta]
        largest = max((float(measured.known(place, "largest_gap").max()) for place in places), default=0.0)
        rows.append(
            [
                f"{report.eta:g}",
                report.diameter.status,
                report.gaps.status,
                f"{report.eta / 2:g}",
                f"{largest:.3g}" if largest > 0 else "none checked",
            ]
        )
    headings = [
        "budget η",
        "2.2, worst-case diameter at most H/2",
        "2.3, gaps of all policies at most η/2",
        "η/2",
        "largest true gap at a step that was played",
    ]
    return Table(headings, rows)


def _coverage(measured: Measured, delta: float) -> dict[str, Any]:
    """Return how often the bounds failed, and the algorithms whose bounds were not checked."""
    rows, unchecked = [], []
    for label in measured.algorithms():
        places = [place for place in measured.places if place[0::2] == (label, MAIN)]
        checked = [place for place in places if len(measured.known(place, "charge_failures"))]
        if not checked:
            unchecked.append(label)
        for place in checked:
            kinds = (
                _failed(measured.known(place, column).tolist(), delta)
                for column in ("value_failures", "bonus_failures", "charge_failures")
            )
            rows.append([label, f"{place.budget:g}", measured.text(place, "standing"), *kinds])
    headings = ["algorithm", "budget η", "standing", "value bounds", "bonus", "charge"]
    return {"coverage": Table(headings, rows), "unchecked": unchecked}


def _failed(failures: Sequence[float], delta: float) -> str:
    """Return the number of runs with any failure, compared with the promise, and the number of episodes.

    Example:
        >>> _failed([0.0, 0.0, 3.0, 0.0], 0.1)
        '1 of 4, 25 % (0.631 to 80.6), compatible with δ; in 3 episodes'
    """
    if not failures:
        return "not checked"
    found = binomial_report(sum(value > 0 for value in failures), len(failures), delta)
    low, high = (100 * end for end in found.interval)
    verdict = {"below": "below δ", "above": "above δ", "compatible": "compatible with δ"}[found.verdict]
    episodes = f"in {sum(failures):,.0f} episode{'' if sum(failures) == 1 else 's'}"
    return (
        f"{found.failures} of {found.runs}, {100 * found.rate:.3g} % ({low:.3g} to {high:.3g}), {verdict}"
        + (f"; {episodes}" if found.failures else "")
    )
