"""Keys of seals: with one, files are sealed by HMAC-SHA256, and others are refused.

A seal without a key shows that a file was not damaged. It does not show who wrote it: anyone who
changes a file can seal it again. With a key, only those who have the key can.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

from chary.errors import InvalidData, InvalidSetting
from chary.storage.files import read_text

# The environment variables with a key, and with a file of keys, one per line.
KEY, KEYRING = "CHARY_SEAL_KEY", "CHARY_SEAL_KEYRING"
# Characters of the shortest key.
SHORTEST = 16


def seal_keys() -> tuple[bytes, ...]:
    """Return the keys that are set: the first one seals, and all of them are accepted.

    Raises:
        InvalidSetting: if a key is too short, or there is none in the file.
        InvalidData: if the file cannot be read.
    """
    keys = []
    if (key := os.environ.get(KEY)) is not None:
        keys.append((KEY, key.strip()))
    if (file := os.environ.get(KEYRING)) is not None:
        lines = [line.strip() for line in read_text(Path(file), KEYRING).splitlines()]
        ring = [(KEYRING, line) for line in lines if line and not line.startswith("#")]
        if not ring:
            raise InvalidSetting(
                f"{KEYRING!r} must be a file with one key per line, got {file!r} without any."
            )
        keys += ring
    for name, key in keys:
        if len(key) < SHORTEST:
            # The key itself must not be printed.
            raise InvalidSetting(
                f"{name!r} must have at least {SHORTEST} characters per key, got {len(key)}. Make one: "
                'python -c "import secrets; print(secrets.token_hex())".'
            )
    return tuple(key.encode("utf-8", "surrogateescape") for _, key in keys)


def keyed_seal(content: Any) -> dict[str, str]:
    """Return the entry of a description that seals plain values by the first key; empty without a key."""
    keys = seal_keys()
    return {"hmac": _hmac(keys[0], content)} if keys else {}


def check_keyed(what: str, seal: object, content: Any) -> None:
    """Check a seal where a key is set.

    Args:
        what: What is sealed, for the message.
        seal: The value of `hmac` in its description.
        content: The plain values that were sealed.

    Raises:
        InvalidData: if there is no seal with a key, or none of the keys made it.
    """
    keys = seal_keys()
    if not keys:
        return
    way_out = f"Use the key that it was sealed with, or unset {KEY} and {KEYRING} if you trust the file."
    if not isinstance(seal, str):
        raise InvalidData(f"{what} must be sealed with a key, got a seal without one. {way_out}")
    # A text of JSON may contain halves of characters.
    given = seal.encode(errors="surrogatepass")
    if not any(hmac.compare_digest(_hmac(key, content).encode(), given) for key in keys):
        raise InvalidData(f"{what} must be sealed with a key that is set, got another seal. {way_out}")


def _hmac(key: bytes, content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
