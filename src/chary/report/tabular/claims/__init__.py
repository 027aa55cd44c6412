"""The paper's claims about tabular problems, each with its answer from a sweep and the rule behind it.

The rules are thresholds, fixed before a sweep is looked at. Every quantity that is compared with a threshold
has an interval over seeds; if that contains the threshold, or there are few seeds, the sweep cannot decide.
The paper's own claims are judged on the algorithm with role `paper`, run as the paper runs it; results of our
variants are stated next to it.
"""

from __future__ import annotations

from chary.report.claims import Claim
from chary.report.measured import Measured
from chary.report.tabular.claims.budget import budget_claims, our_claims
from chary.report.tabular.claims.chains import chain_claims
from chary.report.tabular.claims.facts import Facts
from chary.report.tabular.claims.regret import chains_off, early_regret, long_run_regret, rate_claims

__all__ = ["Facts", "answer_claims"]


def answer_claims(measured: Measured, facts: Facts) -> list[Claim]:
    """Return all claims with their answers from this sweep, a to g."""
    return [
        *rate_claims(measured),
        *budget_claims(measured, facts),
        early_regret(measured),
        *chain_claims(measured, facts),
        *long_run_regret(measured),
        chains_off(measured),
        *our_claims(measured, facts),
    ]
