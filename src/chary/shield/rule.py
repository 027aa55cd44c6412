"""The five rules of the shield, four numbers each: they decide which exploring steps a budget affords."""

from __future__ import annotations

import sys
from typing import NamedTuple

from chary.errors import InvalidBudget, InvalidSetting, check_choice, check_real
from chary.texts import shown

RULES = ("strict", "capped", "paper", "unlimited", "closed")
AFTER_REFUSAL = ("pause", "close")

# A step bound no charge reaches. Finite, because `authorise` multiplies by it and inf * 0 is NaN.
NO_STEP_BOUND = sys.float_info.max


class Rule(NamedTuple):
    """The decision of one step, as numbers that Python, NumPy, numba and JAX all read.

    A step of charge c costs min(c, step_bound) and is afforded when
    deficit + lookahead * cost <= limit; `closes` says whether the first refusal ends
    exploration for the episode. All in scaled reward units.
    """

    limit: float
    lookahead: float
    step_bound: float
    closes: bool

    @classmethod
    def strict(cls, eta: float, *, after_refusal: str = "pause") -> Rule:
        """Afford a step only if its whole charge still fits: the ledger never exceeds `eta`."""
        return cls(_budget(eta), 1.0, NO_STEP_BOUND, _closes(after_refusal))

    @classmethod
    def capped(cls, eta: float, *, step_bound: float, after_refusal: str = "pause") -> Rule:
        """Book at most `step_bound` a step; valid where every true gap is at most `step_bound`."""
        bound = check_real("step_bound", step_bound, low=0.0, open_low=True, error=InvalidBudget)
        return cls(_budget(eta), 1.0, min(bound, NO_STEP_BOUND), _closes(after_refusal))

    @classmethod
    def paper(cls, eta: float, *, after_refusal: str = "close") -> Rule:
        """Afford any step while the deficit is at most eta/2, eq. (5); leans on Assumption 2.3."""
        return cls(_budget(eta) / 2, 0.0, NO_STEP_BOUND, _closes(after_refusal))

    @classmethod
    def unlimited(cls) -> Rule:
        """Afford everything: UCBVI, trajectory for trajectory."""
        return cls(float("inf"), 0.0, NO_STEP_BOUND, False)

    @classmethod
    def closed(cls) -> Rule:
        """Afford nothing: the pure baseline."""
        return cls(-1.0, 0.0, NO_STEP_BOUND, True)

    @classmethod
    def named(
        cls, name: str, *, eta: float, step_bound: float | None = None, after_refusal: str = "pause"
    ) -> Rule:
        """Return the rule called `name`.

        Raises:
            UnknownName: if no rule has that name.
            InvalidSetting: if `capped` has no step bound, or another rule has one.

        Example:
            >>> Rule.named("paper", eta=0.4).limit
            0.2
        """
        check_choice("rule", name, RULES)
        _budget(eta)
        if name == "capped":
            if step_bound is None:
                raise InvalidSetting(
                    "'step_bound' must be given with rule 'capped', got None. "
                    "Pass the largest true gap you are ready to assume, for example eta / 2."
                )
            return cls.capped(eta, step_bound=step_bound, after_refusal=after_refusal)
        if step_bound is not None:
            raise InvalidSetting(
                f"'step_bound' belongs to rule 'capped' alone, got {shown(step_bound)} with rule {name!r}. "
                "Leave it out or choose rule 'capped'."
            )
        if name == "strict":
            return cls.strict(eta, after_refusal=after_refusal)
        if name == "paper":
            return cls.paper(eta, after_refusal=after_refusal)
        _closes(after_refusal)
        return cls.unlimited() if name == "unlimited" else cls.closed()


def _budget(eta: float) -> float:
    return check_real(
        "eta", eta, low=0.0, error=InvalidBudget, way_out="Use rule 'unlimited' for no budget at all."
    )


def _closes(after_refusal: str) -> bool:
    return check_choice("after_refusal", after_refusal, AFTER_REFUSAL) == "close"
