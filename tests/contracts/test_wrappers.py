"""Proposals on any Gymnasium environment: what is played, what is told, and what the guard hears of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from hypothesis import given
from hypothesis import strategies as st

from chary.agents import Baseline, CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.critics import CriticBounds, CriticShield, FunctionCritic
from chary.envs import TabularEnv, inventory, make, riverswim
from chary.errors import InvalidAction, InvalidData, InvalidMDP, InvalidSetting, OutOfOrder
from chary.mdp import FiniteMDP
from chary.mdp.setting import Setting
from chary.rollouts import Episode, rollout, rollout_many
from chary.shield import Decision, Plan, Rule, Shield
from chary.wrappers import Guard, Padded, Shielded, ShieldedVector, setting_of

MODES = list(AutoresetMode)


class Fixed:
    """A plan that explores by action 1, plays `safe` otherwise and asks 0.25 for any action but that."""

    def __init__(self, safe: int = 0) -> None:
        self.safe = safe

    def explore(self, chain: int, clock: int, s: object) -> int:
        return 1

    def baseline(self, t: int, s: object) -> int:
        return self.safe

    def charge(self, t: int, s: object, a: int) -> float:
        return 0.0 if a == self.safe else 0.25


class Plain:
    """The smallest guard: a shield over a fixed plan. It keeps what it was told, episode by episode."""

    def __init__(self, eta: float = 0.5, *, horizon: int = 1000, safe: int = 0) -> None:
        self.shield: Shield[Any] = Shield(Rule.strict(eta), horizon=horizon, match=lambda s, target: False)
        self.plan = Fixed(safe)
        self.seen: dict[int | str, list[Transition]] = {}
        self.first: dict[int | str, Any] = {}
        self.finished: list[int | str] = []
        self.abandoned: list[int | str] = []

    def begin(self, episode: int | str, state: Any) -> None:
        assert episode not in self.seen
        self.shield.begin(episode, self.plan)
        self.seen[episode], self.first[episode] = [], state

    def act(self, episode: int | str, t: int, state: Any, *, proposal: int | None = None) -> Decision:
        return self.shield.decide(episode, t, state, proposal=proposal)

    def act_many(
        self,
        episodes: Sequence[int | str],
        t: Sequence[int],
        states: Sequence[Any],
        proposals: Sequence[int] | None = None,
    ) -> list[Decision]:
        offers: Sequence[int | None] = [None] * len(episodes) if proposals is None else proposals
        asked = zip(episodes, t, states, offers, strict=True)
        return [self.act(episode, step, s, proposal=offer) for episode, step, s, offer in asked]

    def observe(self, episode: int | str, transition: Transition) -> None:
        self.shield.observe(episode, transition.next_state, terminated=transition.terminated)
        self.seen[episode].append(transition)

    def finish(self, episode: int | str) -> None:
        self.shield.finish(episode)
        self.finished.append(episode)

    def abandon(self, episode: int | str) -> None:
        self.shield.abandon(episode)
        self.abandoned.append(episode)

    def plan_of(self, episode: int | str) -> Plan[Any]:
        return self.plan

    def spent(self, episode: int | str) -> tuple[bool, float]:
        closed, deficit = self.shield.ledger(episode)
        return closed, deficit


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps the episodes that an environment has really played, each as its first state and its steps."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.episodes: list[tuple[int, list[Transition]]] = []

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self.episodes.append((int(observation), []))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        first, steps = self.episodes[-1]
        state = steps[-1].next_state if steps else first
        observation, reward, terminated, truncated, info = self.env.step(action)
        steps.append(Transition(state, int(action), float(reward), int(observation), terminated))
        return observation, reward, terminated, truncated, info


class Wire(gymnasium.Env[Any, Any]):
    """Continuous observations in one array that is overwritten at every step."""

    observation_space = Box(0.0, 100.0, (2,))
    action_space = Discrete(3)

    def __init__(self) -> None:
        self._buffer = np.zeros(2, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._buffer[:] = (options or {}).get("at", 0.0)
        return self._buffer, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._buffer += 1
        return self._buffer, 0.0, bool(self._buffer[0] >= 5), False, {}


def fork() -> FiniteMDP:
    """State 0 goes to 1 (which returns) or to the end, 2; action 1 exists in state 0 only."""
    rows = {(0, 0): [(1, 1.0, 0.0)], (0, 1): [(2, 1.0, 3.0)], (1, 0): [(0, 1.0, 1.0)]}
    return FiniteMDP.from_successors(
        rows, n_states=3, n_actions=2, horizon=3, terminal=[2], reward_range=(0.0, 4.0)
    )


def lake(steps: int = 12) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("FrozenLake-v1", max_episode_steps=steps)


def as_steps(transitions: Sequence[Transition]) -> list[tuple[float, ...]]:
    return [tuple(float(entry) for entry in step) for step in transitions]


# One environment


def test_a_tabular_agent_is_a_guard_and_an_object_is_not() -> None:
    assert isinstance(Plain(), Guard)
    assert not isinstance(object(), Guard)
    with pytest.raises(InvalidSetting, match=r"'guard' must have begin, act, .* got object\."):
        Shielded(lake(), object())  # type: ignore[arg-type]


@pytest.mark.parametrize("build", [lake, lambda: TabularEnv(riverswim())], ids=["lake", "swim"])
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
def test_a_shielded_environment_passes_gymnasiums_own_check(
    build: Callable[[], gymnasium.Env[Any, Any]],
) -> None:
    env = build()
    check_env(Shielded(env, Plain()), skip_render_check=True)
    agent = TabularAgent(CharyUCBVI(eta=0.5), setting_of(env))
    check_env(Shielded(env, agent), skip_render_check=True)
    assert agent.open_episodes


def test_info_says_what_was_proposed_played_and_paid() -> None:
    # 0.5 affords two steps at 0.25; 0 is the baseline's own and costs nothing.
    env = Shielded(TabularEnv(riverswim()), Plain(eta=0.5))
    env.reset(seed=0)
    told = []
    for proposal in (1, 0, 1, 1, 0):
        info = env.step(proposal)[4]
        told.append([info[key] for key in ("proposal", "action", "explored", "refused", "charge", "deficit")])
        assert info["remaining"] == 0.5 - info["deficit"]
        assert "action_mask" in info
        assert "scaled_reward" in info
    assert told == [
        [1, 1, True, None, 0.25, 0.25],
        [0, 0, True, None, 0.0, 0.25],
        [1, 1, True, None, 0.25, 0.5],
        [1, 0, False, "budget", 0.0, 0.5],
        [0, 0, True, None, 0.0, 0.5],
    ]


def test_a_proposal_outside_the_environments_mask_is_refused_and_costs_nothing() -> None:
    env = Shielded(TabularEnv(fork()), Plain())
    env.reset(seed=0)
    env.step(0)
    observation, _, _, _, info = env.step(1)
    assert (info["refused"], info["action"], info["explored"]) == ("not allowed", 0, False)
    assert (info["charge"], info["deficit"]) == (0.0, 0.0)
    assert observation == 0


def test_a_baseline_outside_the_mask_is_refused_by_name_before_anything_happens() -> None:
    guard = Plain(safe=1)
    env = Shielded(TabularEnv(fork()), guard)
    env.reset(seed=0)
    env.step(0)
    before = guard.spent(0)
    for proposal in (0, 1):
        with pytest.raises(
            InvalidAction, match=r"'action_mask' must leave .* without 1 in state 1\. Declare"
        ):
            env.step(proposal)
    assert guard.spent(0) == before
    assert len(guard.seen[0]) == 1


def test_a_mask_that_is_none_is_refused() -> None:
    class Masked(Wire):
        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            return super().reset(**options)[0], {"action_mask": [1, 1]}

    with pytest.raises(
        InvalidData, match=r"info\['action_mask'\] must contain one number for each of 3 actions"
    ):
        Shielded(Masked(), Plain()).reset()


@pytest.mark.parametrize(
    "nonsense",
    [1.0, math.nan, None, "1", True, [1], (0,), {}, -1, 2, 10**30, np.array([0, 1]), np.float64(1), b"1"],
    ids=repr,
)
def test_what_is_no_action_is_refused_and_changes_nothing(nonsense: Any) -> None:
    guard, inside = Plain(), Recorder(TabularEnv(riverswim()))
    env = Shielded(inside, guard)
    env.reset(seed=0)
    env.step(1)
    before = guard.spent(0)
    with pytest.raises(InvalidAction, match="'proposal' must"):
        env.step(nonsense)
    assert guard.spent(0) == before
    assert len(guard.seen[0]) == len(inside.episodes[0][1]) == 1
    assert env.step(np.array(1))[4]["deficit"] == 0.5


def test_episodes_are_finished_at_their_end_and_abandoned_in_their_midst() -> None:
    guard = Plain()
    env = Shielded(TabularEnv(fork()), guard)
    message = r"'step' must follow 'reset' and come before the end"
    with pytest.raises(OutOfOrder, match=message):
        env.step(0)
    env.reset(seed=0)
    assert env.step(1)[2:4] == (True, False)
    assert (guard.finished, env.episode) == ([0], None)
    with pytest.raises(OutOfOrder, match=message):
        env.step(0)
    env.reset()
    env.step(0)
    env.reset()
    assert (guard.finished, guard.abandoned, env.episode) == ([0], [1], 2)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    assert guard.finished == [0, 2]
    env.reset()
    env.close()
    env.close()
    assert guard.abandoned == [1, 3]


def test_a_horizon_truncates_unless_the_end_comes_with_it() -> None:
    env = Shielded(TabularEnv(riverswim()), Plain(), horizon=2)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    env = Shielded(TabularEnv(fork()), Plain(), horizon=1)
    env.reset(seed=0)
    assert env.step(1)[2:4] == (True, False)


def test_environments_that_share_a_guard_share_the_numbers() -> None:
    guard, numbers = Plain(), itertools.count(7)
    one, two = (Shielded(TabularEnv(riverswim()), guard, numbers=numbers) for _ in range(2))
    one.reset(seed=0)
    two.reset(seed=1)
    assert (one.episode, two.episode) == (7, 8)
    with pytest.raises(InvalidSetting, match=r"'numbers' must be an iterator, got list\."):
        Shielded(TabularEnv(riverswim()), guard, numbers=[1, 2])  # type: ignore[arg-type]
    few = Shielded(TabularEnv(riverswim()), Plain(), numbers=iter(["a"]))
    few.reset()
    assert few.episode == "a"
    with pytest.raises(InvalidSetting, match=r"'numbers' must name every episode, but it has ended\."):
        few.reset()


def test_seeds_and_options_reach_the_environment_and_bad_ones_abandon_nothing() -> None:
    guard = Plain()
    env = Shielded(Wire(), guard)
    assert env.reset(options={"at": 3.0})[0].tolist() == [3.0, 3.0]
    with pytest.raises(InvalidSetting, match=r"'seed' must be a whole number >= 0, got 'x'\."):
        env.reset(seed="x")  # type: ignore[arg-type]
    assert not guard.abandoned

    def played(seed: int) -> list[list[tuple[float, ...]]]:
        guard = Plain()
        env = Shielded(lake(), guard)
        for k in range(3):
            env.reset(seed=seed if k == 0 else None)
            while not any(env.step(k)[2:4]):
                pass
        return [as_steps(steps) for steps in guard.seen.values()]

    assert played(1) == played(1) != played(2)


def test_a_guard_keeps_observations_that_the_environment_overwrites() -> None:
    guard = Plain()
    env = Shielded(Wire(), guard)
    observation, _ = env.reset()
    ended = False
    while not ended:
        reached, _, ended, _, _ = env.step(1)
        assert reached is observation
    assert [step.state.tolist() for step in guard.seen[0]] == [[i, i] for i in range(5)]
    assert [step.next_state.tolist() for step in guard.seen[0]] == [[i + 1] * 2 for i in range(5)]


def test_statistics_and_time_limits_work_around_it() -> None:
    guard = Plain()
    env = RecordEpisodeStatistics(Shielded(lake(), guard))
    env.reset(seed=0)
    info: dict[str, Any] = {}
    while "episode" not in info:
        info = env.step(2)[4]
    assert info["episode"]["l"] == len(guard.seen[0])
    assert guard.finished == [0]


def test_wrong_environments_are_refused_by_name() -> None:
    envs = SyncVectorEnv([lake])
    with pytest.raises(
        InvalidSetting, match=r"'env' must be a gymnasium.Env, got SyncVectorEnv\. Use Shielded"
    ):
        Shielded(envs, Plain())  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"'envs' must be a gymnasium.vector.VectorEnv, got TimeLimit\."):
        ShieldedVector(lake(), Plain())  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"'action_space' must be Discrete, got Box"):
        Shielded(gymnasium.make("Pendulum-v1"), Plain())
    with pytest.raises(InvalidSetting, match=r"'horizon' must be a whole number >= 1, got 0\."):
        Shielded(lake(), Plain(), horizon=0)


# Many environments


def vector(mode: AutoresetMode, lanes: int, *, steps: int = 12) -> tuple[SyncVectorEnv, list[Recorder]]:
    inside = [Recorder(lake(steps)) for _ in range(lanes)]
    return SyncVectorEnv([partial(lambda env: env, env) for env in inside], autoreset_mode=mode), inside


def drive(env: ShieldedVector, steps: int, seed: int) -> list[dict[str, Any]]:
    """Propose at random; reset what has ended where the environment does not do it itself."""
    chance = np.random.Generator(np.random.PCG64(seed))
    manual = env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    env.reset(seed=seed)
    told = []
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(chance.integers(0, 4, env.num_envs))
        told.append(info)
        if manual and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    return told


@given(
    lanes=st.integers(1, 4), steps=st.integers(0, 40), seed=st.integers(0, 2**31), mode=st.sampled_from(MODES)
)
def test_a_guard_hears_exactly_the_transitions_of_the_sub_environments(
    lanes: int, steps: int, seed: int, mode: AutoresetMode
) -> None:
    guard = Plain(eta=1.0)
    envs, inside = vector(mode, lanes)
    env = ShieldedVector(envs, guard)
    told = drive(env, steps, seed)
    played = [(first, as_steps(done)) for recorder in inside for first, done in recorder.episodes]
    heard = [(guard.first[k], as_steps(guard.seen[k])) for k in guard.seen]
    assert sorted(heard) == sorted(played)
    open_now = {episode for episode in env.episodes if episode is not None}
    assert set(guard.seen) == set(guard.finished) | open_now
    for recorder, episode in zip(inside, env.episodes, strict=True):
        if episode is not None:
            assert as_steps(guard.seen[episode]) == as_steps(recorder.episodes[-1][1])
    decided = sum(int(info["_action"].sum()) for info in told if "_action" in info)
    assert decided == sum(len(done) for _, done in played)
    spent = {k: sum(0.25 for step in steps_ if step.action != 0) for k, steps_ in guard.seen.items()}
    assert all(amount <= 1.0 for amount in spent.values())


def test_the_step_that_resets_a_lane_decides_nothing() -> None:
    guard = Plain(eta=0.5)
    envs = SyncVectorEnv([lambda: TabularEnv(fork())] * 2)
    env = ShieldedVector(envs, guard)
    env.reset(seed=0)
    _, rewards, terminated, _, info = env.step([1, 0])
    assert terminated.tolist() == [True, False]
    assert info["deficit"].tolist() == [0.25, 0.0]
    assert env.episodes == (None, 1)
    # Lane 0 is reset: what is proposed there, an action or not, is ignored. In lane 1 action 1 is missing.
    observations, rewards, _, _, info = env.step(["what", 1])
    assert observations.tolist() == [0, 0]
    assert rewards.tolist() == [0.0, 1.0]
    assert info["_proposal"].tolist() == [False, True]
    assert info["refused"].tolist() == [None, "not allowed"]
    assert list(env.episodes) == [2, 1]
    assert [len(guard.seen[k]) for k in (0, 1, 2)] == [1, 2, 0]
    assert guard.finished == [0]


def test_the_same_step_ends_one_episode_and_begins_the_next() -> None:
    guard = Plain()
    envs = SyncVectorEnv([lambda: TabularEnv(fork())] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env = ShieldedVector(envs, guard)
    env.reset(seed=0)
    observations, _, _, _, info = env.step(np.array([1, 0]))
    assert observations.tolist() == [0, 1]
    assert guard.seen[0] == [Transition(0, 1, 3.0, 2, True)]
    assert env.episodes == (2, 1)
    # Masks are those of the states reached: all of state 0 again, action 0 alone in state 1.
    assert info["action_mask"].tolist() == [[1, 1], [1, 0]]
    assert env.step([1, 1])[4]["refused"].tolist() == [None, "not allowed"]


def test_without_autoreset_lanes_that_ended_must_be_reset_by_name() -> None:
    guard = Plain()
    envs = SyncVectorEnv([lambda: TabularEnv(fork())] * 2, autoreset_mode=AutoresetMode.DISABLED)
    env = ShieldedVector(envs, guard)
    with pytest.raises(OutOfOrder, match=r"'step' must follow 'reset'"):
        env.step([0, 0])
    env.reset(seed=0)
    env.step([1, 0])
    with pytest.raises(OutOfOrder, match=r"got lanes 0 at their end\. Call reset\(options="):
        env.step([0, 0])
    for bad in ([True, False], np.array([True]), np.array([1, 0]), np.array([False, False])):
        with pytest.raises(InvalidSetting, match=r"'reset_mask' must be booleans of shape \(2,\)"):
            env.reset(options={"reset_mask": bad})
    options = {"reset_mask": np.array([True, False])}
    observations, _ = env.reset(options=options)
    assert observations.tolist() == [0, 1]
    assert list(options) == ["reset_mask"]
    assert (env.episodes, guard.abandoned) == ((2, 1), [])
    # Lane 1 still has its own mask, though the reset told nothing about it.
    assert env.step([0, 1])[4]["refused"].tolist() == [None, "not allowed"]


def test_a_reset_in_the_midst_abandons_what_it_concerns() -> None:
    guard = Plain()
    envs, _ = vector(AutoresetMode.NEXT_STEP, 3)
    env = ShieldedVector(envs, guard)
    env.reset(seed=0)
    env.step([0, 0, 0])
    with pytest.raises(InvalidSetting, match=r"'seed' must contain one number for each of 3 lanes, got 2\."):
        env.reset(seed=[1, 2])
    with pytest.raises(InvalidSetting, match=r"'options' must be a dictionary, got list\."):
        env.reset(options=["reset_mask"])  # type: ignore[arg-type]
    assert not guard.abandoned
    env.reset(options={"reset_mask": np.array([False, True, False])})
    assert guard.abandoned == [1]
    env.reset(seed=[1, None, 2])
    assert guard.abandoned == [1, 0, 3, 2]
    assert env.episodes == (4, 5, 6)
    env.close()
    assert guard.abandoned == [1, 0, 3, 2, 4, 5, 6]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        1,
        [0],
        [0, 1, 2],
        [0, 4],
        [0, -1],
        [0, math.nan],
        [[0], [1]],
        np.zeros((2, 2), int),
        "01",
        {0: 0, 1: 1},
    ],
)
def test_what_are_no_proposals_is_refused_and_changes_nothing(nonsense: Any) -> None:
    guard = Plain()
    envs, inside = vector(AutoresetMode.NEXT_STEP, 2)
    env = ShieldedVector(envs, guard)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"one proposal for each of 2 lanes|'proposal' must"):
        env.step(nonsense)
    assert [guard.spent(k) for k in (0, 1)] == [(False, 0.0)] * 2
    assert [len(recorder.episodes[0][1]) for recorder in inside] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_episodes_longer_than_the_horizon_are_refused_with_the_way_out(mode: AutoresetMode) -> None:
    envs = SyncVectorEnv([lambda: TabularEnv(riverswim())] * 2, autoreset_mode=mode)
    env = ShieldedVector(envs, Plain(), horizon=3)
    env.reset(seed=0)
    for _ in range(3):
        env.step([0, 0])
    with pytest.raises(
        InvalidSetting, match=r"within the guard's 3 steps, got lane 0 still going\. Wrap each"
    ):
        env.step([0, 0])


def test_a_vector_that_does_not_say_how_it_resets_is_refused() -> None:
    envs, _ = vector(AutoresetMode.NEXT_STEP, 1)
    del envs.metadata["autoreset_mode"]
    with pytest.raises(InvalidSetting, match=r"'envs' must declare its autoreset mode"):
        ShieldedVector(envs, Plain())
    envs.metadata["autoreset_mode"] = "NextStep"
    ShieldedVector(envs, Plain()).reset()


def test_a_failure_in_one_lane_abandons_all_and_a_reset_goes_on() -> None:
    class Broken(Recorder):
        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            if action == 3:
                raise RuntimeError("the link is down")
            return super().step(action)

    guard = Plain()
    envs = SyncVectorEnv([lambda: Broken(lake())] * 2)
    env = ShieldedVector(envs, guard)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="the link is down"):
        env.step([0, 3])
    assert guard.abandoned == [0, 1]
    with pytest.raises(OutOfOrder):
        env.step([0, 0])
    env.reset()
    env.step([0, 0])
    assert env.episodes == (2, 3)


@pytest.mark.parametrize("mode", MODES)
def test_processes_play_the_same_trajectories(mode: AutoresetMode) -> None:
    build = [partial(gymnasium.make, "FrozenLake-v1", max_episode_steps=6)] * 2

    def heard(envs: VectorEnv[Any, Any, Any]) -> list[tuple[Any, list[tuple[float, ...]]]]:
        guard = Plain(eta=1.0)
        env = ShieldedVector(envs, guard)
        drive(env, 25, seed=3)
        env.close()
        return [(guard.first[k], as_steps(guard.seen[k])) for k in guard.seen]

    one = heard(SyncVectorEnv(build, autoreset_mode=mode))
    # spawn: a fork would copy the threads of whatever ran before.
    assert one == heard(AsyncVectorEnv(build, autoreset_mode=mode, context="spawn"))
    assert len(one) > 4


# Tabular agents


def guarding(env: Any, eta: float = 0.5, **options: Any) -> TabularAgent:
    return tabular(setting_of(env, **options), eta)


def tabular(setting: Setting, eta: float = 0.5) -> TabularAgent:
    return TabularAgent(CharyUCBVI(eta=eta, bonus="hoeffding", bonus_scale=0.001), setting, max_episodes=1000)


@pytest.mark.parametrize("eta", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("name", ["riverswim", "inventory", "corridor"])
def test_no_proposals_spend_more_than_the_budget_and_all_steps_are_learnt(name: str, eta: float) -> None:
    env = TabularEnv(make(name))
    agent = guarding(env, eta)
    shielded = Shielded(env, agent)
    limit = eta / env.mdp.scale.span
    chance = np.random.Generator(np.random.PCG64(1))
    steps, let_through = 0, 0
    for k in range(20):
        state, _ = shielded.reset(seed=0 if k == 0 else None)
        done = False
        while not done:
            proposal = int(chance.integers(env.mdp.n_actions))
            allowed = env.mdp.setting.allowed[state]
            state, _, terminated, truncated, info = shielded.step(proposal)
            assert info["deficit"] <= limit * (1 + 1e-12)
            assert allowed[info["action"]]
            assert (info["refused"] == "not allowed") == (not allowed[proposal])
            assert (info["action"] == proposal) or info["refused"] is not None
            assert info["charge"] == 0.0 or info["explored"]
            steps += 1
            let_through += info["explored"]
            done = terminated or truncated
    assert agent.plan.knowledge.rows.total.sum() == steps
    assert not agent.open_episodes
    assert 0 < let_through
    assert let_through < steps or eta == 3.0


@pytest.mark.parametrize("mode", MODES)
def test_lanes_and_single_environments_are_decided_alike(mode: AutoresetMode) -> None:
    """One lane and no learning before it ends: the first episode must be the same in both."""
    proposals = [2, 1, 2, 3, 0, 1, 1, 2, 2, 2, 1, 0]
    one = Shielded(lake(), guarding(lake()))
    one.reset(seed=5)
    envs, inside = vector(mode, 1)
    many = ShieldedVector(envs, guarding(lake()))
    many.reset(seed=5)
    for proposal in proposals:
        observation, reward, terminated, truncated, info = one.step(proposal)
        _, rewards, terminations, truncations, infos = many.step([proposal])
        assert (reward, terminated, truncated) == (rewards[0], terminations[0], truncations[0])
        for key in ("action", "explored", "refused", "charge", "deficit", "remaining"):
            assert infos[key][0] == info[key]
        assert inside[0].episodes[0][1][-1].next_state == observation
        if terminated or truncated:
            break


def test_settings_actions_are_honoured_where_the_environment_has_no_mask() -> None:
    allowed = np.ones((16, 4), dtype=np.bool_)
    allowed[0, 3] = False
    env = lake()
    agent = guarding(env, allowed=allowed)
    shielded = Shielded(env, agent)
    shielded.reset(seed=0)
    info = shielded.step(3)[4]
    assert info["refused"] == "not allowed"
    assert (info["action"] != 3, info["charge"], info["deficit"]) == (True, 0.0, 0.0)


def test_an_answer_that_contradicts_the_setting_abandons_the_episode() -> None:
    env = gymnasium.wrappers.TransformReward(lake(), lambda reward: 5.0)
    agent = guarding(env)
    shielded = Shielded(env, agent)
    shielded.reset(seed=0)
    with pytest.raises(InvalidData, match="'reward' must lie in"):
        shielded.step(0)
    assert not agent.open_episodes
    with pytest.raises(OutOfOrder):
        shielded.step(0)
    envs = SyncVectorEnv([lambda: gymnasium.wrappers.TransformReward(lake(), lambda reward: 5.0)] * 3)
    vectored = ShieldedVector(envs, agent)
    vectored.reset(seed=0)
    assert len(agent.open_episodes) == 3
    with pytest.raises(InvalidData, match="'reward' must lie in"):
        vectored.step([0, 0, 0])
    assert not agent.open_episodes


def test_a_guard_for_another_problem_is_refused_by_name() -> None:
    swim = TabularEnv(riverswim())
    with pytest.raises(
        InvalidSetting, match=r"have the environment's 16 states and 4 actions, got a setting of"
    ):
        Shielded(lake(), guarding(swim))
    with pytest.raises(InvalidSetting, match=r"'horizon' must not exceed the guard's own, 12, got 13\."):
        Shielded(lake(), guarding(lake()), horizon=13)
    with pytest.raises(InvalidSetting, match=r"'guard' must have a budget, got agent 'baseline'\."):
        Shielded(swim, TabularAgent(Baseline(), swim.mdp.setting))


def test_stable_baselines_trains_through_a_shield() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    env = lake()
    agent = guarding(env)
    model = sb3.DQN("MlpPolicy", Shielded(env, agent), learning_starts=20, seed=0)
    model.learn(total_timesteps=100)
    assert agent.plan.knowledge.rows.total.sum() > 50


# Critics


class Moody(Wire):
    """Offers action 2 at odd observations only, and says so by its mask alone."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(**options)
        return observation, self._mask()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return (*super().step(action)[:4], self._mask())

    def _mask(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, int(self._buffer[0]) % 2], dtype=np.int8)}


