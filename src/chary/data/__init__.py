"""Logged decisions: read, checked row by row, inspected, made discrete, and written.

`read_log` takes CSV and Parquet files, `read_minari` Minari datasets, `Log.from_arrays` arrays; the log is
passed to `TabularAgent.warm_start(log.episodes())`. See docs/data.md.
"""

from __future__ import annotations

from chary.data._columns import Fault
from chary.data.declared import read_policy, read_rewards
from chary.data.discretise import (
    Bins,
    Codebook,
    Discretiser,
    discretiser_from_arrays,
    load_discretiser,
    save_discretiser,
)
from chary.data.files import read_log, read_observations, seal_log, write_log
from chary.data.inspection import Inspection, PairCount, Suspicion, inspect
from chary.data.logs import Dropped, Log
from chary.data.minari_log import read_minari
from chary.data.usual import usual_policy

__all__ = [
    "Bins",
    "Codebook",
    "Discretiser",
    "Dropped",
    "Fault",
    "Inspection",
    "Log",
    "PairCount",
    "Suspicion",
    "discretiser_from_arrays",
    "inspect",
    "load_discretiser",
    "read_log",
    "read_minari",
    "read_observations",
    "read_policy",
    "read_rewards",
    "save_discretiser",
    "seal_log",
    "usual_policy",
    "write_log",
]
