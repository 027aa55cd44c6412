"""Posterior worlds in live use: votes, pinned plans, late and lost outcomes, own policies, bad input."""

from __future__ import annotations

import gc
import itertools
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from chary import CharyUCBVI, FiniteMDP, OwnBaseline, Setting, TabularAgent, Transition, make_agent
from chary.data import Log
from chary.envs import TabularEnv, riverswim
from chary.errors import CharyError, InvalidBudget, InvalidData, InvalidSetting
from chary.planner.joint import JointPlan
from chary.rollouts import rollout, rollout_many
from chary.shield import Ledger, Rule, Shield
from chary.shield.worlds import Panel, Vote, Votes, upper
from chary.storage.sealed import pack
from chary.wrappers import Shielded, ShieldedVector

S, A, H, K = 4, 3, 3, 8
WORLDS: dict[str, Any] = {"eta": 1.5, "bonus": "posterior", "worlds": K, "risk": 0.3}


def setting(**options: Any) -> Setting:
    return Setting.declare(**{"n_states": S, "n_actions": A, "horizon": H, **options})


def log(n: int = 30, seed: int = 0) -> list[list[Transition]]:
    rng = np.random.default_rng(seed)
    states = rng.integers(S, size=(n, H + 1)).tolist()
    return [
        [
            Transition(s, int(rng.integers(A)), float(rng.random()), x, terminated=False)
            for s, x in itertools.pairwise(row)
        ]
        for row in states
    ]


def agent(*, warm: bool = True, own: OwnBaseline | None = None, **options: Any) -> TabularAgent:
    spec = CharyUCBVI(**WORLDS | options)
    made = TabularAgent(spec, setting(), generator=np.random.default_rng(1), own=own)
    if warm:
        made.warm_start(log())
    return made


def play(mine: TabularAgent, name: int | str, rng: np.random.Generator, *, finish: bool = True) -> None:
    s = int(rng.integers(S))
    mine.begin(name, s)
    for t in range(H):
        action, x = mine.act(name, t, s).action, int(rng.integers(S))
        mine.observe(name, Transition(s, action, float(rng.random()), x, terminated=False))
        s = x
    if finish:
        mine.finish(name)


def other_action(mine: TabularAgent, name: int | str, t: int, s: int) -> int:
    """Return an action that the baseline would not play."""
    return (int(mine.plan_of(name).baseline(t, s)) + 1) % A


def test_a_decision_tells_how_the_worlds_voted() -> None:
    mine = agent()
    mine.begin("a", 0)
    decision = mine.act("a", 0, 0, proposal=other_action(mine, "a", 0, 0))
    vote = decision.vote
    assert isinstance(vote, Vote)
    assert vote.worlds == K
    assert vote.afforded == decision.explored
    assert vote.describe().startswith(f"In {vote.within} of {K} worlds within budget; worst world ")
    assert mine.act("a", 0, 0) == decision
    # One number per world is booked, and the panel's bound on them is the ledger.
    gaps = mine.plan_of("a").charges(0, 0, decision.action)
    assert decision.explored
    assert gaps.shape == (K,)
    assert gaps.max() > 0
    assert decision.deficit == decision.charge == upper(gaps.tolist(), Panel.of(0.3, worlds=K))
    assert mine.ledger("a") == Ledger(False, decision.deficit)


def test_a_refusal_tells_the_vote_too_and_books_nothing() -> None:
    mine = agent(eta=1e-6, risk=0.01)
    mine.begin("a", 0)
    decision = mine.act("a", 0, 0, proposal=other_action(mine, "a", 0, 0))
    assert not decision.explored
    assert decision.vote is not None
    assert not decision.vote.afforded
    assert decision.vote.within < K
    assert decision.deficit == decision.charge == 0.0


def test_what_happens_to_every_world_adds_up_over_an_episode() -> None:
    mine, before = agent(eta=10.0), np.zeros(K)
    mine.begin("a", 0)
    for t, (s, x) in enumerate([(0, 1), (1, 2), (2, 0)]):
        a = other_action(mine, "a", t, s)
        before += mine.plan_of("a").charges(t, s, a)
        decision = mine.act("a", t, s, proposal=a)
        assert decision.deficit == upper(before.tolist(), Panel.of(0.3, worlds=K))
        mine.observe("a", Transition(s, a, 0.5, x, terminated=False))


