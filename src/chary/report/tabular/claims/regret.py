"""Claims about regret: its rate, its shape over time, its scaling, and the purpose of chains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
    at,
    contains,
    say,
    say_number,
)
from chary.report.measured import Measured, Place
from chary.report.tabular.claims.facts import TEXTS, same_for_paper, same_results
from chary.statistics import Estimate

# A rate is similar if the exponent of N exceeds UCBVI's by at most this.
SIMILAR_EXPONENT = 0.15
# The theorem promises the exponent 1/2 up to logarithms; a fit over half of a run needs a margin.
ROOT_EXPONENT = 0.6
# Early regret is linear if it grows faster than N^0.85 over the first fifth, and has flattened if it grows at
# most half as fast in the last tenth as in the first.
LINEAR_EARLY, EARLY, FLATTENED = 0.85, 0.2, 0.5
# A ratio to UCBVI's regret does not grow if it is at most a tenth larger at the end than half-way.
GROWS = 1.1
# Excess regret scales like 1/eta if its slope in log-log is in this interval.
INVERSE_SLOPES = (-1.5, -0.5)
# The naive strategy is linear above this exponent, and chary is not if its exponent is smaller by this much.
LINEAR, LESS = 0.9, 0.2

SAME = "its results are the same at both in most seeds: this sweep shows no effect of the budget"


def rate_claims(measured: Measured) -> list[Claim]:
    """Return a1 and a2: a rate like UCBVI's, and closer to it with larger budgets."""
    return [_similar_rate(measured), _approaches(measured)]


def long_run_regret(measured: Measured) -> list[Claim]:
    """Return d6 to d8: the theorem's square root, the ratio over time, and 1/eta."""
    return [_root_regret(measured), _ratio(measured), _inverse_eta(measured)]


def _similar_rate(measured: Measured) -> Claim:
    answer = Answer()
    for paper, ucbvi in _with_ucbvi(measured):
        ours, theirs = measured.exponent(paper), measured.exponent(ucbvi)
        difference = measured.exponent_difference(paper, ucbvi)
        begun = theirs.at_most(LINEAR)
        answer.add(
            difference.at_most(SIMILAR_EXPONENT) if begun else None,
            f"{at(paper.budget)}: exponent {say(ours, 2)} against {say(theirs, 2)}, difference "
            f"{say(difference, 2)}",
            seeds=len(measured.common(paper, ucbvi)),
            why=contains(f"{SIMILAR_EXPONENT:g}")
            if begun and difference.known
            else f"not comparable: UCBVI's own may not be below {LINEAR:g}",
            budget=paper.budget,
            exponent=ours.value,
            exponent_ucbvi=theirs.value,
            difference=difference,
        )
    variants = []
    for label in measured.algorithms(roles=OURS):
        exponents = [f"{measured.exponent(place).value:.2g}" for (place,) in measured.together(label)]
        variants.append(f"{label} {', '.join(exponents)}")
    return answer.claim(
        TEXTS["a1"],
        notes=(
            f"Our variants, by budget: {'; '.join(variants)}." if variants else "",
            same_for_paper(measured),
        ),
        similar_exponent=SIMILAR_EXPONENT,
        linear=LINEAR,
    )


def _approaches(measured: Measured) -> Claim:
    answer = Answer()
    found = list(_with_ucbvi(measured))
    if len(found) >= 2:
        words = []
        for paper, ucbvi in found:
            mine, theirs = measured.paired(paper, ucbvi, "regret")
            words.append(f"{_over(mine, theirs):.3g} at {at(paper.budget)}")
        (small, ucbvi), (large, _) = found[0], found[-1]
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
            f"regret as a multiple of UCBVI's: {', '.join(words)}; the distance from 1 changes by "
            f"{say(change)} from the smallest to the largest budget",
            seeds=len(common),
            why=SAME if same else contains(0),
            change=change,
        )
    return answer.claim(TEXTS["a2"], notes=(same_results(measured, measured.first(PAPER)),))


