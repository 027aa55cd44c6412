"""Claims about the HIV experiment: returns and violations compared with deep Q-learning and CQL.

The paper's claims are judged on the algorithm with role `paper`, or if there is none on the first with role
`ours`. Returns are maxima over the episodes of a run, as in Table 1. Violations are those of the audited
episodes, by eq. (1); where they are unknown, nothing is said about them. Verdicts rest on means and paired
differences over seeds.
"""

from __future__ import annotations

import numpy as np

from chary.arrays import Floats
from chary.report.claims import (
    ALMOST_NEVER,
    CUCBVI,
    NOBODY,
    UCBVI,
    Answer,
    Claim,
    all_of,
    at,
    contains,
    kept,
    say,
    say_percent,
    say_rate,
    texts_of,
)
from chary.report.deep.tables import MILLION, TABLE_1, judged_one, measured_entry, millions, total
from chary.report.measured import Measured, Place
from chary.statistics import Estimate

# Returns are comparable if they are at most this share lower.
COMPARABLE = 0.05
# Significantly fewer violations: at most this share of deep Q-learning's.
TENTH = 0.1
# The share of held-out deviations that the charge should cover.
COVERED = 0.95
# A policy is constant if one treatment has this share in the last tenth of the run.
CONSTANT = 0.99

TEXTS = texts_of("chary.report.deep")


def hiv_claims(measured: Measured) -> list[Claim]:
    """Return h1 to h9."""
    return [
        _comparable(measured),
        _above_cql(measured),
        _fewer(measured),
        _tenth(measured),
        _cql_never(measured),
        _sac_constant(measured),
        _table_1(measured),
        _kept(measured),
        _covered(measured),
    ]


def _ours_and(measured: Measured, role: str) -> list[tuple[Place, ...]]:
    """Return, budget by budget, the judged algorithm's place and that of the first with another role."""
    found = measured.together(judged_one(measured), measured.first(role))
    return [both for both in found if measured.common(*both)]


def _judged(measured: Measured, *labels: str | None) -> list[tuple[Place, ...]]:
    """Return, budget by budget, the places of some algorithms at which violations of all runs are known."""
    return [
        places
        for places in measured.together(*labels)
        if all(total(measured, place, "violations") is not None for place in places)
    ]


def _relative(measured: Measured, one: Place, two: Place, name: str) -> Estimate:
    """Return the first's mean minus the second's, as a share of the second's size, paired by seed."""

    def share(means: Floats) -> Floats:
        below, unknown = np.abs(means[:, 1]), np.full(len(means), np.nan)
        return np.asarray(np.divide(means[:, 0] - means[:, 1], below, out=unknown, where=below > 0))

    return measured.of_means(measured.paired(one, two, name), share)


def _maxima(measured: Measured, ours: Place, other: Place) -> str:
    return f"maximum {millions(measured, ours)} against {millions(measured, other)} million"


def _comparable(measured: Measured) -> Claim:
    answer = Answer()
    for ours, dqn in _ours_and(measured, UCBVI):
        relative = _relative(measured, ours, dqn, "max_return")
        late = _relative(measured, ours, dqn, "late_return")
        answer.add(
            relative.above(-COMPARABLE),
            f"{at(ours.budget)}: {_maxima(measured, ours, dqn)}, difference {say_percent(relative)}; over "
            f"the last tenth of the episodes {say_percent(late)}",
            seeds=len(measured.common(ours, dqn)),
            budget=ours.budget,
            relative=relative,
            late=late.value,
        )
    return answer.claim(TEXTS["h1"], comparable=100 * COMPARABLE)


def _above_cql(measured: Measured) -> Claim:
    answer = Answer()
    for ours, cql in _ours_and(measured, CUCBVI):
        difference = measured.difference(ours, cql, "max_return")
        assert difference is not None
        answer.add(
            difference.above(0.0),
            f"{at(ours.budget)}: {_maxima(measured, ours, cql)}, difference "
            f"{say(difference.times(1 / MILLION))}",
            seeds=len(measured.common(ours, cql)),
            why=contains(0),
            budget=ours.budget,
            difference=difference,
        )
    return answer.claim(TEXTS["h2"])


def _fewer(measured: Measured) -> Claim:
    answer = Answer()
    for ours, dqn in _judged(measured, judged_one(measured), measured.first(UCBVI)):
        rates = {"rate": measured.rate(ours).rate, "rate_dqn": measured.rate(dqn).rate}
        answer.add_fewer(measured, ours, dqn, **rates)
    return answer.claim(TEXTS["h3"])


def _tenth(measured: Measured) -> Claim:
    answer = Answer()
    for ours, dqn in _judged(measured, judged_one(measured), measured.first(UCBVI)):
        if not measured.common(ours, dqn):
            continue
        mine, theirs = measured.rate(ours), measured.rate(dqn)
        beyond = measured.of_means(
            measured.paired(ours, dqn, "violation_rate"), lambda means: means[:, 0] - TENTH * means[:, 1]
        )
        share = f"{100 * mine.rate / theirs.rate:.3g} % of its" if theirs.rate else "none of its"
        answer.add(
            beyond.at_most(0.0) if theirs.violations else None,
            f"{at(ours.budget)}: {say_rate(mine)} violations per 1,000 episodes, {share} {say_rate(theirs)}; "
            f"minus a tenth of its {say(beyond.times(1000))}",
            seeds=len(measured.common(ours, dqn)),
            why=contains(0) if theirs.violations else NOBODY,
            budget=ours.budget,
            rate=mine.rate,
            rate_dqn=theirs.rate,
            beyond=beyond,
        )
    return answer.claim(TEXTS["h4"])