def critics(eta: float, **options: Any) -> CriticShield:
    """Values 0, 1 and 3 for the three actions, wherever they are played."""
    q = FunctionCritic(lambda observations: np.tile([0.0, 1.0, 3.0], (len(observations), 1)), n_actions=3)
    bounds = CriticBounds.from_point(q, accept="uncertified")
    return CriticShield(bounds, Rule.strict(eta), n_actions=3, horizon=4, **options)


def test_critics_play_the_best_action_that_the_environment_offers() -> None:
    # Masked, the baseline is 1 and action 0 costs 1; at odd observations it is 2 and action 0 costs 3.
    told = []
    env = Shielded(Moody(), critics(eta=1.5))
    envs = ShieldedVector(SyncVectorEnv([Moody]), critics(eta=1.5))
    env.reset()
    envs.reset()
    for proposal in (2, 0, 0, 1):
        *_, truncated, info = env.step(proposal)
        infos = envs.step([proposal])[4]
        told.append((info["action"], info["refused"], info["charge"], truncated))
        assert [infos[key][0] for key in ("action", "refused", "charge")] == list(told[-1][:3])
    assert told == [
        (1, "not allowed", 0.0, False),
        (2, "budget", 0.0, False),
        (0, None, 1.0, False),
        (2, "budget", 0.0, True),
    ]


