"""The shield, step by step, on episodes short enough to work by hand; and the checker of users' plans."""

from __future__ import annotations

import math
import pickle
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from chary.errors import CharyError, InvalidAction, InvalidBudget, InvalidData, InvalidSetting, OutOfOrder
from chary.shield import Decision, EpisodeEnd, Ledger, Rule, Shield, same, within
from chary.testing import check_plan

BASELINE = 0


class Script:
    """The explorer of chain m plays action m + 1; a charge is looked up by (t, s), then t, then action."""

    def __init__(self, charges: Mapping[Any, float] | None = None, *, default: float = 0.1) -> None:
        self.charges: dict[Any, float] = dict(charges or {})
        self.default = default
        self.asked: list[tuple[int, int]] = []

    def explore(self, chain: int, clock: int, s: object) -> int:
        self.asked.append((chain, clock))
        return chain + 1

    def baseline(self, t: int, s: object) -> int:
        return BASELINE

    def charge(self, t: int, s: object, a: int) -> float:
        if a == BASELINE:
            return 0.0
        for key in ((t, s) if isinstance(s, Hashable) else None, t, f"a{a}"):
            if key in self.charges:
                return self.charges[key]
        return self.default


def play(
    shield: Shield[Any], episode: int, plan: Script, states: Sequence[Any], *, terminated: bool = False
) -> tuple[list[Decision], EpisodeEnd[Any]]:
    """Play a whole episode along `states`, the last of which is only reached."""
    shield.begin(episode, plan)
    decisions = []
    for t in range(len(states) - 1):
        decisions.append(shield.decide(episode, t, states[t]))
        shield.observe(
            episode, states[t + 1], terminated=terminated and t == len(states) - 2, transition=(episode, t)
        )
    return decisions, shield.finish(episode)


def chains(decisions: list[Decision]) -> list[int]:
    return [decision.chain for decision in decisions]


# The first step, the ledger


def test_an_episode_worked_by_hand() -> None:
    # eta 0.5: 0.25 fits, 0.4 more does not, so the chain waits at "b".
    # "b" comes again at t = 3 and 0.25 fits exactly.
    shield: Shield[str] = Shield(Rule.strict(0.5), horizon=5)
    plan = Script({0: 0.25, 1: 0.4, 2: 0.0, 3: 0.25, 4: 0.1})
    shield.begin(7, plan, number=3)
    path = ["a", "b", "c", "b", "d", "e"]
    decisions = []
    for t in range(5):
        decisions.append(shield.decide(7, t, path[t]))
        shield.observe(7, path[t + 1], terminated=False)
    assert decisions == [
        Decision(1, True, 0.25, 0.25, 0.25, 3, 0),
        Decision(0, False, 0.0, 0.25, 0.25, 3, -1),
        Decision(0, False, 0.0, 0.25, 0.25, 3, -1),
        Decision(1, True, 0.25, 0.5, 0.0, 3, 0),
        Decision(0, False, 0.0, 0.5, 0.0, 3, -1),
    ]
    assert shield.finish(7) == EpisodeEnd((), (), (), blocked=False, explored=2)
    assert (shield.started, shield.finished, shield.open_chains) == (1, 0, 1)


def test_a_capped_rule_books_the_bound_and_not_the_charge() -> None:
    shield: Shield[int] = Shield(Rule.capped(0.5, step_bound=0.25), horizon=3)
    decisions, _ = play(shield, 0, Script(default=9.0), [0, 0, 0, 0])
    assert [decision.charge for decision in decisions] == [0.25, 0.25, 0.0]
    assert decisions[-1].deficit == 0.5


def test_room_is_infinite_without_a_budget_and_zero_when_closed() -> None:
    for rule, room in ((Rule.unlimited(), math.inf), (Rule.closed(), 0.0), (Rule.paper(0.5), 0.15)):
        shield: Shield[int] = Shield(rule, horizon=1)
        shield.begin(0, Script())
        assert shield.decide(0, 0, 0).remaining == room


# Where chains wait, and who may try


def test_a_chain_resumes_at_its_target_and_acts_there_on_arrival() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=3)
    plan = Script()
    play(shield, 0, plan, ["a", "b", "c", "d"])
    decisions, _ = play(shield, 1, plan, ["a", "c", "b", "e"])
    assert chains(decisions) == [-1, -1, 0]


