"""Problems with continuous states, each a value that Gymnasium and compiled JAX loops both play.

Only the start of an episode is random: what a policy is worth from a state can be computed exactly by one
rollout. The treatment of HIV is the fourth of them, with a simulator of its own: `chary.envs.hiv`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from chary.envs.continuous.cartpole import CartPole
from chary.envs.continuous.equations import Equations
from chary.envs.continuous.glucose import Glucose
from chary.envs.continuous.plane import Plane
from chary.errors import check_choice

if TYPE_CHECKING:
    from chary.envs.continuous.gymnasium_env import ContinuousEnv

__all__ = ["CONTINUOUS", "CartPole", "ContinuousEnv", "Equations", "Glucose", "Plane", "equations_of"]

CONTINUOUS: dict[str, type[CartPole | Glucose | Plane]] = {
    kind.name: kind for kind in (CartPole, Glucose, Plane)
}


def equations_of(name: str, **options: Any) -> Equations:
    """Return a problem by name.

    Raises:
        UnknownName: if there is no such problem, or it has no such option.
        InvalidSetting: if an option is out of range.

    Example:
        >>> equations_of("glucose", spread=0.1).spread
        0.1
    """
    kind = CONTINUOUS[check_choice("problem", name, CONTINUOUS)]
    for option in options:
        check_choice(f"an option of {name!r}", option, [each.name for each in fields(kind)])
    return kind(**options)


def __getattr__(name: str) -> Any:
    if name == "ContinuousEnv":
        from chary.envs.continuous.gymnasium_env import ContinuousEnv

        return ContinuousEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
