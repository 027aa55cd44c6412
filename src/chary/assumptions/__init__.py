"""Checks of the paper's two assumptions on a known MDP: yes, no with a witness, or between two bounds.

Assumption 2.2 (ergodicity) is decided in `_diameter`, Assumption 2.3 (gaps) in `_gaps`; neither needs the
other. This is their common report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chary.assumptions._diameter import DiameterReport, DiameterWitness, check_diameter
from chary.assumptions._gaps import GapReport, GapWitness, check_gaps
from chary.assumptions._verdict import FAILS, HOLDS, UNDECIDED, finite
from chary.errors import InvalidBudget, check_real, check_type
from chary.mdp import FiniteMDP, RewardScale

__all__ = [
    "FAILS",
    "HOLDS",
    "UNDECIDED",
    "AssumptionReport",
    "DiameterReport",
    "DiameterWitness",
    "GapReport",
    "GapWitness",
    "check_assumptions",
    "check_diameter",
    "check_gaps",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssumptionReport:
    """Both answers for one problem; `eta` is in the user's units."""

    problem: str
    eta: float
    scale: RewardScale
    diameter: DiameterReport
    gaps: GapReport

    @property
    def holds(self) -> bool:
        """Whether both assumptions are known to hold."""
        return self.diameter.status == self.gaps.status == HOLDS

    def describe(self) -> str:
        """Return both answers in words, one line each."""
        return f"{self.diameter.describe()}\n{self.gaps.describe()}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers and words; null stands for infinity."""
        return {
            "problem": self.problem,
            "eta": finite(self.eta),
            "eta_scaled": finite(self.scale.scaled_difference(self.eta)),
            "holds": self.holds,
            "assumption_2_2": self.diameter.to_json(),
            "assumption_2_3": self.gaps.to_json(),
        }


def check_assumptions(
    mdp: FiniteMDP,
    eta: float,
    *,
    step_bound: float | None = None,
    rng: np.random.Generator | None = None,
) -> AssumptionReport:
    """Check the paper's Assumptions 2.2 and 2.3 on a known MDP.

    Args:
        mdp: The true MDP.
        eta: Exploration budget per episode, in the problem's reward units; inf is allowed.
        step_bound: Bound that gaps are compared with, by default eta / 2. Rule `paper` needs eta / 2;
            the xi of rule `capped` checks that rule's assumption instead.
        rng: If given, some random policies are tried too.

    Raises:
        InvalidBudget: if `eta` or `step_bound` is negative or not a number.
        InvalidSetting: if `mdp` or `rng` has another type.

    Example:
        >>> swap = FiniteMDP.from_arrays([[[0.0, 1.0]], [[1.0, 0.0]]], [[0.0], [1.0]], horizon=4)
        >>> print(check_assumptions(swap, eta=0.5).describe())
        Assumption 2.2 (ergodicity) holds: the worst-case diameter is 1, H/2 is 2.
        Assumption 2.3 (gaps at most 0.25) holds: no policy has a gap above 0.
    """
    check_type("mdp", mdp, FiniteMDP, "a FiniteMDP", way_out="Use chary.envs or FiniteMDP.")
    if rng is not None:
        check_type("rng", rng, np.random.Generator, "a numpy Generator")
    budget = check_real("eta", eta, low=0.0, error=InvalidBudget)
    bound = budget / 2
    if step_bound is not None:
        bound = check_real("step_bound", step_bound, low=0.0, error=InvalidBudget)
    return AssumptionReport(
        problem=mdp.name,
        eta=budget,
        scale=mdp.scale,
        diameter=check_diameter(mdp),
        gaps=check_gaps(mdp, mdp.scale.scaled_difference(bound), rng=rng),
    )
