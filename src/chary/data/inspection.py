"""Contents of a log, and rows that may be mistakes, before anything is learnt from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from chary.arrays import Bools, Ints
from chary.data._agreement import ended_by_clock
from chary.data._columns import plural
from chary.data._tables import checked_labels
from chary.data.logs import Log, check_log
from chary.mdp.setting import REWARD_TOLERANCE, Setting

# The largest number of pairs, states and rows in a list.
NAMED = 5
# Shorter episodes may be equal by chance.
LONG_ENOUGH = 5
# Tukey's fences for values that are far out.
FENCE = 3.0


class PairCount(NamedTuple):
    """The number of times an action was played in a state."""

    state: int
    action: int
    visits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A possible mistake in the log: its kind, the number of rows, and the first of them.

    `kind` is one of `constant_reward`, `outlier_reward`, `reward_range`, `duplicated_episode`, `single_step`,
    `cut_off`, `ending`, `ended_by_clock`.
    """

    kind: str
    count: int
    rows: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The contents of a log.

    Pairs are state-action pairs. `pairs_possible` are those the setting allows; without one, every action
    seen in every state in which one was played. `median_visits` is over pairs seen. `terminal_states` are
    those that terminated steps led to, `horizon_at_least` is the length of the longest episode.
    """

    episodes: int
    transitions: int
    shortest: int
    median_length: float
    longest: int
    terminated_episodes: int
    states_seen: int
    states_acted_in: int
    largest_state: int
    actions_seen: int
    largest_action: int
    pairs_possible: int
    pairs_seen: int
    pairs_seen_once: int
    coverage: float
    median_visits: float
    least_seen: tuple[PairCount, ...]
    lowest_reward: float
    highest_reward: float
    mean_return: float
    terminal_states: tuple[int, ...]
    horizon_at_least: int
    suspicions: tuple[Suspicion, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values by name."""
        values = asdict(self)
        values["least_seen"] = [pair._asdict() for pair in self.least_seen]
        values["suspicions"] = [asdict(each) for each in self.suspicions]
        return values

    def describe(self, labels: Mapping[str, Sequence[str]] | None = None) -> str:
        """Return a page of plain text, in which `labels`, as for `read_log`, name states and actions."""
        texts = checked_labels(labels)

        def named(column: str, number: int) -> str:
            known = texts.get(column, ())
            return known[number] if number < len(known) else str(number)

        apart = "; " if texts else ", "
        pairs = [(apart.join([named("state", s), named("action", a)]), n) for s, a, n in self.least_seen]
        least = ", ".join(f"({pair}) {visits}" for pair, visits in pairs)
        ends = ", ".join(named("state", s) for s in self.terminal_states[:NAMED]) or "none"
        if len(self.terminal_states) > NAMED:
            ends += f" and {len(self.terminal_states) - NAMED} more"
        lines = [
            ("episodes", f"{self.episodes}, of which {self.terminated_episodes} terminated"),
            ("transitions", f"{self.transitions}"),
            ("episode length", f"{self.shortest} to {self.longest}, median {self.median_length:g}"),
            (
                "states",
                f"{self.states_seen} seen, {self.states_acted_in} acted in, the largest is "
                f"{self.largest_state}",
            ),
            ("actions", f"{self.actions_seen} seen, the largest is {self.largest_action}"),
            (
                "state-action pairs",
                f"{self.pairs_seen} of {self.pairs_possible} seen ({self.coverage:.1%}), "
                f"{self.pairs_seen_once} once, median {self.median_visits:g} visits",
            ),
            ("least seen", f"{least} (state{apart}action) visits"),
            ("rewards", f"{self.lowest_reward:g} to {self.highest_reward:g}"),
            ("mean return", f"{self.mean_return:g}"),
            ("terminal states", ends),
            ("horizon", f"must be at least {self.horizon_at_least}"),
        ]
        width = max(len(name) for name, _ in lines)
        text = [f"{name.ljust(width)}  {value}" for name, value in lines]
        if self.suspicions:
            text += ["", "Possible mistakes:", *(f"- {each.sentence}" for each in self.suspicions)]
        else:
            text += ["", "No suspicious rows."]
        return "\n".join(text)


