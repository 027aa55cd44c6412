"""Choices without a shield: mixtures of a frozen baseline and an explorer, the baseline alone, and chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._learner import Learner
from chary.agents._mixtures import FROZEN, Mixture, new_mixture, switch_step, uniform_pair, widened
from chary.agents._world_learner import WorldLearner
from chary.agents.comparison import MIXTURE_MEMORY, Baseline, MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.arrays import Bools, Floats, Ints
from chary.errors import InvalidData, InvalidSetting
from chary.mdp._checks import as_numbers
from chary.mdp.setting import Setting
from chary.model.bounds import UCBVI_FAMILIES
from chary.model.knowledge import Knowledge
from chary.planner._backup import new_scratch
from chary.planner._full import new_explorer
from chary.planner.joint import JointPlan
from chary.planner.plan import TabularPlan, optimistic_policy
from chary.storage.sealed import as_array

NEEDS_CHANCE = ("stepmix", "epsmix", "random")


@dataclass(slots=True, eq=False)
class Pinned:
    """All that stays the same in an episode: its plan, and the random numbers and mixture it began with.

    `number` is the plan's, `version` the number of batches learnt when the plan was made. A mixture plays
    `explorer` from step `switch` on. `limits` are the episode's own, in scaled units, each with the first
    step that it holds for; from step `closed_at` on, if that is not -1, exploration was closed.
    """

    plan: TabularPlan | JointPlan
    number: int
    version: int
    uniforms: Floats
    explorer: Ints | None = None
    switch: int = 0
    limits: list[tuple[int, float]] = field(default_factory=list)
    closed_at: int = -1


def check_generator(generator: object) -> np.random.Generator | None:
    """Return a generator or None as it is.

    Raises:
        InvalidSetting: if it is anything else.
    """
    if generator is not None and not isinstance(generator, np.random.Generator):
        raise InvalidSetting(
            f"'generator' must be a numpy Generator, got {type(generator).__name__}. "
            "Use numpy.random.default_rng(seed)."
        )
    return generator


@final
class Chooser:
    """The start of every episode, and the choices of agents without a shield.

    Raises:
        InvalidSetting: if the generator is missing, or `oracle_value` does not fit.
    """

    def __init__(
        self,
        spec: AgentSpec,
        setting: Setting,
        learner: Learner | WorldLearner,
        *,
        generator: np.random.Generator | None,
        oracle_value: ArrayLike | None,
    ) -> None:
        if generator is None and spec.name in NEEDS_CHANCE:
            raise InvalidSetting(
                f"'generator' must be given with agent {spec.name!r}, which tosses coins, got None."
            )
        self._spec = spec
        self._setting = setting
        self._learner = learner
        self.generator = generator
        self._oracle_value = None if oracle_value is None else _values(oracle_value, setting)
        self._scratch = new_scratch(setting.n_states)
        self._ceiling = new_explorer(
            setting.n_states, setting.n_pairs, setting.horizon, falling=spec.bonus in UCBVI_FAMILIES
        )
        self._mixture: Mixture | None = None
        self._frozen: Ints | None = None

    @property
    def frozen_baseline(self) -> Ints:
        """The baseline of the plan in force when this was first read, (H, S)."""
        if self._frozen is None:
            self._frozen = np.array(self._learner.plan.arrays.baseline[:, : self._setting.n_states])
        return self._frozen

    def thaw(self) -> None:
        """Forget the frozen baseline: more warm-up data was counted."""
        self._frozen = None

    def begin(self, s: int) -> Pinned:
        """Return what an episode that starts in `s` is pinned to."""
        learner, horizon = self._learner, self._setting.horizon
        plan, frozen = learner.plan, self.frozen_baseline
        uniforms = np.zeros(horizon + 1) if self.generator is None else self.generator.random(horizon + 1)
        pinned = Pinned(plan, learner.plans, learner.in_force, uniforms)
        if isinstance(self._spec, MixtureSpec):
            if self._mixture is None:
                self._mixture = self._new_mixture(self._spec)
            knowledge = self._knowledge
            n_states = len(knowledge.rows.visits)
            if self._mixture.v_room.shape[1] != n_states:
                # States that stand for lost outcomes have been added.
                self._mixture = widened(self._mixture, n_states)
                self._scratch = new_scratch(n_states)
            # The frozen baseline has no use for an optimistic plan.
            pinned.explorer = (
                frozen
                if self._spec.kind == FROZEN
                else optimistic_policy(self._setting, knowledge, self._ceiling)
            )
            pinned.switch = switch_step(
                self._mixture, knowledge.rows, knowledge.radii, pinned.explorer, s, uniforms[0], self._scratch
            )
        return pinned

    @property
    def _knowledge(self) -> Knowledge:
        # Agents that choose without a shield have no worlds.
        assert isinstance(self._learner, Learner)
        return self._learner.knowledge

    def choose(self, pinned: Pinned, t: int, s: int, *, explore: bool = True) -> tuple[int, bool]:
        """Return the action at (t, s), and whether it explores."""
        if isinstance(self._spec, MixtureSpec):
            assert pinned.explorer is not None
            explored = explore and t >= pinned.switch
            policy = pinned.explorer if explored else self.frozen_baseline
            return int(policy[t, s]), explored
        if isinstance(self._spec, Baseline) or not explore:
            return pinned.plan.baseline(t, s), False
        pair = uniform_pair(self._knowledge.rows, s, pinned.uniforms[t + 1])
        return int(self._setting.pair_action[pair]), True

    def record(self) -> dict[str, NDArray[Any]]:
        """Return all but the generator as arrays, for `restore`."""
        arrays: dict[str, NDArray[Any]] = {"ceiling": self._ceiling.ceiling}
        if self._frozen is not None:
            arrays["frozen"] = self._frozen
        if self._oracle_value is not None:
            arrays["oracle_value"] = self._oracle_value
        if self._mixture is not None:
            S = self._setting.n_states
            arrays |= {f"mixture.{name}": getattr(self._mixture, name)[:S] for name in MIXTURE_MEMORY}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], ends: Bools) -> None:
        """Take on what `record` returned; `ends` are the states that end episodes.

        Raises:
            InvalidData: if it is not of this problem.
        """
        setting = self._setting
        self._ceiling.ceiling[:] = as_array("ceiling", arrays, self._ceiling.ceiling.shape, np.float64)
        # Bounds never fall below themselves: no number may be missing.
        if not (self._ceiling.ceiling >= 0).all():
            raise InvalidData("'ceiling' must hold numbers >= 0, got others.")
        if "frozen" in arrays:
            shape = (setting.horizon, setting.n_states)
            self._frozen = as_array("frozen", arrays, shape, np.int64, below=setting.n_actions)
            check_policy("frozen", self._frozen, setting, ends)
        if isinstance(self._spec, MixtureSpec) and "mixture.starts" in arrays:
            self._mixture = self._new_mixture(self._spec)
            for name in MIXTURE_MEMORY:
                memory = getattr(self._mixture, name)
                memory[:] = as_array(f"mixture.{name}", arrays, memory.shape, np.float64)
                if not np.isfinite(memory).all():
                    raise InvalidData(f"'mixture.{name}' must be finite, got others.")

    def _new_mixture(self, spec: MixtureSpec) -> Mixture:
        return new_mixture(
            spec.kind,
            frozen=self.frozen_baseline,
            alpha=getattr(spec, "alpha", 0.0),
            eta=float(spec.eta or 0.0) / self._setting.scale.span,
            oracle_value=self._oracle_value,
        )


def check_policy(name: str, policy: NDArray[Any], setting: Setting, ends: Bools) -> None:
    """Raise InvalidData unless a policy, (..., S), plays allowed actions wherever episodes go on."""
    states = np.arange(setting.n_states)
    inside = (policy >= 0) & (policy < setting.n_actions)
    allowed = setting.allowed[states, np.where(inside, policy, 0)] | ends
    if not bool((inside & allowed).all()):
        raise InvalidData(f"{name!r} must play actions allowed in this problem, got others.")


def _values(oracle_value: ArrayLike, setting: Setting) -> Floats:
    values = as_numbers("oracle_value", oracle_value)
    if values.shape != (setting.n_states,) or not np.isfinite(values).all():
        raise InvalidSetting(
            f"'oracle_value' must hold one finite number per state, shape ({setting.n_states},), got "
            f"{values.dtype} of shape {values.shape}."
        )
    return values.astype(np.float64)
