"""The step API of the deep learner: the environment is outside, and each step is one compiled call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._episodes import Episodes
from chary.agents._spaces import horizon_of, spaces_of
from chary.agents._step_api import StepAPI
from chary.agents.protocol import EpisodeId, Transition
from chary.deep.calls import Seen, compiled_calls, remember_all, shared
from chary.deep.learners import learner_of
from chary.deep.observations import Floats, Form, as_observed
from chary.deep.options import DeepOptions
from chary.deep.playing import EpisodeSummary, check_sizes, play_on
from chary.deep.shielding import chain_counts, rule_on_arrays
from chary.deep.turns import Open, Pinned, Turns, Unlearnt
from chary.errors import InvalidSetting, OutOfOrder, check_integer, check_seed, check_type
from chary.shield import Decision, Ledger
from chary.standing import Standing
from chary.storage.files import write_new
from chary.storage.sealed import load_sealed, pack
from chary.texts import shown

if TYPE_CHECKING:
    import gymnasium

KIND = "deep agent"
# The draws of an episode are one array, addressed by 32 bits.
LARGEST_DRAWS = 2**31 - 1


@final
class DeepAgent(StepAPI[Floats, Pinned]):
    """The deep learner for environments outside JAX: begin, act, observe, finish, for any number of episodes.

    It acts and learns as the compiled loop of `chary.deep.train` does: an update of all networks for every
    step observed, by networks frozen during an episode. `observe` only keeps the transition; the next call
    learns from it, so that a step is one compiled call. Where an episode ends before the horizon the compiled
    loop goes on learning until the horizon, and this agent does not.

    A decision may be requested twice: the answer is the same and nothing more is booked. Outcomes may come
    late and in any order; each is learnt when it comes. There is one chain for all open episodes: one of them
    plays it, and another may take it up where it waits. An episode may be finished before its horizon without
    a terminal state, as where a wrapper cuts it off: what would have followed is then part of the values, for
    which only the horizon and terminal states are ends. Every call that raises a CharyError leaves the agent
    as it was.

    Observations are vectors of numbers and rewards are as they come: nothing is standardised. Networks learn
    well where both are of the order of 1, as those of `chary/HIV-v0` are; for other environments see
    `gymnasium.wrappers.NormalizeObservation` and `NormalizeReward`. Budget, deficit and charges are in the
    units of the rewards given. The promise is uncertified: networks are not bounds.

    Args:
        options: The agent, and how it learns. `warm_up` is for the compiled loop alone: this agent never
            plays random episodes; `pretraining` follows `warm_start`.
        observation_size: The length of an observation.
        n_actions: The number A of actions.
        horizon: H, the largest number of steps of an episode.
        seed: The seed of all of the agent's randomness, >= 0.

    Raises:
        InvalidSetting: if something is of the wrong type or out of range.
        InvalidAction: if there is no action `options.action`.

    Example:
        >>> small = DeepOptions(eta=1.0, width=4, features=4, batch=4, replay=100)
        >>> agent = DeepAgent(small, observation_size=2, n_actions=3, horizon=5)
        >>> agent.begin(0, [0.0, 1.0])
        >>> decision = agent.act(0, 0, [0.0, 1.0])
        >>> agent.observe(0, Transition([0.0, 1.0], decision.action, 0.5, [0.1, 0.9], terminated=False))
        >>> agent.finish(0)
        >>> decision.deficit <= 1.0, agent.updates
        (True, 1)
    """

    # Set by `_declare`, which `__init__` and `load` share, and the last by its callers.
    episodes_begun: int
    _warmed: bool
    _turns: Turns

    def __init__(
        self, options: DeepOptions, *, observation_size: int, n_actions: int, horizon: int, seed: int = 0
    ) -> None:
        size = check_integer("observation_size", observation_size, minimum=1)
        self._declare(options, (size,), n_actions, horizon, seed)
        with jax.enable_x64(True):
            self._take_on(self._calls.first(jax.random.key(self.seed)))

    @classmethod
    def for_env(
        cls,
        env: gymnasium.Env[Any, Any],
        options: DeepOptions,
        *,
        horizon: int | None = None,
        seed: int = 0,
    ) -> DeepAgent:
        """Return an agent for a Gymnasium environment with Box observations and Discrete actions from 0.

        Observations of several dimensions are flattened to a vector, and not standardised.

        Args:
            env: The environment to be played.
            options: The agent, and how it learns.
            horizon: H; None takes the time limit that the environment was registered with.
            seed: The seed of all of the agent's randomness.

        Raises:
            InvalidSetting: if the environment has other spaces, or no horizon is known.
        """
        shape, n_actions = spaces_of(env)
        steps = horizon_of(env) if horizon is None else horizon
        agent = cls(options, observation_size=math.prod(shape), n_actions=n_actions, horizon=steps, seed=seed)
        agent._form = agent._form._replace(shape=shape)
        return agent

    @property
    def open_episode(self) -> EpisodeId | None:
        """The episode that is open, where just one is."""
        return self._episodes.names[0] if len(self._episodes) == 1 else None

    @property
    def updates(self) -> int:
        """Updates made; the step observed last counts with the next call."""
        return int(self._turns.state.updates)

    @property
    def chains(self) -> dict[str, int]:
        """Meta-rollouts started, finished and abandoned, and episodes in which none moved."""
        return chain_counts(self._turns.state.chain)

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise: networks are not bounds."""
        grounds = learner_of(self.options).grounds(self.options, self._turns.state)
        return replace(grounds, logs=self._warmed).standing

    def _of_shield(self) -> dict[str, Any]:
        is_open = int(self._turns.state.chain.open)
        chains = {f"chains_{name}": count for name, count in self.chains.items()}
        counts = learner_of(self.options).counts(self.options, self._turns.state)
        return {
            **chains,
            **counts,
            "chains_open": is_open,
            "free_places": int(self.options.chained) - is_open,
        }

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return the ledger of an open episode.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        kept = self._episodes.named("ledger", episode).pinned.ledger
        return Ledger(bool(kept.closed), float(kept.deficit))

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Remember logged episodes, then make `options.pretraining` updates; once, before the first episode.

        The time of a transition is its place in its episode; `state` and `next_state` are observations.

        Raises:
            OutOfOrder: if an episode was begun, or this was called before.
            InvalidData: if a transition is not sound, or an episode goes on after its end; nothing is
                remembered then.
        """
        if self.episodes_begun or self._warmed:
            said = f"{self.episodes_begun} begun" if self.episodes_begun else "a second call"
            raise OutOfOrder(
                f"'warm_start' must be called once and before the first episode, got {said}. "
                "Pass all logged episodes at once."
            )
        steps, times = self._form.logged(episodes)
        if not steps:
            return
        # The calls below take the memory of the state that they are given.
        self._changing = True
        with jax.enable_x64(True):
            state = remember_all(self._calls, self._turns.state, steps, times)
            if self.options.pretraining:
                # The key with which the compiled loop pretrains.
                key = jax.random.split(jax.random.key(self.seed), 3)[2]
                keys = jax.random.split(key, self.options.pretraining)
                state = self._calls.pretrain(state, keys)
        self._turns.state = state
        self._warmed = True

    def begin(self, episode: EpisodeId, observation: ArrayLike) -> None:
        """Open an episode that starts with `observation`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` is not a name, or `observation` not a vector of finite numbers of that
                length.
        """
        name = self._episodes.unused(episode)
        seen = self._form.observation("observation", observation)
        self._changing = True
        with jax.enable_x64(True):
            self._episodes.open(name, seen, self._turns.begin(self.episodes_begun))
        self._turns.served = self._episodes.named("begin", name)
        self.episodes_begun += 1

    def act(self, episode: EpisodeId, t: int, observation: ArrayLike) -> Decision:
        """Learn from the step observed last, and return what to play at step `t`.

        `charge` is the charge booked, 0 where nothing was explored; `plan` counts the episodes begun before;
        `chain` is the number of the meta-rollout played, or -1. Agents without a budget book nothing.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the answer is the same.
            observation: The observation it is at. Where the outcome of the last step is not known yet, this
                is where that step led.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `observation` is not the one that the episode is at.
        """
        now = self._episodes.named("act", episode)
        seen = self._form.observation("observation", observation)
        decided = self._episodes.ask(now, t, seen)
        if decided is not None:
            return decided
        pinned = now.pinned
        self._changing = True
        with jax.enable_x64(True):
            action, explored, charge, deficit, number = self._turns.choose(now, seen, self._rule)
        if explored and number >= 0:
            pinned.chain = int(number)
        left, chain = self._room(deficit), pinned.chain if explored else -1
        decision = Decision(int(action), bool(explored), charge, deficit, left, pinned.number, chain)
        return self._episodes.decide(now, seen, decision)

    def observe(
        self, episode: EpisodeId, transition: Transition, *, t: int | None = None, taken: int | None = None
    ) -> None:
        """Take in where a decided action led; an outcome observed twice counts once.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: The step in the environment; `state` and `next_state` are observations.
            t: At which step; may be left out where only one outcome is outstanding.
            taken: The action of the transition, where it is not the one decided. The charge of the decision
                stays booked, the chain waits where it was, and the transition is learnt from.

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant, or `taken` comes
                too late for a chain.
            InvalidAction: if another action was played than the one decided and `taken` does not name it.
            InvalidData: if the transition does not start where the action was decided, or is not made of
                finite numbers.
        """
        now = self._episodes.named("observe", episode)
        t = self._episodes.step_of(now, t)
        step = self._form.transition(transition)
        if not self._episodes.is_news(now, t, step, taken):
            return
        decision = now.steps[t].decision
        overruled = step.action != decision.action
        self._changing = True
        with jax.enable_x64(True):
            self._turns.learn()
            if overruled and decision.chain >= 0:
                self._turns.part(now, step.state)
        # Where a later step was decided, the chain has moved on already.
        moves = decision.explored and not overruled and now.is_last(t)
        self._turns.unlearnt = Unlearnt(now, t, Seen(as_observed(step), np.bool_(moves)))
        self._episodes.note(now, t, step)
        self._settle(now)

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode whose outstanding outcomes will never be known.

        What was observed stays learnt: there is an update for every step, and it is not taken back. An action
        decided last and never observed has not happened as far as its chain is concerned: the chain waits
        where the action was to be played. The budget is not refunded.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._episodes.named("abandon", episode)
        self._changing = True
        if now.released:
            self._learn()
        else:
            self._close(now)
        self._episodes.drop(now)

    def play(
        self, env: gymnasium.Env[Any, Any], *, episodes: int, seed: int | None = None
    ) -> Iterator[EpisodeSummary]:
        """Play and learn on a Gymnasium environment, and yield a summary per episode.

        An episode ends where the environment ends it, or after the agent's horizon. One that an error breaks
        off is abandoned.

        Args:
            env: An environment with Box observations and Discrete actions from 0, of the agent's sizes.
            episodes: The number of episodes to play, >= 1.
            seed: Passed to the first `reset`; None leaves the environment's generator alone.

        Raises:
            InvalidSetting: if the environment has other spaces, or a number is out of range.
            OutOfOrder: if an episode is open.
            InvalidData: from the iterator, if an observation or a reward is not finite.
        """
        check_sizes(self, env)
        number = check_integer("episodes", episodes, minimum=1)
        first_seed = None if seed is None else check_seed(seed)
        if len(self._episodes):
            raise OutOfOrder(
                f"'play' must come when no episode is open, got {shown(self._episodes.names[0])}, which is. "
                "Finish or abandon it first."
            )
        return play_on(self, env, number, first_seed)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write all of the agent to a file, open episodes included: `load` continues as this one would.

        The file is sealed safetensors, which other programs can read, with a description in JSON. It is
        written whole or not at all. On the same machine the rest of a run is the same to the bit.

        Args:
            path: The file to write.
            overwrite: Whether an existing file may be replaced.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written.
        """
        write_new(path, lambda: pack(KIND, *self._record(), container="safetensors"), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> DeepAgent:
        """Return the agent that was saved; nothing in the file can run code.

        Raises:
            InvalidData: if the file is missing, truncated, changed, of another schema or of another kind.
        """
        from chary.deep.saving import restored

        return load_sealed(path, KIND, "a deep agent", restored)[0]

    def _record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        from chary.deep.saving import record

        return record(self)

    def _declare(
        self, options: DeepOptions, shape: tuple[int, ...], n_actions: int, horizon: int, seed: int
    ) -> None:
        """Check and set what the agent is, all but what it has learnt."""
        check_type("options", options, DeepOptions, "DeepOptions")
        self.options = options
        self.n_actions = check_integer("n_actions", n_actions, minimum=1)
        self.horizon = check_integer("horizon", horizon, minimum=1)
        self._form = Form(shape, self.n_actions, self.horizon)
        self.observation_size = self._form.size
        self.seed = check_integer("seed", seed, minimum=0)
        if self.horizon * options.batch > LARGEST_DRAWS:
            raise InvalidSetting(
                f"'horizon' times the batch must be at most {LARGEST_DRAWS}, got {self.horizon} times "
                f"{options.batch}."
            )
        options.check_action(self.n_actions)
        self._limit = options.budget_rule.limit if options.shielded else math.inf
        with jax.enable_x64(True):
            self._rule = rule_on_arrays(options.budget_rule)
        self._calls = compiled_calls(shared(options), self.observation_size, self.n_actions, self.horizon)
        self._episodes = Episodes.of_arrays(self.horizon)
        self.episodes_begun = 0
        self._warmed = False

    def _take_on(self, state: Any) -> None:
        self._turns = Turns(self.options, self._calls, state, self._episodes)

    def _room(self, deficit: float) -> float:
        return math.inf if self._limit == math.inf else max(self._limit - deficit, 0.0)

    def _settle(self, now: Open) -> None:
        if self._episodes.settle(now, self._close):
            self._learn()

    def _close(self, now: Open) -> None:
        with jax.enable_x64(True):
            self._turns.close(now)

    def _learn(self) -> None:
        with jax.enable_x64(True):
            self._turns.learn()