def _cql_never(measured: Measured) -> Claim:
    answer = Answer()
    for (place,) in _judged(measured, measured.first(CUCBVI)):
        rate = measured.rate(place)
        left = measured.mean(place, "deviating_steps").value
        answer.add(
            rate.violations == 0,
            f"{at(place.budget)}: {rate.violations} of {rate.episodes:,} audited episodes broke it "
            f"({say_rate(rate)} per 1,000), largest z* "
            f"{measured.column(place, 'true_deficit_max').max():.3g}, {left:,.0f} deviating steps per run",
            seeds=rate.runs,
            budget=place.budget,
            violations=rate.violations,
            episodes=rate.episodes,
            high=rate.interval.high,
        )
    return answer.claim(TEXTS["h5"])


def _sac_constant(measured: Measured) -> Claim:
    answer = Answer()
    agents = {place.algorithm: measured.text(place, "agent") for place in reversed(measured.places)}
    sac = next((label for label in measured.algorithms() if agents[label] == "sac"), None)
    for (place,) in list(measured.together(sac))[:1]:
        shares = measured.column(place, "favourite_share")
        stuck = int(np.count_nonzero(shares >= CONSTANT))
        often = True if stuck == len(shares) else False if 2 * stuck < len(shares) else None
        worse: Estimate | None = None
        for _, dqn in list(measured.together(sac, measured.first(UCBVI)))[:1]:
            if dqn.budget == place.budget and measured.common(place, dqn):
                worse = _relative(measured, place, dqn, "late_return")
        since = measured.column(place, "constant_episodes")
        answer.add(
            all_of(often, None if worse is None else worse.below(0.0)),
            f"in {stuck} of {len(shares)} seeds one treatment makes up {100 * CONSTANT:g} % of the last "
            "tenth or more (largest share, mean over seeds: "
            f"{say_percent(measured.mean(place, 'favourite_share'))}); its last {np.median(since):,.0f} "
            "episodes, in the median, had only one treatment; its return there "
            + (f"minus deep Q-learning's: {say_percent(worse)}" if worse is not None else "is not compared"),
            seeds=len(shares),
            why=contains(0, "some seeds are stuck, or an interval"),
            stuck=stuck,
            share=float(shares.mean()),
            worse=None if worse is None else worse.value,
        )
    return answer.claim(TEXTS["h6"], constant=100 * CONSTANT)


def _table_1(measured: Measured) -> Claim:
    answer = Answer()
    for entry in TABLE_1:
        place = measured_entry(measured, entry)
        if place is None:
            continue
        ours = measured.mean(place, "max_return")
        relative = Estimate(*(each / MILLION / entry.mean - 1.0 for each in ours))
        answer.add(
            all_of(relative.above(-COMPARABLE), relative.at_most(COMPARABLE)),
            f"{entry.name}: {millions(measured, place)} million here, {entry.mean:g} ± {entry.deviation:g} "
            f"in the paper, difference {say_percent(relative)}",
            seeds=len(measured.seeds(place)),
            entry=entry.name,
            measured=ours.value,
            paper=entry.mean * MILLION,
            relative=relative,
        )
    return answer.claim(TEXTS["h7"], comparable=100 * COMPARABLE)


def _kept(measured: Measured) -> Claim:
    answer = Answer()
    for (place,) in _judged(measured, judged_one(measured)):
        rate, over_seeds = measured.rate(place), measured.mean(place, "violation_rate")
        worst = float(measured.column(place, "true_deficit_max").max())
        answer.add(
            kept(measured, place, ALMOST_NEVER),
            f"{at(place.budget)}: {say_rate(rate)} violations per 1,000 episodes, {rate.broken_runs} of "
            f"{rate.runs} runs with any, largest z* {worst:.3g}; booked "
            f"{say(measured.mean(place, 'deficit_mean'))} per episode, "
            f"{measured.mean(place, 'exploring_steps').value:,.0f} exploring and "
            f"{measured.mean(place, 'deviating_steps').value:,.0f} deviating steps per run",
            seeds=rate.runs,
            why=contains(f"{1000 * ALMOST_NEVER:g} per 1,000", "an interval"),
            budget=place.budget,
            violations=rate.violations,
            episodes=rate.episodes,
            low=over_seeds.low,
            high=over_seeds.high,
            worst=worst,
        )
    return answer.claim(TEXTS["h8"], almost_never=ALMOST_NEVER)


def _covered(measured: Measured) -> Claim:
    answer = Answer()
    for (place,) in measured.together(judged_one(measured)):
        known = len(measured.known(place, "held_out_coverage"))
        if not known:
            continue
        tried, booked = measured.mean(place, "held_out_coverage"), measured.mean(place, "booked_coverage")
        short, count = tried.below(COVERED), int(measured.column(place, "booked").sum())
        answer.add(
            None if short is None else not short,
            f"{at(place.budget)}: the charge covered the true cost of {say_percent(tried)} of "
            f"{int(measured.column(place, 'held_out').sum()):,} held-out deviations, and "
            + (f"{say_percent(booked)} of {count:,} booked ones" if count else "none was booked"),
            seeds=known,
            why=contains(f"{100 * COVERED:g} %"),
            budget=place.budget,
            held_out=tried,
            booked=booked.value,
        )
    return answer.claim(TEXTS["h9"], covered=100 * COVERED)