def early_regret(measured: Measured) -> Claim:
    """Return c1: regret is linear at first, then flat."""
    answer = Answer()
    for (paper,) in measured.together(measured.first(PAPER)):
        early = measured.exponent(paper, start=0.0, stop=EARLY)
        slopes = [measured.column(paper, f"regret_{end}_slope") for end in ("early", "late")]
        first, last = (float(slope.mean()) for slope in slopes)
        halves = [float(measured.column(paper, f"regret_{half}_half").mean()) for half in ("first", "second")]
        flat = measured.of_means(slopes, _second_over_first)
        flat = flat._replace(low=float(np.maximum(flat.low, 0.0)))
        linear, flattened = early.above(LINEAR_EARLY), flat.at_most(FLATTENED)
        undecided = [
            f"the interval of the {name} contains {threshold:g}"
            for part, name, threshold in (
                (linear, "early exponent", LINEAR_EARLY),
                (flattened, "ratio", FLATTENED),
            )
            if part is None
        ]
        answer.add(
            all_of(linear, flattened),
            f"{at(paper.budget)}: early exponent {say(early, 2)}; regret per episode {say_number(first)} in "
            f"the first tenth and {say_number(last)} in the last, ratio {say(flat, 2)}; "
            f"{say_number(halves[0])} in the first half and {say_number(halves[1])} in the second",
            seeds=len(measured.seeds(paper)),
            why=f"undecided: {' and '.join(undecided)}",
            budget=paper.budget,
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
        TEXTS["c1"], notes=(same_for_paper(measured),), linear_early=LINEAR_EARLY, flattened=FLATTENED
    )


def _root_regret(measured: Measured) -> Claim:
    answer = Answer()
    for (paper,) in measured.together(measured.first(PAPER)):
        exponent = measured.exponent(paper)
        answer.add(
            exponent.at_most(ROOT_EXPONENT),
            f"{at(paper.budget)}: exponent {say(exponent, 2)}",
            seeds=len(measured.seeds(paper)),
            why=contains(f"{ROOT_EXPONENT:g}") if exponent.known else "unknown",
            budget=paper.budget,
            exponent=exponent,
        )
    return answer.claim(TEXTS["d6"], notes=(same_for_paper(measured),), root_exponent=ROOT_EXPONENT)


def _ratio(measured: Measured) -> Claim:
    answer = Answer()
    for paper, ucbvi in _with_ucbvi(measured):
        common = measured.common(paper, ucbvi)
        if not common:
            continue
        episodes = measured.curves(paper, "regret").episodes
        half = int(np.searchsorted(episodes, episodes[-1] / 2))
        ours, theirs = (measured.curves_at(place, "regret", common) for place in (paper, ucbvi))
        middle, end = (_over(ours[:, i], theirs[:, i]) for i in (half, -1))
        # In logarithms, which treat a ratio and its inverse alike.
        growth = measured.of_means(
            [each[:, i] for i in (half, -1) for each in (ours, theirs)], _log_growth_of_ratio
        )
        factor = Estimate(*(float(np.exp(each)) for each in growth))
        answer.add(
            factor.at_most(GROWS),
            f"{at(paper.budget)}: {middle:.3g} at N/2 and {end:.3g} at N, a change by the factor "
            f"{say(factor)}",
            seeds=len(common),
            why=contains(f"{GROWS:g}") if factor.known else "unknown",
            budget=paper.budget,
            half=middle,
            end=end,
            factor=factor,
        )
    return answer.claim(TEXTS["d7"], notes=(same_for_paper(measured),), grows=GROWS)


