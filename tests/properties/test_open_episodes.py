"""Many episodes at once: whatever the order of calls, no budget is exceeded and nothing counts twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from chary.agents import CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.mdp import Setting
from chary.shield import Decision

STATES, ACTIONS, HORIZON, END = 5, 3, 4, 4
ETA = 0.6


@dataclass
class Story:
    """What the world knows of one episode: the test's own book, kept apart from the agent's."""

    state: int
    decisions: list[Decision] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    outcomes: dict[int, Transition] = field(default_factory=dict)
    finished: bool = False
    eta: float = ETA
    reports: dict[int, int | None] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        last = self.outcomes.get(len(self.decisions) - 1)
        return len(self.decisions) == HORIZON or (last is not None and last.terminated)

    @property
    def outstanding(self) -> list[int]:
        return [
            t
            for t in range(len(self.decisions))
            if t not in self.outcomes and self.reports.get(t, "none") is not None
        ]

    @property
    def complete(self) -> bool:
        return self.finished and not self.outstanding


class OpenEpisodes(RuleBasedStateMachine):
    """Calls in any order that a clinic, a network or a restart can bring about."""

    @initialize(
        rule_name=st.sampled_from(["strict", "capped"]),
        data=st.sampled_from(["all", "meta"]),
        clock=st.sampled_from(["episode", "meta"]),
        pool=st.integers(1, 4),
        seed=st.integers(0, 3),
    )
    def set_up(self, rule_name: str, data: str, clock: str, pool: int, seed: int) -> None:
        spec = CharyUCBVI(
            eta=ETA,
            rule=rule_name,
            step_bound=ETA / 2 if rule_name == "capped" else None,
            bonus="hoeffding",
            bonus_scale=0.02,
            pool=pool,
            data=data,
            clock=clock,
        )
        setting = Setting.declare(n_states=STATES, n_actions=ACTIONS, horizon=HORIZON)
        self.agent = TabularAgent(spec, setting, max_episodes=1000)
        random = np.random.default_rng(seed)
        warmup = [self._walk(random) for _ in range(20)]
        self.agent.warm_start(warmup)
        self.counted = sum(len(episode) for episode in warmup)
        self.stories: dict[int | str, Story] = {}
        self.spent: dict[int | str, float] = {}
        self.begun = 0
        # Decided steps that do not count yet, by pair in the order of decision, and those that may.
        self.waiting: dict[tuple[int, int], list[tuple[int | str, int]]] = {}
        self.resolved: set[tuple[int | str, int]] = set()
        self.overruled: set[tuple[int | str, int]] = set()

    def _settled(self) -> None:
        """An episode ended: per pair, the longest prefix whose outcomes are known or lost counts."""
        for steps in self.waiting.values():
            while steps and steps[0] in self.resolved:
                self.counted += steps.pop(0) not in self.overruled

    @staticmethod
    def _walk(random: np.random.Generator) -> list[Transition]:
        s, steps = int(random.integers(END)), []
        for _ in range(HORIZON):
            a, x = int(random.integers(ACTIONS)), int(random.integers(STATES))
            steps.append(Transition(s, a, float(a == 1), x, x == END))
            if x == END:
                break
            s = x
        return steps

    def _going(self) -> list[int | str]:
        return [k for k, story in self.stories.items() if not story.over and not story.finished]

    @rule(state=st.integers(0, END - 1), named=st.booleans(), eta=st.none() | st.floats(0, 1))
    def begin(self, state: int, named: bool, eta: float | None) -> None:
        name: int | str = f"patient {self.begun}" if named else self.begun
        self.agent.begin(name, state, eta=eta)
        self.stories[name] = Story(state, eta=ETA if eta is None else eta)
        self.spent[name] = 0.0
        self.begun += 1

    @precondition(lambda self: self._going())
    @rule(
        which=st.randoms(use_true_random=False),
        state=st.integers(0, END - 1),
        proposal=st.none() | st.integers(0, ACTIONS - 1),
        explore=st.sampled_from([True, True, False]),
    )
    def act(self, which: Random, state: int, proposal: int | None, explore: bool) -> None:
        name = which.choice(self._going())
        story = self.stories[name]
        t = len(story.decisions)
        last = story.outcomes.get(t - 1)
        s = story.state if t == 0 else state if last is None else last.next_state
        before = self.agent.ledger(name)
        decision = self.agent.act(name, t, s, proposal=proposal if explore else None, explore=explore)
        assert explore or (decision.charge, decision.explored, decision.chain) == (0.0, False, -1)
        assert explore or (self.agent.ledger(name), decision.action) == (
            before,
            self.agent.plan_of(name).baseline(t, s),
        )
        self._decided(name, s, decision)

    def _decided(self, name: int | str, s: int, decision: Decision) -> None:
        story = self.stories[name]
        # Never refunded, never beyond the budget, and booked exactly once.
        assert decision.deficit == self.spent[name] + decision.charge
        # A budget that was tightened below what was spent affords nothing more.
        assert decision.charge == 0.0 or decision.deficit <= self.stories[name].eta * (1 + 1e-12)
        assert not decision.explored or decision.deficit <= self.stories[name].eta * (1 + 1e-12)
        self.spent[name] = decision.deficit
        self.waiting.setdefault((s, decision.action), []).append((name, len(story.decisions)))
        story.decisions.append(decision)
        story.states.append(s)

    @precondition(lambda self: self._going())
    @rule(which=st.randoms(use_true_random=False), states=st.lists(st.integers(0, END - 1), min_size=6))
    def act_many(self, which: Random, states: list[int]) -> None:
        names = self._going()[:6]
        which.shuffle(names)
        steps, now = [], []
        for name, state in zip(names, states, strict=False):
            story = self.stories[name]
            t = len(story.decisions)
            last = story.outcomes.get(t - 1)
            steps.append(t)
            now.append(story.state if t == 0 else state if last is None else last.next_state)
        decisions = self.agent.act_many(names, steps, now)
        for name, s, decision in zip(names, now, decisions, strict=True):
            self._decided(name, s, decision)

    @precondition(lambda self: any(story.decisions for story in self.stories.values()))
    @rule(which=st.randoms(use_true_random=False))
    def ask_again(self, which: Random) -> None:
        name = which.choice([k for k, story in self.stories.items() if story.decisions])
        story = self.stories[name]
        t = which.randrange(len(story.decisions))
        assert self.agent.act(name, t, story.states[t]) == story.decisions[t]

    @precondition(lambda self: self.stories)
    @rule(which=st.randoms(use_true_random=False), share=st.floats(0, 1))
    def tighten(self, which: Random, share: float) -> None:
        name = which.choice(list(self.stories))
        self.stories[name].eta *= share
        self.agent.tighten(name, self.stories[name].eta)
        assert self.agent.ledger(name).deficit == self.spent[name]

    @precondition(lambda self: any(story.outstanding for story in self.stories.values()))
    @rule(which=st.randoms(use_true_random=False), kind=st.sampled_from(["confirmed", "other", "none"]))
    def taken(self, which: Random, kind: str) -> None:
        name = which.choice([k for k, story in self.stories.items() if story.outstanding])
        story = self.stories[name]
        t = which.choice(story.outstanding)
        last = t + 1 == len(story.decisions)
        decided = story.decisions[t]
        if t in story.reports or (kind == "none" and not last) or (decided.chain >= 0 and not last):
            kind = "confirmed"
        action = {"confirmed": decided.action, "other": (decided.action + 1) % ACTIONS, "none": None}[kind]
        action = story.reports.setdefault(t, action)
        if action != decided.action:
            self.overruled.add((name, t))
            self.resolved.add((name, t))
        if story.complete:
            self._settled()
            del self.stories[name]
        self.agent.taken(name, t, action)
        if name in self.stories:
            self.agent.taken(name, t, action)

    @precondition(lambda self: any(story.outstanding for story in self.stories.values()))
    @rule(
        which=st.randoms(use_true_random=False),
        beyond=st.integers(0, END),
        again=st.booleans(),
        overruled=st.booleans(),
    )
    def observe(self, which: Random, beyond: int, again: bool, overruled: bool) -> None:
        name = which.choice([k for k, story in self.stories.items() if story.outstanding])
        story = self.stories[name]
        t = which.choice(story.outstanding)
        last = t + 1 == len(story.decisions)
        x = beyond if last else story.states[t + 1]
        decided = story.decisions[t]
        # Where a chain has gone on with the step, it is too late to say that another action was played.
        other = overruled and (last or decided.chain < 0)
        a = (decided.action + 1) % ACTIONS if other else decided.action
        reported = story.reports.get(t)
        a = a if reported is None else reported
        other = a != decided.action
        taken = a if other and (again or reported is None) else None
        outcome = Transition(story.states[t], a, float(a == 1), x, x == END)
        story.outcomes[t] = outcome
        self.resolved.add((name, t))
        if other:
            self.overruled.add((name, t))
        if story.complete:
            self._settled()
            del self.stories[name]
        self.agent.observe(name, outcome, t=t, taken=taken)
        if again and name in self.stories:
            self.agent.observe(name, outcome, t=t, taken=taken)

    @precondition(lambda self: any(not story.finished for story in self.stories.values()))
    @rule(which=st.randoms(use_true_random=False))
    def finish(self, which: Random) -> None:
        name = which.choice([k for k, story in self.stories.items() if not story.finished])
        self.agent.finish(name)
        self.stories[name].finished = True
        if self.stories[name].complete:
            self._settled()
            del self.stories[name]

    @precondition(lambda self: self.stories)
    @rule(which=st.randoms(use_true_random=False))
    def abandon(self, which: Random) -> None:
        name = which.choice(list(self.stories))
        self.agent.abandon(name)
        self.resolved |= {(name, t) for t in self.stories[name].outstanding}
        self._settled()
        del self.stories[name]

    @rule()
    def save_and_load(self) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "agent.npz"
            self.agent.save(path)
            self.agent = TabularAgent.load(path)

    @invariant()
    def every_step_counts_once_and_in_the_order_of_decisions(self) -> None:
        if hasattr(self, "agent"):
            assert self.agent.plan.knowledge.rows.total.sum() == self.counted
            assert set(self.agent.open_episodes) == set(self.stories)

    @invariant()
    def no_chain_is_fed_by_two(self) -> None:
        if hasattr(self, "agent"):
            assert self.agent.shield is not None
            kept = self.agent.shield.record(lambda step: None)
            fed = [episode[4] for episode in kept["episodes"] if episode[4] is not None]
            assert len(fed) == len(set(fed))
            waiting = {chain[0] for chain in kept["chains"] if chain[4]}
            assert not waiting & set(fed)

    @invariant()
    def ledgers_are_what_was_booked(self) -> None:
        for name in getattr(self, "stories", ()):
            assert self.agent.ledger(name).deficit == self.spent[name]


OpenEpisodes.TestCase.settings = settings(
    max_examples=max(settings().max_examples // 2, 20), stateful_step_count=40, deadline=None
)
TestOpenEpisodes = OpenEpisodes.TestCase
