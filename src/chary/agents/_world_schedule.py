"""Posterior worlds of an agent: when they learn, and the plan that follows. Both drivers have one."""

from __future__ import annotations

import math
from typing import final

import numpy as np

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.worlds import WorldsSpec
from chary.arrays import Floats, Ints
from chary.mdp.setting import Setting
from chary.model.rows import pair_states
from chary.model.worlds import Worlds
from chary.planner._worlds import (
    FLOOR,
    ONLY,
    PRIOR,
    Own,
    Shape,
    WorldPlan,
    evaluate_worlds_into,
    new_world_plan,
    plan_worlds_into,
    shape_of,
)
from chary.policies import OwnBaseline
from chary.randomness import beside
from chary.shield.rule import Rule
from chary.shield.worlds import Panel

# The worlds that explore, apart from those that judge. Chains take them in turn.
EXPLORERS = 16
# The stream of an agent's randomness that worlds are drawn from, beside its own.
STREAM = "worlds"
# The room of a plan for one stage or one state, which plans share that are not used at the same time.
SHARED = ("q", "pooled", "atoms", "behind")
OWN_ROLES = {"prior": PRIOR, "floor": FLOOR, "only": ONLY}


@final
class WorldSchedule:
    """The worlds of an agent, learning in batches whose size grows with the data.

    `judges` is the number of worlds that judge, `panel` the part of them that must agree, `ledgers` how many
    deficits an episode has, and `shape` the problem as the planner reads it. `before` is the number of
    transitions known before the first episode, of a log or a warm-up.
    """

    def __init__(
        self,
        spec: WorldsSpec,
        setting: Setting,
        *,
        prior: Ints,
        rank: Ints,
        generator: np.random.Generator | None,
        own: OwnBaseline | None = None,
        losses: bool = False,
    ) -> None:
        shield = spec if isinstance(spec, CharyUCBVI) else None
        self._spec, self._setting, self._own = spec, setting, own
        self.judges = spec.worlds
        self.panel = Panel.of(shield.risk if shield else 0.5, worlds=spec.worlds)
        self.ledgers = spec.worlds if shield and shield.charge == "worlds" else 1
        self.rule = shield.resolved_rule(setting.scale.span) if shield else Rule.unlimited()
        self._optimism = 1.0 if shield and shield.explorer == "optimistic" else math.nan
        self.worlds = Worlds(
            setting,
            spec.worlds + EXPLORERS,
            beside(generator, STREAM),
            kind=spec.world_prior,
            kappa=spec.kappa,
        )
        if losses:
            self.worlds.expect_losses()
        # The prior policy's action comes before all others.
        rank = np.where(prior[pair_states(setting)] == setting.pair_action, -1, rank)
        self.shape = shape_of(setting, rank)
        self._room = new_world_plan(setting, self.judges, EXPLORERS)
        self.before = 0

    @property
    def due(self) -> int:
        """How many transitions must be new before the worlds learn them and are planned again.

        They are a share of those after the log: after a long one, too, worlds that err meet their mistake in
        the next episode, and do not repeat it until the log has grown.
        """
        return max(1, math.ceil(self._spec.growth * (self.worlds.learnt - self.before)))

    def begin(self) -> None:
        """Take all that was learnt so far for what was known before the first episode."""
        self.before = self.worlds.learnt

    def learn(self, pairs: Ints, nexts: Ints, rewards: Floats, ending: Ints | None = None) -> None:
        """Teach the worlds a batch of transitions; `ending` are states that were found to end episodes."""
        self.worlds.learn(pairs, nexts, rewards)
        if ending is not None and not self.shape.terminal[ending].all():
            terminal = self.shape.terminal.copy()
            terminal[ending] = True
            self.shape = self.shape._replace(terminal=terminal)

    def planned(
        self,
        room: WorldPlan | None = None,
        *,
        worlds: Worlds | None = None,
        shape: Shape | None = None,
        alone: bool = False,
    ) -> WorldPlan:
        """Return the plan of what the worlds have learnt, in `room` or in arrays of its own.

        Arrays of its own share with other plans what one call leaves behind and the next one overwrites.
        With `alone` they do so only once the plan is made, so that another thread can make it.

        Args:
            room: Arrays to fill.
            worlds: Worlds as they were before, and the `shape` of the problem then.
            shape: By default, like the worlds, those of now.
            alone: Whether other plans may be used meanwhile.
        """
        shared = self._room
        base = new_world_plan(self._setting, self.judges, EXPLORERS) if alone else shared
        plan = _fresh(base) if room is None else room
        worlds, shape, own = worlds or self.worlds, shape or self.shape, None
        rows = worlds.rows
        lost = worlds.lost_shares()
        if self._own is not None:
            value = np.zeros((0, 0, 0))
            if self._own.role == "floor":
                # What gets lost is worth the most to the policy that might be replaced.
                theirs = _fresh(base)
                evaluate_worlds_into(theirs, rows, shape, np.array(self._own.table), lost)
                value = theirs.value
            own = Own(OWN_ROLES[self._own.role], np.array(self._own.table), value, self.panel)
        plan_worlds_into(plan, rows, shape, self._spec.pessimism, self._optimism, own)
        if worlds.losses:
            best = _fresh(base)
            evaluate_worlds_into(best, rows, shape, plan.baseline, lost)
            plan = plan._replace(top=best.value)
        if alone:
            plan = plan._replace(**{name: getattr(shared, name) for name in SHARED})
        return plan


def _fresh(room: WorldPlan) -> WorldPlan:
    """Return a plan with values and policies of its own, and the same room for one stage."""
    names = ("value", "baseline", "explorer", "spread")
    return room._replace(**{name: np.zeros_like(getattr(room, name)) for name in names})
