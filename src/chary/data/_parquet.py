"""Columns of Parquet files, read and written by Polars."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from chary.data._columns import as_column
from chary.errors import InvalidData, InvalidSetting, check_installed
from chary.storage.archives import most_inflated

if TYPE_CHECKING:
    import polars as pl

# The bytes at the beginning and the end of a Parquet file.
MAGIC = b"PAR1"
# A damaged file can make Polars abort the process, which cannot be caught, so a separate process reads it.
# Measured with Polars 1.44.2: of 1,500 files with one to four random bytes changed, one aborted (SIGABRT)
# and 26 raised a PanicException, which is not an Exception.
# The file says how many rows and columns it has: that is compared with what it may inflate to before anything
# is. Long texts can take more; the system stops the process there.
READER = """
import io, sys
import polars as pl
content, most = sys.stdin.buffer.read(), int(sys.argv[1])
table = pl.scan_parquet(io.BytesIO(content))
rows, columns = table.select(pl.len()).collect().item(), len(table.collect_schema())
if 8 * rows * columns > most:
    sys.exit(f"{rows} rows of {columns} columns, more than {most} bytes")
try:
    import resource
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    limit = taken + 4 * most + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
except (ImportError, OSError, ValueError):
    pass
frame = pl.read_parquet(io.BytesIO(content))
answer = io.BytesIO()
frame.write_ipc(answer)
sys.stdout.buffer.write(answer.getvalue())
"""


def parquet_frame(path: Path, content: bytes) -> pl.DataFrame:
    """Return the contents of a Parquet file.

    Raises:
        InvalidData: if it is not a Parquet file, or a damaged one, or would need far more memory than its
            size.
        InvalidSetting: if Polars is not installed.
    """
    check_installed("polars", "Parquet, unlike CSV,", "report")
    import polars as pl

    if not (len(content) > 2 * len(MAGIC) and content.startswith(MAGIC) and content.endswith(MAGIC)):
        raise InvalidData(
            f"{str(path)!r} must be a complete Parquet file, got one without its first or last bytes."
        )
    # -P: do not import a file called polars.py in the user's folder.
    read = subprocess.run(
        [sys.executable, "-P", "-c", READER, str(most_inflated(len(content)))],
        input=content,
        capture_output=True,
        check=False,
    )
    if read.returncode != 0:
        reason = read.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it cannot be read"]
        raise InvalidData(
            f"{str(path)!r} must be a complete Parquet file, got one that is damaged or too large: "
            f"{reason[0][:120]}."
        )
    return pl.read_ipc(io.BytesIO(read.stdout))


def interchanged(frame: Any) -> Any:
    """Return the data frame behind an object of the dataframe interchange protocol or of Arrow's.

    Raises:
        InvalidSetting: if it is neither, or Polars is not installed.
    """
    by_arrow = getattr(frame, "__arrow_c_stream__", None) is not None
    if not by_arrow and getattr(frame, "__dataframe__", None) is None:
        raise InvalidSetting(
            f"'frame' must be a data frame or a dictionary of columns, got {type(frame).__name__}. Use "
            "read_log for files."
        )
    check_installed("polars", "A data frame of the interchange protocol", "report")
    import polars as pl

    try:
        with warnings.catch_warnings():
            # Polars prefers Arrow's protocol to the older one, which some libraries have alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            return pl.DataFrame(frame) if by_arrow else pl.from_dataframe(frame)
    except (TypeError, ValueError, AttributeError, RuntimeError, pl.exceptions.PolarsError) as problem:
        reason = " ".join(str(problem).split()).rstrip(".")
        raise InvalidSetting(
            f"'frame' must be a data frame that can be interchanged, got {type(frame).__name__}: {reason}."
        ) from problem


def frame_column(name: str, series: Any) -> NDArray[Any]:
    """Return one column of any data frame, or of a dictionary, as an array.

    Missing values become None, or NaN in columns of floats.

    Raises:
        InvalidData: if it is not one column.
    """
    if type(series).__module__.startswith("polars"):
        # Where values are missing, Polars would turn whole numbers into floats.
        if series.dtype.is_decimal():
            series = series.cast(float)
        return np.array(series.to_list(), dtype=object) if series.null_count() else as_column(name, series)
    convert = getattr(series, "to_numpy", None)
    return as_column(name, series if convert is None else convert())


def parquet_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return columns as a Parquet file.

    Raises:
        InvalidSetting: if Polars is not installed.
    """
    check_installed("polars", "Parquet, unlike CSV,", "report")
    import polars as pl

    target = io.BytesIO()
    pl.DataFrame(dict(columns)).write_parquet(target)
    return target.getvalue()
