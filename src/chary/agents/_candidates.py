"""Candidates for a canary: the learner's best policy, from lower bounds or posterior worlds.

The promise of a canary does not depend on how candidates are found. A poor one costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from chary.agents._release import Release
from chary.agents.canary import Canary
from chary.arrays import Bools, Ints
from chary.mdp import Setting
from chary.model.knowledge import Knowledge
from chary.model.rows import pair_states
from chary.model.worlds import Worlds
from chary.planner._worlds import new_world_plan, plan_worlds_into, shape_of
from chary.planner.plan import TabularPlan

# Worlds that a candidate is planned in, and the number of their standard deviations that it leaves out.
WORLDS = 32
PESSIMISM = 0.5
# Some bounds hold for a number of episodes; those of a learner that makes suggestions need not.
EPISODES = 1_000_000
# An undecided candidate may be replaced when there is this many times the data it was proposed with.
RENEWAL = 2.0


def knowledge_for(spec: Canary, setting: Setting, generator: np.random.Generator) -> Knowledge:
    """Return the knowledge of a learner that has seen nothing; the generator draws the order of ties."""
    rank = spec.tie_rank(setting, generator)
    return Knowledge.empty(setting, spec.bounds, episodes=EPISODES, total_episodes=EPISODES, rank=rank)


@final
class Proposals:
    """The questions to the learner: when, and whether its answer is a new policy.

    It is asked once a candidate was promoted or dropped, and whenever the data has grown by `spec.ask_growth`
    since the last question without a candidate. A candidate that stays undecided while the data doubles is
    replaced if the learner has found another. `starts` (S,) are the first states seen.
    """

    def __init__(self, spec: Canary, setting: Setting) -> None:
        self._spec, self._setting = spec, setting
        self.starts: Bools = np.zeros(setting.n_states, dtype=bool)
        self.asked_at = -1.0
        self.changes = 0

    def consider(self, release: Release, knowledge: Knowledge) -> bool:
        """Propose the learner's policy if it is time and the policy is new; return whether it was."""
        learnt = float(knowledge.rows.total.sum())
        factor = 1.0 + self._spec.ask_growth if release.candidate is None else RENEWAL
        decided = len(release.changes) != self.changes
        if not decided and 0.0 <= self.asked_at and learnt < factor * self.asked_at:
            return False
        self.asked_at = learnt
        actions = self._best(knowledge, release.incumbent.actions)
        fresh = not self._tried(release, actions, reach(knowledge, actions, self.starts))
        if fresh:
            release.propose(actions)
        self.changes = len(release.changes)
        return fresh

    def record(self) -> list[float]:
        """Return what decides when the learner is asked again."""
        return [self.asked_at, float(self.changes)]

    def restore(self, kept: Sequence[float]) -> None:
        """Take on what `record` returned."""
        asked_at, changes = kept
        self.asked_at, self.changes = float(asked_at), int(changes)

    def _best(self, knowledge: Knowledge, incumbent: Ints) -> Ints:
        find = posterior_policy if self._spec.candidates == "posterior" else lower_policy
        return find(self._setting, knowledge, incumbent)

    def _tried(self, release: Release, actions: Ints, reached: Bools) -> bool:
        """Return whether a policy plays the same as one before wherever it can get by transitions seen."""
        tables = [each.actions for each in release.tried if not len(each.shares)]
        return any(bool((actions == table)[reached].all()) for table in tables)


def lower_policy(setting: Setting, knowledge: Knowledge, incumbent: Ints) -> Ints:
    """Return the policy with the best lower bounds, (H, S); ties go to the incumbent."""
    plan = TabularPlan(setting, knowledge, incumbent, charge="paper", upper=False)
    return np.array(plan.arrays.baseline[:, : setting.n_states])


def posterior_policy(setting: Setting, knowledge: Knowledge, incumbent: Ints) -> Ints:
    """Return the best policy of posterior worlds, (H, S); ties go to the incumbent's first stage."""
    rows, S = knowledge.rows, setting.n_states
    n_pairs = setting.n_pairs
    order = np.concatenate([np.arange(b, b + n) for b, n in zip(rows.begin, rows.length, strict=True)])
    pairs = np.repeat(np.arange(n_pairs), rows.length)
    kept = rows.successor[order] < S
    order, pairs = order[kept], pairs[kept]
    times = rows.weight[order].astype(np.int64)
    rewards = rows.reward[order] / rows.weight[order]
    # Which worlds are drawn follows from the data alone, so that a saved agent goes on with the same.
    chance = np.random.default_rng(int(times.sum()))
    worlds = Worlds(setting, WORLDS, chance, kind="auto")
    worlds.learn(np.repeat(pairs, times), np.repeat(rows.successor[order], times), np.repeat(rewards, times))
    plan = new_world_plan(setting, WORLDS, 0)
    rank = np.where(setting.pair_action == incumbent[0][pair_states(setting)], -1, rows.rank)
    shape = shape_of(setting, rank)._replace(terminal=knowledge.radii.terminal[:S].copy())
    plan_worlds_into(plan, worlds.rows, shape, PESSIMISM, np.nan)
    return np.array(plan.baseline)


def reach(knowledge: Knowledge, actions: Ints, starts: Bools) -> Bools:
    """Return where a policy can get by transitions seen, (H, S)."""
    rows, S = knowledge.rows, len(starts)
    reached = np.zeros(actions.shape, dtype=bool)
    reached[0] = starts
    for t in range(1, len(actions)):
        for s in np.flatnonzero(reached[t - 1]).tolist():
            p = rows.pair_index[s, actions[t - 1, s]]
            if p >= 0:
                following = rows.successor[rows.begin[p] : rows.begin[p] + rows.length[p]]
                reached[t, following[following < S]] = True
    return reached & ~knowledge.radii.terminal[:S]
