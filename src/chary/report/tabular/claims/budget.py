"""Claims about budgets: which algorithms keep them, which break them, and the gains of our variants.

Episodes of one run are dependent. Rates per episode have intervals over runs, and the promise, which is one
about whole runs, is a binomial over runs. No budget counts as kept if most runs broke it.
"""

from __future__ import annotations

from collections.abc import Mapping

from chary.report.claims import (
    ALMOST_NEVER,
    CHOSEN,
    CUCBVI,
    NOBODY,
    OURS,
    PAPER,
    UCBVI,
    Answer,
    Claim,
    all_of,
    at,
    contains,
    kept,
    listed,
    say,
    say_number,
    say_rate,
    say_runs,
)
from chary.report.measured import Measured, Place
from chary.report.tabular.claims.facts import TEXTS, Facts, same_for_paper, same_results, say_steps

# The goal for our variants: at most one violation in a thousand episodes.
RARELY = 0.001


def budget_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return b1 to b5."""
    return [
        _keeps(measured),
        _breaks(measured, UCBVI, "b2", "UCBVI"),
        _breaks(measured, CUCBVI, "b3", "CUCBVI"),
        _more_at_small(measured),
        _promise(measured, facts),
    ]


def our_claims(measured: Measured) -> list[Claim]:
    """Return f1 and on, one per variant of ours."""
    return [_ours(measured, f"f{i}", label) for i, label in enumerate(measured.algorithms(roles=OURS), 1)]


def _say_kept(measured: Measured, place: Place) -> str:
    """Return the violations per episode and per run, each with its interval."""
    rate = measured.rate(place)
    return f"{say_rate(rate)} violations per 1,000 episodes, {say_runs(rate)}"


def _keeps(measured: Measured) -> Claim:
    answer = Answer()
    for (paper,) in measured.together(measured.first(PAPER)):
        rate = measured.rate(paper)
        answer.add(
            kept(measured, paper, ALMOST_NEVER),
            f"{at(paper.budget)}: {_say_kept(measured, paper)}; {say_steps(measured, paper)}",
            seeds=rate.runs,
            why=contains(f"{1000 * ALMOST_NEVER:g}") if rate.violations else "too few episodes",
            budget=paper.budget,
            violations=rate.violations,
            episodes=rate.episodes,
            low=rate.interval.low,
            high=rate.interval.high,
            broken_runs=rate.broken_runs,
            runs=rate.runs,
        )
    return answer.claim(TEXTS["b1"], notes=(same_for_paper(measured),), almost_never=ALMOST_NEVER)


def _promise(measured: Measured, facts: Facts) -> Claim:
    answer = Answer()
    verdicts = {"below": True, "above": False, "compatible": None}
    for (paper,) in measured.together(measured.first(PAPER)):
        rate = measured.rate(paper)
        found = rate.compared_with(facts.delta)
        answer.add(
            # No more than half: with few runs and a large delta, both could be true.
            False if rate.most_broke else verdicts[found.verdict],
            f"{at(paper.budget)}: {say_runs(rate, facts.delta)}; {say_steps(measured, paper)}",
            seeds=rate.runs,
            why=contains("δ"),
            budget=paper.budget,
            **found.to_json(),
        )
    return answer.claim(TEXTS["b5"], notes=(same_for_paper(measured),), share=1 - facts.delta)


def _breaks(measured: Measured, role: str, key: str, name: str) -> Claim:
    answer = Answer()
    broke = 0
    for paper, other in measured.together(measured.first(PAPER), measured.first(role)):
        ours, theirs = measured.rate(paper), measured.rate(other)
        broke += theirs.violations
        answer.add_fewer(measured, paper, other, rate=theirs.rate, rate_paper=ours.rate)
    none = f"{name} broke no budget in any episode of this sweep."
    return answer.claim(TEXTS[key], notes=("" if broke else none,))


def _more_at_small(measured: Measured) -> Claim:
    answer = Answer()
    places = [place for (place,) in measured.together(measured.first(UCBVI))]
    difference = measured.difference(places[0], places[-1], "violation_rate") if len(places) >= 2 else None
    if difference is not None:
        rates = [measured.rate(place) for place in places]
        words = ", ".join(
            f"{say_rate(rate)} at {at(place.budget)}" for place, rate in zip(places, rates, strict=True)
        )
        answer.add(
            True if difference.above(0.0) else None,
            f"violations per 1,000 episodes: {words}; difference of the first and the last over seeds "
            f"{say(difference.times(1000))}",
            seeds=len(measured.common(places[0], places[-1])),
            why=contains(0) if any(rate.violations for rate in rates) else NOBODY,
            small=rates[0].rate,
            large=rates[-1].rate,
            difference=difference,
        )
    return answer.claim(TEXTS["b4"])


def _ours(measured: Measured, key: str, label: str) -> Claim:
    answer = Answer()
    for place, paper in measured.together(label, measured.first(PAPER)):
        steps, regret = (measured.difference(place, paper, name) for name in ("exploring_steps", "regret"))
        if steps is None or regret is None:
            continue
        parts = {
            "exploring steps": steps.above(0.0),
            "regret": regret.below(0.0),
            "violations": kept(measured, place, RARELY),
        }
        answer.add(
            all_of(*parts.values()),
            f"{at(place.budget)}: paired differences in exploring steps {say(steps)} and in regret "
            f"{say(regret)}; {_say_kept(measured, place)}, against {say_rate(measured.rate(paper))} per "
            f"1,000 episodes; {say_steps(measured, place)}",
            seeds=len(measured.common(place, paper)),
            why=_undecided(parts),
            budget=place.budget,
            exploring_steps=steps.value,
            regret=regret.value,
            regret_low=regret.low,
            regret_high=regret.high,
            rate=measured.rate(place).rate,
            broken_runs=measured.rate(place).broken_runs,
            rate_paper=measured.rate(paper).rate,
        )
    notes = (same_results(measured, label),)
    return answer.claim(TEXTS["f"], key=key, notes=notes, label=label, rarely=RARELY)


def chosen_claim(measured: Measured, facts: Facts) -> Claim:
    """Return g1: settings chosen on other seeds."""
    answer = Answer()
    asked = []
    for study in measured.studies():
        for variant in measured.variants(study):
            free = measured.first(UCBVI, study=study, variant=variant)
            for label in measured.algorithms(study, variant, roles=(CHOSEN,)):
                for place, ucbvi in measured.together(label, free, study=study, variant=variant):
                    if measured.common(place, ucbvi):
                        asked.append(study)
                        _judge_chosen(answer, measured, place, ucbvi)
    questions = [
        f"Study “{study}”: {facts.questions[study]}"
        for study in dict.fromkeys(asked)
        if facts.questions.get(study)
    ]
    return answer.claim(TEXTS["g1"], notes=questions, always=_picked_here(measured), rarely=RARELY)


def _judge_chosen(answer: Answer, measured: Measured, place: Place, ucbvi: Place) -> None:
    difference = measured.difference(place, ucbvi, "regret")
    assert difference is not None
    seeds = measured.common(place, ucbvi)
    where = ", ".join(part for part in (place.study, place.variant) if part)
    parts = {"violations": kept(measured, place, RARELY), "regret": difference.below(0.0)}
    answer.add(
        all_of(*parts.values()),
        f"{place.algorithm} at {at(place.budget)} ({where}), seeds {seeds[0]} to {seeds[-1]}: "
        f"{_say_kept(measured, place)}; {say_steps(measured, place)}; regret minus UCBVI's {say(difference)}",
        seeds=len(seeds),
        why=_undecided(parts),
        algorithm=place.algorithm,
        study=place.study,
        variant=place.variant,
        budget=place.budget,
        rate=measured.rate(place).rate,
        broken_runs=measured.rate(place).broken_runs,
        regret=difference,
    )


def _undecided(parts: Mapping[str, bool | None]) -> str:
    names = " and ".join(name for name, part in parts.items() if part is None)
    return contains("the threshold", f"the interval of {names}")


def _picked_here(measured: Measured) -> str:
    """Return which settings of the main study reach the goal on the seeds that they are picked on."""
    reached: dict[str, dict[float, float]] = {}
    compared = False
    for label in measured.algorithms(roles=("ours", PAPER)):
        for place, other in measured.together(label, measured.first(UCBVI)):
            difference = measured.difference(place, other, "regret")
            compared = compared or difference is not None
            if difference is not None and difference.below(0.0) and kept(measured, place, RARELY):
                reached.setdefault(label, {})[place.budget] = difference.value
    if not compared:
        return ""
    if not reached:
        return "Only a description: no setting of the main study does so on the seeds shown."
    found = []
    for label, regrets in reached.items():
        ends = dict.fromkeys(say_number(end) for end in (min(regrets.values()), max(regrets.values())))
        found.append(f"{label} at {listed(list(regrets))} (regret minus UCBVI's: {' to '.join(ends)})")
    return (
        "Only a description, because settings picked on the same seeds on which they are shown look better "
        f"than they are: in the main study, these do so: {'; '.join(found)}."
    )
