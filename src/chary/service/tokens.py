"""Tokens: who calls, and what the caller may do.

A token is `chary_<id>_<secret>`. The deployment holds the id, the sha256 of the secret, scopes, a label and
when the token expires; the secret is shown once and stored nowhere. Secrets are random and long, so that a
plain hash of one cannot be reversed.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, final

from chary.errors import InvalidSetting, check_choice, check_real
from chary.service.answers import Refused
from chary.texts import shown

SCOPES = ("decide", "report", "operate", "audit", "read")
LONGEST_LABEL = 200
_BEARER = b"bearer "
# Longer than any token; what is longer is not hashed.
_LONGEST = 200


class Token(NamedTuple):
    """A token that was made; `text` is the only copy of its secret.

    `digest` is what is stored, `expires` a time in ISO 8601 or None.
    """

    text: str
    id: str
    digest: str
    scopes: tuple[str, ...]
    label: str
    expires: str | None


class Caller(NamedTuple):
    """Who sent a request: the label of the token, and what it may do."""

    token: str
    label: str
    scopes: frozenset[str]


def mint(scopes: Sequence[str], label: str, *, days: float | None = None) -> Token:
    """Return a new token.

    Args:
        scopes: What it may do, of decide, report, operate, audit and read.
        label: Whom it is for; it is the author in the audit trail.
        days: For how many days it is valid; by default until it is revoked.

    Example:
        >>> token = mint(["read"], "dashboard", days=30)
        >>> token.text.startswith(f"chary_{token.id}_"), token.digest == digest_of(token.text.split("_")[2])
        (True, True)
    """
    if isinstance(scopes, str) or not scopes:
        raise InvalidSetting(f"'scopes' must be a list of {', '.join(SCOPES)}, got {shown(scopes)}.")
    for scope in scopes:
        check_choice("scope", scope, SCOPES)
    if (
        not isinstance(label, str)
        or not label.strip()
        or len(label) > LONGEST_LABEL
        or not label.isprintable()
    ):
        raise InvalidSetting(
            f"'label' must be a text of at most {LONGEST_LABEL} printable characters, got {shown(label)}. "
            "It says in the audit trail who did what."
        )
    expires = None
    if days is not None:
        check_real("days", days, low=0.0, high=3660.0, open_low=True)
        expires = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    # Hexadecimal digits alone: a double click selects the whole, and a path or a header needs no escapes.
    token, secret = secrets.token_hex(6), secrets.token_hex(24)
    kept = tuple(scope for scope in SCOPES if scope in scopes)
    return Token(f"chary_{token}_{secret}", token, digest_of(secret), kept, label, expires)


def digest_of(secret: str) -> str:
    """Return what is stored of a secret."""
    return sha256(secret.encode()).hexdigest()


class _Known(NamedTuple):
    row: Mapping[str, Any]
    digest: str
    expires: float | None
    caller: Caller


@final
class Gate:
    """Finds the caller of a request by its header `Authorization`.

    Args:
        tokens: Returns the tokens that are not revoked, by id, as `Engine.tokens` does; called every time, so
            that a token that is revoked is refused from then on.
    """

    def __init__(self, tokens: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        self._tokens = tokens
        self._known: dict[str, _Known] = {}

    def caller(self, header: bytes | None) -> Caller:
        """Return who sent a request.

        Raises:
            Refused: 401, without saying whether the token is unknown, wrong, expired or revoked.
        """
        if header is None or header[: len(_BEARER)].lower() != _BEARER or len(header) > _LONGEST:
            raise Refused(
                401,
                "no_token",
                "The request has no token; send the header 'Authorization: Bearer chary_...'.",
            )
        parts = header[len(_BEARER) :].decode("latin-1").strip().split("_")
        token, secret = (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "chary" else ("", "")
        known = self._look_up(token)
        # Compared also where there is no such token, so that the time does not tell.
        right = hmac.compare_digest(digest_of(secret), known.digest if known else digest_of("no such token"))
        if known is None or not right:
            raise _unknown()
        if known.expires is not None and datetime.now(UTC).timestamp() >= known.expires:
            raise _unknown()
        return known.caller

    def _look_up(self, token: str) -> _Known | None:
        row = self._tokens().get(token)
        if row is None:
            self._known.pop(token, None)
            return None
        known = self._known.get(token)
        if known is None or known.row is not row:
            ends = row["expires"]
            expires = None if ends is None else datetime.fromisoformat(ends).timestamp()
            caller = Caller(token, row["label"], frozenset(row["scopes"]))
            known = self._known[token] = _Known(row, row["digest"], expires, caller)
        return known


def _unknown() -> Refused:
    return Refused(401, "bad_token", "The token is not valid: it is unknown, was revoked, or has expired.")
