"""Problems: each is a function that returns a FiniteMDP, and a Gymnasium environment with an id.

Importing this package registers the ids with Gymnasium, if it is installed; `import chary` does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chary.envs.corridor import corridor
from chary.envs.inventory import inventory
from chary.envs.random_mdp import random
from chary.envs.registration import CONTINUOUS_IDS, GYMNASIUM_IDS, register
from chary.envs.riverswim import riverswim
from chary.envs.sepsis import ACTIONS, sepsis
from chary.envs.siblings import SIBLINGS
from chary.errors import InvalidSetting, check_choice, check_seed, check_type
from chary.extensions import check_options, is_reference, load, parameters_of, theirs
from chary.mdp import FiniteMDP
from chary.presets import counted

if TYPE_CHECKING:
    from chary.envs.tabular_env import TabularEnv

__all__ = [
    "CONTINUOUS_IDS",
    "GYMNASIUM_IDS",
    "PROBLEMS",
    "TabularEnv",
    "corridor",
    "inventory",
    "make",
    "random",
    "register",
    "riverswim",
    "sepsis",
    "sibling",
]

PROBLEMS: dict[str, Callable[..., FiniteMDP]] = {
    "inventory": inventory,
    "sepsis": sepsis,
    "corridor": corridor,
    "riverswim": riverswim,
    "random": random,
}


def make(name: str, /, **options: Any) -> FiniteMDP:
    """Return a problem by name: one of chary's, of an entry point, or your own as "module:name".

    The last is a function that returns a FiniteMDP; its module is imported, which runs its code. In addition
    to the problem's own options, `actions` selects the actions that may be played: `admissible`
    if the problem restricts them, `all` if every action may be played everywhere; None is the problem's
    default.

    Raises:
        UnknownName: if there is no such problem.
        InvalidSetting: if the problem has no such option, or does not have those actions; if there is no such
            module, or no such function in it.
        FailedCode: if the code of your own problem raises.

    Example:
        >>> make("inventory", capacity=3).n_states
        4
    """
    name = counted(name)
    function, given, actions = _resolve(name, options)
    if is_reference(name):
        with theirs(f"problem {name!r}"):
            mdp = function(**given)
        check_type(name, mdp, FiniteMDP, "a function that returns a FiniteMDP")
        mdp = replace(mdp, name=name) if mdp.name == "custom" else mdp
    else:
        mdp = function(**given)
    _check_actions(name, actions, mdp)
    return mdp


def sibling(name: str, seed: int, /, **options: Any) -> FiniteMDP:
    """Return another random MDP of the same size and kind as a problem, never the problem itself.

    Calibration uses these, docs/algorithm.md section 6. `options` are those of `make`; sizes and units stay
    the same; costs, rewards and probabilities are drawn around the problem's by `seed`.

    Raises:
        UnknownName: if there is no such problem.
        InvalidSetting: if an option is wrong, or `seed` is not a whole number >= 0.

    Example:
        >>> sibling("riverswim", 0).n_states
        6
    """
    check_choice("problem", name, SIBLINGS)
    function, given, actions = _resolve(name, options)
    entropy = check_seed(seed)
    # Spawned by the problem's name: sibling 0 of one problem shares no draws with sibling 0 of another.
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=tuple(name.encode())))
    function(**given)  # a wrong option must raise before anything is drawn around it
    defaults = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    mdp = SIBLINGS[name](rng, {**defaults, **given})
    _check_actions(name, actions, mdp)
    return mdp


def _resolve(
    name: str, options: dict[str, Any]
) -> tuple[Callable[..., FiniteMDP], dict[str, Any], str | None]:
    """Return the problem's function, its own options, and `actions` if that is not one of them."""
    function = PROBLEMS[name] if name in PROBLEMS else load("problem", name)
    given = {key: value for key, value in options.items() if not (key == "actions" and value is None)}
    actions: str | None = None
    if "actions" in given:
        check_choice("actions", given["actions"], ACTIONS)
        if "actions" not in parameters_of(function):
            actions = given.pop("actions")
    check_options(repr(name), function, given)
    return function, given, actions


def _check_actions(name: str, actions: str | None, mdp: FiniteMDP) -> None:
    if actions == "admissible" and not mdp.restricts_actions:
        raise InvalidSetting(
            f"'actions' must be 'all' for {name!r}, where every action is allowed everywhere, "
            "got 'admissible'. Leave it out."
        )
    if actions == "all" and mdp.restricts_actions:
        raise InvalidSetting(
            f"'actions' must be 'admissible' for {name!r}, where some actions do not exist in some states, "
            "got 'all'. Leave it out."
        )


def __getattr__(name: str) -> Any:
    if name == "TabularEnv":
        from chary.envs.tabular_env import TabularEnv

        return TabularEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()
