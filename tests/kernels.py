"""Compile the kernels that the tests run, before their workers start: each would compile all of them.

    python tests/kernels.py

One process compiles both forms of the compiled loop, with and without a check of the planner: the second
takes over what the first has compiled of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Read before numba is imported: the tests' settings.
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import conftest  # noqa: F401

import chary


def main() -> None:
    """Play a few episodes by everything that is compiled."""
    mdp, spec = chary.envs.riverswim(), chary.CharyUCBVI(eta=0.3)
    chary.simulate(mdp, spec, episodes=2, warmup=2)
    chary.simulate(mdp, spec, episodes=2, warmup=2, check_every=1)
    for agent in ("chary", "stepmix", "random"):
        chary.simulate(mdp, chary.make_agent(agent, eta=0.3), driver="step", episodes=2, warmup=2)


if __name__ == "__main__":
    main()
