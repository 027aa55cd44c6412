"""Run an agent on a finite MDP and judge it, compiled or, to compare with, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from chary._audit_kernels import COVERAGES, Judge, evaluate_truly_into, new_judge
from chary._chains import Chains, Counter, new_chains
from chary._episode import BASELINE, MIXTURE, RANDOM, SHIELD, new_playing, new_world
from chary._episode_log import Log, new_log
from chary._guess import new_ahead
from chary._loop import FULL, PLANNERS, has_room, most_chain_steps, play_block, warm_block
from chary._plan_check import QUANTITIES, new_check
from chary.agents import AGENTS
from chary.agents._mixtures import UCBVI, new_mixture
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.fixed import Baseline
from chary.agents.neighbours import MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.audit import check_value_cap
from chary.errors import InvalidSetting, PlannerMismatch, check_choice, check_integer
from chary.mdp import FiniteMDP, Setting
from chary.model.bounds import UCBVI_FAMILIES
from chary.model.knowledge import Knowledge
from chary.model.rows import no_rows
from chary.planner._backup import Scratch, new_scratch
from chary.planner._kernels import CHARGES, DIFFERENCE, PAPER, new_explorer, new_plan_arrays, plan_into
from chary.planner._lanes import LANES
from chary.planner.incremental import Now, new_lanes
from chary.randomness import generator_for
from chary.run import ChainLog, Run, Steps
from chary.shield import Rule

__all__ = ["DRIVERS", "simulate", "simulate_in_blocks"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRIVERS = ("compiled", "step")

# A block of episodes is one call of compiled code, which Ctrl-C cannot interrupt: keep it this short.
BLOCK_SECONDS = 0.1
MOST_UNIFORMS = 1_000_000


def simulate(
    mdp: FiniteMDP,
    agent: AgentSpec,
    *,
    episodes: int,
    warmup: int = 0,
    seed: int = 0,
    coverage: str = "played",
    record_steps: bool = False,
    driver: str = "compiled",
    planner: str = "incremental",
    check_every: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Let `agent` play `episodes` episodes of `mdp` after a random warm-up, and judge every one of them.

    Args:
        mdp: The problem; the agent learns of it only what `mdp.told` says.
        agent: What plays, for example `CharyUCBVI(eta=0.2)`.
        episodes: Online episodes, >= 1.
        warmup: Uniformly random episodes counted before, >= 0.
        seed: A whole number >= 0; all randomness of the run comes from it.
        coverage: Where bounds are compared with the truth: at explored steps that differ from the baseline,
            `played`, or at every
            (t, s, a), `everywhere`, which costs about one more plan an episode.
        record_steps: Whether to keep every step, as `run.steps`.
        driver: `compiled`, or `step` for the same trajectories through Gymnasium and the step API, slowly.
        planner: How the compiled driver plans: `incremental`, or `full` for a whole backward induction before
            every episode; the same plans, bit for bit.
        check_every: Compare every N-th plan of the incremental planner, and what its episode was judged by,
            with the full pass; 0 for never.
        progress: Called now and then with episodes done and episodes in all.

    Raises:
        CharyError: if an option is out of range or does not fit the problem.
        PlannerMismatch: if `check_every` finds a difference, which would be an error in chary.

    Example:
        >>> import chary
        >>> run = simulate(chary.envs.riverswim(), chary.UCBVI(), episodes=3)
        >>> len(run.regret)
        3
    """
    report = progress or (lambda done, total: None)
    playing = simulate_in_blocks(
        mdp,
        agent,
        episodes=episodes,
        warmup=warmup,
        seed=seed,
        coverage=coverage,
        record_steps=record_steps,
        driver=driver,
        planner=planner,
        check_every=check_every,
    )
    while True:
        try:
            report(next(playing), episodes)
        except StopIteration as finished:
            run: Run = finished.value
            return run


