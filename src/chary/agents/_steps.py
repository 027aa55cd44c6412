"""Steps among observations: transitions checked, and decided steps as arrays of a file and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents._episodes import Played, Transition
from chary.errors import InvalidAction, InvalidData, as_float, check_index, check_truth, check_type
from chary.shield import Decision
from chary.shield.worlds import Vote
from chary.storage.sealed import as_array
from chary.texts import shown

Arrays = dict[str, NDArray[Any]]

# The numbers of a decision, in scaled units; its vote and its span are kept elsewhere.
NUMBERS = Decision._fields.index("vote")
# In place of what was reported as taken.
NO_REPORT = -2


def as_transition(
    transition: Transition, n_actions: int, observation: Callable[[str, Any], NDArray[Any]]
) -> Transition:
    """Return a transition between observations with plain numbers; `observation` checks a state by name.

    Raises:
        InvalidData: if it is not a Transition of finite numbers.
        InvalidAction: if its action is not one of `n_actions`.
    """
    check_type("transition", transition, Transition, "a Transition", error=InvalidData)
    action = check_index("action", transition.action, n_actions, error=InvalidAction)
    state = observation("state", transition.state)
    reached = observation("next_state", transition.next_state)
    reward = as_float(transition.reward)
    if not math.isfinite(reward):
        raise InvalidData(f"'reward' must be a finite number, got {shown(transition.reward)}.")
    ended = check_truth("terminated", transition.terminated, error=InvalidData)
    return Transition(state, action, reward, reached, ended)


def decision_rows(steps: Sequence[Played[Any]]) -> NDArray[np.float64]:
    """Return the decisions of n steps, (n, 7), votes aside."""
    rows = np.array([step.decision[:NUMBERS] for step in steps], dtype=np.float64)
    return rows.reshape(len(steps), NUMBERS)


def vote_rows(steps: Sequence[Played[Any]]) -> NDArray[np.float64]:
    """Return the votes on n steps, (n, 5), a row of NaN where there was none."""
    none = (np.nan,) * len(Vote._fields)
    rows = np.array([step.decision.vote or none for step in steps], dtype=np.float64)
    return rows.reshape(len(steps), len(none))


def votes_from(name: str, arrays: Mapping[str, NDArray[Any]], n: int) -> list[Vote | None]:
    """Return n votes that `vote_rows` made an array of; None for all where there is no such array.

    Raises:
        InvalidData: if one cannot have been cast.
    """
    if name not in arrays:
        return [None] * n
    rows = as_array(name, arrays, (n, len(Vote._fields)), np.float64)
    afforded, within, worlds, deficit, worst = rows.T
    fits = np.isin(afforded, (0, 1)) & wholes(worlds, 2, np.inf) & wholes(within, 0, np.inf)
    fits &= (within <= worlds) & (deficit >= 0) & (worst >= 0)
    if not (fits | np.isnan(rows).all(axis=1)).all():
        raise InvalidData(f"{name!r} must hold votes of worlds, got others.")
    return [
        None if np.isnan(row[0]) else Vote(bool(row[0]), int(row[1]), int(row[2]), row[3], row[4])
        for row in rows.tolist()
    ]


def decisions_from(
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    n: int,
    n_actions: int,
    votes: Sequence[Vote | None] | None = None,
    span: float = 1.0,
) -> list[Decision]:
    """Return n decisions among `n_actions` actions that `decision_rows` made an array of.

    In files of earlier versions the deficit may fall where `votes` decide, and what is booked be negative.
    `span` is the number of the user's units per scaled one.

    Raises:
        InvalidData: if one cannot have been made.
    """
    rows = as_array(name, arrays, (n, NUMBERS), np.float64)
    told = [None] * n if votes is None else list(votes)
    voted = np.array([vote is not None for vote in told], dtype=bool)
    action, explored, charge, deficit, remaining, plan, chain = rows.T
    fits = wholes(action, 0, n_actions) & np.isin(explored, (0, 1))
    fits &= (
        np.isfinite(charge)
        & ((charge >= 0) | voted)
        & np.isfinite(deficit)
        & (deficit >= 0)
        & (remaining >= 0)
    )
    fits &= wholes(plan, 0, np.inf) & wholes(chain, -1, np.inf)
    if not fits.all():
        raise InvalidData(f"{name!r} must hold decisions of this problem, got others.")
    return [
        Decision(int(a), bool(e), c, d, r, int(p), int(m), vote, span)
        for (a, e, c, d, r, p, m), vote in zip(rows.tolist(), told, strict=True)
    ]


def observed_steps(steps: Sequence[Played[NDArray[Any]]], shape: tuple[int, ...], prefix: str) -> Arrays:
    """Return n steps among observations of `shape` by column; `known` marks the outcomes that are known."""
    n = len(steps)
    outcomes = [step.outcome or Transition(step.state, 0, 0.0, step.state, False) for step in steps]
    told = any(step.taken is not None for step in steps)
    return {
        **({f"{prefix}taken": report_rows(steps)} if told else {}),
        f"{prefix}decision": decision_rows(steps),
        f"{prefix}state": np.array([step.state for step in steps]).reshape((n, *shape)),
        f"{prefix}known": np.array([step.outcome is not None for step in steps], dtype=bool),
        f"{prefix}action": np.array([each.action for each in outcomes], dtype=np.int64),
        f"{prefix}reward": np.array([each.reward for each in outcomes], dtype=np.float64),
        f"{prefix}next_state": np.array([each.next_state for each in outcomes]).reshape((n, *shape)),
        f"{prefix}terminated": np.array([each.terminated for each in outcomes], dtype=bool),
    }


def steps_from(
    arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...], prefix: str, *, n_actions: int, plan: int
) -> list[Played[NDArray[Any]]]:
    """Return the steps that `observed_steps` made arrays of, decided by the plan of this number.

    Raises:
        InvalidData: if they are not steps among observations of `shape` with `n_actions` actions.
    """
    names = {name: prefix + name for name in ("decision", "known", "action", "reward", "terminated")}
    n = len(np.atleast_1d(arrays[names["known"]]))
    decisions = decisions_from(names["decision"], arrays, n, n_actions)
    known = as_array(names["known"], arrays, (n,), bool).tolist()
    actions = as_array(names["action"], arrays, (n,), np.int64, below=n_actions).tolist()
    rewards = as_array(names["reward"], arrays, (n,), np.float64)
    ended = as_array(names["terminated"], arrays, (n,), bool).tolist()
    states, reached = (np.array(arrays[prefix + name]) for name in ("state", "next_state"))
    fits = np.isfinite(rewards).all() and all(decision.plan == plan for decision in decisions)
    for array in (states, reached):
        fits = (
            fits and array.dtype.kind in "biuf" and array.shape == (n, *shape) and not np.isinf(array).any()
        )
    if not fits:
        raise InvalidData(f"{prefix!r} must hold steps of this problem, got others.")
    played = [action if is_known else None for action, is_known in zip(actions, known, strict=True)]
    reports = reports_from(f"{prefix}taken", arrays, played, n_actions)
    steps = []
    for i, (decision, is_known) in enumerate(zip(decisions, known, strict=True)):
        outcome = Transition(states[i], actions[i], float(rewards[i]), reached[i], ended[i])
        steps.append(Played(decision, states[i], outcome if is_known else None, taken=reports[i]))
    return steps


def report_rows(steps: Sequence[Played[Any]]) -> NDArray[np.int64]:
    """Return what was reported as taken at each of n steps, (n,)."""
    told = [NO_REPORT if step.taken is None else step.taken for step in steps]
    return np.array(told, dtype=np.int64)


def reports_from(
    name: str, arrays: Mapping[str, NDArray[Any]], played: Sequence[int | None], n_actions: int
) -> list[int | None]:
    """Return what `report_rows` made an array of; None for all where there is no such array.

    Args:
        name: The name of the array.
        arrays: The arrays of a file.
        played: The actions of the outcomes, None for those that are not known.
        n_actions: The number of actions.

    Raises:
        InvalidData: if a report disagrees with the outcome of its step.
    """
    if name not in arrays:
        return [None] * len(played)
    taken: list[int] = as_array(name, arrays, (len(played),), np.int64).tolist()
    for report, action in zip(taken, played, strict=True):
        if not NO_REPORT <= report < n_actions or (report != NO_REPORT and action not in (None, report)):
            raise InvalidData(f"{name!r} must be actions that agree with the outcomes, got others.")
    return [None if report == NO_REPORT else report for report in taken]


def wholes(column: NDArray[Any], low: float, below: float) -> NDArray[np.bool_]:
    """Return which entries are whole numbers in low..below - 1."""
    return np.asarray((column >= low) & (column < below) & (column == np.floor(column)))
