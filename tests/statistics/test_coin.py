"""The promise of a canary over many runs, against whatever might break it: p (V_inc - V_cand) <= eta.

Policies are coins here: returns are 0 or 1 with a known mean, or anything between. Candidates are named by an
adversary, returns arrive late or never depending on what they are, and every episode is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import chary
from chary.agents._release import Release
from chary.arrays import Floats, Ints
from chary.audit import Truth
from chary.mdp import FiniteMDP
from chary.statistics import clopper_pearson

RUNS, EPISODES, ETA, DELTA = 60, 300, 0.1, 0.2
NOTHING: Ints = np.zeros((1, 1), dtype=np.int64)

# The number of episodes after which a return is known, None for never.
Delay = Callable[[float, np.random.Generator], int | None]


class Case(NamedTuple):
    incumbent: float
    candidates: tuple[float, ...]
    delay: Delay = lambda value, chance: 0
    spread: bool = False


CASES = {
    "terrible candidates": Case(0.8, (0.0, 0.1, 0.0)),
    "as good as the incumbent": Case(0.5, (0.5, 0.5, 0.5)),
    "slightly worse": Case(0.9, (0.75, 0.78, 0.7)),
    "better, then terrible": Case(0.3, (0.8, 0.1, 0.2)),
    "failures arrive late": Case(0.7, (0.3, 0.2, 0.4), lambda value, chance: 0 if value > 0.5 else 60),
    "successes arrive late": Case(0.7, (0.3, 0.2, 0.4), lambda value, chance: 60 if value > 0.5 else 0),
    "failures get lost": Case(
        0.7, (0.3, 0.2, 0.4), lambda value, chance: None if value < 0.5 and chance.random() < 0.7 else 3
    ),
    "successes get lost": Case(
        0.7, (0.3, 0.2, 0.4), lambda value, chance: None if value > 0.5 and chance.random() < 0.7 else 3
    ),
    "returns between 0 and 1": Case(0.7, (0.4, 0.3, 0.5), spread=True),
}


def play(case: Case, chance: np.random.Generator, episodes: int = EPISODES) -> tuple[Release, int]:
    """Play a run, and return the episodes in which the candidate was given too much."""
    release = Release(NOTHING, eta=ETA, delta=DELTA, share=1.0)
    worth, left = [case.incumbent], list(case.candidates)
    late: dict[int, list[Callable[[], None]]] = {}
    breaches = 0
    for k in range(episodes):
        if release.candidate is None and left:
            release.propose(NOTHING)
            worth.append(left.pop(0))
        candidate = release.candidate or release.incumbent
        loss = worth[release.incumbent.number - 1] - worth[candidate.number - 1]
        assigned, slot = release.begin(chance.random())
        breaches += assigned.probability * loss > ETA + 1e-12
        mean = worth[assigned.policy - 1]
        value = chance.beta(4 * mean, 4 * (1 - mean)) if case.spread else float(chance.random() < mean)
        wait = case.delay(value, chance)
        if wait is None:
            slot.resolve(None)
        else:
            late.setdefault(k + wait, []).append(lambda slot=slot, value=value: slot.resolve(value))  # type: ignore[misc]
        for arrive in late.pop(k, []):
            arrive()
        release.settle()
    return release, breaches


@pytest.mark.parametrize("name", CASES)
def test_no_more_runs_break_the_promise_than_delta(name: str, first_seed: int) -> None:
    chance = np.random.default_rng(first_seed)
    runs = [play(CASES[name], chance) for _ in range(RUNS)]
    broken = sum(breaches > 0 for _, breaches in runs)
    assert clopper_pearson(broken, RUNS, 0.999).low <= DELTA
    # It is not kept by doing nothing.
    assert all(release.candidate is not None or len(release.changes) > 0 for release, _ in runs)
    assert np.mean([release.probability for release, _ in runs if release.candidate is not None] or [1]) > 0.1


def test_better_candidates_are_promoted_and_terrible_ones_dropped() -> None:
    release, breaches = play(CASES["better, then terrible"], np.random.default_rng(3), episodes=1500)
    assert [change.kind for change in release.changes] == ["promoted", "dropped", "dropped"]
    assert release.incumbent.number == 2
    for change in release.changes:
        above, below = change.candidate, change.incumbent
        if change.kind == "dropped":
            above, below = below, above
        assert above.lower > below.upper
        assert 0 < change.probability <= 1
    assert breaches == 0


def test_counting_returns_as_they_arrive_would_break_it(first_seed: int) -> None:
    # What the order of starts is for: successes at once and failures 800 episodes later.
    chance = np.random.default_rng(first_seed)
    broken = 0
    for _ in range(10):
        release = Release(NOTHING, eta=ETA, delta=DELTA, share=1.0)
        release.propose(NOTHING)
        late: dict[int, int] = {}
        worst = 0.0
        for k in range(800):
            candidate = release.candidate
            if candidate is None:
                worst = 1.0
                break
            worst = max(worst, release.probability * (0.7 - 0.2))
            drawn = chance.random() < release.probability
            policy, mean = (candidate, 0.2) if drawn else (release.incumbent, 0.7)
            if chance.random() < mean:
                # Counted on arrival, behind nothing.
                policy.add(1.0, 1.0)
            else:
                late[k + 800] = policy.number
            release.settle()
        broken += worst > ETA
    assert broken == 10


def two_arms(good: float) -> FiniteMDP:
    """Return one decision between an action worth .5 and another, then the end."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = (0.0, 0.5, 0.5), (0.0, 1 - good, good)
    P[1:, :, 1] = 1.0
    R = np.zeros((3, 2, 3))
    R[0, :, 2] = 1.0
    return FiniteMDP.from_arrays(P, R, horizon=2, start=[1.0, 0.0, 0.0], terminal=[1, 2], value_cap=1.0)


