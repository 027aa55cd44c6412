"""What a critic is: values of all actions for a batch of observations, checked where they enter."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats
from chary.errors import CharyError, InvalidData, InvalidSetting, check_integer

__all__ = ["Critic", "FunctionCritic", "checked_q_values"]

Array = NDArray[Any]

# What a model raises when it cannot digest its input; anything else is a fault to be seen as it is.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
LONGEST_NAME = 60


@runtime_checkable
class Critic(Protocol):
    """What values actions: `SB3Critic`, `D3RLPyCritic`, `FunctionCritic`, or anything of your own.

    While episodes are open it must not be trained: the shield relies on answers that do not change.
    """

    def q_values(self, observations: Array, /) -> ArrayLike:
        """Return the values of all actions, (B, A), in the user's reward units, for (B, ...) observations."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionCritic:
    """A function as a critic.

    Args:
        function: Takes (B, ...) observations and returns (B, A) values.
        n_actions: The number A of actions.

    Raises:
        InvalidSetting: if `function` cannot be called.

    Example:
        >>> critic = FunctionCritic(lambda observations: observations @ np.array([[1.0, 2.0]]), n_actions=2)
        >>> critic.q_values(np.array([[3.0]]))
        array([[3., 6.]])
    """

    function: Callable[[Array], ArrayLike]
    n_actions: int

    def __post_init__(self) -> None:
        refuse_paths("function", self.function)
        if not callable(self.function):
            raise InvalidSetting(
                f"'function' must be callable, got {type(self.function).__name__}. "
                "Pass what maps (B, ...) observations to (B, A) values."
            )
        check_integer("n_actions", self.n_actions, minimum=1)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"FunctionCritic({name})"

    def q_values(self, observations: Array, /) -> ArrayLike:
        """Return the function's values, (B, A)."""
        return self.function(observations)


def checked_q_values(critic: Critic, observations: ArrayLike, n_actions: int | None = None) -> Floats:
    """Ask a critic, and return its values as (B, A) floats once they are what they must be.

    Args:
        critic: Whom to ask.
        observations: (B, ...) numbers, one row an observation.
        n_actions: The number A of actions; None takes whatever number the critic answers for.

    Raises:
        InvalidSetting: if `critic` is none.
        InvalidData: naming the critic, if it fails or its values have the wrong shape or are not finite.

    Example:
        >>> checked_q_values(FunctionCritic(lambda x: x * [1, 2], n_actions=2), [[3.0], [4.0]], n_actions=2)
        array([[3., 6.],
               [4., 8.]])
    """
    check_critic_type("critic", critic)
    asked = as_observations("observations", observations)
    A = None if n_actions is None else check_integer("n_actions", n_actions, minimum=1)
    name = name_of(critic)
    try:
        values = np.asarray(critic.q_values(asked))
    except CharyError:
        raise
    except FAULTS as error:
        raise InvalidData(
            f"'q_values' of {name} must answer for observations of shape {asked.shape}, got "
            f"{type(error).__name__}: {error}. Pass observations as the model was trained on."
        ) from error
    if values.dtype.kind not in "iuf":
        raise InvalidData(f"'q_values' of {name} must be real numbers, got {values.dtype}.")
    B = len(asked)
    if values.ndim != 2 or values.shape[0] != B or values.shape[1] != (A or max(values.shape[1], 1)):
        raise InvalidData(
            f"'q_values' of {name} must have shape ({B}, {A or 'A'}), one row an observation and one column "
            f"an action, got {values.shape}."
        )
    finite = np.isfinite(values)
    if not finite.all():
        row, a = (int(i) for i in np.argwhere(~finite)[0])
        raise InvalidData(
            f"'q_values' of {name} must be finite, got {float(values[row, a])!r} for observation {row}, "
            f"action {a}. A network that diverged cannot guard a budget: train it anew."
        )
    return values.astype(np.float64)


def as_observations(name: str, observations: ArrayLike) -> Array:
    """Return (B, ...) observations as an array of finite numbers with B >= 1, or raise InvalidData."""
    array = as_numbers(name, observations)
    if array.ndim == 0 or len(array) == 0:
        raise InvalidData(
            f"{name!r} must have at least one row, an observation each, got shape {array.shape}. "
            "Put a single observation in a list."
        )
    return array


def as_numbers(name: str, values: ArrayLike) -> Array:
    """Return values as an array of finite numbers or booleans, or raise InvalidData."""
    try:
        array = np.asarray(values)
    except FAULTS as error:
        raise InvalidData(
            f"{name!r} must be an array of numbers, got {type(values).__name__}: {error}."
        ) from error
    if array.dtype.kind not in "biuf":
        raise InvalidData(
            f"{name!r} must be an array of numbers, got {type(values).__name__} of {array.dtype}. "
            "Flatten observations that are dictionaries."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidData(f"{name!r} must be finite, got {float(array[~np.isfinite(array)][0])!r}.")
    return array


def as_masks(name: str, masks: ArrayLike, shape: tuple[int, ...]) -> Bools:
    """Return masks of allowed actions as booleans of `shape`, each with one action at least."""
    array = as_numbers(name, masks)
    if array.shape != shape or not np.isin(array, (0, 1)).all():
        raise InvalidData(
            f"{name!r} must hold true or false for every action, shape {shape}, got {array.dtype} of shape "
            f"{array.shape}."
        )
    allowed: Bools = array.astype(np.bool_)
    if not allowed.any(axis=-1).all():
        raise InvalidData(f"{name!r} must allow at least one action, got none.")
    return allowed


def check_critic_type(name: str, critic: object) -> None:
    """Raise InvalidSetting unless `critic` has `q_values`; say what to do with what it is instead."""
    refuse_paths(name, critic)
    if isinstance(critic, type) or not isinstance(critic, Critic):
        way_out = "Wrap a function in FunctionCritic, a model in SB3Critic or D3RLPyCritic."
        raise InvalidSetting(
            f"{name!r} must have a method q_values(observations), got {type(critic).__name__}. {way_out}"
        )


def refuse_paths(name: str, model: object) -> None:
    """Raise InvalidSetting if `model` is where a model lies rather than the model."""
    if isinstance(model, (str, bytes, Path)):
        raise InvalidSetting(
            f"{name!r} must be a live model, got the path {model!r}: model files are pickled, and opening "
            "one runs whatever code is in it. Load it with its own library where you trust the file, and "
            "pass the model."
        )


def installed(library: str, extra: str) -> Any:
    """Return a library that is imported only where one of its models is handed in."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"{library!r} must be installed for its models, got {error}. Run pip install 'chary[{extra}]'."
        ) from error


def name_of(critic: object) -> str:
    """Return how errors call a critic: its own description if it has a short one, else its class."""
    kind = type(critic)
    own = repr(critic) if kind.__repr__ is not object.__repr__ else kind.__name__
    return own if len(own) <= LONGEST_NAME else kind.__name__
