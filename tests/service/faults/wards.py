"""Deployments for fault tests: the ward of the demonstration, small enough to be made and started at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chary.service.declaring import Declaration
from chary.service.demo import declaration
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.tokens import SCOPES, mint
from chary.service.ward import ETA

# So that a life of half a second meets snapshots and plans.
SNAPSHOT_EVERY, PLAN_EVERY = 25, 3
# With bounds in place of worlds, a budget that the first explorations can afford.
BOUNDS_ETA = 400.0
KINDS = ("worlds", "bounds")


def declared(folder: Path, kind: str = "worlds") -> tuple[Declaration, float]:
    """Return what is declared, its files in `folder`, and the budget of an episode."""
    ward = declaration(folder)
    small = replace(
        ward,
        mode="budgeted",
        planning={"every": PLAN_EVERY},
        limits={"snapshot_every": SNAPSHOT_EVERY, "open_episodes": 100_000},
    )
    if kind == "worlds":
        return small, ETA
    agent = {"name": "chary", "eta": BOUNDS_ETA, "bonus": "kl", "losses": True}
    return replace(small, agent=agent), BOUNDS_ETA


def make(directory: Path, kind: str = "worlds") -> str:
    """Make a deployment in mode budgeted, and return a token with all scopes."""
    Deployment.create(directory, declared(directory.with_name(f"{directory.name}-files"), kind)[0])
    token = mint(SCOPES, "tests")
    engine = Engine.open(directory)
    added = engine.add_token(
        token.id, token.digest, scopes=token.scopes, label=token.label, expires=None, author="tests"
    )
    engine.wait(added.seq)
    engine.finish()
    return token.text
