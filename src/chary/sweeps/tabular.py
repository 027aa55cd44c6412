"""Tabular problems as a family: conditions, algorithms, and the way a run is played.

NumPy and numba are imported when a run is made, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chary.errors import MOST_EPISODES, InvalidSetting, check_choice, check_integer, check_real, check_seed
from chary.extensions import is_reference, resolved, source_of
from chary.presets import BONUSES, NAMES, REWARDS
from chary.shield.chains import PATIENCE
from chary.sweeps.family import AnyAlgorithm, AnyConditions, Family, names_of
from chary.sweeps.run_spec import RunSpec

if TYPE_CHECKING:
    from chary.agents import AgentSpec
    from chary.mdp import FiniteMDP


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(AnyConditions):
    """The conditions that compared runs of a tabular problem share.

    Args:
        problem: A problem's name, see `chary problems`, or your own as "module:name".
        actions: Which actions may be played, or None for the problem's default.
        horizon: Steps of an episode, or None for the problem's default.
        episodes: Online episodes of every run, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seeds: How many seeds, >= 1.
        first_seed: The first of them, >= 0; the others follow it.
        etas: The budgets, each >= 0, in the problem's own reward units.
        bonus: The family of bounds.
        bonus_scale: The scale of the bonus, > 0, fixed by `chary calibrate` before regret is looked at.
        bonus_scale_factor: A further factor on it, > 0, by which studies vary the scale.
        reward: Whether the reward function is `known` or `estimated`.
        delta: The probability, in (0, 1), with which the bounds of a run may fail.
        patience: Episodes without an advance after which a chain is abandoned, >= 0, or `none` for never.
        prior: `recorded` where the policy that comes with the problem decides ties, else `none`.
        ties: The order of equally good actions: `shuffled` for every seed, or by `index`.
        coverage: Where bounds are compared with the truth, `played` or `everywhere`.
    """

    earlier: ClassVar[Mapping[str, Any]] = {"ties": "index", "patience": "none"}

    problem: str
    actions: str | None = None
    horizon: int | None = None
    episodes: int
    warmup: int
    seeds: int
    first_seed: int = 0
    etas: tuple[float, ...]
    bonus: str
    bonus_scale: float = 1.0
    bonus_scale_factor: float = 1.0
    reward: str = "estimated"
    delta: float = 0.1
    patience: int | str = PATIENCE
    prior: str = "none"
    ties: str = "shuffled"
    coverage: str = "played"

    def __post_init__(self) -> None:
        if resolved("problem", self.problem, NAMES) != self.problem:
            raise InvalidSetting(f"'problem' must be of the form 'module:name', got {self.problem!r}.")
        if self.actions is not None:
            check_choice("actions", self.actions, ("admissible", "all"))
        if self.horizon is not None:
            check_integer("horizon", self.horizon, minimum=1)
        self.check_shared()
        check_choice("bonus", self.bonus, BONUSES)
        for name in ("bonus_scale", "bonus_scale_factor"):
            check_real(name, getattr(self, name), low=0.0, open_low=True, open_high=True)
        check_choice("reward", self.reward, REWARDS)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        if self.patience != "none":
            check_integer("patience", self.patience, minimum=0, way_out="Use 'none' to wait for ever.")
        check_choice("prior", self.prior, ("none", "recorded"))
        check_choice("ties", self.ties, ("shuffled", "index"))
        check_choice("coverage", self.coverage, ("played", "everywhere"))

    def changed(self, changes: Mapping[str, Any]) -> Conditions:
        """Return these conditions with some changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(AnyAlgorithm):
    """One line of the figures: a tabular agent and its options, see `AnyAlgorithm`."""

    budgeted_agents = ("chary", "canary", "stepmix", "epsmix")

    @staticmethod
    def agents() -> tuple[str, ...]:
        """Return the agents of `chary.agents`."""
        from chary.agents import AGENTS

        return tuple(AGENTS)

    @classmethod
    def named(cls, name: str) -> str:
        """Return an agent of chary's by name, or your own as "module:name"; nothing is imported."""
        return resolved("agent", name, cls.agents())

    @staticmethod
    def options_of(agent: str) -> tuple[str, ...] | None:
        """Return the options that an agent may be given; None where only its own code can tell."""
        from chary.agents import AGENTS

        if is_reference(agent):
            return None
        # Runs find their calibration by themselves.
        return tuple(name for name in names_of(AGENTS[agent]) if name not in ("eta", "calibration"))

    def resolved(self, conditions: Conditions, eta: float | None) -> dict[str, Any]:
        """Return all options of the agent at one budget, defaults included.

        Raises:
            CharyError: if they do not fit together.
        """
        from chary.agents import PSRL, AgentSpec, make_agent
        from chary.agents.protocol import POSTERIOR
        from chary.agents.worlds import WORLD_OPTIONS

        options: dict[str, Any] = {
            "eta": eta,
            **{name: getattr(conditions, name) for name in ("bonus", "reward", "delta", "ties")},
            "bonus_scale": conditions.bonus_scale * conditions.bonus_scale_factor,
            "prior": None if conditions.prior == "none" else conditions.prior,
            **({"bonus": POSTERIOR} if self.agent == PSRL.name else {}),
            **(
                {"patience": conditions.patience} if "patience" in (self.options_of(self.agent) or ()) else {}
            ),
            **self.options,
        }
        if options.get("patience") == "none":
            options["patience"] = None
        agent = make_agent(self.agent, **self.with_step_bound(options, eta))
        # A run is named by its options: those of worlds are none of a run without them.
        unused = () if agent.bonus == POSTERIOR else WORLD_OPTIONS
        known = self.options_of(self.agent) or (*names_of(AgentSpec), "arguments")
        names = [name for name in dict.fromkeys(("eta", *known)) if name not in unused]
        resolved = {name: getattr(agent, name) for name in names}
        # Runs of version 0.1 have no such option and mean the lowest index: their ids stay what they are.
        return {name: value for name, value in resolved.items() if (name, value) != ("ties", "index")}


