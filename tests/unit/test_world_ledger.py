"""The ledger of worlds: votes, panels, and laws of the budget."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary._compile import calling
from chary.errors import InvalidSetting
from chary.shield import Ledger, Rule, authorise
from chary.shield.worlds import Panel, upper, vote_into

charges_of_worlds = st.integers(2, 9).flatmap(
    lambda n: st.lists(
        st.lists(st.floats(0, 2, allow_subnormal=False), min_size=n, max_size=n), min_size=1, max_size=8
    )
)


@given(charges_of_worlds, st.floats(0, 3), st.sampled_from([Panel(-1, 3.0), Panel(1, 3.0), Panel(0, 0.0)]))
def test_the_panels_deficit_never_exceeds_eta(steps: list[list[float]], eta: float, panel: Panel) -> None:
    deficits, ledger = [0.0] * len(steps[0]), Ledger()
    for charges in steps:
        before = list(deficits)
        vote, ledger = vote_into(deficits, list(charges), ledger, Rule.strict(eta), panel)
        expected = [d + c for d, c in zip(before, charges, strict=True)] if vote.afforded else before
        assert deficits == expected
        assert ledger.deficit <= eta
        assert not vote.afforded or vote.deficit == ledger.deficit
        assert vote.within == sum(d + c <= eta for d, c in zip(before, charges, strict=True))
    assert sum(d > eta for d in deficits) <= max(panel.allowed, 0)


def test_a_share_of_the_worlds_may_exceed_the_budget() -> None:
    charges = [0.0] * 97 + [0.4] * 3
    # The truth and 100 worlds: it is among the 4 largest of them with probability 4 / 101.
    panel = Panel.of(4 / 101, worlds=100)
    assert panel.allowed == 3
    vote, _ = vote_into([0.0] * 100, charges, Ledger(), Rule.strict(0.3), panel)
    assert vote.afforded
    assert vote.describe() == "In 97 of 100 worlds within budget; worst world 0.4."
    fewer = Panel.of(0.039, worlds=100)
    assert fewer.allowed == 2
    vote, ledger = vote_into([0.0] * 100, [0.0] * 97 + [0.4] * 3, Ledger(), Rule.strict(0.3), fewer)
    assert not vote.afforded
    assert ledger == Ledger()


def test_the_truth_exceeds_what_a_panel_takes_with_probability_risk_at_most() -> None:
    # The truth is one more draw, whatever the distribution: here exponential and heavy-tailed.
    rng = np.random.default_rng(0)
    n, runs = 19, 4_000
    for risk in (0.05, 0.1, 0.32):
        panel = Panel.of(risk, worlds=n)
        drawn = rng.exponential(size=(runs, n + 1)) ** 3
        above = np.mean([row[-1] > upper(row[:-1].tolist(), panel) for row in drawn])
        assert above <= risk + 4 * math.sqrt(risk / runs)
        assert above > risk / 2


def test_below_one_world_all_must_agree_and_the_normal_quantile() -> None:
    panel = Panel.of(0.001, worlds=4)
    assert panel.allowed == -1
    assert panel.z == pytest.approx(3.0902, abs=1e-4)
    values = [0.1, 0.2, 0.3, 0.2]
    assert upper(values, panel) == pytest.approx(0.2 + panel.z * statistics.stdev(values))
    # One world of a hundred far above the others: its own value counts, which 3.09 sd do not reach.
    values = [0.0] * 99 + [1.0]
    assert statistics.mean(values) + panel.z * statistics.stdev(values) < 0.4
    assert upper(values, panel) == 1.0


def test_the_end_of_the_tail_is_the_exponential_quantile() -> None:
    # 16 worlds: the largest two, 5 and 3, exceed the third, 1, by 3 on average. With e^2 times that share as
    # risk the quantile is two mean excesses further.
    panel = Panel(-1, 0.0, 2.0)
    assert upper([0.0] * 13 + [3.0, 1.0, 5.0], panel) == 1.0 + 3.0 * 2.0
    assert Panel.of(0.001, worlds=64).reach == pytest.approx(math.log(8 / 65 / 0.001))
    # No tail is needed where some worlds may exceed the budget, nor fitted to a single world.
    assert Panel.of(0.05, worlds=64).reach == 0.0
    assert Panel.of(0.001, worlds=15).reach == 0.0


@pytest.mark.parametrize("law", ["exponential", "few lose"])
def test_skewed_deficits_exceed_the_panel_about_as_often_as_the_risk(law: str) -> None:
    # By the truth, one more draw. The normal quantile alone is exceeded four times as often.
    rng, n, risk = np.random.default_rng(0), 64, 0.001
    panel = Panel.of(risk, worlds=n)

    def above(panel: Panel) -> float:
        share = 0.0
        for _ in range(300):
            x = rng.exponential(size=n)
            if law == "few lose":
                x = np.where(rng.random(n) < 0.3, x, 0.0)
            # The exact probability that the truth is larger, not a draw of it.
            share += math.exp(-upper(x.tolist(), panel)) * (0.3 if law == "few lose" else 1.0)
        return share / 300

    assert above(panel) < 4 * risk
    assert above(panel._replace(reach=0.0)) > 2 * above(panel)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=12), st.integers(1, 14))
def test_the_upper_end_leaves_out_the_largest(values: list[float], allowed: int) -> None:
    expected = sorted(values, reverse=True)[min(allowed, len(values) - 1)]
    assert upper(values, Panel(allowed, 3.0)) == expected


def test_rules_without_a_budget_vote_too() -> None:
    for rule, afforded in ((Rule.unlimited(), True), (Rule.closed(), False)):
        vote, ledger = vote_into([0.0, 0.0], [5.0, 0.0], Ledger(), rule, Panel(0, 3.0))
        assert vote.afforded == afforded
        assert ledger.closed == rule.closes
    closing = Rule.strict(0.1, after_refusal="close")
    _, ledger = vote_into([0.0, 0.0], [5.0, 0.0], Ledger(), closing, Panel(0, 3.0))
    assert ledger.closed


def test_what_the_panel_has_booked_is_never_refunded() -> None:
    # One world loses much at first and the others catch up: their spread shrinks, and with it the estimates.
    for panel in (Panel(-1, 4.0), Panel(-1, 3.0, 4.0)):
        worlds, ledger = [0.0] * 16, Ledger(False, 0.0)
        _, ledger = vote_into(worlds, [0.1] + [0.0] * 15, ledger, Rule.strict(1.0), panel)
        estimate, booked = upper([0.1] * 16, panel), ledger.deficit
        assert estimate < booked
        vote, ledger = vote_into(worlds, [0.0] + [0.1] * 15, ledger, Rule.strict(1.0), panel)
        assert vote.afforded
        assert ledger.deficit == vote.deficit == booked


def test_compiled_votes_are_the_same() -> None:
    # Not kept on disk: what a test compiles is nobody else's.
    kernels: dict[str, Any] = {each.__name__: numba.njit(each) for each in (authorise, upper)}
    compiled: Any = numba.njit(calling(vote_into, **kernels))
    rng = np.random.default_rng(0)
    for panel in (Panel(-1, 3.0), Panel(0, 3.0), Panel(2, 3.0), Panel(-1, 3.0, 4.0)):
        lanes, plain = np.zeros(16), [0.0] * 16
        here, there = Ledger(False, 0.0), Ledger(False, 0.0)
        for _ in range(20):
            charges = rng.random(16) * 0.1
            mine, here = compiled(lanes, charges.copy(), here, Rule.strict(0.5), panel)
            other, there = vote_into(plain, charges.tolist(), there, Rule.strict(0.5), panel)
            assert tuple(mine) == tuple(other)
            assert tuple(here) == tuple(there)
            assert lanes.tolist() == plain


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, math.nan])
def test_a_risk_is_a_probability(risk: float) -> None:
    with pytest.raises(InvalidSetting, match="'risk' must"):
        Panel.of(risk, worlds=10)


def test_one_world_is_no_panel() -> None:
    with pytest.raises(InvalidSetting, match="'worlds' must"):
        Panel.of(0.1, worlds=1)
