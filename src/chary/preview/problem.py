"""From a log and a few declarations to what an agent would have learnt: a setting, and counts with bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chary.agents.protocol import POSTERIOR
from chary.arrays import Bools, Floats, Ints
from chary.data import Log, read_policy, read_rewards
from chary.data._agreement import ended_by_clock
from chary.data.declared import NOTHING, SUFFIXES
from chary.data.usual import logged_actions
from chary.errors import CharyError, InvalidSetting, check_choice, check_integer, check_real
from chary.mdp.setting import RewardScale, Setting, as_policy, reward_table
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge, learn_into
from chary.policies import OwnBaseline
from chary.preview.options import ALLOWED, PreviewOptions
from chary.preview.words import READ_OFF

# Entries of a table over steps and pairs that still fit into memory, several times over.
MOST_ENTRIES = 10**8
# Room that counting takes for each different successor: rows move to twice the place when they are full.
ROOM = 4
# How many states without an action one message names.
NAMED = 5


class Problem(NamedTuple):
    """A log that agrees with its setting; `real` marks the steps that were logged, not filled in, (N,).

    `plain` is the setting without a state that was added, and `change` says why one was (`padded`, `own
    ending` or nothing). `own` is the user's policy.
    """

    log: Log
    real: Bools
    setting: Setting
    plain: Setting
    change: str
    own: OwnBaseline | None
    notes: tuple[str, ...]
    inferred: tuple[str, ...]


def make_problem(log: Log, options: PreviewOptions) -> Problem:
    """Return the problem that a log and some declarations describe; what is not declared is read off the log.

    Raises:
        InvalidData: if the log contradicts what was declared.
        InvalidSetting: if a declaration is out of range.
    """
    check_choice("allowed", options.allowed, ALLOWED)
    seen = {"horizon": log.horizon, "n_states": log.n_states, "n_actions": log.n_actions}
    H, S, A = (
        number if (declared := getattr(options, name)) is None else check_integer(name, declared, minimum=1)
        for name, number in seen.items()
    )
    log.checked(n_states=S, n_actions=A)
    if H < log.horizon:
        raise InvalidSetting(
            f"'horizon' must be at least the longest episode, {log.horizon} steps, got {H}. Declare it, or "
            "cut the log."
        )
    if (S + 1) * A > MOST_ENTRIES or (S + 1) * H > MOST_ENTRIES:
        raise InvalidSetting(
            f"'n_states' times 'n_actions' or 'horizon' must not exceed {MOST_ENTRIES}, got {S}, {A} and "
            f"{H}. Number states and actions from 0."
        )
    notes: list[str] = []
    rewards = _rewards(options, S, A)
    scale = _scale(log, options, rewards, notes)
    # A state that is added comes after all that were declared.
    first_free, real, change = S, np.ones(len(log), dtype=bool), ""
    inferred: list[str] = []
    over = np.setdiff1d(log.next_state[log.terminated], [*log.state, *log.next_state[~log.terminated]])
    if ended_by_clock(log).any():
        notes.append(
            f"Every full episode terminated at step {log.horizon}, in states that others pass through. If "
            "only the clock ended them, read them as cut off: log.cut_at() (--cut-at-horizon)."
        )
        inferred.append(
            f"the endings at step {log.horizon}, as logged, though only the clock may have ended them"
        )
    padded = bool(log.terminated.any()) and scale.low < 0
    if padded:
        log, change = log.padded(H, first_free), "padded"
        real = log.state != first_free
        notes.append(
            "Rewards can be negative and episodes end early: they were filled up with steps of reward 0 in "
            "a separate state, which are not counted below. An agent does the same by itself, with "
            "early_endings=True in its setting."
        )
    elif np.any(log.past_endings()):
        log, change = log.with_own_ending(first_free), "own ending"
        notes.append(
            "Some states end episodes at one time and not at another: endings were given a separate state. "
            "An agent does the same by itself, with early_endings=True in its setting."
        )
    mask = np.ones((S, A), dtype=bool)
    if options.allowed == "seen":
        mask[:] = False
        mask[log.state[log.state < S], log.action[log.state < S]] = True
        # In states without data everything is allowed.
        mask[~mask.any(axis=1)] = True
    limited = None if options.support is None else check_integer("support", options.support, minimum=1)
    setting = Setting.declare(
        n_states=S,
        n_actions=A,
        horizon=H,
        discount=options.discount,
        allowed=mask,
        terminal=() if change else np.unique(log.next_state[log.terminated]).tolist(),
        value_cap=_cap(options.value_cap, scale),
        support=None if limited is None else min(limited, S),
        reward_range=scale,
        reward=rewards,
        early_endings=bool(change),
    )
    plain = setting
    if change:
        plain = Setting.declare(n_states=S, n_actions=A, horizon=H, allowed=mask)
    if setting.n_pairs * H > MOST_ENTRIES:
        raise InvalidSetting(
            f"'horizon' times the allowed pairs must not exceed {MOST_ENTRIES}, got {H} and "
            f"{setting.n_pairs}. Use a coarser set of states, or allowed 'seen'."
        )
    log.checked(setting=setting)
    notes += _assumed(options)
    own = _own(options, plain, over, int(bool(change)))
    inferred += _inferred(options, setting)
    return Problem(log, real, setting, plain, change, own, tuple(notes), tuple(inferred))


def learn_log(
    log: Log, learnt: Ints, setting: Setting, bounds: Bounds, *, max_episodes: int | None
) -> Knowledge:
    """Return what an agent would have learnt from the rows numbered `learnt`, before its first episode."""
    state, nexts = log.state[learnt], log.next_state[learnt]
    pair = setting.pair_index[state, log.action[learnt]]
    rewards = log.scaled_rewards(setting)[learnt]
    episodes = int((log.t[learnt] == 0).sum())
    total = None if max_episodes is None else max_episodes + episodes
    knowledge = Knowledge.empty(setting, bounds, episodes=max_episodes, total_episodes=total)
    # Radii follow from the counts alone. Those of hoeffding are the cheapest to update, so all but the last
    # step of each pair are counted with them, and that last step computes the requested ones.
    swift = Knowledge.empty(setting, Bounds(family="hoeffding"), episodes=1, total_episodes=1)
    distinct = len(np.unique(pair * setting.n_states + nexts))
    swift.make_room(2 * ROOM * (distinct + setting.n_pairs))
    last = np.zeros(len(pair), dtype=bool)
    last[len(pair) - 1 - np.unique(pair[::-1], return_index=True)[1]] = True
    for rows, radii in ((~last, swift.radii), (last, knowledge.radii)):
        steps = (state[rows], pair[rows], nexts[rows], rewards[rows])
        learn_into(swift.rows, radii, *steps, int(rows.sum()))
    return Knowledge(swift.rows, knowledge.radii)


def make_prior(prior: ArrayLike | str | None, log: Log, learnt: Bools, setting: Setting) -> tuple[Ints, str]:
    """Return the policy that decides the baseline's ties, (S,) actions or -1, and its name.

    `logged` is the action seen most often in each state, -1 where nothing was seen.
    """
    nothing = np.full(setting.n_states, -1, dtype=np.int64)
    if prior is None:
        return nothing, "none"
    if not isinstance(prior, str):
        try:
            return np.array(as_policy("prior", np.asarray(prior), setting)), "given"
        except (TypeError, ValueError, OverflowError) as problem:
            if isinstance(problem, CharyError):
                raise
            raise InvalidSetting(
                f"'prior' must be an array of actions, got {type(prior).__name__}."
            ) from problem
    if check_choice("prior", prior, ["none", "logged"]) == "none":
        return nothing, "none"
    return logged_actions(log, learnt, setting), "logged"


def _rewards(options: PreviewOptions, S: int, A: int) -> Floats | None:
    """Return the known rewards, (S, A) or (S, A, S), None where they are estimated."""
    given = options.rewards
    if given is None:
        return None
    if isinstance(given, (str, Path)):
        return read_rewards(given, n_states=S, n_actions=A, columns=options.columns, labels=options.labels)
    return reward_table(given, np.ones((S, A), dtype=bool))


def _own(options: PreviewOptions, plain: Setting, over: Ints, added: int) -> OwnBaseline | None:
    """Return the user's policy with its role; in a state that was added it plays 0.

    In the states `over` every logged episode had ended.
    """
    given = options.baseline
    if given is None:
        return None
    if isinstance(given, (str, Path)) and Path(given).suffix in SUFFIXES:
        table = read_policy(
            given,
            n_states=plain.n_states,
            horizon=plain.horizon,
            columns=options.columns,
            labels=options.labels,
            first_step=options.first_step,
        )
        # Where there is no choice, nothing needs to be declared.
        free = plain.allowed.sum(axis=1) > 1
        free[over] = False
        missing = np.flatnonzero(((table == NOTHING).reshape(-1, plain.n_states).any(axis=0)) & free)
        if len(missing):
            texts = (options.labels or {}).get("state")
            named = [texts[s] if texts else str(s) for s in missing[:NAMED]]
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            raise InvalidSetting(
                f"'baseline' must have an action for every state, got none for {', '.join(named)}{more}. "
                "Add a row for each."
            )
        first = plain.allowed.argmax(axis=1)
        given = np.where(table == NOTHING, first, table)
    own = OwnBaseline.declare(given, plain, role=options.role)
    return replace(own, table=np.pad(own.table, ((0, 0), (0, added))))


def _scale(log: Log, options: PreviewOptions, rewards: Floats | None, notes: list[str]) -> RewardScale:
    earned = log.reward if rewards is None else np.append(rewards[np.isfinite(rewards)], log.reward)
    seen = (float(earned.min()), float(earned.max()))
    given = [
        None if value is None else check_real(name, value, low=-np.inf, open_low=True, open_high=True)
        for name, value in (("reward_low", options.reward_low), ("reward_high", options.reward_high))
    ]
    bottom = seen[0] if given[0] is None else given[0]
    top = seen[1] if given[1] is None else given[1]
    if log.terminated.any():
        # What follows an ending is worth 0, which must be in the range.
        bottom, top = min(bottom, 0.0), max(top, 0.0)
    if top == bottom and given[1] is None:
        top = bottom + max(1.0, abs(bottom))
    if not (bottom < top and top - bottom < np.inf):
        raise InvalidSetting(
            f"'reward_low' must be below 'reward_high', and not by an overflow, got {bottom:g} and {top:g}."
        )
    if None in given and rewards is None:
        notes.append(
            f"The range of rewards, {bottom:g} to {top:g}, was taken from the log: if a reward can be "
            "outside it, no bound below holds. Declare --reward-low and --reward-high."
        )
    return RewardScale(bottom, top)


def _cap(cap: float | None, scale: RewardScale) -> float | None:
    if cap is None:
        return None
    most = check_real("value_cap", cap, low=0.0, open_low=True, open_high=True)
    if scale.low != 0.0:
        raise InvalidSetting(
            f"'value_cap' can be given only where rewards start at 0, got a lowest reward of {scale.low:g}. "
            "Leave it out."
        )
    return most


def _inferred(options: PreviewOptions, setting: Setting) -> list[str]:
    """Return what was read off the log instead of declared: no promise that needs it can be certified."""
    read = {
        f"horizon {setting.horizon}": options.horizon is None,
        f"rewards in [{setting.scale.low:.6g}, {setting.scale.high:.6g}]": options.rewards is None
        and (options.reward_low is None or options.reward_high is None),
        "the states": options.n_states is None,
        "the actions": options.n_actions is None,
        "which actions are allowed where": options.allowed == "seen",
    }
    return [f"{name}{READ_OFF}" for name, inferred in read.items() if inferred]


def _assumed(options: PreviewOptions) -> list[str]:
    """Return what was assumed because it was not declared."""
    notes = []
    if options.n_states is None or options.n_actions is None:
        notes.append(
            "States and actions are those of the log: if others can occur, declare --n-states and "
            "--n-actions."
        )
    if options.allowed == "all":
        notes.append(
            "A log does not show which actions are allowed where: all of them were assumed to be allowed "
            "everywhere. With --allowed seen only those seen in a state are."
        )
    else:
        notes.append(
            "Only actions seen in a state were assumed to be allowed there: what was never tried is never "
            "proposed."
        )
    if options.support is None and options.bonus != POSTERIOR:
        notes.append(
            "The bounds assume that any state can follow any other. If few can, declare how many with "
            "--support: charges fall."
        )
    return notes
