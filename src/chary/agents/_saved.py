"""An agent as a sealed file: numbers and texts alone, so that nothing in it can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents._open import Played
from chary.agents.protocol import AgentSpec, Transition
from chary.errors import InvalidData, InvalidSetting
from chary.shield import Decision

__all__ = [
    "KIND",
    "MIXTURE_MEMORY",
    "PlayedTable",
    "as_array",
    "generator_from",
    "generator_values",
    "options_from",
    "recalled",
    "spec_values",
    "under",
]

KIND = "agent"
# What a mixture remembers from episode to episode; the rest of it is room.
MIXTURE_MEMORY = ("starts", "baseline_starts", "promised")

Arrays = dict[str, NDArray[Any]]


def spec_values(spec: AgentSpec) -> dict[str, Any]:
    """Return the options of an agent as JSON has them: no infinity, arrays as lists."""
    values: dict[str, Any] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, float) and not np.isfinite(value):
            value = repr(value)
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            value = np.asarray(value).tolist()
        values[field.name] = value
    return values


def options_from(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `spec_values` wrote."""
    options = dict(values)
    for name in ("eta", "step_bound"):
        if isinstance(options.get(name), str):
            options[name] = float(options[name])
    if isinstance(options.get("prior"), list):
        options["prior"] = np.array(options["prior"])
    return options


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def as_array(
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    shape: tuple[int, ...],
    dtype: type[np.generic] | type[bool],
    *,
    below: int | None = None,
) -> NDArray[Any]:
    """Return a copy of an array, once it has that shape and type, with entries in 0..below - 1 if given.

    Raises:
        InvalidData: if not: kernels trust what they are handed.
    """
    array = np.array(arrays[name])
    fits = array.shape == shape and array.dtype == np.dtype(dtype)
    if fits and below is not None:
        fits = bool(((array >= 0) & (array < below)).all())
    if not fits:
        most = "" if below is None else f" with entries below {below}"
        raise InvalidData(
            f"{name!r} must be {np.dtype(dtype)} of shape {shape}{most}, got {array.dtype} of shape "
            f"{array.shape}."
        )
    return array


def generator_values(generator: np.random.Generator | None) -> dict[str, Any] | None:
    """Return the state of a generator as JSON has it.

    Raises:
        InvalidSetting: if it is not of the kind that chary uses.
    """
    if generator is None:
        return None
    state = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise InvalidSetting(
            f"'generator' must be of kind PCG64 to be saved, got {state['bit_generator']}. "
            "Use numpy.random.default_rng."
        )
    return dict(state)


def generator_from(state: Mapping[str, Any] | None) -> np.random.Generator | None:
    """Return the generator whose state this is."""
    if state is None:
        return None
    bits = np.random.PCG64()
    bits.state = dict(state)  # type: ignore[assignment]
    return np.random.Generator(bits)


@final
class PlayedTable:
    """Steps that were played, each with a number: chains and episodes that share one keep sharing it."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._steps: list[Played] = []

    def number(self, step: object) -> int | None:
        """Return the number of a step, None for what is none."""
        if not isinstance(step, Played):
            return None
        if id(step) not in self._numbers:
            self._numbers[id(step)] = len(self._steps)
            self._steps.append(step)
        return self._numbers[id(step)]

    def to_arrays(self) -> Arrays:
        """Return the steps by column; an outcome that is not known is a row of NaN."""
        n = len(self._steps)
        unknown = (np.nan,) * len(Transition._fields)
        decisions = np.array([step.decision for step in self._steps], dtype=np.float64)
        outcomes = np.array([step.outcome or unknown for step in self._steps], dtype=np.float64)
        return {
            "played.decision": decisions.reshape(n, len(Decision._fields)),
            "played.outcome": outcomes.reshape(n, len(unknown)),
            "played.state": np.array([step.state for step in self._steps], dtype=np.int64),
            "played.lost": np.array([step.lost for step in self._steps], dtype=bool),
        }

    @staticmethod
    def steps(arrays: Mapping[str, NDArray[Any]]) -> list[Played]:
        """Return the steps that `to_arrays` was asked of, by number."""
        columns = (arrays[f"played.{name}"].tolist() for name in ("decision", "outcome", "state", "lost"))
        return [
            Played(_decision(decision), int(state), _outcome(outcome), bool(lost))
            for decision, outcome, state, lost in zip(*columns, strict=True)
        ]


def recalled(steps: Sequence[Played], number: object) -> Played | None:
    """Return the step of that number, None for None.

    Raises:
        InvalidData: if there is none.
    """
    if number is None:
        return None
    if not isinstance(number, int) or not 0 <= number < len(steps):
        raise InvalidData(f"'played' must hold {len(steps)} steps, got one of number {number!r}.")
    return steps[number]


def _decision(row: Sequence[float]) -> Decision:
    action, explored, charge, deficit, remaining, plan, chain = row
    return Decision(int(action), bool(explored), charge, deficit, remaining, int(plan), int(chain))


def _outcome(row: Sequence[float]) -> Transition | None:
    state, action, reward, next_state, terminated = row
    if np.isnan(state):
        return None
    return Transition(int(state), int(action), reward, int(next_state), bool(terminated))
