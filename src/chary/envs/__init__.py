"""Problems: each a function that returns a FiniteMDP, and a Gymnasium environment of its own id.

`import chary.envs` does not import Gymnasium; the ids exist as soon as both have been imported, in either
order.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from chary.envs.corridor import corridor
from chary.envs.inventory import inventory
from chary.envs.random_mdp import random
from chary.envs.riverswim import riverswim
from chary.envs.sepsis import sepsis
from chary.envs.siblings import SIBLINGS
from chary.errors import InvalidSetting, check_choice, check_integer
from chary.mdp import FiniteMDP

if TYPE_CHECKING:
    from chary.envs._gymnasium import TabularEnv

__all__ = [
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
GYMNASIUM_IDS = {
    "inventory": "chary/Inventory-v0",
    "sepsis": "chary/Sepsis-v0",
    "corridor": "chary/Corridor-v0",
    "riverswim": "chary/RiverSwim-v0",
    "random": "chary/Random-v0",
}
ACTIONS = ("admissible", "all")


def make(name: str, /, **options: Any) -> FiniteMDP:
    """Return a problem by name.

    Besides the options of the problem itself, `actions` says which actions may be played: `admissible` where
    the problem restricts them, `all` where it lets one play every action everywhere; None leaves it to the
    problem.

    Raises:
        UnknownName: if there is no such problem.
        InvalidSetting: if the problem has no such option, or does not offer those actions.

    Example:
        >>> make("inventory", capacity=3).n_states
        4
    """
    function, given, actions = _resolve(name, options)
    mdp = function(**given)
    _check_actions(name, actions, mdp)
    return mdp


def sibling(name: str, seed: int, /, **options: Any) -> FiniteMDP:
    """Return another random MDP of the same size and kind as a problem, and never the problem itself.

    Calibration uses these (docs/algorithm.md section 6). `options` are those of `make`; sizes and units are kept,
    costs, rewards and probabilities are drawn around them by `seed`.

    Raises:
        UnknownName: if there is no such problem.
        InvalidSetting: if an option is wrong, or `seed` is not a whole number >= 0.

    Example:
        >>> sibling("riverswim", 0).n_states
        6
    """
    function, given, actions = _resolve(name, options)
    entropy = check_integer("seed", seed, minimum=0)
    # Spawned by the problem's name: sibling 0 of one problem shares no draws with sibling 0 of another.
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=tuple(name.encode())))
    function(**given)  # a wrong option must not be hidden by what is drawn around it
    defaults = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    mdp = SIBLINGS[name](rng, {**defaults, **given})
    _check_actions(name, actions, mdp)
    return mdp


def register() -> None:
    """Register the ids `chary/Inventory-v0`, ... with Gymnasium; a second call changes nothing.

    Called by itself once both `chary.envs` and `gymnasium` have been imported.
    """
    import gymnasium

    for name, identity in GYMNASIUM_IDS.items():
        if identity not in gymnasium.registry:
            gymnasium.register(
                identity,
                entry_point="chary.envs._gymnasium:make_env",
                # TabularEnv keeps order itself, with an error of chary's own.
                order_enforce=False,
                kwargs={"problem": name},
            )


def _resolve(
    name: str, options: dict[str, Any]
) -> tuple[Callable[..., FiniteMDP], dict[str, Any], str | None]:
    """Return the problem's function, its own options, and `actions` where that is not one of them."""
    check_choice("problem", name, PROBLEMS)
    function = PROBLEMS[name]
    known = list(inspect.signature(function).parameters)
    given = {key: value for key, value in options.items() if not (key == "actions" and value is None)}
    actions: str | None = None
    if "actions" in given:
        check_choice("actions", given["actions"], ACTIONS)
        if "actions" not in known:
            actions = given.pop("actions")
    for key, value in given.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InvalidSetting(
                f"{key!r} must be an option of {name!r} ({', '.join(known)}), got {key}={value!r}.{hint}"
            )
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


class _ThenRegister(Loader):
    """Loads Gymnasium as usual, then registers the ids."""

    def __init__(self, usual: Loader) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module is as if this class had never been there.
        module.__loader__ = self._usual
        if module.__spec__ is not None:
            module.__spec__.loader = self._usual
        self._usual.exec_module(module)
        register()


class _RegisterOnImport(MetaPathFinder):
    """Waits for the import of Gymnasium, whose version 1.0 gave up finding environments by entry points."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return None
        spec.loader = _ThenRegister(spec.loader)
        return spec


if "gymnasium" in sys.modules:
    register()
else:
    sys.meta_path.insert(0, _RegisterOnImport())


def __getattr__(name: str) -> Any:
    if name == "TabularEnv":
        from chary.envs._gymnasium import TabularEnv

        return TabularEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
