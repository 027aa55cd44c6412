"""The step API of a canary: whole episodes by the incumbent's policy or the candidate's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from chary.agents._batch import batch
from chary.agents._candidates import Proposals, knowledge_for, lower_policy
from chary.agents._episodes import EpisodeId, Episodes, OpenEpisode, Transition
from chary.agents._facts import ObservedFacts, placed
from chary.agents._learner import count_columns
from chary.agents._release import NO_SHARES, Assigned, Change, Evidence, Release, Slot, evidence_of
from chary.agents._step_api import Reports
from chary.agents._visits import Visits, lesson
from chary.agents.canary import Canary
from chary.agents.protocol import check_problem
from chary.arrays import Floats, Ints
from chary.errors import InvalidData, InvalidSetting, OutOfOrder, check_type
from chary.mdp import Setting
from chary.policies import Policy, as_policy_table
from chary.shield import Decision, Ledger
from chary.standing import Standing
from chary.storage.files import write_new
from chary.storage.sealed import load_sealed, pack
from chary.texts import shown

CANARY_FILE = "canary"
# Sums of rewards are rounded.
RETURN_TOLERANCE = 1e-9

log = logging.getLogger("chary")


@dataclass(slots=True, eq=False)
class Drawn:
    """All that stays the same in an episode: what its coin gave, and its random numbers.

    `total` is the sum of discounted rewards so far, in scaled units.
    """

    assigned: Assigned
    slot: Slot
    uniforms: Floats
    total: float = 0.0


Open = OpenEpisode[int, Drawn]


@final
class CanaryAgent(Reports[int, Drawn]):
    """A canary at work: begin, act, observe, finish, for any number of episodes open at once.

    The coin of an episode is tossed when it begins, and its policy does not change until its end. Returns
    count in the order in which the episodes of a policy began. One that is missing holds back those behind
    it until it arrives or is lost. A return is lost, worth nothing in the lower bound and the most in the
    upper one, if the episode is abandoned, if it is finished before it terminated or reached the horizon, and
    if any of its actions was overruled: it was not the policy that played then, and leaving such episodes out
    would be biased where somebody overrules because of how it goes. Every call that raises leaves the agent
    as it was.

    Args:
        spec: The options.
        setting: All that the agent may know of the problem.
        generator: The source of the agent's randomness: one row of H + 1 uniforms per episode, the first of
            which is the coin. Never use the seed that the environment is reset with.
        incumbent: Your policy, anything that `chary.policies.as_policy_table` takes. Probabilities (S, A) are
            played as they are, at random. By default the one in `spec.prior`, or else the policy with the
            best lower bounds after `warm_start`.

    Example:
        >>> told = Setting.declare(n_states=2, n_actions=2, horizon=1)
        >>> agent = CanaryAgent(Canary(eta=0.1), told, generator=np.random.default_rng(0), incumbent=[0, 1])
        >>> agent.begin("first", 0)
        >>> agent.assigned("first").policy, agent.act("first", 0, 0).action
        (1, 0)
    """

    def __init__(
        self,
        spec: Canary,
        setting: Setting,
        *,
        generator: np.random.Generator,
        incumbent: Policy | None = None,
    ) -> None:
        check_type("spec", spec, Canary, "a Canary")
        check_type("setting", setting, Setting, "a Setting")
        check_type(
            "generator",
            generator,
            np.random.Generator,
            "a numpy Generator",
            way_out="Use numpy.random.default_rng.",
        )
        if setting.ending is not None:
            raise InvalidSetting(
                "'setting' must be declared without early_endings for a canary, got it with them. Give "
                "endings a state of their own, see docs/data.md."
            )
        if spec.reward == "estimated" and setting.known is not None:
            setting = replace(setting, known=None)
        if incumbent is not None and spec.prior is not None:
            raise InvalidSetting("'incumbent' must come without a prior, got both.")
        self.spec, self.setting = spec, setting
        self.n_actions, self.horizon = setting.n_actions, setting.horizon
        self._generator = generator
        self._cap = spec.cap(setting)
        self._knowledge = knowledge_for(spec, setting, generator)
        self._proposals = Proposals(spec, setting)
        self._facts = ObservedFacts(setting)
        self._episodes = Episodes(setting.horizon, may_go_on=self._facts.check_left)
        self._visits = Visits()
        self._release: Release | None = None
        if incumbent is not None or spec.prior is not None:
            policy = spec.prior_actions(setting) if incumbent is None else incumbent
            self._release = self._new_release(as_policy_table(policy, setting), _shares(policy, setting))

    @property
    def release(self) -> Release:
        """The policies that were tried, and what their returns show."""
        if self._release is None:
            nobody = np.full(self.setting.n_states, -1)
            self._release = self._new_release(lower_policy(self.setting, self._knowledge, nobody), NO_SHARES)
        return self._release

    @property
    def episodes_begun(self) -> int:
        """The number of episodes begun."""
        return 0 if self._release is None else self._release.episodes

    @property
    def probability(self) -> float:
        """The probability with which an episode that begins now is given to the candidate."""
        return self.release.probability

    @property
    def incumbent(self) -> Evidence:
        """What the returns show of the incumbent, in the user's units."""
        return self._in_units(evidence_of(self.release.incumbent))

    @property
    def candidate(self) -> Evidence | None:
        """What the returns show of the candidate, in the user's units; None where there is none."""
        current = self.release.candidate
        return None if current is None else self._in_units(evidence_of(current))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every promotion and every end of a candidate with its evidence, in the user's units."""
        return self.release.changes_in(*self._units)

    @property
    def standing(self) -> Standing:
        """The standing of the promise."""
        return self.spec.grounds(self.setting).standing

    def actions(self, policy: int) -> Ints:
        """Return the actions (H, S) of the policy of a number; a random one's likeliest."""
        return np.array(self.release.numbered(policy).actions)

    def assigned(self, episode: EpisodeId) -> Assigned:
        """Return the policy of an open episode, and the probability that its coin had."""
        return self._episodes.named("assigned", episode).pinned.assigned

    def ledger(self, episode: EpisodeId) -> Ledger:
        """Return an empty ledger: an open episode of a canary has no budget of its own."""
        self._episodes.named("ledger", episode)
        return Ledger()

    def warm_start(self, episodes: Iterable[Sequence[Transition]]) -> None:
        """Learn from logged or warm-up episodes, before the first episode begins.

        Their returns are no evidence: nobody knows which policy played. They only help to find candidates.

        Raises:
            OutOfOrder: if an episode was begun already.
            InvalidData: if a transition contradicts the setting or another one; nothing is counted then.
        """
        if self.episodes_begun:
            raise OutOfOrder(
                f"'warm_start' must come before the first episode, got {self.episodes_begun} begun."
            )
        logged = placed(episodes)
        if logged:
            columns, facts = self._facts.checked_columns(
                [step for _, _, step in logged], lambda i: f"episode {logged[i][0]}, step {logged[i][1]}"
            )
            self._changing = True
            self._facts.take(facts)
            count_columns(self._knowledge, columns)
            first = [t == 0 for _, t, _ in logged]
            self._proposals.starts[columns[0][first]] = True

    def begin(self, episode: EpisodeId, state: int) -> None:
        """Open an episode that starts in `state`, and toss its coin.

        Raises:
            OutOfOrder: if it is open already.
            InvalidData: if `episode` is not a name, or `state` is outside the space or terminal.
        """
        name = self._episodes.unused(episode)
        s = self._facts.state("state", state)
        if self._facts.ends[s]:
            raise InvalidData(f"'state' must not be terminal at the start of an episode, got {s}.")
        self._changing = True
        release = self.release
        if not release.episodes:
            self._proposals.consider(release, self._knowledge)
        uniforms = self._generator.random(self.horizon + 1)
        assigned, slot = release.begin(float(uniforms[0]))
        self._proposals.starts[s] = True
        self._episodes.open(name, s, Drawn(assigned, slot, uniforms))

    def act(self, episode: EpisodeId, t: int, state: int) -> Decision:
        """Return the action of the episode's policy at step `t` in `state`.

        `plan` is the number of the policy, and `explored` says whether it is the candidate's.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if `state` is not the state observed last.
        """
        now = self._episodes.named("act", episode)
        s = self._facts.state("state", state)
        decided = self._episodes.ask(now, t, s)
        return self._decide(now, s) if decided is None else decided

    def act_many(
        self, episodes: Sequence[EpisodeId] | Ints, t: Sequence[int] | Ints, states: Sequence[int] | Ints
    ) -> list[Decision]:
        """Return the decisions of many open episodes, in their order: `act` for each.

        Raises:
            OutOfOrder: if an episode is named twice, or as `act` does.
            InvalidData: if the columns differ in length, or as `act` does. Nothing was decided then.
        """
        asked: dict[EpisodeId, tuple[Open, int, Decision | None]] = {}
        for episode, step, state in batch(episodes=episodes, t=t, states=states):
            now = self._episodes.named("act_many", episode)
            if now.name in asked:
                raise OutOfOrder(f"'episodes' must name each episode once, got {shown(episode)} twice.")
            s = self._facts.state("state", state)
            asked[now.name] = (now, s, self._episodes.ask(now, step, s))
        return [self._decide(now, s) if decided is None else decided for now, s, decided in asked.values()]

    def observe(
        self, episode: EpisodeId, transition: Transition, *, t: int | None = None, taken: int | None = None
    ) -> None:
        """Take in what a decided action led to; an outcome observed twice counts once.

        Args:
            episode: An open episode, or one that was finished and whose outcomes are not all known.
            transition: What happened.
            t: At which step; may be left out where only one outcome is outstanding.
            taken: The action of the transition, where it is not the one decided. The return of the episode is
                lost then, and the transition is not counted.

        Raises:
            OutOfOrder: if step `t` was not decided, or it is not clear which step is meant.
            InvalidAction: if another action was played than the one decided and `taken` does not name it.
            InvalidData: if the transition contradicts the setting, the states decided in, or the most that an
                episode can return.
        """
        now = self._episodes.named("observe", episode)
        t = self._episodes.step_of(now, t)
        step = self._facts.checked(transition, f"episode {now.name!r}, step {t}")
        if not self._episodes.is_news(now, t, step, taken):
            return
        total = now.pinned.total + self.setting.discount**t * step.reward
        if total > self._cap + RETURN_TOLERANCE:
            span = self.setting.scale.span
            raise InvalidData(
                f"'return_cap' must bound the return of every episode, {self._cap * span:g} above the least, "
                f"got {total * span:g} in episode {now.name!r}. Declare a larger one: what was promised with "
                "this one does not hold."
            )
        self._changing = True
        now.pinned.total = total
        self._facts.note(step)
        self._episodes.note(now, t, step)
        self._visits.resolved(now.steps[t])
        self._settle(now)

    def abandon(self, episode: EpisodeId) -> None:
        """Close an episode whose missing outcomes will never be known: its return is lost.

        Raises:
            OutOfOrder: if it is not open.
        """
        now = self._episodes.named("abandon", episode)
        self._changing = True
        self._episodes.drop(now)
        for step in now.steps:
            self._visits.resolved(step)
        self._count(now, None)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write all of the agent to a file, open episodes included: `load` goes on with the same decisions.

        The file is sealed npz: numbers and texts, no pickle. It is written whole or not at all.

        Raises:
            InvalidSetting: if the file exists and may not be overwritten, or cannot be written.
        """
        from chary.agents._canary_saving import record

        write_new(path, lambda: pack(CANARY_FILE, *record(self)), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, setting: Setting | None = None) -> CanaryAgent:
        """Return the agent that was saved; nothing in the file can run code.

        Args:
            path: What `save` wrote.
            setting: The problem it must be for; by default whatever it was saved with.

        Raises:
            InvalidData: if the file is missing, truncated, changed, of another schema, of another kind or of
                another problem.
        """
        from chary.agents._canary_saving import restored

        agent, source = load_sealed(path, CANARY_FILE, "a canary of chary", restored)
        check_problem(agent.setting, setting, source)
        return agent

    @property
    def _units(self) -> tuple[float, float]:
        """The most that an episode returns above the least, and the least, in the user's units."""
        scale, steps = self.setting.scale, self.setting.discount ** np.arange(self.horizon)
        return self._cap * scale.span, scale.low * float(steps.sum())

    def _in_units(self, evidence: Evidence) -> Evidence:
        most, least = self._units
        return Evidence(*evidence[:3], *(least + most * each for each in evidence[3:]))

    def _new_release(self, actions: Ints, shares: Floats) -> Release:
        eta = self.spec.eta
        assert eta is not None
        return Release(
            actions,
            eta=eta / self.setting.scale.span / self._cap,
            delta=self.spec.delta,
            share=self.spec.share,
            shares=shares,
        )

    def _decide(self, now: Open, s: int) -> Decision:
        self._changing = True
        drawn, t = now.pinned, now.t
        policy = self.release.numbered(drawn.assigned.policy)
        action = int(policy.actions[t, s])
        if len(policy.shares):
            # The last action of positive probability where rounding leaves a rest.
            most = int(np.flatnonzero(policy.shares[s])[-1])
            total = np.cumsum(policy.shares[s])
            action = min(int(np.searchsorted(total, drawn.uniforms[t + 1], side="right")), most)
        decision = Decision(action, drawn.assigned.candidate, 0.0, 0.0, np.inf, drawn.assigned.policy, -1)
        self._facts.left[s] = True
        self._episodes.decide(now, s, decision)
        self._visits.decided(now.steps[-1])
        return decision

    def _allowed(self, name: str, s: int, action: object) -> int:
        return self._facts.allowed(name, s, action)

    def _reported(self, now: Open, t: int) -> None:
        self._visits.resolved(now.steps[t])

    def _settle(self, now: Open) -> None:
        """Count an episode that is closing once all of its outcomes are known."""
        if self._episodes.settle(now, lambda _: None):
            whole = now.terminated or now.t == self.horizon
            followed = whole and not any(step.overruled for step in now.steps)
            self._count(now, self._share_of_cap(now) if followed else None)

    def _share_of_cap(self, now: Open) -> float:
        """Return the return of a complete episode as a share of the most."""
        total, weight = 0.0, 1.0
        for step in now.steps:
            assert step.outcome is not None
            total += weight * step.outcome.reward
            weight *= self.setting.discount
        return min(total / self._cap, 1.0)

    def _count(self, now: Open, value: float | None) -> None:
        """Count the return of an episode, None where it is lost, and the outcomes whose turn has come."""
        now.pinned.slot.resolve(value)
        lessons = list(map(lesson, self._visits.release()))
        if lessons:
            states, actions, rewards, nexts, ended = map(np.array, zip(*lessons, strict=True))
            pairs = self.setting.pair_index[states, actions]
            count_columns(self._knowledge, (states, pairs, nexts, rewards.astype(float), ended))
        known = len(self.release.changes)
        if self.release.settle():
            self._proposals.consider(self.release, self._knowledge)
        for change in self.changes[known:]:
            log.info("canary: %s", change.describe())


def _shares(policy: Any, setting: Setting) -> Floats:
    """Return the probabilities (S, A) of a random policy that `as_policy_table` accepted, else (0, 0)."""
    if callable(policy) or not isinstance(policy, (np.ndarray, list, tuple)):
        return NO_SHARES
    table: ArrayLike = policy
    shares = np.asarray(table)
    if shares.shape != (setting.n_states, setting.n_actions) or shares.dtype.kind != "f":
        return NO_SHARES
    return shares.astype(np.float64)
