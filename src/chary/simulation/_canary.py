"""A canary's run: stretches of episodes whose policies and coin stay the same, and the exact loss of each."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary._compile import jit, kernel_of
from chary.agents._candidates import Proposals, knowledge_for
from chary.agents._release import Release
from chary.agents.canary import Canary
from chary.arrays import Bools, Ints
from chary.errors import InvalidData, InvalidSetting
from chary.mdp import FiniteMDP
from chary.model.knowledge import LEARNT_RADII, learn_kernel
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._full import PAPER, new_plan_arrays, plan_into
from chary.randomness import generator_for
from chary.simulation._compiled import Blocks, arrays_of, make_room
from chary.simulation._episode import Block, Playing, World, new_playing, new_world, play_table
from chary.simulation._judge import (
    Judge,
    evaluate_truly_into,
    judge_deficit,
    judge_regret,
    mean_at_start,
    mean_at_start_kernel,
    set_incumbent_into,
    true_value,
)
from chary.simulation._loop import has_room, warm_block
from chary.simulation._record import EpisodeColumns, Record, keep_steps_kernel
from chary.simulation.run import CanaryLog
from chary.storage.sealed import under

Arrays = dict[str, NDArray[Any]]
INCUMBENT, CANDIDATE = range(2)
# Sums of rewards are rounded.
RETURN_TOLERANCE = 1e-9


@jit
def judge_played_into(
    columns: EpisodeColumns, judge: Judge, k: int, incumbent: Ints, playing: Playing, steps: int
) -> None:
    """Write what episode k really cost; `judge.v_true` is the true value of the incumbent (H, S)."""
    columns.regret[k] = judge_regret(judge, playing, steps)
    columns.true_deficit[k], columns.signed_deficit[k], columns.largest_gap[k] = judge_deficit(
        judge, judge.v_true, incumbent, playing, steps
    )
    columns.incumbent_deficit[k], _, _ = judge_deficit(
        judge, judge.v_incumbent, judge.incumbent, playing, steps
    )


judge_played_kernel = kernel_of(judge_played_into)


@jit
def play_stretch(
    block: Block,
    world: World,
    rows: Rows,
    radii: Radii,
    judge: Judge,
    playing: Playing,
    record: Record,
    starts: Bools,
    tables: Ints,
    until: Ints,
    p: float,
) -> int:
    """Play episodes with one coin until a policy has `until` (2,) more returns; return the next episode.

    `tables` (2, H, S) are the policies. `judge.v_true` is the true value of the incumbent.
    """
    columns, left = record.episodes, until.copy()
    worth = mean_at_start_kernel(judge, judge.v_true)
    for k in range(block.first, block.last):
        i = k - block.offset
        if not has_room(rows, radii.horizon):
            return k
        drawn = CANDIDATE if block.agent[i, 0] < p else INCUMBENT
        steps, total = play_table(block.world[i], world, rows, tables[drawn], radii.discount, playing)
        deviating = 0
        for t in range(steps):
            playing.explored[t] = drawn == CANDIDATE
            playing.chains[t] = -1
            deviating += playing.actions[t] != tables[INCUMBENT, t, playing.states[t]]
        starts[playing.states[0]] = True
        columns.returns[k], columns.length[k] = total, steps
        columns.exploring_steps[k] = steps if drawn == CANDIDATE else 0
        columns.deviating_steps[k] = deviating
        columns.baseline_value[k] = worth
        judge_played_kernel(columns, judge, k, tables[INCUMBENT], playing, steps)
        keep_steps_kernel(record.steps, k, playing, steps)
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
        left[drawn] -= 1
        if left[drawn] == 0:
            return k + 1
    return block.last


@final
class CanaryRun:
    """A canary at work: it fills a record. `done` are the episodes played, `seconds` how long they took."""

    def __init__(
        self,
        record: Record,
        mdp: FiniteMDP,
        agent: Canary,
        judge: Judge,
        *,
        episodes: int,
        warmup: int,
        seed: int,
        prior: Ints,
        scratch: Scratch,
    ) -> None:
        self.seconds = 0.0
        self._record, self._mdp, self._agent, self._judge = record, mdp, agent, judge
        self._episodes, self._warmup, self._seed, self._prior = episodes, warmup, seed, prior
        self._scratch = scratch
        setting = mdp.told(agent.reward)
        self._setting, self._cap = setting, agent.cap(setting)
        check_return_cap(mdp, self._cap)
        self.knowledge = knowledge_for(agent, setting, generator_for(seed, "agent"))
        self._proposals = Proposals(agent, setting)
        self._world, self._playing = new_world(mdp), new_playing(setting.horizon)
        self._tables = np.zeros((2, setting.horizon, setting.n_states), dtype=np.int64)
        self._worth = np.zeros(2)
        self._policy = np.zeros(episodes, dtype=np.int64)
        self._probability, self._loss = np.zeros(episodes), np.zeros(episodes)
        self._blocks = Blocks(setting.horizon, seed, ("world", "agent"))
        self._release: Release
        self._changes = 0

    @property
    def done(self) -> int:
        """The number of episodes played."""
        return self._blocks.done

    def start(self) -> None:
        """Count the warm-up, and find incumbent and first candidate."""
        H, cumulative = self._setting.horizon, self._world.start
        knowledge = self.knowledge

        def warm(block: Block) -> int:
            make_room(knowledge, H)
            first = np.searchsorted(cumulative, block.world[:, 0], side="right")
            self._proposals.starts[np.minimum(first, int(np.argmax(cumulative)))] = True
            return warm_block(block, self._world, knowledge.rows, knowledge.radii, self._playing)

        blocks = Blocks(H, self._seed, ("warmup world", "warmup agent"))
        while blocks.done < self._warmup:
            blocks.play_next(self._warmup, warm)
        if self._agent.prior is None:
            plan = new_plan_arrays(self._setting.n_states, H, differences=False)
            plan_into(plan, knowledge.rows, knowledge.radii, self._prior, PAPER, False, self._scratch)
            incumbent = plan.baseline.copy()
        else:
            incumbent = np.array(np.broadcast_to(self._prior, (H, self._setting.n_states)))
        self._begin_from(self._new_release(incumbent))
        self._proposals.consider(self._release, knowledge)
        self._take_policies()
        self._stretch(Block(0, 0, 0, np.zeros((0, H + 1)), np.zeros((0, H + 1))), 0.0)

    def advance(self) -> int:
        """Play one more block and return how many episodes are done."""
        began = time.perf_counter()
        self._blocks.play_next(self._episodes, self._play)
        self.seconds += time.perf_counter() - began
        return self.done

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
            changes=self._release.changes_in(self._cap * span, _offset(self._mdp)),
        )

    def _new_release(self, incumbent: Ints) -> Release:
        agent, span = self._agent, self._setting.scale.span
        assert agent.eta is not None
        return Release(incumbent, eta=agent.eta / span / self._cap, delta=agent.delta, share=agent.share)

    def _begin_from(self, release: Release) -> None:
        self._release = release
        set_incumbent_into(self._judge, release.incumbent.actions, self._scratch)

    def _take_policies(self) -> None:
        """Take on the policies of the release, and value them truly."""
        self._changes = len(self._release.changes)
        release, judge = self._release, self._judge
        candidate = release.candidate or release.incumbent
        self._tables[INCUMBENT], self._tables[CANDIDATE] = release.incumbent.actions, candidate.actions
        evaluate_truly_into(judge.v_true, np.zeros((0, 0)), judge, self._tables[INCUMBENT], 0, self._scratch)
        worth = mean_at_start(judge, true_value(judge, self._tables[CANDIDATE], self._scratch))
        self._worth[:] = mean_at_start(judge, judge.v_true), worth

    def _stretch(self, block: Block, p: float) -> int:
        release, knowledge = self._release, self.knowledge
        make_room(knowledge, self._setting.horizon)
        policies = (release.incumbent, release.candidate or release.incumbent)
        until = np.array([policy.due - policy.n for policy in policies])
        return play_stretch(
            block, self._world, knowledge.rows, knowledge.radii, self._judge, self._playing, self._record,
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
            slot.resolve(min(float(self._record.episodes.returns[k]) / self._cap, 1.0))
        if release.settle():
            changed = len(release.changes)
            if self._proposals.consider(release, self.knowledge) or changed != self._changes:
                self._take_policies()
        return following

    def state(self) -> Arrays:
        """Return all that the rest of the run depends on, as arrays that share no memory with it."""
        arrays, about = self._release.record()
        generators = self._blocks.generator_states()
        plain = {"release": about, "generators": generators, "proposals": self._proposals.record()}
        groups: dict[str, Mapping[str, NDArray[Any]]] = {
            "rows": arrays_of(self.knowledge.rows),
            "radii": {name: getattr(self.knowledge.radii, name) for name in LEARNT_RADII},
            "release": arrays,
            "log": {name: array[: self.done] for name, array in self._logs().items()},
            "run": {
                "done": np.array(self.done),
                "seconds": np.array(self.seconds),
                "first": self._judge.incumbent,
                "starts": self._proposals.starts,
                "plain": np.array(json.dumps(plain)),
            },
        }
        return {f"{group}.{name}": np.array(a) for group, each in groups.items() for name, a in each.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was taken, instead of `start`.

        Raises:
            InvalidData: if it is not the state of such a run.
        """
        try:
            self._restore(state)
        except (KeyError, ValueError, TypeError) as problem:
            raise InvalidData(f"'state' must come from a run of the same kind, got {problem}.") from problem

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        plain, done = json.loads(str(state["run.plain"])), int(state["run.done"])
        knowledge = self.knowledge
        rows = {name: np.array(state[f"rows.{name}"]) for name in knowledge.rows._fields}
        knowledge.rows = type(knowledge.rows)(**rows)
        for name in LEARNT_RADII:
            getattr(knowledge.radii, name)[:] = state[f"radii.{name}"]
        for name, array in self._logs().items():
            array[:done] = state[f"log.{name}"]
        self._begin_from(self._new_release(np.array(state["run.first"])))
        self._release.restore(under("release.", state), plain["release"])
        self._proposals.restore(plain["proposals"])
        self._proposals.starts[:] = state["run.starts"]
        self._take_policies()
        self.seconds = float(state["run.seconds"])
        self._blocks.restore(done, plain["generators"])

    def _logs(self) -> Arrays:
        own = {"policy": self._policy, "probability": self._probability, "loss": self._loss}
        return {**self._record.arrays(), **{f"canary_{name}": array for name, array in own.items()}}


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
