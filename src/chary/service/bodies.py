"""Bodies of requests: JSON, read strictly.

Beyond what the types of `wire` refuse: a key that is there twice, which parsers read differently, and lists
within lists without end.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, final

import msgspec

from chary.service.answers import Refused
from chary.texts import clipped, visible

T = TypeVar("T", bound=msgspec.Struct)

_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Characters of a parser's own words in a message.
_LONGEST_WORDS = 200


@final
class Body(Generic[T]):
    """Reads bodies of one type.

    Args:
        kind: The type.
        depth: How many levels of lists and objects a body may have.
    """

    def __init__(self, kind: type[T], depth: int) -> None:
        self._decode: Callable[[bytes], T] = msgspec.json.Decoder(kind).decode
        self._names = tuple(f'"{field.encode_name}"'.encode() for field in msgspec.structs.fields(kind))
        self._depth = depth

    def read(self, body: bytes) -> T:
        """Return what a body says.

        Raises:
            Refused: 400 for what is not JSON, 422 for JSON of another type or out of range.
        """
        if body.count(b"[") + body.count(b"{") > self._depth:
            self._check_depth(body)
        try:
            value = self._decode(body)
        except msgspec.ValidationError as error:
            words = clipped(visible(str(error)), _LONGEST_WORDS)
            raise Refused(422, "invalid", f"The body is not what this path takes: {words}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            words = clipped(visible(str(error)), _LONGEST_WORDS)
            raise Refused(400, "malformed", f"The body is not JSON in UTF-8: {words}.") from None
        # Where each name is there at most once and none is hidden by an escape, none can be there twice.
        if b"\\" in body or any(body.count(name) > 1 for name in self._names) or body.count(b"{") > 1:
            _check_names(body)
        return value

    def _check_depth(self, body: bytes) -> None:
        """Take the innermost brackets away, level by level: what is left then lies too deep."""
        # One kind of bracket, so that a pass takes away one level, not two.
        brackets = _TEXTS.sub(b"", body).translate(_ONE_KIND, _NO_BRACKETS)
        for _ in range(self._depth):
            brackets = brackets.replace(b"[]", b"")
            if not brackets:
                return
        raise Refused(
            400,
            "too_deep",
            f"The body is not whole, or nested in more than {self._depth} levels of lists and objects.",
        )


def _check_names(body: bytes) -> None:
    try:
        json.loads(body, object_pairs_hook=_once, parse_constant=_no_number)
    except ValueError as error:
        words = clipped(visible(str(error)), _LONGEST_WORDS)
        raise Refused(400, "malformed", f"The body is not JSON in UTF-8: {words}.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = Counter(name for name, _ in pairs)
        twice = max(left, key=lambda name: left[name])
        raise ValueError(f"the field {twice[:60]!r} is there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
