"""Compile the kernels that the tests run, before their workers start: each would compile all of them.

    python tests/kernels.py

One process compiles everything: a kernel takes over what others have compiled of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Read before numba is imported: the tests' settings.
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import conftest  # noqa: F401
from tests.parity.same_runs import needed_by

import chary
from chary.agents import AGENTS, AgentSpec


def specs(mdp: chary.FiniteMDP) -> dict[str, AgentSpec]:
    """Return an agent of every kind, and one for every prior of worlds."""
    return {
        **{name: chary.make_agent(name, eta=0.3, **needed_by(name, mdp)) for name in AGENTS},
        "differences": chary.CharyUCBVI(eta=0.3, charge="difference"),
        "worlds": chary.CharyUCBVI(eta=0.3, bonus="posterior", world_prior="flat", worlds=4),
    }


def main() -> None:
    """Play a few episodes by everything that is compiled."""
    mdp = chary.envs.riverswim()
    options: dict[str, Any] = {"episodes": 2, "warmup": 2}
    for name, spec in specs(mdp).items():
        chary.simulate(mdp, spec, **options)
        if name in ("chary", "differences", "stepmix", "random", "canary", "worlds"):
            chary.simulate(mdp, spec, **options, driver="step")


if __name__ == "__main__":
    main()
