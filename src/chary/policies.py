"""User policies: a table, a function, a live model or a saved file as one checked table, and its role."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, final, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Ints, frozen
from chary.errors import InvalidAction, InvalidData, InvalidSetting, check_choice, check_integer, check_real
from chary.mdp._endings import policy_with_ending
from chary.mdp.setting import Setting, as_policy, check_setting
from chary.storage.files import as_path, read_file, write_new
from chary.storage.sealed import pack, unpack
from chary.texts import shown

# The roles that a user's policy can have for an agent, from the weakest: see OwnBaseline.
ROLES = ("prior", "floor", "only")

KIND = "policy"
TABLE = "table"
WHOLE_KINDS = "iu"
# Probabilities may come from float32.
SUM_TOLERANCE = 1e-4


@runtime_checkable
class Predicts(Protocol):
    """A model with a method `predict`, as in Stable-Baselines3 and d3rlpy."""

    @property
    def predict(self) -> Callable[..., Any]:
        """A function from observations to actions."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SB3Policy:
    """A live Stable-Baselines3 model as a policy: `model.predict(observation, deterministic=True)`.

    It is called once per state that is not terminal, one observation at a time. Pass a model in memory: chary
    opens no file that contains a pickle.

    Args:
        model: A model with `predict(observation, deterministic=True) -> (action, state)`.
        observations: (S, ...), the observation of each state; by default the state's number, as in
            environments with a `Discrete` observation space.

    Raises:
        InvalidSetting: if the model has no `predict`.
    """

    model: Predicts
    observations: ArrayLike | None = None

    def __post_init__(self) -> None:
        _check_predicts("SB3Policy", self.model)

    def actions(self, setting: Setting) -> Ints:
        """Return the action in each state, (S,), 0 in terminal ones."""
        observations = _observations(self.observations, setting)
        actions = np.zeros(setting.n_states, dtype=np.int64)
        for s in _acting(setting).tolist():
            answer = self.model.predict(np.asarray(observations[s]), deterministic=True)
            if not (isinstance(answer, tuple) and len(answer) == 2):
                raise InvalidAction(
                    f"'predict' must return an action and a state, got {shown(answer)} for state {s}. "
                    "Use D3RLPyPolicy for a model that returns actions alone."
                )
            actions[s] = _whole("predict", answer[0], 0, s)
        return actions


@final
@dataclass(frozen=True, slots=True, eq=False)
class D3RLPyPolicy:
    """A live d3rlpy model with discrete actions as a policy: `model.predict(batch)`.

    It is called once, for all states that are not terminal. Pass a model in memory: chary opens no file that
    contains a pickle.

    Args:
        model: A model with `predict(observations) -> actions`, (B, ...) to (B,).
        observations: (S, ...), the observation of each state, as in the model's training; for one-hot
            states `numpy.eye(S, dtype=numpy.float32)`.

    Raises:
        InvalidSetting: if the model has no `predict`.
    """

    model: Predicts
    observations: ArrayLike

    def __post_init__(self) -> None:
        _check_predicts("D3RLPyPolicy", self.model)

    def actions(self, setting: Setting) -> Ints:
        """Return the action in each state, (S,), 0 in terminal ones."""
        acting = _acting(setting)
        answer = self.model.predict(_observations(self.observations, setting)[acting])
        chosen = _array("predict", answer, InvalidAction)
        if chosen.shape != acting.shape or chosen.dtype.kind not in WHOLE_KINDS:
            raise InvalidAction(
                f"'predict' must return one whole number per observation, shape ({len(acting)},), got "
                f"{chosen.dtype} of shape {chosen.shape}. Use SB3Policy for a model that returns a pair."
            )
        actions = np.zeros(setting.n_states, dtype=np.int64)
        actions[acting] = chosen
        return actions


# A table, a function of the state or of step and state, a live model, or the name of a saved file.
Policy = ArrayLike | Callable[..., SupportsIndex] | SB3Policy | D3RLPyPolicy | str | Path


