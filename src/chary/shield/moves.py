"""How chains move between the pool and the episodes that feed them, section 2."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from chary.shield.account import Account
from chary.shield.chains import Chain, Pool
from chary.shield.ledger import Ledger
from chary.shield.watch import BUDGET, CLOSED, POOL, TARGET

S = TypeVar("S")


class ChainMoves(Generic[S]):
    """The part of a shield that moves chains; `chary.shield.Shield` decides when.

    Attributes:
        finished: chains that became meta-rollouts.
        abandoned: chains given up because they had not advanced for `patience` episodes.
        dropped: chains cut short by a refusal or the end of the episode, with chains off.
    """

    def __init__(self, pool: Pool[S], *, horizon: int, patience: int | None, chains: bool) -> None:
        self._pool = pool
        self._horizon = horizon
        self._patience = patience
        self._chains = chains
        self._ended = 0
        self.finished = self.abandoned = self.dropped = 0

    @property
    def started(self) -> int:
        """Chains started; their ids are 0, 1, 2, ... in that order."""
        return self._pool.started

    @property
    def open_chains(self) -> int:
        """Chains unfinished now, waiting or being fed."""
        return len(self._pool)

    @property
    def waiting_chains(self) -> int:
        """Chains that wait at their targets."""
        return len(self._pool.waiting())

    @property
    def free_places(self) -> int:
        """Chains that could be opened now."""
        return self._pool.free if self._chains else 0

    def _why_not(self, before: Ledger, t: int, proposed: bool) -> str:
        """Return why a step did not explore, if it did not."""
        if before.closed:
            return CLOSED
        if proposed:
            return BUDGET
        return POOL if t == 0 and not self._pool.has_room else TARGET

    def _candidates(self, now: Account[S], t: int, s: S) -> Sequence[Chain[S]]:
        """Return the chains that want to explore here, in the order in which they may try."""
        if now.fed is not None:
            return (now.fed,)
        waiting = self._pool.waiting_at(s)
        if t == 0 and not waiting and (self._pool.has_room or not self._chains):
            return (self._pool.draft(s, ended=self._ended),)
        return waiting

    def _feed(self, now: Account[S], chain: Chain[S]) -> None:
        self._admit_if_new(chain)
        if chain.waiting:
            self._pool.take(chain)
        now.fed = chain

    def _refuse(self, now: Account[S], episode: Hashable, chains: Sequence[Chain[S]], s: S) -> None:
        """Note the chains that could not be afforded; one that was fed, or is new, waits here from now on."""
        now.refused = True
        now.fed = None
        for chain in chains:
            if chain.complete:
                continue
            self._admit_if_new(chain)
            chain.refuse(episode)
            now.touched.add(chain)
            if not chain.waiting:
                self._let_go(now, chain, s)

    def _admit_if_new(self, chain: Chain[S]) -> None:
        if chain.id == self._pool.started:
            self._pool.admit(chain)

    def _part(self, now: Account[S], s: S) -> None:
        """Take the chain being fed from its episode; one that is complete is gone already."""
        if now.fed is not None and not now.fed.complete:
            self._let_go(now, now.fed, s)
        now.fed = None

    def _let_go(self, now: Account[S], chain: Chain[S], s: S) -> None:
        """Make an unfinished chain wait at `s`, or drop it where chains are off."""
        if self._chains:
            self._pool.wait(chain, s)
        else:
            self._pool.remove(chain)
            self.dropped += 1
            now.dropped.append(chain.id)

    def _abandon_stale(self) -> tuple[int, ...]:
        if self._patience is None:
            return ()
        stale = [c for c in self._pool.waiting() if self._ended - c.last_advanced >= self._patience]
        for chain in stale:
            self._pool.remove(chain)
        self.abandoned += len(stale)
        return tuple(chain.id for chain in stale)
