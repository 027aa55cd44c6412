"""One run of an agent that plans by posterior worlds, saved and resumed between blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._world_schedule import EXPLORERS, WorldSchedule
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.worlds import WorldsSpec
from chary.arrays import Ints
from chary.model.rows import empty_rows
from chary.model.worlds import Worlds
from chary.planner._worlds import new_world_plan
from chary.randomness import generator_for
from chary.simulation._blocks import (
    BlockRun,
    Groups,
    Job,
    chain_log_of,
    chain_memory,
    recall_chains_into,
)
from chary.simulation._chains import PENDING, new_chains
from chary.simulation._episode import Block
from chary.simulation._judge import mean_at_start, set_incumbent_into, true_value
from chary.simulation._worlds import Seen, WorldPlayer, play_worlds_block, warm_worlds_block
from chary.simulation.run import ChainLog
from chary.storage.sealed import under


@final
class WorldsRun(BlockRun):
    """The compiled driver of agents with posterior worlds; `chains` is the pool, `plans` how many it made."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        agent, setting, episodes = job.agent, self._setting, job.episodes
        assert isinstance(agent, WorldsSpec)
        self._frozen, self._worth = np.zeros((0, 0), dtype=np.int64), 0.0
        shield = agent if isinstance(agent, CharyUCBVI) else None
        generator = generator_for(job.seed, "agent")
        self._schedule = WorldSchedule(
            agent,
            setting,
            prior=job.prior,
            rank=agent.tie_rank(setting, generator),
            generator=generator,
            own=job.own,
        )
        self._planned = new_world_plan(setting, agent.worlds, EXPLORERS)
        # The deficits of an episode, and room for the charges and the gaps of a step.
        self._lanes = (*np.zeros((2, self._schedule.ledgers)), np.zeros(agent.worlds))
        self.chains = new_chains(
            setting.n_states,
            setting.n_actions,
            self._horizon,
            pool=min(shield.pool, episodes) if shield else 1,
            clock_is_meta=shield is not None and shield.clock == "meta",
            stitched=shield is not None and shield.chains,
            patience=shield.patience if shield else None,
            episodes=episodes,
        )
        self._seen, self.plans = _room(0), 0

    @property
    def worlds(self) -> Worlds:
        """The worlds of the agent."""
        return self._schedule.worlds

    def start(self) -> None:
        """Count the warm-up and compile, or load, what plays the episodes."""
        H, rows = self._horizon, empty_rows(self._setting)
        self._seen = _room(self._job.warmup * H)

        def warm(block: Block) -> int:
            return warm_worlds_block(block, self._world, rows, H, self._playing, self._seen)

        self._play_warmup(warm)
        logged = self._job.logged
        if logged is not None:
            self._schedule.learn(logged.pairs, logged.nexts, logged.rewards)
        self._take_in()
        self._schedule.begin()
        self._plan_anew()
        self._begin_from(self._planned.baseline.copy())

    def log(self) -> ChainLog:
        """Return the chains of the run so far."""
        return chain_log_of(self.chains)

    def planning(self) -> dict[str, int]:
        """Return how many plans were made, the first included."""
        return {"plans": self.plans}

    def _memory(self) -> Groups:
        n = self._seen.used[0]
        generators = [self.worlds.generator.bit_generator.state, *self._blocks.generator_states()]
        return {
            "worlds": self.worlds.to_arrays(),
            "chains": chain_memory(self.chains),
            "seen": {name: getattr(self._seen, name)[:n] for name in ("pairs", "nexts", "rewards")},
            "run": {
                "frozen": self._frozen,
                "numbers": np.array([self.done, self.plans, self._schedule.before]),
                "generators": np.array(json.dumps(generators)),
            },
        }

    def _recall(self, state: Mapping[str, NDArray[Any]]) -> tuple[int, list[dict[str, Any]]]:
        done, self.plans, *before = (int(each) for each in state["run.numbers"])
        # Runs begun by an earlier version counted the log, too, when they asked whether to plan again.
        self._schedule.before = before[0] if before else 0
        self.worlds.restore(under("worlds.", state))
        recall_chains_into(self.chains, state)
        self._plan()
        seen = under("seen.", state)
        n = len(seen["pairs"])
        self._seen = _room(max(self._schedule.due, n) + self._horizon)
        for name, array in seen.items():
            getattr(self._seen, name)[:n] = array
        self._seen.used[0] = n
        self._begin_from(np.array(state["run.frozen"]))
        worlds, *others = json.loads(str(state["run.generators"]))
        self.worlds.generator.bit_generator.state = worlds
        return done, others

    def _begin_from(self, frozen: Ints) -> None:
        """Take `frozen` for the warm-up's baseline, and compile before the clock starts."""
        self._frozen, job = frozen, self._job
        set_incumbent_into(job.judge, frozen if job.agent.prior is None else job.prior, job.scratch)
        self._call(self._no_block())

    def _take_in(self) -> None:
        """Teach the worlds what was seen since the last plan."""
        seen = self._seen
        n = int(seen.used[0])
        self._schedule.learn(seen.pairs[:n], seen.nexts[:n], seen.rewards[:n])

    def _plan_anew(self) -> None:
        """Plan what the worlds have learnt, and make room for what is seen until the next plan."""
        self._seen = _room(self._schedule.due + self._horizon)
        self.plans += 1
        self._plan()

    def _plan(self) -> None:
        self._planned = plan = self._schedule.planned(self._planned)
        judge = self._job.judge
        # A chain without a step has no explorer to be true to: it takes the newest.
        for slot in np.flatnonzero((self.chains.status == PENDING) & (self.chains.length == 0)):
            self.chains.explorer[slot] = plan.explorer[:, :, self.chains.number[slot] % EXPLORERS]
        judge.v_true[:] = true_value(judge, plan.baseline, self._job.scratch)
        self._worth = mean_at_start(judge, judge.v_true)

    def _play(self, block: Block) -> int:
        if self._seen.used[0] >= self._schedule.due:
            self._take_in()
            self._plan_anew()
        return self._call(block)

    def _call(self, block: Block) -> int:
        schedule, (deficits, charges, gaps) = self._schedule, self._lanes
        # Made here: a player that lived on would keep the worlds that were fitted before.
        player = WorldPlayer(
            rows=self.worlds.rows,
            shape=schedule.shape,
            plan=self._planned,
            rule=schedule.rule,
            panel=schedule.panel,
            priced=self._job.agent.shielded,
            deficits=deficits,
            charges=charges,
            gaps=gaps,
        )
        return play_worlds_block(
            block,
            self._world,
            player,
            self.chains,
            self._job.judge,
            self._playing,
            self._seen,
            self._job.record,
            self._schedule.due,
            self._worth,
        )


def _room(n: int) -> Seen:
    """Return room for n transitions."""
    return Seen(
        np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(1, dtype=np.int64)
    )
