"""The calibration that a run fits, or the nearest one and the differences from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.envs import make
from chary.mdp import FiniteMDP
from chary.model.calibration import CalibrationRecord
from chary.model.risk_calibration import RiskRecord
from chary.presets import NAMES, preset

ARRAYS = ("row_start", "successor", "probability", "reward", "start")


def nearest_calibration(
    mdp: FiniteMDP, agent: CharyUCBVI, *, episodes: int, warmup: int
) -> tuple[CalibrationRecord | None, tuple[str, ...]]:
    """Return the agent's calibration, or the nearest one of the problem's preset, and what differs from it.

    Args:
        mdp: The problem that is played.
        agent: What plays.
        episodes: Number of online episodes.
        warmup: Number of random episodes before them.
    """
    records: Sequence[CalibrationRecord] = () if mdp.name not in NAMES else preset(mdp.name).calibration
    if isinstance(agent.calibration, CalibrationRecord):
        records = (agent.calibration,)
    used = {"problem": mdp.name, **agent.calibrated(episodes, warmup)}
    found: CalibrationRecord | None = None
    fewest: tuple[str, ...] = ()
    for record in records:
        differences = differences_from(record, mdp, used)
        if found is None or len(differences) < len(fewest):
            found, fewest = record, differences
    return found, fewest


def differences_from(
    record: CalibrationRecord | RiskRecord, mdp: FiniteMDP, used: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return how a run differs from what a record was measured for, also in a problem of the same name."""
    differences = record.mismatches(used)
    if differences:
        return differences
    if record.siblings is not None:
        same = record.options.get("digest") == mdp.digest
        return () if same else (f"calibrated on siblings {record.siblings}, played a variant of it",)
    if record.problem not in NAMES:
        # A record is read from a file, which must not name code to be run.
        return (f"calibrated on siblings of {record.problem}, which chary does not know",)
    # The problem whose siblings were played, to be compared to the last bit.
    other = make(record.problem, **record.options)
    same = mdp.setting.digest == other.setting.digest and all(
        np.array_equal(getattr(mdp, name), getattr(other, name)) for name in ARRAYS
    )
    return () if same else (f"calibrated on siblings of {record.problem}, played a variant of it",)