def simulate_in_blocks(
    mdp: FiniteMDP,
    agent: AgentSpec,
    *,
    episodes: int,
    warmup: int = 0,
    seed: int = 0,
    coverage: str = "played",
    record_steps: bool = False,
    driver: str = "compiled",
    planner: str = "incremental",
    check_every: int = 0,
) -> Generator[int, None, Run]:
    """Do what `simulate` does a block of episodes at a time: yield how many are done, return the run."""
    if not isinstance(mdp, FiniteMDP):
        raise InvalidSetting(
            f"'mdp' must be a FiniteMDP, got {type(mdp).__name__}. Use chary.envs or FiniteMDP."
        )
    if type(agent) not in AGENTS.values():
        raise InvalidSetting(
            f"'agent' must be one of {', '.join(spec.__name__ for spec in AGENTS.values())}, "
            f"got {type(agent).__name__}."
        )
    check_integer("episodes", episodes, minimum=1)
    check_integer("warmup", warmup, minimum=0)
    check_integer("seed", seed, minimum=0)
    check_choice("coverage", coverage, COVERAGES)
    check_choice("driver", driver, DRIVERS)
    check_choice("planner", planner, PLANNERS)
    check_integer("check_every", check_every, minimum=0)
    if check_every and (driver != DRIVERS[0] or planner == PLANNERS[FULL]):
        raise InvalidSetting(
            f"'check_every' must be 0 with driver {driver!r} and planner {planner!r}, which make the full "
            f"pass themselves, got {check_every}. Use driver 'compiled' and planner 'incremental'."
        )
    if isinstance(agent, CharyUCBVI):
        agent.check_problem(mdp.setting)
    prior = agent.prior_actions(mdp.setting, mdp)
    scratch = new_scratch(mdp.n_states)
    in_lanes = driver == DRIVERS[0] and planner != PLANNERS[FULL] and agent.bonus == "hoeffding"
    judge = new_judge(mdp, scratch, coverage=COVERAGES.index(coverage), in_lanes=in_lanes)
    check_value_cap(float(judge.v_star.max()), mdp.setting.value_cap)
    log = new_log(episodes, mdp.horizon, steps=record_steps)
    planning: dict[str, int] = {}
    if driver == "step":
        # Imported here: the step-by-step driver needs Gymnasium, the compiled one does not.
        from chary._stepwise import play_steps

        began = time.perf_counter()
        chains = yield from play_steps(log, mdp, agent, judge, episodes, warmup, seed, prior, scratch)
        seconds = time.perf_counter() - began
    else:
        seconds, chains, planning = yield from _play_compiled(
            log, mdp, agent, judge, episodes, warmup, seed, prior, planner, check_every, scratch
        )
    span = mdp.scale.span
    return Run(
        problem=mdp.name,
        spec=agent,
        scale=mdp.scale,
        episodes=episodes,
        warmup=warmup,
        seed=seed,
        coverage=coverage,
        seconds=seconds,
        regret=log.regret * span,
        true_deficit=log.true_deficit * span,
        signed_deficit=log.signed_deficit * span,
        frozen_deficit=log.frozen_deficit * span,
        deficit=log.deficit * span,
        returns=_raw_returns(log, mdp),
        exploring_steps=log.exploring_steps,
        deviating_steps=log.deviating_steps,
        length=log.length,
        blocked=log.blocked,
        value_failed=log.value_failed,
        bonus_failed=log.bonus_failed,
        charge_failed=log.charge_failed,
        largest_gap=log.largest_gap * span,
        chains=chains,
        steps=Steps(
            state=log.step_state,
            action=log.step_action,
            explored=log.step_explored,
            booked=log.step_booked,
            chain=log.step_chain,
        )
        if record_steps
        else None,
        planning=planning,
    )


def _raw_returns(log: Log, mdp: FiniteMDP) -> Floats:
    """Return discounted returns in the user's units: every step played adds the offset once."""
    steps = np.concatenate([[0.0], np.cumsum(mdp.setting.discount ** np.arange(mdp.horizon))])
    return np.asarray(log.returns * mdp.scale.span + mdp.scale.low * steps[log.length])


