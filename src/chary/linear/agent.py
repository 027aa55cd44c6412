"""The step API of linear worlds: begin, act, observe, finish, for any number of episodes open at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._episodes import NOT_TAKEN, EpisodeId, Episodes, OpenEpisode
from chary.agents._spaces import horizon_of, spaces_of
from chary.agents._step_api import Reports
from chary.agents.protocol import Transition
from chary.arrays import Floats
from chary.errors import (
    InvalidAction,
    InvalidSetting,
    OutOfOrder,
    check_index,
    check_integer,
    check_seed,
    check_type,
)
from chary.linear.features import Features, fourier, median_distance
from chary.linear.form import LinearForm
from chary.linear.options import LinearOptions
from chary.linear.order import Order
from chary.linear.plan import LinearPlan
from chary.linear.residuals import Misfit, misfit
from chary.linear.worlds import LinearWorlds, Pseudo, Steps, joined
from chary.planner.joint import votes_of
from chary.randomness import generator_for
from chary.shield import Decision, Ledger, Shield
from chary.shield.match import within
from chary.standing import Standing
from chary.storage.files import write_new
from chary.storage.sealed import load_sealed, pack

if TYPE_CHECKING:
    import gymnasium

KIND = "linear agent"
LOST_VALUES = (
    "what was lost counts as the best for the baseline and the worst for other actions, which bounds gaps "
    "where features are not negative and errs to both sides elsewhere"
)


@dataclass(slots=True, eq=False)
class Pinned:
    """The plan of an episode, and its number."""

    plan: LinearPlan
    number: int


Open = OpenEpisode[Floats, Pinned]


@final
class LinearAgent(Reports[Floats, Pinned]):
    """Linear worlds at work, for environments with vectors as observations and A actions.

    Each episode is pinned to the plan it began with. A decision may be requested twice: the second one is the
    same and nothing more is booked. Outcomes may come late and in any order; per action they are learnt in
    the order of the decisions, and one that is missing holds back those behind it, until it arrives or its
    episode is abandoned. What is lost is worth the most to the baseline and the least to the action that
    would replace it. Every call that raises leaves the agent as it was.

    Args:
        options: The model, the budget and the chains.
        observation_size: The length of an observation.
        n_actions: The number A of actions.
        horizon: H, the largest number of steps of an episode.
        features: Of an observation, see `chary.linear.fourier`, `one_hot` and `own`; None makes random
            Fourier features as `options.model` describes them.
        ahead: Value features, on which values of the next observation are projected; None takes `features`.
            Where values bend more than what is learnt, these may be many and those few.
        pseudo: A prior of transitions, in place of the one on coefficients.
        seed: The seed of all of the agent's randomness, >= 0.

    Raises:
        InvalidSetting: if something is of the wrong type or out of range.

    Example:
        >>> from chary.linear import LinearModel, LinearOptions
        >>> model = LinearModel(low=0.0, high=1.0, features=8, length_scale=1.0, worlds=8)
        >>> agent = LinearAgent(LinearOptions(model=model), observation_size=2, n_actions=3, horizon=5)
        >>> agent.begin(0, [0.0, 1.0])
        >>> decision = agent.act(0, 0, [0.0, 1.0])
        >>> agent.observe(0, Transition([0.0, 1.0], decision.action, 0.5, [0.1, 0.9], terminated=False))
        >>> agent.finish(0)
        >>> decision.deficit <= 0.1, agent.learnt
        (True, 1)
    """

    # Set by `_declare`, which `__init__` and `load` share.
    shield: Shield[Floats]
    episodes_begun: int
    _worlds: LinearWorlds | None
    _pseudo: Pseudo | None
    _ahead: Features | None
    _plan: LinearPlan | None
    _plans: int
    _warmed: bool

    def __init__(
        self,
        options: LinearOptions,
        *,
        observation_size: int,
        n_actions: int,
        horizon: int,
        features: Features | None = None,
        ahead: Features | None = None,
        pseudo: Pseudo | None = None,
        seed: int = 0,
    ) -> None:
        size = check_integer("observation_size", observation_size, minimum=1)
        self._declare(options, (size,), n_actions, horizon, seed)
        for name, given in (("features", features), ("ahead", ahead)):
            if given is None:
                continue
            check_type(name, given, Features, "Features, such as chary.linear.fourier returns")
            if given.size != size:
                raise InvalidSetting(f"{name!r} must be of observations of length {size}, got {given.size}.")
        if features is None and options.model.length_scale is not None:
            features = fourier(size, options.model.features, options.model.length_scale, seed=self.seed)
        self._pseudo, self._ahead = pseudo, ahead
        if features is not None:
            self._take_on(features)

    @classmethod
    def for_env(
        cls,
        env: gymnasium.Env[Any, Any],
        options: LinearOptions,
        *,
        horizon: int | None = None,
        features: Features | None = None,
        ahead: Features | None = None,
        seed: int = 0,
    ) -> LinearAgent:
        """Return an agent for a Gymnasium environment with Box observations and Discrete actions from 0.

        Args:
            env: The environment to be played.
            options: The model, the budget and the chains.
            horizon: H; None takes the time limit that the environment was registered with.
            features: As in the constructor.
            ahead: As in the constructor.
            seed: The seed of all of the agent's randomness.

        Raises:
            InvalidSetting: if the environment has other spaces, or no horizon is known.
        """
        shape, n_actions = spaces_of(env)
        steps = horizon_of(env) if horizon is None else horizon
        size = math.prod(shape)
        sizes: Any = {"observation_size": size, "n_actions": n_actions, "horizon": steps}
        agent = cls(options, **sizes, features=features, ahead=ahead, seed=seed)
        agent._form = agent._form._replace(shape=shape)
        return agent

    @property
    def learnt(self) -> int:
        """The number of transitions observed that may be learnt; the worlds learn them in batches."""
        waiting = sum(len(each.action) for each in self._waiting)
        return waiting + (0 if self._worlds is None else self._worlds.learnt + self._held)

    @property
    def _held(self) -> int:
        assert self._worlds is not None
        return len(self._worlds.held.action)

    @property
    def plan(self) -> LinearPlan:
        """The plan that an episode begun now would be pinned to.

        Raises:
            InvalidSetting: if there are no features yet.
            InvalidData: if the regressions cannot be solved.
        """
        if self._plan is None:
            worlds = self._ready_worlds()
            values = worlds.plan(self.horizon, self.options.discount)
            self._plan = LinearPlan(values, worlds.features, self.options.model, self._explorers)
            self._plans += 1
        return self._plan

    @property
    def misfit(self) -> Misfit:
        """The result of the residual test of the present plan on the transitions held out."""
        plan, worlds = self.plan, self._ready_worlds()
        return misfit(worlds.held, plan.values, worlds.features, self.options.model, self.options.discount)

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise: credible, unless the residual test contradicts the model."""
        told = replace(
            self.options.grounds,
            logs=self._warmed,
            untaken=self._untaken,
            losses_expected=False if self._worlds is not None and self._worlds.losses else None,
        )
        if self._worlds is None:
            return replace(told, prior="linear in features that are not made yet").standing
        model, found = self.options.model, self.misfit
        return replace(
            told,
            prior=model.describe(
                self._worlds.features.describe(),
                None if self._ahead is None else self._ahead.describe(),
                None if self._pseudo is None else "pseudo-transitions of your own",
            ),
            coverage=None if found.found else found.describe(),
            contradicted=found.describe() if found.found else None,
            also=(
                f"rewards lie in [{model.low:g}, {model.high:g}], as declared",
                *((LOST_VALUES,) if self._worlds.losses else ()),
            ),
        ).standing

    def plan_of(self, episode: EpisodeId) -> LinearPlan:
        """Return the plan an open episode is pinned to."""
        return self._episodes.named("plan_of", episode).pinned.plan

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return what an open episode has spent.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        now = self._episodes.named("ledger", episode)
        if now.released:
            return Ledger(True, now.steps[-1].decision.deficit if now.steps else 0.0)
        return self.shield.ledger(now.name)

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Learn logged episodes, once and before the first episode.

        Raises:
            OutOfOrder: if an episode was begun, or this was called before.
            InvalidData: if a transition is not sound, or an episode goes on after its end; nothing is learnt
                then.
        """
        if self.episodes_begun or self._warmed:
            said = f"{self.episodes_begun} begun" if self.episodes_begun else "a second call"
            raise OutOfOrder(
                f"'warm_start' must be called once and before the first episode, got {said}. "
                "Pass all logged episodes at once."
            )
        steps = self._form.logged(episodes)
        if not len(steps.action):
            return
        features = None if self._worlds is not None else self._features_of(steps)
        if self._worlds is not None:
            self._check_features(steps.observation)
        self._changing = True
        if features is not None:
            self._take_on(features)
        self._ready_worlds().learn(steps)
        self._before = self._ready_worlds().learnt
        self._plan, self._warmed = None, True

    def begin(self, episode: EpisodeId, observation: ArrayLike) -> None:
        """Open an episode that starts with `observation`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` is not a name, or `observation` not a vector of finite numbers.
            InvalidSetting: if features need a length scale and nothing was learnt to take it from.
        """
        name = self._episodes.unused(episode)
        seen = self._form.observation("observation", observation)
        self._check_features(seen[None])
        plan = self.plan
        self._changing = True
        self.shield.begin(name, plan, self._plans)
        self._episodes.open(name, seen, Pinned(plan, self._plans))
        self.episodes_begun += 1

    def act(
        self, episode: EpisodeId, t: int, observation: ArrayLike, *, proposal: int | None = None
    ) -> Decision:
        """Return the action to play at step `t`, and what it costs.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the decision is the same.
            observation: The observation it is at. Where the outcome of the last step is not known yet, this
                is where that step led.
            proposal: An action that another explorer suggests, in place of the chains.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `observation` is not the one that the episode is at.
            InvalidAction: if the proposal is not an action.
        """
        now = self._episodes.named("act", episode)
        seen = self._form.observation("observation", observation)
        decided = self._episodes.ask(now, t, seen)
        if decided is not None:
            return decided
        wanted = None if proposal is None else self._allowed("proposal", seen, proposal)
        plan = now.pinned.plan
        baseline = plan.baseline(now.t, seen)
        self._changing = True
        if now.late:
            self.shield.observe(now.name, seen, terminated=False)
        decision = self.shield.decide(now.name, now.t, seen, proposal=wanted)
        if decision.chain >= 0:
            plan.freeze(decision.chain)
        self._episodes.decide(now, seen, decision, baseline)
        self._order.decided(now.t - 1, now.steps[-1])
        return decision

    def observe(
        self, episode: EpisodeId, transition: Transition, *, t: int | None = None, taken: int | None = None
    ) -> None:
        """Take in where a decided action led; an outcome observed twice counts once.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: The step in the environment; `state` and `next_state` are observations.
            t: At which step; may be left out where only one outcome is outstanding.
            taken: The action of the transition, where it is not the one decided. The charge of the decision
                stays booked, the chain waits where it was, and the transition is not learnt.

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant, or `taken` comes
                too late for a chain.
            InvalidAction: if another action was played than the one decided and `taken` does not name it.
            InvalidData: if the transition does not start where the action was decided, is not made of finite
                numbers, or its reward is out of range.
        """
        now = self._episodes.named("observe", episode)
        t = self._episodes.step_of(now, t)
        step = self._form.transition(transition)
        self._check_features(step.next_state[None])
        if not self._episodes.is_news(now, t, step, taken):
            return
        self._changing = True
        if now.is_last(t):
            self.shield.observe(now.name, step.next_state, terminated=step.terminated, taken=step.action)
        self._episodes.note(now, t, step)
        self._settle(now)

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode whose outstanding outcomes will never be known.

        What was observed counts, and what is missing counts as lost. What the episode spent is not refunded.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._episodes.named("abandon", episode)
        self._changing = True
        if not now.released:
            self._forget(self.shield.abandon(now.name).ended)
        self._episodes.drop(now)
        self._learn()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write all of the agent but own features to a file, open episodes included: `load` goes on the same.

        The file is sealed npz: numbers and texts, no pickle. It is written whole or not at all.

        Args:
            path: The file to write.
            overwrite: Whether an existing file may be replaced.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written.
        """
        write_new(path, lambda: pack(KIND, *self._record()), overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | Path, *, features: Features | None = None, ahead: Features | None = None
    ) -> LinearAgent:
        """Return the agent that was saved; nothing in the file can run code.

        Args:
            path: What `save` wrote.
            features: Own features given again, which a file cannot contain; for others None.
            ahead: The same for value features.

        Raises:
            InvalidData: if the file is missing, truncated, changed, of another schema or of another kind, or
                `features` are missing or not of the same number.
        """
        from chary.linear.saving import restored

        def build(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> LinearAgent:
            return restored(about, arrays, features=features, ahead=ahead)

        return load_sealed(path, KIND, "a linear agent", build)[0]

    def _record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        from chary.linear.saving import record

        return record(self)

    def _declare(
        self, options: LinearOptions, shape: tuple[int, ...], n_actions: int, horizon: int, seed: int
    ) -> None:
        """Check and set what the agent is, all but what it has learnt."""
        check_type("options", options, LinearOptions, "LinearOptions")
        self.options = options
        self.n_actions = check_integer("n_actions", n_actions, minimum=1)
        self.horizon = check_integer("horizon", horizon, minimum=1)
        model = options.model
        self._form = LinearForm(shape, self.n_actions, self.horizon, model.low, model.high)
        self.seed = check_seed(seed)
        self._episodes = Episodes.of_arrays(self.horizon)
        self._order = Order(self.n_actions)
        self._worlds, self._pseudo, self._ahead, self._plan = None, None, None, None
        self._plans, self._before, self.episodes_begun = 0, 0, 0
        self._waiting: list[Steps] = []
        self._explorers: dict[int, Floats] = {}
        self._warmed = self._untaken = False
        # An array is no Sequence for mypy.
        near: Any = within(options.radius)
        self.shield = Shield(
            options.budget_rule,
            horizon=self.horizon,
            pool=options.pool,
            clock=options.clock,
            patience=options.patience,
            chains=options.chains,
            match=near,
            votes=votes_of(model.panel, model.worlds),
        )

    def _take_on(self, features: Features) -> None:
        generator = generator_for(self.seed, "worlds")
        self._worlds = LinearWorlds(
            features, self.n_actions, self.options.model, generator, pseudo=self._pseudo, ahead=self._ahead
        )

    def _features_of(self, steps: Steps) -> Features:
        scale = float(median_distance(np, steps.observation))
        return fourier(self._form.size, self.options.model.features, scale, seed=self.seed)

    def _ready_worlds(self) -> LinearWorlds:
        if self._worlds is None:
            raise InvalidSetting(
                "'length_scale' must be given where nothing is learnt before the first episode, got None. "
                "Call warm_start with a log, whose median distance is taken, or set it."
            )
        return self._worlds

    def _check_features(self, observations: Floats) -> None:
        """Raise a CharyError unless features of these observations can be computed."""
        worlds = self._ready_worlds()
        worlds.features(observations)
        if worlds.ahead is not worlds.features:
            worlds.ahead(observations)

    def _allowed(self, name: str, s: Floats, action: object) -> int:
        return check_index(name, action, self.n_actions, error=InvalidAction)

    def _reported(self, now: Open, t: int) -> None:
        step = now.steps[t]
        self._untaken |= step.taken == NOT_TAKEN
        if step.overruled and now.is_last(t):
            self.shield.part(now.name)

    def _settle(self, now: Open) -> None:
        if self._episodes.settle(now, self._release):
            self._learn()

    def _release(self, now: Open) -> None:
        # A step that was not taken is never observed.
        close = self.shield.abandon if now.late else self.shield.finish
        self._forget(close(now.name).ended)

    def _forget(self, chains: Iterable[int]) -> None:
        for chain in chains:
            self._explorers.pop(chain, None)

    def _learn(self) -> None:
        """Take in the steps whose turn has come, and learn them once they are enough to plan again."""
        steps = self._order.release()
        if steps:
            self._waiting.append(self._form.played(steps))
        number = sum(len(each.action) for each in self._waiting)
        worlds = self._ready_worlds()
        due = max(1, math.ceil(self.options.model.growth * (worlds.learnt - self._before)))
        if number >= due:
            worlds.learn(joined(self._waiting))
            self._waiting, self._plan = [], None
