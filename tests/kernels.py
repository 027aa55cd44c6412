"""Compile the kernels that the tests run, before their workers start: each would compile all of them.

    python tests/kernels.py

The two forms of the compiled loop, with and without a check of the planner, are compiled side by side.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own, as the tests' settings have to be there before numba is imported.
COMPILE = """
import sys
from tests import conftest
import chary

mdp, chosen = chary.envs.riverswim(), {"episodes": 2, "warmup": 2}
if sys.argv[1] == "checked":
    chary.simulate(mdp, chary.CharyUCBVI(eta=0.3), check_every=1, **chosen)
else:
    chary.simulate(mdp, chary.CharyUCBVI(eta=0.3), **chosen)
    for agent in ("chary", "stepmix", "random"):
        chary.simulate(mdp, chary.make_agent(agent, eta=0.3), driver="step", **chosen)
"""


def main() -> int:
    """Return 0 once everything is compiled."""
    command, root = [sys.executable, "-c", COMPILE], Path(__file__).parents[1]
    at_work = [subprocess.Popen([*command, form], cwd=root) for form in ("plain", "checked")]
    return max(process.wait() for process in at_work)


if __name__ == "__main__":
    sys.exit(main())
