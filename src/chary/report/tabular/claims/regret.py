"""Claims about regret: its rate, its shape over time, how it scales, and what chains are for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from chary.arrays import Floats
from chary.report.claims import (
    NAIVE,
    NOTHING,
    OURS,
    PAPER,
    UCBVI,
    Answer,
    Claim,
    all_of,
    alone,
    at,
    pairs,
    same_for_paper,
    same_results,
    say,
    say_number,
)
from chary.report.measured import Measured, Place
from chary.results import Estimate

__all__ = ["chains_off", "early_regret", "long_run_regret", "rate_claims"]


# How much larger than UCBVI's an exponent of N may be and still count as a similar rate.
SIMILAR_EXPONENT = 0.15
# The theorem promises the exponent 1/2 up to logarithms; a fit over one half of one run needs some room.
ROOT_EXPONENT = 0.6
# Early regret is linear if it grows faster than N^0.85 over the first fifth, and has flattened if it grows at
# most half as fast in the last tenth as in the first.
LINEAR_EARLY, EARLY, FLATTENED = 0.85, 0.2, 0.5
# A ratio to UCBVI's regret does not grow if it is at most a tenth larger at the end than half-way.
GROWS = 1.1
# Excess regret scales like 1/eta if its slope in log-log lies here.
INVERSE_SLOPES = (-1.5, -0.5)
# The naive strategy is linear from here, and chary is not if it stays this far below.
LINEAR, LESS = 0.9, 0.2

SAME = "its results are the same at both in most seeds: this sweep says nothing about the budget"


def rate_claims(measured: Measured) -> list[Claim]:
    """Return a1 and a2: the rate of UCBVI, and ever closer to it."""
    return [_similar_rate(measured), _approaches(measured)]


def long_run_regret(measured: Measured) -> list[Claim]:
    """Return d6 to d8: the theorem's root, the price over time, and 1/eta."""
    return [_root_regret(measured), _ratio(measured), _inverse_eta(measured)]


def _similar_rate(measured: Measured) -> Claim:
    answer = Answer()
    for budget, paper, ucbvi in pairs(measured, PAPER, (UCBVI,)):
        ours, theirs = measured.exponent(paper), measured.exponent(ucbvi)
        difference = measured.exponent_difference(paper, ucbvi)
        begun = theirs.at_most(LINEAR)
        answer.add(
            difference.at_most(SIMILAR_EXPONENT) if begun else None,
            f"{at(budget)}: exponent {say(ours, 2)} against {say(theirs, 2)}, difference "
            f"{say(difference, 2)}",
            seeds=len(measured.common(paper, ucbvi)),
            why=f"undecided: the interval holds {SIMILAR_EXPONENT:g}"
            if begun and difference.known
            else f"not comparable: UCBVI's own is not surely below {LINEAR:g}",
            budget=budget,
            exponent=ours.value,
            exponent_ucbvi=theirs.value,
            difference=difference.value,
            low=difference.low,
            high=difference.high,
        )
    variants = [
        f"{label} {', '.join(f'{measured.exponent(Place(label, budget)).value:.2g}' for budget in budgets)}"
        for label in measured.algorithms(roles=OURS)
        if (budgets := [each for each in measured.budgets() if measured.has(Place(label, each))])
    ]
    return answer.claim(
        "a1",
        "section 5, appendix B",
        "The regret converges at a rate similar to UCBVI's.",
        "At every budget, the exponent of N in the paper's variant's cumulative regret, fitted over the "
        f"second half of the run, is at most UCBVI's + {SIMILAR_EXPONENT:g}, with the whole interval of "
        f"their difference at equal seeds. Comparable only where UCBVI's own is below {LINEAR:g}, with its "
        "interval: before, nothing converges.",
        unmeasured="needs an algorithm with role paper and one with role unconstrained",
        notes=(
            f"Our variants, by budget: {'; '.join(variants)}." if variants else "",
            same_for_paper(measured),
        ),
    )