def test_a_chain_left_unfinished_at_the_end_waits_for_the_state_reached() -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=3)
    play(shield, 0, Script(), ["a", "b"])
    decisions, outcome = play(shield, 1, Script(), ["c", "b", "a", "c"])
    assert chains(decisions) == [-1, 0, 0]
    assert [(step.s, step.s_next) for step in outcome.finished[0].steps] == [
        ("a", "b"),
        ("b", "a"),
        ("a", "c"),
    ]


def test_a_chain_refused_at_its_first_step_is_started_and_waits_there() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=2)
    _, outcome = play(shield, 0, Script(default=0.5), ["a", "b", "c"])
    assert outcome.blocked
    assert (shield.started, shield.open_chains, shield.blocked) == (1, 1, 1)
    decisions, outcome = play(shield, 1, Script(), ["b", "a", "c"])
    assert chains(decisions) == [-1, 0]
    assert not outcome.blocked


def test_new_chains_start_at_the_first_step_only_and_while_there_is_room() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=2, pool=2)
    assert chains(play(shield, 0, Script(), ["a", "x", "y"])[0]) == [0, -1]
    assert chains(play(shield, 1, Script(), ["b", "y", "y"])[0]) == [1, -1]
    assert chains(play(shield, 2, Script(), ["c", "z", "z"])[0]) == [-1, -1]
    assert shield.started == 2


def test_no_chain_is_started_where_one_waits_even_if_that_one_is_refused() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=2, pool=9)
    for episode in range(3):
        play(shield, episode, Script(default=0.5), ["a", "a", "a"])
    assert shield.started == 1


def start_two_chains_at(state: str, rule: Rule, *, horizon: int = 4) -> Shield[str]:
    """Chain 0 started in "a" and chain 1 in "b"; both then wait for `state`."""
    shield: Shield[str] = Shield(rule, horizon=horizon, pool=2)
    play(shield, 0, Script(default=0.0), ["a", state])
    play(shield, 1, Script(default=0.0), ["b", state])
    return shield


def test_with_pause_the_chains_at_a_target_are_tried_from_the_oldest_until_one_is_afforded() -> None:
    shield = start_two_chains_at("x", Rule.strict(0.3))
    plan = Script({"a1": 0.5, "a2": 0.2})
    decisions, _ = play(shield, 2, plan, ["x", "y"])
    assert chains(decisions) == [1]
    assert [chain for chain, _ in plan.asked] == [0, 1]


def test_with_close_only_the_oldest_is_tried_and_its_refusal_ends_exploration() -> None:
    shield = start_two_chains_at("x", Rule.strict(0.3, after_refusal="close"))
    plan = Script({"a1": 0.5, "a2": 0.0})
    decisions, outcome = play(shield, 2, plan, ["x", "x", "x"])
    assert chains(decisions) == [-1, -1]
    assert [chain for chain, _ in plan.asked] == [0]
    assert outcome.blocked


def test_the_refusal_of_the_chain_being_fed_leaves_no_turn_to_another_at_that_step() -> None:
    shield = start_two_chains_at("x", Rule.strict(0.3))
    # Chain 0 stays in "x", free at t = 0 and too dear from t = 1 on; chain 1 waits there too and could pay.
    plan = Script({(0, "x"): 0.0, "a1": 0.5, "a2": 0.1})
    decisions, _ = play(shield, 2, plan, ["x", "x", "x", "x"])
    assert chains(decisions) == [0, -1, 1]


def test_a_refused_chain_that_was_waiting_keeps_its_place() -> None:
    shield = start_two_chains_at("x", Rule.strict(0.3))
    play(shield, 2, Script(default=0.5), ["x", "y"])
    assert chains(play(shield, 3, Script(), ["y", "x", "y"])[0]) == [-1, 0]


# Completion


