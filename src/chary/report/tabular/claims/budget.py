"""Claims about budgets: who keeps them, who breaks them, and what our variants gain.

Episodes of one run are dependent, so that Clopper-Pearson intervals over episodes are too narrow: they are
given as a description. What decides are means and paired differences over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from chary.report.claims import (
    CHOSEN,
    CUCBVI,
    OURS,
    PAPER,
    UCBVI,
    Answer,
    Claim,
    Facts,
    all_of,
    alone,
    at,
    listed,
    pairs,
    per_thousand,
    same_for_paper,
    same_results,
    say,
    say_number,
    say_rate,
)
from chary.report.measured import Measured, Place

__all__ = ["budget_claims", "our_claims"]

# "Almost every episode": the upper end of the interval is at most one in a hundred.
ALMOST_NEVER = 0.01
# What we ask of ourselves: one in a thousand.
RARELY = 0.001

NOBODY = "nobody broke it: nothing to compare"


def budget_claims(measured: Measured) -> list[Claim]:
    """Return b1 to b4."""
    return [
        _keeps(measured),
        _breaks(measured, UCBVI, "b2", "UCBVI"),
        _breaks(measured, CUCBVI, "b3", "CUCBVI"),
        _more_at_small(measured),
    ]


def our_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return f1 and on, one a variant of ours, and g1."""
    labels = measured.algorithms(roles=OURS)
    return [*(_ours(measured, f"f{i}", label) for i, label in enumerate(labels, 1)), _target(measured, facts)]


def _kept(measured: Measured, place: Place, limit: float) -> bool | None:
    """Whether at most a share of the episodes break the budget; None where one cannot tell.

    Over seeds the interval of a rate that is 0 in all has no width; so the one over episodes, narrow as it
    is, must not reach beyond the limit either.
    """
    decided = measured.mean(place, "violation_rate").at_most(limit)
    return None if decided and measured.rate(place).interval.high > limit else decided


def _say_both(measured: Measured, place: Place) -> str:
    """Return violations per 1,000 episodes with both intervals."""
    rate = measured.rate(place)
    low, high = (1000 * end for end in rate.interval)
    over_seeds = say(per_thousand(measured.mean(place, "violation_rate")))
    return f"{over_seeds} violations per 1,000 episodes ({low:.3g} to {high:.3g} over episodes)"


def _keeps(measured: Measured) -> Claim:
    answer = Answer()
    for budget, paper in alone(measured, PAPER):
        rate, over_seeds = measured.rate(paper), measured.mean(paper, "violation_rate")
        answer.add(
            _kept(measured, paper, ALMOST_NEVER),
            f"{at(budget)}: {_say_both(measured, paper)}, {rate.broken_runs} of {rate.runs} runs with any; "
            f"{measured.mean(paper, 'exploring_steps').value:,.0f} exploring steps a run",
            seeds=rate.runs,
            why=f"undecided: an interval holds {1000 * ALMOST_NEVER:g}",
            budget=budget,
            violations=rate.violations,
            episodes=rate.episodes,
            low=over_seeds.low,
            high=over_seeds.high,
            low_over_episodes=rate.interval.low,
            high_over_episodes=rate.interval.high,
            broken_runs=rate.broken_runs,
            runs=rate.runs,
        )
    return answer.claim(
        "b1",
        "section 5, appendix B",
        "The budget is kept in almost every episode, at every budget.",
        "At every budget, the upper end of the interval of the paper's variant's mean rate of violations "
        f"over seeds is at most {ALMOST_NEVER:g} an episode, and so is that of the Clopper-Pearson interval "
        "over episodes, which takes them for independent.",
        unmeasured="needs an algorithm with role paper",
        notes=("Whoever hardly explores keeps any budget: see the steps.", same_for_paper(measured)),
    )