def test_what_critics_do_not_allow_themselves_is_said_not_to_be_allowed() -> None:
    env = Shielded(Wire(), critics(eta=0.5, allowed=lambda observation: [True, True, False]))
    env.reset()
    assert [env.step(a)[4]["refused"] for a in (2, 0, 1)] == ["not allowed", "budget", None]
    with pytest.raises(InvalidSetting, match=r"'guard' must have the environment's 4 actions, got 3\."):
        Shielded(lake(), critics(eta=0.5))
    with pytest.raises(InvalidSetting, match=r"'horizon' must not exceed the guard's own, 4, got 5\."):
        Shielded(Wire(), critics(eta=0.5), horizon=5)


# What an environment says about itself


def test_a_setting_is_read_off_the_spaces_and_the_registered_limit() -> None:
    for env in (gymnasium.make("FrozenLake-v1"), gymnasium.make_vec("FrozenLake-v1", num_envs=2)):
        setting = setting_of(env)
        assert (setting.n_states, setting.n_actions, setting.horizon) == (16, 4, 100)
        assert setting.allowed.all()
        assert not setting.terminal.any()
        env.close()
    setting = setting_of(
        lake(9), reward_range=(0, 2), discount=0.5, allowed=np.ones((16, 4), dtype=np.bool_), terminal=[15]
    )
    assert (setting.horizon, setting.scale.high, setting.discount) == (9, 2.0, 0.5)
    assert np.flatnonzero(setting.terminal).tolist() == [15]
    assert setting_of(lake(9), horizon=4).horizon == 4
    assert setting_of(gymnasium.make_vec("FrozenLake-v1", num_envs=2, max_episode_steps=9)).horizon == 9


