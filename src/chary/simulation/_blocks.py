"""A run of the compiled driver in blocks of episodes; between blocks it can be saved and resumed."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.errors import InvalidData
from chary.mdp import FiniteMDP
from chary.model.knowledge import LEARNT_RADII, Knowledge
from chary.planner._backup import Scratch
from chary.policies import OwnBaseline
from chary.randomness import generator_for
from chary.simulation._chains import FREE, Chains, Counter
from chary.simulation._episode import Block, new_playing, new_world
from chary.simulation._judge import Judge
from chary.simulation._logged import LoggedStart
from chary.simulation._loop import has_room
from chary.simulation._record import Record
from chary.simulation.run import CanaryLog, ChainLog

Arrays = dict[str, NDArray[Any]]
Groups = dict[str, Mapping[str, NDArray[Any]]]

# A block of episodes is one call of compiled code, which Ctrl-C cannot interrupt: keep it this short.
BLOCK_SECONDS = 0.1
MOST_UNIFORMS = 1_000_000


class Job(NamedTuple):
    """What a driver plays: the agent on the problem, and the record and the judge that the episodes go to.

    `prior` are the baseline's actions as the specification resolves them, (S,) or (H, S). `logged` are
    episodes to learn from after the random ones, and `own` is the policy that worlds have for their baseline.
    """

    record: Record
    mdp: FiniteMDP
    agent: AgentSpec
    judge: Judge
    episodes: int
    warmup: int
    seed: int
    prior: Ints
    scratch: Scratch
    logged: LoggedStart | None = None
    own: OwnBaseline | None = None


class BlockRun(ABC):
    """A run that plays block by block: `start` or `restore`, then `advance` until all episodes are done.

    `seconds` is how long the episodes took.
    """

    def __init__(self, job: Job) -> None:
        self.seconds = 0.0
        self._job = job
        self._setting = job.mdp.told(job.agent.reward)
        self._horizon = self._setting.horizon
        self._world, self._playing = new_world(job.mdp), new_playing(self._horizon)
        self._blocks = Blocks(self._horizon, job.seed, ("world", "agent"))

    @property
    def done(self) -> int:
        """The number of episodes played."""
        return self._blocks.done

    @abstractmethod
    def start(self) -> None:
        """Count the warm-up and compile, or load, what plays the episodes."""

    @final
    def advance(self) -> int:
        """Play one more block and return how many episodes are done."""
        began = time.perf_counter()
        self._blocks.play_next(self._job.episodes, self._play)
        self.seconds += time.perf_counter() - began
        return self.done

    @abstractmethod
    def log(self) -> ChainLog | CanaryLog:
        """Return what the run so far led to, apart from the columns of its record."""

    @abstractmethod
    def planning(self) -> dict[str, int]:
        """Return how much was planned, by name."""

    @final
    def state(self) -> Arrays:
        """Return all that the rest of the run depends on, as arrays that share no memory with it.

        Plans are not part of it: they are made again from what was learnt, to the same bits.
        """
        groups = self._memory()
        groups["log"] = {name: array[: self.done] for name, array in self._columns().items()}
        groups["run"] = {**groups["run"], "seconds": np.array(self.seconds)}
        return {
            f"{group}.{name}": np.array(array)
            for group, members in groups.items()
            for name, array in members.items()
        }

    @final
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was taken, instead of `start`.

        Raises:
            InvalidData: if it is not the state of such a run.
        """
        try:
            done, generators = self._recall(state)
            for name, array in self._columns().items():
                array[:done] = _logged(state, name)
            self.seconds = float(state["run.seconds"])
            self._blocks.restore(done, generators)
        except (KeyError, ValueError, TypeError) as problem:
            raise InvalidData(f"'state' must come from a run of the same kind, got {problem}.") from problem

    @abstractmethod
    def _play(self, block: Block) -> int:
        """Play episodes of a block from its first on, and return the next one to play."""

    @abstractmethod
    def _memory(self) -> Groups:
        """Return what the rest of the run depends on, by group; `run` has the episodes done, log aside."""

    @abstractmethod
    def _recall(self, state: Mapping[str, NDArray[Any]]) -> tuple[int, list[dict[str, Any]]]:
        """Take on what `_memory` returned; return the episodes done and the states of the generators."""

    def _columns(self) -> Arrays:
        """Return the columns with one row per episode."""
        return self._job.record.arrays()

    def _play_warmup(self, warm: Callable[[Block], int]) -> None:
        """Play the warm-up, `warm` being what plays a block of it."""
        blocks = Blocks(self._horizon, self._job.seed, ("warmup world", "warmup agent"))
        while blocks.done < self._job.warmup:
            blocks.play_next(self._job.warmup, warm)

    def _no_block(self) -> Block:
        """Return a block without episodes: playing it compiles the kernels."""
        nothing = np.zeros((0, self._horizon + 1))
        return Block(0, 0, 0, nothing, nothing)