def as_policy_table(policy: Policy, setting: Setting) -> Ints:
    """Return a policy as the actions it plays, (H, S), checked and read-only; terminal states play 0.

    A policy is one of these:

    - actions, (S,) or (H, S) whole numbers, or probabilities, (S, A), of which the largest is played (the
      lowest index among equals); where (H, S) and (S, A) are one shape, whole numbers are actions; the
      separate state of early endings may be left out;
    - a function `policy(state)`, called once per state, or `policy(t, state)`, called once per step and
      state: the number of parameters without a default decides; terminal states are left out;
    - a live model, as `SB3Policy` or `D3RLPyPolicy`;
    - the name of a file that `save_policy` wrote.

    An error that your function or model raises is passed on unchanged.

    Args:
        policy: Any of these.
        setting: The problem it is for.

    Raises:
        InvalidSetting: if it is none of these, has another shape, or its likeliest action is not allowed.
        InvalidAction: if it plays something that is not an allowed action, naming step and state.
        InvalidData: if a saved file cannot be used.

    Example:
        >>> shop = Setting.declare(n_states=3, n_actions=2, horizon=2)
        >>> as_policy_table(lambda t, state: int(state > t), shop).tolist()
        [[0, 1, 1], [0, 0, 1]]
    """
    check_setting(setting)
    H, S = setting.horizon, setting.n_states
    if isinstance(policy, (str, Path)):
        return load_policy(policy, setting)
    if isinstance(policy, (SB3Policy, D3RLPyPolicy)):
        return _checked(np.broadcast_to(policy.actions(setting), (H, S)), setting)
    if callable(policy):
        return _asked(policy, setting)
    table = _array("policy", policy, InvalidSetting)
    table = policy_with_ending(table, S, setting.n_actions, setting.ending)
    if table.shape in ((S,), (H, S)) and table.dtype.kind in WHOLE_KINDS:
        return _checked(np.broadcast_to(table, (H, S)), setting)
    if table.shape != (S, setting.n_actions):
        raise InvalidSetting(
            f"'policy' must be actions, whole numbers of shape ({S},) or ({H}, {S}), probabilities of shape "
            f"({S}, {setting.n_actions}), a function, a model or a file, got {table.dtype} of shape "
            f"{table.shape}."
        )
    # Other rows, such as actions by state and step, would be read as preferences.
    chosen = as_policy("policy", table, setting)
    sums = np.where(setting.terminal, 1.0, table.sum(axis=1, dtype=float))
    wrong = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(wrong):
        s = int(wrong[0])
        raise InvalidSetting(
            f"'policy' must contain probabilities that sum to 1 in every state, got {float(sums[s]):g} in "
            f"state {s} and {len(wrong) - 1} more. Divide each row by its sum, or give actions."
        )
    return _checked(np.broadcast_to(chosen, (H, S)), setting)


def save_policy(path: str | Path, table: Policy, setting: Setting, *, overwrite: bool = False) -> None:
    """Write a policy, the whole file or nothing: numbers and a hash, no code.

    Args:
        path: The file to write.
        table: The policy, anything that `as_policy_table` takes.
        setting: The problem it is for; the file can only be loaded for problems of that shape.
        overwrite: Whether an existing file may be replaced.

    Raises:
        InvalidSetting: if the file exists or cannot be written, or `table` is not a policy.
        InvalidAction: if it plays an action that is not allowed.

    Example:
        >>> import tempfile
        >>> shop = Setting.declare(n_states=2, n_actions=2, horizon=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_policy(Path(folder, "rule.npz"), [1, 0], shop)
        ...     load_policy(Path(folder, "rule.npz"), shop).tolist()
        [[1, 0]]
    """
    kept = as_policy_table(table, setting)
    content = pack(KIND, {TABLE: kept}, {"shape": _shape(setting), "problem": _problem(setting)})
    write_new(path, content, overwrite=overwrite)


