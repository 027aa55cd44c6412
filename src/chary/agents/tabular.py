"""The step API of every tabular agent: the slow and clear twin of the compiled loop."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.agents import make_agent
from chary.agents._episodes import OpenEpisode, Played
from chary.agents._facts import Facts
from chary.agents._learner import Learner
from chary.agents._mixtures import FROZEN, Mixture, new_mixture, switch_step, uniform_pair
from chary.agents._saving import (
    KIND,
    MALFORMED,
    MIXTURE_MEMORY,
    PlayedTable,
    as_array,
    check_policy,
    check_shield,
    generator_from,
    generator_values,
    options_from,
    recalled,
    spec_values,
    under,
)
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.fixed import Baseline
from chary.agents.neighbours import MixtureSpec
from chary.agents.protocol import AgentSpec, Discretises, EpisodeId, Transition, check_episode_id, listed
from chary.arrays import Floats, Ints
from chary.errors import (
    CharyError,
    InvalidAction,
    InvalidData,
    InvalidSetting,
    OutOfOrder,
    Unwritable,
    check_integer,
)
from chary.mdp import Setting, as_policy
from chary.mdp.setting import as_numbers
from chary.model.bounds import UCBVI_FAMILIES
from chary.planner._backup import new_scratch
from chary.planner._full import new_explorer
from chary.planner.plan import TabularPlan, optimistic_policy
from chary.policies import OwnBaseline
from chary.shield import Decision, Outcome, Shield
from chary.storage.files import as_path, write_file
from chary.storage.sealed import pack, unpack

__all__ = ["TabularAgent"]


NEEDS_CHANCE = ("stepmix", "epsmix", "random")


@final
class TabularAgent:
    """An agent at work: begin, act, observe, finish, for any number of episodes open at once.

    Each episode is pinned to the plan it began with. A decision may be asked for twice: the answer is the
    same and nothing more is booked. Outcomes may come late and in any order: `act` at the next step says
    where the last one led, `observe` may follow with its reward; the episode counts when it is finished and
    all of its outcomes are known. Every call that raises leaves the agent as it was.

    Args:
        spec: Which agent, and its options.
        setting: What it is told about the problem.
        max_episodes: How many episodes there will be; bonus `kl` needs no number, the others refuse to go
            beyond it.
        warmup: How many warm-up episodes `warm_start` will be given, for bonus `l1`.
        generator: The source of the agent's own randomness: one row of H + 1 uniforms an episode. Never with
            the seed that the environment is reset with: agent and world would draw the same numbers.
        prior: A policy that decides the baseline's ties, in place of the specification's.
        own: A policy of the user's own with its role, `OwnBaseline.declare(...)`, in place of a prior.
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
        own: OwnBaseline | None = None,
        oracle_value: ArrayLike | None = None,
    ) -> None:
        if not isinstance(spec, AgentSpec):
            raise InvalidSetting(f"'spec' must be an agent's specification, got {type(spec).__name__}.")
        if not isinstance(setting, Setting):
            raise InvalidSetting(f"'setting' must be a Setting, got {type(setting).__name__}.")
        if generator is not None and not isinstance(generator, np.random.Generator):
            raise InvalidSetting(
                f"'generator' must be a numpy Generator, got {type(generator).__name__}. "
                "Use numpy.random.default_rng(seed)."
            )
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
        if self._max_episodes is None and spec.bounds.needs_episodes:
            raise InvalidSetting(
                f"'max_episodes' must be declared with bonus {spec.bonus!r}, whose bounds hold for that many "
                "episodes, got None. Bonus 'kl' needs none."
            )
        self._warmup = check_integer("warmup", warmup, minimum=0)
        if own is not None:
            _check_own(own, setting, given=prior is not None or spec.prior is not None)
        self._learner = Learner(
            spec,
            setting,
            prior=spec.prior_actions(setting) if prior is None else as_policy("prior", prior, setting),
            own=own,
            max_episodes=self._max_episodes,
            warmup=warmup,
        )
        self._oracle_value = None if oracle_value is None else _values(oracle_value, setting)
        self._generator = generator
        self._scratch = new_scratch(setting.n_states)
        self._ceiling = new_explorer(
            setting.n_states, setting.n_pairs, setting.horizon, falling=spec.bonus in UCBVI_FAMILIES
        )
        self._mixture: Mixture | None = None
        self._frozen: Ints | None = None
        self._facts = Facts(setting)
        self._open: dict[EpisodeId, OpenEpisode] = {}
        self._discretiser: dict[str, NDArray[Any]] = {}
        # Meta-rollouts some of whose outcomes are still to come, where explorers learn from them.
        self._late_rollouts: list[list[Played]] = []
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
        return self._learner.plan

    @property
    def frozen_baseline(self) -> Ints:
        """The baseline that the warm-up's data gives, (H, S); fixed from the first episode on."""
        if self._frozen is None:
            self._frozen = np.array(self.plan.arrays.baseline)
        return self._frozen

    @property
    def open_episodes(self) -> tuple[EpisodeId, ...]:
        """The episodes begun and neither complete nor abandoned."""
        return tuple(self._open)

    @property
    def outstanding(self) -> dict[EpisodeId, tuple[int, ...]]:
        """The steps of open episodes that were decided and whose outcomes are not known yet."""
        steps = {episode: tuple(now.outstanding) for episode, now in self._open.items()}
        return {episode: missing for episode, missing in steps.items() if missing}

    def plan_of(self, episode: EpisodeId) -> TabularPlan:
        """Return the plan an open episode is pinned to."""
        return self._opened("plan_of", episode).plan

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
        try:
            steps = [step for episode in episodes for step in episode]
        except TypeError as problem:
            raise InvalidData(
                f"'episodes' must be lists of transitions, got {type(episodes).__name__}: {problem}."
            ) from problem
        most = self._warmup * self.setting.horizon
        if self.spec.bonus == "l1" and len(steps) > most:
            raise InvalidSetting(
                f"'warmup' must cover all that is learnt before with bonus 'l1', got {self._warmup} episodes "
                f"of {self.setting.horizon} steps. Declare more, or use bonus 'kl', which needs no number."
            )
        if steps:
            self._learner.begin_with(self._facts.checked_columns(steps))
        self._frozen = None

    def begin(self, episode: EpisodeId, state: int) -> None:
        """Open an episode that starts in `state`.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` names nothing, or `state` is outside the space or terminal.
            InvalidSetting: if the bounds do not hold for that many episodes.
        """
        episode = check_episode_id(episode)
        if episode in self._open:
            raise OutOfOrder(
                f"'begin' must open a new episode, got {episode!r}, which is open. Finish it first."
            )
        s = self._facts.state("state", state)
        if self._facts.ends[s]:
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
        opened = OpenEpisode(plan, self._learner.plans, self._learner.version, s, uniforms)
        if isinstance(self.spec, MixtureSpec):
            if self._mixture is None:
                self._mixture = self._new_mixture()
            # The frozen baseline has no use for an optimistic plan.
            opened.explorer = (
                frozen
                if self.spec.kind == FROZEN
                else optimistic_policy(self.setting, self._learner.knowledge, self._ceiling)
            )
            opened.switch = switch_step(
                self._mixture,
                self._learner.knowledge.rows,
                self._learner.knowledge.radii,
                opened.explorer,
                s,
                uniforms[0],
                self._scratch,
            )
        if self.shield is not None:
            self.shield.begin(episode, plan, self._learner.plans)
        self._open[episode] = opened
        self.episodes_begun += 1

    def act(self, episode: EpisodeId, t: int, state: int, *, proposal: int | None = None) -> Decision:
        """Return the action to play at step `t` in `state`, and what it costs.

        Args:
            episode: An open episode.
            t: Its next step, or one decided before: then the answer is the same.
            state: The state it is in.
            proposal: An action that someone else would like to explore with: it is played where the budget
                affords it, else the baseline is. For agents with a shield.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `state` is not the state observed last.
            InvalidAction: if the proposal is not an action allowed in `state`.
        """
        now = self._opened("act", episode)
        episode = _plain(episode)
        decided = self._ready(now, episode, t, state, proposal)
        return self._decide(now, episode, int(t), int(state), proposal) if decided is None else decided

    def act_many(
        self,
        episodes: Sequence[EpisodeId] | Ints,
        t: Sequence[int] | Ints,
        states: Sequence[int] | Ints,
        proposals: Sequence[int | None] | Ints | None = None,
    ) -> list[Decision]:
        """Return the decisions of many open episodes, in their order: `act` for each, and much faster.

        Raises:
            OutOfOrder: if an episode is named twice, or as `act` does.
            InvalidData: if the columns differ in length, or as `act` does.
            InvalidAction: as `act` does. Whatever is wrong, nothing was decided then.
        """
        columns = [listed(name, column) for name, column in (("t", t), ("states", states))]
        names = listed("episodes", episodes)
        columns.append([None] * len(names) if proposals is None else listed("proposals", proposals))
        for name, column in zip(("t", "states", "proposals"), columns, strict=True):
            if len(column) != len(names):
                raise InvalidData(f"{name!r} must be as long as 'episodes', {len(names)}, got {len(column)}.")
        asked: list[tuple[OpenEpisode, Decision | None]] = []
        new: dict[int, tuple[TabularPlan, list[int], list[int]]] = {}
        for episode, step, state, proposal in zip(names, *columns, strict=True):
            now = self._opened("act_many", episode)
            decided = self._ready(now, episode, step, state, proposal)
            asked.append((now, decided))
            if decided is None:
                if now.number not in new:
                    new[now.number] = (now.plan, [], [])
                _, steps, places = new[now.number]
                steps.append(step)
                places.append(state)
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise OutOfOrder(f"'episodes' must name each episode once, got {twice!r} twice.")
        if self.shield is not None:
            for plan, steps, places in new.values():
                plan.prepare(steps, places)
        decide = self._decide
        return [
            decide(now, episode, step, state, proposal) if decided is None else decided
            for (now, decided), episode, step, state, proposal in zip(asked, names, *columns, strict=True)
        ]

    def observe(self, episode: EpisodeId, transition: Transition, *, t: int | None = None) -> None:
        """Take in what a decided action led to; an outcome told twice counts once.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: What happened.
            t: At which step; may be left out where only one outcome is outstanding.

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant.
            InvalidAction: if another action was played than the one decided.
            InvalidData: if the transition contradicts the setting, or the states decided in.
        """
        now = self._opened("observe", episode)
        episode = _plain(episode)
        t = self._outcome_of(now, episode, t)
        step = self._facts.checked(transition)
        played, last = now.steps[t], t + 1 == len(now.steps)
        if step.action != played.decision.action:
            raise InvalidAction(
                f"'action' must be the one decided, {played.decision.action}, got {step.action}."
            )
        if step.state != played.state:
            raise InvalidData(f"'state' must be the one decided in, {played.state}, got {step.state}.")
        if not last and step.next_state != now.steps[t + 1].state:
            raise InvalidData(
                f"'next_state' must be the state decided in at step {t + 1}, {now.steps[t + 1].state}, "
                f"got {step.next_state}."
            )
        if played.outcome is not None:
            if played.outcome != step:
                raise InvalidData(
                    f"'transition' must be what was observed at step {t} before, got another one. "
                    "Outcomes are told once; the same one again changes nothing."
                )
            return
        if last and self.shield is not None:
            self.shield.observe(episode, step.next_state, terminated=step.terminated, transition=played)
        self._facts.note(step)
        played.outcome = step
        if last:
            now.state, now.terminated = step.next_state, step.terminated
        if now.closing:
            self._settle(now, episode)

    def finish(self, episode: EpisodeId) -> None:
        """Say that no more decisions will be asked for; the episode counts once all outcomes are known.

        Raises:
            OutOfOrder: if it is not open, or was finished before and waits for outcomes.
        """
        now = self._opened("finish", episode)
        if now.closing:
            raise OutOfOrder(
                f"'finish' must name an episode that goes on, got {episode!r}, which waits for the outcomes "
                f"of steps {now.outstanding}. Observe or abandon it."
            )
        now.closing = True
        self._settle(now, episode)

    def abandon(self, episode: EpisodeId) -> None:
        """Forget an episode that will not be heard of again: none of its steps count.

        Who drops out may depend on how it went, so what was observed until then would mislead. Its budget is
        not refunded, for it is gone.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._opened("abandon", episode)
        if self.shield is not None and not now.released:
            self._take_outcome(self.shield.abandon(episode))
        for step in now.steps:
            step.lost = step.outcome is None
        del self._open[episode]
        self._learn_late_rollouts()
        self._trim()

    def save(
        self, path: str | Path, *, overwrite: bool = False, discretiser: Discretises | None = None
    ) -> None:
        """Write all of the agent to a file, open episodes included: `load` goes on with the same decisions.

        The file is sealed npz: numbers and texts, no pickle. It is written whole or not at all.

        Args:
            path: Where to.
            overwrite: Whether a file that is there may be replaced.
            discretiser: What turns observations into the agent's states, kept with it from now on;
                `chary.data.load_discretiser(path)` returns it.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written, or the
                discretiser has another number of states.
        """
        target = as_path("path", path)
        if target.exists() and not overwrite:
            raise InvalidSetting(f"'path' must be new, got {target}, which exists. Pass overwrite=True.")
        if discretiser is not None:
            self._take_discretiser(discretiser)
        arrays, about = self._record()
        try:
            write_file(target, pack(KIND, arrays, about))
        except (OSError, UnicodeError) as problem:
            raise Unwritable(f"'path' must be writable, got {target}: {problem}.") from problem

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
        source = as_path("path", path)
        try:
            content = source.read_bytes()
        except (OSError, UnicodeError) as problem:
            raise InvalidData(f"'path' must be a file to read, got {source}: {problem}.") from problem
        try:
            about, arrays = unpack(KIND, content)
            told = Setting.from_arrays(under("setting.", arrays))
            name, options = about["spec"]
            agent = cls(
                make_agent(name, **options_from(options)),
                told,
                max_episodes=about["max_episodes"],
                warmup=about["warmup"],
                generator=generator_from(about["generator"]),
                oracle_value=arrays.get("oracle_value"),
            )
            agent._restore(arrays, about)
            agent._discretiser = under("discretiser.", arrays)
        except CharyError as problem:
            raise InvalidData(f"'path' must hold an agent of chary, got {source}: {problem}") from problem
        except MALFORMED as problem:
            raise InvalidData(
                f"'path' must hold an agent of chary, got {source}, where {type(problem).__name__} was met: "
                f"{problem}."
            ) from problem
        if setting is not None and replace(setting, known=told.known).digest != told.digest:
            raise InvalidData(
                f"'path' must hold an agent for this problem, got {source}, which is for another one: "
                f"{told.n_states} states, {told.n_actions} actions, horizon {told.horizon}."
            )
        return agent

    def _take_discretiser(self, discretiser: Discretises) -> None:
        if not isinstance(discretiser, Discretises):
            raise InvalidSetting(
                f"'discretiser' must be Bins or a Codebook of chary.data, got {type(discretiser).__name__}."
            )
        if discretiser.n_states > self.setting.n_states:
            raise InvalidSetting(
                f"'discretiser' must give the agent's {self.setting.n_states} states at most, got one of "
                f"{discretiser.n_states}."
            )
        self._discretiser = discretiser.to_arrays()

    def _record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all there is to save, as arrays and as plain values."""
        table = PlayedTable()
        oldest = min(self._open.values(), key=lambda now: now.version, default=None)
        arrays, learner = self._learner.record(
            self._learner.knowledge if oldest is None else oldest.plan.knowledge
        )
        arrays |= {f"setting.{name}": array for name, array in self.setting.to_arrays().items()}
        arrays |= {f"discretiser.{name}": array for name, array in self._discretiser.items()}
        arrays |= {"facts.ends": self._facts.ends, "facts.left": self._facts.left}
        arrays["ceiling"] = self._ceiling.ceiling
        for i, now in enumerate(self._open.values()):
            arrays[f"open.{i}.uniforms"] = now.uniforms
            if now.explorer is not None:
                arrays[f"open.{i}.explorer"] = now.explorer
        if self._frozen is not None:
            arrays["frozen"] = self._frozen
        if self._oracle_value is not None:
            arrays["oracle_value"] = np.asarray(self._oracle_value)
        if self._mixture is not None:
            arrays |= {f"mixture.{name}": getattr(self._mixture, name) for name in MIXTURE_MEMORY}
        about = {
            "spec": [self.spec.name, spec_values(self.spec)],
            "max_episodes": self._max_episodes,
            "warmup": self._warmup,
            "begun": self.episodes_begun,
            "generator": generator_values(self._generator),
            "learner": learner,
            "shield": None if self.shield is None else self.shield.record(table.number),
            "open": [[episode, *now.record(table.number)] for episode, now in self._open.items()],
            "late_rollouts": [[table.number(step) for step in rollout] for rollout in self._late_rollouts],
        }
        return arrays | table.to_arrays(), about

    def _restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Take on what `_record` returned."""
        steps = PlayedTable.steps(arrays, self.setting)

        def recall(number: object) -> Played | None:
            return recalled(steps, number)

        versions = {int(kept[2]) for kept in about["open"]}
        plans = self._learner.restore(arrays, about["learner"], versions)
        S, A, H = self.setting.n_states, self.setting.n_actions, self.setting.horizon
        self.episodes_begun = check_integer("begun", about["begun"], minimum=0)
        self._facts.ends = as_array("facts.ends", arrays, (S,), bool)
        self._facts.left = as_array("facts.left", arrays, (S,), bool)
        if (self._facts.ends & self._facts.left).any() or not self._facts.ends[self.setting.terminal].all():
            raise InvalidData("'facts' must tell states that end episodes from those left, got both for one.")
        self._ceiling.ceiling[:] = as_array("ceiling", arrays, self._ceiling.ceiling.shape, np.float64)
        # Bounds never fall below themselves: no number may be missing.
        if not (self._ceiling.ceiling >= 0).all():
            raise InvalidData("'ceiling' must hold numbers >= 0, got others.")
        for policy in self._learner.explorers.values():
            check_policy("explorers", policy, self.setting, self._facts.ends)
        if "frozen" in arrays:
            self._frozen = as_array("frozen", arrays, (H, S), np.int64, below=A)
            check_policy("frozen", self._frozen, self.setting, self._facts.ends)
        if "mixture.starts" in arrays:
            self._mixture = self._new_mixture()
            for name in MIXTURE_MEMORY:
                memory = getattr(self._mixture, name)
                memory[:] = as_array(f"mixture.{name}", arrays, memory.shape, np.float64)
                if not np.isfinite(memory).all():
                    raise InvalidData(f"'mixture.{name}' must be finite, got others.")
        for i, (episode, *kept) in enumerate(about["open"]):
            now = OpenEpisode.restored(
                plans[int(kept[1])],
                kept,
                as_array(f"open.{i}.uniforms", arrays, (H + 1,), np.float64),
                recall,
            )
            self._check_restored(now)
            if f"open.{i}.explorer" in arrays:
                now.explorer = as_array(f"open.{i}.explorer", arrays, (H, S), np.int64, below=A)
                check_policy("explorer", now.explorer, self.setting, self._facts.ends)
            elif isinstance(self.spec, MixtureSpec):
                raise InvalidData(f"'open' must hold an explorer for episode {episode!r}, got none.")
            self._open[check_episode_id(episode)] = now
        if self.shield is not None:
            unreleased = {episode: now for episode, now in self._open.items() if not now.released}
            check_shield(about["shield"], self.setting, unreleased, self._learner.explorers)
            self.shield.restore(
                about["shield"], {episode: now.plan for episode, now in self._open.items()}, recall
            )
        self._late_rollouts = [
            [step for step in map(recall, numbers) if step is not None] for numbers in about["late_rollouts"]
        ]

    def _check_restored(self, now: OpenEpisode) -> None:
        """Raise InvalidData unless an open episode can have come to be: its steps follow from each other."""
        self._facts.state("state", now.state)
        follows = len(now.steps) <= self.setting.horizon and 0 <= now.number <= self._learner.plans
        for step, after in itertools.pairwise(now.steps):
            follows &= step.outcome is None or step.outcome.next_state == after.state
        last = now.steps[-1] if now.steps else None
        if last is not None and not now.released:
            follows &= now.state == (last.state if last.outcome is None else last.outcome.next_state)
        follows &= bool(((now.uniforms >= 0) & (now.uniforms < 1)).all())
        if not follows:
            raise InvalidData("'open' must hold episodes whose steps follow from each other, got others.")

    def _new_mixture(self) -> Mixture:
        assert isinstance(self.spec, MixtureSpec)
        return new_mixture(
            self.spec.kind,
            frozen=self.frozen_baseline,
            alpha=getattr(self.spec, "alpha", 0.0),
            eta=float(self.spec.eta or 0.0) / self.setting.scale.span,
            oracle_value=self._oracle_value,
        )

    def _ready(
        self, now: OpenEpisode, episode: EpisodeId, t: object, state: object, proposal: object
    ) -> Decision | None:
        """Return the decision made at step `t` before, or None once a new one may be made."""
        decided = len(now.steps)
        s = self._facts.state("state", state)
        if type(t) is not int:
            t = check_integer("t", t, minimum=0, error=OutOfOrder)
        if t == decided and not (now.terminated or now.closing) and t < self.setting.horizon:
            if t > 0 and now.steps[-1].outcome is None:
                # The outcome is late: where it led is said here.
                self._facts.check_left(s)
            elif s != now.state:
                raise InvalidData(f"'state' must be the state observed last, {now.state}, got {s}.")
            if proposal is not None:
                self._check_proposal(s, proposal)
            return None
        if 0 <= t < decided:
            if s != now.steps[t].state:
                raise InvalidData(f"'state' must be the one decided in, {now.steps[t].state}, got {s}.")
            return now.steps[t].decision
        if now.terminated or now.closing or decided == self.setting.horizon:
            raise OutOfOrder(
                f"'t' must be a step of episode {episode!r}, got {t!r}. It is over"
                f"{'.' if now.closing else ': call finish.'}"
            )
        raise OutOfOrder(
            f"'t' must be the next step of episode {episode!r}, got {t!r}. Call act with t = {decided}."
        )

    def _check_proposal(self, s: int, proposal: object) -> None:
        if self.shield is None:
            raise InvalidSetting(
                f"'proposal' must be None for agent {self.spec.name!r}, without a budget, got {proposal!r}."
            )
        a = check_integer("proposal", proposal, minimum=0, error=InvalidAction)
        if a >= self.setting.n_actions or self.setting.pair_index[s, a] < 0:
            raise InvalidAction(f"'proposal' must be an action allowed in state {s}, got {a}.")

    def _decide(self, now: OpenEpisode, episode: EpisodeId, t: int, s: int, proposal: int | None) -> Decision:
        """Make the decision of a step that is ready."""
        if self.shield is not None:
            if t and now.steps[-1].outcome is None:
                # The outcome is late, but where it led is known now: the episode goes on there.
                self.shield.observe(episode, s, terminated=False, transition=now.steps[-1])
            decision = self.shield.decide(episode, t, s, proposal=proposal)
        else:
            action, explored = self._choose(now, t, s)
            decision = Decision(action, explored, 0.0, 0.0, float("inf"), now.number, -1)
        now.state = s
        now.steps.append(Played(decision, s))
        self._facts.left[s] = True
        return decision

    def _outcome_of(self, now: OpenEpisode, episode: EpisodeId, t: int | None) -> int:
        """Return which step an outcome belongs to."""
        if t is None:
            outstanding = now.outstanding
            if len(outstanding) != 1:
                raise OutOfOrder(
                    f"'t' must be given where not just one outcome is outstanding, got None in episode "
                    f"{episode!r}, where {outstanding or 'none'} are."
                )
            return outstanding[0]
        step = check_integer("t", t, minimum=0, error=OutOfOrder)
        if step >= len(now.steps):
            raise OutOfOrder(
                f"'t' must be a step decided in episode {episode!r}, got {step} of {len(now.steps)}. "
                "Call act first."
            )
        return step

    def _settle(self, now: OpenEpisode, episode: EpisodeId) -> None:
        """Release the chains of an episode that is closing, and count it if all of its outcomes are known."""
        if now.steps and now.steps[-1].outcome is None:
            # Where the last step led is not known yet, so its chain cannot wait there.
            return
        if self.shield is not None and not now.released:
            self._take_outcome(self.shield.finish(episode))
        now.released = True
        if now.outstanding:
            return
        del self._open[episode]
        self._learn_late_rollouts()
        outcomes = [step.outcome for step in now.steps if step.outcome is not None]
        self._learner.learn(outcomes, [other.plan for other in self._open.values()])
        self._trim()

    def _take_outcome(self, outcome: Outcome[int]) -> None:
        self.last_outcome = outcome
        self._learner.forget(outcome.ended)
        if self._learner.apart:
            for rollout in outcome.finished:
                steps = [step.transition for step in rollout.steps]
                self._late_rollouts.append([step for step in steps if isinstance(step, Played)])

    def _learn_late_rollouts(self) -> None:
        """Let explorers learn from the meta-rollouts whose outcomes are all known by now."""
        waiting: list[list[Played]] = []
        for rollout in self._late_rollouts:
            if any(step.lost for step in rollout):
                continue
            outcomes = [step.outcome for step in rollout if step.outcome is not None]
            if len(outcomes) < len(rollout):
                waiting.append(rollout)
            else:
                self._learner.learn_rollout(outcomes)
        self._late_rollouts = waiting

    def _trim(self) -> None:
        """Keep no more than the plans in use need."""
        self._learner.trim(min((now.version for now in self._open.values()), default=self._learner.version))

    def _choose(self, now: OpenEpisode, t: int, s: int) -> tuple[int, bool]:
        if isinstance(self.spec, MixtureSpec):
            assert now.explorer is not None
            policy = now.explorer if t >= now.switch else self.frozen_baseline
            return int(policy[t, s]), t >= now.switch
        if isinstance(self.spec, Baseline):
            return now.plan.baseline(t, s), False
        pair = uniform_pair(self._learner.knowledge.rows, s, now.uniforms[t + 1])
        return int(self.setting.pair_action[pair]), True

    def _opened(self, call: str, episode: EpisodeId) -> OpenEpisode:
        now = self._open.get(episode) if isinstance(episode, (int, str, np.integer)) else None
        if now is None or isinstance(episode, bool):
            raise OutOfOrder(f"{call!r} must name an open episode, got {episode!r}. Call begin first.")
        return now


def _plain(episode: EpisodeId) -> EpisodeId:
    """Return a number of NumPy's as one of Python's, which can be saved."""
    return int(episode) if isinstance(episode, np.integer) else episode


def _check_own(own: object, setting: Setting, *, given: bool) -> None:
    if not isinstance(own, OwnBaseline):
        raise InvalidSetting(
            f"'own' must be an OwnBaseline, got {type(own).__name__}. Use OwnBaseline.declare."
        )
    if given:
        raise InvalidSetting(f"'own' must come without a prior, got role {own.role!r} and a prior as well.")
    if own.table.shape != (setting.horizon, setting.n_states):
        raise InvalidSetting(
            f"'own' must be declared for this problem, shape {(setting.horizon, setting.n_states)}, got a "
            f"table of shape {own.table.shape}."
        )


def _values(oracle_value: ArrayLike, setting: Setting) -> Floats:
    values = as_numbers("oracle_value", oracle_value)
    if values.shape != (setting.n_states,) or not np.isfinite(values).all():
        raise InvalidSetting(
            f"'oracle_value' must hold one finite number a state, shape ({setting.n_states},), got "
            f"{values.dtype} of shape {values.shape}."
        )
    return values.astype(np.float64)
