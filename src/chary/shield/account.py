"""The account of one open episode: what it has spent, and what it has done to the chains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableSequence, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from chary.errors import OutOfOrder
from chary.shield.chains import Chain, MetaRollout, Pool
from chary.shield.decision import Decision, Plan, room
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule
from chary.shield.worlds import Vote, Votes
from chary.texts import shown

S = TypeVar("S")


class EpisodeEnd(NamedTuple, Generic[S]):
    """The changes that one episode made to the chains.

    `ended` lists every chain whose explorer is no longer needed: finished, abandoned or dropped
    (chains off). `blocked` means that some chain was refused and not one step was explored.
    """

    finished: tuple[MetaRollout[S], ...]
    abandoned: tuple[int, ...]
    ended: tuple[int, ...]
    blocked: bool
    explored: int


@dataclass(slots=True)
class Account(Generic[S]):
    """One open episode of a shield: its ledger, the chain it feeds, and the chains it has touched.

    `pending` is the step decided and not yet observed, as the state and the decision. `deficits` has one
    number per world, and none where no worlds vote; those of the steps in `owed`, each with its state and
    action, are still to be added. `held` counts the steps that were not to explore.
    """

    plan: Plan[S]
    number: int
    rule: Rule
    ledger: Ledger = field(default_factory=Ledger)
    t: int = 0
    fed: Chain[S] | None = None
    pending: tuple[S, Decision] | None = None
    reached: S | None = None
    terminated: bool = False
    explored: int = 0
    refused: bool = False
    touched: set[Chain[S]] = field(default_factory=set)
    finished: list[MetaRollout[S]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    deficits: MutableSequence[float] = field(default_factory=list)
    owed: list[tuple[int, S, int]] = field(default_factory=list)
    held: int = 0

    def record(self, open_chains: Collection[int], keep: Callable[[object], Any]) -> list[Any]:
        """Return the account as plain values, for `restored`; `keep` replaces transitions.

        The deficits in worlds are a copy in the form that the votes keep them in.
        """
        # The rest of a decision follows from the ledger.
        pending = self.pending and [self.pending[0], *self.pending[1][:3], self.pending[1].chain]
        fed = None if self.fed is None else self.fed.id
        vote = None if self.pending is None else self.pending[1].vote
        worlds = [copy(self.deficits), vote and list(vote)]
        return [
            *(self.number, list(self.ledger), self.t, fed, pending),
            *(self.reached, self.terminated, self.explored, self.refused),
            sorted(chain.id for chain in self.touched if chain.id in open_chains),
            [rollout.record(keep) for rollout in self.finished],
            list(self.dropped),
            *([worlds] if len(self.deficits) else []),
        ]

    def check_next(self, episode: Hashable, t: int, s: S, pool: Pool[S], horizon: int) -> None:
        """Raise an error unless step `t`, in state `s`, is the next one of this `episode`."""
        if self.pending is None and t == self.t and not self.terminated and t < horizon:
            pool.check("s", s)
            if t > 0:
                pool.check_continues("observed last", self.reached, s)
            return
        if self.pending is not None:
            raise OutOfOrder(
                f"'decide' must follow an observation, got step {self.t} of episode {episode!r} decided "
                "but not observed. Call observe first."
            )
        if self.terminated or self.t == horizon:
            how = "reached a terminal state" if self.terminated else f"has played all {horizon} steps"
            raise OutOfOrder(
                f"'decide' must name an episode still going, got {shown(episode)}, which {how}. Call finish."
            )
        raise OutOfOrder(
            f"'t' must be the next step of episode {episode!r}, {self.t}, got {shown(t)}. "
            "Steps are decided in order."
        )

    @classmethod
    def restored(
        cls,
        plan: Plan[S],
        chains: Mapping[int, Chain[S]],
        record: Sequence[Any],
        rule: Rule,
        recall: Callable[[Any], object],
        votes: Votes | None = None,
        span: float = 1.0,
    ) -> Account[S]:
        """Return the account that `record` was called on."""
        deficits, vote = [], None
        if votes is not None:
            *record, (deficits, vote) = record
        number, ledger, t, fed, pending, *state, touched, finished, dropped = record
        now = cls(plan, number, rule, Ledger(*ledger), t, None if fed is None else chains[fed])
        now.reached, now.terminated, now.explored, now.refused = state
        if pending is not None:
            s, action, was_explored, charge, chain = pending
            deficit = now.ledger.deficit
            left = room(rule, deficit)
            told = None if vote is None else Vote(*vote)
            decision = Decision(action, was_explored, charge, deficit, left, number, chain, told, span)
            now.pending = (s, decision)
        now.touched = {chains[chain] for chain in touched}
        now.finished = [MetaRollout.restored(rollout, recall) for rollout in finished]
        now.dropped = list(dropped)
        if votes is not None:
            now.deficits = votes.deficits(votes.worlds)
            for k, each in enumerate(deficits):
                now.deficits[k] = each
        return now
