"""The calibration that a run with a scaled bonus fits, or the nearest one and the differences from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.envs import make
from chary.mdp import FiniteMDP
from chary.model.calibration import CalibrationRecord
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
        differences = record.mismatches(used)
        if not differences and not _is_made_by(record, mdp):
            differences = (f"calibrated on siblings of {record.problem}, played a variant of it",)
        if found is None or len(differences) < len(fewest):
            found, fewest = record, differences
    return found, fewest


def _is_made_by(record: CalibrationRecord, mdp: FiniteMDP) -> bool:
    """Return whether a problem is the one whose siblings were played, to the last bit."""
    if record.problem not in NAMES:
        # A calibration is read from a file, which must not name code to be run.
        return False
    other = make(record.problem, **record.options)
    return mdp.setting.digest == other.setting.digest and all(
        np.array_equal(getattr(mdp, name), getattr(other, name)) for name in ARRAYS
    )
