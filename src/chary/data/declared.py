"""Declared facts in files: the policy of today and known rewards, one row per state (and action)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, Ints
from chary.data._columns import KINDS, Places, check_first_step, from_zero, refusal, shown
from chary.data._tables import FileTable, checked_names
from chary.errors import InvalidData, InvalidSetting, check_integer
from chary.storage.files import as_path

POLICY: Final = (("state", "action"), ("t", "state", "action"))
REWARDS: Final = (("state", "action", "reward"), ("state", "action", "next_state", "reward"))
SUFFIXES: Final = (".csv", ".parquet")
# An action that is not declared.
NOTHING = -1


def read_policy(
    path: str | Path,
    *,
    n_states: int,
    horizon: int | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    first_step: int = 0,
) -> Ints:
    """Return a policy from a file with the columns `state, action`, or `t, state, action`.

    Args:
        path: A .csv or .parquet file with one row per state, or per step and state.
        n_states: The number S of states.
        horizon: The number H of steps, for a file with a column `t`.
        columns: The names of columns that are called otherwise, as for `read_log`; those of other columns are
            ignored.
        labels: The texts of states and actions, as for `read_log`.
        first_step: The number of the first step in a column `t`, as for `read_log`.

    Returns:
        Actions (S,) or (H, S), -1 where the file has none.

    Raises:
        InvalidData: if it has other columns, a row twice, or something else than numbers and labels.
    """
    S = check_integer("n_states", n_states, minimum=1)
    first = check_first_step(first_step)
    told, places = _read(path, POLICY, columns, labels)
    sizes = {"state": S}
    if "t" in told:
        told["t"] = from_zero(told["t"], first, places)
        sizes = {"t": check_integer("horizon", horizon, minimum=1), **sizes}
    return _filled(told, places, sizes, "action", NOTHING).astype(np.int64)


def read_rewards(
    path: str | Path,
    *,
    n_states: int,
    n_actions: int,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> Floats:
    """Return known rewards from a file with the columns `state, action, reward`, and perhaps `next_state`.

    Args:
        path: A .csv or .parquet file with one row per state and action, or per state, action and next state.
        n_states: The number S of states.
        n_actions: The number A of actions.
        columns: The names of columns that are called otherwise, as for `read_policy`.
        labels: The texts of states and actions, as for `read_log`.

    Returns:
        Rewards (S, A) or (S, A, S) for `Setting.declare(reward=...)`, NaN where the file has none.

    Raises:
        InvalidData: if it has other columns, a row twice, or something else than numbers and labels.
    """
    S = check_integer("n_states", n_states, minimum=1)
    A = check_integer("n_actions", n_actions, minimum=1)
    told, places = _read(path, REWARDS, columns, labels)
    sizes = {"state": S, "action": A} | ({"next_state": S} if "next_state" in told else {})
    return _filled(told, places, sizes, "reward", np.nan)


def _read(
    path: str | Path,
    forms: Sequence[Sequence[str]],
    names: Mapping[str, str] | None,
    labels: Mapping[str, Sequence[str]] | None,
) -> tuple[dict[str, NDArray[Any]], Places]:
    """Return the columns of a file that has those of one of the forms, and the places of its rows."""
    source = as_path("path", path)
    if source.suffix not in SUFFIXES:
        raise InvalidSetting(f"'path' must end in {' or '.join(SUFFIXES)}, got {str(source)!r}.")
    table = FileTable(source, None, labels)
    # The names of a log may be passed as they are, though not all of its columns are here.
    ours = {theirs: name for name, theirs in checked_names(names).items()}
    table.header = [ours.get(name, name) for name in table.header]
    form = next((each for each in forms if sorted(each) == sorted(table.header)), None)
    if form is None:
        raise InvalidData(
            f"{str(source)!r} must have the columns {' or '.join(', '.join(each) for each in forms)}, got "
            f"{', '.join(map(shown, table.header[:9]))}. Names of your own: columns=... (--column state=...)."
        )
    columns, places = table.read({name: KINDS[name] for name in form})
    if places.faults:
        raise refusal(places.faults)
    return columns, places._replace(faults=None)


def _filled(
    columns: Mapping[str, NDArray[Any]], places: Places, sizes: Mapping[str, int], name: str, empty: float
) -> Floats:
    """Return a table of these sizes with the values of a column at their places, and `empty` elsewhere."""
    for each, size in sizes.items():
        wrong = columns[each] >= size
        places.refuse(each, f"lie in 0..{size - 1}", wrong, partial(_at, columns[each]))
    index = tuple(columns[each] for each in sizes)
    code = np.ravel_multi_index(index, tuple(sizes.values()))
    again = np.ones(len(code), dtype=bool)
    again[np.unique(code, return_index=True)[1]] = False
    places.refuse(
        name, f"be declared once per {', '.join(sizes)}", again, lambda i: f"{columns[name][i]} as another"
    )
    table = np.full(tuple(sizes.values()), empty)
    table[index] = columns[name]
    return table


def _at(column: NDArray[Any], i: int) -> str:
    return str(column[i])
