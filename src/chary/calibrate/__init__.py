"""Calibration on sibling problems: bonus scales of bounds, and the risk of posterior worlds.

Siblings are other MDPs of the same size and kind, never the problem that is evaluated afterwards; regret is
never looked at. See docs/algorithm.md sections 6 and 11.
"""

from __future__ import annotations

from chary.calibrate.risk import RiskCalibration, RiskTrial, calibrate_risk
from chary.calibrate.scale import CALIBRATED_FAMILIES, ScaleCalibration, Trial, calibrate
from chary.calibrate.siblings import LogSiblings, MDPSiblings

__all__ = [
    "CALIBRATED_FAMILIES",
    "LogSiblings",
    "MDPSiblings",
    "RiskCalibration",
    "RiskTrial",
    "ScaleCalibration",
    "Trial",
    "calibrate",
    "calibrate_risk",
]
