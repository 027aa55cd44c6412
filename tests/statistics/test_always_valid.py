"""Bounds that hold at every time at once: streams of values that are stopped at the worst moment."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from chary.arrays import Floats
from chary.errors import InvalidSetting
from chary.statistics import clopper_pearson
from chary.statistics.always_valid import TAIL, log_wealth, lower_bound, upper_bound

STREAMS, LENGTH, ALPHA = 800, 400, 0.1

Draw = Callable[[np.random.Generator], Floats]


def coins(p: float) -> Draw:
    return lambda chance: (chance.random((STREAMS, LENGTH)) < p).astype(float)


DRAWS: dict[str, tuple[Draw, float]] = {
    "coins .5": (coins(0.5), 0.5),
    "rare successes": (coins(0.02), 0.02),
    "rare failures": (coins(0.97), 0.97),
    "uniform": (lambda chance: chance.random((STREAMS, LENGTH)), 0.5),
    "beta": (lambda chance: chance.beta(0.3, 0.9, (STREAMS, LENGTH)), 0.25),
    "three values": (
        lambda chance: chance.choice([0.0, 0.4, 1.0], (STREAMS, LENGTH), p=[0.3, 0.5, 0.2]),
        0.4,
    ),
}


def ever_wrong(values: Floats, mean: float) -> int:
    """Count the streams whose lower bound exceeds the mean at any time.

    The bound does so exactly where the wealth at the true mean exceeds 1 / alpha.
    """
    totals = np.cumsum(values, axis=1)
    wrong = 0
    for row in totals:
        # Evidence against the mean needs values above it: the rest need not be looked at.
        times = np.flatnonzero(row > (np.arange(LENGTH) + 1) * mean)
        wrong += any(log_wealth(mean, row[i], i + 1.0) > -np.log(ALPHA) for i in times[::4].tolist())
    return wrong


@pytest.mark.parametrize("case", DRAWS)
def test_a_stream_stopped_at_the_worst_time_breaks_a_bound_no_more_often_than_alpha(
    case: str, first_seed: int
) -> None:
    draw, mean = DRAWS[case]
    values = draw(np.random.default_rng(first_seed))
    for side, wrong in (("lower", ever_wrong(values, mean)), ("upper", ever_wrong(1.0 - values, 1.0 - mean))):
        # The bounds must be possible, at 99.99 % confidence, and not so wide that nothing ever happens.
        assert clopper_pearson(wrong, STREAMS, 0.9999).low <= ALPHA, (case, side, wrong)
    if mean > 0.3:
        assert ever_wrong(values, mean * 0.7) > STREAMS / 2


def test_values_lost_because_of_what_they_are_break_no_bound(first_seed: int) -> None:
    chance = np.random.default_rng(first_seed)
    values = chance.beta(2.0, 2.0, (STREAMS, LENGTH))
    # Good values get lost: they count 0 below. Bad ones get lost: they count 1 above.
    good_lost = np.where((values > 0.6) & (chance.random(values.shape) < 0.5), 0.0, values)
    bad_lost = np.where((values < 0.4) & (chance.random(values.shape) < 0.5), 1.0, values)
    assert ever_wrong(good_lost, 0.5) <= ever_wrong(values, 0.5)
    assert ever_wrong(1.0 - bad_lost, 0.5) <= ever_wrong(1.0 - values, 0.5)
    # Leaving lost values out in place of that breaks nearly every bound.
    left_out = chance.choice(values[values > 0.4], values.shape)
    assert ever_wrong(left_out, 0.5) > STREAMS / 2


@pytest.mark.parametrize(("p", "total", "n"), [(0.5, 7.0, 10.0), (0.2, 3.5, 11.0), (0.9, 80.0, 100.0)])
def test_the_closed_form_is_the_mixture(p: float, total: float, n: float) -> None:
    def product(u: float) -> float:
        q = p + (1 - p) * u
        density = TAIL * (1 - u) ** (TAIL - 1)
        return float((q / p) ** total * ((1 - q) / (1 - p)) ** (n - total) * density)

    mixture, _ = integrate.quad(product, 0.0, 1.0, epsabs=1e-13, limit=200)
    assert log_wealth(p, total, n) == pytest.approx(np.log(mixture), abs=1e-6)


def test_bounds_are_the_root_and_monotone() -> None:
    chance = np.random.default_rng(1)
    for _ in range(200):
        n = int(chance.integers(1, 3000))
        total = float(chance.random() * n)
        low = lower_bound(total, n, 0.05)
        assert 0.0 <= low <= total / n <= upper_bound(total, n, 0.05) <= 1.0
        # A smaller value gives a lower bound that is no higher; so does a smaller alpha.
        assert lower_bound(max(total - 0.7, 0.0), n, 0.05) <= low
        assert lower_bound(total, n, 0.01) <= low
        if 0.0 < low < 1.0:
            assert log_wealth(low, total, n) >= -np.log(0.05) > log_wealth(low + 1e-5, total, n)
        # The wealth falls in p up to the mean, where the search ends: there is one root.
        wealth = [log_wealth(p, total, n) for p in np.linspace(0.001, total / n, 60).tolist()]
        assert total / n < 0.001 or all(after <= before + 1e-8 for before, after in pairwise(wealth))


def test_no_values_tell_nothing_and_earlier_bounds_stay() -> None:
    assert (lower_bound(0.0, 0, 0.05), upper_bound(0.0, 0, 0.05)) == (0.0, 1.0)
    assert lower_bound(1.0, 10, 0.05, known=0.3) == 0.3
    assert upper_bound(9.0, 10, 0.05, known=0.7) == 0.7
    assert lower_bound(10.0, 10, 0.05) > 0.5 > upper_bound(0.0, 10, 0.05)


@pytest.mark.parametrize(
    ("total", "n", "alpha"), [(2.0, 1, 0.1), (-1.0, 1, 0.1), (0.0, 1, 0.0), (0.0, 1, 1.0)]
)
def test_what_cannot_be_is_refused(total: float, n: int, alpha: float) -> None:
    with pytest.raises(InvalidSetting):
        lower_bound(total, n, alpha)
