"""The shield: decides, step by step, whether an episode can still afford to explore."""

from __future__ import annotations

from chary.shield.chains import MetaRollout, Step
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.match import Matcher, same, within
from chary.shield.rule import AFTER_REFUSAL, RULES, Rule
from chary.shield.shield import CLOCKS, Decision, Outcome, Plan, Shield

__all__ = [
    "AFTER_REFUSAL",
    "CLOCKS",
    "RULES",
    "Decision",
    "Ledger",
    "Matcher",
    "MetaRollout",
    "Outcome",
    "Plan",
    "Rule",
    "Shield",
    "Step",
    "authorise",
    "refuse",
    "same",
    "within",
]
