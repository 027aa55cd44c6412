"""Bounds on a mean that hold for every number of values at once, so that anybody may stop at any time.

Let values X_1, X_2, ... lie in [0, 1] and have the mean p, each given those before it. For a fixed share u in
(0, 1) let q = p + (1 - p) u > p. The factor (q / p)^x ((1 - q) / (1 - p))^(1 - x) is convex in x and equals
1 on average for values of 0 and 1 with mean p, so its mean is at most 1 for all values in [0, 1]: products of
factors are a supermartingale, and so is their mixture over u. By Ville's inequality the mixture exceeds
1 / alpha at any time with probability at most alpha. The lower bound is the smallest p at which it does not.

With the density (1 - u)^(-1/2) / 2 the mixture has a closed form, `log_wealth`. For each u it falls in p, so
the bound is a single root; and it grows with every value, so that a bound with a value replaced by something
smaller is lower, and still valid. Upper bounds are lower bounds of 1 - X.
"""

from __future__ import annotations

import math

from chary.errors import check_real

# The power of the mixture's density.
TAIL = 0.5
# Bounds are computed to this precision, and rounded to the safe side.
PRECISION = 1e-7


def log_wealth(p: float, total: float, n: float) -> float:
    """Return the logarithm of the mixture for the mean p in (0, 1), after n values with this sum."""
    # Imported here: most of chary needs no SciPy.
    from scipy.special import betainc, betaln

    a, b = total + 1.0, n - total + TAIL
    above = float(betainc(b, a, 1.0 - p))
    if above == 0.0:
        return -math.inf
    scale = math.log(TAIL) + float(betaln(a, b)) + math.log(above)
    return scale - total * math.log(p) - b * math.log1p(-p)


def lower_bound(total: float, n: float, alpha: float, *, known: float = 0.0) -> float:
    """Return a lower bound on the mean of values in [0, 1] that fails at any n with probability <= alpha.

    Args:
        total: The sum of the values.
        n: The number of values.
        alpha: The probability with which the bounds of all n together may fail, in (0, 1).
        known: A lower bound of an earlier n, at most the result.

    Raises:
        InvalidSetting: if an argument is out of range.

    Example:
        >>> round(lower_bound(75.0, 100, 0.05), 3), lower_bound(0.0, 0, 0.05)
        (0.604, 0.0)
    """
    check_real("alpha", alpha, low=0.0, high=1.0, open_low=True, open_high=True)
    check_real("n", n, low=0.0, open_high=True)
    check_real("total", total, low=0.0, high=n)
    enough = -math.log(alpha)
    # Beyond the mean of the values there is no evidence against p.
    low, high = known, min(total / n, 1.0) if n else 0.0
    if high <= low or log_wealth(max(low, PRECISION), total, n) < enough:
        return low
    while high - low > PRECISION:
        middle = 0.5 * (low + high)
        if log_wealth(middle, total, n) < enough:
            high = middle
        else:
            low = middle
    return low


def upper_bound(total: float, n: float, alpha: float, *, known: float = 1.0) -> float:
    """Return an upper bound on the mean of values in [0, 1], see `lower_bound`; `known` is an earlier one.

    Example:
        >>> round(upper_bound(75.0, 100, 0.05), 3), upper_bound(0.0, 0, 0.05)
        (0.874, 1.0)
    """
    return 1.0 - lower_bound(max(n - total, 0.0), n, alpha, known=1.0 - known)
