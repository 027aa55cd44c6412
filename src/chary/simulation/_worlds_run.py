"""One run of an agent that plans by posterior worlds, block by block; it can be saved and resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._world_schedule import EXPLORERS, WorldSchedule
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.worlds import WorldsSpec
from chary.arrays import Ints
from chary.errors import InvalidData
from chary.mdp import FiniteMDP
from chary.model.rows import empty_rows
from chary.model.worlds import Worlds
from chary.planner._backup import Scratch
from chary.planner._worlds import new_world_plan
from chary.randomness import generator_for
from chary.simulation._chains import FREE, PENDING, new_chains
from chary.simulation._compiled import Arrays, Blocks, arrays_of, chain_log_of
from chary.simulation._episode import Block, new_playing, new_world
from chary.simulation._judge import Judge, mean_at_start, set_incumbent_into, true_value
from chary.simulation._record import Record
from chary.simulation._worlds import Seen, WorldPlayer, play_worlds_block, warm_worlds_block
from chary.simulation.run import ChainLog


@final
class WorldsRun:
    """The compiled driver of agents with posterior worlds; the interface is that of `CompiledRun`."""

    def __init__(
        self,
        record: Record,
        mdp: FiniteMDP,
        agent: WorldsSpec,
        judge: Judge,
        *,
        episodes: int,
        warmup: int,
        seed: int,
        prior: Ints,
        scratch: Scratch,
    ) -> None:
        self.seconds = 0.0
        self._record, self._agent, self._judge, self._scratch = record, agent, judge, scratch
        self._episodes, self._warmup, self._seed = episodes, warmup, seed
        self._prior, self._frozen, self._worth = prior, np.zeros((0, 0), dtype=np.int64), 0.0
        setting = mdp.told(agent.reward)
        self._setting = setting
        H, K = setting.horizon, agent.worlds
        shield = agent if isinstance(agent, CharyUCBVI) else None
        generator = generator_for(seed, "agent")
        self._schedule = WorldSchedule(
            agent, setting, prior=prior, rank=agent.tie_rank(setting, generator), generator=generator
        )
        self._planned = new_world_plan(setting, K, EXPLORERS)
        # The deficits of an episode, and room for the charges and the gaps of a step.
        self._lanes = (*np.zeros((2, self._schedule.ledgers)), np.zeros(K))
        self.chains = new_chains(
            setting.n_states,
            setting.n_actions,
            H,
            pool=min(shield.pool, episodes) if shield else 1,
            clock_is_meta=shield is not None and shield.clock == "meta",
            stitched=shield is not None and shield.chains,
            patience=shield.patience if shield else None,
            episodes=episodes,
        )
        self._seen, self.plans = _room(0), 0
        self._world, self._playing = new_world(mdp), new_playing(H)
        self._blocks = Blocks(H, seed, ("world", "agent"))

    @property
    def worlds(self) -> Worlds:
        """The worlds of the agent."""
        return self._schedule.worlds

    @property
    def done(self) -> int:
        """The number of episodes played."""
        return self._blocks.done

    def start(self) -> None:
        """Count the warm-up and compile, or load, what plays the episodes."""
        H, rows = self._setting.horizon, empty_rows(self._setting)
        self._seen = _room(self._warmup * H)
        blocks = Blocks(H, self._seed, ("warmup world", "warmup agent"))

        def warm(block: Block) -> int:
            return warm_worlds_block(block, self._world, rows, H, self._playing, self._seen)

        while blocks.done < self._warmup:
            blocks.play_next(self._warmup, warm)
        self._learn()
        self._begin_from(self._planned.baseline.copy())

    def advance(self) -> int:
        """Play one more block and return how many episodes are done."""
        began = time.perf_counter()
        self._blocks.play_next(self._episodes, self._play)
        self.seconds += time.perf_counter() - began
        return self.done

    def log(self) -> ChainLog:
        """Return the chains of the run so far."""
        return chain_log_of(self.chains)

    def planning(self) -> dict[str, int]:
        """Return how many plans were made, the first included."""
        return {"plans": self.plans}

    def state(self) -> Arrays:
        """Return all that the rest of the run depends on, as arrays that share no memory with it."""
        used, n = self.chains.status != FREE, self._seen.used[0]
        chains = {name: value for name, value in arrays_of(self.chains).items() if name != "explorer"}
        generators = [self.worlds.generator.bit_generator.state, *self._blocks.generator_states()]
        groups: dict[str, Mapping[str, NDArray[Any]]] = {
            "worlds": self.worlds.to_arrays(),
            "chains": {**chains, "explorer": self.chains.explorer[used]},
            "seen": {name: getattr(self._seen, name)[:n] for name in ("pairs", "nexts", "rewards")},
            "log": {name: array[: self.done] for name, array in self._record.arrays().items()},
            "run": {
                "frozen": self._frozen,
                "numbers": np.array([self.done, self.plans]),
                "seconds": np.array(self.seconds),
                "generators": np.array(json.dumps(generators)),
            },
        }
        return {
            f"{group}.{name}": np.array(array)
            for group, members in groups.items()
            for name, array in members.items()
        }

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
        def of(group: str) -> Arrays:
            return {
                key.removeprefix(f"{group}."): each for key, each in state.items() if key.startswith(group)
            }

        done, self.plans = (int(each) for each in state["run.numbers"])
        self.worlds.restore(of("worlds"))
        for name, array in arrays_of(self.chains).items():
            if name != "explorer":
                array[:] = state[f"chains.{name}"]
        self.chains.explorer[self.chains.status != FREE] = state["chains.explorer"]
        for name, array in self._record.arrays().items():
            array[:done] = state[f"log.{name}"]
        self._plan()
        seen = of("seen")
        n = len(seen["pairs"])
        self._seen = _room(max(self._schedule.due, n) + self._setting.horizon)
        for name, array in seen.items():
            getattr(self._seen, name)[:n] = array
        self._seen.used[0] = n
        self._begin_from(np.array(state["run.frozen"]))
        self.seconds = float(state["run.seconds"])
        worlds, *others = json.loads(str(state["run.generators"]))
        self.worlds.generator.bit_generator.state = worlds
        self._blocks.restore(done, others)

    def _begin_from(self, frozen: Ints) -> None:
        """Take `frozen` for the warm-up's baseline, and compile before the clock starts."""
        self._frozen, H = frozen, self._setting.horizon
        set_incumbent_into(self._judge, frozen if self._agent.prior is None else self._prior, self._scratch)
        self._call(Block(0, 0, 0, np.zeros((0, H + 1)), np.zeros((0, H + 1))))

    def _learn(self) -> None:
        """Teach the worlds what was seen since the last plan, and plan again."""
        seen = self._seen
        n = int(seen.used[0])
        self._schedule.learn(seen.pairs[:n], seen.nexts[:n], seen.rewards[:n])
        self._seen = _room(self._schedule.due + self._setting.horizon)
        self.plans += 1
        self._plan()

    def _plan(self) -> None:
        self._planned = plan = self._schedule.planned(self._planned)
        judge = self._judge
        # A chain without a step has no explorer to be true to: it takes the newest.
        for slot in np.flatnonzero((self.chains.status == PENDING) & (self.chains.length == 0)):
            self.chains.explorer[slot] = plan.explorer[:, :, self.chains.number[slot] % EXPLORERS]
        judge.v_true[:] = true_value(judge, plan.baseline, self._scratch)
        self._worth = mean_at_start(judge, judge.v_true)

    def _play(self, block: Block) -> int:
        if self._seen.used[0] >= self._schedule.due:
            self._learn()
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
            priced=self._agent.shielded,
            deficits=deficits,
            charges=charges,
            gaps=gaps,
        )
        return play_worlds_block(
            block,
            self._world,
            player,
            self.chains,
            self._judge,
            self._playing,
            self._seen,
            self._record,
            self._schedule.due,
            self._worth,
        )


def _room(n: int) -> Seen:
    """Return room for n transitions."""
    return Seen(
        np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(1, dtype=np.int64)
    )
