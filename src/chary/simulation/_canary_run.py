"""A canary's run: stretches of episodes whose policies and coin stay the same, and the exact loss of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._candidates import Proposals, knowledge_for
from chary.agents._release import Release
from chary.agents.canary import Canary
from chary.arrays import Ints
from chary.errors import InvalidSetting
from chary.mdp import FiniteMDP
from chary.planner._full import PAPER, new_plan_arrays, plan_into
from chary.randomness import generator_for
from chary.simulation._blocks import (
    Arrays,
    BlockRun,
    Groups,
    Job,
    knowledge_memory,
    make_room,
    recall_knowledge_into,
)
from chary.simulation._canary import CANDIDATE, INCUMBENT, play_stretch
from chary.simulation._episode import Block
from chary.simulation._judge import evaluate_truly_into, mean_at_start, set_incumbent_into, true_value
from chary.simulation._loop import warm_block
from chary.simulation.run import CanaryLog
from chary.storage.sealed import under

# Sums of rewards are rounded.
RETURN_TOLERANCE = 1e-9


@final
class CanaryRun(BlockRun):
    """A canary at work."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        agent, setting = job.agent, self._setting
        assert isinstance(agent, Canary)
        self._agent, self._cap = agent, agent.cap(setting)
        check_return_cap(job.mdp, self._cap)
        self.knowledge = knowledge_for(agent, setting, generator_for(job.seed, "agent"))
        self._proposals = Proposals(agent, setting)
        self._tables = np.zeros((2, self._horizon, setting.n_states), dtype=np.int64)
        self._worth = np.zeros(2)
        self._policy = np.zeros(job.episodes, dtype=np.int64)
        self._probability, self._loss = np.zeros(job.episodes), np.zeros(job.episodes)
        self._release: Release
        self._changes = 0

    def start(self) -> None:
        """Count the warm-up, and find incumbent and first candidate."""
        H, job, knowledge, cumulative = self._horizon, self._job, self.knowledge, self._world.start

        def warm(block: Block) -> int:
            make_room(knowledge, H)
            first = np.searchsorted(cumulative, block.world[:, 0], side="right")
            self._proposals.starts[np.minimum(first, int(np.argmax(cumulative)))] = True
            return warm_block(block, self._world, knowledge.rows, knowledge.radii, self._playing)

        self._play_warmup(warm)
        if job.agent.prior is None:
            plan = new_plan_arrays(self._setting.n_states, H, differences=False)
            plan_into(plan, knowledge.rows, knowledge.radii, job.prior, PAPER, False, job.scratch)
            incumbent = plan.baseline.copy()
        else:
            incumbent = np.array(np.broadcast_to(job.prior, (H, self._setting.n_states)))
        self._begin_from(self._new_release(incumbent))
        self._proposals.consider(self._release, knowledge)
        self._take_policies()
        self._stretch(self._no_block(), 0.0)

    def planning(self) -> dict[str, int]:
        """Return nothing: no plans are made several at once."""
        return {}

    def log(self) -> CanaryLog:
        """Return which policy played, and what was at stake."""
        span = self._setting.scale.span
        return CanaryLog(
            policy=self._policy,
            probability=self._probability,
            loss=self._loss * span,
            changes=self._release.changes_in(self._cap * span, _offset(self._job.mdp)),
        )

    def _new_release(self, incumbent: Ints) -> Release:
        agent, span = self._agent, self._setting.scale.span
        assert agent.eta is not None
        return Release(incumbent, eta=agent.eta / span / self._cap, delta=agent.delta, share=agent.share)

    def _begin_from(self, release: Release) -> None:
        self._release = release
        set_incumbent_into(self._job.judge, release.incumbent.actions, self._job.scratch)

    def _take_policies(self) -> None:
        """Take on the policies of the release, and value them truly."""
        self._changes = len(self._release.changes)
        release, judge, scratch = self._release, self._job.judge, self._job.scratch
        candidate = release.candidate or release.incumbent
        self._tables[INCUMBENT], self._tables[CANDIDATE] = release.incumbent.actions, candidate.actions
        evaluate_truly_into(judge.v_true, np.zeros((0, 0)), judge, self._tables[INCUMBENT], 0, scratch)
        worth = mean_at_start(judge, true_value(judge, self._tables[CANDIDATE], scratch))
        self._worth[:] = mean_at_start(judge, judge.v_true), worth

    def _stretch(self, block: Block, p: float) -> int:
        job, release, knowledge = self._job, self._release, self.knowledge
        make_room(knowledge, self._horizon)
        policies = (release.incumbent, release.candidate or release.incumbent)
        until = np.array([policy.due - policy.n for policy in policies])
        return play_stretch(
            block, self._world, knowledge.rows, knowledge.radii, job.judge, self._playing, job.record,
            self._proposals.starts, self._tables, until, p,
        )  # fmt: skip

    def _play(self, block: Block) -> int:
        release, p = self._release, self._release.probability
        following = self._stretch(block, p)
        if following == block.first:
            return following
        self._probability[block.first : following] = p
        self._loss[block.first : following] = p * (self._worth[INCUMBENT] - self._worth[CANDIDATE])
        for k in range(block.first, following):
            assigned, slot = release.begin(block.agent[k - block.offset, 0])
            self._policy[k] = assigned.policy
            slot.resolve(min(float(self._job.record.episodes.returns[k]) / self._cap, 1.0))
        if release.settle():
            changed = len(release.changes)
            if self._proposals.consider(release, self.knowledge) or changed != self._changes:
                self._take_policies()
        return following

    def _memory(self) -> Groups:
        arrays, about = self._release.record()
        generators = self._blocks.generator_states()
        plain = {"release": about, "generators": generators, "proposals": self._proposals.record()}
        return {
            **knowledge_memory(self.knowledge),
            "release": arrays,
            "run": {
                "done": np.array(self.done),
                "first": self._job.judge.incumbent,
                "starts": self._proposals.starts,
                "plain": np.array(json.dumps(plain)),
            },
        }

    def _recall(self, state: Mapping[str, NDArray[Any]]) -> tuple[int, list[dict[str, Any]]]:
        plain = json.loads(str(state["run.plain"]))
        recall_knowledge_into(self.knowledge, state)
        self._begin_from(self._new_release(np.array(state["run.first"])))
        self._release.restore(under("release.", state), plain["release"])
        self._proposals.restore(plain["proposals"])
        self._proposals.starts[:] = state["run.starts"]
        self._take_policies()
        return int(state["run.done"]), plain["generators"]

    def _columns(self) -> Arrays:
        own = {"policy": self._policy, "probability": self._probability, "loss": self._loss}
        return {**super()._columns(), **{f"canary_{name}": array for name, array in own.items()}}


def check_return_cap(mdp: FiniteMDP, cap: float) -> None:
    """Raise InvalidSetting unless no episode can return more than `cap`, whatever it plays."""
    best = np.zeros(mdp.n_states)
    pair_state = np.repeat(np.arange(mdp.n_states), np.diff(mdp.setting.pair_start))
    for _ in range(mdp.horizon):
        lucky = np.where(mdp.probability > 0, mdp.reward + mdp.setting.discount * best[mdp.successor], 0.0)
        of_pair = np.maximum.reduceat(lucky, mdp.row_start[:-1])
        best = np.zeros(mdp.n_states)
        np.maximum.at(best, pair_state, of_pair)
    most = float(best[mdp.start > 0].max())
    if most > cap + RETURN_TOLERANCE:
        span = mdp.scale.span
        raise InvalidSetting(
            f"'return_cap' must bound the return of every single episode, which reaches {most * span:.6g}, "
            f"got {cap * span:.6g}. A cap on values bounds means only: pass return_cap={most * span:.6g}."
        )


def _offset(mdp: FiniteMDP) -> float:
    return mdp.scale.low * float(np.sum(mdp.setting.discount ** np.arange(mdp.horizon)))
