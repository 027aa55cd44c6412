"""Logged decisions as a value: transitions by episode and step, checked once, read-only ever after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents.protocol import Transition
from chary.arrays import Bools, Floats, Ints
from chary.data._columns import (
    COLUMNS,
    WHOLE,
    Places,
    as_column,
    as_reals,
    as_truths,
    as_wholes,
    shown,
    sorted_order,
)
from chary.errors import InvalidData, InvalidSetting, check_integer
from chary.mdp.setting import REWARD_TOLERANCE, RewardScale, Setting
from chary.model.bounds import Bounds
from chary.model.counts import Counts
from chary.model.knowledge import Knowledge

__all__ = ["Log", "check_log"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, init=False, repr=False)
class Log:
    """Logged transitions, sorted by episode and step, each array of shape (N,) and read-only.

    Whatever order they are given in, a log holds every step of an episode from t = 0 on, once, each leading
    to the state the next one starts in, and none after one that terminated. `row` says where each came from,
    so that later errors can say so, too; `unit` is what `row` counts (`row` for files, `entry` for arrays).

    Args:
        episode: Which episode, whole numbers >= 0 in any order and with any gaps.
        t: The step within the episode, from 0 without gaps.
        state: The state acted in, a whole number >= 0.
        action: The action played, a whole number >= 0.
        reward: What it earned, in the user's own units, finite.
        next_state: The state it led to.
        terminated: Whether the episode ended there of itself; one that was cut off ends without.
        row: Where each transition came from; 0, 1, 2, ... by default.
        unit: What `row` counts.

    Raises:
        InvalidData: naming the first row at fault and how many more there are.

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

    def __init__(
        self,
        *,
        episode: ArrayLike,
        t: ArrayLike,
        state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_state: ArrayLike,
        terminated: ArrayLike,
        row: ArrayLike | None = None,
        unit: str = "entry",
    ) -> None:
        given = {"episode": episode, "t": t, "state": state, "action": action, "reward": reward}
        given |= {"next_state": next_state, "terminated": terminated}
        raw = {name: as_column(name, values) for name, values in given.items()}
        size = len(raw["episode"])
        for name, column in raw.items():
            if len(column) != size:
                raise InvalidData(f"{name!r} must be as long as 'episode', {size}, got {len(column)}.")
        if size == 0:
            raise InvalidData("'episode' must hold one transition at least, got none.")
        counting = Places(np.arange(size), "entry")
        given_rows = counting.number if row is None else as_column("row", row)
        if len(given_rows) != size:
            raise InvalidData(f"'row' must be as long as 'episode', {size}, got {len(given_rows)}.")
        places = Places(as_wholes("row", given_rows, counting), str(unit))
        columns: dict[str, NDArray[Any]] = {name: as_wholes(name, raw[name], places) for name in WHOLE}
        columns["reward"] = as_reals("reward", raw["reward"], places)
        columns["terminated"] = as_truths("terminated", raw["terminated"], places)
        order = sorted_order(columns["episode"], columns["t"])
        if order is not None:
            columns = {name: column[order] for name, column in columns.items()}
            places = places._replace(number=places.number[order])
        _check_steps(columns, places)
        for name, column in [*columns.items(), ("row", places.number)]:
            kept = np.array(column, copy=True, order="C")
            kept.setflags(write=False)
            object.__setattr__(self, name, kept)
        object.__setattr__(self, "unit", places.unit)

    @classmethod
    def from_arrays(
        cls,
        *,
        episode: ArrayLike,
        t: ArrayLike,
        state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_state: ArrayLike,
        terminated: ArrayLike,
        setting: Setting | None = None,
        reward_range: tuple[float, float] | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
    ) -> Log:
        """Return the log of seven columns, held against what is known of the problem; see `checked`.

        Raises:
            InvalidData: naming the first entry at fault and how many more there are.
        """
        log = cls(
            episode=episode,
            t=t,
            state=state,
            action=action,
            reward=reward,
            next_state=next_state,
            terminated=terminated,
        )
        return log.checked(setting=setting, reward_range=reward_range, n_states=n_states, n_actions=n_actions)

    @classmethod
    def from_transitions(cls, episodes: Iterable[Iterable[Transition]]) -> Log:
        """Return the log of episodes given as lists of transitions, numbered in their order.

        Raises:
            InvalidData: if something else is among them, or they do not make up episodes.

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
                f"'episodes' must be lists of transitions, one list an episode, got {shown(episodes)}."
            ) from problem
        for k, t, step in steps:
            if not isinstance(step, Transition):
                raise InvalidData(
                    f"'episodes' must be lists of transitions, got {shown(step)} in episode {k}, t {t}."
                )
        if not steps:
            raise InvalidData("'episodes' must hold one transition at least, got none.")
        objects = {
            name: np.fromiter((getattr(step, name) for _, _, step in steps), dtype=object, count=len(steps))
            for name in Transition._fields
        }
        return cls(
            episode=[k for k, _, _ in steps],
            t=[t for _, t, _ in steps],
            **objects,
            unit="transition",
        )

    def __repr__(self) -> str:
        counted = (
            (self.n_episodes, "episode"),
            (self.n_transitions, "transition"),
            (self.n_states, "state"),
            (self.n_actions, "action"),
        )
        return f"Log({', '.join(f'{n} {word}' + 's' * (n != 1) for n, word in counted)})"

    def __len__(self) -> int:
        return len(self.t)

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
        """The least number S of states that holds every one seen, numbered from 0."""
        return int(max(self.state.max(), self.next_state.max())) + 1

    @property
    def n_actions(self) -> int:
        """The least number A of actions that holds every one seen, numbered from 0."""
        return int(self.action.max()) + 1

    @property
    def lengths(self) -> Ints:
        """The number of steps of each episode, (episodes,)."""
        starts = np.flatnonzero(self.t == 0)
        return np.diff(starts, append=len(self.t)).astype(np.int64)

    @property
    def horizon(self) -> int:
        """The length of the longest episode: what a setting must declare at least."""
        return int(self.t.max()) + 1

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the seven columns by name, in the order files have them."""
        return {name: getattr(self, name) for name in COLUMNS}

    def episodes(self) -> Iterator[list[Transition]]:
        """Yield the transitions of one episode after the other, as `TabularAgent.warm_start` takes them."""
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
        """Return this log, once it agrees with what is known of the problem.

        A setting says it all: states, actions, which are allowed where, the horizon, the reward scale,
        declared rewards, and that a state ends either every episode that reaches it or none. What it accepts,
        an agent told the same setting accepts in `warm_start`.

        Args:
            setting: What the agent will be told; nothing else can be given with it.
            reward_range: The lowest and the highest reward there can be.
            n_states: The number S of states.
            n_actions: The number A of actions.

        Raises:
            InvalidData: naming the first row at fault and how many more there are.
            InvalidSetting: if the problem itself is described wrongly.
        """
        if setting is not None:
            if not (reward_range is None and n_states is None and n_actions is None):
                raise InvalidSetting(
                    "'setting' must be given alone, got reward_range, n_states or n_actions as well: it says "
                    "them already."
                )
            self.check_shape(setting)
            self._check_rewards(setting.scale, REWARD_TOLERANCE * setting.scale.span)
            self._check_declared(setting)
            self._check_endings(setting)
            return self
        if n_states is not None:
            S = check_integer("n_states", n_states, minimum=1)
            self._check_below("state", S)
            self._check_below("next_state", S)
        if n_actions is not None:
            self._check_below("action", check_integer("n_actions", n_actions, minimum=1))
        if reward_range is not None:
            self._check_rewards(RewardScale.of(reward_range), 0.0)
        return self

    def to_counts(self, setting: Setting) -> Counts:
        """Return how often each transition was seen, with scaled rewards.

        Raises:
            InvalidData: if the log does not agree with the setting, see `checked`.
        """
        _check_is_setting(setting)
        self.checked(setting=setting)
        # Only the rows are of use; these bounds are the quickest to keep beside them.
        knowledge = Knowledge.empty(setting, Bounds(family="hoeffding"), episodes=1, total_episodes=1)
        rewards = np.clip((self.reward - setting.scale.low) / setting.scale.span, 0.0, 1.0)
        knowledge.learn(self.state, setting.pair_index[self.state, self.action], self.next_state, rewards)
        counts = Counts(setting)
        counts.rows = knowledge.rows
        return counts

    def with_own_ending(self, state: int | None = None) -> Log:
        """Return the log with a state of its own for endings: every terminated step leads to it.

        Agents need one where the same state ends some episodes and not others, as cells of continuous
        observations do.

        Args:
            state: Its number; `n_states` by default, the first that is free.

        Raises:
            InvalidData: if a step of the log starts in that state, or leads to it without terminating.
        """
        ending = self.n_states if state is None else check_integer("state", state, minimum=0)
        places = Places(self.row, self.unit)
        taken = (self.state == ending) | ((self.next_state == ending) & ~self.terminated)
        way_out = f"Use state {self.n_states}, the first that is free."
        places.refuse("state", "be one that nothing else uses", taken, lambda i: f"{ending}, used", way_out)
        moved = {**self.columns(), "next_state": np.where(self.terminated, ending, self.next_state)}
        return Log(**moved, row=self.row, unit=self.unit)

    def padded(self, horizon: int) -> Log:
        """Return the log with steps of reward 0 after every ending, up to `horizon`, and no ending before.

        Agents need it where rewards can be negative: to end early would pay. The steps lead from state
        `n_states`, which nothing else uses, to itself with action 0; allow no other action there. Their row
        is that of the ending.

        Raises:
            InvalidSetting: if an episode is longer.

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
        own = self.with_own_ending()
        added = {
            "episode": self.episode[after],
            "t": self.t[after] + 1 + steps,
            "state": np.full(len(after), self.n_states),
            "action": np.zeros(len(after), dtype=np.int64),
            "reward": np.zeros(len(after)),
            "next_state": np.full(len(after), self.n_states),
        }
        columns = {name: np.concatenate([own.columns()[name], column]) for name, column in added.items()}
        row = np.concatenate([self.row, self.row[after]])
        return Log(**columns, terminated=np.zeros(len(row), dtype=bool), row=row, unit=self.unit)

    def check_shape(self, setting: Setting) -> None:
        """Raise InvalidData where a state, an action or a step is none of the setting's."""
        _check_is_setting(setting)
        self._check_below("state", setting.n_states)
        self._check_below("next_state", setting.n_states)
        self._check_below("action", setting.n_actions)
        places = Places(self.row, self.unit)
        places.refuse(
            "state",
            "not be terminal where an action is played",
            setting.terminal[self.state],
            lambda i: str(self.state[i]),
            "Leave it out of the setting's terminal states, or end the episode before.",
        )
        places.refuse(
            "action",
            "be allowed in its state",
            setting.pair_index[self.state, self.action] < 0,
            lambda i: f"{self.action[i]} in state {self.state[i]}",
        )
        places.refuse(
            "t",
            f"be less than the horizon, {setting.horizon}",
            self.t >= setting.horizon,
            lambda i: str(self.t[i]),
            f"Declare a horizon of {self.horizon} or more.",
        )

    def _check_below(self, name: str, limit: int) -> None:
        column: Ints = getattr(self, name)
        Places(self.row, self.unit).refuse(
            name, f"lie in 0..{limit - 1}", column >= limit, lambda i: str(column[i])
        )

    def _check_rewards(self, scale: RewardScale, tolerance: float) -> None:
        wrong = ~((self.reward >= scale.low - tolerance) & (self.reward <= scale.high + tolerance))
        Places(self.row, self.unit).refuse(
            "reward",
            f"lie in [{scale.low:g}, {scale.high:g}]",
            wrong,
            lambda i: shown(self.reward[i]),
            "Declare the range of your rewards.",
        )

    def _check_declared(self, setting: Setting) -> None:
        """Raise InvalidData where a reward is not the one the setting declares."""
        known = setting.known
        if known is None:
            return
        pair = setting.pair_index[self.state, self.action]
        listed = np.repeat(np.arange(setting.n_pairs), np.diff(known.start)) * setting.n_states
        # One more entry that nothing is equal to, for what lies beyond the list.
        listed = np.append(listed + known.successor, setting.n_pairs * setting.n_states)
        rewards = np.append(known.reward, np.nan)
        wanted = pair * setting.n_states + self.next_state
        place = np.searchsorted(listed, wanted)
        found = listed[place] == wanted
        low = np.where(found, rewards[place], known.other_low[pair])
        high = np.where(found, rewards[place], known.other_high[pair])
        scaled = (self.reward - setting.scale.low) / setting.scale.span
        wrong = ~((scaled >= low - REWARD_TOLERANCE) & (scaled <= high + REWARD_TOLERANCE))
        Places(self.row, self.unit).refuse(
            "reward",
            "be the one the setting declares",
            wrong,
            lambda i: (
                f"{shown(self.reward[i])}, {scaled[i]:g} once scaled and not {low[i]:g} to {high[i]:g},"
            ),
            "Use reward='estimated' if it is not a known function of the transition.",
        )

    def _check_endings(self, setting: Setting) -> None:
        """Raise InvalidData where a state ends episodes at one time and not at another."""
        places = Places(self.row, self.unit)
        ends = setting.terminal.copy()
        ends[self.next_state[self.terminated]] = True
        goes_on = ends[self.state] | (ends[self.next_state] & ~self.terminated)
        places.refuse(
            "terminated",
            "be true whenever a state is reached that ends episodes elsewhere",
            goes_on,
            lambda i: (
                f"a step {'from' if ends[self.state[i]] else 'to'} such a state, "
                f"{self.state[i] if ends[self.state[i]] else self.next_state[i]},"
            ),
            "Give endings a state of their own: log.with_own_ending().",
        )
        if setting.scale.low != 0.0:
            places.refuse(
                "terminated",
                f"be false where rewards have an offset, here {setting.scale.low:g}: ending early would pay",
                self.terminated,
                lambda i: "true",
                "Pad episodes with reward 0: log.padded(horizon).",
            )


