"""Who decides: the four modes of a deployment."""

from __future__ import annotations

from typing import Final

from chary.errors import check_choice

# The incumbent decides; chary recommends, shows what it would have done, and learns from what was done.
APPRENTICE: Final = "apprentice"
# chary decides within the budget.
BUDGETED: Final = "budgeted"
# chary's baseline decides; nothing explores.
FROZEN: Final = "frozen"
# The kill switch: the incumbent alone decides.
STOPPED: Final = "stopped"
MODES: Final = (APPRENTICE, BUDGETED, FROZEN, STOPPED)
# Modes in which the incumbent's action is the answer.
INCUMBENTS: Final = (APPRENTICE, STOPPED)
# The mode that is noted for steps which a client played by itself while the service was away.
FALLBACK: Final = "fallback"


def check_mode(mode: object) -> str:
    """Return a mode.

    Raises:
        UnknownName: if it is none.
    """
    return check_choice("mode", mode, MODES)  # type: ignore[arg-type]