def load_policy(path: str | Path, setting: Setting) -> Ints:
    """Return a policy that `save_policy` wrote, (H, S), checked again and read-only.

    Args:
        path: The file.
        setting: The problem it is for.

    Raises:
        InvalidData: if the file is missing, truncated, changed, of a newer schema, or of another problem.
        InvalidAction: if it plays an action that is not allowed.
    """
    check_setting(setting)
    source = as_path("path", path)
    content = read_file(source)
    try:
        about, arrays = unpack(KIND, content)
    except InvalidData as problem:
        reason = " ".join(str(problem).split()).rstrip(".")
        raise InvalidData(f"'path' must be a saved policy, got {str(source)!r}: {reason}.") from problem
    shape = about.get("shape") if isinstance(about, dict) else None
    if shape != _shape(setting):
        raise InvalidData(
            f"'path' must contain a policy of this problem, {_shape(setting)}, got {str(source)!r} "
            f"with {shown(shape)}."
        )
    if about.get("problem") != _problem(setting):
        raise InvalidData(
            f"'path' must contain a policy of this problem, got {str(source)!r} of a problem with other "
            "allowed actions or terminal states."
        )
    table, wanted = arrays.get(TABLE), (setting.horizon, setting.n_states)
    if table is None or table.shape != wanted or table.dtype.kind not in WHOLE_KINDS:
        raise InvalidData(f"'path' must contain a table of shape {wanted}, got {str(source)!r} without one.")
    return _checked(table, setting)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnBaseline:
    """A user's policy, actions (H, S), in one of the `ROLES`; made by `OwnBaseline.declare`."""

    table: Ints
    role: str

    @classmethod
    def declare(cls, policy: Policy, setting: Setting, *, role: str) -> OwnBaseline:
        """Check a policy and its role.

        - `prior`: the baseline is learnt; yours decides ties, and so the actions before there are data.
        - `floor`: the baseline is yours, except in states and at steps where the lower bound of another
          action exceeds the upper bound of yours. While the bounds hold, with probability 1 - delta, it is
          never worse than yours.
        - `only`: the baseline is always yours; budgets are relative to it.

        Args:
            policy: Anything that `as_policy_table` takes; for `floor` and `only` without randomness.
            setting: The problem.
            role: One of `ROLES`.

        Raises:
            CharyError: if the policy or the role is invalid, or the policy is random in a role in which it
                would have to be played as it is.

        Example:
            >>> shop = Setting.declare(n_states=3, n_actions=2, horizon=2)
            >>> OwnBaseline.declare([0, 1, 1], shop, role="only").table.tolist()
            [[0, 1, 1], [0, 1, 1]]
        """
        check_choice("role", role, ROLES)
        table = as_policy_table(policy, setting)
        if role != "prior":
            _check_certain(role, policy, setting)
        return cls(table=table, role=role)


def raw_value(value: float, setting: Setting) -> float:
    """Return the value of a policy in the user's units, from scaled ones.

    V = span * v + low * sum of gamma^t over the H steps: with an offset `low` no episode ends early.

    Raises:
        InvalidSetting: if it is not a finite number.

    Example:
        >>> from chary.mdp.setting import RewardScale
        >>> cold = Setting.declare(n_states=1, n_actions=1, horizon=4, scale=RewardScale(-10.0, 10.0))
        >>> raw_value(3.0, cold), scaled_value(20.0, cold)
        (20.0, 3.0)
    """
    check_setting(setting)
    number = check_real("value", value, low=-math.inf, open_low=True, open_high=True)
    return number * setting.scale.span + _offset(setting)


def scaled_value(value: float, setting: Setting) -> float:
    """Return the value of a policy in scaled units, from the user's; the inverse of `raw_value`.

    Raises:
        InvalidSetting: if it is not a finite number.
    """
    check_setting(setting)
    number = check_real("value", value, low=-math.inf, open_low=True, open_high=True)
    return (number - _offset(setting)) / setting.scale.span


def _offset(setting: Setting) -> float:
    """Return the sum of the lowest reward over the H steps."""
    return setting.scale.low * float(np.sum(setting.discount ** np.arange(setting.horizon)))


def _check_certain(role: str, policy: Policy, setting: Setting) -> None:
    """Raise InvalidSetting for probabilities that leave room for chance: they are not the policy played."""
    if callable(policy) or isinstance(policy, (str, Path, SB3Policy, D3RLPyPolicy)):
        return
    shares = policy_with_ending(np.asarray(policy), setting.n_states, setting.n_actions, setting.ending)
    if shares.shape != (setting.n_states, setting.n_actions) or shares.dtype.kind in WHOLE_KINDS:
        return
    largest = np.where(setting.terminal, 1.0, shares.max(axis=1))
    if (largest < 1 - SUM_TOLERANCE).any():
        s = int(largest.argmin())
        raise InvalidSetting(
            f"'policy' must play one action per state in role {role!r}, got probabilities up to "
            f"{float(largest[s]):g} in state {s}. To declare its likeliest actions as the policy, pass "
            "as_policy_table(policy, setting)."
        )


