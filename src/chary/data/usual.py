"""Today's policy, as far as a log shows it."""

from __future__ import annotations

import numpy as np

from chary.arrays import Bools, Ints
from chary.data.logs import Log, check_log
from chary.mdp.setting import Setting, check_setting


def usual_policy(log: Log, setting: Setting) -> Ints:
    """Return the action logged most often in each state, (S,): today's policy, as far as a log shows it.

    `chary plan` compares the learnt baseline with it where no policy is given. Where nothing was logged it is
    the lowest allowed action. A separate state for early endings has no entry. It is one action per state: a
    policy that depends on the step or draws its actions is another one.

    Args:
        log: Logged decisions.
        setting: The problem they come from.

    Raises:
        InvalidData: if the log does not agree with the setting.

    Example:
        >>> log = Log(episode=[0, 1, 2], t=[0, 0, 0], state=[0, 0, 0], action=[2, 1, 2], reward=[0, 1, 1],
        ...           next_state=[1, 1, 1], terminated=[False, False, False])
        >>> usual_policy(log, Setting.declare(n_states=2, n_actions=3, horizon=1)).tolist()
        [2, 0]
    """
    check_log(log)
    check_setting(setting)
    log.checked(setting=setting)
    S = setting.n_states if setting.ending is None else setting.ending
    found = logged_actions(log, np.ones(len(log), dtype=bool), setting)[:S]
    return np.where(found >= 0, found, (setting.pair_index[:S] >= 0).argmax(axis=1)).astype(np.int64)


def logged_actions(log: Log, rows: Bools, setting: Setting) -> Ints:
    """Return the action that some rows have most often in each state, (S,), -1 where they have none."""
    counts = np.zeros((setting.n_states, setting.n_actions), dtype=np.int64)
    np.add.at(counts, (log.state[rows], log.action[rows]), 1)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1).astype(np.int64)