@final
class Blocks:
    """Episodes in blocks of about BLOCK_SECONDS, each with its own row of uniforms from two generators.

    Where blocks end changes nothing but how soon somebody hears of them.
    """

    def __init__(self, horizon: int, seed: int, streams: tuple[str, str]) -> None:
        self.done = 0
        self._width = horizon + 1
        self._least = self._size = 1
        self._generators = [generator_for(seed, stream) for stream in streams]

    def take_multiples_of(self, episodes: int) -> None:
        """Let blocks have as many episodes as are planned together, or a multiple.

        A batch that the end of a block cuts short takes as long as a whole one.
        """
        self._least = self._size = episodes

    def play_next(self, episodes: int, play: Callable[[Block], int]) -> None:
        offset, last = self.done, min(episodes, self.done + self._size)
        world, agent = (generator.random((last - offset, self._width)) for generator in self._generators)
        began = time.perf_counter()
        while self.done < last:
            self.done = play(Block(self.done, last, offset, world, agent))
        elapsed = time.perf_counter() - began
        most = max(1, MOST_UNIFORMS // self._width)
        aimed = int(self._size * BLOCK_SECONDS / max(elapsed, 1e-6))
        size = min(most, 4 * self._size, aimed)
        self._size = max(self._least, size - size % self._least)

    def generator_states(self) -> list[dict[str, Any]]:
        return [dict(generator.bit_generator.state) for generator in self._generators]

    def restore(self, done: int, states: list[dict[str, Any]]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.bit_generator.state = state
        self.done = done


def arrays_of(fields: NamedTuple) -> Arrays:
    """Return the arrays of a named tuple by name."""
    return {name: value for name, value in fields._asdict().items() if isinstance(value, np.ndarray)}


def chain_log_of(chains: Chains) -> ChainLog:
    """Return the log of the chains that a pool has started."""
    started = int(chains.counters[Counter.STARTED])
    born, finished = chains.log_born[:started], chains.log_finished[:started]
    return ChainLog(
        started=started,
        finished=int(chains.counters[Counter.FINISHED]),
        abandoned=int(chains.counters[Counter.ABANDONED]),
        blocked=int(chains.counters[Counter.BLOCKED]),
        born=born.copy(),
        episodes=np.where(finished >= 0, finished - born + 1, 0),
        fed=chains.log_fed[:started].copy(),
        exhausted=chains.log_exhausted[:started].copy(),
        long=chains.log_long[:started].copy(),
    )


def chain_memory(chains: Chains) -> Arrays:
    """Return a pool as it is saved: it keeps room for as many explorers as it may ever have."""
    return {**arrays_of(chains), "explorer": chains.explorer[chains.status != FREE]}


def recall_chains_into(chains: Chains, state: Mapping[str, NDArray[Any]]) -> None:
    """Take on what `chain_memory` returned, from the group `chains`."""
    for name, array in arrays_of(chains).items():
        if name != "explorer":
            array[:] = state[f"chains.{name}"]
    chains.explorer[chains.status != FREE] = state["chains.explorer"]


def knowledge_memory(knowledge: Knowledge, prefix: str = "") -> Groups:
    """Return what was counted and the radii that follow, as two groups whose names begin with `prefix`."""
    return {
        f"{prefix}rows": arrays_of(knowledge.rows),
        f"{prefix}radii": {name: getattr(knowledge.radii, name) for name in LEARNT_RADII},
    }


def recall_knowledge_into(knowledge: Knowledge, state: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
    """Take on what `knowledge_memory` returned."""
    # The order of ties follows from the seed, and version 0.1 did not have it.
    names = (name for name in knowledge.rows._fields if name != "rank")
    rows = {name: np.array(state[f"{prefix}rows.{name}"]) for name in names}
    knowledge.rows = knowledge.rows._replace(**rows)
    for name in LEARNT_RADII:
        getattr(knowledge.radii, name)[:] = state[f"{prefix}radii.{name}"]


def make_room(knowledge: Knowledge, steps: int) -> None:
    """Make sure that compiled code can count `steps` more steps."""
    if not has_room(knowledge.rows, steps):
        longest = int(knowledge.rows.used[1])
        # Repacked rows have half as much room again, at most.
        knowledge.make_room(len(knowledge.rows.successor) + steps * (4 + 3 * longest))


def _logged(state: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | float:
    """Return a column of the episodes played before; version 0.1 had other ones."""
    if name == "baseline_value" and f"log.{name}" not in state:
        return math.nan
    if name == "incumbent_deficit" and f"log.{name}" not in state:
        return state["log.frozen_deficit"]
    return state[f"log.{name}"]
