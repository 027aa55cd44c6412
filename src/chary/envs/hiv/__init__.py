"""Treatment of HIV: a simulator of six concentrations, as functions, for Gymnasium and for JAX.

`step` and `step_many` are for NumPy; `chary.envs.hiv.environment` contains the Gymnasium environment of the
id `chary/HIV-v0`, `chary.envs.hiv.jax_step` the simulator for batches inside a compiled JAX loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chary.envs.hiv.parameters import (
    CONCENTRATIONS,
    EFFICACIES,
    HORIZON,
    NAMES,
    PATIENTS,
    START,
    Patient,
    patient,
)
from chary.envs.hiv.simulator import observe, step, step_many

if TYPE_CHECKING:
    from chary.envs.hiv.environment import HIVEnv

__all__ = [
    "CONCENTRATIONS",
    "EFFICACIES",
    "HORIZON",
    "NAMES",
    "PATIENTS",
    "START",
    "HIVEnv",
    "Patient",
    "observe",
    "patient",
    "step",
    "step_many",
]


def __getattr__(name: str) -> Any:
    if name == "HIVEnv":
        from chary.envs.hiv.environment import HIVEnv

        return HIVEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
