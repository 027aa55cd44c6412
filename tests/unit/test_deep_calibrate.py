"""Constants of the ensemble from held-out data: they cover what they were fitted on, and the fit says how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.deep_walk import HORIZON, START, move, new_agent, small, walk_in_jax

from chary.deep.calibrate import ASSUMES, Predictor, Residuals, fit, return_residuals, trial_residuals
from chary.deep.ensemble.options import EnsembleOptions
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
deep: Any = pytest.importorskip("chary.deep")
gaps: Any = pytest.importorskip("chary.deep.simulation.gaps")
ensemble: Any = pytest.importorskip("chary.deep.ensemble.learner")

CHEAP = {"members": 3, "floor": 0.05, "offset": 0.01, "margin": 0.05, "z": 1.0, "spread": 0.5}


def invented(number: int = 400, episodes: int = 200, seed: int = 0, how: str = "rollouts") -> Residuals:
    rng = np.random.default_rng(seed)
    mean, deviation = rng.normal(size=number) * 5, rng.uniform(1, 3, number)
    gap = mean + deviation * rng.normal(size=number) + 4 * rng.normal(size=number)
    return Residuals(gap, mean, deviation, np.arange(number) % episodes, how)


@pytest.mark.parametrize("seed", range(3))
def test_constants_cover_fresh_data_as_often_as_they_should(seed: int) -> None:
    found = fit(invented(seed=seed), EnsembleOptions(spread=1.0), coverage=0.9, risk=0.05)
    given, fresh = found.options, invented(20_000, 10_000, seed=seed + 100)
    covered = fresh.gap <= fresh.mean + given.spread * fresh.deviation + given.floor
    # 400 deviations: the share covered of others has a standard deviation of 1.5 %.
    assert abs(covered.mean() - 0.9) < 0.06
    widths = (given.spread * fresh.deviation + given.floor) / given.half_width
    booked = np.bincount(fresh.episode, np.maximum(fresh.mean + given.offset, 0))
    ledger = booked + given.z * np.sqrt(np.bincount(fresh.episode, widths**2))
    deficit = np.bincount(fresh.episode, np.maximum(fresh.gap, 0))
    assert (ledger >= deficit).mean() > 0.9
    assert (found.steps, found.ledgers) == (400, 200)


def test_a_fit_is_the_smallest_one_and_says_what_it_rests_on() -> None:
    # Of 99 gaps the 95th smallest, 100 * 0.95, is 94.
    gap, none = np.arange(99.0), np.zeros(99)
    found = fit(Residuals(gap, none, none, np.arange(99), "trials"), risk=0.05, repeats=np.arange(19.0))
    assert found.options.floor == 94.0
    # Returns 0 to 18 have the mean 9; all 19 shortfalls are needed to cover 95 %.
    assert found.options.margin == 9.0
    assert found.assumes == ASSUMES["trials"]
    assert found.options.constants == "trials"
    standing = replace(small(learner="ensemble"), ensemble=found.options).grounds.standing
    assert any("single random deviations" in each for each in standing.given)
    usual = small(learner="ensemble").grounds.standing
    assert any("not measured" in each for each in usual.given)
    assert not any("constants" in each for each in small("paper", learner=None).grounds.standing.given)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: fit(invented(18, 18)), InvalidData, "'deviations' must be at least 19"),
        (lambda: fit(invented(100, 50)), InvalidData, "'episodes' must be at least 99"),
        (lambda: fit(invented(), repeats=[1.0]), InvalidData, "'repeats' must be at least 19"),
        (lambda: fit(invented(), coverage=1.0), InvalidSetting, "coverage"),
        (lambda: invented(how="guessed"), UnknownName, "how"),
        (
            lambda: Residuals(np.ones(2), np.ones(3), np.ones(2), np.ones(2, int), "trials"),
            InvalidData,
            "mean",
        ),
        (
            lambda: Residuals(np.ones(1), np.ones(1), np.array([np.nan]), np.zeros(1, int), "trials"),
            InvalidData,
            "deviation",
        ),
        (lambda: trial_residuals([], [1.0], [0], [0.0], [0.0], 0.9), InvalidData, "plain"),
    ],
)
def test_too_little_or_unsound_data_is_named(call: Any, error: type[CharyError], named: str) -> None:
    with pytest.raises(error, match=named):
        call()


def test_a_simulator_gives_the_gaps_that_are_audited() -> None:
    given = small(learner="ensemble", ensemble=CHEAP, warm_up=2, pretraining=30)
    with jax.enable_x64(True):
        state = jax.jit(lambda key: deep.begin(walk_in_jax(), given, key))(jax.random.key(1))
        found = gaps.rollout_residuals(
            walk_in_jax(), given, state.plan, jax.random.key(2), episodes=8, share=0.5
        )
    assert 8 < len(found.gap) < 8 * HORIZON
    assert np.all(np.diff(found.episode) >= 0)
    # What costs something where the baseline is good may not be free everywhere, and is not noise.
    assert np.ptp(found.gap) > 0
    assert np.all(found.deviation > 0)
    with pytest.raises(InvalidSetting, match="ensemble"):
        gaps.rollout_residuals(walk_in_jax(), small(), state.plan, jax.random.key(2))


def test_trials_of_a_frozen_baseline_find_the_gaps_of_a_deterministic_world() -> None:
    agent = new_agent(learner="ensemble", ensemble=CHEAP)
    predictor = Predictor(agent)

    def played(deviates_at: int = -1) -> tuple[float, float, float]:
        """Return the return of an episode, and what was predicted of its one deviation."""
        state, returned, predicted = START, 0.0, (0.0, 0.0)
        for t in range(HORIZON):
            action = predictor.baseline(t, state)
            if t == deviates_at:
                action = (action + 1) % 4
                predicted = predictor.gap(t, state, action)
            state, reward = move(state, action)
            returned += agent.options.discount**t * reward
        return returned, *predicted

    plain, trials = played()[0], [played(t) for t in range(HORIZON)]
    returns, means, deviations = map(np.array, zip(*trials, strict=True))
    found = trial_residuals([plain], returns, np.arange(HORIZON), means, deviations, agent.options.discount)
    # The last step has no future: its gap is the difference of two rewards.
    assert found.gap[-1] * agent.options.discount ** (HORIZON - 1) == pytest.approx(plain - returns[-1])
    assert np.all(found.deviation > 0)
    # The price of a trial is what the agent would charge for its first deviation.
    agent.begin("a", START)
    agent.act("a", 0, START)
    with jax.enable_x64(True):
        plan, fresh = agent._turns.state.plan, ensemble.first_account(HORIZON)
        offer = ensemble.offer(
            agent.options, plan, fresh, START.astype(np.float32), np.int32(0), None, HORIZON
        )
    prices = [predictor.price(0, START, action) for action in range(4)]
    np.testing.assert_allclose(prices, offer.charges, rtol=1e-5, atol=1e-6)
    value = predictor.value(0, START, predictor.baseline(0, START))
    errors = return_residuals([plain], [value], [0])
    assert errors.gap[0] == pytest.approx(2 * abs(plain - value))
    with pytest.raises(InvalidSetting, match="ensemble"):
        Predictor(new_agent())
    with pytest.raises(InvalidSetting, match="'t'"):
        predictor.baseline(HORIZON, START)