def _breaks(measured: Measured, role: str, key: str, name: str) -> Claim:
    answer = Answer()
    broke = 0
    for budget, paper, other in pairs(measured, PAPER, (role,)):
        ours, theirs = measured.rate(paper), measured.rate(other)
        difference = measured.difference(other, paper, "violation_rate")
        if difference is None:
            continue
        broke += theirs.violations
        nobody = not (ours.violations or theirs.violations)
        answer.add(
            None if nobody else difference.above(0.0),
            f"{at(budget)}: {say_rate(theirs)} violations per 1,000 episodes against {say_rate(ours)}, "
            f"difference over seeds {say(per_thousand(difference))}",
            seeds=len(measured.common(paper, other)),
            why=NOBODY if nobody else "undecided: the interval holds 0",
            budget=budget,
            rate=theirs.rate,
            rate_paper=ours.rate,
            difference=difference.value,
            low=difference.low,
            high=difference.high,
        )
    return answer.claim(
        key,
        "section 5" if role == CUCBVI else "section 5, appendix B",
        f"{name} breaks the budget significantly more, even where it is large.",
        f"At every budget, {name}'s rate of violations less the paper's variant's, paired by seed, is above "
        "zero with its whole interval. Not comparable where neither breaks it. The intervals of the two "
        "rates themselves are Clopper-Pearson's over episodes, and decide nothing.",
        unmeasured=f"needs an algorithm with role paper and one with role {role}",
        notes=("" if broke else f"{name} broke no budget in any episode of this sweep.",),
    )


def _more_at_small(measured: Measured) -> Claim:
    answer = Answer()
    places = list(alone(measured, UCBVI))
    if len(places) >= 2:
        (_, small), (_, large) = places[0], places[-1]
        difference = measured.difference(small, large, "violation_rate")
        nobody = not any(measured.rate(place).violations for _, place in places)
        words = ", ".join(f"{say_rate(measured.rate(place))} at {at(budget)}" for budget, place in places)
        if difference is not None:
            answer.add(
                True if difference.above(0.0) else None,
                f"violations per 1,000 episodes: {words}; difference of the first and the last over seeds "
                f"{say(per_thousand(difference))}",
                seeds=len(measured.common(small, large)),
                why=NOBODY if nobody else "undecided: the interval holds 0",
                small=measured.rate(small).rate,
                large=measured.rate(large).rate,
                difference=difference.value,
                low=difference.low,
                high=difference.high,
            )
    return answer.claim(
        "b4",
        "appendix B",
        "UCBVI breaks the budget in more episodes where it is small.",
        "UCBVI has no budget: the same runs are judged at each, and who breaks a large one breaks the small "
        "ones too, so that this cannot be wrong, only unseen. Reproduced if the rate at the smallest budget "
        "less that at the largest, paired by seed, is above zero with its whole interval; else not "
        "comparable.",
        unmeasured="needs an algorithm with role unconstrained and two budgets at least",
    )


def _ours(measured: Measured, key: str, label: str) -> Claim:
    answer = Answer()
    for budget, paper in alone(measured, PAPER):
        place = Place(label, budget)
        if not measured.has(place):
            continue
        steps, regret = (measured.difference(place, paper, name) for name in ("exploring_steps", "regret"))
        if steps is None or regret is None:
            continue
        rate = measured.rate(place)
        parts = {
            "exploring steps": steps.above(0.0),
            "regret": regret.below(0.0),
            "violations": _kept(measured, place, RARELY),
        }
        answer.add(
            all_of(*parts.values()),
            f"{at(budget)}: paired differences in exploring steps {say(steps)} and in regret {say(regret)}; "
            f"{_say_both(measured, place)} against {say_rate(measured.rate(paper))}",
            seeds=len(measured.common(place, paper)),
            why=_undecided(parts),
            budget=budget,
            exploring_steps=steps.value,
            regret=regret.value,
            regret_low=regret.low,
            regret_high=regret.high,
            rate=rate.rate,
            rate_paper=measured.rate(paper).rate,
        )
    return answer.claim(
        key,
        "this project",
        f"“{label}” explores more than the paper's variant, loses less and still keeps the budget.",
        "At every budget, the paired differences are above zero for exploring steps and below zero for "
        f"regret, and at most {RARELY:g} of the episodes break the budget, each with its whole interval over "
        "seeds; where no seed broke it, with that over episodes.",
        unmeasured="needs an algorithm with role paper",
        notes=(same_results(measured, label),),
    )


