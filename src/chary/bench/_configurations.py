"""The agents that the benchmark of planners plays, by name, for every problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from chary.agents import CharyUCBVI
from chary.envs import make
from chary.errors import check_choice
from chary.mdp import FiniteMDP
from chary.presets import NAMES, Preset, preset

# A problem without a calibrated scale gets one at which episodes explore.
UNCALIBRATED_SCALE = 0.01
# How much smaller the bonus of "worst" is: nothing is clipped, and most episodes deviate.
SHRUNK = 30.0
POOL = 1000


class Configuration(NamedTuple):
    """A problem, the agent that plays it, and the number of random episodes before."""

    name: str
    mdp: FiniteMDP
    spec: CharyUCBVI
    warmup: int


def configurations(problem: str) -> dict[str, Callable[[], Configuration]]:
    """Return the configurations measured on a problem, each made on demand.

    `strict` and `capped` (step bound eta / 2) are the preset with bonus hoeffding; `all actions`, where a
    problem offers that besides admissible ones, is `capped` with every action allowed; `worst` is `capped`
    with a bonus so small that nothing is clipped and everything moves.

    Raises:
        UnknownName: if there is no such problem.

    Example:
        >>> list(configurations("sepsis"))
        ['strict', 'capped', 'all actions', 'worst']
    """
    usual = preset(check_choice("problem", problem, NAMES)).under("hoeffding")
    assert usual.eta is not None
    step_bound = usual.eta / 2
    bonus_scale = usual.scale.get("hoeffding", UNCALIBRATED_SCALE)

    def capped(name: str, scale: float, **options: Any) -> Callable[[], Configuration]:
        spec = _spec(usual, scale, rule="capped", step_bound=step_bound)
        return lambda: Configuration(name, make(problem, **options), spec, usual.warmup)

    strict = _spec(usual, bonus_scale, rule="strict")
    found = {
        "strict": lambda: Configuration("strict", make(problem), strict, usual.warmup),
        "capped": capped("capped", bonus_scale),
        "all actions": capped("all actions", bonus_scale, actions="all"),
        "worst": capped("worst", bonus_scale / SHRUNK),
    }
    if problem != "sepsis":
        del found["all actions"]
    return found


def _spec(usual: Preset, scale: float, **rule: Any) -> CharyUCBVI:
    return CharyUCBVI(
        eta=usual.eta,
        bonus="hoeffding",
        bonus_scale=scale,
        reward=usual.reward,
        delta=usual.delta,
        charge="coupled",
        pool=POOL,
        patience=None,
        **rule,
    )