def test_an_episode_keeps_the_worlds_it_began_with() -> None:
    mine, rng = agent(growth=0.05), np.random.default_rng(5)
    mine.begin("old", 0)
    plan = mine.plan_of("old")
    steps = [(t, s, a) for t in range(H) for s in range(S) for a in range(A)]
    before = np.array([plan.charges(*step) for step in steps])
    for k in range(60):
        play(mine, k, rng)
    assert mine.plan is not plan
    assert mine.plan.worlds is not plan.worlds
    assert mine.plan.worlds.learnt > plan.worlds.learnt
    after = np.array([plan.charges(*step) for step in steps])
    assert before.tobytes() == after.tobytes()
    newer = np.array([mine.plan.charges(*step) for step in steps])
    assert newer.tobytes() != before.tobytes()


def test_only_plans_in_use_are_kept() -> None:
    mine, rng = agent(growth=0.0), np.random.default_rng(5)
    worlds = []
    for k in range(40):
        play(mine, k, rng, finish=k % 10 != 0)
        worlds.append(weakref.ref(mine.plan.worlds.rows.weight))
    gc.collect()
    alive = {id(each()) for each in worlds if each() is not None}
    # Four episodes are open, each with its own plan; besides there is the newest.
    assert len(alive) <= 5
    assert len(mine._learner._journal) > 30
    for k in range(0, 40, 10):
        mine.finish(k)
    assert len(mine._learner._journal) == 0


def test_many_decisions_at_once_are_the_same_as_one_by_one() -> None:
    one, many = agent(), agent()
    rng, names = np.random.default_rng(3), list(range(12))
    states = [int(rng.integers(S)) for _ in names]
    for name, s in zip(names, states, strict=True):
        one.begin(name, s)
        many.begin(name, s)
    for t in range(H):
        proposals = [
            other_action(one, k, t, s) if k % 2 else None for k, s in zip(names, states, strict=True)
        ]
        expected = [one.act(k, t, s, proposal=p) for k, s, p in zip(names, states, proposals, strict=True)]
        assert many.act_many(names, [t] * len(names), states, proposals) == expected
        nexts = [int(rng.integers(S)) for _ in names]
        for k, s, x, decision in zip(names, states, nexts, expected, strict=True):
            for each in (one, many):
                each.observe(k, Transition(s, decision.action, 0.5, x, terminated=False))
        states = nexts
    assert any(decision.explored for decision in expected)


def test_a_missing_outcome_holds_back_those_behind_it() -> None:
    mine = agent(warm=False, growth=0.0)
    action = None
    for name in ("first", "second"):
        mine.begin(name, 0)
        action = mine.act(name, 0, 0, proposal=1).action
    assert action is not None
    mine.observe("second", Transition(0, action, 1.0, 2, terminated=False))
    mine.finish("second")
    assert mine.plan.worlds.learnt == 0
    mine.observe("first", Transition(0, action, 0.0, 1, terminated=False))
    mine.finish("first")
    worlds = mine.plan.worlds
    assert worlds.learnt == 2
    assert worlds.counts.successor.tolist() == [1, 2]


def test_a_lost_outcome_widens_what_the_baseline_may_be_worth() -> None:
    mine = agent(growth=0.0)
    assert not mine.plan.worlds.losses
    assert len(mine.plan.arrays.top) == 0
    mine.begin("gone", 0)
    mine.act("gone", 0, 0)
    mine.abandon("gone")
    plan = mine.plan
    assert plan.worlds.losses
    low, high = plan.arrays.value[:, :, :K], plan.arrays.top[:, :, :K]
    assert (high >= low).all()
    assert (high[0] > low[0]).all()
    assert any("no outcome could get lost before" in each for each in mine.standing.given)
    declared = TabularAgent(CharyUCBVI(**WORLDS), setting(), losses=True)
    assert declared.plan.worlds.losses
    assert not any("get lost" in each for each in declared.standing.given)


