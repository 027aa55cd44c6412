"""Siblings to calibrate on: of a shipped problem, of any finite MDP, or resampled from a log.

A sibling is another problem of the same size and kind. Workers make siblings by number, from what is written
to one file per calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from chary.agents import CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.arrays import Bools, Floats, Ints, frozen
from chary.audit import Truth
from chary.data.logs import Log, check_log
from chary.envs import make, sibling
from chary.errors import InvalidSetting, check_type
from chary.mdp import FiniteMDP
from chary.mdp._checks import cumulative_rows
from chary.mdp.setting import KnownReward, Setting, check_setting
from chary.policies import OwnBaseline
from chary.randomness import generator_for, seed_for
from chary.simulation import LoggedStart, Simulation
from chary.storage.sealed import pack, under, unpack

KIND = "siblings"
# The weight of a row of a finite MDP in the draws around it, in observations.
STRENGTH = 20.0
# The share of its value within which a reward of a finite MDP is drawn.
SPREAD = 0.5
COLUMNS = ("episode", "t", "state", "action", "reward", "next_state", "terminated")


class Siblings(Protocol):
    """Other problems of the same size and kind as one.

    `name` and `options` identify the problem in records, `about` says in words where siblings come from, None
    for those of a shipped problem. `warmup` is the number of logged episodes that a run starts with, None
    where random ones are played, and `own` the user's policy.
    """

    @property
    def name(self) -> str:
        """The name of the problem."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Its options in records."""

    @property
    def about(self) -> str | None:
        """Where siblings come from, in words."""

    @property
    def setting(self) -> Setting:
        """What an agent may know of the problem."""

    @property
    def mdp(self) -> FiniteMDP | None:
        """The problem itself, None where only a log of it is known."""

    @property
    def warmup(self) -> int | None:
        """The number of logged episodes that a run starts with."""

    @property
    def own(self) -> OwnBaseline | None:
        """The user's policy."""

    def draw(self, seed: int) -> FiniteMDP:
        """Return one sibling."""

    def start(self, mdp: FiniteMDP, seed: int) -> LoggedStart | None:
        """Return logged episodes of a sibling, None where random ones are played."""


@final
@dataclass(frozen=True, slots=True)
class ProblemSiblings:
    """Siblings of a shipped problem, `chary.envs.sibling`."""

    name: str
    options: Mapping[str, Any]
    about = None
    warmup = None
    own = None

    @property
    def mdp(self) -> FiniteMDP:
        """The problem itself."""
        return make(self.name, **self.options)

    @property
    def setting(self) -> Setting:
        """What an agent may know of the problem."""
        return self.mdp.setting

    def draw(self, seed: int) -> FiniteMDP:
        """Return one sibling."""
        return sibling(self.name, seed, **self.options)

    def start(self, mdp: FiniteMDP, seed: int) -> None:
        """Return None: random episodes come first."""


