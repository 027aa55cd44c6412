"""The five rules as numbers, and what they refuse to be built from."""

from __future__ import annotations

import math

import pytest

from chary.errors import CharyError, InvalidBudget, InvalidSetting, UnknownName
from chary.shield import Ledger, Rule, authorise, refuse

# docs/algorithm.md section 2, eta = 0.4 and step_bound 0.1, at a ledger of 0.3: what a charge of 0.25 does.
# strict: 0.3 + 0.25 > 0.4. capped: 0.3 + 0.1 <= 0.4, books 0.1. paper: 0.3 > 0.2. unlimited: books 0.25.
CASES = [
    (Rule.strict(0.4), False, 0.3),
    (Rule.capped(0.4, step_bound=0.1), True, 0.4),
    (Rule.paper(0.4), False, 0.3),
    (Rule.paper(0.6), True, 0.55),
    (Rule.unlimited(), True, 0.55),
    (Rule.closed(), False, 0.3),
]


@pytest.mark.parametrize(("rule", "afforded", "deficit"), CASES)
def test_rules_decide_as_the_table_says(rule: Rule, afforded: bool, deficit: float) -> None:
    answer, ledger = authorise(Ledger(deficit=0.3), True, 0.25, rule)
    assert answer is afforded
    assert ledger.deficit == pytest.approx(deficit, abs=1e-15)


def test_strict_affords_a_charge_that_fits_exactly() -> None:
    assert authorise(Ledger(deficit=0.25), True, 0.25, Rule.strict(0.5)) == (True, Ledger(False, 0.5))


def test_paper_affords_at_half_the_budget_and_not_beyond() -> None:
    assert authorise(Ledger(deficit=0.25), True, 9.0, Rule.paper(0.5))[0] is True
    assert authorise(Ledger(deficit=math.nextafter(0.25, 1)), True, 0.0, Rule.paper(0.5))[0] is False


@pytest.mark.parametrize("after_refusal", ["pause", "close"])
def test_a_refusal_closes_the_ledger_only_where_the_rule_says_so(after_refusal: str) -> None:
    rule = Rule.strict(0.1, after_refusal=after_refusal)
    _, ledger = authorise(Ledger(), True, 0.5, rule)
    assert ledger.closed is (after_refusal == "close")
    assert authorise(ledger, True, 0.0, rule)[0] is (after_refusal == "pause")
    assert refuse(Ledger(deficit=0.05), rule) == Ledger(after_refusal == "close", 0.05)


def test_no_candidate_is_not_a_refusal() -> None:
    assert authorise(Ledger(), False, 9.0, Rule.paper(0.1)) == (False, Ledger())


def test_defaults_after_a_refusal_are_pause_for_strict_and_close_for_paper() -> None:
    assert not Rule.strict(0.1).closes
    assert not Rule.capped(0.1, step_bound=0.1).closes
    assert Rule.paper(0.1).closes


@pytest.mark.parametrize("name", ["strict", "paper", "unlimited", "closed"])
def test_named_returns_the_rule_of_that_name(name: str) -> None:
    direct = {
        "strict": Rule.strict(0.4, after_refusal="close"),
        "paper": Rule.paper(0.4, after_refusal="close"),
        "unlimited": Rule.unlimited(),
        "closed": Rule.closed(),
    }
    assert Rule.named(name, eta=0.4, after_refusal="close") == direct[name]


def test_named_capped_takes_its_step_bound() -> None:
    assert Rule.named("capped", eta=0.4, step_bound=0.1) == Rule.capped(0.4, step_bound=0.1)


@pytest.mark.parametrize("eta", [-0.1, math.nan, "0.4", True, None])
def test_a_budget_that_is_no_number_of_at_least_zero_is_refused(eta: float) -> None:
    with pytest.raises(InvalidBudget, match=r"'eta' must lie in .*got .*unlimited"):
        Rule.strict(eta)


@pytest.mark.parametrize("step_bound", [0.0, -1.0, math.nan])
def test_a_step_bound_must_be_positive(step_bound: float) -> None:
    with pytest.raises(InvalidBudget, match="'step_bound'"):
        Rule.capped(0.4, step_bound=step_bound)


def test_capped_needs_a_step_bound_and_no_other_rule_takes_one() -> None:
    with pytest.raises(InvalidSetting, match="'step_bound' must be given"):
        Rule.named("capped", eta=0.4)
    with pytest.raises(InvalidSetting, match="belongs to rule 'capped' alone"):
        Rule.named("strict", eta=0.4, step_bound=0.1)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'strict'"):
        Rule.named("strickt", eta=0.4)
    with pytest.raises(UnknownName, match="Did you mean 'pause'"):
        Rule.strict(0.4, after_refusal="paus")


def test_every_refusal_is_a_value_error_of_the_family() -> None:
    assert issubclass(CharyError, ValueError)
    with pytest.raises(CharyError):
        Rule.named("closed", eta=-1.0)
