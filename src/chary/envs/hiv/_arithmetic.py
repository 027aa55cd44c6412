"""The equations and one attempted step of Dormand and Prince, written once for numba, JAX and plain Python.

Only operators are used, which mean the same for a float, a traced JAX value and a vector of lanes. A
concentration vector is a tuple of six values, in the order T1, T2, T1*, T2*, V, E.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from chary._compile import OPTIONS

# The days of one action.
DAYS = 5.0
# Error allowed in one step of the integrator: ABSOLUTE + RELATIVE * concentration.
RELATIVE, ABSOLUTE = 1e-7, 1e-9
# The next step is SAFETY * error**(-1/5) times as long, within these bounds.
SAFETY, SHRINKAGE, GROWTH = 0.9, 0.2, 5.0
NO_ERROR = 1e-20
FIRST_FACTOR = 0.05
# In days: the shortest first step, and the shortest step after a refused one.
SHORTEST_FIRST, SHORTEST = 1e-6, 1e-10
# The hardest states of an episode take about 330.
MAX_ATTEMPTS = 10_000
# Dormand and Prince (1980), RK5(4)7M: the stages' weights, and the difference of both solutions.
TABLEAU = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

Six = tuple[Any, Any, Any, Any, Any, Any]


@register_jitable(error_model=OPTIONS["error_model"])
def under_treatment(p: Any, e1: Any, e2: Any) -> tuple[Any, ...]:
    """Return the constants of `slope` for parameters in the order of `NAMES` and an action's efficacies."""
    infect1 = (1.0 - e1) * p[5]
    infect2 = (1.0 - p[4] * e1) * p[6]
    return (
        p[0],
        p[1],
        p[2],
        p[3],
        infect1,
        infect2,
        p[7],
        p[8],
        p[9],
        (1.0 - e2) * p[10] * p[7],
        p[11],
        p[12] * infect1,
        p[13] * infect2,
        p[14],
        p[15],
        p[16],
        p[17],
        p[18],
        p[19],
    )


@register_jitable(error_model=OPTIONS["error_model"])
def slope(q: Any, y: Any) -> Six:
    """Return the six derivatives per day at `y` for the constants `q` of `under_treatment`."""
    (l1, l2, d1, d2, infect1, infect2, delta, m1, m2, burst, c, lost1, lost2, lE, bE, Kb, dE, Kd, deltaE) = q
    T1, T2, I1, I2, V, E = y
    new1 = infect1 * V * T1
    new2 = infect2 * V * T2
    infected = I1 + I2
    return (
        l1 - d1 * T1 - new1,
        l2 - d2 * T2 - new2,
        new1 - (delta + m1 * E) * I1,
        new2 - (delta + m2 * E) * I2,
        burst * infected - (c + lost1 * T1 + lost2 * T2) * V,
        lE + (bE * infected / (infected + Kb) - dE * infected / (infected + Kd) - deltaE) * E,
    )


@register_jitable(error_model=OPTIONS["error_model"])
def add(y: Any, a: Any, k: Any) -> Six:
    """Return y + a k."""
    return (
        y[0] + a * k[0],
        y[1] + a * k[1],
        y[2] + a * k[2],
        y[3] + a * k[3],
        y[4] + a * k[4],
        y[5] + a * k[5],
    )


@register_jitable(error_model=OPTIONS["error_model"])
def norm2(e: Any, y: Any, z: Any) -> Any:
    """Return the mean square of `e` in units of the error allowed between the concentrations `y` and `z`."""
    half = 0.5 * RELATIVE
    u0 = e[0] / (ABSOLUTE + half * (abs(y[0]) + abs(z[0])))
    u1 = e[1] / (ABSOLUTE + half * (abs(y[1]) + abs(z[1])))
    u2 = e[2] / (ABSOLUTE + half * (abs(y[2]) + abs(z[2])))
    u3 = e[3] / (ABSOLUTE + half * (abs(y[3]) + abs(z[3])))
    u4 = e[4] / (ABSOLUTE + half * (abs(y[4]) + abs(z[4])))
    u5 = e[5] / (ABSOLUTE + half * (abs(y[5]) + abs(z[5])))
    return (u0 * u0 + u1 * u1 + u2 * u2 + u3 * u3 + u4 * u4 + u5 * u5) / 6.0


@register_jitable(error_model=OPTIONS["error_model"])
def first_step(y: Any, k1: Any) -> Any:
    """Return the square of the length to try first: FIRST_FACTOR of a relative change."""
    return FIRST_FACTOR * FIRST_FACTOR * norm2(y, y, y) / norm2(k1, y, y)


@register_jitable(error_model=OPTIONS["error_model"])
def attempt(q: Any, y: Any, k1: Any, h: Any) -> tuple[Six, Six, Any]:
    """Try a step of length `h` from `y`, where the slope is `k1`: Dormand and Prince 5(4).

    Returns the concentrations after it, the slope there, and the square of its error in units of the error
    allowed.
    """
    A2, A3, A4, A5, A6, A7 = TABLEAU
    k2 = slope(q, add(y, h * A2[0], k1))
    k3 = slope(q, add(add(y, h * A3[0], k1), h * A3[1], k2))
    k4 = slope(q, add(add(add(y, h * A4[0], k1), h * A4[1], k2), h * A4[2], k3))
    z = add(add(y, h * A5[0], k1), h * A5[1], k2)
    k5 = slope(q, add(add(z, h * A5[2], k3), h * A5[3], k4))
    z = add(add(add(y, h * A6[0], k1), h * A6[1], k2), h * A6[2], k3)
    k6 = slope(q, add(add(z, h * A6[3], k4), h * A6[4], k5))
    z = add(add(add(y, h * A7[0], k1), h * A7[2], k3), h * A7[3], k4)
    z = add(add(z, h * A7[4], k5), h * A7[5], k6)
    k7 = slope(q, z)
    zero = 0.0 * h
    e = add((zero, zero, zero, zero, zero, zero), h * ERROR[0], k1)
    e = add(add(e, h * ERROR[2], k3), h * ERROR[3], k4)
    e = add(add(add(e, h * ERROR[4], k5), h * ERROR[5], k6), h * ERROR[6], k7)
    return z, k7, norm2(e, y, z)


@register_jitable(error_model=OPTIONS["error_model"])
def reward_of(V: Any, E: Any, e1: Any, e2: Any) -> Any:
    """Return the unscaled reward of arriving at `V` and `E` under the efficacies of the action played."""
    return 1e3 * E - 0.1 * V - 2e4 * e1 * e1 - 2e3 * e2 * e2
