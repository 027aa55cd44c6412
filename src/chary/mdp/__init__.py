"""Finite MDPs, and the part of one that an agent may know."""

from chary.mdp.finite import REWARD_KNOWLEDGE, FiniteMDP
from chary.mdp.setting import KnownReward, RewardScale, Setting, as_policy

__all__ = [
    "REWARD_KNOWLEDGE",
    "FiniteMDP",
    "KnownReward",
    "RewardScale",
    "Setting",
    "as_policy",
]
