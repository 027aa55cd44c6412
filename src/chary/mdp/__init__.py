"""Finite MDPs, and the part of one that an agent may be told."""

from chary.mdp.finite import REWARD_KNOWLEDGE, FiniteMDP
from chary.mdp.setting import Bools, Floats, Ints, KnownReward, RewardScale, Setting, as_policy

__all__ = [
    "REWARD_KNOWLEDGE",
    "Bools",
    "FiniteMDP",
    "Floats",
    "Ints",
    "KnownReward",
    "RewardScale",
    "Setting",
    "as_policy",
]
