"""The paper's claims, each with the answer that a sweep gives and the rule by which it was given.

The rules are thresholds, written down before a sweep is looked at. The paper's own claims are judged on the
algorithm with role `paper`, run as the paper runs it; what our variants do is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary.assumptions import HOLDS
from chary.report.measured import Measured, Place
from chary.results import Estimate, ViolationRate, resampled_means

__all__ = [
    "NOT_COMPARABLE",
    "NOT_MEASURED",
    "NOT_REPRODUCED",
    "REPRODUCED",
    "VERDICTS",
    "Claim",
    "Facts",
    "Finding",
    "answer_claims",
    "count_verdicts",
    "say",
    "say_rate",
]

Floats = NDArray[np.float64]

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"
NOT_MEASURED = "not measured in this sweep"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE, NOT_MEASURED)

# How much larger than UCBVI's an exponent of N may be and still count as a similar rate.
SIMILAR_EXPONENT = 0.15
# The theorem promises the exponent 1/2 up to logarithms; a fit over one half of one run needs some room.
ROOT_EXPONENT = 0.6
# "Almost every episode": the upper end of the interval is at most one in a hundred.
ALMOST_NEVER = 0.01
# What we ask of ourselves: one in a thousand.
RARELY = 0.001
# Early regret is linear if it grows at least like N^0.85 over the first fifth, and has flattened if it grows
# at most half as fast in the last tenth as in the first.
LINEAR_EARLY, EARLY, FLATTENED = 0.85, 0.2, 0.5
# Chains have become short if those born in the last fifth take at most half as long, or two episodes.
SHORTER, SHORT = 0.5, 2.0
# A ratio to UCBVI's regret does not grow if it is at most a tenth larger at the end than half-way.
GROWS = 1.1
# Excess regret scales like 1/eta if its slope in log-log lies here.
INVERSE_SLOPES = (-1.5, -0.5)
# The naive strategy is linear from here, and chary is not if it stays this far below.
LINEAR, LESS = 0.9, 0.2

# What rounding leaves of nothing.
NOTHING = 1e-9

PAPER, UCBVI, CUCBVI, OURS, NAIVE = "paper", "unconstrained", "conservative", "ours", "naive"


class Finding(NamedTuple):
    """What was found at one budget: whether it fits the claim, None where one cannot tell, and in words."""

    fits: bool | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim, where it is made, the rule for the verdict, the verdict, and what was found.

    `numbers` has one row a finding, or for `g1` one a setting that does what is claimed.
    """

    key: str
    source: str
    statement: str
    rule: str
    verdict: str
    findings: tuple[Finding, ...] = ()
    note: str = ""
    numbers: tuple[Mapping[str, Any], ...] = ()

    @property
    def answer(self) -> str:
        """What was found out, in one text."""
        words = "; ".join(finding.words for finding in self.findings)
        # Greek letters stay as they are: a capital eta is another letter.
        start = words[:1].upper() if words[:1].isascii() else words[:1]
        return " ".join(part for part in (f"{start}{words[1:]}." if words else "", self.note) if part)

    def to_json(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {
            "key": self.key,
            "source": self.source,
            "statement": self.statement,
            "rule": self.rule,
            "verdict": self.verdict,
            "answer": self.answer,
            "findings": [finding._asdict() for finding in self.findings],
            "numbers": [dict(row) for row in self.numbers],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the lemmas' bounds need to know of the problem.

    Args:
        horizon: H.
        states: S, all of them.
        actions: A, the largest number of actions.
        delta: The probability with which the event of the lemmas may fail.
        span: The user's reward units in one scaled unit, in which the paper has eta.
        diameter: What `check_assumptions` answers on Assumption 2.2.
        diameter_says: The same in a sentence.
    """

    horizon: int
    states: int
    actions: int
    delta: float
    span: float
    diameter: str
    diameter_says: str


@dataclass(slots=True)
class _Answer:
    """What is found out about a claim, budget by budget."""

    findings: list[Finding] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)

    def add(self, fits: bool | None, words: str, **numbers: Any) -> None:
        self.findings.append(Finding(None if fits is None else bool(fits), words))
        self.numbers.append(numbers)

    def verdict(self) -> str:
        """Return `reproduced` if it is so at every budget; None is where one cannot tell."""
        if not self.findings:
            return NOT_MEASURED
        fits = [finding.fits for finding in self.findings]
        if False in fits:
            return NOT_REPRODUCED
        return NOT_COMPARABLE if None in fits else REPRODUCED

    def claim(
        self, key: str, source: str, statement: str, rule: str, *, unmeasured: str, note: str = ""
    ) -> Claim:
        """Return the claim with its answer; `unmeasured` says what is missing where nothing was found."""
        return Claim(
            key=key,
            source=source,
            statement=statement,
            rule=rule,
            verdict=self.verdict(),
            findings=tuple(self.findings),
            note=note if self.findings else f"{unmeasured[0].upper()}{unmeasured[1:]}.",
            numbers=tuple(self.numbers),
        )


def answer_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return every claim of the issue's list with its answer from this sweep."""
    return [
        _similar_rate(measured),
        _approaches(measured),
        _keeps(measured),
        _breaks(measured, UCBVI, "b2", "UCBVI"),
        _breaks(measured, CUCBVI, "b3", "CUCBVI"),
        _more_at_small(measured),
        _flattens(measured),
        _chains_shorten(measured),
        _long_part(measured),
        _missed_part(measured, facts),
        _whole_length(measured, facts),
        _exhausted_sum(measured, facts),
        _root_regret(measured),
        _ratio(measured),
        _inverse_eta(measured),
        _naive(measured),
        *_ours(measured),
        _target(measured),
    ]


def say(estimate: Estimate, digits: int = 3) -> str:
    """Return a number with its interval.

    Example:
        >>> say(Estimate(0.5, 0.25, 1.0)), say(Estimate(2.0, math.nan, math.nan))
        ('0.5 (0.25 to 1)', '2')
    """
    if not math.isfinite(estimate.value):
        return "unknown"
    value = f"{_number(estimate.value, digits)}"
    if not math.isfinite(estimate.low):
        return value
    return f"{value} ({_number(estimate.low, digits)} to {_number(estimate.high, digits)})"


def say_rate(rate: ViolationRate) -> str:
    """Return violations per 1,000 episodes with their interval.

    Example:
        >>> from chary.results import violation_rate
        >>> say_rate(violation_rate([1], [1000]))
        '1 (0.0253 to 5.56)'
    """
    low, high = rate.interval
    return say(Estimate(1000 * rate.rate, 1000 * low, 1000 * high))


def _number(value: float, digits: int) -> str:
    if abs(value) < NOTHING:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def _over(ours: float, theirs: float) -> float:
    return float(ours) / float(theirs) if theirs > NOTHING else math.nan


def _at(budget: float) -> str:
    return f"η = {budget:g}"


def _pairs(measured: Measured, role: str, other: str, **where: str) -> Iterable[tuple[float, Place, Place]]:
    """Yield, budget by budget, the places of the first algorithms that stand for two roles."""
    ours, theirs = (measured.algorithms(**where, roles=(each,)) for each in (role, other))
    for budget in measured.budgets(**where):
        if ours and theirs:
            one, two = Place(ours[0], budget, **where), Place(theirs[0], budget, **where)
            if measured.has(one) and measured.has(two):
                yield budget, one, two


def _alone(measured: Measured, role: str) -> Iterable[tuple[float, Place]]:
    for budget in measured.budgets():
        for algorithm in measured.algorithms(roles=(role,))[:1]:
            if measured.has(Place(algorithm, budget)):
                yield budget, Place(algorithm, budget)


def _similar_rate(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper, ucbvi in _pairs(measured, PAPER, UCBVI):
        ours, theirs = measured.exponent(paper), measured.exponent(ucbvi)
        # NaN compares as False: what is not known cannot be compared either.
        comparable = math.isfinite(ours.value) and theirs.value < LINEAR
        answer.add(
            ours.value <= theirs.value + SIMILAR_EXPONENT if comparable else None,
            f"{_at(budget)}: exponent {say(ours, 2)} against {say(theirs, 2)}",
            budget=budget,
            exponent=ours.value,
            low=ours.low,
            high=ours.high,
            exponent_ucbvi=theirs.value,
        )
    variants = [
        f"{label} {', '.join(f'{measured.exponent(Place(label, budget)).value:.2g}' for budget in budgets)}"
        for label in measured.algorithms(roles=(OURS,))
        if (budgets := [each for each in measured.budgets() if measured.has(Place(label, each))])
    ]
    return answer.claim(
        "a1",
        "section 5, appendix B",
        "The regret converges at a rate similar to UCBVI's.",
        "At every budget, the exponent of N in the paper's variant's cumulative regret, fitted over the "
        f"second half of the run, is at most UCBVI's + {SIMILAR_EXPONENT:g}. Comparable only where UCBVI's "
        f"own is below {LINEAR:g}: before, nothing converges.",
        unmeasured="needs an algorithm with role paper and one with role unconstrained",
        note=f"Our variants, by budget: {'; '.join(variants)}." if variants else "",
    )


def _approaches(measured: Measured) -> Claim:
    answer = _Answer()
    pairs = list(_pairs(measured, PAPER, UCBVI))
    if len(pairs) >= 2:
        words = []
        for budget, paper, ucbvi in pairs:
            mine, theirs = measured.paired(paper, ucbvi, "regret")
            words.append(f"{_over(mine.mean(), theirs.mean()):.3g} at {_at(budget)}")
        change = _change_of_distance(measured, pairs[0][1], pairs[-1][1], pairs[0][2])
        answer.add(
            change.below_zero if math.isfinite(change.low) else None,
            f"regret over UCBVI's: {', '.join(words)}; the distance from 1 changes by {say(change)} from the "
            "smallest to the largest budget",
            change=change.value,
            low=change.low,
            high=change.high,
        )
    return answer.claim(
        "a2",
        "section 5",
        "The regret moves closer to UCBVI's as the budget increases.",
        "The distance of the paper's variant's regret from UCBVI's, as a share of the latter, is smaller at "
        "the largest budget than at the smallest, with the whole paired interval.",
        unmeasured="needs two budgets at least",
    )


def _change_of_distance(measured: Measured, small: Place, large: Place, ucbvi: Place) -> Estimate:
    """Return |ratio - 1| at the large budget less that at the small one, ratios of means over equal seeds."""
    places = (small, large, ucbvi)
    common = sorted(set.intersection(*(set(measured.seeds(place)) for place in places)))
    unknown = Estimate(math.nan, math.nan, math.nan)
    if not common:
        return unknown
    regrets = np.column_stack([measured.at_seeds(place, "regret", common) for place in places])

    def change(means: Floats) -> Floats:
        ratios = means[:, :2] / np.maximum(means[:, 2:], NOTHING)
        return np.asarray(np.abs(ratios[:, 1] - 1.0) - np.abs(ratios[:, 0] - 1.0))

    value = float(change(regrets.mean(axis=0)[None, :])[0])
    if len(common) == 1:
        return unknown._replace(value=value)
    low, high = np.quantile(change(resampled_means(regrets)), (0.025, 0.975))
    return Estimate(value, float(low), float(high))


def _keeps(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        rate = measured.rate(paper)
        answer.add(
            rate.interval.high <= ALMOST_NEVER,
            f"{_at(budget)}: {say_rate(rate)} per 1,000 episodes, {rate.broken_runs} of {rate.runs} runs "
            f"with any; {measured.mean(paper, 'exploring_steps').value:,.0f} exploring steps a run",
            budget=budget,
            violations=rate.violations,
            episodes=rate.episodes,
            low=rate.interval.low,
            high=rate.interval.high,
            broken_runs=rate.broken_runs,
            runs=rate.runs,
        )
    return answer.claim(
        "b1",
        "section 5, appendix B",
        "The budget is kept in almost every episode, at every budget.",
        f"At every budget, the upper end of the Clopper-Pearson interval of the paper's variant's rate of "
        f"violations is at most {ALMOST_NEVER:g} an episode.",
        unmeasured="needs an algorithm with role paper",
        note="Whoever hardly explores keeps any budget: see the steps.",
    )


def _breaks(measured: Measured, role: str, key: str, name: str) -> Claim:
    answer = _Answer()
    broke = 0
    for budget, paper, other in _pairs(measured, PAPER, role):
        ours, theirs = measured.rate(paper), measured.rate(other)
        broke += theirs.violations
        answer.add(
            theirs.interval.low > ours.interval.high,
            f"{_at(budget)}: {say_rate(theirs)} per 1,000 episodes against {say_rate(ours)}",
            budget=budget,
            rate=theirs.rate,
            rate_paper=ours.rate,
        )
    return answer.claim(
        key,
        "section 5" if role == CUCBVI else "section 5, appendix B",
        f"{name} breaks the budget significantly more, even where it is large.",
        f"At every budget, the lower end of the interval of {name}'s rate of violations is above the upper "
        "end of the paper's variant's.",
        unmeasured=f"needs an algorithm with role paper and one with role {role}",
        note="" if broke else f"{name} broke no budget in any episode of this sweep.",
    )


def _more_at_small(measured: Measured) -> Claim:
    answer = _Answer()
    places = list(_alone(measured, UCBVI))
    if len(places) >= 2:
        rates = [(budget, measured.rate(place)) for budget, place in places]
        answer.add(
            rates[0][1].interval.low > rates[-1][1].interval.high,
            ", ".join(f"{say_rate(rate)} per 1,000 at {_at(budget)}" for budget, rate in rates),
            small=rates[0][1].rate,
            large=rates[-1][1].rate,
        )
    return answer.claim(
        "b4",
        "appendix B",
        "UCBVI breaks the budget in more episodes where it is small.",
        "The lower end of the interval of UCBVI's rate of violations at the smallest budget is above the "
        "upper end at the largest.",
        unmeasured="needs two budgets at least",
    )


def _flattens(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        early = measured.exponent(paper, start=0.0, stop=EARLY)
        first, last = (measured.column(paper, f"regret_{end}_slope").mean() for end in ("early", "late"))
        halves = [measured.column(paper, f"regret_{half}_half").mean() for half in ("first", "second")]
        decided = bool(early.value >= LINEAR_EARLY and last <= FLATTENED * first)
        answer.add(
            decided if math.isfinite(early.value) else None,
            f"{_at(budget)}: early exponent {early.value:.2g}, regret an episode {first:.3g} in the first "
            f"tenth and {last:.3g} in the last, {halves[0]:.3g} in the first half and {halves[1]:.3g} in the "
            "second",
            budget=budget,
            early_exponent=early.value,
            early_slope=float(first),
            late_slope=float(last),
            first_half=float(halves[0]),
            second_half=float(halves[1]),
        )
    return answer.claim(
        "c1",
        "appendix B",
        "Regret starts out linearly, then flattens.",
        f"At every budget, the paper's variant's regret grows at least like N^{LINEAR_EARLY:g} over the "
        f"first fifth of the episodes, and at most {FLATTENED:g} times as fast in the last tenth as in the "
        "first.",
        unmeasured="needs an algorithm with role paper",
    )


def _chains_shorten(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        episodes, lengths, _ = measured.curves(paper, "chain_episodes")
        counts = measured.curves(paper, "chains_finished").values
        ends = []
        for inside in (episodes <= EARLY * episodes[-1], episodes > (1 - EARLY) * episodes[-1]):
            count = counts[:, inside]
            total = np.where(count > 0, lengths[:, inside], 0.0) * count
            ends.append(float(total.sum() / count.sum()) if count.sum() else math.nan)
        first, last = ends
        known = math.isfinite(first) and math.isfinite(last)
        answer.add(
            last <= max(SHORTER * first, SHORT) if known else None,
            f"{_at(budget)}: mean N_m {first:.3g} of chains born in the first fifth, {last:.3g} in the last"
            if known
            else f"{_at(budget)}: too few chains were finished",
            budget=budget,
            first=first,
            last=last,
        )
    return answer.claim(
        "d1",
        "section 4",
        "The number of episodes N_m that a meta-episode takes becomes small.",
        f"At every budget, chains of the paper's variant born in the last fifth of the episodes take at most "
        f"{SHORTER:g} times as many as those born in the first, or {SHORT:g}.",
        unmeasured="needs an algorithm with role paper",
        note="Chains that were not finished do not count, which favours short ones at the end.",
    )


def _long_part(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        longest = measured.known(paper, "chain_long_max")
        if len(longest):
            answer.add(
                bool(longest.max() <= 4),
                f"{_at(budget)}: at most {longest.max():.0f}",
                budget=budget,
                most=float(longest.max()),
            )
    return answer.claim(
        "d2",
        "section 4",
        "At most four episodes of a meta-episode advance it by H/4 steps or more: N_m² ≤ 4.",
        "No finished chain of the paper's variant has more than four such episodes.",
        unmeasured="no chain was finished",
    )


def _missed_part(measured: Measured, facts: Facts) -> Claim:
    factor = max(6.0 * math.log(1.0 / facts.delta) - 1.0, 0.0)
    return _by_chain(
        measured,
        facts,
        "chains_within_missed_bound",
        key="d3",
        source="Lemma 4.7 and its use",
        statement=f"The target is missed in at most 6 log(1/δ) - 1 = {factor:.3g} episodes for each that "
        "feeds the chain or exhausts its budget: N_m³ ≤ (N_m¹ + N_m²) max(6 log(1/δ) - 1, 0).",
        about="the bound on N_m³",
    )


def _whole_length(measured: Measured, facts: Facts) -> Claim:
    factor = 30.0 * math.log(1.0 / facts.delta)
    return _by_chain(
        measured,
        facts,
        "chains_within_length_bound",
        key="d4",
        source="Lemma 4.8",
        statement=f"N_m ≤ max(30 N_m¹ log(1/δ), 1), here {factor:.3g} N_m¹.",
        about="the bound on N_m",
    )


def _by_chain(
    measured: Measured, facts: Facts, column: str, *, key: str, source: str, statement: str, about: str
) -> Claim:
    """Answer a lemma that bounds every chain on an event of probability 1 - delta, given Assumption 2.2."""
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        finished = float(measured.column(paper, "chains_finished").sum())
        if not finished:
            continue
        share = float(measured.column(paper, column).sum()) / finished
        answer.add(
            share >= 1.0 - facts.delta if facts.diameter == HOLDS else None,
            f"{_at(budget)}: {about} holds for {100 * share:.3g} % of {finished:,.0f} finished chains",
            budget=budget,
            share=share,
            chains=finished,
        )
    comparable = facts.diameter == HOLDS
    return answer.claim(
        key,
        source,
        statement,
        "Comparable only where Assumption 2.2 holds; then at every budget at least 1 - δ = "
        f"{1 - facts.delta:g} of the finished chains of the paper's variant keep the bound.",
        unmeasured="no chain was finished",
        note=""
        if comparable
        else f"The lemma assumes what this problem does not have: {facts.diameter_says}",
    )


def _exhausted_sum(measured: Measured, facts: Facts) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        episodes = float(measured.column(paper, "episodes").max())
        exhausted = float(measured.column(paper, "chain_exhausted").mean())
        H, S, A, eta = facts.horizon, facts.states, facts.actions, budget / facts.span
        log = math.log(5 * S * A * H * episodes / facts.delta)
        bound = 24.0 * H**2 * S * math.sqrt(A * log * H * episodes) / eta if eta > 0 else math.inf
        decided = None if bound >= episodes else exhausted <= bound
        answer.add(
            decided,
            f"{_at(budget)}: {exhausted:,.0f} episodes exhausted the budget, the bound is {bound:.2g}",
            budget=budget,
            exhausted=exhausted,
            bound=bound,
            episodes=episodes,
        )
    vacuous = any(finding.fits is None for finding in answer.findings)
    return answer.claim(
        "d5",
        "Lemmas 4.5 and 4.6",
        "Over the whole run the budget is exhausted in at most Σ N_m¹ ≤ (24 H² S / η) √(A L H N) episodes.",
        "Comparable only where the bound is below the number of episodes; then it must hold at every budget.",
        unmeasured="needs an algorithm with role paper",
        note="The bound exceeds the number of episodes: nothing could break it." if vacuous else "",
    )


def _root_regret(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper in _alone(measured, PAPER):
        exponent = measured.exponent(paper)
        answer.add(
            exponent.value <= ROOT_EXPONENT if math.isfinite(exponent.value) else None,
            f"{_at(budget)}: {say(exponent, 2)}",
            budget=budget,
            exponent=exponent.value,
            low=exponent.low,
            high=exponent.high,
        )
    return answer.claim(
        "d6",
        "Theorem 4.3",
        "The regret grows like √N, up to logarithms.",
        "At every budget, the exponent of N fitted to the paper's variant's regret over the second half is "
        f"at most {ROOT_EXPONENT:g}.",
        unmeasured="needs an algorithm with role paper",
    )


def _ratio(measured: Measured) -> Claim:
    answer = _Answer()
    for budget, paper, ucbvi in _pairs(measured, PAPER, UCBVI):
        episodes, ours, _ = measured.curves(paper, "regret")
        theirs = measured.curves(ucbvi, "regret").values
        half = int(np.searchsorted(episodes, episodes[-1] / 2))
        middle, end = (_over(ours[:, i].mean(), theirs[:, i].mean()) for i in (half, -1))
        answer.add(
            end <= GROWS * middle if math.isfinite(middle) and math.isfinite(end) else None,
            f"{_at(budget)}: {middle:.3g} at N/2, {end:.3g} at N",
            budget=budget,
            half=middle,
            end=end,
        )
    return answer.claim(
        "d7",
        "section 6",
        "The price of being conservative is a factor on UCBVI's regret that does not depend on N.",
        f"At every budget, the ratio of the mean regrets at N is at most {GROWS:g} times that at N/2.",
        unmeasured="needs an algorithm with role paper and one with role unconstrained",
    )


def _inverse_eta(measured: Measured) -> Claim:
    answer = _Answer()
    excess = [
        (budget, difference.value)
        for budget, paper, ucbvi in _pairs(measured, PAPER, UCBVI)
        if budget > 0 and (difference := measured.difference(paper, ucbvi, "regret")) is not None
    ]
    note = ""
    if len(excess) >= 2:
        words = ", ".join(f"{_number(value, 3)} at {_at(budget)}" for budget, value in excess)
        if min(value for _, value in excess) <= 0:
            answer.add(None, f"regret beyond UCBVI's: {words}")
            note = "Where there is no excess there is nothing to scale."
        else:
            logs = np.log(np.array(excess))
            slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
            low, high = INVERSE_SLOPES
            answer.add(
                low <= slope <= high,
                f"slope {_number(slope, 2)}; regret beyond UCBVI's: {words}",
                slope=slope,
            )
    return answer.claim(
        "d8",
        "Theorem 4.3",
        "The regret beyond UCBVI's scales like 1/η.",
        f"The slope of the paper's variant's excess regret against η, both logarithmic, lies from "
        f"{INVERSE_SLOPES[0]:g} to {INVERSE_SLOPES[1]:g}.",
        unmeasured="needs two budgets at least",
        note=note,
    )


def _naive(measured: Measured) -> Claim:
    answer = _Answer()
    for study in measured.studies():
        for variant in measured.variants(study):
            where = {"study": study, "variant": variant}
            for budget, naive, ours in _pairs(measured, NAIVE, OURS, **where):
                off, on = measured.exponent(naive), measured.exponent(ours)
                difference = measured.difference(naive, ours, "regret")
                known = difference is not None and all(math.isfinite(each) for each in (off.value, on.value))
                more = difference is not None and difference.above_zero
                answer.add(
                    off.value >= LINEAR and on.value <= off.value - LESS and more if known else None,
                    f"{variant or study}, {_at(budget)}: exponent {say(off, 2)} without chains, {say(on, 2)} "
                    f"with; regret {_number(measured.mean(naive, 'regret').value, 3)} against "
                    f"{_number(measured.mean(ours, 'regret').value, 3)}, "
                    f"difference {say(difference) if difference is not None else 'unknown'}",
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
        f"Without chains the exponent over the second half is at least {LINEAR:g}, with them smaller by "
        f"{LESS:g} or more, and the paired difference in regret is above zero with its whole interval.",
        unmeasured="needs a study in which chains are off",
    )


def _ours(measured: Measured) -> list[Claim]:
    claims = []
    for i, label in enumerate(measured.algorithms(roles=(OURS,)), start=1):
        answer = _Answer()
        for budget, paper in _alone(measured, PAPER):
            place = Place(label, budget)
            if not measured.has(place):
                continue
            steps, regret = (
                measured.difference(place, paper, name) for name in ("exploring_steps", "regret")
            )
            if steps is None or regret is None:
                continue
            rate = measured.rate(place)
            decided = steps.above_zero and regret.below_zero and rate.rate <= RARELY
            answer.add(
                decided if math.isfinite(steps.low) else None,
                f"{_at(budget)}: exploring steps {say(steps)}, regret {say(regret)}, violations "
                f"{say_rate(rate)} per 1,000 against {say_rate(measured.rate(paper))}",
                budget=budget,
                exploring_steps=steps.value,
                regret=regret.value,
                rate=rate.rate,
                rate_paper=measured.rate(paper).rate,
            )
        claims.append(
            answer.claim(
                f"f{i}",
                "this project",
                f"“{label}” explores more than the paper's variant, loses less and still keeps the budget.",
                "At every budget, the paired differences are above zero for exploring steps and below zero "
                f"for regret, with their whole intervals, and at most {RARELY:g} of the episodes break the "
                "budget.",
                unmeasured="needs an algorithm with role paper",
            )
        )
    return claims


def _target(measured: Measured) -> Claim:
    answer = _Answer()
    reached, words, compared = [], [], False
    for label in measured.algorithms(roles=(OURS, PAPER)):
        for budget in measured.budgets():
            for ucbvi in measured.algorithms(roles=(UCBVI,))[:1]:
                place, other = Place(label, budget), Place(ucbvi, budget)
                if not (measured.has(place) and measured.has(other)):
                    continue
                difference = measured.difference(place, other, "regret")
                compared = compared or difference is not None
                if difference is not None and difference.below_zero and measured.rate(place).rate <= RARELY:
                    reached.append({"algorithm": label, "budget": budget, "regret": difference.value})
                    words.append(
                        f"{label} at {_at(budget)}: {say_rate(measured.rate(place))} violations per 1,000 "
                        f"episodes, regret {say(difference)} against UCBVI's"
                    )
    if compared:
        answer.add(bool(reached), "; ".join(words) if words else "no algorithm at any budget does")
        answer.numbers = reached
    return answer.claim(
        "g1",
        "this project",
        "Some setting breaks its budget in at most one of 1,000 episodes and loses less than UCBVI.",
        f"At some budget, at most {RARELY:g} of the episodes break it and the paired difference in regret "
        "from UCBVI's is below zero with its whole interval.",
        unmeasured="needs an algorithm with role ours or paper and one with role unconstrained",
    )


def count_verdicts(claims: Sequence[Claim]) -> dict[str, int]:
    """Return how many claims got each verdict, in the order of `VERDICTS`, those without any left out."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    return {verdict: count for verdict, count in counts.items() if count}