@pytest.mark.parametrize("overrides", ["ignored", "counted"])
def test_an_overruled_step_counts_only_where_that_was_asked_for(overrides: str) -> None:
    spec = CharyUCBVI(**WORLDS | {"growth": 0.0})
    mine = TabularAgent(spec, setting(), overrides=overrides)
    mine.begin("a", 0)
    decision = mine.act("a", 0, 0, proposal=other_action(mine, "a", 0, 0))
    other = (decision.action + 1) % A
    mine.observe("a", Transition(0, other, 0.5, 2, terminated=False), taken=other)
    mine.finish("a")
    assert mine.plan.worlds.learnt == (overrides == "counted")
    assert decision.charge > 0


def test_a_log_is_learnt_before_the_first_episode() -> None:
    mine = agent(warm=False)
    episodes = log(20)
    mine.warm_start(Log.from_transitions(episodes).episodes())
    assert mine.plan.worlds.learnt == 20 * H
    assert any("logs are unconfounded" in each for each in mine.standing.given)
    assert mine.standing.label == "credible per episode (0.7)"


def test_states_found_to_end_episodes_are_worth_nothing() -> None:
    mine = agent(warm=False, growth=0.0)
    for k in range(5):
        mine.begin(k, 0)
        action = mine.act(k, 0, 0).action
        mine.observe(k, Transition(0, action, 1.0, 3, terminated=True))
        mine.finish(k)
    assert (mine.plan.arrays.value[:, 3] == 0).all()
    assert (mine.plan.arrays.value[0, 0] > 0).all()


def table() -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(9).integers(A, size=(H, S))


def test_an_own_policy_can_be_the_only_baseline_or_decide_ties() -> None:
    only = agent(own=OwnBaseline.declare(table(), setting(), role="only"))
    np.testing.assert_array_equal(only.plan.arrays.baseline, table())
    assert only.plan.fixed
    assert "the baseline is your own policy" in only.standing.given
    # All rewards are known to be 0: every action is as good as any other.
    nothing = np.zeros((S, A, S))
    mdp = FiniteMDP.from_arrays(nothing + 1 / S, nothing, horizon=H, reward_range=(0.0, 1.0))
    told = mdp.told("known")
    own = OwnBaseline.declare(table(), told, role="prior")
    spec = CharyUCBVI(**WORLDS | {"reward": "known"})
    tied, free = TabularAgent(spec, told, own=own), TabularAgent(spec, told)
    np.testing.assert_array_equal(tied.plan.arrays.baseline, table())
    assert (free.plan.arrays.baseline != table()).any()
    assert (agent(own=own).plan.arrays.baseline != table()).any()


def test_a_floor_is_replaced_only_where_the_worlds_agree() -> None:
    # Action 1 pays 1 and action 0 nothing, in every state; action 2 was tried once.
    steps = [
        [Transition(s, a, float(a == 1), (s + 1) % S, terminated=False)]
        for s in range(S)
        for a in (0, 1)
        for _ in range(40)
    ]
    bad = np.zeros((H, S), dtype=np.int64)
    mine = agent(warm=False, risk=0.01, own=OwnBaseline.declare(bad, setting(), role="floor"))
    np.testing.assert_array_equal(mine.plan.arrays.baseline, bad)
    assert mine.plan.fixed
    mine.warm_start(steps)
    np.testing.assert_array_equal(mine.plan.arrays.baseline, np.ones((H, S)))
    assert not mine.plan.fixed
    assert any("except where another was found to be better" in each for each in mine.standing.given)
    good = np.ones((H, S), dtype=np.int64)
    kept = agent(warm=False, risk=0.01, own=OwnBaseline.declare(good, setting(), role="floor"))
    kept.warm_start(steps)
    np.testing.assert_array_equal(kept.plan.arrays.baseline, good)


