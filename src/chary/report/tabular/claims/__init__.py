"""The paper's claims about tabular problems, each with its answer from a sweep and the rule behind it.

The rules are thresholds, fixed before a sweep is looked at. Every quantity that is compared with a threshold
has an interval over seeds; if that contains the threshold, or there are few seeds, the sweep cannot decide.
The paper's own claims are judged on the algorithm with role `paper`, run as the paper runs it; results of our
variants are stated next to it. A study may ask for the same answers under its own conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chary.report.claims import Claim
from chary.report.measured import Measured
from chary.report.tabular.claims.budget import budget_claims, chosen_claim, our_claims
from chary.report.tabular.claims.chains import chain_claims
from chary.report.tabular.claims.facts import Facts
from chary.report.tabular.claims.regret import chains_off, early_regret, long_run_regret, rate_claims

__all__ = ["Facts", "answer_claims"]


def answer_claims(measured: Measured, facts: Facts, studies: Sequence[str] = ()) -> list[Claim]:
    """Return all claims with their answers from this sweep, a to g.

    Args:
        measured: The sweep.
        facts: Facts of its problem.
        studies: The studies under whose conditions the paper's claims, and ours, are answered as well.
    """
    claims = [
        *_paper_claims(measured, facts),
        chains_off(measured),
        *our_claims(measured),
        chosen_claim(measured, facts),
    ]
    for study in studies:
        for variant in measured.variants(study):
            here = measured.within(study, variant)
            some = [*_paper_claims(here, facts), *our_claims(here)]
            claims += [replace(claim, key=f"{claim.key}-{study}", where=variant) for claim in some]
    return claims


def _paper_claims(measured: Measured, facts: Facts) -> list[Claim]:
    return [
        *rate_claims(measured),
        *budget_claims(measured, facts),
        early_regret(measured),
        *chain_claims(measured, facts),
        *long_run_regret(measured),
    ]
