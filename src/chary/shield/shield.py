"""The shield: at every step explore if the episode's ledger affords it, else play the baseline."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, MutableSequence
from copy import copy
from typing import Any, TypeVar

from chary.errors import (
    InvalidBudget,
    InvalidData,
    InvalidSetting,
    OutOfOrder,
    check_choice,
    check_integer,
    check_real,
    check_truth,
)
from chary.shield.account import Account, EpisodeEnd
from chary.shield.chains import Chain, Pool, Step
from chary.shield.decision import Decision, Plan, PlanOfWorlds, as_action, room
from chary.shield.ledger import Ledger
from chary.shield.match import Matcher, same
from chary.shield.moves import ChainMoves
from chary.shield.pricing import Weighed, put, recorded, settle_debts
from chary.shield.rule import Rule
from chary.shield.watch import Watch
from chary.shield.worlds import Votes
from chary.texts import shown

S = TypeVar("S")

CLOCKS = ("episode", "meta")


class Shield(ChainMoves[S]):
    """The paper's shield policy, eq. (5), for any number of episodes open at once.

    Every call that raises leaves the shield as it was.

    Args:
        rule: decides which steps the budget affords.
        horizon: H, the steps of an episode and of a meta-rollout.
        pool: how many chains may be open at once (the paper has 1).
        clock: by which step an explorer plays: the `episode`'s own, or `meta`, the chain's length so far.
        patience: abandon a waiting chain once this many episodes have ended since the one in which it last
            advanced (0: at the end of that very episode); None waits for ever.
        chains: False is the naive strategy: explore from the start of each episode until refused.
        match: whether a state is a chain's target: `same`, or `within(radius)`.
        votes: where every step is put to the vote of worlds, how they vote: every episode then keeps a
            deficit per world, and plans must be `PlanOfWorlds`.
        span: the number of the user's units of reward per unit of rule and charges, for decisions.

    Attributes:
        blocked: episodes in which a chain was refused and nothing was explored.
        watch: how many steps explored since the shield was made or loaded, and why the others did not.

    Raises:
        InvalidSetting: if a size is out of range, `rule` is not a Rule or `match` cannot be called.
        UnknownName: if there is no such clock.

    Example:
        >>> class Fixed:
        ...     def explore(self, chain, clock, s): return 1
        ...     def baseline(self, t, s): return 0
        ...     def charge(self, t, s, a): return 0.3 * a
        >>> shield = Shield(Rule.strict(0.4), horizon=2)
        >>> shield.begin(0, Fixed())
        >>> shield.decide(0, 0, "home").explored
        True
        >>> shield.observe(0, "away", terminated=False)
        >>> shield.decide(0, 1, "away").explored
        False
        >>> shield.observe(0, "home", terminated=False)
        >>> shield.finish(0).explored, shield.open_chains
        (1, 1)
    """

    def __init__(
        self,
        rule: Rule,
        *,
        horizon: int,
        pool: int = 1,
        clock: str = "episode",
        patience: int | None = None,
        chains: bool = True,
        match: Matcher[S] = same,
        votes: Votes | None = None,
        span: float = 1.0,
    ) -> None:
        if not isinstance(rule, Rule):
            raise InvalidSetting(f"'rule' must be a Rule, got {shown(rule)}. Use Rule.strict(eta).")
        if not callable(match):
            raise InvalidSetting(f"'match' must be callable, got {shown(match)}. Use same or within(radius).")
        check_truth("chains", chains)
        # Chains off means one block of exploration from t = 0, which is what closing does.
        self._rule = rule if chains else rule._replace(closes=True)
        self._by_meta_clock = check_choice("clock", clock, CLOCKS) == "meta"
        if patience is not None:
            patience = check_integer("patience", patience, minimum=0, way_out="Use None to wait for ever.")
        self._votes = votes
        self._span = check_real("span", span, low=0.0, open_low=True, open_high=True)
        self._episodes: dict[Hashable, Account[S]] = {}
        super().__init__(
            Pool(check_integer("pool", pool, minimum=1), match),
            horizon=check_integer("horizon", horizon, minimum=1),
            patience=patience,
            chains=chains,
        )
        self.blocked = 0
        self.watch = Watch()

    @property
    def closes(self) -> bool:
        """Whether the first refusal ends exploration for an episode."""
        return self._rule.closes

    @property
    def limit(self) -> float:
        """The limit of the rule, for episodes without one of their own."""
        return self._rule.limit

    def ledger(self, episode: Hashable) -> Ledger:
        """Return what an open episode has spent.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        return self._open_episode("ledger", episode).ledger

    def begin(self, episode: Hashable, plan: Plan[S], number: int = 0, *, limit: float | None = None) -> None:
        """Open an episode, pinned to `plan`; every decision repeats `number`.

        `limit` replaces that of the rule for this episode.

        Raises:
            OutOfOrder: if the episode is open already.
            InvalidData: if `episode` cannot name one.
            InvalidSetting: if worlds vote and the plan has none.
        """
        if self._votes is not None and not isinstance(plan, PlanOfWorlds):
            raise InvalidSetting(
                f"'plan' must price steps in worlds, got {type(plan).__name__} without 'charges'."
            )
        try:
            is_open = episode in self._episodes
        except TypeError:
            raise InvalidData(
                f"'episode' must be a number or a name, got {type(episode).__name__}, which has no hash."
            ) from None
        if is_open:
            raise OutOfOrder(
                f"'begin' must open a new episode, got {shown(episode)}, which is open. Finish it first."
            )
        rule = self._rule if limit is None else self.rule_with(limit)
        now = self._episodes[episode] = Account(plan, number, rule)
        if self._votes is not None:
            now.deficits = self._votes.deficits(self._votes.worlds)

    def tighten(self, episode: Hashable, limit: float) -> None:
        """Lower the limit of an open episode; where more is booked already, nothing more is afforded.

        Raises:
            OutOfOrder: if the episode is not open.
            InvalidBudget: if `limit` is above what the episode has.
        """
        now = self._open_episode("tighten", episode)
        if not limit <= now.rule.limit:
            raise InvalidBudget(
                f"'limit' must be at most that of the episode, {now.rule.limit:g}, got {shown(limit)}."
            )
        now.rule = now.rule._replace(limit=limit)
        if now.ledger.deficit > limit:
            # The panel's deficit could fall below the limit again.
            now.ledger = Ledger(True, now.ledger.deficit)

    def decide(
        self, episode: Hashable, t: int, s: S, *, proposal: int | None = None, explore: bool = True
    ) -> Decision:
        """Return the action to play at step `t` in state `s`, eq. (5), and book what it costs.

        A charge that is not finite is a refusal and is never booked. A step requested again before it is
        observed gets the same decision, and books nothing more.

        Args:
            episode: An open episode.
            t: Its next step.
            s: The state it is in.
            proposal: An action that another explorer suggests. The chains are left alone then:
                it is played if the ledger affords it, else the baseline is.
            explore: False plays the baseline and books nothing: a chain that was fed waits here.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidBudget: if the plan returns a negative charge.
            InvalidAction: if the plan's action, or the proposal, is not a whole number >= 0.
            InvalidData: if `s` cannot be matched, or is not the state observed last.
        """
        now = self._open_episode("decide", episode)
        if type(t) is not int:
            t = check_integer("t", t, minimum=0, error=OutOfOrder)
        if now.pending is not None and t == now.t:
            self._pool.check_continues("decided in", now.pending[0], s)
            return now.pending[1]
        now.check_next(episode, t, s, self._pool, self._horizon)
        # Nothing is changed before every call of the plan has returned: an error costs nothing.
        weighed = self._weigh(now, t, s, proposal, explore, now.deficits)
        return self._take_up(now, episode, t, s, weighed, proposal is not None, explore)

    @property
    def votes(self) -> Votes | None:
        """How worlds vote, where they do."""
        return self._votes

    def rule_with(self, limit: float) -> Rule:
        """Return the rule of an episode with a limit of its own."""
        return self._rule._replace(limit=limit)

    def preview(
        self, episode: Hashable, t: int, s: S, *, proposal: int | None = None
    ) -> tuple[Decision, tuple[int, ...]]:
        """Return what `decide` would, and the actions that chains propose; nothing changes.

        `t` may be one step ahead of what was observed: `s` is then where the step decided last leads.
        """
        now = self._open_episode("preview", episode)
        settle_debts(now)
        weighed = self._weigh(now, t, s, proposal, True, copy(now.deficits), ahead=now.pending is not None)
        return self._as_decision(now, weighed), weighed.proposals

    def recall(
        self,
        episode: Hashable,
        t: int,
        s: S,
        decision: Decision,
        *,
        proposal: int | None = None,
        explore: bool = True,
        ahead: bool = False,
    ) -> Weighed[S]:
        """Return a recorded decision as it was weighed, for `apply`; nothing changes.

        `ahead` says that `s` is the first news of where the step decided last led.

        Raises:
            OutOfOrder: if the episode is not open or over, or `t` is not its next step.
            InvalidData: if it cannot have been decided here.
        """
        now = self._open_episode("apply", episode)
        if not ahead:
            now.check_next(episode, t, s, self._pool, self._horizon)
        asked = (
            () if proposal is not None or not explore or now.ledger.closed else self._candidates(now, t, s)
        )
        weighed = recorded(now, decision, tuple(asked), proposal, explore, self._votes)
        if weighed is None or self._as_decision(now, weighed) != decision:
            raise InvalidData(
                f"'decision' must be one that can have been made at step {t} of episode {shown(episode)}, "
                f"with {now.ledger.deficit:g} of {now.rule.limit:g} booked, got {shown(decision)}."
            )
        return weighed

    def apply(
        self, episode: Hashable, t: int, s: S, weighed: Weighed[S], *, proposed: bool, explore: bool
    ) -> Decision:
        """Take what `recall` returned for made: afterwards the shield is as if `decide` had decided it.

        The plan is not asked. The deficits of worlds are brought up to date when they are needed.
        """
        now = self._open_episode("apply", episode)
        if weighed.explored and self._votes is not None:
            now.owed.append((t, s, weighed.action))
        return self._take_up(now, episode, t, s, weighed, proposed, explore)

    def part(self, episode: Hashable) -> None:
        """Note that the step decided last was not played: its chain waits where it was to be."""
        now = self._open_episode("part", episode)
        if now.pending is not None:
            self._part(now, now.pending[0])

    def observe(
        self,
        episode: Hashable,
        s_next: S,
        *,
        terminated: bool,
        transition: object = None,
        taken: int | None = None,
    ) -> None:
        """Take in where the decided step led; `transition` comes back with the finished chain.

        `taken` is the action that was played. Where it is not the one decided, what was booked stays booked,
        but the step of the chain did not happen: the chain waits where the step was to be played.

        Raises:
            OutOfOrder: if no decided step is outstanding.
            InvalidData: if `s_next` cannot be matched, or `terminated` is neither true nor false.
        """
        now = self._open_episode("observe", episode)
        if now.pending is None:
            raise OutOfOrder(
                f"'observe' must follow a decision, got step {now.t} of episode {episode!r} without one. "
                "Call decide first."
            )
        self._pool.check("s_next", s_next)
        ended = check_truth("terminated", terminated, error=InvalidData)

        s, decision = now.pending
        reached = self._pool.keep(s_next)
        now.pending, now.reached = None, reached
        now.terminated = ended
        now.t += 1
        if taken is not None and taken != decision.action:
            self._part(now, s)
            return
        chain = now.fed
        if chain is None or chain.complete:
            return
        now.touched.add(chain)
        chain.advance(episode, Step(s, decision.action, reached, transition), ended=self._ended)
        if chain.length == self._horizon or now.terminated:
            # Every episode open at some time in the chain's life is one of its N_m.
            lived = self._ended + len(self._episodes) - chain.born
            now.finished.append(chain.conclude(horizon=self._horizon, episodes=lived))
            self._pool.remove(chain)
            self.finished += 1

    def finish(self, episode: Hashable) -> EpisodeEnd[S]:
        """Close an episode, let its unfinished chain wait where it is, and return the changes to the chains.

        Raises:
            OutOfOrder: if the episode is not open, or its last decision was not observed.
        """
        now = self._open_episode("finish", episode)
        if now.pending is not None:
            raise OutOfOrder(
                f"'finish' must follow an observation, got step {now.t} of episode {episode!r} decided "
                "but not observed. Call observe first."
            )
        return self._close(now, episode)

    def abandon(self, episode: Hashable) -> EpisodeEnd[S]:
        """Close an episode that was broken off; what it has spent stays spent.

        A step decided and never observed has not happened as far as its chain is concerned: that waits where
        the step was to be taken.

        Raises:
            OutOfOrder: if the episode is not open.
        """
        return self._close(self._open_episode("abandon", episode), episode)

    def record(self, keep: Callable[[object], Any]) -> dict[str, Any]:
        """Return the state of the shield as plain values, for `restore`; states are as given.

        Args:
            keep: Returns what to write for a transition that was passed to `observe`.
        """
        chains = {chain.id: chain for chain in self._pool.waiting()}
        chains |= {now.fed.id: now.fed for now in self._episodes.values() if now.fed is not None}
        for now in self._episodes.values():
            settle_debts(now)
        return {
            "counters": [self._ended, self.finished, self.abandoned, self.dropped, self.blocked],
            "started": self._pool.started,
            "chains": [chains[number].record(keep) for number in sorted(chains)],
            "episodes": [[episode, *now.record(chains, keep)] for episode, now in self._episodes.items()],
        }

    def restore(
        self,
        record: Mapping[str, Any],
        plans: Mapping[Hashable, Plan[S]],
        recall: Callable[[Any], object],
        limits: Mapping[Hashable, float] | None = None,
    ) -> None:
        """Take on what `record` returned; only for a shield that has seen nothing.

        Args:
            record: The record of another shield with the same options.
            plans: The plan of every open episode.
            recall: The opposite of `keep`.
            limits: The limits of the open episodes that have their own.
        """
        own = {} if limits is None else limits
        rules = {name: self._rule._replace(limit=limit) for name, limit in own.items()}
        chains: dict[int, Chain[S]] = {each[0]: Chain.restored(each, recall) for each in record["chains"]}
        self._ended, self.finished, self.abandoned, self.dropped, self.blocked = record["counters"]
        self._episodes = {
            episode: Account.restored(
                plans[episode], chains, kept, rules.get(episode, self._rule), recall, self._votes, self._span
            )
            for episode, *kept in record["episodes"]
        }
        self._pool.restore(record["started"], chains.values())

    def _close(self, now: Account[S], episode: Hashable) -> EpisodeEnd[S]:
        if now.fed is not None:
            self._part(now, now.fed.target)
        for chain in now.touched:
            if not chain.complete:
                chain.settle(episode, horizon=self._horizon)
        abandoned = self._abandon_stale()
        blocked = now.refused and not now.explored
        self.blocked += blocked
        del self._episodes[episode]
        self._ended += 1
        if now.held < max(now.t, 1):
            self.watch.ended(now.explored, self._rule)
        ended = (*(rollout.chain for rollout in now.finished), *now.dropped, *abandoned)
        return EpisodeEnd(tuple(now.finished), abandoned, ended, blocked, now.explored)

    def _weigh(
        self,
        now: Account[S],
        t: int,
        s: S,
        proposal: int | None,
        explore: bool,
        deficits: MutableSequence[float],
        *,
        ahead: bool = False,
    ) -> Weighed[S]:
        """Return what is to be done at a step. Of all that is kept, only `deficits` change.

        `ahead` says that the step decided last counts as played.
        """
        plan, ledger, votes = now.plan, now.ledger, self._votes
        settle_debts(now)
        refused: list[Chain[S]] = []
        if proposal is not None:
            action = as_action("proposal", proposal)
            afforded, cost, ledger, vote = put(plan, t, s, action, ledger, deficits, now.rule, votes)
            if afforded:
                return Weighed(True, action, cost, ledger, vote, None, ())
            return Weighed(False, as_action("baseline", plan.baseline(t, s)), 0.0, ledger, vote, None, ())
        # Many chains may wait here, but they propose few actions: each is priced once.
        unaffordable: list[int] = []
        vote = None
        for chain in () if ledger.closed or not explore else self._candidates(now, t, s):
            length = chain.length + (ahead and chain is now.fed and not chain.complete)
            whole = chain.complete or length == self._horizon
            clock = length if self._by_meta_clock and not whole else t
            action = as_action("explore", plan.explore(chain.id, clock, s))
            if action not in unaffordable:
                afforded, cost, ledger, vote = put(plan, t, s, action, ledger, deficits, now.rule, votes)
                if afforded:
                    asked = (*unaffordable, action)
                    return Weighed(True, action, cost, ledger, vote, chain, tuple(refused), asked)
                unaffordable.append(action)
            refused.append(chain)
            if ledger.closed:
                break
        baseline = as_action("baseline", plan.baseline(t, s))
        return Weighed(False, baseline, 0.0, ledger, vote, None, tuple(refused), tuple(unaffordable))

    def _as_decision(self, now: Account[S], weighed: Weighed[S]) -> Decision:
        explored, action, cost, ledger, vote, chosen, *_ = weighed
        chain_id = -1 if chosen is None else chosen.id
        left = room(now.rule, ledger.deficit)
        return Decision(action, explored, cost, ledger.deficit, left, now.number, chain_id, vote, self._span)

    def _take_up(
        self,
        now: Account[S],
        episode: Hashable,
        t: int,
        s: S,
        weighed: Weighed[S],
        proposed: bool,
        explore: bool,
    ) -> Decision:
        """Book a step and move its chains."""
        explored, refused, chosen = weighed.explored, weighed.refused, weighed.chosen
        why_not = self._why_not(now.ledger, t, bool(refused) or proposed) if explore else None
        self.watch.decided(explored, why_not)
        now.held += not explore
        if proposed or not explore or now.ledger.closed:
            self._part(now, s)
        now.refused |= proposed and not explored
        if refused:
            self._refuse(now, episode, refused, s)
        if chosen is not None:
            self._feed(now, chosen)
        now.explored += explored
        now.ledger = weighed.ledger
        decision = self._as_decision(now, weighed)
        now.pending = (self._pool.keep(s), decision)
        return decision

    def _open_episode(self, call: str, episode: Hashable) -> Account[S]:
        try:
            now = self._episodes.get(episode)
        except TypeError:
            now = None
        if now is None:
            raise OutOfOrder(f"{call!r} must name an open episode, got {shown(episode)}. Call begin first.")
        return now