def test_a_chain_of_h_steps_is_finished_in_the_episode_that_completes_it_and_goes_on_exploring() -> None:
    shield: Shield[int] = Shield(Rule.strict(0.25), horizon=3)
    plan = Script({0: 0.25, 1: 0.25, 2: 0.0})
    assert play(shield, 0, plan, [0, 1, 2, 3])[1].finished == ()
    decisions, outcome = play(shield, 1, Script(default=0.0), [1, 2, 3, 4])
    assert chains(decisions) == [0, 0, 0]
    (rollout,) = outcome.finished
    assert [step.transition for step in rollout.steps] == [(0, 0), (1, 0), (1, 1)]
    assert outcome.ended == (0,)
    assert (shield.finished, shield.open_chains) == (1, 0)


def test_a_terminal_state_completes_a_chain() -> None:
    shield: Shield[int] = Shield(Rule.unlimited(), horizon=9)
    _, outcome = play(shield, 0, Script(), [0, 1, 2], terminated=True)
    assert len(outcome.finished[0].steps) == 2


def test_a_baseline_step_into_a_terminal_state_leaves_the_waiting_chain_unfinished() -> None:
    shield: Shield[int] = Shield(Rule.strict(0.1), horizon=9)
    _, outcome = play(shield, 0, Script({1: 0.5}), [0, 1, 2], terminated=True)
    assert outcome.finished == ()
    assert shield.open_chains == 1


@pytest.mark.parametrize(("clock", "clocks"), [("episode", [0, 1, 0, 1, 2]), ("meta", [0, 1, 1, 2, 2])])
def test_the_clock_is_the_episodes_or_the_chains_length_and_the_episodes_again_once_complete(
    clock: str, clocks: list[int]
) -> None:
    shield: Shield[int] = Shield(Rule.strict(0.1), horizon=3, clock=clock)
    plan = Script({1: 0.5})
    play(shield, 0, plan, [0, 1, 2])
    again = Script(default=0.0)
    play(shield, 1, again, [1, 2, 3, 4])
    assert [clock for _, clock in plan.asked + again.asked] == clocks


def test_a_completed_chain_that_is_refused_is_let_go_and_another_may_follow() -> None:
    # Chain 0 has two of its three steps and waits at "x", chain 1 one and waits at "y".
    shield: Shield[str] = Shield(Rule.strict(0.3), horizon=3, pool=2)
    play(shield, 0, Script(default=0.0), ["a", "b", "x"])
    play(shield, 1, Script(default=0.0), ["c", "y"])
    plan = Script({(1, "z"): 0.5})
    decisions, outcome = play(shield, 2, plan, ["x", "z", "y", "w"])
    assert chains(decisions) == [0, -1, 1]
    assert [rollout.chain for rollout in outcome.finished] == [0]
    assert outcome.finished[0].exhausted == 0


def test_with_close_a_completed_chain_explores_on_until_refused_and_nothing_follows() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.3, after_refusal="close"), horizon=4, pool=2)
    play(shield, 0, Script(default=0.0), ["a", "b", "d", "x"])
    play(shield, 1, Script(default=0.0), ["c", "y"])
    decisions, _ = play(shield, 2, Script({2: 0.5}), ["x", "z", "y", "y", "w"])
    assert chains(decisions) == [0, 0, -1, -1]


# What a chain's episodes were like


def test_the_episodes_of_a_chain_are_counted_by_what_stopped_it() -> None:
    # H = 8, so 2 steps make an episode long. Episode 0: two steps, then cut off: long. 1: never at "c":
    # missed. 2: one step, then cut off: missed, though fed. 3: refused at "d" at once: exhausted. 4: three
    # steps, then refused: exhausted, not long. 5: two steps complete the chain, then a refusal: long.
    shield: Shield[str] = Shield(Rule.strict(0.3), horizon=8)
    free = Script(default=0.0)
    play(shield, 0, free, ["a", "b", "c"])
    play(shield, 1, free, ["a", "a", "a"])
    play(shield, 2, free, ["c", "d"])
    play(shield, 3, Script(default=0.5), ["d", "e"])
    play(shield, 4, Script({3: 0.5}, default=0.0), ["d", "e", "f", "g", "h"])
    _, outcome = play(shield, 5, Script({2: 0.5}, default=0.0), ["g", "h", "i", "j"])
    (rollout,) = outcome.finished
    assert (rollout.episodes, rollout.fed_episodes) == (6, 4)
    assert (rollout.exhausted, rollout.long, rollout.missed) == (2, 2, 2)


