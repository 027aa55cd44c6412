"""Agreement of a log with what is known about its problem; faults are raised or collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from chary.arrays import Bools, Ints
from chary.data._columns import Places, shown
from chary.errors import InvalidSetting, check_integer
from chary.mdp.setting import REWARD_TOLERANCE, RewardScale, Setting, check_setting

if TYPE_CHECKING:
    from chary.data.logs import Log


def check_known(
    log: Log,
    places: Places,
    *,
    setting: Setting | None = None,
    reward_range: tuple[float, float] | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
) -> None:
    """Compare the log with what is known, see `checked`; faults go where `places` collects them."""
    if setting is not None:
        if not (reward_range is None and n_states is None and n_actions is None):
            raise InvalidSetting(
                "'setting' must be given alone, got reward_range, n_states or n_actions as well: it "
                "contains them already."
            )
        check_shape(log, setting, places)
        if not places.faults:
            log = log.with_endings_of(setting)
            places = places._replace(number=log.row)
            _check_rewards(log, setting.scale, REWARD_TOLERANCE * setting.scale.span, places)
            _check_declared(log, setting, places)
            _check_endings(log, setting, places)
            _check_support(log, setting, places)
    if n_states is not None:
        S = check_integer("n_states", n_states, minimum=1)
        _check_below(log, "state", S, places)
        _check_below(log, "next_state", S, places)
    if n_actions is not None:
        _check_below(log, "action", check_integer("n_actions", n_actions, minimum=1), places)
    if reward_range is not None:
        _check_rewards(log, RewardScale.of(reward_range), 0.0, places)


def check_shape(log: Log, setting: Setting, places: Places) -> None:
    """Refuse a state, an action or a step that the setting does not have."""
    check_setting(setting)
    _check_below(log, "state", setting.n_states, places)
    _check_below(log, "next_state", setting.n_states, places)
    _check_below(log, "action", setting.n_actions, places)
    if places.faults:
        # What follows looks states and actions up.
        return
    places.refuse(
        "state",
        "not be terminal where an action is played",
        setting.terminal[log.state],
        lambda i: str(log.state[i]),
        "Leave it out of the setting's terminal states, or end the episode before.",
    )
    places.refuse(
        "action",
        "be allowed in its state",
        setting.pair_index[log.state, log.action] < 0,
        lambda i: f"{log.action[i]} in state {log.state[i]}",
    )
    places.refuse(
        "t",
        f"be less than the horizon, {setting.horizon}",
        log.t >= setting.horizon,
        lambda i: str(log.t[i]),
        f"Declare a horizon of {log.horizon} or more.",
    )


def _check_below(log: Log, name: str, limit: int, places: Places) -> None:
    column: Ints = getattr(log, name)
    places.refuse(name, f"lie in 0..{limit - 1}", column >= limit, lambda i: str(column[i]))


def _check_rewards(log: Log, scale: RewardScale, tolerance: float, places: Places) -> None:
    wrong = ~((log.reward >= scale.low - tolerance) & (log.reward <= scale.high + tolerance))
    places.refuse(
        "reward",
        f"lie in [{scale.low:g}, {scale.high:g}]",
        wrong,
        lambda i: shown(log.reward[i]),
        "Declare the range of your rewards.",
    )


def _check_declared(log: Log, setting: Setting, places: Places) -> None:
    """Raise InvalidData at a reward that differs from the declared one."""
    known = setting.known
    if known is None:
        return
    pair = setting.pair_index[log.state, log.action]
    listed = np.repeat(np.arange(setting.n_pairs), np.diff(known.start)) * setting.n_states
    # One more entry that equals nothing, for what is beyond the list.
    listed = np.append(listed + known.successor, setting.n_pairs * setting.n_states)
    rewards = np.append(known.reward, np.nan)
    wanted = pair * setting.n_states + log.next_state
    place = np.searchsorted(listed, wanted)
    found = listed[place] == wanted
    low = np.where(found, rewards[place], known.other_low[pair])
    high = np.where(found, rewards[place], known.other_high[pair])
    scaled = (log.reward - setting.scale.low) / setting.scale.span
    wrong = ~((scaled >= low - REWARD_TOLERANCE) & (scaled <= high + REWARD_TOLERANCE))
    places.refuse(
        "reward",
        "be the one the setting declares",
        wrong,
        lambda i: f"{shown(log.reward[i])}, {scaled[i]:g} once scaled and not {low[i]:g} to {high[i]:g},",
        "Use reward='estimated' if it is not a known function of the transition.",
    )


def _check_support(log: Log, setting: Setting, places: Places) -> None:
    """Raise InvalidData at one successor more of a pair than declared, in the order of the log."""
    pair = setting.pair_index[log.state, log.action]
    _, news = np.unique(pair * setting.n_states + log.next_state, return_index=True)
    news = np.sort(news)
    order = np.argsort(pair[news], kind="stable")
    ordered = pair[news][order]
    rank = np.arange(len(news)) - np.searchsorted(ordered, ordered)
    wrong = np.zeros(len(log), dtype=bool)
    wrong[news[order]] = rank >= setting.support[ordered]
    places.refuse(
        "support",
        "cover the successors of every pair",
        wrong,
        lambda i: (
            f"{log.next_state[i]} as one more than {setting.support[pair[i]]} of state {log.state[i]}, "
            f"action {log.action[i]},"
        ),
        "Declare more, or leave it out.",
    )


def ended_by_clock(log: Log) -> Bools:
    """Return the endings that seem to mark only the last step of full episodes, (N,).

    Every full episode is said to have terminated, and in states that others pass through.
    """
    last = log.t == log.horizon - 1
    starts, leads = log.past_endings()
    passed = np.union1d(log.state[starts], log.next_state[leads])
    wrong = np.asarray(last & log.terminated)
    if log.horizon < 2 or not log.terminated[last].all() or not np.isin(log.next_state[wrong], passed).any():
        return np.zeros(len(log), dtype=bool)
    return wrong


def _check_endings(log: Log, setting: Setting, places: Places) -> None:
    """Raise InvalidData at a state that ends some episodes and not others."""
    starts, leads = log.past_endings(np.flatnonzero(setting.terminal))
    places.refuse(
        "terminated",
        "be true whenever a state is reached that ends other episodes",
        starts | leads,
        lambda i: (
            f"a step from such a state, {log.state[i]},"
            if starts[i]
            else f"a step to such a state, {log.next_state[i]},"
        ),
        "Give endings a separate state: Setting.declare(early_endings=True), or log.with_own_ending()."
        + (
            " If only the clock ended them: log.cut_at() (--cut-at-horizon)."
            if ended_by_clock(log).any()
            else ""
        ),
    )
    if setting.scale.low != 0.0:
        places.refuse(
            "terminated",
            f"be false with a reward offset, here {setting.scale.low:g}: it would reward ending early",
            log.terminated,
            lambda i: "true",
            "If only the clock ended them: log.cut_at() (--cut-at-horizon)."
            if ended_by_clock(log).any()
            else "Use Setting.declare(early_endings=True), or pad with reward 0: log.padded(horizon).",
        )
