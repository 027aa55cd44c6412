"""External critics: your own models guard the budget, with a declared level."""

from __future__ import annotations

from chary.critics.bounds import CRITIC_LEVELS, CriticBounds, CriticValues
from chary.critics.calibration import Calibration, HeldOutEpisode, calibrate_critics, episodes_needed
from chary.critics.d3rlpy import D3RLPyCritic
from chary.critics.ensemble import EnsembleCritics
from chary.critics.plan import CriticPlan, Prices
from chary.critics.protocol import Critic, FunctionCritic, checked_q_values
from chary.critics.sb3 import SB3Critic
from chary.critics.shield import CriticShield

__all__ = [
    "CRITIC_LEVELS",
    "Calibration",
    "Critic",
    "CriticBounds",
    "CriticPlan",
    "CriticShield",
    "CriticValues",
    "D3RLPyCritic",
    "EnsembleCritics",
    "FunctionCritic",
    "HeldOutEpisode",
    "Prices",
    "SB3Critic",
    "calibrate_critics",
    "checked_q_values",
    "episodes_needed",
]
