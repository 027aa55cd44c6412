"""Blood glucose of a patient with type 1 diabetes over a day, with meals and doses of insulin.

The equations are those of the identifiable virtual patient: Kanderian, S. S., Weinzimer, S., Voskanyan, G.
and Steil, G. M. (2009), Identification of intraday metabolic profiles during closed-loop glucose control in
individuals with type 1 diabetes, Journal of Diabetes Science and Technology 3, 1047-1057, a form of Bergman's
minimal model (Bergman, R. N., Phillips, L. S. and Cobelli, C. (1981), Journal of Clinical Investigation 68,
1456-1467) with subcutaneous insulin. Meals are absorbed through two compartments, as in Hovorka, R. et al.
(2004), Physiological Measurement 25, 905-920. Risk is that of Kovatchev, B. P., Cox, D. J., Gonder-Frederick,
L. A. and Clarke, W. (1997), Symmetrization of the blood glucose measurement scale and its applications,
Diabetes Care 20, 1655-1658.

    Isc' = (u / CI - Isc) / tau1            Ip' = (Isc - Ip) / tau2
    Ieff' = p2 (SI Ip - Ieff)               G' = -(GEZI + Ieff) G + EGP + RA
    D1' = -D1 / taum                        D2' = (D1 - D2) / taum,    RA = 1000 D2 / (VG taum)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from chary.envs.continuous.arithmetic import Arithmetic
from chary.envs.continuous.equations import State
from chary.errors import check_real

# Minutes: absorption of insulin, its way to the plasma, and of a meal.
TAU1, TAU2, TAUM = 49.0, 47.0, 47.0
# The clearance of insulin, dL/min; the distribution volume of glucose, dL.
CI, VG = 20.1, 253.0
# The rate of the effect, 1/min; the sensitivity, dL/mU/min; glucose effectiveness at zero insulin, 1/min;
# endogenous production, mg/dL/min.
P2, SI, GEZI, EGP = 0.0106, 0.0081, 0.0022, 1.33
# Milligrams of a gram.
MILLI = 1000.0
# The glucose at which the basal rate holds the patient, mg/dL, and that rate, mU/min.
TARGET = 110.0
BASAL = (EGP / TARGET - GEZI) * CI / SI
# Doses as multiples of the basal rate.
DOSES = (0.0, 0.5, 1.0, 2.0, 5.0)
# Minutes of a step, and Runge-Kutta steps in it.
MINUTES, SUBSTEPS = 15, 6
# Steps at which meals are eaten, counted from 6 o'clock, and their carbohydrates in grams.
MEAL_STEPS, MEAL_GRAMS = (4, 24, 48), (45.0, 70.0, 60.0)
# Kovatchev's risk: 10 (1.509 (ln(G)^1.084 - 5.381))^2, for G in mg/dL; above LARGEST it counts as LARGEST.
SCALE, POWER, CENTRE, LARGEST = 1.509, 1.084, 5.381, 100.0
# Glucose is measured between these, mg/dL.
LEAST, MOST = 20.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glucose:
    """Dose insulin every quarter of an hour for a day: 96 steps from 6 o'clock, three meals.

    An action is a rate of insulin for 15 minutes, as a multiple of the basal rate, which holds the glucose at
    110 mg/dL between meals. The reward of a step is 1 - risk / 100 of the glucose that it leads to: 1 at
    112.5 mg/dL, 0.92 at 70 and at 180, 0 at 20 and at 600 and beyond. Nothing ends early. The carbohydrates
    of breakfast (7 o'clock, 45 g), lunch (12, 70 g) and dinner (18, 60 g) are multiplied by the day's
    appetite, which is known in the morning.

    Args:
        spread: The glucose at 6 o'clock is 110 mg/dL times a factor, and the appetite a factor, each uniform
            within 1 - spread..1 + spread, in [0, 0.5]; 0 gives every day the same start.

    Raises:
        InvalidSetting: if `spread` lies outside its range.

    Example:
        >>> Glucose().actions
        ('none', 'half', 'basal', 'double', 'bolus')
    """

    name: ClassVar[str] = "glucose"
    actions: ClassVar[tuple[str, ...]] = ("none", "half", "basal", "double", "bolus")
    horizon: ClassVar[int] = 96
    quantities: ClassVar[tuple[str, ...]] = (
        "glucose, mg/dL",
        "Isc, mU/dL",
        "Ip, mU/dL",
        "Ieff, 1/min",
        "D1, g",
        "D2, g",
        "appetite",
        "steps",
    )
    draws: ClassVar[int] = 2
    low: ClassVar[tuple[float, ...]] = (-2.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    high: ClassVar[tuple[float, ...]] = (2.5, 5.0, 5.0, 5.0, 5.0, 5.0, 2.0)

    spread: float = 0.0

    def __post_init__(self) -> None:
        check_real("spread", self.spread, low=0.0, high=0.5)

    def start(self, uniforms: Any) -> State:
        """Return the state at 6 o'clock from two uniforms."""
        factor = 1.0 + self.spread * (2.0 * uniforms[0] - 1.0)
        appetite = 1.0 + self.spread * (2.0 * uniforms[1] - 1.0)
        basal = BASAL / CI
        return (TARGET * factor, basal, basal, SI * basal, 0.0, 0.0, appetite, 0.0)

    def step(self, do: Arithmetic, state: State, action: Any) -> tuple[State, Any, Any]:
        """Return the state 15 minutes later and the reward; nothing ends early."""
        *body, appetite, steps = state
        for at, grams in zip(MEAL_STEPS, MEAL_GRAMS, strict=True):
            body[4] = body[4] + do.where(steps == at, grams * appetite, 0.0)
        insulin = BASAL * do.one_of(DOSES, action)
        after = do.repeat(SUBSTEPS, lambda now: runge_kutta(now, insulin, MINUTES / SUBSTEPS), tuple(body))
        reward = 1.0 - do.minimum(risk(do, after[0]), LARGEST) / LARGEST
        return (*after, appetite, steps + 1.0), reward, steps < 0.0

    def observe(self, do: Arithmetic, state: State) -> State:
        """Return the symmetrised glucose, insulin and its effect over their basal values, meals, appetite."""
        glucose, *insulin, first, second, appetite, _ = state
        basal = BASAL / CI
        parts = (
            symmetrised(do, glucose),
            *(part / unit for part, unit in zip(insulin, (basal, basal, SI * basal), strict=True)),
            first / 50.0,
            second / 50.0,
            appetite,
        )
        bounds = zip(parts, self.low, self.high, strict=True)
        return tuple(do.between(part, low, high) for part, low, high in bounds)


def symmetrised(do: Arithmetic, glucose: Any) -> Any:
    """Return glucose on Kovatchev's symmetric scale: 0 at 112.5 mg/dL, -sqrt(10) at 20, sqrt(10) at 600."""
    logarithm = do.log(do.between(glucose, LEAST, MOST))
    return SCALE * (logarithm**POWER - CENTRE)


def risk(do: Arithmetic, glucose: Any) -> Any:
    """Return Kovatchev's risk of a glucose in mg/dL: 0 at 112.5, 7.7 at 70 and 180, 100 at 20 and 600.

    Example:
        >>> from chary.envs.continuous.arithmetic import FLOATS
        >>> [round(risk(FLOATS, glucose), 1) for glucose in (50.0, 70.0, 110.0, 180.0, 250.0)]
        [22.5, 7.8, 0.0, 7.7, 22.4]
    """
    return 10.0 * symmetrised(do, glucose) ** 2


def slope(body: State, insulin: Any) -> State:
    """Return the derivatives per minute of (G, Isc, Ip, Ieff, D1, D2) under a rate of insulin in mU/min."""
    glucose, under_skin, plasma, effect, first, second = body
    appearing = MILLI * second / (VG * TAUM)
    return (
        -(GEZI + effect) * glucose + EGP + appearing,
        (insulin / CI - under_skin) / TAU1,
        (under_skin - plasma) / TAU2,
        P2 * (SI * plasma - effect),
        -first / TAUM,
        (first - second) / TAUM,
    )


def runge_kutta(body: State, insulin: Any, minutes: float) -> State:
    """Return the state after one classic Runge-Kutta step."""

    def ahead(by: float, k: State) -> State:
        return tuple(y + by * each for y, each in zip(body, k, strict=True))

    k1 = slope(body, insulin)
    k2 = slope(ahead(minutes / 2, k1), insulin)
    k3 = slope(ahead(minutes / 2, k2), insulin)
    k4 = slope(ahead(minutes, k3), insulin)
    parts = zip(body, k1, k2, k3, k4, strict=True)
    return tuple(y + minutes / 6 * (a + 2 * b + 2 * c + d) for y, a, b, c, d in parts)
