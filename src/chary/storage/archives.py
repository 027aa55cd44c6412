"""Arrays in npz and npy files: sizes are checked before anything is inflated, and nothing can run code."""

from __future__ import annotations

import ast
import io
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from chary.errors import LARGEST, InvalidData
from chary.storage.files import UNREADABLE
from chary.texts import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The largest arrays of a compressed file: this much, and more only in proportion to the file. Constant arrays
# shrink a thousandfold, results as a whole hardly more than tenfold.
INFLATED, RATIO = 1 << 28, 100
SUFFIX = ".npy"
MAGIC = b"\x93NUMPY"
# By version of the format: bytes of the header's length, and its encoding.
VERSIONS = {b"\x01\x00": (2, "latin1"), b"\x02\x00": (4, "latin1"), b"\x03\x00": (4, "utf-8")}
LONGEST_HEADER = 10_000
# Booleans, numbers and texts; no objects and no records.
KINDS = "biufcUS"
MOST_DIMENSIONS = 32
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1


def npz_bytes(arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True) -> bytes:
    """Return arrays as an npz file that `npz_arrays` reads: the same arrays always give the same bytes.

    Args:
        arrays: Numbers and texts by name.
        compressed: Whether to compress them; arrays that would shrink too much are stored as they are.
    """
    import numpy as np

    target = io.BytesIO()
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(target, **arrays)
    content = target.getvalue()
    if compressed and sum(array.nbytes + LONGEST_HEADER for array in arrays.values()) > most_inflated(
        len(content)
    ):
        return npz_bytes(arrays, compressed=False)
    return content


def npz_arrays(content: bytes, *, compressed: bool = True) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file.

    Args:
        content: The whole file.
        compressed: Whether members may be compressed.

    Raises:
        InvalidData: if the content is not an npz file, was cut off or changed, or would need far more memory
            than its size.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _checked(archive.infolist(), len(content), compressed=compressed)
            # A member is read up to its declared size, and compared with its checksum.
            return {name: npy_array(archive.read(member)) for name, member in members.items()}
    except InvalidData:
        raise
    except UNREADABLE as problem:
        raise InvalidData(f"an npz file must be whole, got {_reason(problem)}.") from problem


def most_inflated(size: int) -> int:
    """Return how many bytes a compressed file of some size may inflate to."""
    return INFLATED + RATIO * size


def _checked(members: list[zipfile.ZipInfo], size: int, *, compressed: bool) -> dict[str, zipfile.ZipInfo]:
    """Return members by array, once they may be read: what they declare is refused here, unread."""
    limit = most_inflated(size) if compressed else size
    total = sum(member.file_size for member in members)
    if total > limit:
        raise InvalidData(
            f"an npz file of {size} bytes must contain at most {limit} bytes, got {total} declared."
        )
    found: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        name = member.filename.removesuffix(SUFFIX)
        if not member.filename.endswith(SUFFIX) or name in found:
            raise InvalidData(
                f"an npz file must contain arrays with different names, got {shown(member.filename)}."
            )
        method = member.compress_type
        if method not in METHODS[: 2 if compressed else 1] or member.flag_bits & ENCRYPTED:
            raise InvalidData(
                f"an npz file must be stored {'or deflated' if compressed else 'as it is'}, got "
                f"{shown(name)} encrypted or compressed by method {method}."
            )
        found[name] = member
    return found


def npy_array(content: bytes) -> NDArray[Any]:
    """Return the array of an npy file, a copy of its bytes.

    Raises:
        InvalidData: if it is not an npy file of numbers or texts, or declares another size than it has.
    """
    import numpy as np

    dtype, shape, fortran, start = _header(content)
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) - start or (count and not dtype.itemsize):
        raise InvalidData(
            f"an npy file must contain as many bytes as its header declares, {shown(shape)} of {dtype}, got "
            f"{len(content) - start} bytes."
        )
    if not count:
        return np.zeros(shape, dtype=dtype)
    # Copied, so that the numbers are aligned, and may be written to.
    flat = np.frombuffer(content, dtype=dtype, count=count, offset=start).copy()
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(content: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Return type, shape and order of an npy file, and where its numbers begin."""
    import numpy as np

    width, encoding = VERSIONS.get(content[6:8], (0, ""))
    size = int.from_bytes(content[8 : 8 + width], "little")
    start = 8 + width + size
    if not content.startswith(MAGIC) or not width or size > LONGEST_HEADER or start > len(content):
        raise InvalidData("an npy file must begin with its header, got one without.")
    try:
        header = ast.literal_eval(content[8 + width : start].decode(encoding))
        shape, fortran, described = header["shape"], header["fortran_order"], header["descr"]
        dtype = np.dtype(described)
    except UNREADABLE as problem:
        raise InvalidData(f"an npy file must begin with its header, got {_reason(problem)}.") from problem
    whole = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    # Also of arrays without entries: NumPy counts them as if no dimension were 0.
    whole = whole and math.prod(max(n, 1) for n in shape) * dtype.itemsize <= LARGEST
    if not whole or len(shape) > MOST_DIMENSIONS or type(fortran) is not bool:
        raise InvalidData(f"an npy file must declare a shape and its order, got {shown(header)}.")
    if not isinstance(described, str) or dtype.kind not in KINDS:
        raise InvalidData(f"an npy file must contain numbers or texts, got {shown(described)}.")
    return dtype, shape, fortran, start


def _reason(problem: BaseException) -> str:
    return str(problem).rstrip(".") or type(problem).__name__
