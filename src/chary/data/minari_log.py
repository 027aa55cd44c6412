"""Minari datasets as logs: discrete observations as they are, continuous ones through a discretiser."""

from __future__ import annotations

from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from chary.data._columns import COLUMNS, OBSERVED, Places
from chary.data.discretise import Discretiser, discretise
from chary.data.logs import Known, Log, LogColumns
from chary.errors import InvalidData, check_installed
from chary.texts import shown


def read_minari(dataset: Any, *, discretiser: Discretiser | None = None, **known: Unpack[Known]) -> Log:
    """Read a log from a Minari dataset with discrete actions; needs `pip install 'chary[minari]'`.

    Observations are whole numbers (a Discrete space), or vectors of numbers (a Box) with a discretiser; then
    steps that terminated lead to state `discretiser.n_states`. Errors count transitions from 0 in the order
    of the dataset. Nothing is downloaded.

    Args:
        dataset: The id of a dataset on this machine, or a `minari.MinariDataset`.
        discretiser: A function from observations to states.
        **known: `setting`, or `reward_range`, `n_states` and `n_actions`, see `Log.checked`.

    Raises:
        InvalidData: if there is no such dataset, or its contents are not a log.
        InvalidSetting: if Minari is not installed.
    """
    found = _dataset(dataset)
    read: list[dict[str, NDArray[Any]]] = []
    for k, episode in enumerate(found.iterate_episodes()):
        steps = len(episode.rewards)
        points = episode.observations
        if not isinstance(points, np.ndarray) or not isinstance(episode.actions, np.ndarray):
            raise InvalidData(
                f"'dataset' must have observations and actions that are arrays, got "
                f"{type(points).__name__} and {type(episode.actions).__name__} in episode {k}."
            )
        if len(points) != steps + 1 or len(episode.actions) != steps or len(episode.terminations) != steps:
            raise InvalidData(
                f"'dataset' must have one observation more than steps in every episode, got {len(points)} "
                f"for {steps} in episode {k}."
            )
        read.append(
            {
                "episode": np.full(steps, int(episode.id)),
                "t": np.arange(steps),
                "state": points[:-1],
                "action": episode.actions,
                "reward": episode.rewards,
                "next_state": points[1:],
                "terminated": episode.terminations,
            }
        )
    if not read:
        raise InvalidData("'dataset' must contain at least one episode, got 0.")
    try:
        columns = {name: np.concatenate([each[name] for each in read]) for name in COLUMNS}
    except ValueError as problem:
        raise InvalidData(f"'dataset' must have episodes of one shape, got others: {problem}.") from problem
    places, seen = Places(np.arange(len(columns["t"])), "transition"), columns["state"]
    if discretiser is not None:
        for name in OBSERVED:
            columns[name] = columns[name].reshape(len(seen), -1).astype(np.float64)
        discretise(discretiser, columns, places)
    elif seen.ndim != 1:
        raise InvalidData(
            f"'dataset' must have discrete observations, got {seen.dtype} of shape {seen.shape[1:]}. Pass "
            "discretiser=Bins(...) or a Codebook."
        )
    cells = discretiser is not None
    return Log(**cast("LogColumns", columns), row=places.number, unit=places.unit, discretised=cells).checked(
        **known
    )


def _dataset(dataset: Any) -> Any:
    check_installed("minari", "Reading Minari datasets", "minari")
    import minari

    if isinstance(dataset, minari.MinariDataset):
        return dataset
    if not isinstance(dataset, str) or not dataset or "\0" in dataset:
        raise InvalidData(
            f"'dataset' must be a Minari dataset or its id, got {type(dataset).__name__} {dataset!r}."
        )
    try:
        return minari.load_dataset(dataset)
    except (OSError, ValueError, ImportError, KeyError) as problem:
        reason = " ".join(str(problem).split())[:160]
        raise InvalidData(
            f"'dataset' must be a Minari dataset on this machine, got {shown(dataset)}: {reason} "
            "Run: minari download ID."
        ) from problem