def test_patience_counts_the_episodes_since_the_chain_last_advanced() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=3, patience=2)
    assert play(shield, 0, Script(), ["a", "b", "c", "d"])[1].abandoned == ()
    assert play(shield, 1, Script(), ["x", "y"])[1].abandoned == ()
    _, outcome = play(shield, 2, Script(default=0.5), ["b", "y"])
    assert outcome.abandoned == (0,)
    assert outcome.ended == (0,)
    assert outcome.blocked
    assert (shield.abandoned, shield.open_chains) == (1, 0)
    assert chains(play(shield, 3, Script(), ["b", "y"])[0]) == [1]


def test_advancing_a_chain_renews_patience() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=9, patience=1)
    for episode in range(4):
        assert play(shield, episode, Script(), ["a", "a"])[1].abandoned == ()


def test_no_patience_abandons_every_unfinished_chain_at_the_end_of_the_episode() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=3, pool=3, patience=0)
    assert play(shield, 0, Script(), ["a", "b", "c"])[1].abandoned == (0,)
    assert play(shield, 1, Script(), ["b", "b", "c"])[1].abandoned == (1,)


# Chains off


def test_with_chains_off_every_episode_explores_from_its_start_until_refused() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1), horizon=3, chains=False)
    plan = Script({0: 0.0, 1: 0.5, 2: 0.0})
    for episode in range(2):
        decisions, outcome = play(shield, episode, plan, ["a", "a", "a", "a"])
        assert chains(decisions) == [episode, -1, -1]
        assert outcome.ended == (episode,)
        assert outcome.finished == ()
    assert (shield.started, shield.dropped, shield.finished, shield.open_chains) == (2, 2, 0, 0)


def test_with_chains_off_a_refusal_closes_whatever_the_rule_says() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.1, after_refusal="pause"), horizon=3, chains=False)
    shield.begin(0, Script(default=0.5))
    shield.decide(0, 0, "a")
    assert shield.ledger(0).closed


def test_with_chains_off_a_whole_episode_of_exploration_still_finishes_its_chain() -> None:
    shield: Shield[str] = Shield(Rule.unlimited(), horizon=2, chains=False)
    _, outcome = play(shield, 0, Script(), ["a", "b", "c"])
    assert outcome.finished[0].episodes == 1
    _, outcome = play(shield, 1, Script(), ["a", "b"])
    assert (outcome.finished, outcome.ended) == ((), (1,))


# Several episodes at once


def test_a_chain_being_fed_waits_for_no_other_episode_and_takes_room() -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=3)
    shield.begin(0, Script())
    shield.begin(1, Script())
    assert shield.decide(0, 0, "a").chain == 0
    assert shield.decide(1, 0, "a").chain == -1
    shield.observe(0, "b", terminated=False)
    shield.observe(1, "b", terminated=False)
    assert shield.decide(1, 1, "b").chain == -1
    assert shield.finish(0).explored == 1
    shield.observe(1, "b", terminated=False)
    assert shield.decide(1, 2, "b").chain == 0


def test_each_episode_has_a_ledger_and_a_plan_of_its_own() -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=3, pool=2)
    shield.begin(0, Script(default=0.25), number=10)
    shield.begin(1, Script(default=0.5), number=11)
    assert shield.decide(0, 0, "a") == Decision(1, True, 0.25, 0.25, 0.75, 10, 0)
    assert shield.decide(1, 0, "a") == Decision(2, True, 0.5, 0.5, 0.5, 11, 1)
    assert shield.ledger(0) == Ledger(deficit=0.25)


def test_the_parts_add_up_when_episodes_opened_earlier_feed_the_chain_later() -> None:
    # Three episodes are open when the chain starts in 0; then 1 feeds it. All three are episodes of its life.
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=2)
    for episode in range(3):
        shield.begin(episode, Script())
    shield.decide(0, 0, "a")
    shield.observe(0, "b", terminated=False)
    shield.finish(0)
    shield.decide(1, 0, "b")
    shield.observe(1, "c", terminated=False)
    (rollout,) = shield.finish(1).finished
    assert (rollout.episodes, rollout.fed_episodes) == (3, 2)
    assert (rollout.exhausted, rollout.long, rollout.missed) == (0, 2, 1)