def test_the_setting_of_a_tabular_environment_is_its_mdps_own_without_the_truth() -> None:
    mdp = inventory(units="money")
    setting = setting_of(TabularEnv(mdp))
    assert setting is mdp.setting
    assert setting.known is None
    assert setting_of(TimeLimit(gymnasium.make("chary/Inventory-v0"), 3)).horizon == 3
    assert setting_of(TabularEnv(mdp), horizon=2).horizon == 2
    with pytest.raises(InvalidSetting, match=r"'horizon' must not exceed the environment's own"):
        setting_of(TabularEnv(mdp), horizon=mdp.horizon + 1)
    for name, value in (("reward_range", (0, 1)), ("discount", 0.9), ("allowed", [[1]]), ("terminal", ())):
        with pytest.raises(InvalidSetting, match=rf"'{name}' must be left to the MDP of a TabularEnv"):
            setting_of(TabularEnv(mdp), **{name: value})  # type: ignore[arg-type]
    # A wrapper that changes rewards makes another problem of it.
    changed = gymnasium.wrappers.TransformReward(TabularEnv(mdp), lambda reward: 0.0)
    assert setting_of(changed, horizon=5).scale == (0.0, 1.0)


def test_what_cannot_be_read_off_is_asked_for() -> None:
    class Odd(gymnasium.Env[Any, Any]):
        observation_space: Any = Discrete(3)
        action_space: Any = Discrete(2)

    with pytest.raises(InvalidSetting, match=r"'horizon' must be given .* Pass the largest number of steps"):
        setting_of(Odd())
    with pytest.raises(InvalidSetting, match=r"'horizon' must be a whole number >= 1, got 0\."):
        setting_of(Odd(), horizon=0)
    with pytest.raises(InvalidMDP, match=r"'reward_range' must be finite with low < high"):
        setting_of(Odd(), horizon=1, reward_range=(1, 0))
    Odd.action_space = Discrete(2, start=1)
    with pytest.raises(InvalidSetting, match=r"'action_space' must start at 0, got Discrete\(2, start=1\)\."):
        setting_of(Odd(), horizon=1)
    Odd.observation_space = Box(0, 1)
    with pytest.raises(InvalidSetting, match=r"'observation_space' must be Discrete, got Box"):
        setting_of(Odd(), horizon=1)
    with pytest.raises(InvalidSetting, match=r"'env' must be a Gymnasium environment, got str\."):
        setting_of("FrozenLake-v1")  # type: ignore[arg-type]


