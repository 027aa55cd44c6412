"""The step API of every tabular agent: the slow and clear twin of the compiled loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents._mixtures import FROZEN, Mixture, new_mixture, switch_step, uniform_pair
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.fixed import Baseline
from chary.agents.neighbours import MixtureSpec
from chary.agents.protocol import AgentSpec, Transition
from chary.errors import InvalidAction, InvalidData, InvalidSetting, OutOfOrder, check_integer
from chary.mdp import Setting, as_policy
from chary.model.bounds import UCBVI_FAMILIES
from chary.model.knowledge import Knowledge
from chary.planner._backup import new_scratch
from chary.planner._kernels import new_explorer
from chary.planner.plan import TabularPlan, optimistic_policy
from chary.shield import Decision, MetaRollout, Outcome, Shield

__all__ = ["TabularAgent"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REWARD_TOLERANCE = 1e-9
NEEDS_CHANCE = ("stepmix", "epsmix", "random")


@dataclass(slots=True)
class _Open:
    """One open episode, pinned to the plan it began with."""

    plan: TabularPlan
    number: int
    state: int
    uniforms: Floats
    explorer: Ints | None = None
    switch: int = 0
    action: int | None = None
    ended: bool = False
    transitions: list[Transition] = field(default_factory=list)


@final
class TabularAgent:
    """An agent at work: begin, act, observe, finish.

    Several episodes may be open at once, each pinned to the plan it began with; an episode counts when it
    is finished. Every call that raises leaves the agent as it was.

    Args:
        spec: Which agent, and its options.
        setting: What it is told about the problem.
        max_episodes: How many episodes there will be; bonus `kl` needs no number, the others refuse to go
            beyond it.
        warmup: How many warm-up episodes `warm_start` will be given, for bonus `l1`.
        generator: The source of the agent's own randomness: one row of H + 1 uniforms an episode.
        prior: A policy that decides the baseline's ties, in place of the specification's.
        oracle_value: (S,) true values of the frozen baseline, for agents told by an oracle.

    Example:
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
        oracle_value: Floats | None = None,
    ) -> None:
        if not isinstance(spec, AgentSpec):
            raise InvalidSetting(f"'spec' must be an agent's specification, got {type(spec).__name__}.")
        if isinstance(spec, CharyUCBVI):
            spec.check_problem(setting)
        if spec.reward == "known" and setting.known is None:
            raise InvalidSetting(
                "'reward' can be 'known' only where the setting declares a reward function, got one without. "
                "Use FiniteMDP.told('known'), or reward='estimated'."
            )
        if generator is None and spec.name in NEEDS_CHANCE:
            raise InvalidSetting(
                f"'generator' must be given with agent {spec.name!r}, which tosses coins, got None."
            )
        if spec.reward == "estimated" and setting.known is not None:
            setting = replace(setting, known=None)
        self.spec = spec
        self.setting = setting
        self.episodes_begun = 0
        self._max_episodes = (
            None if max_episodes is None else check_integer("max_episodes", max_episodes, minimum=1)
        )
        check_integer("warmup", warmup, minimum=0)
        total = None if max_episodes is None else max_episodes + warmup
        self._knowledge = Knowledge.empty(
            setting, spec.bounds, episodes=self._max_episodes, total_episodes=total
        )
        self._separate: Knowledge | None = None
        if isinstance(spec, CharyUCBVI) and spec.data == "meta":
            self._separate = Knowledge.empty(
                setting, spec.bounds, episodes=self._max_episodes, total_episodes=total
            )
        self._prior = spec.prior_actions(setting) if prior is None else as_policy("prior", prior, setting)
        self._warmup = warmup
        self._oracle_value = oracle_value
        self._generator = generator
        self._scratch = new_scratch(setting.n_states)
        self._explorers: dict[int, Ints] = {}
        self._ceiling = new_explorer(
            setting.n_states, setting.n_pairs, setting.horizon, falling=spec.bonus in UCBVI_FAMILIES
        )
        self._plan: TabularPlan | None = None
        self._plans = 0
        self._mixture: Mixture | None = None
        self._frozen: Ints | None = None
        self._open: dict[int, _Open] = {}
        self.shield: Shield[int] | None = None
        self.last_outcome: Outcome[int] | None = None
        if isinstance(spec, CharyUCBVI):
            self.shield = Shield(
                spec.resolved_rule(setting.scale.span),
                horizon=setting.horizon,
                pool=spec.pool,
                clock=spec.clock,
                patience=spec.patience,
                chains=spec.chains,
            )

    @property
    def plan(self) -> TabularPlan:
        """The plan that an episode begun now would be pinned to."""
        if self._plan is None:
            self._plan = TabularPlan(
                self.setting,
                self._knowledge,
                self._prior,
                charge=self.spec.charge if isinstance(self.spec, CharyUCBVI) else "paper",
                upper=self.spec.shielded,
                explorers=self._explorers,
                new_explorer=self._new_explorer,
            )
            self._plans += 1
        return self._plan

    @property
    def frozen_baseline(self) -> Ints:
        """The baseline that the warm-up's data gives, (H, S); fixed from the first episode on."""
        if self._frozen is None:
            self._frozen = np.array(self.plan.arrays.baseline)
        return self._frozen

    def plan_of(self, episode: int) -> TabularPlan:
        """Return the plan an open episode is pinned to."""
        return self._opened("plan_of", episode).plan

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Count logged or warm-up episodes, before the first episode begins.

        Raises:
            OutOfOrder: if an episode was begun already.
            InvalidData: if a transition contradicts the setting; nothing is counted then.
        """
        if self.episodes_begun:
            raise OutOfOrder(
                f"'warm_start' must come before the first episode, got {self.episodes_begun} begun."
            )
        checked = [[self._checked(step) for step in episode] for episode in episodes]
        most = self._warmup * self.setting.horizon
        if self.spec.bonus == "l1" and sum(len(episode) for episode in checked) > most:
            raise InvalidSetting(
                f"'warmup' must cover all that is learnt before with bonus 'l1', got {self._warmup} episodes "
                f"of {self.setting.horizon} steps. Declare more, or use bonus 'kl', which needs no number."
            )
        for episode in checked:
            self._learn(self._knowledge, episode)
            if self._separate is not None:
                self._learn(self._separate, episode)
        self._plan = self._frozen = None

    def begin(self, episode: int, state: int) -> None:
        """Open an episode that starts in `state`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `state` is outside the space or terminal.
            InvalidSetting: if the bounds do not hold for that many episodes.
        """
        if episode in self._open:
            raise OutOfOrder(
                f"'begin' must open a new episode, got {episode!r}, which is open. Finish it first."
            )
        s = self._state("state", state)
        if self._knowledge.radii.terminal[s]:
            raise InvalidData(f"'state' must not be terminal at the start of an episode, got {s}.")
        if self.spec.bounds.needs_episodes and self.episodes_begun == self._max_episodes:
            raise InvalidSetting(
                f"'max_episodes' must cover every episode, got {self._max_episodes} and one more. "
                "Declare more from the start, or use bonus 'kl', which needs no number."
            )
        plan = self.plan
        frozen = self.frozen_baseline
        horizon = self.setting.horizon
        uniforms = np.zeros(horizon + 1) if self._generator is None else self._generator.random(horizon + 1)
        opened = _Open(plan, self._plans, s, uniforms)
        if isinstance(self.spec, MixtureSpec):
            if self._mixture is None:
                self._mixture = new_mixture(
                    self.spec.kind,
                    frozen=frozen,
                    alpha=getattr(self.spec, "alpha", 0.0),
                    eta=(self.spec.eta or 0.0) / self.setting.scale.span,
                    oracle_value=self._oracle_value,
                )
            # The frozen baseline has no use for an optimistic plan.
            opened.explorer = (
                frozen
                if self.spec.kind == FROZEN
                else optimistic_policy(self.setting, self._knowledge, self._ceiling)
            )
            opened.switch = switch_step(
                self._mixture,
                self._knowledge.rows,
                self._knowledge.radii,
                opened.explorer,
                s,
                uniforms[0],
                self._scratch,
            )
        if self.shield is not None:
            self.shield.begin(episode, plan, self._plans)
        self._open[episode] = opened
        self.episodes_begun += 1

    def act(self, episode: int, t: int, state: int) -> Decision:
        """Return the action to play at step `t` in `state`, and what it costs.

        Raises:
            OutOfOrder: if the episode is not open or over, its last action was not observed, or `t` is not
            its
                next step.
            InvalidData: if `state` is not the state observed last.
        """
        now = self._opened("act", episode)
        if now.action is not None:
            raise OutOfOrder(
                f"'act' must follow an observation, got episode {episode!r} with one outstanding."
            )
        if now.ended or t != len(now.transitions):
            expected = "finish, for it is over" if now.ended else f"act with t = {len(now.transitions)}"
            raise OutOfOrder(f"'t' must be the next step of episode {episode!r}, got {t!r}. Call {expected}.")
        if self._state("state", state) != now.state:
            raise InvalidData(f"'state' must be the state observed last, {now.state}, got {state!r}.")
        if self.shield is not None:
            decision = self.shield.decide(episode, t, now.state)
        else:
            action, explored = self._choose(now, t)
            decision = Decision(action, explored, 0.0, 0.0, float("inf"), now.number, -1)
        now.action = decision.action
        return decision

    def observe(self, episode: int, transition: Transition) -> None:
        """Take in what the action led to.

        Raises:
            OutOfOrder: if no action is outstanding.
            InvalidAction: if another action was played than the one decided.
            InvalidData: if the transition contradicts the setting.
        """
        now = self._opened("observe", episode)
        if now.action is None:
            raise OutOfOrder(f"'observe' must follow an action, got none outstanding in episode {episode!r}.")
        step = self._checked(transition)
        if step.action != now.action:
            raise InvalidAction(f"'action' must be the one decided, {now.action}, got {step.action}.")
        if step.state != now.state:
            raise InvalidData(f"'state' must be the one decided in, {now.state}, got {step.state}.")
        if self.shield is not None:
            self.shield.observe(episode, step.next_state, terminated=step.terminated, transition=step)
        now.transitions.append(step)
        now.action = None
        now.state = step.next_state
        now.ended = step.terminated or len(now.transitions) == self.setting.horizon

    def finish(self, episode: int) -> None:
        """Close the episode and count what it saw.

        Raises:
            OutOfOrder: if it is not open, or its last action was not observed.
        """
        now = self._opened("finish", episode)
        if now.action is not None:
            raise OutOfOrder(
                f"'finish' must follow an observation, got one outstanding in episode {episode!r}."
            )
        finished: tuple[MetaRollout[int], ...] = ()
        if self.shield is not None:
            self.last_outcome = self.shield.finish(episode)
            finished = self.last_outcome.finished
            for chain in self.last_outcome.ended:
                self._explorers.pop(chain, None)
        del self._open[episode]
        if self._open:
            # Other episodes are pinned to plans that read these counts: they keep theirs, we go on with a
            # copy.
            self._knowledge = self._knowledge.copy()
            self._separate = self._separate.copy() if self._separate is not None else None
        if self._separate is not None:
            for rollout in finished:
                steps = [step.transition for step in rollout.steps]
                self._learn(self._separate, [step for step in steps if isinstance(step, Transition)])
        self._learn(self._knowledge, now.transitions)
        self._plan = None

    def _choose(self, now: _Open, t: int) -> tuple[int, bool]:
        if isinstance(self.spec, MixtureSpec):
            assert now.explorer is not None
            policy = now.explorer if t >= now.switch else self.frozen_baseline
            return int(policy[t, now.state]), t >= now.switch
        if isinstance(self.spec, Baseline):
            return now.plan.baseline(t, now.state), False
        pair = uniform_pair(self._knowledge.rows, now.state, now.uniforms[t + 1])
        return int(self.setting.pair_action[pair]), True

    def _new_explorer(self) -> Ints:
        knowledge = self._knowledge if self._separate is None else self._separate
        return optimistic_policy(self.setting, knowledge)

    def _opened(self, call: str, episode: int) -> _Open:
        now = self._open.get(episode)
        if now is None:
            raise OutOfOrder(f"{call!r} must name an open episode, got {episode!r}. Call begin first.")
        return now

    def _state(self, name: str, state: int) -> int:
        s = check_integer(name, state, minimum=0, error=InvalidData)
        if s >= self.setting.n_states:
            raise InvalidData(f"{name!r} must lie in 0..{self.setting.n_states - 1}, got {s}.")
        return s

    def _checked(self, transition: Transition) -> Transition:
        """Return the transition with a scaled reward, once it agrees with the setting."""
        if not isinstance(transition, Transition):
            raise InvalidData(f"'transition' must be a Transition, got {type(transition).__name__}.")
        s, x = self._state("state", transition.state), self._state("next_state", transition.next_state)
        a = check_integer("action", transition.action, minimum=0, error=InvalidAction)
        if a >= self.setting.n_actions or self.setting.pair_index[s, a] < 0:
            raise InvalidAction(f"'action' must be allowed in state {s}, got {a}.")
        scale = self.setting.scale
        try:
            reward = (float(transition.reward) - scale.low) / scale.span
        except (TypeError, ValueError):
            reward = float("nan")
        if not -REWARD_TOLERANCE <= reward <= 1 + REWARD_TOLERANCE:
            raise InvalidData(
                f"'reward' must lie in [{scale.low:g}, {scale.high:g}], got {transition.reward!r}. "
                "Declare the scale of your rewards in the setting."
            )
        self._check_declared(int(self.setting.pair_index[s, a]), x, reward)
        self._check_ending(s, x, bool(transition.terminated))
        return Transition(s, a, min(max(reward, 0.0), 1.0), x, bool(transition.terminated))

    def _check_ending(self, s: int, x: int, terminated: bool) -> None:
        """Raise InvalidData where a state ends episodes at one time and not at another."""
        ends = self._knowledge.radii.terminal
        if ends[s] or (ends[x] and not terminated):
            raise InvalidData(
                f"'terminated' must be true whenever a terminal state is reached, got a step "
                f"{'from' if ends[s] else 'to'} state {s if ends[s] else x} that goes on. "
                "Give endings a state of their own."
            )
        if terminated and self._knowledge.rows.visits[x] > 0:
            raise InvalidData(
                f"'terminated' must be false where a state was left before, got true in state {x}. "
                "Give endings a state of their own."
            )
        if terminated and self.setting.scale.low != 0.0:
            raise InvalidData(
                f"'terminated' must be false where rewards have an offset, got true with rewards from "
                f"{self.setting.scale.low:g}: ending early would pay. Pad episodes with reward 0."
            )

    def _check_declared(self, pair: int, x: int, reward: float) -> None:
        """Raise InvalidData where an observed reward contradicts the declared one: the bounds rely on it."""
        known = self.setting.known
        if known is None:
            return
        begin, end = known.start[pair], known.start[pair + 1]
        place = begin + np.searchsorted(known.successor[begin:end], x)
        low, high = known.other_low[pair], known.other_high[pair]
        if place < end and known.successor[place] == x:
            low = high = known.reward[place]
        if not low - REWARD_TOLERANCE <= reward <= high + REWARD_TOLERANCE:
            raise InvalidData(
                f"'reward' must be the declared one, {low:g} to {high:g} once scaled, got {reward:g}. "
                "Use reward='estimated' if it is not a known function of the transition."
            )

    def _learn(self, knowledge: Knowledge, steps: Sequence[Transition]) -> None:
        if not steps:
            return
        states, actions, rewards, nexts, ended = (np.array(column) for column in zip(*steps, strict=True))
        knowledge.learn(states, self.setting.pair_index[states, actions], nexts, rewards.astype(float))
        knowledge.radii.terminal[nexts[ended]] = True
