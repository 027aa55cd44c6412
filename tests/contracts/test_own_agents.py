"""Agents and problems of the user's own: played, judged and checked like those of chary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest

import chary
from chary import OwnAgent, Setting, Transition
from chary.errors import CharyError, FailedCode
from chary.mdp import FiniteMDP
from chary.simulation.run import EPISODE_COLUMNS
from chary.testing import check_agent, check_problem

SPEC: dict[str, Any] = {"eta": 0.3, "bonus": "hoeffding", "bonus_scale": 0.002}


class Dice:
    """Any allowed action, and the base of what breaks a promise below."""

    def __init__(self, setting: Setting, *, generator: np.random.Generator, loaded: int = 0) -> None:
        self.setting, self.generator, self.loaded = setting, generator, loaded
        self.seen = 0

    def begin(self, episode: object, state: int) -> None: ...

    def act(self, episode: object, t: int, state: int) -> Any:
        return self.generator.choice(np.flatnonzero(self.setting.allowed[state]))

    def observe(self, episode: object, transition: Transition) -> None:
        self.seen += 1

    def finish(self, episode: object) -> None: ...

    def warm_start(self, episodes: Sequence[Sequence[Transition]]) -> None:
        self.seen += sum(map(len, episodes))


def wrapped(name: str) -> Callable[..., chary.TabularAgent]:
    def make(setting: Setting, *, generator: np.random.Generator, episodes: int) -> chary.TabularAgent:
        spec = chary.make_agent(name, **SPEC)
        return chary.TabularAgent(spec, setting, max_episodes=episodes, generator=generator)

    return make


@pytest.mark.parametrize("name", ["ucbvi", "chary", "random"])
def test_a_built_in_agent_in_a_class_of_the_users_plays_and_is_judged_the_same(name: str) -> None:
    shop = chary.envs.inventory(horizon=5)
    options: dict[str, Any] = {"episodes": 40, "warmup": 15, "seed": 3}
    theirs = chary.simulate(shop, OwnAgent(wrapped(name), **SPEC), **options)
    ours = chary.simulate(shop, chary.make_agent(name, **SPEC), driver="step", **options)
    # Only a shield knows whether one of its chains was blocked.
    for column in set(EPISODE_COLUMNS) - {"blocked"}:
        np.testing.assert_array_equal(getattr(theirs, column), getattr(ours, column), err_msg=column)
    assert theirs.standing.per is None
    assert theirs.summary()["agent"].endswith("make")


def test_equal_seeds_give_equal_runs_and_other_seeds_others() -> None:
    shop = chary.envs.inventory(horizon=5)

    def returns(seed: int) -> list[float]:
        return list(chary.simulate(shop, OwnAgent(Dice), episodes=12, seed=seed).returns)

    assert returns(1) == returns(1) != returns(2)


def test_arguments_arrive_and_a_warm_up_is_learnt_from() -> None:
    made: list[Dice] = []

    def make(setting: Setting, *, generator: np.random.Generator, loaded: int) -> Dice:
        made.append(Dice(setting, generator=generator, loaded=loaded))
        return made[0]

    river = chary.envs.riverswim()
    run = chary.simulate(river, OwnAgent(make, arguments={"loaded": 7}), episodes=3, warmup=2)
    assert (made[0].loaded, made[0].seen) == (7, 5 * river.horizon)
    assert run.summary()["arguments"] == {"loaded": 7}


class OffTheMask(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        return int(np.flatnonzero(~self.setting.allowed[state])[0])


class Half(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        return 0.5


class Nothing(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        return None


class Raises(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        return dict[int, int]()[state]


class RaisesAtTheEnd(Dice):
    def finish(self, episode: object) -> None:
        raise OSError(28, "No space left on device")


class Leaves(Dice):
    def observe(self, episode: object, transition: Transition) -> None:
        raise SystemExit(3)


class Global(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        return np.random.choice(np.flatnonzero(self.setting.allowed[state]))  # noqa: NPY002


class Remembers(Dice):
    calls = 0

    def act(self, episode: object, t: int, state: int) -> Any:
        Remembers.calls += 1
        allowed = np.flatnonzero(self.setting.allowed[state])
        return allowed[Remembers.calls // 7 % len(allowed)]


class Spends(Dice):
    def act(self, episode: object, t: int, state: int) -> Any:
        action = int(super().act(episode, t, state))
        return chary.shield.Decision(action, True, 0.1, 0.1 * (t + 1), 0.0, 0, -1)


class Forgives(Spends):
    def act(self, episode: object, t: int, state: int) -> Any:
        return super().act(episode, t, state)._replace(deficit_scaled=1.0 / (t + 1))


class Owes(Spends):
    def act(self, episode: object, t: int, state: int) -> Any:
        return super().act(episode, t, state)._replace(deficit_scaled=float("nan"))


class Methodless:
    def __init__(self, setting: Setting) -> None: ...


BROKEN: list[tuple[Any, str]] = [
    (OffTheMask, r"'action' must be one that .* allows now"),
    (Half, r"'act' must be a whole number >= 0, got 0.5"),
    (Nothing, r"'act' must be a whole number >= 0, got None"),
    (Raises, r"agent '.*:Raises' raised KeyError: .* \(test_own_agents.py, line \d+\)"),
    (RaisesAtTheEnd, r"agent '.*:RaisesAtTheEnd' raised OSError: .*No space left"),
    (Leaves, r"agent '.*:Leaves' must not end the program, got SystemExit\(3\)"),
    (Global, r"must draw from its 'generator' alone"),
    (Remembers, r"must play the same from the same seed"),
    (Forgives, r"'deficit' must never fall in an episode"),
    (Owes, r"'deficit' of a Decision must be finite and >= 0, got nan"),
    (OwnAgent(Spends, eta=0.8), r"'deficit' must be at most the budget, 0.2 in scaled units"),
    (Methodless, r"must have the methods begin, act, observe and finish, got a Methodless"),
    (OwnAgent(Dice, arguments={"lodaed": 1}), r"'lodaed' must be an option of agent .*Did you mean 'loaded'"),
    (OwnAgent(wrapped("ucbvi"), eta=1.0, arguments={"x": 1}), r"'x' must be an option of agent"),
    ("nowhere:Mine", r"'agent' must name a module that can be imported, got 'nowhere:Mine': No module named"),
    ("json:nothing", r"'agent' must name something in module 'json'"),
    ("json:__doc__", r"'agent' must name a function or a class, got 'json:__doc__', which is a str"),
    ("json", r"'agent' must be of the form 'module:name', got 'json'"),
]


@pytest.mark.parametrize(("agent", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_an_agent_that_breaks_a_promise_is_told_which(agent: Any, message: str) -> None:
    with pytest.raises(CharyError, match=message):
        check_agent(agent)


def test_good_agents_pass() -> None:
    check_agent(Dice)
    check_agent(OwnAgent(Spends, eta=40.0))
    check_agent(wrapped("chary"), chary.envs.inventory(horizon=4))


def test_a_run_of_an_agent_that_raises_names_it_and_keeps_the_cause() -> None:
    with pytest.raises(FailedCode, match=r"agent '.*:Raises' raised KeyError") as caught:
        chary.simulate(chary.envs.riverswim(), OwnAgent(Raises), episodes=2)
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_cannot_be_played_is_refused_before_the_first_episode() -> None:
    river = chary.envs.riverswim()

    def cold(setting: Setting) -> Any:
        class Cold(Methodless):
            begin = act = observe = finish = lambda self, *arguments: 0

        return Cold(setting)

    with pytest.raises(CharyError, match=r"'warmup' must be 0 with agent .* no method warm_start"):
        chary.simulate(river, OwnAgent(cold), episodes=2, warmup=1)
    with pytest.raises(CharyError, match=r"Use chary.OwnAgent for a class of your own"):
        chary.simulate(river, Dice, episodes=2)  # type: ignore[arg-type]
    with pytest.raises(CharyError, match="'spec' must be one of chary's, got your own"):
        chary.TabularAgent(OwnAgent(Dice), river.setting)
    with pytest.raises(CharyError, match="'arguments' must be the agent's own, got 'generator'"):
        OwnAgent(Dice, arguments={"generator": 1})

    def keeps(setting: Setting, *, eta: float) -> Any:
        return cold(setting)

    with pytest.raises(CharyError, match=r"'eta' must be given for agent .* which keeps a budget"):
        chary.simulate(river, OwnAgent(keeps), episodes=2)
    assert len(chary.simulate(river, OwnAgent(keeps, eta=0.5), episodes=2).regret) == 2


def test_problems_that_break_a_promise_are_told_which() -> None:
    def changing() -> FiniteMDP:
        return chary.envs.random(seed=int(np.random.default_rng().integers(10**9)))

    def deaf(*, horizon: int = 3) -> FiniteMDP:
        return chary.envs.riverswim(horizon=7)

    def idle() -> FiniteMDP:
        return FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[0.5, 0.5]], horizon=2)

    def fails() -> FiniteMDP:
        raise ZeroDivisionError("by nothing")

    def capped() -> FiniteMDP:
        return FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[0.5, 1.0]], horizon=2, value_cap=1.0)

    for problem, message in (
        (changing, "'problem' must be the same at every call"),
        (deaf, "'horizon' must be that of the option"),
        (idle, "'problem' must have policies that differ in value"),
        (fails, "raised ZeroDivisionError: by nothing"),
        (capped, "'value_cap' must bound the optimal value"),
        (lambda: 3, "'problem' must be a function that returns a FiniteMDP, got int"),
        (3, "'problem' must be a function"),
        ("nowhere:clinic", "'problem' must name a module that can be imported"),
    ):
        with pytest.raises(CharyError, match=message):
            check_problem(problem)  # type: ignore[arg-type]
    check_problem("chary.envs:corridor", length=4)


def test_any_rollout_is_judged_as_the_run_was() -> None:
    shop = chary.envs.inventory(horizon=5)
    prior = [int(np.flatnonzero(row)[0]) if row.any() else 0 for row in shop.setting.allowed]
    spec = chary.make_agent("ucbvi", prior=prior, **SPEC)
    run = chary.simulate(shop, spec, episodes=30, seed=4, driver="step", record_steps=True)
    assert run.steps is not None
    played = [
        [
            Transition(int(states[t]), int(actions[t]), 1.0, int(states[t + 1]), False)
            for t in range(int(length))
        ]
        for states, actions, length in zip(run.steps.state, run.steps.action, run.length, strict=True)
    ]
    found = chary.judge(shop, played, baseline=prior, eta=0.3)
    assert found.regret is not None
    assert found.true_deficit is not None
    assert found.regret.tolist() == pytest.approx(run.regret.tolist(), abs=1e-9)
    assert found.true_deficit.tolist() == pytest.approx(run.incumbent_deficit.tolist(), abs=1e-9)
    np.testing.assert_array_equal(found.violations(), run.violations(against="incumbent"))
    each = np.tile(prior, (30, 5, 1))
    np.testing.assert_array_equal(chary.judge(shop, played, baseline=each).true_deficit, found.true_deficit)
    assert found.returns.tolist() == run.length.tolist()
    assert "broke the budget of 0.3" in found.describe()


def test_what_cannot_be_judged_is_said() -> None:
    lake = gymnasium.make("FrozenLake-v1", max_episode_steps=5)
    told = Setting.declare(n_states=16, n_actions=4, horizon=5)
    played = list(chary.rollout(lake, Dice(told, generator=np.random.default_rng(0)), episodes=3, seed=0))
    found = chary.judge(lake, played)
    assert (found.regret, found.true_deficit) == (None, None)
    assert "Regret and true deficits are unknown: the environment has no known MDP." in found.describe()
    with pytest.raises(CharyError, match="'violations' must be judged by true deficits, got none"):
        found.violations(0.1)
    river = chary.envs.TabularEnv(chary.envs.riverswim())
    good = [Transition(0, 1, 0.0, 1, False)]
    for env, episodes, baseline, message in (
        (lake, played, [0] * 16, "'baseline' must come with a known MDP"),
        (river, played, None, "'(states|actions)' must lie in"),
        (river, [[Transition(0, 0, 0.0, 5, False)]], None, "which has probability 0, in episode 0, step 0"),
        (river, [[good[0], good[0]]], None, "'state' must be the next state of the step before"),
        (river, [good], [[[0] * 6]] * 2, "'baseline' must be one policy or 1, one per episode, got 2"),
        (river, [[]], None, "episode 0 must have at least one step"),
        (river, [], None, "'episodes' must contain at least one"),
        (river, [[3]], None, "episode 0 must consist of transitions, got 3"),
        ("river", [good], None, "'env_or_mdp' must be a FiniteMDP or a Gymnasium environment, got str"),
    ):
        with pytest.raises(CharyError, match=message):
            chary.judge(env, episodes, baseline=baseline)  # type: ignore[arg-type]