# Charges that are not numbers to book


@pytest.mark.parametrize("charge", [math.nan, math.inf])
@pytest.mark.parametrize("rule", [Rule.strict(0.4), Rule.unlimited(), Rule.capped(0.4, step_bound=0.1)])
def test_a_charge_that_is_not_finite_is_refused_and_never_booked(rule: Rule, charge: float) -> None:
    shield: Shield[str] = Shield(rule, horizon=2)
    decisions, outcome = play(shield, 0, Script({0: charge, 1: 0.1}), ["a", "a", "a"])
    assert chains(decisions) == [-1, 0]
    assert decisions[0].deficit == 0.0
    assert outcome.explored == 1


def test_a_charge_that_is_not_finite_closes_where_a_refusal_does() -> None:
    shield: Shield[str] = Shield(Rule.paper(0.4), horizon=2)
    assert chains(play(shield, 0, Script({0: math.nan}), ["a", "a", "a"])[0]) == [-1, -1]


# Errors leave everything as it was


class Faulty:
    """Answers as told; picklable and without memory, so that a shield can be compared with itself."""

    def __init__(self, *, charge: object = 0.1, explore: object = 1, baseline: object = 0) -> None:
        self.answers = (charge, explore, baseline)

    def explore(self, chain: int, clock: int, s: object) -> Any:
        return self.answers[1]

    def baseline(self, t: int, s: object) -> Any:
        return self.answers[2]

    def charge(self, t: int, s: object, a: int) -> Any:
        return self.answers[0]


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (Faulty(charge=-0.1), InvalidBudget),
        (Faulty(charge=-math.inf), InvalidBudget),
        (Faulty(charge=None), InvalidBudget),
        (Faulty(explore=1.5), InvalidAction),
        (Faulty(explore=-1), InvalidAction),
        (Faulty(charge=0.5, baseline=None), InvalidAction),
    ],
)
def test_a_faulty_answer_is_an_error_that_changes_nothing(plan: Faulty, error: type[CharyError]) -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=2)
    shield.begin(0, plan)
    before = pickle.dumps(shield)
    with pytest.raises(error, match=r"must be .*, got "):
        shield.decide(0, 0, "a")
    assert pickle.dumps(shield) == before
    assert (shield.started, shield.ledger(0)) == (0, Ledger())


def test_calls_out_of_order_are_errors_that_change_nothing() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=2)
    plan = Faulty()

    def refused(call: str, *args: Any, **options: Any) -> None:
        before = pickle.dumps(shield)
        with pytest.raises(OutOfOrder, match=r"must .* got "):
            getattr(shield, call)(*args, **options)
        assert pickle.dumps(shield) == before

    refused("decide", 0, 0, "a")
    refused("observe", 0, "a", terminated=False)
    refused("finish", 0)
    refused("ledger", 0)
    shield.begin(0, plan)
    refused("begin", 0, plan)
    refused("observe", 0, "a", terminated=False)
    refused("decide", 0, 1, "a")
    shield.decide(0, 0, "a")
    refused("decide", 0, 1, "a")
    refused("finish", 0)
    shield.observe(0, "b", terminated=False)
    refused("observe", 0, "b", terminated=False)
    refused("decide", 0, 0, "b")
    shield.decide(0, 1, "b")
    shield.observe(0, "c", terminated=False)
    refused("decide", 0, 2, "c")
    shield.finish(0)
    refused("finish", 0)
    refused("abandon", 0)
    refused("decide", [0], 0, "a")
    shield.begin(0, plan)


def test_a_step_asked_for_again_gets_the_same_answer_and_costs_nothing_more() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=2)
    shield.begin("patient 7", Faulty(charge=0.3))
    first = shield.decide("patient 7", 0, "a")
    before = pickle.dumps(shield)
    assert (first.explored, first.deficit) == (True, 0.3)
    assert shield.decide("patient 7", 0, "a") == first
    with pytest.raises(InvalidData, match="'s' must be the state decided in, 'a', got 'b'"):
        shield.decide("patient 7", 0, "b")
    assert pickle.dumps(shield) == before