def _approaches(measured: Measured) -> Claim:
    answer = Answer()
    found = list(pairs(measured, PAPER, (UCBVI,)))
    if len(found) >= 2:
        words = []
        for budget, paper, ucbvi in found:
            mine, theirs = measured.paired(paper, ucbvi, "regret")
            words.append(f"{_over(mine, theirs):.3g} at {at(budget)}")
        small, large, ucbvi = found[0][1], found[-1][1], found[0][2]
        common = measured.common(small, large, ucbvi)

        def change_of_distance(means: Floats) -> Floats:
            ratios = means[:, :2] / np.maximum(means[:, 2:], NOTHING)
            return np.asarray(np.abs(ratios[:, 1] - 1.0) - np.abs(ratios[:, 0] - 1.0))

        change = measured.of_means(
            [measured.at_seeds(place, "regret", common) for place in (small, large, ucbvi)],
            change_of_distance,
        )
        same = measured.same_results(small, large)
        answer.add(
            None if same else change.below(0.0),
            f"regret over UCBVI's: {', '.join(words)}; the distance from 1 changes by {say(change)} from the "
            "smallest to the largest budget",
            seeds=len(common),
            why=SAME if same else "undecided: the interval holds 0",
            change=change.value,
            low=change.low,
            high=change.high,
        )
    return answer.claim(
        "a2",
        "section 5",
        "The regret moves closer to UCBVI's as the budget increases.",
        "The distance of the paper's variant's regret from UCBVI's, as a share of the latter, is smaller at "
        "the largest budget than at the smallest, with the whole paired interval. Not comparable where the "
        "results at both are the same in most seeds.",
        unmeasured="needs two budgets at least",
        notes=[same_results(measured, label) for label in measured.algorithms(roles=(PAPER,))[:1]],
    )


def early_regret(measured: Measured) -> Claim:
    """Return c1: linear at first, then flat."""
    answer = Answer()
    for budget, paper in alone(measured, PAPER):
        early = measured.exponent(paper, start=0.0, stop=EARLY)
        slopes = [measured.column(paper, f"regret_{end}_slope") for end in ("early", "late")]
        first, last = (float(slope.mean()) for slope in slopes)
        halves = [float(measured.column(paper, f"regret_{half}_half").mean()) for half in ("first", "second")]
        flat = measured.of_means(slopes, _second_over_first)
        flat = flat._replace(low=float(np.maximum(flat.low, 0.0)))
        linear, flattened = early.above(LINEAR_EARLY), flat.at_most(FLATTENED)
        undecided = [
            f"the interval of the {name} holds {threshold:g}"
            for part, name, threshold in (
                (linear, "early exponent", LINEAR_EARLY),
                (flattened, "ratio", FLATTENED),
            )
            if part is None
        ]
        answer.add(
            all_of(linear, flattened),
            f"{at(budget)}: early exponent {say(early, 2)}; regret an episode {say_number(first, 3)} in the "
            f"first tenth and {say_number(last, 3)} in the last, ratio {say(flat, 2)}; "
            f"{say_number(halves[0], 3)} in the first half and {say_number(halves[1], 3)} in the second",
            seeds=len(measured.seeds(paper)),
            why=f"undecided: {' and '.join(undecided)}",
            budget=budget,
            early_exponent=early.value,
            early_slope=first,
            late_slope=last,
            ratio=flat.value,
            ratio_low=flat.low,
            ratio_high=flat.high,
            first_half=halves[0],
            second_half=halves[1],
        )
    return answer.claim(
        "c1",
        "appendix B",
        "Regret starts out linearly, then flattens.",
        f"At every budget, the paper's variant's regret grows faster than N^{LINEAR_EARLY:g} over the first "
        f"fifth of the episodes, and at most {FLATTENED:g} times as fast in the last tenth as in the first, "
        "both with their whole intervals.",
        unmeasured="needs an algorithm with role paper",
        notes=(same_for_paper(measured),),
    )


