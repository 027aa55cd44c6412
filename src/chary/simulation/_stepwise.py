"""A whole run through Gymnasium and the step API: slow, plain, and equal to the compiled loop bit for bit."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from chary.agents.comparison import MixtureSpec, Random
from chary.agents.own import Beside, OwnAgent
from chary.agents.protocol import POSTERIOR, Transition
from chary.agents.tabular import TabularAgent
from chary.arrays import Floats
from chary.envs.tabular_env import TabularEnv
from chary.mdp import FiniteMDP
from chary.planner._full import CHARGES, PAPER, plan_into
from chary.planner.joint import JointPlan
from chary.planner.plan import TabularPlan
from chary.randomness import generator_for, seed_for
from chary.rollouts import Episode, rollout
from chary.simulation._blocks import Job
from chary.simulation._episode import Playing, new_playing
from chary.simulation._judge import (
    EVERYWHERE,
    evaluate_truly_into,
    mean_at_start,
    set_incumbent_into,
    true_value,
)
from chary.simulation._record import first_deviation_into, judge_into, keep_steps_into
from chary.simulation._worlds import judge_worlds_into
from chary.simulation.run import CHAIN_COLUMNS, ChainLog


def play_steps(job: Job) -> Generator[int, None, ChainLog]:
    """Fill the record with episodes played step by step, and return the log of chains."""
    record, mdp, spec, judge, episodes, _, seed, prior, scratch = job[:9]
    env, columns = TabularEnv(mdp), record.episodes
    oracle = isinstance(spec, MixtureSpec) and spec.baseline_value == "oracle"
    played = random_episodes(job, env)
    agent = _new_agent(job)
    acting: TabularAgent | Beside = agent
    if isinstance(spec, OwnAgent):
        own = spec.made(
            mdp.told(spec.reward),
            generator=generator_for(seed, "agent"),
            episodes=episodes,
            warmup=job.warmup,
        )
        acting = Beside(spec.label, own, agent)
    acting.warm_start(played)
    frozen = agent.frozen_baseline
    set_incumbent_into(judge, frozen if spec.prior is None else prior, scratch)
    if oracle:
        value = true_value(judge, frozen, scratch)[0]
        acting = agent = _new_agent(job, oracle_value=value)
        agent.warm_start(played)
    playing = new_playing(mdp.horizon)
    with_worlds = spec.bonus == POSTERIOR
    kind = PAPER if with_worlds else CHARGES.index(spec.options()["charge"] or CHARGES[PAPER])

    def judge_episode(episode: Episode) -> None:
        k, steps = episode.number, len(episode.transitions)
        pinned = agent.plan_of(k)
        arrays, everywhere = pinned.arrays, judge.coverage == EVERYWHERE
        if everywhere and not spec.shielded:
            assert isinstance(pinned, TabularPlan)
            known = pinned.knowledge
            # An agent without a shield has no use for the upper value of its baseline; the judge has.
            plan_into(pinned.arrays, known.rows, known.radii, prior, kind, True, scratch)
        lay_out_into(playing, episode, mdp)
        for t, (step, decision) in enumerate(zip(episode.transitions, episode.decisions, strict=True)):
            # The ledger keeps what was booked; the charge itself comes from the plan again.
            playing.charges[t] = (
                pinned.charge(t, step.state, step.action) if decision.explored and spec.shielded else 0.0
            )
        columns.deficit[k] = episode.decisions[-1].deficit_scaled
        columns.length[k] = steps
        first_deviation_into(columns, k, arrays.baseline, playing, steps, everywhere)
        evaluate_truly_into(judge.v_true, judge.q_true, judge, arrays.baseline, 0, scratch)
        columns.baseline_value[k] = mean_at_start(judge, judge.v_true)
        priced = spec.shielded
        if isinstance(pinned, JointPlan):
            judge_worlds_into(columns, judge, k, arrays.baseline, playing, steps, priced)
        else:
            rows, radii = pinned.knowledge.rows, pinned.knowledge.radii
            judge_into(columns, judge, k, kind, rows, radii, pinned.arrays, playing, steps, priced, scratch)
        keep_steps_into(record.steps, k, playing, steps)

    chains = {name: np.zeros(episodes, dtype) for name, dtype in CHAIN_COLUMNS.items()}
    started = 0
    world_seed = seed_for(seed, "world")
    for episode in rollout(env, acting, episodes=episodes, seed=world_seed, before_finish=judge_episode):
        k = episode.number
        columns.returns[k] = scaled_return(episode, mdp)
        if agent.shield is not None and agent.last_end is not None:
            chains["born"][started : agent.shield.started] = k
            started = agent.shield.started
            columns.blocked[k] = agent.last_end.blocked
            for rollout_ in agent.last_end.finished:
                m = rollout_.chain
                chains["episodes"][m], chains["fed"][m] = rollout_.episodes, rollout_.fed_episodes
                chains["exhausted"][m], chains["long"][m] = rollout_.exhausted, rollout_.long
        yield k + 1
    shield = agent.shield
    return ChainLog(
        started=started,
        finished=shield.finished if shield else 0,
        abandoned=shield.abandoned if shield else 0,
        blocked=shield.blocked if shield else 0,
        **{name: column[:started] for name, column in chains.items()},
    )


def lay_out_into(playing: Playing, episode: Episode, mdp: FiniteMDP) -> None:
    """Write an episode as the compiled loop has it; charges aside, which only some agents have."""
    for t, (step, decision) in enumerate(zip(episode.transitions, episode.decisions, strict=True)):
        playing.states[t], playing.states[t + 1] = step.state, step.next_state
        playing.actions[t], playing.explored[t] = step.action, decision.explored
        playing.pairs[t] = mdp.setting.pair_index[step.state, step.action]
        playing.booked[t], playing.chains[t] = decision.charge_scaled, decision.chain


def scaled_return(episode: Episode, mdp: FiniteMDP) -> float:
    """Return the sum of discounted rewards, in scaled units."""
    total, weight = 0.0, 1.0
    for step in episode.transitions:
        reward = (step.reward - mdp.scale.low) / mdp.scale.span
        total += weight * min(max(reward, 0.0), 1.0)
        weight *= mdp.setting.discount
    return total


def random_episodes(job: Job, env: TabularEnv) -> list[tuple[Transition, ...]]:
    """Return the transitions of the uniformly random episodes of a warm-up."""
    dice = TabularAgent(Random(), job.mdp.setting, generator=generator_for(job.seed, "warmup agent"))
    played = rollout(env, dice, episodes=job.warmup, seed=seed_for(job.seed, "warmup world"))
    return [episode.transitions for episode in played]


def _new_agent(job: Job, oracle_value: Floats | None = None) -> TabularAgent:
    """Return an agent that has seen nothing; for an agent of the user's own, the one to judge it by."""
    spec = job.agent
    own = isinstance(spec, OwnAgent)
    return TabularAgent(
        spec.judged_by() if isinstance(spec, OwnAgent) else spec,
        job.mdp.told(spec.reward),
        max_episodes=job.episodes,
        warmup=job.warmup,
        generator=generator_for(job.seed, "agent"),
        prior=None if spec.prior is None else job.prior,
        oracle_value=oracle_value,
        overrides="counted" if own else "ignored",
    )