def problem_and_agent(spec: RunSpec) -> tuple[FiniteMDP, AgentSpec]:
    """Return the problem and the agent of a tabular run, checked against each other.

    Raises:
        CharyError: if something does not exist, or does not fit.
    """
    from chary.agents import WorldsSpec, make_agent
    from chary.envs import make

    horizon = {} if spec.horizon is None else {"horizon": spec.horizon}
    mdp = make(spec.problem, actions=spec.actions, **horizon)
    agent = make_agent(spec.agent, **{"ties": "index", **spec.options})
    if isinstance(agent, WorldsSpec):
        agent.check_problem(mdp.setting)
    agent.prior_actions(mdp.setting, mdp)
    check_integer("episodes", spec.episodes, minimum=1, largest=MOST_EPISODES)
    check_integer("warmup", spec.warmup, minimum=0, largest=MOST_EPISODES)
    check_seed(spec.seed)
    return mdp, agent


def known_problem(spec: RunSpec) -> FiniteMDP | None:
    """Return the problem of a stored run, None for one of the user's own, whose code is not run again."""
    return None if is_reference(spec.problem) else problem_and_agent(spec)[0]


def _check(spec: RunSpec) -> None:
    """Raise CharyError if a run cannot be played; code of the user's own is imported and an agent made."""
    from chary.agents import OwnAgent
    from chary.randomness import generator_for

    mdp, agent = problem_and_agent(spec)
    if isinstance(agent, OwnAgent):
        told, generator = mdp.told(agent.reward), generator_for(spec.seed, "agent")
        agent.made(told, generator=generator, episodes=spec.episodes, warmup=spec.warmup)


def _sources(spec: RunSpec) -> dict[str, dict[str, str | None]]:
    named = {"agent": spec.agent, "problem": spec.problem}
    return {what: source_of(name) for what, name in named.items() if is_reference(name)}


def _simulation(spec: RunSpec) -> Any:
    from chary.simulation import Simulation

    mdp, agent = problem_and_agent(spec)
    return Simulation(
        mdp, agent, episodes=spec.episodes, warmup=spec.warmup, seed=spec.seed, coverage=spec.coverage
    )


def _arrays(run: Any) -> dict[str, Any]:
    from chary.simulation.run import run_arrays

    return run_arrays(run)


TABULAR = Family(
    name="tabular",
    problems=tuple(NAMES),
    conditions=Conditions,
    algorithm=Algorithm,
    check=_check,
    simulation=_simulation,
    arrays=_arrays,
    sources=_sources,
    # One set of kernels plays all runs.
    compiled=lambda spec: "",
    compiles_to_disk=True,
    lanes=None,
    packages=("numpy", "numba", "scipy", "llvmlite"),
    container="npz",
    needs=(),
)