# Rewards below 0


def test_padding_waits_in_a_state_of_its_own_until_the_horizon() -> None:
    env = Padded(TabularEnv(fork()), horizon=5)
    env.reset(seed=0)
    assert env.observation_space == Discrete(4)
    assert env.step(1)[:4] == (3, 3.0, False, False)
    for t in range(1, 5):
        observation, reward, terminated, truncated, info = env.step(t % 2)
        assert (observation, reward, terminated, truncated) == (3, 0.0, False, t == 4)
        assert info["action_mask"].tolist() == [1, 1]
    with pytest.raises(OutOfOrder, match=r"Call reset\(\) first"):
        env.step(0)
    # What the environment cuts itself stays cut.
    env.reset()
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(OutOfOrder):
        env.step(0)


@pytest.mark.parametrize(("name", "rewards"), [("Taxi", (-10, 20)), ("CliffWalking", (-100, 0))])
def test_a_tabular_agent_guards_environments_with_rewards_below_0(
    name: str, rewards: tuple[float, float]
) -> None:
    bare = gymnasium.make(max(known for known in gymnasium.registry if known.startswith(f"{name}-v")))
    env = Padded(bare, horizon=30)
    inner: Any = bare.unwrapped
    allowed = np.ones((inner.observation_space.n + 1, inner.action_space.n), dtype=np.bool_)
    if name == "Taxi":
        allowed[:-1] = [inner.action_mask(s) for s in range(500)]
    agent = guarding(env, 20.0, reward_range=rewards, allowed=allowed)
    assert agent.setting.horizon == 30
    shielded = Shielded(env, agent)
    chance = np.random.Generator(np.random.PCG64(0))
    refused = set()
    for k in range(5):
        shielded.reset(seed=0 if k == 0 else None)
        truncated = False
        while not truncated:
            _, _, _, truncated, info = shielded.step(chance.integers(allowed.shape[1]))
            refused.add(info["refused"])
    assert agent.plan.knowledge.rows.total.sum() == 150
    assert ("not allowed" in refused) == (name == "Taxi")


