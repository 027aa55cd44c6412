"""Named points at which fault tests end the process: CHARY_FAULT_POINT=before-commit:3 is the third commit.

Without that variable `reached` does nothing.
"""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import Final

from chary.errors import check_choice, check_integer

VARIABLE: Final = "CHARY_FAULT_POINT"
POINTS: Final = (
    *("before-commit", "after-commit", "before-reply", "before-snapshot", "after-snapshot"),
    *("packed-snapshot", "before-checkpoint", "after-checkpoint", "before-adopt", "after-adopt"),
)


def _nothing(point: str) -> None:
    pass


class _Ending:
    """Ends the process by SIGKILL when a point is reached for the given time."""

    def __init__(self, wanted: str) -> None:
        name, _, times = wanted.partition(":")
        self._point = check_choice(VARIABLE, name, POINTS)
        whole = int(times) if times.isdigit() else times or 1
        self._times = check_integer(VARIABLE, whole, minimum=1)
        self._reached = count(1)

    def __call__(self, point: str) -> None:
        if point == self._point and next(self._reached) == self._times:
            os.kill(os.getpid(), signal.SIGKILL)


reached = _Ending(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing
