"""Logged episodes that a run starts with, in place of random ones."""

from __future__ import annotations

from typing import NamedTuple

from chary.arrays import Floats, Ints


class LoggedStart(NamedTuple):
    """Transitions of `episodes` logged episodes in their order; rewards are scaled."""

    episodes: int
    states: Ints
    pairs: Ints
    nexts: Ints
    rewards: Floats
