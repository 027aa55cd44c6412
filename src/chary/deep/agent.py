"""The step API of the deep learner: the environment is outside, and each step is one compiled call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents.protocol import EpisodeId, Transition, check_episode_id
from chary.deep.acting import Draws
from chary.deep.acting import Transition as Step
from chary.deep.calls import Seen, compiled_calls, shared
from chary.deep.learner import State
from chary.deep.options import DeepOptions
from chary.deep.saving import arrays_of, tree_like
from chary.deep.shielding import chain_counts, rule_on_arrays
from chary.errors import (
    CharyError,
    InvalidAction,
    InvalidData,
    InvalidSetting,
    OutOfOrder,
    Unwritable,
    as_float,
    check_integer,
    check_seed,
)
from chary.shield import Decision, Ledger
from chary.storage.files import as_path, write_file
from chary.storage.sealed import pack, unpack

if TYPE_CHECKING:
    import gymnasium

__all__ = ["DeepAgent", "EpisodeSummary"]

Floats = NDArray[np.float32]

KIND = "deep agent"
# What values of other types raise on the way from a file.
MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
# Logged transitions of one compiled call; the last call is filled up with ones that do not count.
CHUNK = 512
# The draws of an episode are one array, addressed by 32 bits.
LARGEST_DRAWS = 2**31 - 1


class EpisodeSummary(NamedTuple):
    """What one episode on a Gymnasium environment came to.

    Args:
        number: Episodes begun before it.
        returns: Discounted sum of rewards.
        rewards: Plain sum of rewards.
        steps: Steps played.
        deficit: What the ledger has booked; 0 for agents without one.
        explored: Steps that the explorer, or chance, chose.
        terminated: Whether it ended in a terminal state.
    """

    number: int
    returns: float
    rewards: float
    steps: int
    deficit: float
    explored: int
    terminated: bool


@dataclass(slots=True)
class _Open:
    """The open episode: where it is, and what was decided there. `seen` is step t - 1 until it is learnt."""

    name: EpisodeId
    observation: Floats
    ledger: Ledger
    draws: Draws
    t: int = 0
    decision: Decision | None = None
    seen: Seen | None = None

    @property
    def terminated(self) -> bool:
        return self.seen is not None and bool(self.seen.step.ended)


@final
class DeepAgent:
    """The deep learner for an environment outside JAX: begin, act, observe, finish; one episode at a time.

    It acts and learns as the compiled loop of `chary.deep.train` does: an update of all networks after every
    step, by networks frozen during an episode. `observe` only keeps the transition; the next `act` learns
    from it and chooses in one compiled call. Where an episode ends before the horizon the compiled loop goes
    on learning until the horizon, and this agent does not. A decision may be asked for twice: the answer is
    the same and nothing more is booked. Every call that raises a CharyError leaves the agent as it was.

    Observations are vectors of numbers and rewards are as they come: nothing is standardised. Networks learn
    well where both are of the order of 1, as those of `chary/HIV-v0` are; for other environments see
    `gymnasium.wrappers.NormalizeObservation` and `NormalizeReward`. Budget, deficit and charges are in the
    units of the rewards given. The promise is uncertified: networks are no bounds.

    Args:
        options: Who plays, and how it learns. `warm_up` is of the compiled loop alone: this agent never plays
            random episodes of its own; `pretraining` follows `warm_start`.
        observation_size: The length of an observation.
        n_actions: The number A of actions.
        horizon: H, after how many steps an episode ends at the latest.
        seed: Where all of the agent's randomness comes from, >= 0.

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

    # Set by `_declare`, which `__init__` and `load` share.
    _open: _Open | None
    _begun: int
    _warmed: bool
    _state: State

    def __init__(
        self, options: DeepOptions, *, observation_size: int, n_actions: int, horizon: int, seed: int = 0
    ) -> None:
        size = check_integer("observation_size", observation_size, minimum=1)
        self._declare(options, (size,), n_actions, horizon, seed)
        with jax.enable_x64(True):
            self._state = self._calls.first(jax.random.key(self.seed))

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
            env: What will be played.
            options: Who plays, and how it learns.
            horizon: H; None takes the time limit that the environment was registered with.
            seed: Where all of the agent's randomness comes from.

        Raises:
            InvalidSetting: if the environment has other spaces, or no horizon is known.
        """
        shape, n_actions = _spaces(env)
        if horizon is None:
            horizon = None if env.spec is None else env.spec.max_episode_steps
            if horizon is None or horizon < 1:
                raise InvalidSetting(
                    "'horizon' must be given for an environment without a time limit, got None. "
                    "Pass horizon=..., the steps after which an episode ends."
                )
        agent = cls(
            options, observation_size=math.prod(shape), n_actions=n_actions, horizon=horizon, seed=seed
        )
        agent._shape = shape
        return agent

    @property
    def episodes_begun(self) -> int:
        """Episodes begun so far."""
        return self._begun

    @property
    def open_episode(self) -> EpisodeId | None:
        """The episode that is open, if any."""
        return None if self._open is None else self._open.name

    @property
    def updates(self) -> int:
        """Updates made; a step that was observed counts with the next call of `act` or `finish`."""
        return int(self._state.updates)

    @property
    def chains(self) -> dict[str, int]:
        """Meta-rollouts started, finished and abandoned, and episodes in which none moved."""
        return chain_counts(self._state.chain)

    @property
    def standing(self) -> str:
        """How sure the promise is: networks are no bounds."""
        return "uncertified"

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return what an open episode has spent.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        kept = self._opened("ledger", episode).ledger
        return Ledger(bool(kept.closed), float(kept.deficit))

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Remember logged episodes, then make `options.pretraining` updates; once, before the first episode.

        The time of a transition is its place in its episode; `state` and `next_state` are observations.

        Raises:
            OutOfOrder: if an episode was begun, or this was called before.
            InvalidData: if a transition is not sound, or an episode goes on after its end; nothing is
                remembered then.
        """
        if self._begun or self._warmed:
            said = f"{self._begun} begun" if self._begun else "a second call"
            raise OutOfOrder(
                f"'warm_start' must be called once and before the first episode, got {said}. "
                "Pass all logged episodes at once."
            )
        steps, times = self._logged(episodes)
        if not steps:
            return
        with jax.enable_x64(True):
            for start in range(0, len(steps), CHUNK):
                part, at = steps[start : start + CHUNK], times[start : start + CHUNK]
                missing = CHUNK - len(part)
                whole = jax.tree.map(lambda *rows: np.stack(rows), *part, *([part[0]] * missing))
                counts = np.arange(CHUNK) < len(part)
                told = np.array([*at, *([0] * missing)], np.int32)
                self._state = self._calls.remember(self._state, whole, told, counts)
            if self.options.pretraining:
                # The key by which the compiled loop pretrains.
                key = jax.random.split(jax.random.key(self.seed), 3)[2]
                keys = jax.random.split(key, self.options.pretraining)
                self._state = self._calls.pretrain(self._state, keys)
        self._warmed = True

    def begin(self, episode: EpisodeId, observation: ArrayLike) -> None:
        """Open an episode that starts with `observation`.

        Raises:
            OutOfOrder: if an episode is open.
            InvalidData: if `episode` is no name, or `observation` no vector of finite numbers of that length.
        """
        name = check_episode_id(episode)
        if self._open is not None:
            raise OutOfOrder(
                f"'begin' must come when no episode is open, got {episode!r} while {self._open.name!r} is. "
                "Finish or abandon that one first."
            )
        seen = self._observation("observation", observation)
        with jax.enable_x64(True):
            self._state, draws, ledger = self._calls.open(self._state)
        self._open = _Open(name, seen, ledger, draws)
        self._begun += 1

    def act(self, episode: EpisodeId, t: int, observation: ArrayLike) -> Decision:
        """Learn from the step before, and return what to play at step `t`.

        `charge` is what was booked, 0 where nothing was explored; `plan` counts the episodes begun before;
        `chain` is the number of the meta-rollout played, or -1. Agents without a budget book nothing.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `observation` is not the one that the episode is at.
        """
        now = self._opened("act", episode)
        step = check_integer("t", t, minimum=0, error=OutOfOrder)
        over = now.terminated or now.t == self.horizon
        if step != now.t or over:
            expected = "finish, for it is over" if over else f"act with t = {now.t}"
            raise OutOfOrder(f"'t' must be the next step of episode {episode!r}, got {t!r}. Call {expected}.")
        self._check_same("observation", observation, now)
        if now.decision is not None:
            return now.decision
        told = (now.ledger, now.draws, self._rule, now.observation, np.int32(step))
        with jax.enable_x64(True):
            if now.seen is None:
                chain, now.ledger, said = self._calls.choose(self._state, *told)
                self._state = self._state._replace(chain=chain)
            else:
                self._state, now.ledger, said = self._calls.learn_and_choose(self._state, *told, now.seen)
        now.seen = None
        # One transfer from the device for all of it.
        action, explored, charge, deficit, chain = np.asarray(said).tolist()
        now.decision = self._decision(int(action), bool(explored), charge, deficit, int(chain), self._begun)
        return now.decision

    def observe(self, episode: EpisodeId, transition: Transition) -> None:
        """Take in where the action led; `state` and `next_state` of the transition are observations.

        Raises:
            OutOfOrder: if no action is outstanding.
            InvalidAction: if another action was played than the one decided.
            InvalidData: if the transition does not start where the action was decided, or is not made of
                finite numbers.
        """
        now = self._opened("observe", episode)
        if now.decision is None:
            raise OutOfOrder(
                f"'observe' must follow an action, got none outstanding in episode {episode!r}. Call act "
                "first."
            )
        seen = self._checked(transition)
        if int(seen.action) != now.decision.action:
            raise InvalidAction(
                f"'action' must be the one decided, {now.decision.action}, got {seen.action}."
            )
        self._check_same("state", transition.state, now)
        now.seen = Seen(seen, np.bool_(now.decision.explored))
        now.observation, now.decision = np.asarray(seen.reached), None
        now.t += 1

    def finish(self, episode: EpisodeId) -> None:
        """Learn from the last step, and close the episode.

        An episode may end before its horizon without a terminal state, as where a wrapper cuts it off: what
        would have followed is then part of the values, for only the horizon and terminal states are ends to
        them.

        Raises:
            OutOfOrder: if it is not open, or its last action was not observed.
        """
        now = self._opened("finish", episode)
        if now.decision is not None:
            raise OutOfOrder(
                f"'finish' must follow an observation, got one outstanding in episode {episode!r}. Call "
                "observe, or abandon the episode."
            )
        with jax.enable_x64(True):
            if now.seen is None:
                self._state = self._calls.close(self._state)
            else:
                self._state = self._calls.learn_and_close(
                    self._state, now.draws, now.seen, np.int32(now.t - 1)
                )
        self._open = None

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode that will not be heard of again.

        What was observed stays learnt: there is an update at every step, and it is not taken back. An action
        decided and never observed has not happened as far as its chain is concerned: that waits where the
        action was to be taken. Chains end as at any end of an episode, and the budget is not refunded.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._opened("abandon", episode)
        if now.decision is None:
            self.finish(episode)
            return
        with jax.enable_x64(True):
            self._state = self._calls.break_off(self._state, now.observation)
        self._open = None

    def play(
        self, env: gymnasium.Env[Any, Any], *, episodes: int, seed: int | None = None
    ) -> Iterator[EpisodeSummary]:
        """Play and learn on a Gymnasium environment, and yield what each episode came to.

        An episode ends where the environment says so, or after the agent's horizon. One that an error breaks
        off is abandoned.

        Args:
            env: An environment with Box observations and Discrete actions from 0, of the agent's sizes.
            episodes: How many episodes to play, >= 1.
            seed: Given to the first `reset`; None leaves the environment's generator alone.

        Raises:
            InvalidSetting: if the environment has other spaces, or a number is out of range.
            OutOfOrder: if an episode is open.
            InvalidData: from the iterator, if an observation or a reward is not finite.
        """
        shape, n_actions = _spaces(env)
        if (math.prod(shape), n_actions) != (self.observation_size, self.n_actions):
            raise InvalidSetting(
                f"'env' must have {self.observation_size} numbers an observation and {self.n_actions} "
                f"actions, as the agent has, got {math.prod(shape)} and {n_actions}."
            )
        number = check_integer("episodes", episodes, minimum=1)
        first_seed = None if seed is None else check_seed(seed)
        if self._open is not None:
            raise OutOfOrder(
                f"'play' must come when no episode is open, got {self._open.name!r}, which is. "
                "Finish or abandon it first."
            )
        return self._play(env, number, first_seed)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write all of the agent to a file, an open episode included: `load` goes on as this one would.

        The file is sealed safetensors, which other programs can read; what the agent is stands in it as JSON.
        It is written whole or not at all. On the same machine the rest of a run is the same to the bit.

        Args:
            path: Where to.
            overwrite: Whether a file that is there may be replaced.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written.
        """
        target = as_path("path", path)
        if target.exists() and not overwrite:
            raise InvalidSetting(f"'path' must be new, got {target}, which exists. Pass overwrite=True.")
        arrays, about = self._record()
        try:
            write_file(target, pack(KIND, arrays, about, container="safetensors"))
        except (OSError, UnicodeError) as problem:
            raise Unwritable(f"'path' must be writable, got {target}: {problem}.") from problem

    @classmethod
    def load(cls, path: str | Path) -> DeepAgent:
        """Return the agent that was saved; nothing in the file can run code.

        Raises:
            InvalidData: if the file is missing, truncated, changed, of another schema or of another kind.
        """
        source = as_path("path", path)
        try:
            content = source.read_bytes()
        except (OSError, UnicodeError) as problem:
            raise InvalidData(f"'path' must be a file to read, got {source}: {problem}.") from problem
        try:
            about, arrays = unpack(KIND, content)
            agent = cls.__new__(cls)
            agent._restore(arrays, about)
        except CharyError as problem:
            raise InvalidData(f"'path' must hold a deep agent, got {source}: {problem}") from problem
        except MALFORMED as problem:
            raise InvalidData(
                f"'path' must hold a deep agent, got {source}, where {type(problem).__name__} was met: "
                f"{problem}."
            ) from problem
        return agent

    def _declare(
        self, options: object, shape: tuple[int, ...], n_actions: int, horizon: int, seed: int
    ) -> None:
        """Check and take on what the agent is, all but what it has learnt."""
        if not isinstance(options, DeepOptions):
            raise InvalidSetting(f"'options' must be DeepOptions, got {type(options).__name__}.")
        self.options = options
        self.observation_size = math.prod(shape)
        self.n_actions = check_integer("n_actions", n_actions, minimum=1)
        self.horizon = check_integer("horizon", horizon, minimum=1)
        self.seed = check_integer("seed", seed, minimum=0)
        if self.horizon * options.batch > LARGEST_DRAWS:
            raise InvalidSetting(
                f"'horizon' times the batch must be at most {LARGEST_DRAWS}, got {self.horizon} times "
                f"{options.batch}."
            )
        if options.action >= self.n_actions:
            raise InvalidAction(
                f"'action' must lie in 0..{self.n_actions - 1}, got {options.action!r}. "
                "It is what the agent 'constant' plays."
            )
        self._shape = shape
        self._limit = options.budget_rule.limit if options.agent == "chary" else math.inf
        with jax.enable_x64(True):
            self._rule = rule_on_arrays(options.budget_rule)
        self._calls = compiled_calls(shared(options), self.observation_size, self.n_actions, self.horizon)
        self._open = None
        self._begun = 0
        self._warmed = False

    def _decision(
        self, action: int, explored: bool, charge: float, deficit: float, chain: int, begun: int
    ) -> Decision:
        room = math.inf if self._limit == math.inf else max(self._limit - deficit, 0.0)
        return Decision(action, explored, charge, deficit, room, begun - 1, chain)

    def _play(self, env: gymnasium.Env[Any, Any], number: int, seed: int | None) -> Iterator[EpisodeSummary]:
        for first in range(number):
            observation, _ = env.reset(seed=None if first else seed)
            k = self._begun
            self.begin(k, observation)
            try:
                summary = self._played(env, k, observation)
            except BaseException:
                # Whatever broke it off: an agent with an open episode could not begin another.
                self.abandon(k)
                raise
            self.finish(k)
            yield summary

    def _played(self, env: gymnasium.Env[Any, Any], k: int, observation: Any) -> EpisodeSummary:
        so_far = EpisodeSummary(k, 0.0, 0.0, 0, 0.0, 0, False)
        for t in range(self.horizon):
            # Environments may overwrite an array that they have returned.
            here = np.array(observation)
            decision = self.act(k, t, here)
            observation, reward, terminated, truncated, _ = env.step(decision.action)
            step = (here, decision.action, reward, observation, bool(terminated))
            self.observe(k, Transition._make(step))
            so_far = so_far._replace(
                returns=so_far.returns + self.options.discount**t * float(reward),
                rewards=so_far.rewards + float(reward),
                steps=t + 1,
                deficit=decision.deficit,
                explored=so_far.explored + decision.explored,
                terminated=bool(terminated),
            )
            if terminated or truncated:
                break
        return so_far

    def _logged(self, episodes: Iterable[Sequence[Transition]]) -> tuple[list[Step], list[int]]:
        """Return logged transitions, checked, and their times."""
        steps: list[Step] = []
        times: list[int] = []
        try:
            told = [list(episode) for episode in episodes]
        except TypeError as problem:
            raise InvalidData(
                f"'episodes' must be lists of transitions, got {type(episodes).__name__}: {problem}."
            ) from problem
        for k, episode in enumerate(told):
            if len(episode) > self.horizon:
                raise InvalidData(
                    f"logged episode {k} must have at most {self.horizon} steps, got {len(episode)}. "
                    "Declare a longer horizon, or cut it."
                )
            for t, transition in enumerate(episode):
                try:
                    step = self._checked(transition)
                except CharyError as problem:
                    raise InvalidData(f"step {t} of logged episode {k} must be sound: {problem}") from problem
                if step.ended and t + 1 < len(episode):
                    raise InvalidData(
                        f"logged episode {k} must end with its terminal step, got {len(episode) - t - 1} "
                        f"steps after step {t}."
                    )
                steps.append(step)
                times.append(t)
        return steps, times

    def _checked(self, transition: Transition) -> Step:
        """Return a transition as the networks read it."""
        if not isinstance(transition, Transition):
            raise InvalidData(f"'transition' must be a Transition, got {type(transition).__name__}.")
        action = check_integer("action", transition.action, minimum=0, error=InvalidAction)
        if action >= self.n_actions:
            raise InvalidAction(f"'action' must lie in 0..{self.n_actions - 1}, got {action}.")
        observation = self._observation("state", transition.state)
        reached = self._observation("next_state", transition.next_state)
        reward = as_float(transition.reward)
        # The replay keeps float32.
        if not abs(reward) <= float(np.finfo(np.float32).max):
            raise InvalidData(f"'reward' must be a finite number in float32, got {transition.reward!r}.")
        if not isinstance(transition.terminated, (bool, np.bool_)):
            raise InvalidData(f"'terminated' must be True or False, got {transition.terminated!r}.")
        ended = np.bool_(transition.terminated)
        return Step._make((observation, np.int32(action), np.float64(reward), reached, ended))

    def _observation(self, name: str, observation: ArrayLike) -> Floats:
        """Return an observation as a vector of our own, in float32 as the networks read it."""
        try:
            array = np.asarray(observation)
        except (TypeError, ValueError, OverflowError, RuntimeError) as problem:
            raise InvalidData(
                f"{name!r} must be numbers, got {type(observation).__name__}: {problem}."
            ) from problem
        if array.dtype.kind not in "biuf":
            raise InvalidData(f"{name!r} must be numbers, got {type(observation).__name__} of {array.dtype}.")
        if array.shape not in (self._shape, (self.observation_size,)):
            raise InvalidData(
                f"{name!r} must be an observation of shape {self._shape}, got {array.shape}. "
                "All observations of an agent have the same shape."
            )
        with np.errstate(over="ignore"):
            vector: Floats = np.array(array, np.float32).reshape(-1)
        if not np.isfinite(vector).all():
            worst = array.reshape(-1)[~np.isfinite(vector)][0]
            raise InvalidData(f"{name!r} must be finite in float32, got {float(worst)!r}.")
        return vector

    def _check_same(self, name: str, observation: ArrayLike, now: _Open) -> None:
        if not np.array_equal(self._observation(name, observation), now.observation):
            raise InvalidData(
                f"{name!r} must be the observation that episode {now.name!r} is at, got another. Finish the "
                "episode before deciding at the next one's first observation."
            )

    def _opened(self, call: str, episode: EpisodeId) -> _Open:
        now = self._open
        if now is None or check_episode_id(episode) != now.name:
            raise OutOfOrder(f"{call!r} must name an open episode, got {episode!r}. Call begin first.")
        return now

    def _record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all there is to save, as arrays and as plain values."""
        arrays = arrays_of(self._state, "state.")
        now, about_now = self._open, None
        if now is not None:
            arrays |= arrays_of(now.draws, "open.draws.") | arrays_of(now.ledger, "open.ledger.")
            arrays["open.observation"] = now.observation
            if now.seen is not None:
                arrays |= arrays_of(now.seen, "open.seen.")
            made = now.decision
            about_now = {
                "name": now.name,
                "t": now.t,
                "decision": None if made is None else [made.action, made.explored, made.charge, made.chain],
            }
        about = {
            "options": {name: _as_json(value) for name, value in asdict(self.options).items()},
            "shape": list(self._shape),
            "n_actions": self.n_actions,
            "horizon": self.horizon,
            "seed": self.seed,
            "warmed": self._warmed,
            "open": about_now,
        }
        return arrays, about

    def _restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Take on what `_record` returned."""
        options = {name: _from_json(name, value) for name, value in about["options"].items()}
        shape = tuple(check_integer("shape", n, minimum=1, error=InvalidData) for n in about["shape"])
        self._declare(DeepOptions(**options), shape, about["n_actions"], about["horizon"], about["seed"])
        if not isinstance(about["warmed"], bool):
            raise InvalidData(f"'warmed' must be true or false, got {about['warmed']!r}.")
        self._warmed = about["warmed"]
        with jax.enable_x64(True):
            shapes = jax.eval_shape(self._calls.first, jax.random.key(0))
            state = tree_like(shapes, arrays, "state.")
            for name, array in arrays_of(state, "state.").items():
                # Counts: a negative one would point outside the replay.
                if array.dtype.kind == "i" and (array < 0).any():
                    raise InvalidData(f"{name!r} of a saved agent must be >= 0, got {array.min()}.")
            # A copy of its own: calls write into the state they are given.
            self._state = jax.tree.map(jnp.copy, state)
            self._begun = int(state.episodes)
            if about["open"] is not None:
                self._open = self._restored(shapes, arrays, about["open"])
                self._begun += 1

    def _restored(self, shapes: State, arrays: Mapping[str, NDArray[Any]], kept: Mapping[str, Any]) -> _Open:
        """Return the open episode of a file, once it can have come to be."""
        _, draws_like, ledger_like = jax.eval_shape(self._calls.open, shapes)
        draws = tree_like(draws_like, arrays, "open.draws.")
        ledger = tree_like(ledger_like, arrays, "open.ledger.")
        like = {"observation": np.zeros(self.observation_size, np.float32)}
        observation = self._observation("observation", **tree_like(like, arrays, "open."))
        now = _Open(check_episode_id(kept["name"]), observation, ledger, draws)
        now.t = check_integer("t", kept["t"], minimum=0, largest=self.horizon, error=InvalidData)
        if not all(bool(((leaf >= 0) & (leaf < 1)).all()) for leaf in map(np.asarray, draws)):
            raise InvalidData("'open.draws' must lie in [0, 1), got others.")
        deficit = float(ledger.deficit)
        if not 0 <= deficit < math.inf:
            raise InvalidData(f"'open.ledger.deficit' must be finite and >= 0, got {deficit!r}.")
        if kept["decision"] is not None:
            action, explored, charge, chain = kept["decision"]
            sound = 0 <= check_integer("action", action, minimum=0) < self.n_actions
            sound &= isinstance(explored, bool) and 0 <= as_float(charge) < math.inf and now.t < self.horizon
            if not sound:
                raise InvalidData(f"'decision' must be one an agent can make, got {kept['decision']!r}.")
            begun = self._begun + 1
            chain = check_integer("chain", chain, minimum=-1, error=InvalidData)
            now.decision = self._decision(action, explored, float(charge), deficit, chain, begun)
        elif now.t > 0:
            one, flag = np.zeros(self.observation_size, np.float32), np.bool_(False)
            blank = Seen(Step._make((one, np.int32(0), np.float64(0.0), one, flag)), flag)
            seen = tree_like(blank, arrays, "open.seen.")
            now.seen = jax.tree.map(lambda leaf: np.asarray(leaf)[()], seen)
            told = Transition._make(now.seen.step)
            self._checked(told)
            self._check_same("next_state", told.next_state, now)
        return now


def _as_json(value: Any) -> Any:
    """Return an option as JSON has it, which lacks infinity."""
    if value is None or isinstance(value, (bool, str)):
        return value
    number = int(value) if isinstance(value, Integral) else float(value)
    return number if math.isfinite(number) else repr(number)


def _from_json(name: str, value: Any) -> Any:
    """Return the option that `_as_json` wrote."""
    return math.inf if value == "inf" and name in ("eta", "step_bound", "huber") else value


def _spaces(env: gymnasium.Env[Any, Any]) -> tuple[tuple[int, ...], int]:
    """Return the shape of observations and the number of actions, or raise InvalidSetting."""
    import gymnasium
    from gymnasium.spaces import Box, Discrete

    if not isinstance(env, gymnasium.Env):
        raise InvalidSetting(f"'env' must be a gymnasium.Env, got {type(env).__name__}.")
    seen, played = env.observation_space, env.action_space
    if not isinstance(seen, Box) or math.prod(seen.shape) < 1:
        raise InvalidSetting(
            f"'observation_space' must be a Box with one number at least, got {seen!r}. "
            "Wrap the environment in gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(played, Discrete) or int(played.start) != 0:
        raise InvalidSetting(
            f"'action_space' must be Discrete and start at 0, got {played!r}. "
            "Wrap the environment in gymnasium.wrappers.TransformAction."
        )
    return tuple(int(n) for n in seen.shape), int(played.n)