def _inverse_eta(measured: Measured) -> Claim:
    answer = Answer()
    found = [both for both in _with_ucbvi(measured) if both[0].budget > 0]
    common = measured.common(*(place for both in found for place in both)) if found else []
    if len(found) >= 2 and common:
        places = [*(paper for paper, _ in found), found[0][1]]
        columns = [measured.at_seeds(place, "regret", common) for place in places]
        excess = [float((column - columns[-1]).mean()) for column in columns[:-1]]
        logs = np.log([paper.budget for paper, _ in found])
        slope = measured.of_means(columns, lambda means: _excess_slope(means, logs))
        words = ", ".join(
            f"{say_number(value)} at {at(paper.budget)}"
            for value, (paper, _) in zip(excess, found, strict=True)
        )
        low, high = INVERSE_SLOPES
        same = bool(measured.same_budgets(found[0][0].algorithm))
        inside = all_of(slope.at_most(high), slope.above(low))
        if same:
            why = "its results are the same at some of these budgets in most seeds"
        elif min(excess) <= 0:
            why = "without an excess there is nothing to scale"
        elif not slope.known:
            why = "in some resamples of the seeds there is no excess to scale"
        else:
            why = contains(f"{low:g} or {high:g}")
        shown = f"slope {say(slope, 2)}; " if math.isfinite(slope.value) else ""
        answer.add(
            None if same or min(excess) <= 0 else inside,
            f"{shown}regret beyond UCBVI's: {words}",
            seeds=len(common),
            why=why,
            slope=slope,
        )
    return answer.claim(
        TEXTS["d8"],
        notes=(same_results(measured, measured.first(PAPER)),),
        low=INVERSE_SLOPES[0],
        high=INVERSE_SLOPES[1],
    )


def chains_off(measured: Measured) -> Claim:
    """Return e1: the regret of the naive strategy."""
    answer = Answer()
    for study in measured.studies():
        for variant in measured.variants(study):
            labels = (measured.first(*roles, study=study, variant=variant) for roles in ((NAIVE,), OURS))
            for naive, ours in measured.together(*labels, study=study, variant=variant):
                _judge_chains_off(answer, measured, naive, ours)
    return answer.claim(TEXTS["e1"], linear=LINEAR, less=LESS)


def _judge_chains_off(answer: Answer, measured: Measured, naive: Place, ours: Place) -> None:
    off, on = measured.exponent(naive), measured.exponent(ours)
    apart = measured.exponent_difference(naive, ours)
    difference = measured.difference(naive, ours, "regret")
    regrets = " against ".join(say_number(measured.mean(each, "regret").value) for each in (naive, ours))
    answer.add(
        all_of(off.above(LINEAR), apart.above(LESS), None if difference is None else difference.above(0.0)),
        f"{naive.variant or naive.study}, {at(naive.budget)}: exponent {say(off, 2)} without chains, "
        f"{say(on, 2)} with, smaller by {say(apart, 2)}; regret {regrets}, "
        f"difference {say(difference) if difference is not None else 'unknown'}",
        seeds=len(measured.common(naive, ours)),
        why=contains("its threshold", "an interval"),
        study=naive.study,
        variant=naive.variant,
        budget=naive.budget,
        exponent_off=off.value,
        exponent_on=on.value,
    )


def _with_ucbvi(measured: Measured) -> Iterator[tuple[Place, ...]]:
    """Yield, budget by budget, the places of the paper's variant and of UCBVI."""
    return measured.together(measured.first(PAPER), measured.first(UCBVI))


def _over(ours: Floats, theirs: Floats) -> float:
    below = float(np.mean(theirs)) if len(theirs) else 0.0
    return float(np.mean(ours)) / below if below > NOTHING else math.nan


def _second_over_first(means: Floats) -> Floats:
    first, second = means.T
    return np.asarray(np.divide(second, first, out=np.full(len(means), np.nan), where=first > NOTHING))


def _log_growth_of_ratio(means: Floats) -> Floats:
    """Return log((ours / theirs at N) / (ours / theirs at N/2)), NaN if one of the four is 0."""
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