def inspect(log: Log, setting: Setting | None = None) -> Inspection:
    """Return the contents of a log: counts, coverage, lengths, rewards, and suspicious rows.

    Args:
        log: The log.
        setting: The setting of the agent. States, actions and steps outside it are refused; rewards and
            endings that an agent would refuse are listed as suspicious.

    Raises:
        InvalidData: if the log has states, actions or steps that the setting does not have.

    Example:
        >>> log = Log.from_arrays(episode=[0, 0], t=[0, 1], state=[0, 1], action=[0, 1], reward=[0, 1],
        ...                       next_state=[1, 2], terminated=[0, 1])
        >>> found = inspect(log)
        >>> found.coverage, found.horizon_at_least, found.terminal_states
        (0.5, 2, (2,))
    """
    check_log(log)
    if setting is not None:
        log.check_shape(setting)
    lengths = log.lengths
    acted, actions = np.unique(log.state), np.unique(log.action)
    possible = len(acted) * len(actions) if setting is None else setting.n_pairs
    # Numbered among those seen: a state may be any number, and S * A may be too large for memory.
    code = np.searchsorted(acted, log.state) * len(actions) + np.searchsorted(actions, log.action)
    pairs, visits = np.unique(code, return_counts=True)
    least = np.argsort(visits, kind="stable")[:NAMED]
    ends = np.unique(log.next_state[log.terminated])
    return Inspection(
        episodes=len(lengths),
        transitions=log.n_transitions,
        shortest=int(lengths.min()),
        median_length=float(np.median(lengths)),
        longest=int(lengths.max()),
        terminated_episodes=int(log.terminated.sum()),
        states_seen=len(np.union1d(acted, log.next_state)),
        states_acted_in=len(acted),
        largest_state=log.n_states - 1,
        actions_seen=len(actions),
        largest_action=log.n_actions - 1,
        pairs_possible=possible,
        pairs_seen=len(pairs),
        pairs_seen_once=int((visits == 1).sum()),
        coverage=len(pairs) / possible,
        median_visits=float(np.median(visits)),
        least_seen=tuple(
            PairCount(
                int(acted[pairs[i] // len(actions)]), int(actions[pairs[i] % len(actions)]), int(visits[i])
            )
            for i in least
        ),
        lowest_reward=float(log.reward.min()),
        highest_reward=float(log.reward.max()),
        mean_return=float(log.reward.sum() / len(lengths)),
        terminal_states=tuple(ends.tolist()),
        horizon_at_least=log.horizon,
        suspicions=tuple(_suspicions(log, setting)),
    )


def _suspicions(log: Log, setting: Setting | None) -> list[Suspicion]:
    by_clock = _ended_by_clock(log)
    # Once these are read as cut off, most other endings are in order.
    endings = _odd_endings(log.cut_at() if by_clock else log, setting)
    found = [*_odd_rewards(log), *by_clock, *endings, *_odd_episodes(log)]
    if setting is not None:
        scale = setting.scale
        slack = REWARD_TOLERANCE * scale.span
        beyond = (log.reward < scale.low - slack) | (log.reward > scale.high + slack)
        rule = f"reward outside [{scale.low:g}, {scale.high:g}], the range that the setting declares"
        found += _suspicion(log, "reward_range", beyond, rule)
    return found


def _odd_rewards(log: Log) -> list[Suspicion]:
    rewards = log.reward
    values, counts = np.unique(rewards, return_counts=True)
    if len(values) == 1 and len(rewards) > 1:
        rule = f"the same reward, {values[0]:g}, in every row: nothing can be learnt from it"
        return _suspicion(log, "constant_reward", np.ones(len(rewards), dtype=bool), rule)
    # If most rewards are equal, often 0, fences that include them would exclude all others.
    others = rewards[rewards != values[np.argmax(counts)]]
    if len(others) < LONG_ENOUGH:
        return []
    low, high = np.quantile(others, [0.25, 0.75])
    reach = FENCE * (high - low)
    if not 0 < reach < np.inf:
        return []
    outside = (rewards < low - reach) | (rewards > high + reach)
    outside &= rewards != values[np.argmax(counts)]
    rule = (
        f"reward outside [{low - reach:g}, {high + reach:g}], {FENCE:g} interquartile ranges beyond the "
        "quartiles of all rewards but the commonest"
    )
    return _suspicion(log, "outlier_reward", outside, rule)


def _odd_endings(log: Log, setting: Setting | None) -> list[Suspicion]:
    if setting is not None and setting.ending is not None:
        # Declared: agents take care of them.
        return []
    starts, leads = log.past_endings(() if setting is None else np.flatnonzero(setting.terminal))
    named = np.union1d(log.state[starts], log.next_state[leads])[:NAMED].tolist()
    rule = (
        f"a step from or to a state that ends other episodes ({', '.join(map(str, named))}), which agents "
        "refuse unless the setting has early_endings=True"
    )
    return _suspicion(log, "ending", starts | leads, rule)


def _ended_by_clock(log: Log) -> list[Suspicion]:
    """Return whether `terminated` seems to mark the last step of full episodes, where only time ran out.

    Every full episode is said to have terminated, and in states that others pass through.
    """
    wrong = ended_by_clock(log)
    rule = (
        f"terminated at step {log.horizon}, the last of the longest episodes, and in states that other "
        "episodes pass through: if only the clock ended them, read them as cut off with log.cut_at() "
        "(--cut-at-horizon)"
    )
    return _suspicion(log, "ended_by_clock", wrong, rule)


def _odd_episodes(log: Log) -> list[Suspicion]:
    lengths = log.lengths
    ends = np.cumsum(lengths)
    first = ends - lengths
    starts = np.zeros(len(log), dtype=bool)

    def episodes(which: Bools) -> Bools:
        rows = starts.copy()
        rows[first[which]] = True
        return rows

    single = (lengths == 1) & (np.median(lengths) >= 2)
    found = _suspicion(log, "single_step", episodes(single), "the only step of its episode")
    cut = ~log.terminated[ends - 1] & (lengths < lengths.max())
    rule = (
        "the start of an episode that is shorter than the longest and ends without 'terminated': correct "
        "if it was cut off; otherwise 'terminated' is missing"
    )
    found += _suspicion(log, "cut_off", episodes(cut), rule)
    rule = f"the start of an episode of {LONG_ENOUGH} steps or more that repeats an earlier one step for step"
    return found + _suspicion(log, "duplicated_episode", episodes(_repeated(log, first, ends)), rule)


def _repeated(log: Log, first: Ints, ends: Ints) -> Bools:
    """Return which episodes of sufficient length are equal to an earlier one."""
    table = np.stack(
        [log.state, log.action, log.next_state, log.reward.view(np.int64), log.terminated.astype(np.int64)],
        axis=1,
    )
    seen: set[bytes] = set()
    repeated = np.zeros(len(first), dtype=bool)
    for k in np.flatnonzero(ends - first >= LONG_ENOUGH):
        content = table[first[k] : ends[k]].tobytes()
        repeated[k] = content in seen
        seen.add(content)
    return repeated


def _suspicion(log: Log, kind: str, wrong: Bools, rule: str) -> list[Suspicion]:
    """Return the suspicion about some rows, if there are any."""
    rows = np.sort(log.row[wrong])
    if not len(rows):
        return []
    named = ", ".join(str(row) for row in rows[:NAMED])
    if len(rows) == len(log):
        where = f"all {len(rows)} {plural(log.unit)}"
    elif len(rows) == 1:
        where = f"{log.unit} {named}"
    else:
        rest = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        where = f"{plural(log.unit)} {named}{rest}"
    return [
        Suspicion(kind=kind, count=len(rows), rows=tuple(rows[:NAMED].tolist()), sentence=f"{where}: {rule}.")
    ]
