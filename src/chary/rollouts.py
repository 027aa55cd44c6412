"""Step-by-step drivers: an agent on Gymnasium environments with discrete spaces, one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from chary.agents.own import as_decision
from chary.agents.protocol import Agent, Transition
from chary.errors import InvalidSetting, check_integer, check_type
from chary.shield import Decision
from chary.texts import shown

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

    from chary.wrappers import Guard


class Episode(NamedTuple):
    """One played episode: transitions and their decisions, in order."""

    number: int
    transitions: tuple[Transition, ...]
    decisions: tuple[Decision, ...]


def rollout(
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    *,
    episodes: int,
    first: int = 0,
    seed: int | None = None,
    horizon: int | None = None,
    before_finish: Callable[[Episode], None] | None = None,
) -> Iterator[Episode]:
    """Play `episodes` episodes and yield each once it is finished.

    If the environment's `info` contains an `action_mask`, the agent's actions are checked against it.

    Args:
        env: An environment with Discrete observations and actions that start at 0.
        agent: Any agent with the step API; `act` returns a Decision, or an action alone.
        episodes: The number of episodes to play.
        first: The number of the first one.
        seed: Passed to the first `reset`; None keeps the environment's generator.
        horizon: Steps after which an episode is cut off; None leaves this to the environment.
        before_finish: Called with each episode while it is still open.

    Raises:
        InvalidSetting: if a space is not Discrete from 0, or a number is out of range.
        InvalidAction: from the iterator, if the agent plays an action outside the mask.
    """
    import gymnasium

    from chary.wrappers.spaces import action_mask, as_seed, check_in_mask, discrete_size

    seed = as_seed(seed)
    _check_counts(episodes, first)
    check_type("env", env, gymnasium.Env, "a gymnasium.Env", way_out="Use rollout_many for a vector.")
    if not isinstance(agent, Agent):
        raise InvalidSetting(
            f"'agent' must have the methods begin, act, observe and finish, got {type(agent).__name__}."
        )
    if before_finish is not None and not callable(before_finish):
        raise InvalidSetting(f"'before_finish' must be a function of an episode, got {shown(before_finish)}.")
    if horizon is not None:
        check_integer("horizon", horizon, minimum=1, way_out="Use None to leave it to the environment.")
    discrete_size("observation_space", env.observation_space)
    n_actions = discrete_size("action_space", env.action_space)

    def play() -> Iterator[Episode]:
        for k in range(first, first + episodes):
            observation, info = env.reset(seed=seed if k == first else None)
            state = int(observation)
            agent.begin(k, state)
            transitions: list[Transition] = []
            decisions: list[Decision] = []
            done = False
            while not done:
                t = len(transitions)
                decision = as_decision(agent.act(k, t, state), state=state)
                if "action_mask" in info:
                    check_in_mask(env, decision.action, action_mask(info["action_mask"], n_actions))
                observation, reward, terminated, truncated, info = env.step(decision.action)
                step = Transition(state, decision.action, float(reward), int(observation), bool(terminated))
                agent.observe(k, step)
                transitions.append(step)
                decisions.append(decision)
                state = step.next_state
                done = bool(terminated or truncated) or t + 1 == horizon
            episode = Episode(k, tuple(transitions), tuple(decisions))
            if before_finish is not None:
                before_finish(episode)
            agent.finish(k)
            yield episode

    return play()


class _Lane(NamedTuple):
    """An episode under way in a lane."""

    number: int
    transitions: list[Transition]
    decisions: list[Decision]


def rollout_many(
    envs: VectorEnv[Any, Any, Any],
    agent: Guard[int],
    *,
    episodes: int,
    first: int = 0,
    seed: int | None = None,
) -> Iterator[Episode]:
    """Play `episodes` episodes in a vector environment, as many at once as it has lanes.

    Exactly `episodes` episodes begin, numbered in the order in which they begin, and each is yielded once it
    is finished. Lanes without an episode are still stepped, as a vector environment requires, with the lowest
    allowed action; the agent does not take part in that. Every autoreset mode works. An iterator that is
    closed early abandons the open episodes.

    Args:
        envs: A vector environment with Discrete observations and actions from 0, whose episodes end within
            the agent's horizon.
        agent: A TabularAgent, or another agent with `act_many`.
        episodes: The number of episodes to play.
        first: The number of the first one.
        seed: Passed to the first `reset`; None keeps the environments' generators.

    Raises:
        InvalidSetting: if a space is not Discrete from 0, or a number is out of range; from the iterator, if
            an episode continues beyond the agent's horizon.
        InvalidAction: from the iterator, if the agent plays an action outside a mask.
    """
    from chary.wrappers.guard import Guard, abandon, horizon_of
    from chary.wrappers.lanes import VectorLanes
    from chary.wrappers.spaces import as_seed, check_in_mask, discrete_size

    seed = as_seed(seed)
    _check_counts(episodes, first)
    lanes = VectorLanes(envs)
    if not isinstance(agent, Guard):
        raise InvalidSetting(f"'agent' must have the methods of a Guard, got {type(agent).__name__}.")
    discrete_size("observation_space", envs.single_observation_space)
    horizon, name = horizon_of(agent, None), str(envs)
    left = iter(range(first, first + episodes))
    under_way: dict[int, _Lane] = {}

    def begin(begun: list[int]) -> None:
        # With the lanes first, zip takes no number from `left` for a lane that does not exist.
        for i, number in zip(begun, left, strict=False):
            # Noted first: an interrupt may come just after the agent has opened the episode.
            under_way[i] = _Lane(number, [], [])
            agent.begin(number, lanes.state[i])

    def play() -> Iterator[Episode]:
        try:
            unfinished = episodes
            if unfinished:
                begin(lanes.reset(seed, None)[2])
            while unfinished:
                begin(lanes.reset_ended())
                lanes.check_ready(
                    horizon, [len(under_way[i].decisions) if i in under_way else 0 for i in range(lanes.n)]
                )
                playing = sorted(under_way)
                now = [under_way[i] for i in playing]
                decisions = agent.act_many(
                    [lane.number for lane in now],
                    [len(lane.decisions) for lane in now],
                    [lanes.state[i] for i in playing],
                )
                actions = lanes.any_actions()
                for i, lane, decision in zip(playing, now, decisions, strict=True):
                    check_in_mask(f"lane {i} of {name}", decision.action, lanes.mask[i])
                    lane.decisions.append(decision)
                    actions[i] = decision.action
                answer = lanes.step(actions)
                finished = []
                for move in answer.moves:
                    if move.lane not in under_way:
                        continue
                    lane = under_way[move.lane]
                    agent.observe(lane.number, move.transition)
                    lane.transitions.append(move.transition)
                    if move.ended:
                        agent.finish(lane.number)
                        del under_way[move.lane]
                        finished.append(Episode(lane.number, tuple(lane.transitions), tuple(lane.decisions)))
                begin(answer.begun)
                unfinished -= len(finished)
                yield from finished
        finally:
            for lane in under_way.values():
                abandon(agent, lane.number)

    return play()


def _check_counts(episodes: int, first: int) -> None:
    check_integer("episodes", episodes, minimum=0)
    check_integer("first", first, minimum=0)
