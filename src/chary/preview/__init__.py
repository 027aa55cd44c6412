"""Plan before you go live: what an exploration budget would buy, from logged decisions alone.

`preview` builds from a log what an agent would know, replays the logged states through the shield, and says
how often exploring would be afforded, what it would be charged, and which data would help. See docs/plan.md.
"""

from __future__ import annotations

from chary.preview.planning import preview
from chary.preview.result import (
    BaselineKnowledge,
    Basis,
    Charges,
    Curve,
    HelpfulPair,
    Outcome,
    Preview,
    RuleBasis,
    StageKnowledge,
    Threshold,
)

__all__ = [
    "BaselineKnowledge",
    "Basis",
    "Charges",
    "Curve",
    "HelpfulPair",
    "Outcome",
    "Preview",
    "RuleBasis",
    "StageKnowledge",
    "Threshold",
    "preview",
]
