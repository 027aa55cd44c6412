"""The deep learner: a shielded double DQN for vectors as observations; needs `pip install 'chary[deep]'`.

Names are imported on first use: `import chary.deep` itself does not need JAX. Everything computes with
`jax_enable_x64` on, since the ledger is kept in float64; the networks are float32.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidSetting

if TYPE_CHECKING:
    from chary.deep.agent import DeepAgent as DeepAgent
    from chary.deep.ensemble.options import EnsembleOptions as EnsembleOptions
    from chary.deep.environment import Environment as Environment
    from chary.deep.learner import State as State
    from chary.deep.loop import EpisodeLog as EpisodeLog
    from chary.deep.loop import StepLog as StepLog
    from chary.deep.loop import begin as begin
    from chary.deep.loop import proceed as proceed
    from chary.deep.loop import train as train
    from chary.deep.options import AGENTS as AGENTS
    from chary.deep.options import LOWER_BOUNDS as LOWER_BOUNDS
    from chary.deep.options import DeepOptions as DeepOptions
    from chary.deep.playing import EpisodeSummary as EpisodeSummary
    from chary.deep.simulation import DeepSimulation as DeepSimulation
    from chary.deep.simulation.audit import EpisodeAudit as EpisodeAudit
    from chary.deep.simulation.audit import audit_episode as audit_episode
    from chary.deep.simulation.continuous import cartpole as cartpole
    from chary.deep.simulation.continuous import environment_of as environment_of
    from chary.deep.simulation.continuous import glucose as glucose
    from chary.deep.simulation.continuous import plane as plane
    from chary.deep.simulation.hiv import hiv as hiv
    from chary.deep.simulation.run import DeepRun as DeepRun

_HOMES = {
    "AGENTS": "chary.deep.options",
    "LOWER_BOUNDS": "chary.deep.options",
    "DeepAgent": "chary.deep.agent",
    "DeepOptions": "chary.deep.options",
    "DeepRun": "chary.deep.simulation.run",
    "DeepSimulation": "chary.deep.simulation",
    "EnsembleOptions": "chary.deep.ensemble.options",
    "Environment": "chary.deep.environment",
    "EpisodeAudit": "chary.deep.simulation.audit",
    "EpisodeLog": "chary.deep.loop",
    "EpisodeSummary": "chary.deep.playing",
    "State": "chary.deep.learner",
    "StepLog": "chary.deep.loop",
    "audit_episode": "chary.deep.simulation.audit",
    "begin": "chary.deep.loop",
    "cartpole": "chary.deep.simulation.continuous",
    "environment_of": "chary.deep.simulation.continuous",
    "glucose": "chary.deep.simulation.continuous",
    "hiv": "chary.deep.simulation.hiv",
    "plane": "chary.deep.simulation.continuous",
    "proceed": "chary.deep.loop",
    "train": "chary.deep.loop",
}
_EXTRA = ("jax", "jaxlib", "optax")

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise InvalidSetting(f"The deep learner needs {missing}. Run: pip install 'chary[deep]'.") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
