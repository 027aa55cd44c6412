"""The simulator for NumPy: five days under one action, for one patient or for many at once.

Adaptive Dormand-Prince 5(4) at a relative tolerance of 1e-7, compiled: `_kernels.py`. A state that
cannot be integrated raises an error; NaN is never returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Floats
from chary.envs.hiv import parameters as hiv
from chary.envs.hiv._kernels import first_wrong, step_into
from chary.errors import CharyError, InvalidAction, InvalidData, as_whole
from chary.texts import shown

N_ACTIONS, N_CONCENTRATIONS = len(hiv.EFFICACIES), len(hiv.CONCENTRATIONS)


def step(state: ArrayLike, action: object, *, patient: object = "base") -> tuple[Floats, float]:
    """Treat one patient by `action` for five days.

    Args:
        state: The six concentrations T1, T2, T1*, T2*, V, E; none negative.
        action: 0 nothing, 1 reverse transcriptase inhibitor, 2 protease inhibitor, 3 both.
        patient: `base` or a number in 0..5.

    Returns:
        The six concentrations after it, and the unscaled reward.

    Raises:
        InvalidData: if a concentration is negative or not finite, or the equations cannot be integrated.
        InvalidAction: if there is no such action.
        UnknownName: if there is no such patient.

    Example:
        >>> from chary.envs.hiv import START
        >>> after, reward = step(START, 3)
        >>> round(float(after[4])), round(reward)
        (3461, 16019)
    """
    vector = hiv.patient(patient).vector
    before = check_states(state, dimensions=1)[None]
    after, rewards = _advance(np.array([vector]), before, np.array([check_action(action)]))
    return after[0], float(rewards[0])


def step_many(
    states: ArrayLike, actions: ArrayLike, *, patient: object | Sequence[object] = "base"
) -> tuple[Floats, Floats]:
    """Treat B patients for five days, each by its own action.

    Args:
        states: Concentrations, shape (B, 6).
        actions: Whole numbers in 0..3, shape (B,).
        patient: One for all, or a sequence of B.

    Returns:
        Concentrations after it, shape (B, 6), and unscaled rewards, shape (B,).

    Raises:
        InvalidData: if a concentration is negative or not finite, shapes do not fit, or the equations cannot
            be integrated.
        InvalidAction: if there is no such action.
        UnknownName: if there is no such patient.

    Example:
        >>> from chary.envs.hiv import START
        >>> step_many([START, START], [0, 3], patient=["base", 5])[0].shape
        (2, 6)
    """
    before = check_states(states, dimensions=2)
    lanes = len(before)
    played = _checked_actions(actions, lanes)
    if isinstance(patient, (Sequence, np.ndarray)) and not isinstance(patient, str):
        if len(patient) != lanes:
            raise InvalidData(f"'patient' must be one or {lanes}, one per state, got {len(patient)}.")
        vectors = np.array([hiv.patient(each).vector for each in patient]).reshape(lanes, len(hiv.NAMES))
    else:
        vectors = np.tile(hiv.patient(patient).vector, (lanes, 1))
    return _advance(vectors, before, played)


def observe(states: ArrayLike, *, standardise: bool = True) -> Floats:
    """Return log10 of concentrations, shape (..., 6), each clipped to -5..8, standardised by default.

    Raises:
        InvalidData: if a concentration is negative or not finite, or there are not six.

    Example:
        >>> observe([1e5, 10, 1e4, 0, 1e5, 100], standardise=False).tolist()
        [5.0, 1.0, 4.0, -5.0, 5.0, 2.0]
    """
    return seen_of(check_states(states), standardise=standardise)


def seen_of(states: Floats, *, standardise: bool) -> Floats:
    """Return the same as `observe`, for concentrations that were checked."""
    # Not np.clip, which takes longer than all the rest.
    logs: Floats = np.log10(np.minimum(np.maximum(states, 10.0**hiv.LOG_LOW), 10.0**hiv.LOG_HIGH))
    return (logs - hiv.OBSERVATION_MEAN) / hiv.OBSERVATION_STD if standardise else logs


def check_states(states: object, *, dimensions: int | None = None) -> Floats:
    """Return concentrations as a new array of floats with last axis 6; `dimensions` is the number of axes.

    Raises:
        InvalidData: if they are not numbers, do not have that shape, are negative or not finite.
    """
    try:
        array: Floats = np.array(states, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidData(f"'state' must contain six concentrations, got {shown(states)}.") from None
    wrong_axes = dimensions is not None and array.ndim != dimensions
    if array.ndim == 0 or wrong_axes or array.shape[-1] != N_CONCENTRATIONS:
        shape = {1: "(6,)", 2: "(B, 6)"}.get(dimensions or 0, "(..., 6)")
        raise InvalidData(f"'state' must have shape {shape}, got an array of shape {array.shape}.")
    # Compiled: checking six numbers with NumPy would take half as long as the kernel's integration.
    flat = array.reshape(-1)
    wrong = first_wrong(flat)
    if wrong >= 0:
        name = hiv.CONCENTRATIONS[wrong % N_CONCENTRATIONS]
        raise InvalidData(
            f"'state' must contain concentrations that are finite and >= 0, got {name} = {flat[wrong]}."
        )
    return array


def check_action(action: object) -> int:
    """Return an action as an int.

    Raises:
        InvalidAction: if it is not a whole number in 0..3.
    """
    a = as_whole(action)
    if a is None or not 0 <= a < N_ACTIONS:
        raise InvalidAction(f"'action' must be a whole number in 0..{N_ACTIONS - 1}, got {shown(action)}.")
    return a


def _checked_actions(actions: object, lanes: int) -> NDArray[np.int64]:
    try:
        array = np.asarray(actions)
    except ValueError:
        array = np.array(None)
    if array.shape != (lanes,) or not (np.issubdtype(array.dtype, np.integer) or lanes == 0):
        raise InvalidAction(f"'actions' must be {lanes} whole numbers, one per state, got {shown(actions)}.")
    wrong = (array < 0) | (array >= N_ACTIONS)
    if wrong.any():
        raise InvalidAction(f"'actions' must lie in 0..{N_ACTIONS - 1}, got {array[wrong][0]}.")
    return array.astype(np.int64)


def _advance(vectors: Floats, before: Floats, actions: NDArray[np.int64]) -> tuple[Floats, Floats]:
    after, rewards = np.empty_like(before), np.empty(len(before))
    failed = step_into(after, rewards, vectors, hiv.EFFICACIES, before, actions)
    if failed >= 0:
        raise could_not_integrate(before[failed], int(actions[failed]))
    return after, rewards


def could_not_integrate(state: Any, action: int) -> CharyError:
    """Return the error that names the state at which the integrator failed."""
    shown = ", ".join(f"{name} = {value:g}" for name, value in zip(hiv.CONCENTRATIONS, state, strict=True))
    return InvalidData(
        f"'state' must be one that can be integrated over five days, got {shown} under action {action}, "
        "where the concentrations change too fast. Start closer to the concentrations of patients."
    )
