"""The step API of every tabular agent: the slow and clear twin of the compiled loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents import _endings
from chary.agents._batch import batch
from chary.agents._choosing import Chooser, check_generator
from chary.agents._episodes import EpisodeId, Episodes, Transition
from chary.agents._facts import ObservedFacts
from chary.agents._learner import check_own
from chary.agents._live_calls import ADOPT, LiveCalls
from chary.agents._parts import new_learner, new_shield
from chary.agents._tabular_core import Open
from chary.agents._visits import Visits
from chary.agents.canary import Canary
from chary.agents.protocol import (
    AGENT_FILE,
    POSTERIOR,
    AgentSpec,
    Discretises,
    check_problem,
    discretiser_arrays,
)
from chary.agents.worlds import WorldsSpec
from chary.arrays import Bools, Ints
from chary.errors import (
    InvalidData,
    InvalidSetting,
    OutOfOrder,
    check_choice,
    check_integer,
    check_truth,
    check_type,
)
from chary.mdp import Setting, as_policy
from chary.policies import OwnBaseline
from chary.shield import Decision
from chary.storage.files import write_new
from chary.storage.sealed import load_sealed, pack
from chary.texts import shown

OVERRIDES = ("ignored", "counted")
REPLAN = ("episode", ADOPT)


@final
class TabularAgent(LiveCalls):
    """An agent at work: begin, act, observe, finish, for any number of episodes open at once.

    Each episode is pinned to the plan it began with. A decision may be requested twice: the second one is the
    same and nothing more is booked. Outcomes may come late and in any order: `act` at the next step reports
    where the last one led, `observe` may follow with its reward. Outcomes count at the end of an episode, for
    each state and action in the order of the decisions: one that is missing holds back those behind it, until
    it arrives or its episode is abandoned. Every call that raises leaves the agent as it was.

    Args:
        spec: The agent and its options.
        setting: All that the agent may know of the problem.
        max_episodes: The number of episodes to come; bonus `kl` needs none, the others refuse to go
            beyond it.
        warmup: The number of warm-up episodes that `warm_start` will be given, for bonus `l1`.
        generator: The source of the agent's randomness: one row of H + 1 uniforms per episode, and the order
            of ties. Never use the seed that the environment is reset with: both would draw the same numbers.
        prior: A policy that decides the baseline's ties, in place of the specification's.
        own: The user's policy with its role, `OwnBaseline.declare(...)`, in place of a prior.
        oracle_value: (S,) true values of the frozen baseline, for agents that use an oracle.
        losses: Whether outcomes may get lost. The bounds then allow for it from the first episode on; where
            an outcome is lost without this, they do so only from then on.
        overrides: Whether outcomes of actions played in place of the one decided are `ignored` or `counted`.
            Counting them assumes that nobody overruled the agent for reasons that the state leaves out.
        discretiser: The map from observations to the agent's states, where there is one: `standing` names it,
            and it is saved with the agent.
        replan: When plans are made: `episode`, before every episode that begins after something was learnt,
            or `adopt`, the first one by itself and every further one by `draft` and `adopt`.

    Example:
        >>> from chary.agents import CharyUCBVI
        >>> agent = TabularAgent(CharyUCBVI(eta=0.5), Setting.declare(n_states=2, n_actions=2, horizon=1))
        >>> agent.begin(0, 0)
        >>> agent.act(0, 0, 0).charge
        0.0
    """

    def __init__(
        self,
        spec: AgentSpec,
        setting: Setting,
        *,
        max_episodes: int | None = None,
        warmup: int = 0,
        generator: np.random.Generator | None = None,
        prior: ArrayLike | None = None,
        own: OwnBaseline | None = None,
        oracle_value: ArrayLike | None = None,
        losses: bool = False,
        overrides: str = "ignored",
        discretiser: Discretises | None = None,
        replan: str = "episode",
    ) -> None:
        check_type("spec", spec, AgentSpec, "an agent's specification")
        check_type("setting", setting, Setting, "a Setting")
        if isinstance(spec, Canary):
            raise InvalidSetting(f"'spec' must be of another agent, got {spec.name!r}. Use CanaryAgent.")
        if isinstance(spec, WorldsSpec):
            spec.check_problem(setting)
        if spec.reward == "known" and setting.known is None:
            raise InvalidSetting(
                "'reward' can be 'known' only where the setting declares a reward function, got one without. "
                "Use Setting.declare(reward=...), or reward='estimated'."
            )
        if spec.reward == "estimated" and setting.known is not None:
            setting = replace(setting, known=None)
        self.spec, self.setting = spec, setting
        self.n_actions, self.horizon = setting.n_actions, setting.horizon
        self.overrides = check_choice("overrides", overrides, OVERRIDES)
        self.losses = bool(losses)
        self.replan = check_choice("replan", replan, REPLAN)
        self.episodes_begun = 0
        self._max_episodes = (
            None if max_episodes is None else check_integer("max_episodes", max_episodes, minimum=1)
        )
        self._counts_episodes = spec.bonus != POSTERIOR and spec.bounds.needs_episodes
        if self._max_episodes is None and self._counts_episodes:
            raise InvalidSetting(
                f"'max_episodes' must be declared with bonus {spec.bonus!r}, whose bounds hold for that many "
                "episodes, got None. Bonus 'kl' needs none."
            )
        self._warmup = check_integer("warmup", warmup, minimum=0)
        if own is not None:
            check_own(own, setting, given=prior is not None or spec.prior is not None)
        self._learner = new_learner(
            spec,
            setting,
            prior=spec.prior_actions(setting) if prior is None else as_policy("prior", prior, setting),
            own=own,
            max_episodes=self._max_episodes,
            warmup=warmup,
            generator=check_generator(generator),
            losses=self.losses,
            adopts=self.replan == ADOPT,
        )
        self._chooser = Chooser(spec, setting, self._learner, generator=generator, oracle_value=oracle_value)
        self._facts = ObservedFacts(setting)
        self._episodes = Episodes(setting.horizon, may_go_on=self._facts.check_left)
        self._visits = Visits()
        self._discretiser = {} if discretiser is None else discretiser_arrays(discretiser, setting)
        self._late_rollouts = []
        self._untaken = False
        self._logged_steps = 0
        self.shield = new_shield(spec, setting)
        self.last_end = None

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Count logged or warm-up episodes, before the first episode begins.

        Raises:
            OutOfOrder: if an episode was begun already.
            InvalidData: if a transition contradicts the setting or another one; nothing is counted then.
        """
        if self.episodes_begun:
            raise OutOfOrder(
                f"'warm_start' must come before the first episode, got {self.episodes_begun} begun."
            )
        self._learn_first(episodes)

    def begin(self, episode: EpisodeId, state: int, *, eta: float | None = None) -> None:
        """Open an episode that starts in `state`.

        Args:
            episode: Its name.
            state: The state it starts in.
            eta: A budget of its own, in the user's units, with rules `strict` and `capped`. Where bounds or
                worlds were calibrated it is at most that of the specification, for which they were.

        Raises:
            OutOfOrder: if it is open already.
            InvalidBudget: if `eta` is not finite and >= 0, or above what was calibrated.
            InvalidData: if `episode` is not a name, or `state` is outside the space or terminal.
            InvalidSetting: if the bounds do not hold for that many episodes.
        """
        name = self._episodes.unused(episode)
        s = self._facts.state("state", state)
        if self._facts.ends[s]:
            raise InvalidData(f"'state' must not be terminal at the start of an episode, got {s}.")
        if self._counts_episodes and self.episodes_begun == self._max_episodes:
            raise InvalidSetting(
                f"'max_episodes' must cover every episode, got {self._max_episodes} and one more. "
                "Declare more from the start, or use bonus 'kl', which needs no number."
            )
        limit = None if eta is None else self._limit(eta)
        self._learner.check()
        self._changing = True
        pinned = self._chooser.begin(s)
        if limit is not None:
            pinned.limits.append((0, limit))
        if self.shield is not None:
            self.shield.begin(name, pinned.plan, pinned.number, limit=limit)
        self._episodes.open(name, s, pinned)
        self.episodes_begun += 1

    def act(
        self, episode: EpisodeId, t: int, state: int, *, proposal: int | None = None, explore: bool = True
    ) -> Decision:
        """Return the action to play at step `t` in `state`, and what it costs.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the decision is the same.
            state: The state it is in.
            proposal: An action that another explorer suggests: it is played where the budget
                affords it, else the baseline is. For agents with a shield.
            explore: False plays the baseline and books nothing; a chain that the episode was feeding waits
                in this state. A step decided before stays as it was decided.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `state` is not the state observed last.
            InvalidAction: if the proposal is not an action allowed in `state`.
        """
        now = self._episodes.named("act", episode)
        explores = check_truth("explore", explore)
        s, suggested, decided = self._ready(now, t, state, proposal, explores)
        return self._decide(now, s, suggested, explores) if decided is None else decided

    def act_many(
        self,
        episodes: Sequence[EpisodeId] | Ints,
        t: Sequence[int] | Ints,
        states: Sequence[int] | Ints,
        proposals: Sequence[int | None] | Ints | None = None,
        *,
        explore: bool | Sequence[bool] | Bools = True,
    ) -> list[Decision]:
        """Return the decisions of many open episodes, in their order: `act` for each, and much faster.

        `explore` is one truth value for all, or a list with one for each.

        Raises:
            OutOfOrder: if an episode is named twice, or as `act` does.
            InvalidData: if the columns differ in length, or as `act` does.
            InvalidAction: as `act` does. Whatever is wrong, nothing was decided then.
        """
        whole = isinstance(explore, (bool, np.bool_))
        some = None if whole else explore
        rows = batch(episodes=episodes, t=t, states=states, proposals=proposals, explore=some)
        asked: list[tuple[Open, int, int | None, bool, Decision | None]] = []
        new: dict[int, tuple[Any, list[tuple[int, int, int | None]]]] = {}
        for episode, step, state, proposal, explores in rows:
            now = self._episodes.named("act_many", episode)
            explores = bool(explore) if whole else check_truth("explore", explores)
            s, suggested, decided = self._ready(now, step, state, proposal, explores)
            asked.append((now, s, suggested, explores, decided))
            if decided is None and explores:
                number = now.pinned.number
                if number not in new:
                    new[number] = (now.pinned.plan, [])
                new[number][1].append((now.t, s, suggested))
        names = [now.name for now, *_ in asked]
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise OutOfOrder(f"'episodes' must name each episode once, got {shown(twice)} twice.")
        if self.shield is not None:
            for plan, steps in new.values():
                plan.prepare(*zip(*steps, strict=True))
        decide = self._decide
        return [decide(now, s, a, e) if decided is None else decided for now, s, a, e, decided in asked]

    def observe(
        self, episode: EpisodeId, transition: Transition, *, t: int | None = None, taken: int | None = None
    ) -> None:
        """Take in what a decided action led to; an outcome observed twice counts once.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: What happened. Where the setting has early endings, the agent takes care of one.
            t: At which step; may be left out where only one outcome is outstanding.
            taken: The action of the transition, where it is not the one decided: someone overruled the
                agent. It may be left out where `taken` was called before. The charge of the decision stays
                booked and a chain waits where it was. The transition is not counted, unless the agent was
                made with overrides="counted".

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant, or `taken` comes
                too late for a chain.
            InvalidAction: if another action was played than the one decided and `taken` does not name it.
            InvalidData: if the transition contradicts the setting, or the states decided in.
        """
        now = self._episodes.named("observe", episode)
        t = self._episodes.step_of(now, t)
        place = f"episode {now.name!r}, step {t}"
        reached = _endings.led(self.setting, transition)
        step = self._facts.checked(reached, place)
        ended = reached is not transition and _endings.goes_on(self.setting)
        over = self._facts.checked(_endings.over(self.setting), place) if ended else None
        if not self._episodes.is_news(now, t, step, taken):
            return
        self._changing = True
        self._take(now, t, step)
        if self.overrides == "counted" and now.steps[t].overruled and now.steps[t].taken is None:
            self._visits.overruled(now.steps[t])
        if over is not None:
            self._fill_up(now, over)
        self._settle(now)

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode whose missing outcomes will never be known.

        Dropping out may depend on how the episode went, so nothing is left out: what was observed counts, and
        what is missing counts as lost, worth the most in every upper bound and nothing in every lower one.
        What the episode spent is not refunded.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._episodes.named("abandon", episode)
        self._changing = True
        if self.shield is not None and not now.released:
            self._take_outcome(self.shield.abandon(now.name))
        self._episodes.drop(now)
        for step in now.steps:
            self._visits.resolved(step)
        self._learn_late_rollouts()
        self._count()

    def save(
        self, path: str | Path, *, overwrite: bool = False, discretiser: Discretises | None = None
    ) -> None:
        """Write all of the agent to a file, open episodes included: `load` goes on with the same decisions.

        The file is sealed npz: numbers and texts, no pickle. It is written whole or not at all.

        Args:
            path: Where to.
            overwrite: Whether an existing file may be replaced.
            discretiser: The map from observations to the agent's states, saved with it from now on;
                `chary.data.load_discretiser(path)` returns it.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written, or the
                discretiser has another number of states.
        """
        cells = self._discretiser if discretiser is None else discretiser_arrays(discretiser, self.setting)
        write_new(path, lambda: pack(AGENT_FILE, *self._record(cells)), overwrite=overwrite)
        self._discretiser = cells

    @classmethod
    def load(cls, path: str | Path, *, setting: Setting | None = None) -> TabularAgent:
        """Return the agent that was saved; nothing in the file can run code.

        Args:
            path: What `save` wrote.
            setting: The problem it must be for; by default whatever it was saved with.

        Raises:
            InvalidData: if the file is missing, truncated, changed, of another schema, of another kind or of
                another problem.
        """
        from chary.agents._saving import restored

        agent, source = load_sealed(path, AGENT_FILE, "an agent of chary", restored)
        check_problem(agent.setting, setting, source)
        return agent

    def _record(
        self, cells: dict[str, NDArray[Any]] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all there is to save as arrays and as plain values, perhaps with another discretiser."""
        from chary.agents._saving import record

        return record(self, self._discretiser if cells is None else cells)
