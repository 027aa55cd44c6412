"""One run of the compiled driver of agents that plan by bounds, saved and resumed between blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._mixtures import UCBVI, new_mixture
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.comparison import MIXTURE_MEMORY, Baseline, MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.errors import PlannerMismatch
from chary.mdp import Setting
from chary.model.bounds import UCBVI_FAMILIES
from chary.model.knowledge import Knowledge
from chary.model.rows import no_rows
from chary.planner._batch_arrays import Now, new_batch, with_room
from chary.planner._full import CHARGES, DIFFERENCE, PAPER, new_explorer, new_plan_arrays, plan_into
from chary.planner._vectors import LANES
from chary.randomness import generator_for
from chary.shield import Rule
from chary.simulation._blocks import (
    BlockRun,
    Groups,
    Job,
    chain_log_of,
    chain_memory,
    knowledge_memory,
    make_room,
    recall_chains_into,
    recall_knowledge_into,
)
from chary.simulation._chains import Chains, new_chains
from chary.simulation._episode import Block
from chary.simulation._guess import new_ahead
from chary.simulation._judge import set_incumbent_into, true_value
from chary.simulation._loop import most_chain_steps, play_block, warm_block
from chary.simulation._plan_check import QUANTITIES, new_check
from chary.simulation._player import BASELINE, FULL, MIXTURE, PLANNERS, RANDOM, SHIELD, Player
from chary.simulation.run import ChainLog


@final
class CompiledRun(BlockRun):
    """The compiled driver at work. `knowledge` is what the agent has learnt so far, `chains` its pool."""

    def __init__(self, job: Job, *, planner: str, check_every: int) -> None:
        super().__init__(job)
        agent, setting, episodes = job.agent, self._setting, job.episodes
        H, S, P = setting.horizon, setting.n_states, setting.n_pairs
        shield = agent if isinstance(agent, CharyUCBVI) else None
        charge = CHARGES.index(shield.charge) if shield else PAPER
        before = job.warmup + (0 if job.logged is None else job.logged.episodes)
        totals = {"episodes": episodes, "total_episodes": episodes + before}
        rank = agent.tie_rank(setting, generator_for(job.seed, "agent"))
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
            prior=job.prior,
            rows=self.knowledge.rows,
            radii=self.knowledge.radii,
            meta_rows=meta.rows,
            meta_radii=meta.radii,
            plan=new_plan_arrays(S, H, differences=charge == DIFFERENCE),
            batch=batch,
            explorer=new_explorer(S, P, H, falling=agent.bonus in UCBVI_FAMILIES),
            mixture=new_mixture(UCBVI, frozen=np.zeros((H, S), dtype=np.int64)),
            scratch=job.scratch,
        )
        self.chains = _chains_for(agent, setting, episodes)
        # Guessed episodes read the explorers of the current chains, and change a copy of all the rest.
        guess = _chains_for(agent, setting, episodes if batch.on else 0)
        self._ahead = new_ahead(guess._replace(explorer=self.chains.explorer), H)
        self._check = new_check(S, P, H, every=check_every, differences=charge == DIFFERENCE)
        if batch.on:
            self._blocks.take_multiples_of(LANES)

    def start(self) -> None:
        """Count the warm-up and compile, or load, what plays the episodes."""
        for target in (self.knowledge, self._separate):
            if target is not None:
                self._warm_up(target)
        self._plan_baseline()
        self._begin_from(self._player.plan.baseline.copy())

    def log(self) -> ChainLog:
        """Return the chains of the run so far."""
        return chain_log_of(self.chains)

    def planning(self) -> dict[str, int]:
        """Return what the incremental planner did, where it plans several episodes at once."""
        batch = self._player.batch
        return {name.name.lower(): int(batch.now[name]) for name in (Now.BATCHES, Now.ROWS) if batch.on}

    def _memory(self) -> Groups:
        player = self._player
        return {
            **knowledge_memory(self.knowledge),
            **({} if self._separate is None else knowledge_memory(self._separate, "meta_")),
            "explorer": {"ceiling": player.explorer.ceiling},
            "mixture": {name: getattr(player.mixture, name) for name in MIXTURE_MEMORY},
            "chains": chain_memory(self.chains),
            "run": {
                "frozen": player.mixture.frozen,
                "done": np.array(self.done),
                "generators": np.array(json.dumps(self._blocks.generator_states())),
            },
        }

    def _recall(self, state: Mapping[str, NDArray[Any]]) -> tuple[int, list[dict[str, Any]]]:
        recall_knowledge_into(self.knowledge, state)
        if self._separate is not None:
            recall_knowledge_into(self._separate, state, "meta_")
        self._player.explorer.ceiling[:] = state["explorer.ceiling"]
        recall_chains_into(self.chains, state)
        self._plan_baseline()
        self._begin_from(np.array(state["run.frozen"]))
        for name in MIXTURE_MEMORY:
            getattr(self._player.mixture, name)[:] = state[f"mixture.{name}"]
        return int(state["run.done"]), json.loads(str(state["run.generators"]))

    def _warm_up(self, target: Knowledge) -> None:
        def warm(block: Block) -> int:
            make_room(target, self._horizon)
            return warm_block(block, self._world, target.rows, target.radii, self._playing)

        self._play_warmup(warm)
        if self._job.logged is not None:
            target.learn(*self._job.logged[1:])

    def _plan_baseline(self) -> None:
        """Plan by what is known so far, the upper value aside."""
        player, (rows, radii) = self._player, (self.knowledge.rows, self.knowledge.radii)
        plan_into(player.plan, rows, radii, player.prior, PAPER, False, player.scratch)

    def _begin_from(self, frozen: Ints) -> None:
        """Take `frozen` for the warm-up's baseline, and compile before the clock starts."""
        job, scratch = self._job, self._player.scratch
        agent, judge = job.agent, job.judge
        set_incumbent_into(judge, frozen if agent.prior is None else job.prior, scratch)
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
        self._play(self._no_block())

    def _play(self, block: Block) -> int:
        H, player, separate = self._horizon, self._player, self._separate
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
            self._job.judge,
            self._ahead,
            self._playing,
            self._job.record,
            self._check,
        )
        _raise_mismatch(self._check.found)
        return following


def _raise_mismatch(found: Ints) -> None:
    """Raise the first difference of the incremental planner from the full pass, if there is any."""
    k, quantity, t, s = found.tolist()
    if k >= 0:
        raise PlannerMismatch(
            f"'planner' incremental must equal the full pass bit for bit, got another {QUANTITIES[quantity]} "
            f"in episode {k} at stage {t} and state {s}. Use planner 'full', and please report this."
        )


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
