"""Claims about the algorithm with role `ours` on HIV: what it earns, keeps, covers and explores.

They were fixed before any run of the ensemble was judged. Counts decide over all runs together, returns over
means of seeds.
"""

from __future__ import annotations

from chary.audit import DROPS_AFTER
from chary.report.claims import Answer, Claim, at, say, say_percent, say_rate, texts_of
from chary.report.deep.tables import MILLION, drops_in_words, millions, total
from chary.report.measured import Measured, Place

# Violations per audited episode.
ONE_IN_THOUSAND = 1e-3
# The least share of steps that deviate, by budget.
DEVIATES = {40.0: 0.002, 60.0: 0.005, 100.0: 0.01}
# Budgets at which returns should exceed those of soft actor-critic.
ABOVE_SAC = (60.0, 100.0)
# Episodes in a row below 80 % of the best so far.
COLLAPSE = 10
# The share of ledgers that should cover the true deficit.
LEDGERS = 0.95

TEXTS = texts_of("chary.report.deep")


def own_claims(measured: Measured) -> list[Claim]:
    """Return h10 to h14."""
    ours = measured.first("ours")
    places = [place for (place,) in measured.together(ours)] if ours is not None else []
    return [
        _returns(measured, places),
        _violations(measured, places),
        _deviates(measured, places),
        _collapses(measured, places),
        _ledgers(measured, places),
    ]


def _returns(measured: Measured, places: list[Place]) -> Claim:
    answer = Answer()
    agents = {place.algorithm: measured.text(place, "agent") for place in reversed(measured.places)}
    sac = next((label for label in measured.algorithms() if agents[label] == "sac"), None)
    dqn = measured.first("unconstrained")
    for place in places:
        for name, label in (("deep Q-learning", dqn), ("soft actor-critic", sac)):
            other = None if label is None else Place(label, place.budget)
            if other is None or not measured.has(other) or (label == sac and place.budget not in ABOVE_SAC):
                continue
            difference = measured.difference(place, other, "max_return")
            if difference is None:
                continue
            answer.add(
                difference.value >= 0.0,
                f"{at(place.budget)}: maximum {millions(measured, place)} against "
                f"{millions(measured, other)} million of {name}, "
                f"difference {say(difference.times(1 / MILLION))}",
                seeds=len(measured.common(place, other)),
                budget=place.budget,
                other=name,
                difference=difference,
            )
    return answer.claim(TEXTS["h10"])


def _violations(measured: Measured, places: list[Place]) -> Claim:
    answer = Answer()
    for place in places:
        rate = measured.rate(place)
        worst = float(measured.column(place, "true_deficit_max").max())
        answer.add(
            rate.violations <= ONE_IN_THOUSAND * rate.episodes,
            f"{at(place.budget)}: {rate.violations} of {rate.episodes:,} audited episodes, {say_rate(rate)} "
            f"per 1,000; largest z* {worst:.3g}",
            seeds=rate.runs,
            budget=place.budget,
            violations=rate.violations,
            episodes=rate.episodes,
            worst=worst,
        )
    return answer.claim(TEXTS["h11"], rate=1000 * ONE_IN_THOUSAND)


def _deviates(measured: Measured, places: list[Place]) -> Claim:
    answer = Answer()
    for place in places:
        if place.budget not in DEVIATES:
            continue
        steps, moved = (float(measured.column(place, name).sum()) for name in ("steps", "deviating_steps"))
        share = moved / steps
        answer.add(
            share >= DEVIATES[place.budget],
            f"{at(place.budget)}: {100 * share:.2g} % of the steps deviate, at least "
            f"{100 * DEVIATES[place.budget]:g} % wanted",
            seeds=len(measured.seeds(place)),
            budget=place.budget,
            share=share,
        )
    return answer.claim(TEXTS["h12"])


def _collapses(measured: Measured, places: list[Place]) -> Claim:
    answer = Answer()
    for place in places:
        if float(measured.column(place, "episodes").min()) <= DROPS_AFTER + COLLAPSE:
            continue
        longest = measured.column(place, "longest_drop")
        stuck = int((longest >= COLLAPSE).sum())
        answer.add(
            stuck == 0,
            f"{at(place.budget)}: {stuck} seeds stay low for {COLLAPSE} episodes or more; drops per 1,000 "
            f"episodes {drops_in_words(measured, place)}",
            seeds=len(longest),
            budget=place.budget,
            stuck=stuck,
            longest=float(longest.max()),
            drops=total(measured, place, "drops"),
        )
    return answer.claim(TEXTS["h13"], after=DROPS_AFTER, collapse=COLLAPSE)


def _ledgers(measured: Measured, places: list[Place]) -> Claim:
    answer = Answer()
    for place in places:
        number, covered = (total(measured, place, name) for name in ("ledgers", "ledgers_covered"))
        if not number or covered is None:
            continue
        held_out = measured.known(place, "held_out_coverage")
        steps = say_percent(measured.mean(place, "held_out_coverage")) if len(held_out) else "unknown"
        answer.add(
            covered >= LEDGERS * number,
            f"{at(place.budget)}: {covered:,} of {number:,} ledgers of episodes that deviated covered their "
            f"true deficit; {steps} of held-out deviations were covered by the bound of their step",
            seeds=len(measured.seeds(place)),
            budget=place.budget,
            ledgers=number,
            covered=covered,
        )
    return answer.claim(TEXTS["h14"], ledgers=100 * LEDGERS)