def test_a_proposal_is_played_where_the_ledger_affords_it_and_leaves_the_chains_alone() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=3)
    shield.begin(0, Script(default=0.3))
    first = shield.decide(0, 0, "a", proposal=1)
    assert (first.action, first.explored, first.charge, first.chain) == (1, True, 0.3, -1)
    shield.observe(0, "b", terminated=False)
    second = shield.decide(0, 1, "b", proposal=1)
    assert (second.action, second.explored, second.deficit) == (BASELINE, False, 0.3)
    shield.observe(0, "c", terminated=False)
    assert shield.finish(0).explored == 1
    assert (shield.started, shield.open_chains) == (0, 0)


def test_a_proposal_frees_the_chain_that_was_being_fed() -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=9)
    shield.begin(0, Script())
    assert shield.decide(0, 0, "a").chain == 0
    shield.observe(0, "b", terminated=False)
    shield.decide(0, 1, "b", proposal=1)
    shield.begin(1, Script())
    # The chain waits at b, where another episode may take it on at once.
    assert shield.decide(1, 0, "b").chain == 0


@pytest.mark.parametrize("proposal", [-1, 1.5, "1", True, math.nan])
def test_a_proposal_that_is_no_action_changes_nothing(proposal: Any) -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=3)
    shield.begin(0, Script())
    before = pickle.dumps(shield)
    with pytest.raises(InvalidAction, match="'proposal' must be a whole number"):
        shield.decide(0, 0, "a", proposal=proposal)
    assert pickle.dumps(shield) == before


def test_an_abandoned_episode_leaves_its_chain_where_the_last_step_was_to_be_taken() -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=9)
    shield.begin(0, Script())
    shield.decide(0, 0, "a")
    shield.observe(0, "b", terminated=False)
    shield.decide(0, 1, "b")
    shield.abandon(0)
    shield.begin(1, Script())
    assert shield.decide(1, 0, "b").chain == 0
    shield.observe(1, "c", terminated=True)
    (rollout,) = shield.finish(1).finished
    assert [(step.s, step.s_next) for step in rollout.steps] == [("a", "b"), ("b", "c")]


def test_no_step_follows_a_terminal_state() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=9)
    shield.begin(0, Script())
    shield.decide(0, 0, "a")
    shield.observe(0, "end", terminated=True)
    with pytest.raises(OutOfOrder, match="terminal"):
        shield.decide(0, 1, "end")


def test_a_step_that_does_not_start_where_the_last_one_ended_is_refused() -> None:
    shield: Shield[str] = Shield(Rule.strict(0.4), horizon=9)
    shield.begin(0, Script())
    shield.decide(0, 0, "a")
    shield.observe(0, "b", terminated=False)
    with pytest.raises(InvalidData, match="'s' must be the state observed last, 'b', got 'a'"):
        shield.decide(0, 1, "a")


def test_a_state_that_cannot_be_looked_up_is_refused_with_the_way_out() -> None:
    shield: Shield[Any] = Shield(Rule.strict(0.4), horizon=9)
    shield.begin(0, Script())
    with pytest.raises(InvalidData, match=r"hashable.*got list.*within\(radius\)"):
        shield.decide(0, 0, [0.0])
    shield.decide(0, 0, 0.0)
    with pytest.raises(InvalidData, match="'s_next' must be hashable"):
        shield.observe(0, [0.0], terminated=False)
    shield.observe(0, 1.0, terminated=False)


