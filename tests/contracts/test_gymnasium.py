"""The problems as Gymnasium environments: Gymnasium's own checks, masks, seeds and bad calls."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from chary.envs import GYMNASIUM_IDS, TabularEnv, inventory, make, register, riverswim
from chary.errors import CharyError, InvalidAction, InvalidMDP, InvalidSetting, OutOfOrder
from chary.mdp import FiniteMDP

Step = tuple[int, int, float, bool, bool, bytes]


def episode(env: TabularEnv, seed: int | None) -> list[Step]:
    state, info = env.reset(seed=seed)
    if seed is not None:
        env.action_space.seed(seed)
    steps: list[Step] = [(int(state), -1, 0.0, False, False, info["action_mask"].tobytes())]
    while not (steps[-1][3] or steps[-1][4]):
        a = env.action_space.sample()
        assert steps[-1][5][a]
        state, reward, terminated, truncated, info = env.step(a)
        steps.append((int(state), int(a), reward, terminated, truncated, info["action_mask"].tobytes()))
    return steps


def fork_in_the_road() -> FiniteMDP:
    """State 0 goes to 1 (which returns) or to the end, 2; action 1 exists in state 0 only."""
    rows = {(0, 0): [(1, 1.0, 0.0)], (0, 1): [(2, 1.0, 3.0)], (1, 0): [(0, 1.0, 1.0)]}
    return FiniteMDP.from_successors(
        rows, n_states=3, n_actions=2, horizon=3, terminal=[2], reward_range=(0.0, 4.0)
    )


@pytest.mark.parametrize("name", GYMNASIUM_IDS)
def test_every_id_passes_gymnasiums_own_check(name: str) -> None:
    env = gymnasium.make(GYMNASIUM_IDS[name])
    check_env(env.unwrapped)
    assert isinstance(env.unwrapped, TabularEnv)
    assert env.unwrapped.mdp.name == name
    env.close()


@pytest.mark.parametrize("name", GYMNASIUM_IDS)
def test_same_seed_same_episode_other_seed_other_episode(name: str) -> None:
    env = TabularEnv(make(name))
    one = [episode(env, 7), episode(env, None)]
    again = TabularEnv(make(name))
    assert [episode(again, 7), episode(again, None)] == one
    assert episode(env, 8) != one[0]


@pytest.mark.parametrize("name", GYMNASIUM_IDS)
def test_masks_are_those_of_the_mdp_and_samples_obey_them(name: str) -> None:
    env = TabularEnv(make(name))
    allowed = env.mdp.setting.allowed
    for seed in range(5):
        steps = episode(env, seed)
        assert len(steps) <= env.mdp.horizon + 1
        for before, after in pairwise(steps):
            assert allowed[before[0], after[1]]
        for step in steps:
            assert step[5] == allowed[step[0]].astype(np.int8).tobytes()
        assert steps[-1][3] == env.mdp.setting.terminal[steps[-1][0]]
        assert steps[-1][4] == (not steps[-1][3])


def test_all_chance_of_an_episode_is_one_row_of_uniforms() -> None:
    env = TabularEnv(make("random", n_states=6, horizon=12))
    mdp = env.mdp
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(11)))
    state, _ = env.reset(seed=11)
    for _ in range(3):
        u = rng.random(mdp.horizon + 1)
        assert state == np.searchsorted(np.cumsum(mdp.start), u[0], side="right")
        for t in range(mdp.horizon):
            x, p, r = mdp.row(int(state), t % 3)
            i = min(int(np.searchsorted(np.cumsum(p), u[t + 1], side="right")), len(x) - 1)
            state, reward, *_ = env.step(np.int64(t % 3))
            assert (state, reward) == (x[i], r[i])
        state, _ = env.reset()


def test_a_short_episode_leaves_the_next_one_unchanged() -> None:
    long, short = TabularEnv(riverswim()), TabularEnv(riverswim())
    long.reset(seed=3)
    short.reset(seed=3)
    for _ in range(20):
        long.step(np.int64(1))
    short.step(np.int64(1))
    assert episode(long, None)[0] == episode(short, None)[0]
    assert long.np_random.random() == short.np_random.random()


def test_rewards_are_in_the_users_units_and_scaled_beside() -> None:
    env = TabularEnv(inventory(units="money"))
    env.reset(seed=0)
    # Ordering nothing with nothing in stock earns 0: 17 / 52 in scaled units.
    _, reward, _, _, info = env.step(np.int64(0))
    assert reward == pytest.approx(0.0, abs=1e-12)
    assert info["scaled_reward"] == pytest.approx(17 / 52)


def test_a_terminal_state_terminates_with_an_empty_mask() -> None:
    env = TabularEnv(fork_in_the_road())
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1]
    assert info["action_mask"].dtype == np.int8
    state, reward, terminated, truncated, info = env.step(np.int64(1))
    assert (int(state), reward, terminated, truncated) == (2, 3.0, True, False)
    assert info["scaled_reward"] == 0.75
    assert info["action_mask"].tolist() == [0, 0]
    assert env.action_space.sample(info["action_mask"]) == 0


def test_a_terminal_state_at_the_horizon_terminates_and_does_not_truncate() -> None:
    env = TabularEnv(fork_in_the_road())
    env.reset(seed=0)
    env.step(np.int64(0))
    env.step(np.int64(0))
    assert env.step(np.int64(1))[2:4] == (True, False)


def test_the_horizon_truncates() -> None:
    env = TabularEnv(fork_in_the_road())
    env.reset(seed=0)
    assert [env.step(np.int64(0))[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (1, r"'action' must be allowed in state 1 \(0\), got 1\."),
        (2, r"'action' must be a whole number in 0\.\.1, got 2\."),
        (-1, r"'action' must be a whole number in 0\.\.1, got -1\."),
        (0.0, r"'action' must be a whole number in 0\.\.1, got 0\.0\."),
        (True, r"'action' must be a whole number in 0\.\.1, got True\."),
        (None, r"'action' must be a whole number in 0\.\.1, got None\."),
        (np.array([0]), r"'action' must be a whole number in 0\.\.1, got array\(\[0\]\)\."),
    ],
)
def test_a_bad_action_is_refused_and_changes_nothing(action: Any, message: str) -> None:
    env = TabularEnv(fork_in_the_road())
    env.reset(seed=0)
    env.step(np.int64(0))
    with pytest.raises(InvalidAction, match=message):
        env.step(action)
    assert env.step(np.array(0))[0] == 0  # type: ignore[arg-type]


def test_calls_out_of_order_are_refused() -> None:
    env = TabularEnv(fork_in_the_road())
    message = r"'step' must follow 'reset' and come before the end of the episode\. Call reset\(\) first\."
    with pytest.raises(OutOfOrder, match=message):
        env.step(np.int64(0))
    env.reset(seed=0)
    env.step(np.int64(1))
    with pytest.raises(OutOfOrder, match=message):
        env.step(np.int64(0))
    made = gymnasium.make("chary/RiverSwim-v0")
    with pytest.raises(OutOfOrder, match=message):
        made.step(0)


def test_options_reach_the_problem() -> None:
    env = gymnasium.make("chary/Inventory-v0", capacity=3, units="money")
    assert isinstance(env.unwrapped, TabularEnv)
    assert env.unwrapped.mdp.n_states == 4
    with pytest.raises(
        CharyError, match=r"'capacty' must be an option of 'inventory' .* Did you mean 'capacity'\?"
    ):
        gymnasium.make("chary/Inventory-v0", capacty=3)
    with pytest.raises(InvalidSetting, match=r"'actions' must be 'all' for 'random'"):
        gymnasium.make("chary/Random-v0", actions="admissible")


def test_only_a_finite_mdp_can_be_played() -> None:
    with pytest.raises(
        InvalidMDP, match=r"'mdp' must be a FiniteMDP, got str\. Use gymnasium.make for a name\."
    ):
        TabularEnv("inventory")  # type: ignore[arg-type]


def test_registering_twice_changes_nothing() -> None:
    before = {name: gymnasium.spec(name) for name in GYMNASIUM_IDS.values()}
    register()
    assert {name: gymnasium.spec(name) for name in GYMNASIUM_IDS.values()} == before


@pytest.mark.parametrize("first", ["chary.envs", "gymnasium"])
def test_ids_exist_once_the_problems_are_imported(first: str) -> None:
    second = "gymnasium" if first == "chary.envs" else "chary.envs"
    script = (
        f"import {first}, {second}, gymnasium\n"
        "assert gymnasium.make('chary/Inventory-v0').observation_space.n == 6\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_importing_chary_neither_imports_gymnasium_nor_registers() -> None:
    script = (
        "import sys, chary\n"
        "assert 'gymnasium' not in sys.modules\n"
        "import gymnasium\n"
        "assert 'chary/Inventory-v0' not in gymnasium.registry\n"
        "assert gymnasium.make('chary.envs:chary/Inventory-v0').observation_space.n == 6\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_the_problems_work_where_gymnasium_is_missing() -> None:
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'gymnasium':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import chary.envs\n"
        "assert chary.envs.inventory().n_states == 6\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
