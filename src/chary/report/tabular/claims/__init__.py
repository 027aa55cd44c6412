"""The paper's claims, each with the answer that a sweep gives and the rule by which it was given.

The rules are thresholds, written down before a sweep is looked at. What is compared with a threshold has an
interval over seeds, and where that holds the threshold, or seeds are few, the sweep cannot tell. The paper's
own claims are judged on the algorithm with role `paper`, run as the paper runs it; what our variants do is
said beside it.
"""

from __future__ import annotations

from chary.report.claims import (
    FEWEST_SEEDS,
    NOT_COMPARABLE,
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Claim,
    Facts,
    Finding,
    count_verdicts,
    same_results,
    say,
    say_rate,
)
from chary.report.measured import Measured
from chary.report.tabular.claims.budget import budget_claims, our_claims
from chary.report.tabular.claims.chains import chain_claims
from chary.report.tabular.claims.regret import chains_off, early_regret, long_run_regret, rate_claims

__all__ = [
    "FEWEST_SEEDS",
    "NOT_COMPARABLE",
    "NOT_MEASURED",
    "NOT_REPRODUCED",
    "REPRODUCED",
    "VERDICTS",
    "Claim",
    "Facts",
    "Finding",
    "answer_claims",
    "count_verdicts",
    "same_results",
    "say",
    "say_rate",
]


def answer_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return every claim of the issue's list with its answer from this sweep, a to g."""
    return [
        *rate_claims(measured),
        *budget_claims(measured),
        early_regret(measured),
        *chain_claims(measured, facts),
        *long_run_regret(measured),
        chains_off(measured),
        *our_claims(measured, facts),
    ]