def _asked(policy: Callable[..., SupportsIndex], setting: Setting) -> Ints:
    """Return the table of a function: of the state, or of step and state."""
    by_state = _parameters(policy) == 1
    acting = _acting(setting).tolist()
    table = np.zeros((1 if by_state else setting.horizon, setting.n_states), dtype=np.int64)
    for t, s in itertools.product(range(len(table)), acting):
        table[t, s] = _whole("policy", policy(s) if by_state else policy(t, s), t, s)
    return _checked(np.broadcast_to(table, (setting.horizon, setting.n_states)), setting)


def _acting(setting: Setting) -> Ints:
    """Return the states in which a policy is asked: neither terminal ones nor that of early endings."""
    return np.setdiff1d(np.flatnonzero(~setting.terminal), [] if setting.ending is None else [setting.ending])


def _parameters(policy: Callable[..., SupportsIndex]) -> int:
    """Return the number of positional parameters without a default, 1 or 2."""
    way_out = "Wrap it: lambda state: ..., or lambda t, state: ..."
    try:
        parameters = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError) as problem:
        raise InvalidSetting(
            f"'policy' must be a function whose parameters can be read, got {shown(policy)}. {way_out}"
        ) from problem
    needed = [each for each in parameters if each.default is each.empty]
    positional = [each for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(positional) not in (1, 2) or len(positional) != len(needed):
        raise InvalidSetting(
            "'policy' must be a function of the state, or of step and state, got one with the parameters "
            f"({', '.join(str(each) for each in parameters)}). {way_out}"
        )
    return len(positional)


def _whole(name: str, action: object, t: int, s: int) -> int:
    place = f"This was at t = {t}, s = {s}."
    if isinstance(action, int):
        # A number beyond int64 is not an action either, and must not overflow.
        action = min(action, np.iinfo(np.int64).max) if not isinstance(action, bool) else action
    return check_integer(name, action, minimum=0, error=InvalidAction, way_out=place)


def _checked(table: NDArray[Any], setting: Setting) -> Ints:
    """Return whole numbers (H, S) as a new table if every action is allowed."""
    S, A = setting.n_states, setting.n_actions
    played = np.where(setting.terminal, 0, table)
    inside = (played >= 0) & (played < A)
    allowed = setting.allowed[np.arange(S), np.where(inside, played, 0).astype(np.int64)]
    wrong = ~(inside & (allowed | setting.terminal))
    if wrong.any():
        t, s = (int(i) for i in np.argwhere(wrong)[0])
        options = ", ".join(str(a) for a in np.flatnonzero(setting.allowed[s])[:20])
        raise InvalidAction(
            f"'policy' must play allowed actions only, in state {s} one of {options}, got "
            f"{int(played[t, s])} at t = {t}, s = {s} and {int(wrong.sum()) - 1} more."
        )
    return frozen(played.astype(np.int64))


def _array(name: str, values: object, error: type[InvalidSetting] | type[InvalidAction]) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as problem:
        raise error(f"{name!r} must be an array of numbers, got {shown(values)}.") from problem
    if array.dtype.kind not in "biuf":
        raise error(f"{name!r} must be an array of numbers, got {shown(values)}.")
    return array


def _observations(observations: ArrayLike | None, setting: Setting) -> NDArray[Any]:
    if observations is None:
        return np.arange(setting.n_states)
    seen = _array("observations", observations, InvalidSetting)
    if setting.ending is not None and seen.ndim and len(seen) == setting.n_states - 1:
        # Nobody is asked about the state of endings.
        seen = np.concatenate([seen, seen[:1]])
    if seen.ndim == 0 or len(seen) != setting.n_states:
        raise InvalidSetting(
            f"'observations' must contain one observation per state, {setting.n_states}, got shape "
            f"{seen.shape}."
        )
    return seen


def _check_predicts(name: str, model: object) -> None:
    if isinstance(model, type) or not isinstance(model, Predicts) or not callable(model.predict):
        raise InvalidSetting(
            f"'model' must be a live model with a method 'predict', got {shown(model)} for {name}. Load it "
            "with the library that made it."
        )


def _shape(setting: Setting) -> dict[str, int]:
    return {"states": setting.n_states, "actions": setting.n_actions, "horizon": setting.horizon}


def _problem(setting: Setting) -> str:
    """Return a hash of everything that determines which policies are valid."""
    total = hashlib.sha256(repr(sorted(_shape(setting).items())).encode())
    total.update(np.packbits(setting.allowed).tobytes())
    total.update(np.packbits(setting.terminal).tobytes())
    return total.hexdigest()
