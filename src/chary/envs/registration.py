"""The Gymnasium ids `chary/Inventory-v0`, ...: registered when `chary.envs` is imported.

Gymnasium 1.0 does not discover environments by entry points. Without that import,
`gymnasium.make("chary.envs:chary/Inventory-v0")` does the same.
"""

from __future__ import annotations

GYMNASIUM_IDS = {
    "inventory": "chary/Inventory-v0",
    "sepsis": "chary/Sepsis-v0",
    "corridor": "chary/Corridor-v0",
    "riverswim": "chary/RiverSwim-v0",
    "random": "chary/Random-v0",
}
# Their states are vectors of numbers, so they are not finite MDPs.
CONTINUOUS_IDS = {
    "hiv": "chary/HIV-v0",
    "cartpole": "chary/CartPole-v0",
    "glucose": "chary/Glucose-v0",
    "plane": "chary/Plane-v0",
}


def register() -> None:
    """Register the ids with Gymnasium, if it is installed; a second call changes nothing."""
    try:
        import gymnasium
    except ModuleNotFoundError:
        return

    tabular, continuous = "chary.envs.tabular_env:make_env", "chary.envs.continuous.gymnasium_env:make_env"
    made_by = {identity: (tabular, {"problem": name}) for name, identity in GYMNASIUM_IDS.items()}
    made_by |= {identity: (continuous, {"problem": name}) for name, identity in CONTINUOUS_IDS.items()}
    made_by[CONTINUOUS_IDS["hiv"]] = ("chary.envs.hiv.environment:HIVEnv", {})
    for identity, (entry, given) in made_by.items():
        if identity not in gymnasium.registry:
            # Our environments check the order of calls themselves, with an error of chary.
            gymnasium.register(identity, entry_point=entry, order_enforce=False, kwargs=given)