def _root_regret(measured: Measured) -> Claim:
    answer = Answer()
    for budget, paper in alone(measured, PAPER):
        exponent = measured.exponent(paper)
        answer.add(
            exponent.at_most(ROOT_EXPONENT),
            f"{at(budget)}: exponent {say(exponent, 2)}",
            seeds=len(measured.seeds(paper)),
            why=f"undecided: the interval holds {ROOT_EXPONENT:g}" if exponent.known else "unknown",
            budget=budget,
            exponent=exponent.value,
            low=exponent.low,
            high=exponent.high,
        )
    return answer.claim(
        "d6",
        "Theorem 4.3",
        "The regret grows at most like √N, up to logarithms.",
        "At every budget, the exponent of N fitted to the paper's variant's regret over the second half is "
        f"at most {ROOT_EXPONENT:g}, with its whole interval: 1/2, and some room for logarithms.",
        unmeasured="needs an algorithm with role paper",
        notes=(same_for_paper(measured),),
    )


def _ratio(measured: Measured) -> Claim:
    answer = Answer()
    for budget, paper, ucbvi in pairs(measured, PAPER, (UCBVI,)):
        common = measured.common(paper, ucbvi)
        if not common:
            continue
        episodes = measured.curves(paper, "regret").episodes
        half = int(np.searchsorted(episodes, episodes[-1] / 2))
        ours, theirs = (measured.curves_at(place, "regret", common) for place in (paper, ucbvi))
        middle, end = (_over(ours[:, i], theirs[:, i]) for i in (half, -1))
        # In logarithms, where a ratio and its inverse are alike.
        growth = measured.of_means(
            [each[:, i] for i in (half, -1) for each in (ours, theirs)], _log_growth_of_ratio
        )
        factor = Estimate(*(float(np.exp(each)) for each in growth))
        answer.add(
            factor.at_most(GROWS),
            f"{at(budget)}: {middle:.3g} at N/2 and {end:.3g} at N, a change by the factor {say(factor)}",
            seeds=len(common),
            why=f"undecided: the interval holds {GROWS:g}" if factor.known else "unknown",
            budget=budget,
            half=middle,
            end=end,
            factor=factor.value,
            low=factor.low,
            high=factor.high,
        )
    return answer.claim(
        "d7",
        "section 6",
        "The price of being conservative is a factor on UCBVI's regret that does not depend on N.",
        f"At every budget, the ratio of the mean regrets at N is at most {GROWS:g} times that at N/2, with "
        "the whole interval of that factor at equal seeds.",
        unmeasured="needs an algorithm with role paper and one with role unconstrained",
        notes=(same_for_paper(measured),),
    )


def _inverse_eta(measured: Measured) -> Claim:
    answer = Answer()
    found = [each for each in pairs(measured, PAPER, (UCBVI,)) if each[0] > 0]
    common = measured.common(*(place for _, *both in found for place in both)) if found else []
    if len(found) >= 2 and common:
        columns = [measured.at_seeds(paper, "regret", common) for _, paper, _ in found]
        columns.append(measured.at_seeds(found[0][2], "regret", common))
        excess = [float((column - columns[-1]).mean()) for column in columns[:-1]]
        logs = np.log([budget for budget, _, _ in found])
        slope = measured.of_means(columns, lambda means: _excess_slope(means, logs))
        words = ", ".join(
            f"{say_number(value, 3)} at {at(budget)}"
            for value, (budget, _, _) in zip(excess, found, strict=True)
        )
        low, high = INVERSE_SLOPES
        same = any(group for group in measured.same_budgets(found[0][1].algorithm))
        inside = all_of(slope.at_most(high), slope.above(low))
        if same:
            why = (
                "its results are the same at some of these budgets in most seeds, and do not scale with them"
            )
        elif min(excess) <= 0:
            why = "where there is no excess there is nothing to scale"
        elif not slope.known:
            why = "in some resamples of the seeds there is no excess to scale"
        else:
            why = f"undecided: the interval holds {low:g} or {high:g}"
        shown = f"slope {say(slope, 2)}; " if math.isfinite(slope.value) else ""
        answer.add(
            None if same or min(excess) <= 0 else inside,
            f"{shown}regret beyond UCBVI's: {words}",
            seeds=len(common),
            why=why,
            slope=slope.value,
            low=slope.low,
            high=slope.high,
        )
    return answer.claim(
        "d8",
        "Theorem 4.3",
        "The regret beyond UCBVI's scales like 1/η.",
        f"The slope of the paper's variant's excess regret against η, both logarithmic, lies from "
        f"{INVERSE_SLOPES[0]:g} to {INVERSE_SLOPES[1]:g} with its whole interval at equal seeds. Not "
        "comparable where there is no excess, or results at different budgets are the same in most "
        "seeds.",
        unmeasured="needs two budgets at least",
        notes=[same_results(measured, label) for label in measured.algorithms(roles=(PAPER,))[:1]],
    )