# Rollouts


def test_an_agents_action_outside_the_mask_is_refused_with_the_environments_name() -> None:
    mdp = fork()
    setting = Setting.declare(n_states=3, n_actions=2, horizon=3, scale=mdp.scale)
    agent = TabularAgent(Baseline(prior=[0, 1, 0]), setting)
    with pytest.raises(InvalidAction, match=r"<TabularEnv.*> allows now \(0\), got 1\. Declare"):
        list(rollout(TabularEnv(mdp), agent, episodes=1, seed=0))
    agent = TabularAgent(Baseline(prior=[0, 1, 0]), setting)
    envs = SyncVectorEnv([lambda: TabularEnv(mdp)] * 2)
    with pytest.raises(InvalidAction, match=r"lane 0 of SyncVectorEnv.* allows now \(0\), got 1\. Declare"):
        list(rollout_many(envs, agent, episodes=2, seed=0))
    assert not agent.open_episodes


def test_numbers_out_of_range_are_refused_before_anything_is_played() -> None:
    env, envs = lake(), SyncVectorEnv([lake])
    agent = guarding(env)
    for bad in ({"episodes": -1}, {"episodes": 1.5}, {"first": -1}, {"seed": "x"}):
        options: Any = {"episodes": 1, **bad}
        with pytest.raises(InvalidSetting):
            rollout(env, agent, **options)
        with pytest.raises(InvalidSetting):
            rollout_many(envs, agent, **options)
    with pytest.raises(InvalidSetting, match=r"'horizon' must be a whole number >= 1, got 0\."):
        rollout(env, agent, episodes=1, horizon=0)
    with pytest.raises(InvalidSetting, match=r"'env' must be a gymnasium.Env, got SyncVectorEnv\."):
        rollout(envs, agent, episodes=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"'envs' must be a gymnasium.vector.VectorEnv, got "):
        rollout_many(env, agent, episodes=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"'agent' must have the methods of a Guard, got str\."):
        rollout_many(envs, "agent", episodes=1)  # type: ignore[arg-type]
    assert list(rollout_many(envs, agent, episodes=0)) == []
    assert agent.episodes_begun == 0


