"""Laws of one ledger, for every sequence of charges."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from chary.shield import Ledger, Rule, authorise, refuse

# Subnormal budgets are left out: half of one is rounded, so "eta / 2 twice" need not be eta.
budgets = st.floats(0.0, 3.0, allow_subnormal=False)
charge_lists = st.lists(st.floats(0.0, 2.0), max_size=30)
any_charge = st.one_of(st.floats(0.0, 2.0), st.sampled_from([math.nan, math.inf]))
after_refusals = st.sampled_from(["pause", "close"])


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    name = draw(st.sampled_from(["strict", "capped", "paper", "unlimited", "closed"]))
    step_bound = draw(st.floats(1e-3, 2.0)) if name == "capped" else None
    return Rule.named(name, eta=draw(budgets), step_bound=step_bound, after_refusal=draw(after_refusals))


def book(charges: list[float], rule: Rule) -> tuple[list[bool], list[Ledger]]:
    """Play the charges in turn; a charge that is not finite is refused unpriced, as the shield does."""
    answers, ledgers = [], [Ledger()]
    for charge in charges:
        if math.isfinite(charge):
            afforded, ledger = authorise(ledgers[-1], True, charge, rule)
        else:
            afforded, ledger = False, refuse(ledgers[-1], rule)
        answers.append(afforded)
        ledgers.append(ledger)
    return answers, ledgers


@given(charges=charge_lists, eta=budgets, after_refusal=after_refusals)
def test_strict_never_books_beyond_eta(charges: list[float], eta: float, after_refusal: str) -> None:
    _, ledgers = book(charges, Rule.strict(eta, after_refusal=after_refusal))
    assert ledgers[-1].deficit <= eta


@given(charges=charge_lists, eta=budgets, step_bound=st.floats(1e-3, 3.0), after_refusal=after_refusals)
def test_capped_never_books_beyond_eta(
    charges: list[float], eta: float, step_bound: float, after_refusal: str
) -> None:
    _, ledgers = book(charges, Rule.capped(eta, step_bound=step_bound, after_refusal=after_refusal))
    assert ledgers[-1].deficit <= eta


@given(charges=st.lists(any_charge, max_size=30), rule=rules())
def test_the_deficit_never_falls_and_stays_finite(charges: list[float], rule: Rule) -> None:
    _, ledgers = book(charges, rule)
    for before, after in itertools.pairwise(ledgers):
        assert before.deficit <= after.deficit < math.inf


@given(charges=st.lists(any_charge, max_size=30), rule=rules())
def test_a_refused_step_books_nothing(charges: list[float], rule: Rule) -> None:
    answers, ledgers = book(charges, rule)
    for afforded, (before, after) in zip(answers, itertools.pairwise(ledgers), strict=True):
        assert afforded or after.deficit == before.deficit


@given(charges=charge_lists, eta=budgets, share=st.floats(0.01, 1.0), after_refusal=after_refusals)
def test_capped_at_half_the_budget_allows_whatever_paper_allows(
    charges: list[float], eta: float, share: float, after_refusal: str
) -> None:
    step_bound = share * (eta / 2)
    if not step_bound:
        return
    paper, _ = book(charges, Rule.paper(eta, after_refusal=after_refusal))
    capped, _ = book(charges, Rule.capped(eta, step_bound=step_bound, after_refusal=after_refusal))
    for by_paper, by_cap in zip(paper, capped, strict=True):
        assert by_cap >= by_paper


@given(charges=charge_lists, eta=budgets, after_refusal=after_refusals)
def test_paper_overshoots_half_the_budget_by_one_charge_at_most(
    charges: list[float], eta: float, after_refusal: str
) -> None:
    _, ledgers = book(charges, Rule.paper(eta, after_refusal=after_refusal))
    assert ledgers[-1].deficit <= eta / 2 + max(charges, default=0.0)


@given(charges=charge_lists)
def test_unlimited_affords_everything_and_closed_nothing(charges: list[float]) -> None:
    assert all(book(charges, Rule.unlimited())[0])
    assert not any(book(charges, Rule.closed())[0])


@given(charges=st.lists(any_charge, max_size=30), rule=rules())
def test_where_the_rule_closes_the_first_refusal_is_the_last_word(charges: list[float], rule: Rule) -> None:
    answers, _ = book(charges, rule._replace(closes=True))
    assert answers == sorted(answers, reverse=True)