@final
@dataclass(frozen=True, eq=False)
class MDPSiblings:
    """Siblings of a finite MDP: rows and rewards drawn around its own.

    Every row is a Dirichlet draw with the weight of 20 observations around the row, and the rewards of every
    action are multiplied by a factor from 1/2 to 3/2, as far as their range allows.
    """

    mdp: FiniteMDP
    warmup = None
    own = None

    def __post_init__(self) -> None:
        check_type("problem", self.mdp, FiniteMDP, "a FiniteMDP", way_out="Or pass the name of a problem.")

    @property
    def name(self) -> str:
        """The name of the MDP."""
        return self.mdp.name

    @property
    def options(self) -> Mapping[str, Any]:
        """What identifies the MDP."""
        return {"digest": self.mdp.digest}

    @property
    def about(self) -> str:
        """Where siblings come from, in words."""
        return f"{self.name}, each row and each reward drawn around its own"

    @property
    def setting(self) -> Setting:
        """What an agent may know of the problem."""
        return self.mdp.setting

    def draw(self, seed: int) -> FiniteMDP:
        """Return one sibling."""
        rng, mdp = generator_for(seed, "siblings of an MDP"), self.mdp
        pair = _pairs(mdp.row_start)
        drawn = np.maximum(rng.standard_gamma(STRENGTH * mdp.probability), np.finfo(float).tiny)
        factor = rng.uniform(1 - SPREAD, 1 + SPREAD, self.setting.n_pairs)
        reward = np.minimum(mdp.reward * factor[pair], 1.0)
        return _assembled(mdp.name, self.setting, pair, mdp.successor, drawn, reward, mdp.start)

    def start(self, mdp: FiniteMDP, seed: int) -> None:
        """Return None: random episodes come first."""

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all of it as arrays and plain values."""
        names = ("row_start", "successor", "probability", "reward", "start")
        arrays = {name: np.array(getattr(self.mdp, name)) for name in names}
        return arrays | _setting_arrays(self.setting), {"mdp": self.name}

    @classmethod
    def from_arrays(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> MDPSiblings:
        """Return what `to_arrays` described."""
        setting = Setting.from_arrays(under("setting.", arrays))
        rows = [arrays[name] for name in ("successor", "probability", "reward", "start")]
        return cls(_assembled(str(about["mdp"]), setting, _pairs(arrays["row_start"]), *rows))


@final
@dataclass(frozen=True, eq=False)
class LogSiblings:
    """Siblings resampled from a log, on which runs start with a log of the same size by the same policy.

    Whole episodes are drawn again, each with its own weight (a Bayesian bootstrap); rows and mean rewards
    are those of the weighted log. An action that was never logged in a state takes the outcomes of another
    one that was, with new weights; in a state without data, those of the whole log.

    Args:
        log: The logged decisions.
        setting: The setting that they agree with; known rewards are used.
        own: The user's policy with its role, which the agent has for its baseline.
        called: The name of the log in records.

    Raises:
        InvalidData: if the log contradicts the setting.

    Example:
        >>> log = Log(episode=[0, 1], t=[0, 0], state=[0, 0], action=[0, 1], reward=[0, 1],
        ...           next_state=[0, 0], terminated=[False, False])
        >>> resampled = LogSiblings(log, Setting.declare(n_states=1, n_actions=2, horizon=3))
        >>> resampled.draw(0).n_states, resampled.warmup
        (1, 2)
    """

    log: Log
    setting: Setting
    own: OwnBaseline | None = None
    called: str = "log"
    mdp = None

    def __post_init__(self) -> None:
        check_log(self.log)
        check_setting(self.setting)
        object.__setattr__(self, "log", self.log.checked(setting=self.setting).with_endings_of(self.setting))
        if self.own is not None:
            check_type("own", self.own, OwnBaseline, "an OwnBaseline", way_out="Use OwnBaseline.declare.")

    @property
    def name(self) -> str:
        """The name of the log."""
        return self.called

    @property
    def options(self) -> Mapping[str, Any]:
        """What identifies the log: nothing but its size."""
        return {"episodes": self.log.n_episodes, "transitions": self.log.n_transitions}

    @property
    def warmup(self) -> int:
        """The number of logged episodes that a run starts with."""
        return self.log.n_episodes

    @property
    def about(self) -> str:
        """Where siblings come from, and what they leave out, in words."""
        left_out, pairs = self.setting.n_pairs - len(np.unique(self._pair)), self.setting.n_pairs
        told = [
            f"{self.log.n_episodes:,} episodes, {self.log.n_transitions:,} decisions",
            "logged actions must be unconfounded",
        ]
        if left_out:
            told.append(f"{left_out:,} of {pairs:,} actions were never logged in a state and resemble others")
        if self._noise >= 0.005:
            share = f"{100 * self._noise:.0f} % of their variance"
            told.append(f"rewards are means by state, action and next state, without {share}")
        return f"resampled from the log {self.called} ({'; '.join(told)})"

    @cached_property
    def _pair(self) -> Ints:
        return np.asarray(self.setting.pair_index[self.log.state, self.log.action])

    @cached_property
    def _noise(self) -> float:
        """The share of the variance of rewards within a state, an action and a next state."""
        reward = self.log.scaled_rewards(self.setting)
        total = float(reward.var())
        if self.setting.known is not None or total <= 0.0:
            return 0.0
        cell = np.unique(self._pair * self.setting.n_states + self.log.next_state, return_inverse=True)[1]
        cell = cell.reshape(-1)
        number = np.bincount(cell)
        mean = np.bincount(cell, reward) / number
        return float(((reward - mean[cell]) ** 2).mean() / total)

    def draw(self, seed: int) -> FiniteMDP:
        """Return one sibling."""
        rng, log, setting = generator_for(seed, "siblings of a log"), self.log, self.setting
        S, P = setting.n_states, setting.n_pairs
        first = log.t == 0
        episode = np.cumsum(first) - 1
        weight = rng.standard_exponential(log.n_episodes)[episode]
        pair, nexts = self._pair, log.next_state
        reward = log.scaled_rewards(setting)
        seen = np.bincount(pair, minlength=P) > 0
        order = np.argsort(pair, kind="stable")
        begin = np.searchsorted(pair[order], np.arange(P + 1))
        taken: list[tuple[int, Ints]] = []
        for p in np.flatnonzero(~seen).tolist():
            s = int(np.searchsorted(setting.pair_start, p, side="right")) - 1
            others = np.flatnonzero(seen[setting.pair_start[s] : setting.pair_start[s + 1]])
            if len(others):
                donor = int(setting.pair_start[s] + others[rng.integers(len(others))])
                rows = order[begin[donor] : begin[donor + 1]]
            else:
                # As many as an action has on average: the spread between siblings is that of the others.
                rows = rng.integers(len(log), size=max(1, len(log) // max(1, int(seen.sum()))))
            taken.append((p, rows))
        given = np.concatenate([np.arange(len(log)), *(rows for _, rows in taken)])
        owner = np.concatenate([pair, *(np.full(len(rows), p) for p, rows in taken)])
        weight = np.concatenate([weight, rng.standard_exponential(len(given) - len(log))])
        weight = np.maximum(weight, np.finfo(float).tiny)
        code, cell = np.unique(owner * S + nexts[given], return_inverse=True)
        cell = cell.reshape(-1)
        mass: Floats = np.asarray(np.bincount(cell, weight), dtype=np.float64)
        earned: Floats = np.bincount(cell, weight * reward[given]) / mass
        row, after = code // S, code % S
        if setting.known is not None:
            earned = known_rewards(setting.known, row, after)
        row, after, mass, earned = _within_support(setting, row, after, mass, earned)
        start = np.bincount(log.state[first], weight[: len(log)][first], minlength=S)
        return _assembled(self.called, setting, row, after, mass, np.clip(earned, 0, 1), start / start.sum())

    def start(self, mdp: FiniteMDP, seed: int) -> LoggedStart:
        """Return as many episodes of a sibling as the log has, by the shares of its actions in each state."""
        rng, log, setting = generator_for(seed, "log of a sibling"), self.log, self.setting
        counts = np.zeros((setting.n_states, setting.n_actions))
        np.add.at(counts, (log.state, log.action), 1.0)
        counts = np.where(counts.any(axis=1, keepdims=True), counts, setting.allowed.astype(float))
        shares = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        ends = np.flatnonzero(log.t == 0) + log.lengths - 1
        # Episodes that were cut off end where the log cut them, all others where the process does.
        limit = np.where(log.terminated[ends], setting.horizon, log.lengths)
        E, place = len(limit), mdp.row_start[:-1]
        cumulative = mdp.cumulative + _pairs(mdp.row_start)
        state = np.searchsorted(np.cumsum(mdp.start), rng.random(E), side="right").clip(
            0, setting.n_states - 1
        )
        going: Bools = ~setting.terminal[state]
        parts: list[tuple[Ints, ...]] = []
        rewards: list[Floats] = []
        for t in range(setting.horizon):
            live = np.flatnonzero(going & (limit > t))
            if not len(live):
                break
            here = state[live]
            action = (shares[here] <= rng.random((len(live), 1))).sum(axis=1).clip(0, setting.n_actions - 1)
            pair = setting.pair_index[here, action]
            entry = np.searchsorted(cumulative, pair + rng.random(len(live)), side="right")
            entry = entry.clip(place[pair], mdp.row_start[pair + 1] - 1)
            after = mdp.successor[entry]
            parts.append((live, here, pair, after))
            rewards.append(mdp.reward[entry])
            state[live] = after
            going[live] = ~setting.terminal[after]
        episode, states, pairs, nexts = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(episode, kind="stable")
        earned = np.concatenate(rewards)[order]
        return LoggedStart(E, states[order], pairs[order], nexts[order], earned)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all of it as arrays and plain values."""
        arrays = {f"log.{name}": np.array(getattr(self.log, name)) for name in COLUMNS}
        if self.own is not None:
            arrays["own"] = np.array(self.own.table)
        role = None if self.own is None else self.own.role
        return arrays | _setting_arrays(self.setting), {"log": self.called, "role": role}

    @classmethod
    def from_arrays(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LogSiblings:
        """Return what `to_arrays` described."""
        columns: Any = under("log.", dict(arrays))
        setting = Setting.from_arrays(under("setting.", arrays))
        own = None
        if about["role"] is not None:
            own = OwnBaseline.declare(arrays["own"], setting, role=str(about["role"]))
        return cls(Log(**columns), setting, own, str(about["log"]))


def siblings_of(problem: str | FiniteMDP | Siblings, options: Mapping[str, Any]) -> Siblings:
    """Return the siblings of a problem by name, of a finite MDP, or those given.

    Raises:
        InvalidSetting: if options come with something else than a name.
    """
    if isinstance(problem, str):
        return ProblemSiblings(problem, dict(options))
    if options:
        raise InvalidSetting(f"{next(iter(options))!r} must come with the name of a problem, got it without.")
    if isinstance(problem, LogSiblings | MDPSiblings | ProblemSiblings):
        return problem
    return MDPSiblings(problem)  # type: ignore[arg-type]  # it checks


def check_family(family: Siblings, agent: CharyUCBVI, warmup: int) -> int:
    """Return the number of episodes before a run, once the agent can be played on these siblings.

    Raises:
        CharyError: if its options do not fit the problem.
    """
    agent.check_problem(family.setting)
    agent.prior_actions(family.setting, family.mdp)
    if family.mdp is None and agent.reward == "known" and family.setting.known is None:
        raise InvalidSetting(
            "'reward' can be 'known' only where the setting declares a reward function, got one without. Use "
            "Setting.declare(reward=...), or reward='estimated'."
        )
    if family.own is not None and agent.bonus != POSTERIOR:
        raise InvalidSetting(
            f"'own' must be left out with bonus {agent.bonus!r}, which is calibrated with a learnt baseline, "
            f"got role {family.own.role!r}. Use bonus 'posterior'."
        )
    return warmup if family.warmup is None else family.warmup


def played_of(family: Siblings, agent: CharyUCBVI, episodes: int, warmup: int) -> dict[str, Any]:
    """Return what a run must share with a calibration, the user's policy included."""
    own = {} if family.own is None else {"prior": f"own policy as {family.own.role}"}
    return agent.calibrated(episodes, warmup) | own


def simulation_of(order: Mapping[str, Any], label: str) -> Simulation:
    """Return the run that an order describes, on the sibling of that label."""
    family, seed = family_of(order["family"]), order["seed"]
    mdp = family.draw(seed_for(seed, f"sibling {label}"))
    logged = family.start(mdp, seed_for(seed, f"log {label}"))
    return Simulation(
        mdp,
        CharyUCBVI(**order["agent"]),
        episodes=order["episodes"],
        warmup=order["warmup"] if logged is None else 0,
        seed=seed_for(seed, f"calibration run {label}"),
        logged=logged,
        own=family.own,
    )


def order_of(family: Siblings, folder: Path) -> dict[str, Any]:
    """Return what a worker needs to make siblings: a name with options, or a file in `folder`."""
    if isinstance(family, ProblemSiblings):
        return {"problem": family.name, "options": dict(family.options)}
    assert isinstance(family, LogSiblings | MDPSiblings)
    path = folder / "siblings.npz"
    path.write_bytes(pack(KIND, *family.to_arrays()))
    return {"file": str(path)}


def family_of(order: Mapping[str, Any]) -> Siblings:
    """Return the siblings that an order describes."""
    if "file" in order:
        return _loaded(str(order["file"]))
    return ProblemSiblings(order["problem"], order["options"])


@lru_cache(maxsize=1)
def _loaded(path: str) -> Siblings:
    about, arrays = unpack(KIND, Path(path).read_bytes())
    return (LogSiblings if "log" in about else MDPSiblings).from_arrays(about, arrays)


def _setting_arrays(setting: Setting) -> dict[str, NDArray[Any]]:
    return {f"setting.{name}": np.array(array) for name, array in setting.to_arrays().items()}


def _pairs(row_start: Ints) -> Ints:
    """Return the pair of every entry of rows."""
    return np.repeat(np.arange(len(row_start) - 1), np.diff(row_start))


def known_rewards(known: KnownReward, pair: Ints, after: Ints) -> Floats:
    """Return the declared rewards of transitions."""
    earned = (known.other_low + known.other_high)[pair] / 2
    for i, (p, x) in enumerate(zip(pair.tolist(), after.tolist(), strict=True)):
        begin, end = known.start[p], known.start[p + 1]
        place = begin + int(np.searchsorted(known.successor[begin:end], x))
        if place < end and known.successor[place] == x:
            earned[i] = known.reward[place]
    return np.asarray(earned)


def _within_support(
    setting: Setting, row: Ints, after: Ints, mass: Floats, earned: Floats
) -> tuple[Ints, Ints, Floats, Floats]:
    """Return transitions without the rarest of pairs that would have more successors than declared."""
    order = np.lexsort((-mass, row))
    rank = np.empty(len(row), dtype=np.int64)
    rank[order] = np.arange(len(row)) - np.searchsorted(row[order], row[order])
    kept = rank < setting.support[row]
    return row[kept], after[kept], mass[kept], earned[kept]


def _assembled(
    name: str, setting: Setting, pair: Ints, after: Ints, mass: Floats, reward: Floats, start: Floats
) -> FiniteMDP:
    """Return the MDP of transitions sorted by pair and next state, with unnormalised probabilities.

    Where the declared value cap does not hold on it, it is raised: siblings keep to the problem's size, and
    not to its values.
    """
    row_start = np.searchsorted(pair, np.arange(setting.n_pairs + 1)).astype(np.int64)
    probability = mass / np.add.reduceat(mass, row_start[:-1])[pair]
    told, anything = replace(setting, known=None), np.zeros(setting.n_pairs)
    known = KnownReward(frozen(row_start), frozen(after), frozen(reward), anything, anything + 1)
    made = FiniteMDP(
        name=name,
        setting=told,
        row_start=frozen(row_start),
        successor=frozen(after.astype(np.int64)),
        probability=frozen(probability),
        reward=frozen(reward),
        cumulative=frozen(cumulative_rows(row_start, probability)),
        start=frozen(start),
        known=setting.known or known,
    )
    if told.value_cap < told.horizon:
        best = float(Truth(made).optimal_value.max())
        made = replace(made, setting=replace(told, value_cap=max(told.value_cap, best * (1 + 1e-9))))
    return made
