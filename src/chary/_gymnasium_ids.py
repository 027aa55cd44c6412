"""The ids `chary/Inventory-v0`, ...: registered once Gymnasium is imported, without importing it.

Gymnasium 1.0 gave up finding environments by entry points, so `import chary` waits for its import instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["GYMNASIUM_IDS", "HIV_ID", "register", "register_on_import"]

GYMNASIUM_IDS = {
    "inventory": "chary/Inventory-v0",
    "sepsis": "chary/Sepsis-v0",
    "corridor": "chary/Corridor-v0",
    "riverswim": "chary/RiverSwim-v0",
    "random": "chary/Random-v0",
}
# Not a finite MDP, so not one of the problems.
HIV_ID = "chary/HIV-v0"


def register() -> None:
    """Register the ids with Gymnasium; a second call changes nothing."""
    import gymnasium

    for name, identity in GYMNASIUM_IDS.items():
        if identity not in gymnasium.registry:
            gymnasium.register(
                identity,
                entry_point="chary.envs._gymnasium:make_env",
                # Our environments keep order themselves, with an error of chary's own.
                order_enforce=False,
                kwargs={"problem": name},
            )
    if HIV_ID not in gymnasium.registry:
        gymnasium.register(HIV_ID, entry_point="chary.envs.hiv.environment:HIVEnv", order_enforce=False)


def register_on_import() -> None:
    """Register now if Gymnasium is imported already, else as soon as it is."""
    if sys.modules.get("gymnasium") is not None:
        register()
    else:
        sys.meta_path.insert(0, _RegisterOnImport())


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
    """Waits for the import of Gymnasium, then takes itself out of the way."""

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
