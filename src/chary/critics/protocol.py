"""The protocol of a critic: values of all actions for a batch of observations, checked on entry."""

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

Array = NDArray[Any]

# Errors that a model raises for input of the wrong kind; any other error is a fault and not caught.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
LONGEST_NAME = 60


@runtime_checkable
class Critic(Protocol):
    """An object that values actions: `SB3Critic`, `D3RLPyCritic`, `FunctionCritic`, or your own class.

    It must not be trained while episodes are open: the shield relies on values that do not change.
    """

    def q_values(self, observations: Array, /) -> ArrayLike:
        """Return the values of all actions, (B, A), in the user's reward units, for (B, ...) observations."""


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
                "Pass a function from (B, ...) observations to (B, A) values."
            )
        check_integer("n_actions", self.n_actions, minimum=1)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"FunctionCritic({name})"

    def q_values(self, observations: Array, /) -> ArrayLike:
        """Return the function's values, (B, A)."""
        return self.function(observations)


def checked_q_values(critic: Critic, observations: ArrayLike, n_actions: int | None = None) -> Floats:
    """Call a critic, and return its checked values as (B, A) floats.

    Args:
        critic: The critic.
        observations: (B, ...) numbers, one row per observation.
        n_actions: The number A of actions; None accepts any number.

    Raises:
        InvalidSetting: if `critic` is not a critic.
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
            f"'q_values' of {name} must accept observations of shape {asked.shape}, got "
            f"{type(error).__name__}: {error}. Pass observations of the kind that the model was trained on."
        ) from error
    if values.dtype.kind not in "iuf":
        raise InvalidData(f"'q_values' of {name} must be real numbers, got {values.dtype}.")
    B = len(asked)
    if values.ndim != 2 or values.shape[0] != B or values.shape[1] != (A or max(values.shape[1], 1)):
        raise InvalidData(
            f"'q_values' of {name} must have shape ({B}, {A or 'A'}), one row per observation and one column "
            f"per action, got {values.shape}."
        )
    finite = np.isfinite(values)
    if not finite.all():
        row, a = (int(i) for i in np.argwhere(~finite)[0])
        raise InvalidData(
            f"'q_values' of {name} must be finite, got {float(values[row, a])!r} for observation {row}, "
            f"action {a}. A network that diverged cannot guard a budget: train it again."
        )
    return values.astype(np.float64)


def as_observations(name: str, observations: ArrayLike) -> Array:
    """Return (B, ...) observations as an array of finite numbers with B >= 1, or raise InvalidData."""
    array = as_numbers(name, observations)
    if array.ndim == 0 or len(array) == 0:
        raise InvalidData(
            f"{name!r} must have at least one row, one per observation, got shape {array.shape}. "
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
    """Return masks of allowed actions as booleans of `shape`, each with at least one action."""
    array = as_numbers(name, masks)
    if array.shape != shape or not np.isin(array, (0, 1)).all():
        raise InvalidData(
            f"{name!r} must contain true or false for every action, shape {shape}, got {array.dtype} of "
            f"shape {array.shape}."
        )
    allowed: Bools = array.astype(np.bool_)
    if not allowed.any(axis=-1).all():
        raise InvalidData(f"{name!r} must allow at least one action, got a mask without any.")
    return allowed


def check_critic_type(name: str, critic: object) -> None:
    """Raise InvalidSetting, with the way out, unless `critic` has `q_values`."""
    refuse_paths(name, critic)
    if isinstance(critic, type) or not isinstance(critic, Critic):
        way_out = "Wrap a function in FunctionCritic, a model in SB3Critic or D3RLPyCritic."
        raise InvalidSetting(
            f"{name!r} must have a method q_values(observations), got {type(critic).__name__}. {way_out}"
        )


def refuse_paths(name: str, model: object) -> None:
    """Raise InvalidSetting if `model` is a path instead of a model."""
    if isinstance(model, (str, bytes, Path)):
        raise InvalidSetting(
            f"{name!r} must be a live model, got the path {model!r}: model files are pickled, and opening "
            "one runs any code in it. Load it with its own library if you trust the file, and "
            "pass the model."
        )


def installed(library: str, extra: str) -> Any:
    """Return a library, imported only when one of its models is used."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"Models of {library} need the library: {error}. Run: pip install 'chary[{extra}]'"
        ) from error


def name_of(critic: object) -> str:
    """Return the name of a critic in errors: its own description if short, otherwise its class."""
    kind = type(critic)
    own = repr(critic) if kind.__repr__ is not object.__repr__ else kind.__name__
    return own if len(own) <= LONGEST_NAME else kind.__name__