@pytest.mark.parametrize("candidates", ["posterior", "lower"])
def test_a_better_policy_is_found_and_promoted(candidates: str) -> None:
    spec = chary.Canary(eta=0.1, prior=[0, 0, 0], candidates=candidates, bonus="hoeffding", bonus_scale=0.02)
    promoted = 0
    for seed in range(3):
        run = chary.simulate(two_arms(0.9), spec, episodes=1500, warmup=50, seed=seed)
        assert run.canary is not None
        found = run.canary.summary(0.1, 1.0)
        promoted += found["promoted"]
        assert found["breaches"] == 0
        assert run.regret[-100:].sum() < run.regret[:100].sum()
    assert promoted == 3


def test_an_optimal_incumbent_is_never_replaced() -> None:
    mdp = two_arms(0.35)
    spec = chary.Canary(eta=0.1, prior=Truth(mdp).optimal_policy[0])
    for seed in range(20):
        run = chary.simulate(mdp, spec, episodes=300, warmup=6, seed=seed)
        assert run.canary is not None
        assert [change.kind for change in run.canary.changes if change.kind == "promoted"] == []
        assert run.canary.loss.max() <= 0.1


def test_the_loss_before_the_coin_is_the_truth() -> None:
    mdp = two_arms(0.35)
    spec = chary.Canary(eta=0.05, prior=[0, 0, 0])
    # Little data: by some seeds the worse action looks better.
    tried = (chary.simulate(mdp, spec, episodes=200, warmup=4, seed=seed) for seed in range(30))
    run = next(run for run in tried if run.canary is not None and (run.canary.policy > 1).any())
    assert run.canary is not None
    candidates = run.canary.policy > 1
    # The only candidate there is plays the other action: it loses .15.
    assert candidates.any()
    np.testing.assert_allclose(run.canary.loss[candidates], 0.15 * run.canary.probability[candidates])
    values: Floats = np.where(candidates, 0.35, 0.5)
    np.testing.assert_allclose(run.regret, 0.5 - values)
    assert (run.true_deficit[candidates] > 0.05).all()
    assert run.standing.label == "certified per run (0.9)"