@pytest.mark.parametrize("mode", MODES)
def test_one_lane_plays_what_the_single_driver_plays(mode: AutoresetMode) -> None:
    mdp = make("corridor")
    envs = SyncVectorEnv([lambda: TabularEnv(mdp)], autoreset_mode=mode)
    one = list(rollout(TabularEnv(mdp), tabular(mdp.setting), episodes=12, seed=4))
    assert list(rollout_many(envs, tabular(mdp.setting), episodes=12, seed=4)) == one


@given(
    lanes=st.integers(1, 4),
    episodes=st.integers(0, 9),
    seed=st.integers(0, 2**31),
    mode=st.sampled_from(MODES),
)
def test_exactly_the_episodes_asked_for_begin_and_are_those_that_were_played(
    lanes: int, episodes: int, seed: int, mode: AutoresetMode
) -> None:
    envs, inside = vector(mode, lanes, steps=6)
    agent = Plain(eta=1.0)
    finished = list(rollout_many(envs, agent, episodes=episodes, first=3, seed=seed))
    assert sorted(episode.number for episode in finished) == list(range(3, 3 + episodes))
    assert set(agent.seen) == {episode.number for episode in finished}
    assert agent.abandoned == []
    played = [as_steps(steps) for recorder in inside for _, steps in recorder.episodes]
    for episode in finished:
        assert as_steps(episode.transitions) in played
        assert [step.action for step in episode.transitions] == [d.action for d in episode.decisions]
        assert as_steps(episode.transitions) == as_steps(agent.seen[episode.number])


def test_an_iterator_closed_early_abandons_what_is_open() -> None:
    envs = SyncVectorEnv([lambda: TabularEnv(riverswim())] * 3)
    agent = guarding(TabularEnv(riverswim()))
    episodes = rollout_many(envs, agent, episodes=10, seed=0)
    assert isinstance(next(episodes), Episode)
    assert agent.episodes_begun == 3
    episodes.close()  # type: ignore[attr-defined]
    assert not agent.open_episodes
    assert agent.plan.knowledge.rows.total.sum() == 3 * riverswim().horizon


def test_episodes_beyond_an_agents_horizon_are_refused_with_the_way_out() -> None:
    envs = SyncVectorEnv([lambda: TabularEnv(riverswim())] * 2)
    agent = guarding(TabularEnv(riverswim()), horizon=3)
    with pytest.raises(InvalidSetting, match=r"Wrap each environment in gymnasium.wrappers.TimeLimit"):
        list(rollout_many(envs, agent, episodes=2, seed=0))
    assert not agent.open_episodes


def test_what_is_known_of_values_and_successors_is_declared_with_the_environment() -> None:
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    setting = setting_of(lake, value_cap=1.0, support=1)
    assert setting.value_cap == 1.0
    assert set(setting.support.tolist()) == {1}