def test_posterior_sampling_explores_every_step_and_takes_no_proposals() -> None:
    mine = TabularAgent(make_agent("psrl", worlds=4), setting(), generator=np.random.default_rng(1))
    rng = np.random.default_rng(2)
    for k in range(5):
        mine.begin(k, 0)
        decision = mine.act(k, 0, 0)
        assert decision.explored
        assert decision.remaining == np.inf
        assert decision.action == mine.plan_of(k).arrays.explorer[0, 0, k]
        with pytest.raises(InvalidSetting, match="'proposal' must be None for agent 'psrl'"):
            mine.act(k, 1, int(rng.integers(S)), proposal=1)
    assert mine.standing.per is None


def test_a_chain_without_a_step_takes_the_explorer_of_the_plan_that_is_asked() -> None:
    mine = agent()
    plan = mine.plan
    assert isinstance(plan, JointPlan)
    lane = plan.arrays.explorer[:, :, 3]
    assert plan.explore(3, 1, 2) == lane[1, 2]
    assert plan.explorers == {}
    plan.freeze(3)
    np.testing.assert_array_equal(plan.explorers[3], lane)


def test_the_same_generator_gives_the_same_worlds_and_another_does_not() -> None:
    spec = CharyUCBVI(**WORLDS)
    first, second, other = (
        TabularAgent(spec, setting(), generator=np.random.default_rng(seed)).plan.worlds for seed in (1, 1, 2)
    )
    assert first.rows.total.tobytes() == second.rows.total.tobytes()
    assert first.rows.total.tobytes() != other.rows.total.tobytes()


def test_flat_rows_need_a_declared_support() -> None:
    wide = Setting.declare(n_states=100, n_actions=2, horizon=3)
    with pytest.raises(InvalidSetting, match="'world_prior' flat needs the number of possible successors"):
        TabularAgent(CharyUCBVI(**WORLDS | {"world_prior": "flat"}), wide)
    with pytest.raises(InvalidSetting, match="'world_prior' flat needs the number of possible successors"):
        TabularAgent(make_agent("psrl", world_prior="flat"), wide)


def test_files_of_other_worlds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    mine = agent()
    mine.begin("a", 0)
    mine.act("a", 0, 0)
    mine.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidData, match="'path' must contain an agent of chary"):
        TabularAgent.load(path)
    arrays, about = mine._record()
    faults: dict[str, Any] = {
        "worlds.weight": arrays["worlds.weight"][:, :-1],
        "worlds.total": -arrays["worlds.total"],
        "worlds.successor": arrays["worlds.successor"] + S,
        "worlds.atom_state": arrays["worlds.atom_state"] - S,
        "worlds.atom_start": arrays["worlds.atom_start"][::-1].copy(),
        "worlds.start": arrays["worlds.start"] * 0,
        "worlds.numbers": np.array([1, 2]),
        "worlds.lost": np.zeros((2, 3, 4)),
        "terminal": np.zeros(S + 1, dtype=bool),
    }
    for name, wrong in faults.items():
        path.write_bytes(pack("agent", {**arrays, name: wrong}, about))
        with pytest.raises(InvalidData, match="'path' must contain an agent of chary") as refusal:
            TabularAgent.load(path)
        assert "\n" not in str(refusal.value), name
    path.write_bytes(
        pack("agent", {name: each for name, each in arrays.items() if "atom" not in name}, about)
    )
    with pytest.raises(InvalidData):
        TabularAgent.load(path)
    other = agent(worlds=K + 1)._record()[0]
    path.write_bytes(pack("agent", other, about))
    with pytest.raises(InvalidData, match="must be"):
        TabularAgent.load(path)