@pytest.mark.parametrize(
    "options",
    [
        {"horizon": 0},
        {"horizon": 2.5},
        {"pool": 0},
        {"patience": -1},
        {"clock": "wall"},
        {"match": 0.5},
        {"rule": 0.4},
    ],
)
def test_a_shield_refuses_settings_outside_their_range(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(CharyError, match=f"'{name}' must be"):
        Shield(**{"rule": Rule.strict(0.4), "horizon": 2, **options})


# Targets in a continuous space


def test_within_matches_up_to_its_radius() -> None:
    near = within(0.5)
    assert near([0.0, 0.0], [0.3, 0.4])
    assert not near([0.0, 0.0], [0.3, 0.41])
    assert not within(9.0)([math.nan], [math.nan])
    assert repr(near).endswith("(radius=0.5)")
    with pytest.raises(InvalidData, match="as many coordinates"):
        near([0.0], [0.0, 0.0])
    for radius in (-1.0, math.inf, math.nan):
        with pytest.raises(InvalidSetting, match="'radius'"):
            within(radius)


def test_same_is_equality() -> None:
    assert same((1, 2), (1, 2))
    assert not same(1, 2)


def test_a_chain_resumes_near_its_target_even_if_the_environment_reuses_its_buffer() -> None:
    shield: Shield[Sequence[float]] = Shield(Rule.strict(0.1), horizon=3, match=within(0.5))
    plan = Script()
    buffer = [0.0]
    shield.begin(0, plan)
    shield.decide(0, 0, buffer)
    buffer[0] = 5.0
    shield.observe(0, buffer, terminated=False)
    shield.finish(0)
    buffer[0] = 0.0
    shield.begin(1, plan)
    assert shield.decide(1, 0, buffer).chain == -1
    buffer[0] = 5.4
    shield.observe(1, buffer, terminated=False)
    assert shield.decide(1, 1, buffer).chain == 0


# Users' own plans


def test_check_plan_passes_a_sound_plan() -> None:
    check_plan(Script(), ["a", "b"], horizon=3, chains=(0, 1), allowed=lambda s: [0, 1, 2])


class Forgetful(Script):
    """Its charge grows each time it is asked."""

    def charge(self, t: int, s: object, a: int) -> float:
        self.default += 0.5
        return 0.0 if a == BASELINE else self.default


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        (Script({0: -0.1}), InvalidBudget, "finite and >= 0, got -0.1"),
        (Script({1: math.nan}), InvalidBudget, "finite and >= 0, got nan"),
        (Script({1: math.inf}), InvalidBudget, "finite and >= 0, got inf"),
        (Faulty(charge="dear"), InvalidBudget, "finite and >= 0, got 'dear'"),
        (Faulty(charge=0.1, explore=0), InvalidBudget, "must be 0 for the baseline's own action, got 0.1"),
        (Faulty(explore=1.0), InvalidAction, "'explore' must be a whole number"),
        (Faulty(baseline=True), InvalidAction, "'baseline' must be a whole number"),
        (Faulty(explore=5), InvalidAction, r"one of \[0, 1, 2\], got 5"),
        (Forgetful(), InvalidData, r"'charge\(a=1\)' must not change"),
    ],
)
def test_check_plan_names_the_broken_promise(plan: Any, error: type[CharyError], message: str) -> None:
    with pytest.raises(error, match=message):
        check_plan(plan, ["a", "b"], horizon=3, allowed=lambda s: [0, 1, 2])


def test_check_plan_prices_every_allowed_action() -> None:
    check_plan(Script({"a7": math.nan}), ["a"], horizon=1)
    with pytest.raises(InvalidBudget, match="a = 7"):
        check_plan(Script({"a7": math.nan}), ["a"], horizon=1, allowed=lambda s: [0, 1, 7])


# Another action than decided


@pytest.mark.parametrize("chains_on", [True, False])
def test_an_overruled_step_costs_and_is_no_step_of_the_chain(chains_on: bool) -> None:
    shield: Shield[str] = Shield(Rule.strict(1.0), horizon=3, chains=chains_on)
    plan = Script({0: 0.25, 1: 0.5})
    shield.begin(0, plan)
    first = shield.decide(0, 0, "a")
    shield.observe(0, "b", terminated=False, taken=first.action)
    second = shield.decide(0, 1, "b")
    assert (second.chain, second.deficit) == (0, 0.75)
    shield.observe(0, "c", terminated=False, taken=second.action + 1)
    assert shield.ledger(0).deficit == 0.75
    # The chain has one step and waits at "b", where the second was to be played, or is dropped.
    assert shield.decide(0, 2, "c").chain == -1
    shield.observe(0, "b", terminated=False)
    assert shield.finish(0).ended == (() if chains_on else (0,))
    assert (shield.open_chains, shield.dropped) == ((1, 0) if chains_on else (0, 1))
    shield.begin(1, plan)
    resumed = shield.decide(1, 0, "b")
    assert (resumed.explored, resumed.chain) == (True, 0 if chains_on else 1)
