"""The laws of the episode protocol, the same for every step API: see `chary.agents._episodes`.

A step API is added by a row of `APIS`. It must be able to play the states of its row in that order, with two
actions and a horizon of 3. `lacks` names the features that it cannot have, as the table in docs/live.md does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.agents import Baseline, Canary, CharyUCBVI, Transition
from chary.agents.canary_agent import CanaryAgent
from chary.agents.tabular import TabularAgent
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.errors import InvalidAction, InvalidData, OutOfOrder
from chary.linear import LinearAgent, LinearModel, LinearOptions
from chary.mdp import Setting
from chary.shield import Decision, Ledger, Rule
from chary.standing import Standing

HORIZON = 3


@dataclass(frozen=True)
class Api:
    """A step API under test: a new one, the states of its episodes, and how one is loaded."""

    make: Callable[[], Any]
    states: tuple[Any, ...]
    load: Callable[[Path], Any]
    options: dict[str, Any]
    lacks: frozenset[str] = frozenset()


def tabular(replan: str = "episode", **options: Any) -> Callable[[], TabularAgent]:
    def make() -> TabularAgent:
        spec = CharyUCBVI(eta=10.0, bonus="hoeffding", bonus_scale=0.01, **options)
        agent = TabularAgent(
            spec,
            Setting.declare(n_states=4, n_actions=2, horizon=HORIZON),
            max_episodes=100,
            replan=replan,
        )
        logged = [[Transition(s, a, 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)]
        agent.warm_start(logged * 5)
        return agent

    return make


def baseline() -> TabularAgent:
    return TabularAgent(Baseline(), Setting.declare(n_states=4, n_actions=2, horizon=HORIZON))


def canary() -> CanaryAgent:
    told = Setting.declare(n_states=4, n_actions=2, horizon=HORIZON)
    agent = CanaryAgent(
        Canary(eta=2.0), told, generator=np.random.default_rng(3), incumbent=np.zeros(4, dtype=int)
    )
    agent.warm_start(
        [[Transition(s, a, 0.5 * a, (s + a) % 3, False)] for s in range(3) for a in range(2)] * 5
    )
    return agent


def critic_bounds() -> CriticBounds:
    critic = FunctionCritic(lambda x: x[:, :1] * [1.0, 1.5], n_actions=2)
    return CriticBounds.from_point(critic, accept="uncertified")


def deep() -> Any:
    from chary.deep import DeepAgent, DeepOptions

    small = DeepOptions(eta=10.0, width=4, features=4, batch=4, fresh=2, replay=20, radius=0.1)
    return DeepAgent(small, observation_size=2, n_actions=2, horizon=HORIZON, seed=2)


def load_deep(path: Path) -> Any:
    from chary.deep import DeepAgent

    return DeepAgent.load(path)


def linear() -> LinearAgent:
    model = LinearModel(low=-1.0, high=2.0, features=8, length_scale=1.0, worlds=8, explorers=2)
    options = LinearOptions(model=model, eta=10.0, radius=0.1)
    return LinearAgent(options, observation_size=2, n_actions=2, horizon=HORIZON, seed=2)


CRITICS: dict[str, Any] = {"n_actions": 2, "horizon": HORIZON}
OBSERVATIONS = tuple(np.array([1.0 + s, 0.5]) for s in range(4))

APIS = {
    "TabularAgent": Api(tabular(), (0, 1, 2, 0), TabularAgent.load, {}),
    "TabularAgent, proposals": Api(tabular(), (0, 1, 2, 0), TabularAgent.load, {"proposal": 0}),
    "TabularAgent, meta": Api(tabular(data="meta", pool=2), (0, 1, 2, 0), TabularAgent.load, {}),
    "TabularAgent, adopting": Api(tabular("adopt"), (0, 1, 2, 0), TabularAgent.load, {}),
    "TabularAgent, no shield": Api(baseline, (0, 1, 2, 0), TabularAgent.load, {}),
    "CanaryAgent": Api(canary, (0, 1, 2, 0), CanaryAgent.load, {}, frozenset({"plan_of"})),
    "CriticShield": Api(
        lambda: CriticShield(critic_bounds(), Rule.strict(10.0), **CRITICS),
        OBSERVATIONS,
        lambda path: CriticShield.load(path, critic_bounds(), Rule.strict(10.0), **CRITICS),
        {"proposal": 0},
    ),
}
APIS["LinearAgent"] = Api(linear, OBSERVATIONS, LinearAgent.load, {})
APIS["LinearAgent, proposals"] = Api(linear, OBSERVATIONS, LinearAgent.load, {"proposal": 0})
if find_spec("jax") is not None:
    APIS["DeepAgent"] = Api(deep, OBSERVATIONS, load_deep, {}, frozenset({"plan_of", "any time", "reports"}))


def apis(*features: str) -> pytest.MarkDecorator:
    """Parametrise a test over the step APIs that have these features."""
    able = {name: api for name, api in APIS.items() if not api.lacks & set(features)}
    return pytest.mark.parametrize("api", [pytest.param(api, id=name) for name, api in able.items()])


def act(api: Api, mine: Any, episode: int | str, t: int) -> Decision:
    decision = mine.act(episode, t, api.states[t], **api.options)
    assert isinstance(decision, Decision)
    return decision


def led(api: Api, decision: Decision, t: int, *, end: bool = False, action: int | None = None) -> Transition:
    """The outcome of step `t`; rewards differ by step."""
    played = decision.action if action is None else action
    # A state that ends episodes is no state in which another goes on.
    reached = 3 if end and isinstance(api.states[0], int) else api.states[t + 1]
    return Transition(api.states[t], played, 0.25 * (t + 1), reached, end)


def content(mine: Any, folder: Path) -> bytes:
    """All of a step API as the bytes of its file."""
    mine.save(folder / "now", overwrite=True)
    return (folder / "now").read_bytes()


def refuse(folder: Path, error: type[Exception], call: Any, *arguments: Any, **named: Any) -> None:
    """Check that a call of a step API raises, and leaves everything as it was."""
    before = content(call.__self__, folder)
    with pytest.raises(error):
        call(*arguments, **named)
    assert content(call.__self__, folder) == before


@apis()
def test_all_step_apis_have_the_same_names(api: Api) -> None:
    mine = api.make()
    assert (mine.open_episodes, mine.outstanding, mine.episodes_begun) == ((), {}, 0)
    assert (mine.n_actions, mine.horizon) == (2, HORIZON)
    assert mine.standing == Standing.from_json(mine.standing.to_json())
    mine.begin("a", api.states[0])
    assert mine.ledger("a") == Ledger()
    assert mine.episodes_begun == 1


@apis("many")
def test_any_number_of_episodes_is_open_at_once_by_number_or_name(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin("ward 3, bed 2", api.states[0])
    mine.begin(np.int64(7), api.states[0])
    mine.begin(8, api.states[0])
    assert mine.open_episodes == ("ward 3, bed 2", 7, 8)
    assert act(api, mine, 7, 0) is mine.act(np.int64(7), 0, api.states[0], **api.options)
    assert mine.outstanding == {7: (0,)}
    if "plan_of" not in api.lacks:
        assert mine.plan_of(8) is mine.plan_of("ward 3, bed 2")
    for wrong in (None, 1.5, True, ["a"]):
        refuse(tmp_path, InvalidData, mine.begin, wrong, api.states[0])
    mine.abandon(np.int64(7))
    mine.finish(8)
    assert mine.open_episodes == ("ward 3, bed 2",)


@apis()
def test_an_episode_that_is_not_open_is_refused_by_every_call(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    step = Transition(api.states[0], 0, 0.5, api.states[1], False)
    for name in ("gone", 0, True, None, ["a"]):
        refuse(tmp_path, OutOfOrder, mine.act, name, 0, api.states[0])
        refuse(tmp_path, OutOfOrder, mine.observe, name, step)
        for call in (mine.finish, mine.abandon, mine.ledger):
            refuse(tmp_path, OutOfOrder, call, name)
    mine.begin(0, api.states[0])
    refuse(tmp_path, OutOfOrder, mine.begin, 0, api.states[0])


@apis()
def test_steps_are_decided_in_order_at_the_states_reached(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    refuse(tmp_path, OutOfOrder, mine.act, 0, 1, api.states[0])
    refuse(tmp_path, OutOfOrder, mine.act, 0, -1, api.states[0])
    refuse(tmp_path, OutOfOrder, mine.act, 0, 0.5, api.states[0])
    refuse(tmp_path, InvalidData, mine.act, 0, 0, api.states[1])
    refuse(tmp_path, OutOfOrder, mine.observe, 0, Transition(api.states[0], 0, 0.5, api.states[1], False))
    for t in range(HORIZON):
        decision = act(api, mine, 0, t)
        refuse(tmp_path, InvalidData, mine.act, 0, t, api.states[(t + 1) % 3])
        wrong = led(api, decision, t)._replace(state=api.states[(t + 1) % 3])
        refuse(tmp_path, InvalidData, mine.observe, 0, wrong)
        mine.observe(0, led(api, decision, t))
        refuse(tmp_path, OutOfOrder, mine.observe, 0, wrong)
    refuse(tmp_path, OutOfOrder, mine.act, 0, HORIZON, api.states[HORIZON])
    mine.finish(0)
    refuse(tmp_path, OutOfOrder, mine.finish, 0)


@apis()
def test_a_terminal_step_ends_the_episode(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    end = led(api, act(api, mine, 0, 0), 0, end=True)
    mine.observe(0, end)
    refuse(tmp_path, OutOfOrder, mine.act, 0, 1, end.next_state)
    mine.finish(0)
    assert mine.open_episodes == ()


@apis("again")
def test_a_decision_requested_again_is_the_same_and_books_nothing(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    made = []
    for t in range(HORIZON):
        made.append(act(api, mine, 0, t))
        before = content(mine, tmp_path)
        for earlier in range(t + 1):
            assert act(api, mine, 0, earlier) is made[earlier]
        assert content(mine, tmp_path) == before
        mine.observe(0, led(api, made[t], t))
    for t in range(HORIZON):
        assert act(api, mine, 0, t) is made[t]
    assert mine.ledger(0).deficit == made[-1].deficit == sum(decision.charge for decision in made)


@apis("late")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_outcomes_come_late_and_in_any_order(api: Api, order: tuple[int, ...]) -> None:
    late, prompt = api.make(), api.make()
    for mine in (late, prompt):
        mine.begin("a", api.states[0])
    made = []
    for t in range(HORIZON):
        made.append(act(api, late, "a", t))
        assert act(api, prompt, "a", t) == made[t]
        prompt.observe("a", led(api, made[t], t))
    assert late.outstanding == {"a": (0, 1, 2)}
    with pytest.raises(OutOfOrder, match="'t' must be given where several outcomes are outstanding"):
        late.observe("a", led(api, made[0], 0))
    for mine in (late, prompt):
        mine.finish("a")
    assert (late.open_episodes, prompt.open_episodes) == (("a",), ())
    for t in order:
        assert t in late.outstanding["a"]
        late.observe("a", led(api, made[t], t), t=t)
    assert (late.open_episodes, late.outstanding) == ((), {})
    if "any time" in api.lacks:
        return
    # What follows does not depend on when the outcomes came.
    for mine in (late, prompt):
        mine.begin("b", api.states[0])
    assert act(api, late, "b", 0) == act(api, prompt, "b", 0)


@apis("late")
def test_a_late_outcome_agrees_with_what_is_known(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    first = act(api, mine, 0, 0)
    act(api, mine, 0, 1)
    elsewhere = led(api, first, 0)._replace(next_state=api.states[2])
    refuse(tmp_path, InvalidData, mine.observe, 0, elsewhere, t=0)
    refuse(tmp_path, OutOfOrder, mine.observe, 0, led(api, first, 0), t=2)
    mine.observe(0, led(api, first, 0), t=0)
    again = content(mine, tmp_path)
    mine.observe(0, led(api, first, 0), t=0)
    assert content(mine, tmp_path) == again
    other = led(api, first, 0)._replace(reward=0.75)
    refuse(tmp_path, InvalidData, mine.observe, 0, other, t=0)
    assert mine.outstanding == {0: (1,)}


@apis("late")
def test_a_finished_episode_that_waits_takes_no_decisions(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    mine.finish(0)
    refuse(tmp_path, OutOfOrder, mine.act, 0, 1, api.states[1])
    refuse(tmp_path, OutOfOrder, mine.finish, 0)
    assert act(api, mine, 0, 0) is decision
    assert mine.ledger(0).deficit == decision.deficit
    mine.observe(0, led(api, decision, 0))
    assert mine.open_episodes == ()


@apis()
@pytest.mark.parametrize("observed", [True, False])
def test_an_abandoned_episode_is_gone(api: Api, observed: bool, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    if observed:
        mine.observe(0, led(api, decision, 0))
    mine.abandon(0)
    assert (mine.open_episodes, mine.outstanding) == ((), {})
    refuse(tmp_path, OutOfOrder, mine.observe, 0, led(api, decision, 0), t=0)
    mine.begin(0, api.states[0])
    assert mine.ledger(0) == Ledger()


@apis("taken")
def test_another_action_than_decided_is_observed_only_by_name(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    other = 1 - decision.action
    step = led(api, decision, 0, action=other)
    refuse(tmp_path, InvalidAction, mine.observe, 0, step)
    refuse(tmp_path, InvalidAction, mine.observe, 0, step, taken=decision.action)
    refuse(tmp_path, InvalidAction, mine.observe, 0, step, taken="1")
    refuse(tmp_path, InvalidAction, mine.observe, 0, led(api, decision, 0), taken=other)
    spent = mine.ledger(0)
    mine.observe(0, step, taken=other)
    assert mine.ledger(0) == spent
    assert mine.outstanding == {}
    assert act(api, mine, 0, 0) is decision
    assert act(api, mine, 0, 1).deficit >= decision.deficit
    mine.observe(0, led(api, decision, 0, action=other), t=0, taken=other)
    assert mine.outstanding == {0: (1,)}


@apis("taken")
def test_taken_may_repeat_the_decided_action(api: Api) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    mine.observe(0, led(api, decision, 0), taken=decision.action)
    assert mine.outstanding == {}


@apis("taken", "late")
def test_a_late_override_is_taken_unless_a_chain_has_gone_on(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    act(api, mine, 0, 1)
    other = 1 - decision.action
    step = led(api, decision, 0, action=other)
    if decision.chain >= 0:
        refuse(tmp_path, OutOfOrder, mine.observe, 0, step, t=0, taken=other)
    else:
        mine.observe(0, step, t=0, taken=other)
        assert mine.outstanding == {0: (1,)}


@apis("reports")
def test_what_was_played_may_be_reported_before_the_outcome(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    decision = act(api, mine, 0, 0)
    spent, other = mine.ledger(0), 1 - decision.action
    refuse(tmp_path, OutOfOrder, mine.taken, 0, 1, other)
    refuse(tmp_path, OutOfOrder, mine.taken, 1, 0, other)
    for wrong in (-1, 2, "1", 0.5, True):
        refuse(tmp_path, InvalidAction, mine.taken, 0, 0, wrong)
    mine.taken(0, 0, other)
    reported = content(mine, tmp_path)
    mine.taken(0, 0, other)
    assert content(mine, tmp_path) == reported
    refuse(tmp_path, InvalidAction, mine.taken, 0, 0, decision.action)
    refuse(tmp_path, InvalidAction, mine.taken, 0, 0, None)
    refuse(tmp_path, InvalidAction, mine.observe, 0, led(api, decision, 0))
    assert (mine.ledger(0), mine.outstanding) == (spent, {0: (0,)})
    # The next decision comes before the outcome, which needs no `taken`.
    act(api, mine, 0, 1)
    step = led(api, decision, 0, action=other)
    refuse(tmp_path, InvalidAction, mine.observe, 0, step, t=0, taken=decision.action)
    mine.observe(0, step, t=0)
    mine.taken(0, 0, other)
    refuse(tmp_path, InvalidAction, mine.taken, 0, 0, decision.action)
    assert mine.outstanding == {0: (1,)}


@apis("reports")
def test_a_confirmed_action_changes_nothing_else(api: Api, tmp_path: Path) -> None:
    told, silent = api.make(), api.make()
    for mine in (told, silent):
        mine.begin(0, api.states[0])
        for t in range(HORIZON):
            decision = act(api, mine, 0, t)
            if mine is told:
                mine.taken(0, t, decision.action)
            mine.observe(0, led(api, decision, t))
        mine.finish(0)
    assert content(told, tmp_path) == content(silent, tmp_path)


@apis("reports")
def test_a_step_that_was_not_taken_has_no_outcome(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    mine.begin(0, api.states[0])
    first = act(api, mine, 0, 0)
    mine.taken(0, 0, None)
    assert mine.outstanding == {}
    refuse(tmp_path, InvalidAction, mine.observe, 0, led(api, first, 0), t=0)
    refuse(tmp_path, InvalidAction, mine.observe, 0, led(api, first, 0), t=0, taken=first.action)
    second = act(api, mine, 0, 1)
    assert second.deficit >= first.deficit
    act(api, mine, 0, 2)
    # Where the step led is known: whether it counts may not depend on it.
    refuse(tmp_path, OutOfOrder, mine.taken, 0, 1, None)
    mine.observe(0, led(api, second, 1), t=1)
    mine.taken(0, 2, None)
    mine.finish(0)
    assert mine.open_episodes == ()
    mine.begin(1, api.states[0])
    act(api, mine, 1, 0)
    mine.finish(1)
    mine.taken(1, 0, None)
    assert (mine.open_episodes, mine.outstanding) == ((), {})


@apis("reports")
def test_a_step_api_is_saved_with_what_was_reported(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    made = []
    for name, report in (("other", True), ("none", None)):
        mine.begin(name, api.states[0])
        decision = act(api, mine, name, 0)
        made.append(decision)
        mine.taken(name, 0, None if report is None else 1 - decision.action)
    mine.save(tmp_path / "file")
    copy = api.load(tmp_path / "file")
    assert content(copy, tmp_path) == (tmp_path / "file").read_bytes()
    for each in (mine, copy):
        assert each.outstanding == {"other": (0,)}
        refuse(tmp_path, InvalidAction, each.observe, "other", led(api, made[0], 0), t=0)
        each.observe("other", led(api, made[0], 0, action=1 - made[0].action))
        assert act(api, each, "none", 1).plan == made[1].plan
        each.abandon("none")
        each.finish("other")
    assert content(mine, tmp_path) == content(copy, tmp_path)


@apis("many", "late", "taken")
def test_a_saved_step_api_goes_on_with_its_open_episodes(api: Api, tmp_path: Path) -> None:
    mine = api.make()
    for name in ("waits", "going", "overruled", 4):
        mine.begin(name, api.states[0])
    first = act(api, mine, "waits", 0)
    mine.finish("waits")
    made = [act(api, mine, "going", t) for t in range(2)]
    wrong = act(api, mine, "overruled", 0)
    mine.observe("overruled", led(api, wrong, 0, action=1 - wrong.action), taken=1 - wrong.action)
    mine.save(tmp_path / "file")
    with pytest.raises(Exception, match="'path' must not exist yet"):
        mine.save(tmp_path / "file")
    copy = api.load(tmp_path / "file")
    assert content(copy, tmp_path) == (tmp_path / "file").read_bytes()
    for each in (mine, copy):
        assert each.open_episodes == ("waits", "going", "overruled", 4)
        assert each.outstanding == {"waits": (0,), "going": (0, 1)}
        assert each.episodes_begun == 4
        assert each.ledger("going").deficit == made[-1].deficit
        assert act(api, each, "going", 0) == made[0]
        each.observe("waits", led(api, first, 0))
        each.observe("going", led(api, made[0], 0), t=0)
        each.abandon(4)
    for name, t in (("going", 2), ("overruled", 1), ("overruled", 2)):
        assert act(api, mine, name, t) == act(api, copy, name, t)
    assert content(mine, tmp_path) == content(copy, tmp_path)


@apis()
def test_a_file_of_another_kind_is_refused(api: Api, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"no step API")
    with pytest.raises(InvalidData, match="'path' must contain"):
        api.load(tmp_path / "file")
    with pytest.raises(InvalidData, match="'path' must be a file that can be read"):
        api.load(tmp_path / "none")
