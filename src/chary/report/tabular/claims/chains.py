"""Claims about chains: their number of episodes, and the three parts that the proof bounds one by one.

Of a chain that is unfinished when the run ends, only its birth is stored. Its N_m and parts are unknown, and
it is a long one. Every claim here states the number of unfinished chains, and has no verdict that they could
reverse.
"""

from __future__ import annotations

import math

import numpy as np

from chary.arrays import Floats
from chary.assumptions import HOLDS
from chary.report.claims import NOTHING, PAPER, Answer, Claim, at, contains, say_number
from chary.report.measured import UNKNOWN, Measured, Place
from chary.report.tabular.claims.facts import TEXTS, Facts, same_for_paper
from chary.statistics import Estimate

# Chains have become short if those born in the last fifth take at most half as long, or two episodes.
FIFTH, SHORTER, SHORT = 0.2, 0.5, 2.0
MOST_LONG = 4

NONE_FINISHED = "no chain was finished"
NO_DATA = "nothing to compare"
REVERSED = "undecided: unfinished chains could reverse it"


def chain_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return d1 to d5."""
    return [
        _chains_shorten(measured),
        _long_part(measured),
        _by_chain(measured, facts, "d3", "chains_within_missed_bound", "the bound on N_m³"),
        _by_chain(measured, facts, "d4", "chains_within_length_bound", "the bound on N_m"),
        _exhausted_sum(measured, facts),
    ]


def _unfinished(measured: Measured, place: Place) -> tuple[str, int]:
    """Return the unfinished chains of all runs with the age of the oldest, in words, and their number."""
    count = int(measured.column(place, "chains_unfinished").sum())
    if not count:
        return "no chain unfinished", 0
    oldest = measured.known(place, "chains_unfinished_oldest").max()
    chains = "chain" if count == 1 else "chains"
    return f"{count:,} {chains} unfinished, the oldest for {oldest:,.0f} episodes", count


def _chains_shorten(measured: Measured) -> Claim:
    answer = Answer()
    for (paper,) in measured.together(measured.first(PAPER)):
        episodes, lengths, seeds = measured.curves(paper, "chain_episodes")
        finished, born = (measured.curves(paper, name).values for name in ("chains_finished", "chains_born"))
        # An unfinished chain has lasted since the end of its window, at least.
        ages = episodes[-1] - episodes
        known, lasting = [], []
        for inside in (episodes <= FIFTH * episodes[-1], episodes > (1 - FIFTH) * episodes[-1]):
            count, left = finished[:, inside], born[:, inside] - finished[:, inside]
            total = np.where(count > 0, lengths[:, inside], 0.0) * count
            known += [total.sum(axis=1), count.sum(axis=1)]
            lasting += [known[-2] + (left * ages[inside]).sum(axis=1), known[-1] + left.sum(axis=1)]
        excess, excess_with = (measured.of_means(each, _longer_than_allowed) for each in (known, lasting))
        first, last = (
            float(known[i].sum() / known[i + 1].sum()) if known[i + 1].sum() else math.nan for i in (0, 2)
        )
        seen = math.isfinite(first) and math.isfinite(last)
        decided = excess.at_most(0.0)
        turned = decided is not None and excess_with.at_most(0.0) is not decided
        words, unfinished = _unfinished(measured, paper)
        found = (
            f"mean N_m {say_number(first)} of chains born in the first fifth, {say_number(last)} in the last"
            if seen
            else "too few chains were finished in the first or the last fifth"
        )
        answer.add(
            None if turned else decided,
            f"{at(paper.budget)}: {found}; {words}",
            seeds=len(seeds),
            why=REVERSED if turned else "undecided" if seen else NO_DATA,
            budget=paper.budget,
            first=first,
            last=last,
            unfinished=unfinished,
        )
    return answer.claim(TEXTS["d1"], notes=(same_for_paper(measured),), shorter=SHORTER, short=SHORT)


def _longer_than_allowed(means: Floats) -> Floats:
    """Return the mean N_m of late chains minus the allowed one, from total and number, early and late."""
    early_total, early, late_total, late = means.T
    known = (early > NOTHING) & (late > NOTHING)
    ones = np.ones(len(means))
    first = early_total / np.where(known, early, ones)
    last = late_total / np.where(known, late, ones)
    return np.asarray(np.where(known, last - np.maximum(SHORTER * first, SHORT), np.nan))


def _long_part(measured: Measured) -> Claim:
    answer = Answer()
    for (paper,) in measured.together(measured.first(PAPER)):
        longest = measured.known(paper, "chain_long_max")
        most = float(longest.max()) if len(longest) else math.nan
        words, unfinished = _unfinished(measured, paper)
        answer.add(
            bool(most <= MOST_LONG) if len(longest) else None,
            f"{at(paper.budget)}: {f'at most {most:.0f}' if len(longest) else NONE_FINISHED}; {words}",
            seeds=len(measured.seeds(paper)),
            why=NO_DATA,
            budget=paper.budget,
            most=most,
            unfinished=unfinished,
        )
    return answer.claim(TEXTS["d2"])


def _by_chain(measured: Measured, facts: Facts, key: str, column: str, about: str) -> Claim:
    """Answer a lemma that bounds every chain on an event of probability 1 - delta, given Assumption 2.2."""
    answer = Answer()
    comparable = facts.diameter == HOLDS
    for (paper,) in measured.together(measured.first(PAPER)):
        within, finished, left = (
            measured.column(paper, name) for name in (column, "chains_finished", "chains_unfinished")
        )
        best = worst = UNKNOWN
        decided, turned = None, False
        words, unfinished = _unfinished(measured, paper)
        why = NO_DATA
        if finished.sum():
            best, worst = (_share(measured, within, among) for among in (finished, finished + left))
            decided, at_worst = _at_least(best, 1.0 - facts.delta), _at_least(worst, 1.0 - facts.delta)
            turned = decided is not None and at_worst is not decided
            with_all = f", with which it is {100 * worst.value:.4g} % at worst" if unfinished else ""
            many = f"{100 * best.value:.4g} % of {finished.sum():,.0f} finished chains"
            words = f"{about} holds for {many}; {words}{with_all}"
            why = REVERSED if turned else contains(f"{1 - facts.delta:g}")
        else:
            words = f"{NONE_FINISHED}; {words}"
        if finished.sum() and not comparable:
            why = "the lemma does not apply"
        answer.add(
            decided if comparable and not turned else None,
            f"{at(paper.budget)}: {words}",
            seeds=len(measured.seeds(paper)),
            why=why,
            budget=paper.budget,
            share=best.value,
            share_at_worst=worst.value,
            chains=float(finished.sum()),
            unfinished=unfinished,
        )
    log = math.log(1.0 / facts.delta)
    missed = max(6.0 * log - 1.0, 0.0)
    fails = f"An assumption of the lemma fails for this problem: {facts.diameter_says}"
    notes = ("" if comparable else fails,)
    return answer.claim(TEXTS[key], notes=notes, share=1 - facts.delta, missed=missed, length=30.0 * log)


def _share(measured: Measured, within: Floats, among: Floats) -> Estimate:
    def share(means: Floats) -> Floats:
        part, whole = means.T
        return np.asarray(np.divide(part, whole, out=np.full(len(means), np.nan), where=whole > NOTHING))

    value, low, high = measured.of_means([within, among], share)
    return Estimate(value, float(np.maximum(low, 0.0)), float(np.minimum(high, 1.0)))


def _at_least(share: Estimate, threshold: float) -> bool | None:
    below = share.below(threshold)
    return None if below is None else not below


def _exhausted_sum(measured: Measured, facts: Facts) -> Claim:
    answer = Answer()
    vacuous = False
    H, S, A = facts.horizon, facts.states, facts.actions
    for (paper,) in measured.together(measured.first(PAPER)):
        episodes = float(measured.column(paper, "episodes").max())
        exhausted = measured.mean(paper, "chain_exhausted")
        # Unfinished chains may have exhausted the budget in all episodes that they have lasted.
        unfinished = measured.column(paper, "chains_unfinished_episodes")
        most = float((measured.column(paper, "chain_exhausted") + unfinished).max())
        eta = paper.budget / facts.span
        log = math.log(5 * S * A * H * episodes / facts.delta)
        bound = 24.0 * H**2 * S * math.sqrt(A * log * H * episodes) / eta if eta > 0 else math.inf
        empty = bound >= episodes
        vacuous = vacuous or empty
        keeps = True if most <= bound else False if exhausted.at_most(bound) is False else None
        words, count = _unfinished(measured, paper)
        answer.add(
            None if empty else keeps,
            f"{at(paper.budget)}: the budget was exhausted in {exhausted.value:,.0f} episodes at least, the "
            f"bound is {bound:.2g}; {words}",
            seeds=len(measured.seeds(paper)),
            why="no run has that many episodes" if empty else REVERSED,
            budget=paper.budget,
            exhausted=exhausted.value,
            bound=bound,
            episodes=episodes,
            unfinished=count,
        )
    note = "If the bound exceeds the number of episodes, nothing could break it." if vacuous else ""
    return answer.claim(TEXTS["d5"], notes=(note,))
