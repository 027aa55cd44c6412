"""Plans that are adopted, episodes learnt at any time, and recorded decisions that cannot have been made."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_live_calls import SETTING, content, counted

from chary.agents import CharyUCBVI, StepMix, Transition
from chary.agents.draft import Draft
from chary.agents.tabular import TabularAgent
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder
from chary.mdp import Setting
from chary.shield import Decision

LOGGED = [[Transition(s, a, 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)] * 5
BOUNDS: dict[str, Any] = {"eta": 0.5, "bonus": "hoeffding", "bonus_scale": 0.01}
WORLDS: dict[str, Any] = {"eta": 0.5, "bonus": "posterior", "worlds": 8, "risk": 0.2}
BOTH = pytest.mark.parametrize("options", [BOUNDS, WORLDS], ids=["bounds", "worlds"])


def agent(options: dict[str, Any] = BOUNDS, replan: str = "adopt", **more: Any) -> TabularAgent:
    mine = TabularAgent(
        CharyUCBVI(**{**options, **more}),
        SETTING,
        max_episodes=100_000,
        warmup=10,
        generator=np.random.default_rng(5),
        replan=replan,
    )
    mine.warm_start(LOGGED)
    return mine


def play(mine: TabularAgent, name: int | str, steps: int = 3, *, open_end: bool = False) -> None:
    mine.begin(name, 0)
    s = 0
    for t in range(steps):
        a = mine.act(name, t, s).action
        x = (s + a + t) % 3
        mine.observe(name, Transition(s, a, 0.5 * a, x, False))
        s = x
    if not open_end:
        mine.finish(name)


def values(mine: TabularAgent, episode: int | str) -> bytes:
    """Everything that an episode is decided by."""
    plan = mine.plan_of(episode)
    known = plan.worlds.to_arrays() if hasattr(plan, "worlds") else plan.knowledge.to_arrays()
    shared = ("q", "pooled", "atoms", "behind")
    kept = [v for k, v in plan.arrays._asdict().items() if k not in shared and isinstance(v, np.ndarray)]
    return b"".join(array.tobytes() for array in [*kept, *known.values()])


@BOTH
def test_no_plan_comes_into_force_before_it_is_adopted(options: dict[str, Any]) -> None:
    mine = agent(options)
    for k in range(20):
        play(mine, k)
    assert mine.act_many([], [], []) == []
    draft = mine.draft()
    play(mine, "before")
    mine.begin("open", 0)
    assert mine.act("open", 0, 0).plan == 1
    mine.adopt(draft)
    mine.begin("after", 0)
    assert (mine.act("after", 0, 0).plan, mine.act("open", 0, 0).plan) == (2, 1)
    assert mine.plan_of("after") is draft.plan
    assert mine.plan_of("open") is not draft.plan
    assert mine.drafted is None


@BOTH
def test_a_draft_is_made_in_another_thread_while_the_agent_learns(options: dict[str, Any]) -> None:
    quiet, busy = agent(options), agent(options)
    for mine in (quiet, busy):
        for k in range(10):
            play(mine, k)
    drafts: list[Draft] = []
    for k in range(10, 40):
        drafts.append(busy.draft())
        quiet.draft()
        thread = threading.Thread(target=drafts[-1].make)
        thread.start()
        for mine in (quiet, busy):
            play(mine, k)
            mine.learn(LOGGED[:3])
        thread.join()
        for mine in (quiet, busy):
            assert mine.drafted is not None
            mine.adopt(mine.drafted)
            mine.begin(f"open {k}", 0)
        # Made in another thread meanwhile, or when it was needed: the same to the bit.
        assert drafts[-1].made
        assert values(busy, f"open {k}") == values(quiet, f"open {k}")
        for mine in (quiet, busy):
            mine.abandon(f"open {k}")


@BOTH
def test_a_draft_that_was_replaced_is_still_made_of_what_it_rests_on(options: dict[str, Any]) -> None:
    mine, twin = agent(options), agent(options)
    for each in (mine, twin):
        play(each, 0)
    first, copy = mine.draft(), twin.draft()
    copy.make()
    second = mine.draft()
    for k in range(1, 30):
        play(mine, k)
    first.make()
    ours, theirs = (each.plan.arrays.baseline for each in (first, copy))
    assert first.digest == copy.digest == second.digest != mine.draft().digest
    assert np.array_equal(ours, theirs)
    for name in ("v_lower", "v_upper", "value"):
        if name in first.plan.arrays._fields:
            assert np.array_equal(getattr(first.plan.arrays, name), getattr(copy.plan.arrays, name))


@BOTH
def test_a_draft_before_the_warm_start_rests_on_what_was_known_then(options: dict[str, Any]) -> None:
    mine = TabularAgent(
        CharyUCBVI(**options), SETTING, max_episodes=9, generator=np.random.default_rng(1), replan="adopt"
    )
    draft, digest = mine.draft(), mine.drafted and mine.drafted.digest
    mine.warm_start(LOGGED)
    again = Draft(draft._plan, draft.version, draft._rests_on)
    assert again.digest == digest != mine.draft().digest


@BOTH
def test_only_the_draft_made_last_is_adopted(options: dict[str, Any], tmp_path: Path) -> None:
    mine = agent(options)
    play(mine, 0)
    old = mine.draft()
    play(mine, 1)
    new = mine.draft()
    before = content(mine, tmp_path)
    with pytest.raises(OutOfOrder, match="'draft' must be the one made last"):
        mine.adopt(old)
    with pytest.raises(InvalidSetting, match="'draft' must be a Draft"):
        mine.adopt("draft")  # type: ignore[arg-type]
    assert content(mine, tmp_path) == before
    loaded = TabularAgent.load(tmp_path / "now")
    assert loaded.drafted is not None
    assert loaded.drafted.digest == new.digest
    # A draft of before a restart is the same one.
    loaded.adopt(new)
    mine.adopt(new)
    assert content(mine, tmp_path) == content(loaded, tmp_path)
    with pytest.raises(OutOfOrder, match="'draft' must be the one made last"):
        mine.adopt(new)


def test_plans_are_adopted_only_where_that_was_asked_for(tmp_path: Path) -> None:
    mine = agent(replan="episode")
    before = content(mine, tmp_path)
    with pytest.raises(InvalidSetting, match="'replan' must be 'adopt' for 'draft', got 'episode'"):
        mine.draft()
    with pytest.raises(InvalidSetting, match="'replan' must be 'adopt' for 'adopt'"):
        mine.adopt(agent().draft())
    with pytest.raises(InvalidSetting, match="'replan' must be 'adopt' for 'discard'"):
        mine.discard(agent().draft())
    assert (mine.drafted, content(mine, tmp_path)) == (None, before)
    with pytest.raises(CharyError, match="'replan' must be one of"):
        agent(replan="never")
    with pytest.raises(InvalidSetting, match="'replan' must be 'episode' for agent 'stepmix'"):
        TabularAgent(StepMix(eta=0.5), SETTING, generator=np.random.default_rng(0), replan="adopt")


def test_a_draft_that_contradicts_the_value_cap_cannot_be_made() -> None:
    told = Setting.declare(n_states=2, n_actions=2, horizon=2, value_cap=0.5)
    mine = TabularAgent(CharyUCBVI(eta=0.5), told, replan="adopt")
    mine.begin(0, 0)
    mine.learn([[Transition(0, 1, 1.0, 0, False)] * 2] * 400)
    draft = mine.draft()
    with pytest.raises(InvalidData, match="'value_cap' must bound the value of every policy"):
        draft.make()
    assert not draft.made
    # Adopted all the same, it is refused where it is needed, and the agent goes on.
    mine.adopt(draft)
    mine.begin(1, 0)
    with pytest.raises(InvalidData, match="'value_cap'"):
        mine.act(1, 0, 0)
    assert not mine.poisoned
    assert mine.act(0, 0, 0).plan == 1


def test_a_draft_that_is_discarded_changes_nothing(tmp_path: Path) -> None:
    mine = agent()
    play(mine, 0)
    mine.begin("open", 0)
    before = content(mine, tmp_path)
    draft = mine.draft()
    with pytest.raises(OutOfOrder, match="'draft' must be the one made last"):
        mine.discard(agent().draft())
    mine.discard(draft)
    assert mine.drafted is None
    assert content(mine, tmp_path) == before
    for call in (mine.adopt, mine.discard):
        with pytest.raises(OutOfOrder, match="'draft' must be the one made last"):
            call(draft)
    mine.begin("after", 0)
    assert mine.act("after", 0, 0).plan == mine.act("open", 0, 0).plan == 1


@BOTH
def test_plans_live_as_long_as_open_episodes_use_them(options: dict[str, Any], tmp_path: Path) -> None:
    mine = agent(options)
    alive: list[weakref.ref[Any]] = []

    for k in range(30):
        play(mine, k)
        mine.begin(f"open {k}", 0)
        draft = mine.draft()
        draft.make()
        mine.adopt(draft)
        alive.append(weakref.ref(draft.plan.arrays[1 if options is WORLDS else 0]))
        del draft
        if k >= 3:
            mine.abandon(f"open {k - 3}")
    for chain in tuple(mine._learner.explorers):
        mine._learner.explorers[chain]
    gc.collect()
    assert sum(each() is not None for each in alive) <= 5
    assert len(mine._learner._journal) <= 5
    mine.save(tmp_path / "agent")
    loaded = TabularAgent.load(tmp_path / "agent")
    # Nothing is planned before it is needed.
    assert not any(now.pinned.plan.is_made for now in loaded._episodes)
    assert content(loaded, tmp_path) == (tmp_path / "agent").read_bytes()


@BOTH
@pytest.mark.parametrize("replan", ["episode", "adopt"])
def test_shadow_episodes_never_change_the_plan_of_an_open_one(
    options: dict[str, Any], replan: str, tmp_path: Path
) -> None:
    mine = agent(options, replan)
    play(mine, "open", 1, open_end=True)
    pinned, random = values(mine, "open"), np.random.default_rng(0)
    before = mine.explain(
        "open", 1, 0 if mine.plan_of("open") is None else mine._episodes.named("", "open").state
    )
    version = mine._learner.version
    for _ in range(20):
        s = int(random.integers(3))
        # Shadow episodes that make the action look as bad as can be.
        mine.learn([[Transition(s, a, 0.0, int(random.integers(3)), False) for a in (0,)]] * 7)
        assert values(mine, "open") == pinned
        mine.begin("now", 0)
        mine.abandon("now")
    assert mine.standing.given == TabularAgent.load(_saved(mine, tmp_path)).standing.given
    assert replan == "adopt" or mine._learner.version > version
    loaded = TabularAgent.load(_saved(mine, tmp_path))
    assert values(loaded, "open") == pinned
    assert loaded.explain("open", 1, before.state) == before
    assert mine.explain("open", 1, before.state) == before


def _saved(mine: TabularAgent, folder: Path) -> Path:
    mine.save(folder / "agent", overwrite=True)
    return folder / "agent"


def test_episodes_learnt_later_count_as_those_before_the_first() -> None:
    early, late = agent(replan="episode"), agent(replan="episode")
    early.learn(LOGGED)
    for mine in (early, late):
        mine.begin(0, 0)
        mine.abandon(0)
    late.learn(LOGGED)
    ours, theirs = early.plan.knowledge.to_arrays(), late.plan.knowledge.to_arrays()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert counted(late) == 2 * len(LOGGED)


def test_explorers_learn_from_shadow_episodes_too() -> None:
    mine = agent(replan="episode", data="meta")
    mine.begin(0, 0)
    separate = mine._learner._separate  # type: ignore[union-attr]
    assert separate is not None
    total = separate.rows.total.sum()
    mine.learn(LOGGED)
    assert separate.rows.total.sum() == total + len(LOGGED)


@pytest.mark.parametrize("begun", [False, True])
def test_a_shadow_episode_that_contradicts_what_is_known_counts_nothing(begun: bool, tmp_path: Path) -> None:
    mine = agent(replan="episode")
    if begun:
        play(mine, 0, 1, open_end=True)
    before = content(mine, tmp_path)
    good = Transition(0, 0, 0.5, 1, False)
    for wrong in (
        Transition(0, 0, 2.0, 1, False),
        Transition(0, 5, 0.5, 1, False),
        Transition(0, 0, 0.5, 1, True),
        Transition(0, 0, 0.5, 9, False),
        "nonsense",
    ):
        with pytest.raises((InvalidData, InvalidAction)):
            mine.learn([[good], [good, wrong]])  # type: ignore[list-item]
        assert content(mine, tmp_path) == before
    with pytest.raises(InvalidData, match="'episodes' must be lists of transitions"):
        mine.learn(3)  # type: ignore[arg-type]
    mine.learn([])
    mine.learn([[]])
    assert content(mine, tmp_path) == before


def test_bounds_that_need_the_number_of_logged_steps_hold_to_it(tmp_path: Path) -> None:
    mine = TabularAgent(CharyUCBVI(eta=0.5, bonus="l1"), SETTING, max_episodes=10, warmup=2)
    mine.warm_start([[Transition(0, 0, 0.5, 1, False)] * 1] * 3)
    mine.begin(0, 0)
    mine.learn([[Transition(0, 0, 0.5, 1, False)]] * 2)
    loaded = TabularAgent.load(_saved(mine, tmp_path))
    for each in (mine, loaded):
        with pytest.raises(InvalidSetting, match="'warmup' must cover all that is learnt from logs"):
            each.learn([[Transition(0, 0, 0.5, 1, False)]] * 2)
        each.learn([[Transition(0, 0, 0.5, 1, False)]])


@BOTH
def test_a_decision_that_cannot_have_been_made_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    mine = agent(options, eta=0.3)
    mine.begin(0, 0)
    mine.begin("held", 0)
    made = mine.recommend(0, 0, 0)
    before = content(mine, tmp_path)
    dear = made._replace(charge_scaled=0.31, deficit_scaled=0.31, remaining_scaled=0.0)
    if made.vote is not None:
        dear = dear._replace(vote=made.vote._replace(deficit=0.31))
    wrong: list[tuple[Decision, dict[str, Any]]] = [
        (dear, {}),
        (made._replace(plan=7), {}),
        (made._replace(chain=5), {}),
        (made._replace(chain=-1), {}),
        (made._replace(explored=False), {}),
        (made._replace(deficit_scaled=made.deficit_scaled + 0.1), {}),
        (made._replace(remaining_scaled=0.0), {}),
        (made._replace(charge_scaled=-0.1, deficit_scaled=-0.1), {}),
        (made._replace(charge_scaled=float("nan")), {}),
        (made._replace(span=2.0), {}),
        (made, {"explore": False}),
        (made, {"proposal": 1 - made.action}),
        (made._replace(vote=None if made.vote else "vote"), {}),  # type: ignore[arg-type]
    ]
    for decision, how in wrong:
        with pytest.raises(InvalidData):
            mine.apply(0, 0, 0, decision, **how)
        assert content(mine, tmp_path) == before
    calls: list[tuple[Callable[[], None], type[CharyError]]] = [
        (lambda: mine.apply(0, 1, 0, made), OutOfOrder),
        (lambda: mine.apply(0, 0, 1, made), InvalidData),
        (lambda: mine.apply(2, 0, 0, made), OutOfOrder),
        (lambda: mine.apply(0, 0, 0, made._replace(action=9)), InvalidAction),
        (lambda: mine.apply(0, 0, 0, made.action), InvalidData),  # type: ignore[arg-type]
        (lambda: mine.apply(0, 0, 0, made, explore=None), InvalidSetting),  # type: ignore[arg-type]
    ]
    for call, error in calls:
        with pytest.raises(error):
            call()
        assert content(mine, tmp_path) == before
    assert not mine.poisoned
    mine.apply(0, 0, 0, made)
    after = content(mine, tmp_path)
    mine.apply(0, 0, 0, made)
    assert content(mine, tmp_path) == after
    with pytest.raises(InvalidData, match="'decision' must be the one made at step 0 before"):
        mine.apply(0, 0, 0, made._replace(action=1 - made.action))
    assert content(mine, tmp_path) == after
