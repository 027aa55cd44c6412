"""Planning before going live: what an exploration budget allows, from logged decisions alone.

`preview` computes from a log what an agent would have learnt, replays the logged states through the shield,
and returns how often exploring is allowed, what it is charged, and which data would help. See docs/plan.md.
"""

from __future__ import annotations

from chary.preview.options import Source
from chary.preview.planning import preview
from chary.preview.result import (
    BaselineKnowledge,
    Basis,
    BudgetOutcome,
    Charges,
    Credible,
    CredibleValue,
    Curve,
    Gap,
    HelpfulPair,
    Preview,
    Proposal,
    RuleBasis,
    StageKnowledge,
    StepBound,
    Threshold,
    Verdict,
)

__all__ = [
    "BaselineKnowledge",
    "Basis",
    "BudgetOutcome",
    "Charges",
    "Credible",
    "CredibleValue",
    "Curve",
    "Gap",
    "HelpfulPair",
    "Preview",
    "Proposal",
    "RuleBasis",
    "Source",
    "StageKnowledge",
    "StepBound",
    "Threshold",
    "Verdict",
    "preview",
]
