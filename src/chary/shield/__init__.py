"""The shield: decides, step by step, whether an episode can still afford to explore."""

from __future__ import annotations

from chary.shield.account import EpisodeEnd
from chary.shield.chains import MetaRollout, Step
from chary.shield.decision import Decision, Plan
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.match import Matcher, same, within
from chary.shield.rule import AFTER_REFUSAL, RULES, Rule
from chary.shield.shield import CLOCKS, Shield

__all__ = [
    "AFTER_REFUSAL",
    "CLOCKS",
    "RULES",
    "Decision",
    "EpisodeEnd",
    "Ledger",
    "Matcher",
    "MetaRollout",
    "Plan",
    "Rule",
    "Shield",
    "Step",
    "authorise",
    "refuse",
    "same",
    "within",
]