def _target(measured: Measured, facts: Facts) -> Claim:
    answer = Answer()
    asked = []
    for study in measured.studies():
        for variant in measured.variants(study):
            where = {"study": study, "variant": variant}
            free = measured.algorithms(**where, roles=(UCBVI,))[:1]
            for label in measured.algorithms(**where, roles=(CHOSEN,)):
                for budget in measured.budgets(**where):
                    place = Place(label, budget, **where)
                    for ucbvi in (Place(each, budget, **where) for each in free):
                        if measured.has(place) and measured.has(ucbvi) and measured.common(place, ucbvi):
                            asked.append(study)
                            _judge_chosen(answer, measured, place, ucbvi)
    questions = [
        f"Study “{study}”: {facts.questions[study]}"
        for study in dict.fromkeys(asked)
        if facts.questions.get(study)
    ]
    return answer.claim(
        "g1",
        "this project",
        "The settings chosen on other seeds break their budget in at most one of 1,000 episodes and lose "
        "less than UCBVI.",
        f"Wherever an algorithm with role “{CHOSEN}” is played, at most {RARELY:g} of its episodes break the "
        "budget and its regret less UCBVI's in the same study, paired by seed, is below zero, each with its "
        "whole interval over seeds.",
        unmeasured=f"needs an algorithm with role {CHOSEN} beside one with role {UCBVI}",
        notes=questions,
        always=_picked_here(measured),
    )


def _judge_chosen(answer: Answer, measured: Measured, place: Place, ucbvi: Place) -> None:
    difference = measured.difference(place, ucbvi, "regret")
    assert difference is not None
    seeds = measured.common(place, ucbvi)
    where = ", ".join(part for part in (place.study, place.variant) if part)
    parts = {"violations": _kept(measured, place, RARELY), "regret": difference.below(0.0)}
    answer.add(
        all_of(*parts.values()),
        f"{place.algorithm} at {at(place.budget)} ({where}), seeds {seeds[0]} to {seeds[-1]}: "
        f"{_say_both(measured, place)}, regret less UCBVI's {say(difference)}",
        seeds=len(seeds),
        why=_undecided(parts),
        algorithm=place.algorithm,
        study=place.study,
        variant=place.variant,
        budget=place.budget,
        rate=measured.rate(place).rate,
        regret=difference.value,
        low=difference.low,
        high=difference.high,
    )


def _undecided(parts: Mapping[str, bool | None]) -> str:
    names = " and ".join(name for name, part in parts.items() if part is None)
    return f"undecided: the interval of {names} holds the threshold"


def _picked_here(measured: Measured) -> str:
    """Return which settings of the main study do it on the seeds that they are picked on: a description."""
    reached: dict[str, dict[float, float]] = {}
    compared = False
    for label in measured.algorithms(roles=("ours", PAPER)):
        for budget in measured.budgets():
            for ucbvi in measured.algorithms(roles=(UCBVI,))[:1]:
                place, other = Place(label, budget), Place(ucbvi, budget)
                if not (measured.has(place) and measured.has(other)):
                    continue
                difference = measured.difference(place, other, "regret")
                compared = compared or difference is not None
                if difference is not None and difference.below(0.0) and _kept(measured, place, RARELY):
                    reached.setdefault(label, {})[budget] = difference.value
    if not compared:
        return ""
    if not reached:
        return "Described only: no setting of the main study does so on the seeds that it shows."
    told = []
    for label, regrets in reached.items():
        ends = dict.fromkeys(say_number(end, 3) for end in (min(regrets.values()), max(regrets.values())))
        told.append(f"{label} at {listed(list(regrets))} (regret less UCBVI's: {' to '.join(ends)})")
    return (
        "Described only, since who is picked on the seeds that it is shown on looks better than it is: in "
        f"the main study so do {'; '.join(told)}."
    )
