"""Numbers as texts for sentences and tables: amounts in the user's units, shares, lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chary.preview.result import Basis, BudgetOutcome, Preview

# A share below this is not shown as a number.
NEXT_TO_NOTHING = 5e-4
# How a list says that something was not declared.
READ_OFF = ", read off the log and not declared"
# An amount below this is shown with an exponent.
TINY = 1e-4


class Interval(Protocol):
    """A number that differs between worlds."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def low(self) -> float:
        """The lower end of an interval."""

    @property
    def high(self) -> float:
        """The upper end of it."""


def amount(value: float, unit: str = "", *, digits: int = 4) -> str:
    """Return an amount with thousands separators, to so many digits, and its unit.

    Example:
        >>> amount(1360.26), amount(-0.06134), amount(200.0, "euros"), amount(2.5e-7), amount(0.0)
        ('1,360', '-0.06134', '200 euros', '2.5e-07', '0')
    """
    if value == 0 or not math.isfinite(value) or abs(value) < TINY:
        text = f"{value:.{digits}g}"
    else:
        places = digits - 1 - math.floor(math.log10(abs(value)))
        text = f"{round(value, places):,.{max(places, 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text} {unit}" if unit else text


def budget(eta: float, unit: str = "") -> str:
    """Return a budget as it was given.

    Example:
        >>> budget(12345.5), budget(0.1, "points")
        ('12,345.5', '0.1 points')
    """
    return amount(eta, unit, digits=12)


def percent(share: float) -> str:
    """Return a share as a text for a sentence.

    Example:
        >>> percent(0.0), percent(0.00012), percent(0.034), percent(0.5), percent(0.9999), percent(1.0)
        ('0 %', 'under 0.1 %', '3.4 %', '50 %', 'over 99.9 %', '100 %')
    """
    if 0 < share < NEXT_TO_NOTHING:
        return "under 0.1 %"
    if 1 - NEXT_TO_NOTHING < share < 1:
        return "over 99.9 %"
    digits = 1 if share < 0.1 or share > 0.9 else 0
    text = f"{100 * share:.{digits}f}"
    return f"{text.removesuffix('.0')} %"


def interval(value: Interval, unit: str = "") -> str:
    """Return a number with its interval.

    Example:
        >>> from chary.preview.result import CredibleValue
        >>> interval(CredibleValue(mean=-1360.2, low=-1401.0, high=-1320.6), "euros")
        '-1,360 euros (-1,401 to -1,321)'
    """
    return f"{amount(value.mean, unit)} ({amount(value.low)} to {amount(value.high)})"


def listed(parts: list[str]) -> str:
    """Return parts joined as in a sentence.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def standing_of(found: Preview, outcome: BudgetOutcome) -> str:
    """Return the standing of a rule in a few words, and whether the log refutes its step bound."""
    refuted = found.refuted(outcome)
    return outcome.standing.label + ("" if refuted is None else "; the log refutes its step bound")


def state_name(basis: Basis, state: int) -> str:
    """Return the user's text for a state, its number where there is none."""
    if basis.state_labels and state == len(basis.state_labels) == basis.states - 1:
        return "after an early ending"
    return basis.state_labels[state] if state < len(basis.state_labels) else str(state)


def action_name(basis: Basis, action: int) -> str:
    """Return the user's text for an action, its number where there is none."""
    return basis.action_labels[action] if action < len(basis.action_labels) else str(action)


def step_name(basis: Basis, t: int) -> str:
    """Return the number of a step as the user counts them."""
    return str(t + basis.first_step)


def pair_name(basis: Basis, state: int, action: int) -> str:
    """Return an action and its state for a sentence, the user's texts in quotes."""
    texts = (state_name(basis, state), action_name(basis, action))
    there, what = (text if text.isdecimal() else f"“{text}”" for text in texts)
    return f"action {what} in state {there}"
