"""One run of the compiled driver, block by block; between blocks it can be saved and resumed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._mixtures import UCBVI, new_mixture
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.comparison import MIXTURE_MEMORY, Baseline, MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.errors import InvalidData, PlannerMismatch
from chary.mdp import FiniteMDP, Setting
from chary.model.bounds import UCBVI_FAMILIES
from chary.model.knowledge import LEARNT_RADII, Knowledge
from chary.model.rows import no_rows
from chary.planner._backup import Scratch
from chary.planner._batch_arrays import Now, new_batch, with_room
from chary.planner._full import CHARGES, DIFFERENCE, PAPER, new_explorer, new_plan_arrays, plan_into
from chary.planner._vectors import LANES
from chary.randomness import generator_for
from chary.shield import Rule
from chary.simulation._chains import FREE, Chains, Counter, new_chains
from chary.simulation._episode import Block, new_playing, new_world
from chary.simulation._guess import new_ahead
from chary.simulation._judge import Judge, set_incumbent_into, true_value
from chary.simulation._logged import LoggedStart
from chary.simulation._loop import has_room, most_chain_steps, play_block, warm_block
from chary.simulation._plan_check import QUANTITIES, new_check
from chary.simulation._player import BASELINE, FULL, MIXTURE, PLANNERS, RANDOM, SHIELD, Player
from chary.simulation._record import Record
from chary.simulation.run import ChainLog

Arrays = dict[str, NDArray[Any]]

# A block of episodes is one call of compiled code, which Ctrl-C cannot interrupt: keep it this short.
BLOCK_SECONDS = 0.1
MOST_UNIFORMS = 1_000_000


@final
class CompiledRun:
    """The compiled driver at work: it fills a record.

    `knowledge` is what the agent has learnt so far, `chains` its pool, `done` the episodes played and
    `seconds` how long they took.
    """

    def __init__(
        self,
        record: Record,
        mdp: FiniteMDP,
        agent: AgentSpec,
        judge: Judge,
        *,
        episodes: int,
        warmup: int,
        seed: int,
        prior: Ints,
        planner: str,
        check_every: int,
        scratch: Scratch,
        logged: LoggedStart | None = None,
    ) -> None:
        self.seconds = 0.0
        self._record, self._mdp, self._agent, self._judge = record, mdp, agent, judge
        self._episodes, self._warmup, self._seed = episodes, warmup, seed
        setting = mdp.told(agent.reward)
        self._setting = setting
        H, S, P = setting.horizon, setting.n_states, setting.n_pairs
        shield = agent if isinstance(agent, CharyUCBVI) else None
        charge = CHARGES.index(shield.charge) if shield else PAPER
        self._logged = logged
        before = warmup + (0 if logged is None else logged.episodes)
        totals = {"episodes": episodes, "total_episodes": episodes + before}
        rank = agent.tie_rank(setting, generator_for(seed, "agent"))
        self.knowledge = Knowledge.empty(setting, agent.bounds, rank=rank, **totals)
        self._separate: Knowledge | None = None
        if shield and shield.data == "meta":
            self._separate = Knowledge.empty(setting, agent.bounds, rank=rank, **totals)
        meta = self._separate or Knowledge(no_rows(self.knowledge.rows), self.knowledge.radii)
        way = PLANNERS.index(planner)
        batch = new_batch(setting, self.knowledge.radii.family if way != FULL else -1)
        # What is learnt, the batch and the mixture are replaced by others of the same types as a run goes on.
        self._player = Player(
            agent=_kind_of(agent),
            planner=way,
            charge=charge,
            rule=shield.resolved_rule(setting.scale.span) if shield else Rule.closed(),
            prior=prior,
            rows=self.knowledge.rows,
            radii=self.knowledge.radii,
            meta_rows=meta.rows,
            meta_radii=meta.radii,
            plan=new_plan_arrays(S, H, differences=charge == DIFFERENCE),
            batch=batch,
            explorer=new_explorer(S, P, H, falling=agent.bonus in UCBVI_FAMILIES),
            mixture=new_mixture(UCBVI, frozen=np.zeros((H, S), dtype=np.int64)),
            scratch=scratch,
        )
        self.chains = _chains_for(agent, setting, episodes)
        # Guessed episodes read the explorers of the current chains, and change a copy of all the rest.
        guess = _chains_for(agent, setting, episodes if batch.on else 0)
        self._ahead = new_ahead(guess._replace(explorer=self.chains.explorer), H)
        self._world, self._playing = new_world(mdp), new_playing(H)
        self._check = (
            new_check(S, P, H, every=check_every, differences=charge == DIFFERENCE) if check_every else None
        )
        self._blocks = Blocks(H, seed, ("world", "agent"), least=LANES if batch.on else 1)

    @property
    def done(self) -> int:
        """The number of episodes played."""
        return self._blocks.done

    def start(self) -> None:
        """Count the warm-up and compile, or load, what plays the episodes."""
        for target in (self.knowledge, self._separate):
            if target is not None:
                self._warm_up(target)
        self._plan_baseline()
        self._begin_from(self._player.plan.baseline.copy())

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
        """Return what the incremental planner did, where it plans several episodes at once."""
        batch = self._player.batch
        return {name.name.lower(): int(batch.now[name]) for name in (Now.BATCHES, Now.ROWS) if batch.on}

    def state(self) -> Arrays:
        """Return all that the rest of the run depends on, as arrays that share no memory with it.

        Plans are not part of it: they are made again from the counts, to the same bits.
        """
        used = self.chains.status != FREE
        chains = {name: value for name, value in arrays_of(self.chains).items() if name != "explorer"}
        groups: dict[str, Mapping[str, NDArray[Any]]] = {
            "rows": arrays_of(self.knowledge.rows),
            "radii": {name: getattr(self.knowledge.radii, name) for name in LEARNT_RADII},
            "explorer": {"ceiling": self._player.explorer.ceiling},
            "mixture": {name: getattr(self._player.mixture, name) for name in MIXTURE_MEMORY},
            # A pool keeps room for as many explorers as it may ever have.
            "chains": {**chains, "explorer": self.chains.explorer[used]},
            "log": {name: array[: self.done] for name, array in self._record.arrays().items()},
            "run": {
                "frozen": self._player.mixture.frozen,
                "done": np.array(self.done),
                "seconds": np.array(self.seconds),
                "generators": np.array(json.dumps(self._blocks.generator_states())),
            },
        }
        if self._separate is not None:
            groups["meta_rows"] = arrays_of(self._separate.rows)
            groups["meta_radii"] = {name: getattr(self._separate.radii, name) for name in LEARNT_RADII}
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
        done = int(state["run.done"])
        for prefix, knowledge in (("", self.knowledge), ("meta_", self._separate)):
            if knowledge is not None:
                # The order of ties follows from the seed, and version 0.1 did not have it.
                names = (name for name in knowledge.rows._fields if name != "rank")
                rows = {name: np.array(state[f"{prefix}rows.{name}"]) for name in names}
                knowledge.rows = knowledge.rows._replace(**rows)
                for name in LEARNT_RADII:
                    getattr(knowledge.radii, name)[:] = state[f"{prefix}radii.{name}"]
        self._player.explorer.ceiling[:] = state["explorer.ceiling"]
        for name, array in arrays_of(self.chains).items():
            if name != "explorer":
                array[:] = state[f"chains.{name}"]
        self.chains.explorer[self.chains.status != FREE] = state["chains.explorer"]
        for name, array in self._record.arrays().items():
            array[:done] = logged(state, name)
        self._plan_baseline()
        self._begin_from(np.array(state["run.frozen"]))
        for name in MIXTURE_MEMORY:
            getattr(self._player.mixture, name)[:] = state[f"mixture.{name}"]
        self.seconds = float(state["run.seconds"])
        self._blocks.restore(done, json.loads(str(state["run.generators"])))

    def _warm_up(self, target: Knowledge) -> None:
        H = self._setting.horizon

        def warm(block: Block) -> int:
            make_room(target, H)
            return warm_block(block, self._world, target.rows, target.radii, self._playing)

        blocks = Blocks(H, self._seed, ("warmup world", "warmup agent"))
        while blocks.done < self._warmup:
            blocks.play_next(self._warmup, warm)
        if self._logged is not None:
            target.learn(*self._logged[1:])

    def _plan_baseline(self) -> None:
        """Plan by what is known so far, the upper value aside."""
        player, (rows, radii) = self._player, (self.knowledge.rows, self.knowledge.radii)
        plan_into(player.plan, rows, radii, player.prior, PAPER, False, player.scratch)

    def _begin_from(self, frozen: Ints) -> None:
        """Take `frozen` for the warm-up's baseline, and compile before the clock starts."""
        agent, judge, H, scratch = self._agent, self._judge, self._setting.horizon, self._player.scratch
        set_incumbent_into(judge, frozen if agent.prior is None else self._player.prior, scratch)
        oracle = isinstance(agent, MixtureSpec) and agent.baseline_value == "oracle"
        mixture = new_mixture(
            agent.kind if isinstance(agent, MixtureSpec) else UCBVI,
            frozen=frozen,
            alpha=getattr(agent, "alpha", 0.0),
            eta=(agent.eta or 0.0) / self._setting.scale.span,
            oracle_value=true_value(judge, frozen, scratch)[0] if oracle else None,
            in_lanes=self._player.batch.on,
        )
        self._player = self._player._replace(mixture=mixture)
        self._play(Block(0, 0, 0, np.zeros((0, H + 1)), np.zeros((0, H + 1))))

    def _play(self, block: Block) -> int:
        H, player, separate = self._setting.horizon, self._player, self._separate
        make_room(self.knowledge, H)
        rows = self.knowledge.rows
        player = player._replace(rows=rows, batch=with_room(player.batch, len(rows.successor)))
        if separate is not None:
            make_room(separate, most_chain_steps(H))
            player = player._replace(meta_rows=separate.rows)
        self._player = player
        following = play_block(
            block,
            self._world,
            player,
            self.chains,
            self._judge,
            self._ahead,
            self._playing,
            self._record,
            self._check,
        )
        if self._check is not None:
            _raise_mismatch(self._check.found)
        return following


