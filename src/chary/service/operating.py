"""What operators tell the engine: modes, budgets, erasure, and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from chary.service import events
from chary.service.answers import Answer
from chary.service.committer import Truncation
from chary.service.desk import Desk
from chary.service.modes import STOPPED, check_mode
from chary.service.records import OPEN
from chary.texts import shown


class Operations(Desk):
    """The calls of operators."""

    # The calls of an operator.
    def set_mode(self, mode: str, *, author: str, reason: str, before: str | None = None) -> Answer:
        """Change the mode, from the next decision on.

        Args:
            mode: One of `modes.MODES`.
            author: Who changes it.
            reason: Why.
            before: The mode that it is expected to be in; where it is in another one, the change is refused.
                So a change that is sent again late cannot undo a stop that came between.
        """
        wanted = self._checked(check_mode, mode)
        facts = events.ModeSet(
            author=self._checked(self._asking.author, author),
            before=self.mode,
            mode=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        last = self._live.policy.get("mode")
        if last is not None and last.facts.mode == wanted and before in (None, last.facts.before):
            if (last.facts.author, last.facts.reason) == (facts.author, facts.reason):
                return self._repeated(last)
        if before is not None and before != self.mode:
            self._refuse(
                409,
                "contradiction",
                f"The mode must be {shown(before)} before the change, got {self.mode!r}.",
            )
        return self._happened(facts)

    def stop(self, *, author: str, reason: str) -> Answer:
        """Stop: from now on the incumbent alone decides."""
        return self.set_mode(STOPPED, author=author, reason=reason)

    def set_eta(
        self, eta: float, *, author: str, reason: str, before: float | UnsetType | None = UNSET
    ) -> Answer:
        """Change the budget of episodes that begin later.

        Args:
            eta: The new budget.
            author: Who changes it.
            reason: Why.
            before: The budget that is expected to be in force, None for none; where it is another one, the
                change is refused. So a change that is sent again late cannot undo one that came between.
        """
        wanted = self._checked(self._asking.eta, eta)
        if wanted is None:
            self._refuse(422, "invalid", "'eta' must be a number, got nothing.")
        self._checked(self._live.check_eta, wanted)
        facts = events.EtaSet(
            author=self._checked(self._asking.author, author),
            before=self._live.budget,
            eta=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        expected = before if isinstance(before, UnsetType) else self._checked(self._asking.eta, before)
        last = self._live.policy.get("eta")
        if last is not None and expected in (UNSET, last.facts.before):
            if msgspec.structs.replace(last.facts, before=facts.before) == facts:
                return self._repeated(last)
        if expected not in (UNSET, facts.before):
            self._refuse(
                409, "contradiction",
                f"The budget must be {shown(expected)} before the change, got {shown(facts.before)}.",
            )  # fmt: skip
        return self._happened(facts)

    def tighten(self, episode: str, eta: float, *, author: str, reason: str) -> Answer:
        """Lower the budget of an open episode."""
        name = self._named(episode)
        now = self._known(name)
        wanted = self._checked(self._asking.eta, eta)
        if wanted is None:
            self._refuse(422, "invalid", "'eta' must be a number, got nothing.")
        facts = events.Tightened(
            author=self._checked(self._asking.author, author),
            eta=wanted,
            reason=self._checked(self._asking.text, "reason", reason),
        )
        for before in now.tightenings:
            if before.facts == facts:
                return self._repeated(before)
        if now.status != OPEN:
            self._refuse(410, "closed", f"The episode must be open, got one that was {now.status}.")
        return self._happened(facts, name)

    def erase(self, episode: str, *, author: str, reason: str) -> Answer:
        """Erase the name of an episode and what came with it; the chain of events stays whole."""
        name = self._named(episode)
        now = self._known(name)
        if now.erased is not None:
            return self._repeated(now.erased)
        facts = events.Erased(
            author=self._checked(self._asking.author, author),
            reason=self._checked(self._asking.text, "reason", reason),
        )
        self._live.recall(now)
        answer = self._happened(facts, name)
        # Without this, what was erased could still be read in the write-ahead log.
        self._committer.besides(Truncation(answer.seq))
        return answer

    # Tokens: this module keeps their hashes; `tokens.py` makes and checks them.
    def add_token(
        self, token: str, digest: str, *, scopes: Sequence[str], label: str, expires: str | None, author: str
    ) -> Answer:
        """Keep a token: its id and the sha256 of its secret."""
        if token in self._live.tokens:
            self._refuse(409, "contradiction", f"'token' must be new, got {shown(token)}.")
        facts = events.TokenAdded(
            author=author, digest=digest, expires=expires, label=label, scopes=tuple(scopes), token=token
        )
        return self._happened(facts, status=201)

    def revoke_token(self, token: str, *, author: str, reason: str) -> Answer:
        """Revoke a token."""
        if token not in self._live.tokens:
            self._refuse(404, "unknown_token", f"'token' must be one in use, got {shown(token)}.")
        return self._happened(events.TokenRevoked(author=author, reason=reason, token=token))

    @property
    def tokens(self) -> Mapping[str, Mapping[str, Any]]:
        """The tokens that are not revoked, by id: digest, scopes, label, created, expires."""
        return self._live.tokens
