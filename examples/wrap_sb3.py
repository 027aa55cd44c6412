"""A Stable-Baselines3 DQN on FrozenLake: guarded while it learns, and then a guard itself.

    python examples/wrap_sb3.py [--quick] [--figure sb3.png]    # needs pip install 'chary[sb3]'

Reaching the goal earns 1, a hole in the ice ends the episode with 0. There is a log of earlier walks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import chary
from chary import critics
from chary.wrappers import Shielded

try:
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.buffers import ReplayBuffer
except ImportError:
    print("This example needs Stable-Baselines3. Run: pip install 'chary[sb3]'", file=sys.stderr)
    sys.exit(2)

Lake = gymnasium.Env[Any, Any]
HORIZON, GAMMA, ETA = 20, 0.95, 0.2  # an episode may lose 0.2 of its chance to reach the goal
ROUTE = {0: 1, 4: 1, 8: 2, 9: 1, 13: 2, 14: 2}  # down, down, right, down, right, right


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that counts the ends of its episodes and stores their deficits."""

    def __init__(self, env: Lake) -> None:
        super().__init__(env)
        self.ends: Counter[str] = Counter()
        self.deficits: list[float] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one step, and count the end of an episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self.ends["goal" if reward else "hole" if terminated else "cut off"] += 1
            self.deficits.append(info.get("deficit", 0.0))
        return observation, reward, terminated, truncated, info

    def show(self, name: str) -> None:
        """Print one line."""
        ends = ", ".join(f"{end} {self.ends[end]}" for end in ("goal", "hole", "cut off"))
        print(f"{name:<24} {ends}, largest deficit {max(self.deficits):.3f}")


class Played(ReplayBuffer):
    """A replay buffer of the actions played, to which reward and next state belong, not of the proposals."""

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store the guard's action instead of the proposal, if there is a guard."""
        played = [[info.get("action", a)] for info, a in zip(infos, np.ravel(action), strict=True)]
        super().add(obs, next_obs, np.array(played), reward, done, infos)


def lake() -> Lake:
    """Return the task."""
    return gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=HORIZON)


def walk(env: Lake, choose: Callable[[int], int], stray: float, chance: Any) -> list[chary.Transition]:
    """Play one episode, a share of the moves at random."""
    state, over, steps = int(env.reset()[0]), False, []
    while not over:
        action = int(chance.integers(4)) if chance.random() < stray else choose(state)
        after, reward, terminated, truncated, _ = env.step(action)
        steps.append(chary.Transition(state, action, float(reward), int(after), terminated))
        state, over = int(after), terminated or truncated
    return steps


def train(env: Lake, seed: int, steps: int, log: list[list[chary.Transition]]) -> DQN:
    """Return a small DQN that began with the log."""
    model = DQN(
        "MlpPolicy",
        env,
        seed=seed,
        gamma=GAMMA,
        learning_rate=2e-3,
        train_freq=2,
        target_update_interval=200,
        exploration_fraction=0.5,
        replay_buffer_class=Played,
        buffer_size=20_000,
        policy_kwargs={"net_arch": [64]},
    )
    assert model.replay_buffer is not None
    for step in (step for episode in log for step in episode):
        state, action, reward, after, ended = (np.array([cell]) for cell in step)
        model.replay_buffer.add(state, after, action, reward, ended, [{}])
    return model.learn(steps)


def held_out(steps: list[chary.Transition]) -> critics.HeldOutEpisode:
    """Return an episode in the form that calibration takes."""
    states = np.array([step.state for step in steps] + [steps[-1].next_state])
    actions = np.array([step.action for step in steps])
    rewards = np.array([step.reward for step in steps])
    return critics.HeldOutEpisode(states, actions, rewards, terminated=steps[-1].terminated)


def main() -> None:
    """Learn under guard, then guard."""
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="fewer steps")
    options.add_argument("--figure", type=Path, metavar="PATH", help="needs pip install 'chary[figures]'")
    given = options.parse_args()
    torch.set_num_threads(1)
    steps, chance = 600 if given.quick else 3000, np.random.default_rng(0)
    log = [walk(lake(), lambda s: ROUTE.get(s, 0), 0.3, chance) for _ in range(500)]

    # 1. A DQN proposes, the guard decides. A move leads to one place (support), and no walk earns more than
    #    1: declaring this makes charges smaller, and the promise stays certified.
    setting = chary.Setting.declare(n_states=16, n_actions=4, horizon=HORIZON, value_cap=1.0, support=1)
    guard = chary.TabularAgent(chary.CharyUCBVI(eta=ETA), setting)
    guard.warm_start(log)
    free, guarded = Counted(lake()), Counted(Shielded(lake(), guard))
    train(free, 0, steps, log)
    models = [train(guarded, seed, steps, log) for seed in (1, 2)]
    free.show("a DQN alone")
    guarded.show("two DQNs guarded")

    # 2. Their values as critics: the smaller and the larger of both, moved apart until held-out walks are
    # within the bounds. That is calibrated, not certified: it holds for walks like those held out.
    ensemble = critics.EnsembleCritics([critics.SB3Critic(model) for model in models])
    bounds = critics.CriticBounds.from_ensemble(ensemble)
    best = [int(action) for action in bounds.evaluate(np.arange(16), n_actions=4).baseline]
    fresh = [held_out(walk(lake(), best.__getitem__, 0.15, chance)) for _ in range(200)]
    found = critics.calibrate_critics(
        bounds, fresh[:100], n_actions=4, discount=GAMMA, cut_off="end", test=fresh[100:]
    )
    print(found.describe())

    # 3. Now the critics guard a random walk.
    watch = critics.CriticShield(found.bounds, chary.Rule.strict(ETA), n_actions=4, horizon=HORIZON)
    alone, watched = Counted(lake()), Counted(Shielded(lake(), watch))
    for env in (alone, watched):
        for _ in range(200):
            walk(env, lambda s: 0, 1.0, chance)
    alone.show("a random walk alone")
    watched.show("a random walk guarded")
    print(f"The first guard. {guard.standing.describe()}")
    print(f"The second guard. {watch.standing.describe()}")
    assert max(guarded.deficits + watched.deficits) <= ETA
    if given.figure:
        draw([free, guarded, alone, watched], given.figure)


def draw(envs: list[Counted], path: Path) -> None:
    """Draw the shares of ends of episodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    names, left = ["DQN alone", "DQNs guarded", "random walk alone", "random walk guarded"], np.zeros(4)
    for end, colour in (("goal", "#1F6FB2"), ("cut off", "#BBBBBB"), ("hole", "#D55E00")):
        share = np.array([env.ends[end] / sum(env.ends.values()) for env in envs])
        axes.barh(names, share, left=left, color=colour, label=end)
        left += share
    axes.invert_yaxis()
    axes.set(xlabel="share of episodes", xlim=(0, 1))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
