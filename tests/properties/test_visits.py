"""Visits count in the order of their decisions, whatever the order of their outcomes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chary.agents._episodes import Played, Transition
from chary.agents._visits import Visits
from chary.shield import Decision


def step(s: int, a: int) -> Played[int]:
    return Played(Decision(a, False, 0.0, 0.0, 1.0, 1, -1), s)


# Pairs in the order of their decisions, a permutation of their arrivals, and the fate of each outcome.
pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=30)
fates = st.sampled_from(["known", "lost", "overruled", "missing"])


@given(st.data(), pairs)
def test_what_is_released_is_a_prefix_of_the_decisions_of_every_pair(
    data: st.DataObject, decided: list[tuple[int, int]]
) -> None:
    visits, steps = Visits(), [step(s, a) for s, a in decided]
    for each in steps:
        visits.decided(each)
    released: list[Played[int]] = []
    for i in data.draw(st.permutations(range(len(steps)))):
        now, fate = steps[i], data.draw(fates)
        if fate == "missing":
            continue
        action = now.decision.action if fate != "overruled" else 1 - now.decision.action
        now.lost = fate == "lost"
        now.outcome = None if now.lost else Transition(now.state, action, 0.5, 0, False)
        visits.resolved(now)
        if data.draw(st.booleans()):
            batch = visits.release()
            assert [steps.index(each) for each in batch] == sorted(steps.index(each) for each in batch)
            released += batch
    released += visits.release()
    for pair in set(decided):
        here = [each for each in steps if (each.state, each.decision.action) == pair]
        resolved = [each.lost or each.outcome is not None for each in here]
        prefix = here[: resolved.index(False)] if False in resolved else here
        counted = [each for each in released if (each.state, each.decision.action) == pair]
        assert counted == [each for each in prefix if not each.overruled]
    # Nothing is counted twice, and nothing that is not counted is forgotten.
    assert len(set(map(id, released))) == len(released)
    waiting = [each for each, _ in visits.pending()]
    assert not {id(each) for each in released} & {id(each) for each in waiting}
    assert all(each in waiting for each in steps if each.outcome is None and not each.lost)


@given(pairs)
def test_pending_visits_come_back(decided: list[tuple[int, int]]) -> None:
    visits, steps = Visits(), [step(s, a) for s, a in decided]
    for each in steps:
        visits.decided(each)
    again = Visits()
    again.restore(visits.pending())
    for each in steps:
        each.lost = True
        visits.resolved(each)
        again.resolved(each)
    assert visits.release() == again.release() == steps
