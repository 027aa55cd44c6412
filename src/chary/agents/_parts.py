"""The learner and the shield that a specification asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from chary.agents._learner import Learner
from chary.agents._world_learner import WorldLearner
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.comparison import MixtureSpec
from chary.agents.own import OwnAgent
from chary.agents.protocol import POSTERIOR, AgentSpec
from chary.agents.worlds import WorldsSpec
from chary.arrays import Ints
from chary.errors import InvalidSetting
from chary.mdp.setting import Setting
from chary.planner.joint import votes_of
from chary.policies import OwnBaseline
from chary.shield import Rule, Shield
from chary.shield.worlds import Panel


def new_learner(
    spec: AgentSpec,
    setting: Setting,
    *,
    prior: Ints,
    own: OwnBaseline | None,
    max_episodes: int | None,
    warmup: int,
    generator: np.random.Generator | None,
    losses: bool,
    adopts: bool = False,
) -> Learner | WorldLearner:
    """Return what an agent learns with: counts and bounds, or posterior worlds.

    Raises:
        InvalidSetting: if the agent is the user's own, which learns by itself.
    """
    if isinstance(spec, OwnAgent):
        raise InvalidSetting(f"'spec' must be one of chary's, got your own, {spec.label!r}. Use your class.")
    if adopts and isinstance(spec, MixtureSpec):
        raise InvalidSetting(
            f"'replan' must be 'episode' for agent {spec.name!r}, which plans its explorer when an episode "
            "begins, got 'adopt'."
        )
    shared: Mapping[str, Any] = {
        "prior": prior,
        "own": own,
        "losses": losses,
        "adopts": adopts,
        "rank": spec.tie_rank(setting, generator),
        "length": (max_episodes, warmup),
    }
    if isinstance(spec, WorldsSpec) and spec.bonus == POSTERIOR:
        return WorldLearner(spec, setting, generator=generator, **shared)
    return Learner(spec, setting, **shared)


def new_shield(spec: AgentSpec, setting: Setting) -> Shield[int] | None:
    """Return the shield of an agent, None for one without.

    Posterior sampling has one without a budget: every episode explores to its end.
    """
    if isinstance(spec, CharyUCBVI):
        votes = None
        if spec.charge == "worlds":
            votes = votes_of(Panel.of(spec.risk, worlds=spec.worlds), spec.worlds)
        return Shield(
            spec.resolved_rule(setting.scale.span),
            horizon=setting.horizon,
            pool=spec.pool,
            clock=spec.clock,
            patience=spec.patience,
            chains=spec.chains,
            votes=votes,
            span=setting.scale.span,
        )
    if isinstance(spec, WorldsSpec) and spec.bonus == POSTERIOR:
        return Shield(Rule.unlimited(), horizon=setting.horizon, chains=False, span=setting.scale.span)
    return None