def _play_compiled(
    log: Log,
    mdp: FiniteMDP,
    agent: AgentSpec,
    judge: Judge,
    episodes: int,
    warmup: int,
    seed: int,
    prior: Ints,
    planner: str,
    check_every: int,
    scratch: Scratch,
) -> Generator[int, None, tuple[float, ChainLog, dict[str, int]]]:
    """Fill the log in blocks of compiled episodes; return the seconds played, the chains and `planning`."""
    setting = mdp.told(agent.reward)
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs
    shielded = isinstance(agent, CharyUCBVI)
    kind = CHARGES.index(agent.charge) if isinstance(agent, CharyUCBVI) else PAPER
    totals = {"episodes": episodes, "total_episodes": episodes + warmup}
    knowledge = Knowledge.empty(setting, agent.bounds, **totals)
    separate: Knowledge | None = None
    if isinstance(agent, CharyUCBVI) and agent.data == "meta":
        separate = Knowledge.empty(setting, agent.bounds, **totals)
    world, playing, ahead = new_world(mdp), new_playing(H), new_ahead(H)

    for target in (knowledge, separate):
        if target is not None:
            draws = (generator_for(seed, "warmup world"), generator_for(seed, "warmup agent"))

            def warm(first: int, last: int, offset: int, u: Floats, v: Floats, to: Knowledge = target) -> int:
                _make_room(to, H)
                return warm_block(first, last, offset, u, v, world, to.rows, to.radii, playing)

            for _ in _in_blocks(warmup, H, draws, warm):
                pass

    plan = new_plan_arrays(S, H, differences=kind == DIFFERENCE)
    plan_into(plan, knowledge.rows, knowledge.radii, prior, PAPER, False, scratch)
    frozen = plan.baseline.copy()
    evaluate_truly_into(judge.v_frozen, np.zeros((0, 0)), judge, frozen, 0, scratch)
    oracle = isinstance(agent, MixtureSpec) and agent.baseline_value == "oracle"
    mixture = new_mixture(
        agent.kind if isinstance(agent, MixtureSpec) else UCBVI,
        frozen=frozen,
        alpha=getattr(agent, "alpha", 0.0),
        eta=(agent.eta or 0.0) / setting.scale.span,
        oracle_value=judge.v_frozen[0] if oracle else None,
    )
    explorer = new_explorer(S, P, H, falling=agent.bonus in UCBVI_FAMILIES)
    lanes = new_lanes(setting, knowledge.radii.family if planner != PLANNERS[FULL] else -1)
    chains = _chains_for(agent, setting, episodes)
    # Guessed episodes read the explorers of the chains at hand, and change a copy of all the rest.
    guess = _chains_for(agent, setting, episodes if lanes.on else 0)._replace(explorer=chains.explorer)
    rule = agent.resolved_rule(setting.scale.span) if isinstance(agent, CharyUCBVI) else Rule.closed()
    if isinstance(agent, MixtureSpec):
        player = MIXTURE
    else:
        player = SHIELD if shielded else BASELINE if isinstance(agent, Baseline) else RANDOM
    nothing = _no_knowledge(knowledge)
    check = new_check(S, P, H, every=check_every, differences=kind == DIFFERENCE) if check_every else None

    def play(first: int, last: int, offset: int, u: Floats, v: Floats) -> int:
        _make_room(knowledge, H)
        if separate is not None:
            _make_room(separate, most_chain_steps(H))
        meta = separate or nothing
        following = play_block(
            first,
            last,
            offset,
            u,
            v,
            player,
            world,
            judge,
            knowledge.rows,
            knowledge.radii,
            meta.rows,
            meta.radii,
            plan,
            PLANNERS.index(planner),
            lanes,
            explorer,
            chains,
            guess,
            rule,
            kind,
            mixture,
            prior,
            ahead,
            playing,
            log,
            check,
            scratch,
        )
        if check is not None:
            _raise_mismatch(check.found)
        return following

    # Compile, or load from the cache, before the clock starts.
    play(0, 0, 0, np.zeros((0, H + 1)), np.zeros((0, H + 1)))
    seconds, began = 0.0, time.perf_counter()
    streams = (generator_for(seed, "world"), generator_for(seed, "agent"))
    for done in _in_blocks(episodes, H, streams, play, least=LANES if lanes.on else 1):
        # What the caller does between blocks is not ours.
        seconds += time.perf_counter() - began
        yield done
        began = time.perf_counter()
    planning = {"batches": int(lanes.now[Now.BATCHES]), "rows": int(lanes.now[Now.ROWS])} if lanes.on else {}
    return seconds, _chain_log(chains), planning


def _in_blocks(
    episodes: int,
    horizon: int,
    generators: tuple[np.random.Generator, np.random.Generator],
    play: Callable[[int, int, int, Floats, Floats], int],
    *,
    least: int = 1,
) -> Iterator[int]:
    """Call `play` on blocks of episodes of about BLOCK_SECONDS, each with its own rows of uniforms.

    A block has at least `least` episodes, as many as are planned together.
    """
    done, block = 0, least
    most = max(1, MOST_UNIFORMS // (horizon + 1))
    yield 0
    while done < episodes:
        last = min(episodes, done + block)
        uniforms = [generator.random((last - done, horizon + 1)) for generator in generators]
        began, offset = time.perf_counter(), done
        while done < last:
            done = play(done, last, offset, *uniforms)
        elapsed = time.perf_counter() - began
        block = max(least, min(most, 4 * block, int(block * BLOCK_SECONDS / max(elapsed, 1e-6))))
        yield done


def _raise_mismatch(found: Ints) -> None:
    """Say what the incremental planner got wrong, if anything."""
    k, quantity, t, s = found.tolist()
    if k >= 0:
        raise PlannerMismatch(
            f"'planner' incremental must equal the full pass bit for bit, got another {QUANTITIES[quantity]} "
            f"in episode {k} at stage {t} and state {s}. Use planner 'full', and please report this."
        )


def _make_room(knowledge: Knowledge, steps: int) -> None:
    if not has_room(knowledge.rows, steps):
        longest = int(knowledge.rows.used[1])
        # Repacked rows have half as much room again, at most.
        knowledge.make_room(len(knowledge.rows.successor) + steps * (4 + 3 * longest))


def _no_knowledge(like: Knowledge) -> Knowledge:
    """Return knowledge of nothing at all, of the same types: kernels take it for `data = all`."""
    return Knowledge(no_rows(like.rows), like.radii)


def _chains_for(agent: AgentSpec, setting: Setting, episodes: int) -> Chains:
    sizes = (setting.n_states, setting.n_actions, setting.horizon)
    if isinstance(agent, CharyUCBVI):
        return new_chains(
            *sizes,
            # No more chains can be open than were started, one an episode at most.
            pool=min(agent.pool, episodes),
            clock_is_meta=agent.clock == "meta",
            stitched=agent.chains,
            patience=agent.patience,
            episodes=episodes,
            own_data=agent.data == "meta",
        )
    return new_chains(*sizes, pool=1, clock_is_meta=False, stitched=True, patience=None, episodes=0)


def _chain_log(chains: Chains) -> ChainLog:
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