@final
class Blocks:
    """Episodes in blocks of about BLOCK_SECONDS, each with its own row of uniforms from two generators.

    A block has `least` episodes, as many as are planned together, or a multiple: a batch that the end of a
    block cuts short takes as long as a whole one. Where blocks end changes nothing but how soon somebody
    hears of them.
    """

    def __init__(self, horizon: int, seed: int, streams: tuple[str, str], *, least: int = 1) -> None:
        self.done = 0
        self._width = horizon + 1
        self._least = self._size = least
        self._generators = [generator_for(seed, stream) for stream in streams]

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


def arrays_of(fields: NamedTuple) -> Arrays:
    return {name: value for name, value in fields._asdict().items() if isinstance(value, np.ndarray)}


def logged(state: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | float:
    """Return a column of the episodes played before; version 0.1 had other ones."""
    if name == "baseline_value" and f"log.{name}" not in state:
        return math.nan
    if name == "incumbent_deficit" and f"log.{name}" not in state:
        return state["log.frozen_deficit"]
    return state[f"log.{name}"]


def _raise_mismatch(found: Ints) -> None:
    """Raise the first difference of the incremental planner from the full pass, if there is any."""
    k, quantity, t, s = found.tolist()
    if k >= 0:
        raise PlannerMismatch(
            f"'planner' incremental must equal the full pass bit for bit, got another {QUANTITIES[quantity]} "
            f"in episode {k} at stage {t} and state {s}. Use planner 'full', and please report this."
        )


def make_room(knowledge: Knowledge, steps: int) -> None:
    if not has_room(knowledge.rows, steps):
        longest = int(knowledge.rows.used[1])
        # Repacked rows have half as much room again, at most.
        knowledge.make_room(len(knowledge.rows.successor) + steps * (4 + 3 * longest))


def _kind_of(agent: AgentSpec) -> int:
    if isinstance(agent, CharyUCBVI):
        return SHIELD
    if isinstance(agent, MixtureSpec):
        return MIXTURE
    return BASELINE if isinstance(agent, Baseline) else RANDOM


def _chains_for(agent: AgentSpec, setting: Setting, episodes: int) -> Chains:
    sizes = (setting.n_states, setting.n_actions, setting.horizon)
    if isinstance(agent, CharyUCBVI):
        return new_chains(
            *sizes,
            # No more chains can be open than were started, one per episode at most.
            pool=min(agent.pool, episodes),
            clock_is_meta=agent.clock == "meta",
            stitched=agent.chains,
            patience=agent.patience,
            episodes=episodes,
            own_data=agent.data == "meta",
        )
    return new_chains(*sizes, pool=1, clock_is_meta=False, stitched=True, patience=None, episodes=0)
