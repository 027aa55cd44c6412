"""A canary's run through Gymnasium and the step API: slow, plain, and equal to the compiled one."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from chary.agents.canary import Canary
from chary.agents.canary_agent import CanaryAgent
from chary.envs.tabular_env import TabularEnv
from chary.randomness import generator_for, seed_for
from chary.rollouts import Episode, rollout
from chary.simulation._blocks import Job
from chary.simulation._canary import judge_played_into
from chary.simulation._canary_run import check_return_cap
from chary.simulation._episode import new_playing
from chary.simulation._judge import evaluate_truly_into, mean_at_start, set_incumbent_into, true_value
from chary.simulation._record import first_deviation_into, keep_steps_into
from chary.simulation._stepwise import lay_out_into, random_episodes, scaled_return
from chary.simulation.run import CanaryLog


def play_canary_steps(job: Job) -> Generator[int, None, CanaryLog]:
    """Fill the record with episodes played step by step through Gymnasium, and return the canary's log."""
    record, mdp, spec, judge, episodes, _, seed, prior, scratch = job[:9]
    assert isinstance(spec, Canary)
    setting, env, columns = mdp.told(spec.reward), TabularEnv(mdp), record.episodes
    check_return_cap(mdp, spec.cap(setting))
    agent = CanaryAgent(
        replace(spec, prior=None),
        setting,
        generator=generator_for(seed, "agent"),
        incumbent=None if spec.prior is None else prior,
    )
    agent.warm_start(random_episodes(job, env))
    set_incumbent_into(judge, agent.actions(1), scratch)
    policy, probability, loss = np.zeros(episodes, dtype=np.int64), np.zeros(episodes), np.zeros(episodes)
    playing = new_playing(mdp.horizon)

    def worth(number: int) -> float:
        return mean_at_start(judge, true_value(judge, agent.actions(number), scratch))

    def judge_episode(episode: Episode) -> None:
        k, steps = episode.number, len(episode.transitions)
        assigned, release = agent.assigned(k), agent.release
        policy[k], probability[k] = assigned.policy, assigned.probability
        candidate = release.candidate or release.incumbent
        loss[k] = assigned.probability * (worth(release.incumbent.number) - worth(candidate.number))
        lay_out_into(playing, episode, mdp)
        incumbent = agent.actions(release.incumbent.number)
        evaluate_truly_into(judge.v_true, np.zeros((0, 0)), judge, incumbent, 0, scratch)
        first_deviation_into(columns, k, incumbent, playing, steps, False)
        columns.length[k], columns.baseline_value[k] = steps, mean_at_start(judge, judge.v_true)
        judge_played_into(columns, judge, k, incumbent, playing, steps)
        keep_steps_into(record.steps, k, playing, steps)

    world_seed = seed_for(seed, "world")
    for episode in rollout(env, agent, episodes=episodes, seed=world_seed, before_finish=judge_episode):
        columns.returns[episode.number] = scaled_return(episode, mdp)
        yield episode.number + 1
    span = mdp.scale.span
    return CanaryLog(policy=policy, probability=probability, loss=loss * span, changes=agent.changes)
