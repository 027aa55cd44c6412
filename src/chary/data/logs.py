"""Logged decisions as a value: transitions by episode and step, checked once, read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents.protocol import Transition
from chary.arrays import Bools, Floats, Ints, frozen
from chary.data._agreement import check_known, check_shape
from chary.data._columns import (
    COLUMNS,
    KINDS,
    Fault,
    Places,
    as_column,
    as_ids,
    as_kind,
    check_steps,
    shown,
    sorted_order,
)
from chary.errors import InvalidData, check_integer, check_type
from chary.mdp.setting import Setting, check_setting
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge


class LogColumns(TypedDict):
    """The seven columns of a log, each one value per transition."""

    episode: ArrayLike
    t: ArrayLike
    state: ArrayLike
    action: ArrayLike
    reward: ArrayLike
    next_state: ArrayLike
    terminated: ArrayLike


class Dropped(NamedTuple):
    """What was left out of a log: whole episodes with faulty rows, and their faults."""

    episodes: int
    transitions: int
    faults: tuple[Fault, ...]

    def describe(self) -> str:
        """Return a sentence on what was left out, why, and what that assumes."""
        reasons = " ".join(fault.describe() for fault in self.faults)
        return (
            f"Left out: {self.episodes} episode{'s' * (self.episodes != 1)} with {self.transitions} "
            f"transition{'s' * (self.transitions != 1)}. {reasons} Nothing is lost by that only if these "
            "episodes went like the others."
        )


class Known(TypedDict, total=False):
    """Declared facts about the problem of a log, see `Log.checked`."""

    setting: Setting | None
    reward_range: tuple[float, float] | None
    n_states: int | None
    n_actions: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, init=False, repr=False)
class Log:
    """Logged transitions, sorted by episode and step, each array of shape (N,) and read-only.

    Transitions may be given in any order. A log contains every step of an episode from t = 0 on, once, each
    leading to the state in which the next one starts, and none after one that terminated. `row` is the place
    each came from, for later errors; `unit` is what `row` counts (`row` for files, `entry` for arrays).

    The columns are:

    - `episode`: the id of the episode: whole numbers >= 0 in any order and with any gaps, or texts, which are
      numbered in the order of the source and kept in `names`;
    - `t`: the step within the episode, from 0 without gaps;
    - `state`: the state acted in, a whole number >= 0;
    - `action`: the action played, a whole number >= 0;
    - `reward`: the reward, in the user's units, finite;
    - `next_state`: the state it led to;
    - `terminated`: whether the process ended there; false if the episode was cut off.

    Args:
        row: The place each transition came from; 0, 1, 2, ... by default.
        unit: The unit that `row` counts.
        discretised: Whether the states are cells of observations, made by a discretiser.
        names: The names of episodes by number, where they have any.
        dropped: What was left out of the source.
        **columns: All of the columns above, each of length N.

    Raises:
        InvalidData: naming the first invalid row and the number of others.

    Example:
        >>> log = Log(episode=[0, 0], t=[1, 0], state=[4, 2], action=[0, 1], reward=[1, 0.5],
        ...           next_state=[2, 4], terminated=[False, False])
        >>> log
        Log(1 episode, 2 transitions, 5 states, 2 actions)
        >>> next(log.episodes())[0]
        Transition(state=2, action=1, reward=0.5, next_state=4, terminated=False)
    """

    episode: Ints
    t: Ints
    state: Ints
    action: Ints
    reward: Floats
    next_state: Ints
    terminated: Bools
    row: Ints
    unit: str
    discretised: bool
    names: tuple[str, ...]
    dropped: Dropped | None

    def __init__(
        self,
        *,
        row: ArrayLike | None = None,
        unit: str = "entry",
        discretised: bool = False,
        names: Sequence[str] = (),
        dropped: Dropped | None = None,
        **columns: Unpack[LogColumns],
    ) -> None:
        given: dict[str, Any] = dict(columns)
        if given.keys() != set(COLUMNS):
            odd = sorted(given.keys() ^ set(COLUMNS))[0]
            raise TypeError(f"Log() takes the columns {', '.join(COLUMNS)}; {odd!r} is missing or unknown")
        raw = {name: as_column(name, given[name]) for name in COLUMNS}
        size = len(raw["episode"])
        for name, column in raw.items():
            if len(column) != size:
                raise InvalidData(f"{name!r} must be as long as 'episode', {size}, got {len(column)}.")
        if size == 0:
            raise InvalidData("'episode' must contain at least one transition, got 0.")
        counting = Places(np.arange(size), "entry")
        given_rows = counting.number if row is None else as_column("row", row)
        if len(given_rows) != size:
            raise InvalidData(f"'row' must be as long as 'episode', {size}, got {len(given_rows)}.")
        places = Places(as_kind("whole", "row", given_rows, counting), str(unit))
        episode, texts = as_ids("episode", raw.pop("episode"), places)
        kept = {"episode": episode} | {
            name: as_kind(KINDS[name], name, raw[name], places) for name in COLUMNS if name != "episode"
        }
        order = sorted_order(kept["episode"], kept["t"])
        if order is not None:
            kept = {name: column[order] for name, column in kept.items()}
            places = places.among(order)
        check_steps(kept, places)
        for name, column in [*kept.items(), ("row", places.number)]:
            object.__setattr__(self, name, frozen(column))
        object.__setattr__(self, "unit", places.unit)
        object.__setattr__(self, "discretised", bool(discretised))
        object.__setattr__(self, "names", texts or tuple(names))
        object.__setattr__(self, "dropped", dropped)

    @classmethod
    def from_arrays(
        cls,
        *,
        setting: Setting | None = None,
        reward_range: tuple[float, float] | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
        **columns: Unpack[LogColumns],
    ) -> Log:
        """Return the log of seven columns, compared with what is known about the problem; see `checked`.

        Raises:
            InvalidData: naming the first invalid entry and the number of others.
        """
        log = cls(**columns)
        return log.checked(setting=setting, reward_range=reward_range, n_states=n_states, n_actions=n_actions)

    @classmethod
    def from_dataframe(
        cls,
        frame: object,
        *,
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
        discretiser: Any = None,
        first_step: int = 0,
        ignore_extra: bool = False,
        drop_bad_episodes: bool = False,
        **known: Unpack[Known],
    ) -> Log:
        """Return the log in a data frame of Polars, pandas or another library, or in a dictionary of columns.

        The options are those of `read_log`. Rows are numbered from 1.

        Raises:
            InvalidLog: naming the first invalid row and where the others are.
            InvalidSetting: if it is not a data frame, or the options do not fit it.

        Example:
            >>> frame = {"patient": ["b", "a"], "t": [0, 0], "state": [0, 1], "action": ["wait", "treat"],
            ...          "reward": [0.5, 1], "next_state": [1, 1], "terminated": [True, True]}
            >>> log = Log.from_dataframe(
            ...     frame, columns={"episode": "patient"}, labels={"action": ["wait", "treat"]}
            ... )
            >>> log.names, log.action.tolist()
            (('b', 'a'), [0, 1])
        """
        # Imported here: reading builds logs.
        from chary.data._tables import FrameTable
        from chary.data.files import log_of_table

        return log_of_table(
            FrameTable(frame, columns, labels),
            discretiser=discretiser,
            first_step=first_step,
            ignore_extra=ignore_extra,
            drop_bad_episodes=drop_bad_episodes,
            known=known,
        )

    @classmethod
    def from_transitions(cls, episodes: Iterable[Iterable[Transition]]) -> Log:
        """Return the log of episodes given as lists of transitions, numbered in their order.

        Raises:
            InvalidData: if one is not a Transition, or they do not form episodes.

        Example:
            >>> Log.from_transitions([[Transition(0, 1, 0.5, 2, True)]]).n_episodes
            1
        """
        steps: list[tuple[int, int, Transition]] = []
        try:
            for k, episode in enumerate(episodes):
                steps += [(k, t, step) for t, step in enumerate(episode)]
        except TypeError as problem:
            raise InvalidData(
                f"'episodes' must be lists of transitions, one list per episode, got {shown(episodes)}."
            ) from problem
        for k, t, step in steps:
            if not isinstance(step, Transition):
                raise InvalidData(
                    f"'episodes' must be lists of transitions, got {shown(step)} in episode {k}, t {t}."
                )
        if not steps:
            raise InvalidData("'episodes' must contain at least one transition, got 0.")
        objects: dict[str, Any] = {
            name: np.fromiter((getattr(step, name) for _, _, step in steps), dtype=object, count=len(steps))
            for name in Transition._fields
        }
        numbers, times, _ = zip(*steps, strict=True)
        return cls(episode=numbers, t=times, **objects, unit="transition", discretised=False)

    def __repr__(self) -> str:
        counted = {word: getattr(self, f"n_{word}s") for word in ("episode", "transition", "state", "action")}
        return f"Log({', '.join(f'{n} {word}' + 's' * (n != 1) for word, n in counted.items())})"

    def __len__(self) -> int:
        return len(self.t)

    @property
    def places(self) -> Places:
        """The place that each transition came from, for messages."""
        return Places(self.row, self.unit)

    @property
    def n_transitions(self) -> int:
        """The number N of logged steps."""
        return len(self.t)

    @property
    def n_episodes(self) -> int:
        """The number of episodes."""
        return int((self.t == 0).sum())

    @property
    def n_states(self) -> int:
        """The smallest number S of states that covers every one seen, numbered from 0."""
        return int(max(self.state.max(), self.next_state.max())) + 1

    @property
    def n_actions(self) -> int:
        """The smallest number A of actions that covers every one seen, numbered from 0."""
        return int(self.action.max()) + 1

    @property
    def lengths(self) -> Ints:
        """The number of steps of each episode, (episodes,)."""
        starts = np.flatnonzero(self.t == 0)
        return np.diff(starts, append=len(self.t)).astype(np.int64)

    @property
    def horizon(self) -> int:
        """The length of the longest episode: the smallest horizon that a setting can declare."""
        return int(self.t.max()) + 1

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the seven columns by name, in the order files have them."""
        return {name: getattr(self, name) for name in COLUMNS}

    def episodes(self) -> Iterator[list[Transition]]:
        """Yield the transitions episode by episode, as `TabularAgent.warm_start` takes them."""
        begin = 0
        for length in self.lengths.tolist():
            span = slice(begin, begin + length)
            cells = (getattr(self, name)[span].tolist() for name in Transition._fields)
            yield [Transition(*step) for step in zip(*cells, strict=True)]
            begin += length

    def checked(
        self,
        *,
        setting: Setting | None = None,
        reward_range: tuple[float, float] | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
    ) -> Log:
        """Return this log, once it agrees with what is known about the problem.

        A setting describes states, actions, which are allowed where, the horizon, the reward scale and
        declared rewards; with one, a state must end either every episode that reaches it or none. A log that
        passes is accepted by `warm_start` of an agent with the same setting.

        Args:
            setting: The setting of the agent; nothing else can be given with it.
            reward_range: The lowest and the highest possible reward.
            n_states: The number S of states.
            n_actions: The number A of actions.

        Raises:
            InvalidData: naming the first invalid row and the number of others.
            InvalidSetting: if the description of the problem is invalid.
        """
        check_known(
            self,
            self.places,
            setting=setting,
            reward_range=reward_range,
            n_states=n_states,
            n_actions=n_actions,
        )
        return self

    def to_counts(self, setting: Setting) -> Knowledge:
        """Return how often each transition was seen, with scaled rewards; the bounds are of no use.

        Raises:
            InvalidData: if the log does not agree with the setting, see `checked`.
        """
        check_setting(setting)
        self = self.checked(setting=setting).with_endings_of(setting)
        # Only the rows are needed; these bounds are the cheapest to update with them.
        knowledge = Knowledge.empty(setting, Bounds(family="hoeffding"), episodes=1, total_episodes=1)
        pairs = setting.pair_index[self.state, self.action]
        # Copies, which can be written to: for others the kernel would be compiled again.
        states, nexts = np.array(self.state), np.array(self.next_state)
        knowledge.learn(states, pairs, nexts, self.scaled_rewards(setting))
        return knowledge

    def scaled_rewards(self, setting: Setting) -> Floats:
        """Return the rewards in the scaled units of a setting, (N,), clipped to [0, 1]."""
        return np.clip((self.reward - setting.scale.low) / setting.scale.span, 0.0, 1.0)

    def with_own_ending(self, state: int | None = None) -> Log:
        """Return the log with a separate state for endings: every terminated step leads to it.

        Agents need one where the same state ends some episodes and not others, as cells of continuous
        observations do.

        Args:
            state: Its number; by default `n_states`, the first unused one.

        Raises:
            InvalidData: if a step of the log starts in that state, or leads to it without terminating.
        """
        ending = self.n_states if state is None else check_integer("state", state, minimum=0)
        taken = (self.state == ending) | ((self.next_state == ending) & ~self.terminated)
        way_out = f"Use state {self.n_states}, the first unused one."
        self.places.refuse("state", "not be used by other steps", taken, lambda i: f"{ending}, used", way_out)
        moved = {**self.columns(), "next_state": np.where(self.terminated, ending, self.next_state)}
        return self._with(moved, self.row)

    def padded(self, horizon: int, state: int | None = None) -> Log:
        """Return the log with steps of reward 0 after every ending, up to `horizon`, and no ending before.

        Agents need it where rewards can be negative, because ending early would be rewarded. The added steps
        lead from a separate state to itself with action 0; allow no other action there. Their row is that of
        the ending.

        Args:
            horizon: The number of steps that every episode has then.
            state: The separate state; by default `n_states`, the first unused one.

        Raises:
            InvalidSetting: if an episode is longer.
            InvalidData: if the log uses that state.

        Example:
            >>> log = Log.from_transitions([[Transition(0, 1, -0.5, 2, True)]]).padded(3)
            >>> log.state.tolist(), log.reward.tolist(), log.terminated.any().item()
            ([0, 3, 3], [-0.5, 0.0, 0.0], False)
        """
        H = check_integer(
            "horizon", horizon, minimum=self.horizon, way_out=f"The longest episode has {self.horizon} steps."
        )
        ended = np.flatnonzero(self.terminated)
        missing = H - 1 - self.t[ended]
        after = np.repeat(ended, missing)
        steps = np.arange(len(after)) - np.repeat(np.cumsum(missing) - missing, missing)
        own = self.with_own_ending(state)
        last = self.n_states if state is None else state
        added = {
            "episode": self.episode[after],
            "t": self.t[after] + 1 + steps,
            "state": np.full(len(after), last),
            "action": np.zeros(len(after), dtype=np.int64),
            "reward": np.zeros(len(after)),
            "next_state": np.full(len(after), last),
        }
        columns = {name: np.concatenate([own.columns()[name], column]) for name, column in added.items()}
        row = np.concatenate([self.row, self.row[after]])
        ended = np.zeros(len(row), dtype=bool)
        return self._with({**columns, "terminated": ended}, row)

    def with_endings_of(self, setting: Setting) -> Log:
        """Return the log with early endings as a setting with `early_endings=True` has them.

        Another setting changes nothing. Agents do the same by themselves, with what `warm_start` and
        `observe` receive.

        Example:
            >>> clinic = Setting.declare(
            ...     n_states=3, n_actions=2, horizon=3, reward_range=(-1, 0), early_endings=True
            ... )
            >>> log = Log.from_transitions([[Transition(0, 1, -0.5, 2, True)]])
            >>> log.with_endings_of(clinic).state.tolist()
            [0, 3, 3]
        """
        check_setting(setting)
        early = self.terminated & ~setting.terminal[np.minimum(self.next_state, setting.n_states - 1)]
        if setting.ending is None or not early.any():
            return self
        if setting.terminal[setting.ending]:
            led = {**self.columns(), "next_state": np.where(early, setting.ending, self.next_state)}
            return self._with(led, self.row)
        return self.padded(setting.horizon, setting.ending)

    def cut_at(self, horizon: int | None = None) -> Log:
        """Return the log with episodes of full length cut off instead of terminated.

        Some systems mark the last step of every episode. Where only the clock ended it, the process did not,
        and the state reached is not a terminal one.

        Args:
            horizon: The full length, by default that of the longest episode.

        Example:
            >>> Log.from_transitions([[Transition(0, 1, 0.5, 0, True)]]).cut_at().terminated.tolist()
            [False]
        """
        H = self.horizon if horizon is None else check_integer("horizon", horizon, minimum=1)
        return self._with({**self.columns(), "terminated": self.terminated & (self.t != H - 1)}, self.row)

    def _with(self, columns: dict[str, Any], row: Ints) -> Log:
        """Return a log with other columns from the same source."""
        source = {name: getattr(self, name) for name in ("unit", "discretised", "names", "dropped")}
        return Log(**columns, row=row, **source)

    def check_shape(self, setting: Setting) -> None:
        """Raise InvalidData at a state, an action or a step that the setting does not have."""
        check_shape(self, setting, self.places)

    def past_endings(self, terminal: ArrayLike = ()) -> tuple[Bools, Bools]:
        """Return the steps from and to a state that is terminal or ends another episode, (N,) each."""
        ends = np.union1d(self.next_state[self.terminated], np.array(terminal, dtype=np.int64))
        return np.isin(self.state, ends), np.isin(self.next_state, ends) & ~self.terminated


def check_log(log: object) -> None:
    """Raise InvalidSetting unless `log` is a Log."""
    check_type("log", log, Log, "a Log", way_out="Use read_log or Log.from_arrays.")