def test_ledgers_of_a_file_have_one_deficit_per_world(tmp_path: Path) -> None:
    mine = agent()
    mine.begin("a", 0)
    mine.act("a", 0, 0, proposal=other_action(mine, "a", 0, 0))
    arrays, about = mine._record()
    account = about["shield"]["episodes"][0]
    deficits = arrays["open.deficits"]
    assert deficits.shape == (1, K)
    path = tmp_path / "agent.npz"
    for wrong in (deficits[:, :-1], -1.0 - deficits):
        path.write_bytes(pack("agent", {**arrays, "open.deficits": wrong}, about))
        with pytest.raises(InvalidData, match="'episodes' of the shield must be as the agent's"):
            TabularAgent.load(path)
    for malformed in (deficits.astype(str), deficits[0], np.vstack([deficits, deficits])):
        path.write_bytes(pack("agent", {**arrays, "open.deficits": malformed}, about))
        with pytest.raises(InvalidData, match="'path' must contain an agent of chary"):
            TabularAgent.load(path)
    account[-1] = [None, [True, 1, K, 0.0, 0.0]]
    path.write_bytes(pack("agent", arrays, about))
    with pytest.raises(InvalidData, match="'episodes' of the shield must be as the agent's"):
        TabularAgent.load(path)


class Two:
    """A plan of two worlds that charges what it is told."""

    def __init__(self, *charges: float) -> None:
        self.told = list(charges)

    def explore(self, chain: int, clock: int, s: int) -> int:
        return 1

    def baseline(self, t: int, s: int) -> int:
        return 0

    def charge(self, t: int, s: int, a: int) -> float:
        return max(self.told)

    def charges(self, t: int, s: int, a: int) -> list[float]:
        return list(self.told)


def test_any_plan_that_prices_worlds_can_be_put_to_the_vote() -> None:
    shield: Shield[int] = Shield(Rule.strict(0.5), horizon=4, votes=Votes(2, Panel(1, 3.0)))
    shield.begin(0, Two(0.1, 0.4))
    for t, explored in enumerate([True, True, True, True]):
        decision = shield.decide(0, t, 0)
        # One of the two worlds may exceed the budget: the other one's deficit decides.
        assert decision.explored == explored
        assert decision.deficit == pytest.approx(0.1 * (t + 1))
        shield.observe(0, 0, terminated=False)
    shield.begin(1, Two(float("nan"), 0.1))
    assert not shield.decide(1, 0, 0).explored
    shield.begin(2, Two(-0.1, 0.1))
    with pytest.raises(InvalidBudget, match=r"'charges' must be numbers >= 0, got -0\.1"):
        shield.decide(2, 0, 0)

    class Alone:
        explore, baseline, charge = Two.explore, Two.baseline, Two.charge

    with pytest.raises(InvalidSetting, match="'plan' must price steps in worlds, got Alone"):
        shield.begin(3, Alone())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worlds": 1}, "'worlds' must be a whole number >= 2, got 1"),
        ({"risk": 1.0}, r"'risk' must lie in \(0, 1\), got 1"),
        ({"kappa": -1.0}, "'kappa' must lie in"),
        ({"growth": -0.1}, "'growth' must lie in"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CharyError, match=message):
        agent(**options)
    with pytest.raises(CharyError, match=r"got 'posterior' with agent 'ucbvi'"):
        make_agent("ucbvi", bonus="posterior")


def test_wrappers_and_rollouts_take_worlds() -> None:
    mdp = riverswim(horizon=5)
    spec = CharyUCBVI(**WORLDS)
    shielded = Shielded(TabularEnv(mdp), TabularAgent(spec, mdp.setting))
    shielded.reset(seed=0)
    info = shielded.step(1)[4]
    assert info["explored"] == (info["refused"] is None)
    guard = TabularAgent(spec, mdp.setting)
    vector = ShieldedVector(SyncVectorEnv([lambda: TabularEnv(mdp)] * 3), guard)
    vector.reset(seed=0)
    told = 0
    for _ in range(12):
        *_, infos = vector.step([1, 0, 1])
        told += sum(
            isinstance(each, str) and "worlds within budget" in each for each in infos.get("vote", ())
        )
    assert told > 0
    assert guard.episodes_begun > 3
    player = TabularAgent(spec, mdp.setting)
    envs = SyncVectorEnv([lambda: TabularEnv(mdp)] * 2)
    assert len(list(rollout_many(envs, player, episodes=6, seed=1))) == 6
    assert len(list(rollout(TabularEnv(mdp), player, episodes=2, first=6, seed=1))) == 2
    # Two lanes began at once, and what waits has not been learnt.
    assert 0 < player.plan.worlds.learnt <= 8 * 5