def check_log(log: object) -> None:
    """Raise InvalidSetting unless `log` is a Log."""
    if not isinstance(log, Log):
        raise InvalidSetting(
            f"'log' must be a Log, got {type(log).__name__}. Use read_log or Log.from_arrays."
        )


def _check_is_setting(setting: object) -> None:
    if not isinstance(setting, Setting):
        raise InvalidSetting(
            f"'setting' must be a Setting, got {type(setting).__name__}. "
            "Use Setting.declare(...), or the `setting` of a FiniteMDP."
        )


def _check_steps(columns: dict[str, NDArray[Any]], places: Places) -> None:
    """Raise InvalidData unless sorted columns are whole episodes, step by step."""
    episode, t, state = columns["episode"], columns["t"], columns["state"]
    same = np.concatenate([[False], episode[1:] == episode[:-1]])
    before = np.maximum(np.arange(len(t)) - 1, 0)

    def step(i: int) -> str:
        return f"episode {episode[i]}, t {t[i]}"

    places.refuse(
        "t",
        "be different for every step of an episode",
        same & (t == t[before]),
        lambda i: f"{step(i)}, as in {places.at(int(before[i]))} already,",
    )
    places.refuse(
        "t",
        "count 0, 1, 2, ... within an episode",
        t != np.where(same, t[before] + 1, 0),
        lambda i: f"{step(i)}, {f'after t {t[before[i]]},' if same[i] else 'as its first step'}",
    )
    places.refuse(
        "terminated",
        "be the last step of an episode",
        same & columns["terminated"][before],
        lambda i: f"{step(i)}, after the end in {places.at(int(before[i]))},",
    )
    after = np.minimum(np.arange(len(t)) + 1, len(t) - 1)
    broken = np.concatenate([same[1:], [False]]) & (columns["next_state"] != state[after])
    places.refuse(
        "next_state",
        "be the state that the following step starts in",
        broken,
        lambda i: f"{columns['next_state'][i]}, and then {state[after[i]]} in {places.at(int(after[i]))},",
    )
