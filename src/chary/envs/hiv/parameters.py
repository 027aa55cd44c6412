"""Patients: the base patient and six perturbed ones, and their common constants (data/hiv.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from chary.arrays import Floats, frozen
from chary.errors import UnknownName, as_whole, check_real


def _read() -> dict[str, Any]:
    text = resources.files("chary.envs").joinpath("data", "hiv.json").read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


_DATA = _read()
# T1, T2: healthy CD4+ lymphocytes and macrophages per ml; T1s, T2s: infected ones; V: free virus; E: immune
# effectors.
CONCENTRATIONS: tuple[str, ...] = tuple(_DATA["concentrations"])
NAMES: tuple[str, ...] = tuple(_DATA["base"])
HORIZON: int = _DATA["actions_an_episode"]
# (4, 2): each action's efficacy against infection (reverse transcriptase) and new virus (protease).
EFFICACIES = frozen(_DATA["efficacies"], np.float64)
# The stable state of an untreated patient.
START = frozen(_DATA["start"], np.float64)
OBSERVATION_MEAN = frozen(_DATA["observation_mean"], np.float64)
OBSERVATION_STD = frozen(_DATA["observation_std"], np.float64)
# log10 of a concentration is clipped to these bounds, those of the original; no patient leaves them by
# treatment alone.
LOG_LOW, LOG_HIGH = -5.0, 8.0
PATIENTS: tuple[str | int, ...] = ("base", *range(len(_DATA["patients"])))


@dataclass(frozen=True, slots=True, eq=False)
class Patient:
    """One patient: the parameters of the equations, and the standardisation of the reward.

    Args:
        name: `base` or a number.
        vector: The parameters in the order of `NAMES`, shape (20,), read-only.
        reward_mean: Subtracted from a reward to standardise it.
        reward_std: Divisor of a reward to standardise it.
    """

    name: str | int
    vector: Floats
    reward_mean: float
    reward_std: float

    def standardised(self, reward: float) -> float:
        """Return a reward in standardised units."""
        return (reward - self.reward_mean) / self.reward_std


def start_of(uniforms: Any, spread: float) -> Any:
    """Return the concentrations at which an episode starts, from six uniforms in [0, 1).

    Each is that of the untreated state times its own factor: log10 of the factors is uniform within
    -spread..spread, so that 0 gives the untreated state itself and 0.3 factors between a half and two.
    """
    return START * 10.0 ** (spread * (2.0 * uniforms - 1.0))


def check_spread(spread: float) -> float:
    """Raise InvalidSetting unless `spread` lies in [0, 1]."""
    return check_real("spread", spread, low=0.0, high=1.0)


def patient(name: object = "base") -> Patient:
    """Return a patient by name.

    The source has no mean and deviation of rewards for the base patient: it gets the averages of the six.

    Args:
        name: `base`, or a number in 0..5.

    Raises:
        UnknownName: if there is no such patient.

    Example:
        >>> patient(5).vector.shape
        (20,)
    """
    key = name if isinstance(name, str) else as_whole(name)
    if key is None or key not in PATIENTS:
        raise UnknownName(
            f"'patient' must be 'base' or a whole number in 0..{len(PATIENTS) - 2}, got {name!r}."
        )
    return _patient(key)


@cache
def _patient(name: str | int) -> Patient:
    others = _DATA["patients"]
    if isinstance(name, str):
        parameters = _DATA["base"]
        mean = float(np.mean([each["reward_mean"] for each in others]))
        std = float(np.mean([each["reward_std"] for each in others]))
    else:
        parameters = others[name]["parameters"]
        mean, std = others[name]["reward_mean"], others[name]["reward_std"]
    return Patient(name, frozen([parameters[each] for each in NAMES], np.float64), mean, std)
