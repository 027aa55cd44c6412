"""Gymnasium environments whose actions are proposals, which a guard plays or replaces."""

from __future__ import annotations

from chary.wrappers.declared import setting_of
from chary.wrappers.guard import Guard
from chary.wrappers.padded import Padded
from chary.wrappers.shielded import Shielded
from chary.wrappers.vector import ShieldedVector

__all__ = ["Guard", "Padded", "Shielded", "ShieldedVector", "setting_of"]
