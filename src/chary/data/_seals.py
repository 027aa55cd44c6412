"""Seals of logs: the checksum of a file in a file next to it, made with a key where one is set."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from chary.errors import InvalidData
from chary.storage.files import json_line, parse_json, read_file, read_text, understood, write_new
from chary.storage.keys import check_keyed, keyed_seal


def write_seal(file: Path, *, overwrite: bool) -> Path:
    """Seal a file as it is, and return the path of the seal."""
    values = _sealed(read_file(file))
    write_new(seal_of(file), json_line({**values, **keyed_seal(values)}), overwrite=overwrite)
    return seal_of(file)


def seal_of(file: Path) -> Path:
    """Return the path of the seal that a file has or would have."""
    return file.with_name(f"{file.name}.seal")


def check_seal(file: Path, content: bytes) -> None:
    """Check a file that has a seal.

    Raises:
        InvalidData: if it is not as it was sealed, or not sealed with a key that is set.
    """
    try:
        text = read_text(seal_of(file), "seal") if seal_of(file).exists() else None
    except OSError:
        # A name so long that no seal can have it.
        return
    if text is None:
        return
    with understood(f"{str(file)!r} must have a seal that can be read, got another"):
        values = parse_json(text)
    if {name: values.get(name) for name in ("kind", "bytes", "sha256")} != _sealed(content):
        raise InvalidData(
            f"{str(file)!r} must be as it was sealed, got one that was changed. Put it back, or check it and "
            "seal it again with `chary data seal --overwrite`."
        )
    check_keyed(f"the log {str(file)!r}", values.get("hmac"), _sealed(content))


def _sealed(content: bytes) -> dict[str, Any]:
    return {"kind": "log", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
