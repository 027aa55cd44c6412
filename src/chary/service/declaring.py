"""What a deployment declares in its `chary.toml`: the problem, the agent, the incumbent, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """All that a deployment declares; `chary.toml` has one table per field that is a dictionary.

    Args:
        name: What people call the deployment.
        setting: The arguments of `Setting.declare` that TOML can express, besides `states` and `actions`, the
            labels of both, and `rewards`, a file of known rewards.
        agent: `name` and options of the agent, as for `make_agent`; `losses` and `overrides` as for
            `TabularAgent`.
        policy: `file` and `role` of the incumbent's policy; empty if there is none.
        log: `file` of the warm-start log; empty if there is none.
        seed: Seed of the agent's generator.
        mode: The mode at the start.
        planning: `every`, episodes' worth of new outcomes between drafts of a plan.
        limits: `open_episodes`, the most at once, and what else the server limits.
    """

    name: str
    setting: dict[str, Any]
    agent: dict[str, Any]
    policy: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    mode: str = "apprentice"
    planning: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Declaration:
        """Return what a TOML file declares; relative files in it are looked up beside it.

        Raises:
            CharyError: if it is missing, malformed, or has a key that is not known.
        """
        raise NotImplementedError
