"""chary: reinforcement learning with an exploration budget that every single episode keeps.

The names below are imported on first use, so that `import chary` is quick and needs neither Gymnasium nor
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chary import critics as critics
    from chary import data as data
    from chary import envs as envs
    from chary import policies as policies
    from chary import wrappers as wrappers
    from chary.agents import CUCBVI as CUCBVI
    from chary.agents import PSRL as PSRL
    from chary.agents import UCBVI as UCBVI
    from chary.agents import Baseline as Baseline
    from chary.agents import Canary as Canary
    from chary.agents import CharyUCBVI as CharyUCBVI
    from chary.agents import EpsMix as EpsMix
    from chary.agents import Frozen as Frozen
    from chary.agents import OwnAgent as OwnAgent
    from chary.agents import Random as Random
    from chary.agents import StepMix as StepMix
    from chary.agents import Transition as Transition
    from chary.agents import make_agent as make_agent
    from chary.agents.canary_agent import CanaryAgent as CanaryAgent
    from chary.agents.tabular import TabularAgent as TabularAgent
    from chary.assumptions import check_assumptions as check_assumptions
    from chary.errors import CharyError as CharyError
    from chary.evaluation import evaluate_policy as evaluate_policy
    from chary.mdp import FiniteMDP as FiniteMDP
    from chary.mdp import Setting as Setting
    from chary.policies import OwnBaseline as OwnBaseline
    from chary.results import load_results as load_results
    from chary.rollouts import rollout as rollout
    from chary.rollouts import rollout_many as rollout_many
    from chary.shield import Rule as Rule
    from chary.shield import Shield as Shield
    from chary.simulation import simulate as simulate
    from chary.simulation.rollout_judge import judge as judge
    from chary.simulation.run import Run as Run
    from chary.standing import Standing as Standing

__version__ = "0.1.0"

# Where each public name lives; None stands for a module of the same name.
_HOMES: dict[str, str | None] = {
    "CUCBVI": "chary.agents",
    "PSRL": "chary.agents",
    "UCBVI": "chary.agents",
    "Baseline": "chary.agents",
    "Canary": "chary.agents",
    "CanaryAgent": "chary.agents.canary_agent",
    "CharyError": "chary.errors",
    "CharyUCBVI": "chary.agents",
    "EpsMix": "chary.agents",
    "FiniteMDP": "chary.mdp",
    "Frozen": "chary.agents",
    "OwnAgent": "chary.agents",
    "OwnBaseline": "chary.policies",
    "Random": "chary.agents",
    "Rule": "chary.shield",
    "Run": "chary.simulation.run",
    "Setting": "chary.mdp",
    "Shield": "chary.shield",
    "Standing": "chary.standing",
    "StepMix": "chary.agents",
    "TabularAgent": "chary.agents.tabular",
    "Transition": "chary.agents",
    "check_assumptions": "chary.assumptions",
    "critics": None,
    "data": None,
    "envs": None,
    "evaluate_policy": "chary.evaluation",
    "judge": "chary.simulation.rollout_judge",
    "load_results": "chary.results",
    "make_agent": "chary.agents",
    "policies": None,
    "rollout": "chary.rollouts",
    "rollout_many": "chary.rollouts",
    "simulate": "chary.simulation",
    "wrappers": None,
}

__all__ = [
    *_HOMES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
