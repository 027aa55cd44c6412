"""`authorise` on Python numbers, on NumPy lanes and inside numba: equal bits."""

from __future__ import annotations

import struct
from typing import Any

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chary.shield import Ledger, Rule, authorise

compiled: Any = numba.njit(authorise)
# The same function and values, but typed to take arrays where the library has numbers.
on_lanes: Any = authorise
Lanes: Any = Ledger
Rules: Any = Rule

budgets = st.floats(0.0, 4.0)
charges = st.one_of(st.floats(0.0, 2.0), st.sampled_from([0.0, 5e-324, 0.1, 0.2, 0.25, 0.3, 1e308]))
after_refusals = st.sampled_from(["pause", "close"])


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    name = draw(st.sampled_from(["strict", "capped", "paper", "unlimited", "closed"]))
    step_bound = draw(st.floats(1e-3, 2.0)) if name == "capped" else None
    return Rule.named(name, eta=draw(budgets), step_bound=step_bound, after_refusal=draw(after_refusals))


steps = st.lists(st.tuples(st.booleans(), charges), min_size=20, max_size=80)


def bits(afforded: object, ledger: Ledger) -> tuple[bool, bool, bytes]:
    return bool(afforded), bool(ledger.closed), struct.pack("<d", ledger.deficit)


@given(rule=rules(), steps=steps)
def test_numba_and_python_decide_alike_along_an_episode(rule: Rule, steps: list[tuple[bool, float]]) -> None:
    slow, fast = Ledger(), Ledger()
    for candidate, charge in steps:
        slow_answer, slow = authorise(slow, candidate, charge, rule)
        fast_answer, fast = compiled(fast, candidate, charge, rule)
        assert bits(slow_answer, slow) == bits(fast_answer, fast)


@given(rule=rules(), lanes=st.lists(st.tuples(st.booleans(), budgets, st.booleans(), charges), min_size=20))
def test_numpy_lanes_and_python_decide_alike(
    rule: Rule, lanes: list[tuple[bool, float, bool, float]]
) -> None:
    closed, deficit, candidate, charge = (np.array(column) for column in zip(*lanes, strict=True))
    answers, after = on_lanes(Lanes(closed, deficit), candidate, charge, rule)
    for i, (lane_closed, lane_deficit, lane_candidate, lane_charge) in enumerate(lanes):
        alone = authorise(Ledger(lane_closed, lane_deficit), lane_candidate, lane_charge, rule)
        lane = Ledger(np.asarray(after.closed)[i], np.asarray(after.deficit)[i])
        assert bits(*alone) == bits(np.asarray(answers)[i], lane)


@given(lanes=st.lists(st.tuples(rules(), budgets, charges), min_size=10, max_size=40))
def test_lanes_may_each_have_a_rule_of_their_own(lanes: list[tuple[Rule, float, float]]) -> None:
    each, deficit, charge = zip(*lanes, strict=True)
    rule = Rules(*(np.array(column) for column in zip(*each, strict=True)))
    answers, after = on_lanes(
        Lanes(np.zeros(len(lanes), bool), np.array(deficit)),
        np.ones(len(lanes), bool),
        np.array(charge),
        rule,
    )
    for i, (lane_rule, lane_deficit, lane_charge) in enumerate(lanes):
        alone = authorise(Ledger(False, lane_deficit), True, lane_charge, lane_rule)
        lane = Ledger(np.asarray(after.closed)[i], np.asarray(after.deficit)[i])
        assert bits(*alone) == bits(np.asarray(answers)[i], lane)
