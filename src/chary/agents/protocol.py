"""The interface of agents: four calls per episode, and the specification from which one is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._episodes import EpisodeId, Transition, check_episode_id
from chary.arrays import Ints
from chary.errors import InvalidData, InvalidSetting, check_choice, check_real, check_type
from chary.mdp import REWARD_KNOWLEDGE, FiniteMDP, Setting, as_policy
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES, Bounds
from chary.model.rows import rank_by_index, shuffled_rank
from chary.randomness import beside
from chary.shield import Decision
from chary.standing import Grounds

__all__ = ["AGENT_FILE", "Agent", "AgentSpec", "Discretises", "EpisodeId", "Transition", "check_episode_id"]


# The options that every result lists.
OPTIONS = (
    *("rule", "step_bound", "after_refusal", "charge", "pool", "clock", "data", "patience", "chains"),
    *("bonus", "bonus_scale", "reward", "ties"),
)
TIES = ("shuffled", "index")
# The value of `bonus` that stands for posterior worlds, section 11, in place of confidence bounds.
POSTERIOR = "posterior"
# The kind of a sealed file with a tabular agent in it.
AGENT_FILE = "agent"


@runtime_checkable
class Agent(Protocol):
    """The step API: any number of episodes, each begun, played step by step, and finished."""

    def begin(self, episode: EpisodeId, state: int) -> None:
        """Open an episode that starts in `state`."""

    def act(self, episode: EpisodeId, t: int, state: int) -> Decision | int:
        """Return the decision at step `t`, or the action alone where the agent keeps no ledger."""

    def observe(self, episode: EpisodeId, transition: Transition) -> None:
        """Take in the outcome of the action that was played."""

    def finish(self, episode: EpisodeId) -> None:
        """Close the episode; its transitions now count."""


@runtime_checkable
class Discretises(Protocol):
    """A discretiser of `chary.data` that can be saved with an agent."""

    @property
    def n_states(self) -> int:
        """The number of possible states."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays by name."""


def discretiser_arrays(discretiser: Discretises, setting: Setting) -> dict[str, NDArray[Any]]:
    """Return a discretiser as arrays by name.

    Raises:
        InvalidSetting: if it is something else, or has more states than the setting.
    """
    check_type("discretiser", discretiser, Discretises, "Bins or a Codebook of chary.data")
    if discretiser.n_states > setting.n_states:
        raise InvalidSetting(
            f"'discretiser' must give the agent's {setting.n_states} states at most, got one of "
            f"{discretiser.n_states}."
        )
    return discretiser.to_arrays()


def check_problem(told: Setting, setting: Setting | None, source: Path) -> None:
    """Check that an agent of a file, which was told `told`, is for the problem of `setting`; None is any.

    Rewards are compared where both know them: agents may estimate what the problem declares.

    Raises:
        InvalidData: if it is for another one.
    """
    if setting is None:
        return
    if told.known is None or setting.known is None:
        setting = replace(setting, known=told.known)
    if setting.digest != told.digest:
        raise InvalidData(
            f"'path' must hold an agent for this problem, got {source}, which is for another one: "
            f"{told.n_states} states, {told.n_actions} actions, horizon {told.horizon}."
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentSpec:
    """The options of all agents; the command line's options are generated from the specifications.

    Args:
        eta: Exploration budget per episode, in the problem's reward units; inf means no budget. Agents
            without a shield are only judged by it.
        bonus: Family of the confidence bounds; ucbvi also takes ch and bf. With posterior, agents chary and
            psrl plan by posterior worlds instead.
        bonus_scale: Factor on the bonus, > 0; below 1 bounds can be calibrated, not certified.
        delta: Probability, in (0, 1), with which the bounds of a run may fail.
        reward: Whether the reward function is known to the agent or estimated from data.
        prior: Policy that decides ties of the baseline, by default none; a file contains actions. In Python
            (S,) actions, (S, A) probabilities, or "recorded" for the one that comes with the problem.
        ties: Order in which equally good actions are chosen. `shuffled` draws one per state from the seed, so
            that no result depends on the order of labels; `index` takes the lowest number.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    shielded: ClassVar[bool] = False
    has_worlds: ClassVar[bool] = False

    eta: float | None = None
    bonus: Annotated[str, (*FAMILIES, POSTERIOR)] = "kl"
    bonus_scale: float = 1.0
    delta: float = 0.1
    reward: Annotated[str, REWARD_KNOWLEDGE] = "estimated"
    prior: Annotated[ArrayLike | str | None, "recorded|none|FILE"] = None
    ties: Annotated[str, TIES] = "shuffled"

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range."""
        check_type("bonus", self.bonus, str, "the name of a family of bounds")
        if self.eta is not None:
            check_real("eta", self.eta, low=0.0, way_out="Use rule 'unlimited' for no budget at all.")
        check_choice("reward", self.reward, REWARD_KNOWLEDGE)
        check_choice("ties", self.ties, TIES)
        if self.bonus == POSTERIOR and self.has_worlds:
            check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
            return
        bounds = self.bounds
        if bounds.family in UCBVI_FAMILIES and self.name != "ucbvi":
            raise InvalidSetting(
                f"'bonus' {bounds.family!r} belongs to agent 'ucbvi' alone, got agent {self.name!r}. "
                "Use hoeffding, l1, kl or bernstein."
            )

    @property
    def label(self) -> str:
        """What results call the agent."""
        return self.name

    @property
    def bounds(self) -> Bounds:
        """The bounds that these options select.

        Raises:
            InvalidSetting: with posterior worlds, which have none.
        """
        if self.bonus == POSTERIOR:
            way_out = "Plan by chary.TabularAgent." if self.has_worlds else "Use agent 'chary' or 'psrl'."
            raise InvalidSetting(
                f"'bonus' must be one of {', '.join(FAMILIES)} here, got 'posterior' with agent "
                f"{self.name!r}. {way_out}"
            )
        return Bounds(family=self.bonus, scale=self.bonus_scale, delta=self.delta)

    def grounds(self, setting: Setting | None = None) -> Grounds:
        """Return what the promise of a budget leans on as far as options and a problem's declaration tell."""
        return Grounds(
            eta=self.eta,
            delta=self.delta,
            bounds=self.bounds,
            setting=setting,
        )

    def options(self) -> dict[str, Any]:
        """Return the options as results list them; None where an option does not apply."""
        return {name: getattr(self, name, None) for name in OPTIONS}

    def tie_rank(self, setting: Setting, generator: np.random.Generator | None) -> Ints:
        """Return the places of pairs (P,) by which ties are decided; the generator draws nothing for it.

        Without a generator the order is one drawn from seed 0.
        """
        if self.ties == "index":
            return rank_by_index(setting)
        return shuffled_rank(setting, beside(generator, "ties"))

    def prior_actions(self, setting: Setting, mdp: FiniteMDP | None = None) -> NDArray[np.int64]:
        """Return the prior as (S,) actions, -1 where there is none.

        Raises:
            InvalidSetting: if the problem has no recorded policy, or the prior plays a disallowed action.
        """
        if self.prior is None:
            return np.full(setting.n_states, -1, dtype=np.int64)
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, ["recorded"])
            if mdp is None or mdp.recorded_policy is None:
                raise InvalidSetting(
                    f"'prior' can be 'recorded' only where the problem has a recorded policy, "
                    f"got problem {mdp.name if mdp else 'custom'!r}. Pass an array of actions."
                )
            return np.array(mdp.recorded_policy)
        return np.array(as_policy("prior", self.prior, setting))