def chains_off(measured: Measured) -> Claim:
    """Return e1: what the naive strategy costs."""
    answer = Answer()
    for study in measured.studies():
        for variant in measured.variants(study):
            where = {"study": study, "variant": variant}
            for budget, naive, ours in pairs(measured, NAIVE, OURS, **where):
                off, on = measured.exponent(naive), measured.exponent(ours)
                apart = measured.exponent_difference(naive, ours)
                difference = measured.difference(naive, ours, "regret")
                answer.add(
                    all_of(
                        off.above(LINEAR),
                        apart.above(LESS),
                        None if difference is None else difference.above(0.0),
                    ),
                    f"{variant or study}, {at(budget)}: exponent {say(off, 2)} without chains, {say(on, 2)} "
                    f"with, smaller by {say(apart, 2)}; regret "
                    f"{say_number(measured.mean(naive, 'regret').value, 3)} against "
                    f"{say_number(measured.mean(ours, 'regret').value, 3)}, "
                    f"difference {say(difference) if difference is not None else 'unknown'}",
                    seeds=len(measured.common(naive, ours)),
                    why="undecided: an interval holds its threshold",
                    study=study,
                    variant=variant,
                    budget=budget,
                    exponent_off=off.value,
                    exponent_on=on.value,
                )
    return answer.claim(
        "e1",
        "section 3",
        "Exploring only from the start of each episode (chains off) is biased and has linear regret.",
        f"Without chains the exponent over the second half is above {LINEAR:g}, with them smaller by more "
        f"than {LESS:g}, and the paired difference in regret is above zero, each with its whole interval.",
        unmeasured="needs a study in which chains are off",
    )


def _over(ours: Floats, theirs: Floats) -> float:
    below = float(np.mean(theirs)) if len(theirs) else 0.0
    return float(np.mean(ours)) / below if below > NOTHING else math.nan


def _second_over_first(means: Floats) -> Floats:
    first, second = means.T
    return np.asarray(np.divide(second, first, out=np.full(len(means), np.nan), where=first > NOTHING))


def _log_growth_of_ratio(means: Floats) -> Floats:
    """Return log((ours / theirs at N) / (ours / theirs at N/2)), NaN where one of the four is nothing."""
    known = np.all(means > NOTHING, axis=1)
    ours_half, theirs_half, ours, theirs = np.log(np.where(known[:, None], means, 1.0)).T
    return np.asarray(np.where(known, ours - theirs - ours_half + theirs_half, np.nan))


def _excess_slope(means: Floats, logs: Sequence[float] | Floats) -> Floats:
    """Return the slope of log excess on log eta; the last column of `means` is UCBVI's."""
    excess = means[:, :-1] - means[:, -1:]
    known = np.all(excess > NOTHING, axis=1)
    centred = np.asarray(logs) - np.mean(logs)
    values = np.log(np.where(known[:, None], excess, 1.0)) @ centred / (centred @ centred)
    return np.asarray(np.where(known, values, np.nan))
