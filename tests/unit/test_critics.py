"""External critics: what they are checked for, what calibration promises, and what their shield books."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from chary.agents.protocol import Transition
from chary.arrays import Floats
from chary.critics import (
    Calibration,
    CriticBounds,
    CriticPlan,
    CriticShield,
    D3RLPyCritic,
    EnsembleCritics,
    FunctionCritic,
    HeldOutEpisode,
    SB3Critic,
    calibrate_critics,
    checked_q_values,
    episodes_needed,
)
from chary.envs import inventory
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder, UnknownName
from chary.mdp import FiniteMDP
from chary.reference.planner import exact
from chary.shield import Ledger, Rule
from chary.storage.sealed import pack
from chary.testing import check_critic, check_plan

Array = NDArray[Any]

SIGNIFICANCE = 1e-4


class Table:
    """Values by the first coordinate of the observation, (S, A); counts how often it is asked."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, dtype=float)
        self.calls = 0

    def q_values(self, observations: Array, /) -> Floats:
        self.calls += 1
        rows: Floats = self.values[observations[:, 0].astype(int)]
        return rows


def at(s: float) -> Array:
    return np.array([s, 0.5])


def step(s: Array, action: int, x: Array, terminated: bool = False) -> Transition:
    return Transition(s, action, 0.0, x, terminated)


def point(values: Any) -> CriticBounds:
    return CriticBounds.from_point(Table(values), accept="uncertified")


def one_step(reward: float, *, s: int = 0, action: int = 0) -> HeldOutEpisode:
    return HeldOutEpisode(np.array([at(s), at(s)]), np.array([action]), np.array([reward]), terminated=True)


# What a critic must answer.


def shapeless(observations: Array) -> Any:
    return np.zeros(3)


def not_a_number(observations: Array) -> Any:
    return np.full((len(observations), 2), np.nan)


def words(observations: Array) -> Any:
    return [["a", "b"]] * len(observations)


def failing(observations: Array) -> Any:
    return observations @ np.zeros((17, 2))


@pytest.mark.parametrize("function", [shapeless, not_a_number, words, failing])
def test_a_bad_answer_is_refused_and_names_the_critic(function: Callable[[Array], Any]) -> None:
    critic = FunctionCritic(function, n_actions=2)
    with pytest.raises(InvalidData, match=rf"'q_values' of FunctionCritic\({function.__name__}\)"):
        checked_q_values(critic, np.zeros((4, 3)), 2)


def test_values_of_the_wrong_number_of_actions_are_refused() -> None:
    with pytest.raises(InvalidData, match=r"of Table must have shape \(1, 3\).*got \(1, 2\)"):
        checked_q_values(Table([[1.0, 2.0]]), [[0.0]], 3)


def test_values_become_floats_of_double_precision() -> None:
    critic = FunctionCritic(lambda x: np.ones((len(x), 2), dtype=np.float32), n_actions=2)
    assert checked_q_values(critic, [[1]], 2).dtype == np.float64


@pytest.mark.parametrize(
    "observations", [[], 3.0, [[math.nan]], [[math.inf]], [["a"]], {"x": 1}, [[1.0], [1.0, 2.0]], None, "abc"]
)
def test_observations_that_are_no_finite_numbers_are_refused(observations: Any) -> None:
    with pytest.raises(InvalidData, match="'observations' must"):
        checked_q_values(Table([[1.0, 2.0]]), observations, 2)


@pytest.mark.parametrize("path", ["model.zip", Path("model.d3")])
@pytest.mark.parametrize(
    "use",
    [
        SB3Critic,
        D3RLPyCritic,
        lambda path: FunctionCritic(path, n_actions=2),
        lambda path: checked_q_values(path, [[0.0]], 2),
        lambda path: CriticBounds(path, path, level="uncertified"),
    ],
)
def test_paths_are_refused_because_model_files_are_pickled(use: Callable[[Any], object], path: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"must be a live model, got the path .* are pickled"):
        use(path)


@pytest.mark.parametrize("critic", [None, 3, Table, np.mean])
def test_what_has_no_q_values_is_no_critic(critic: Any) -> None:
    with pytest.raises(InvalidSetting, match="must have a method q_values"):
        checked_q_values(critic, [[0.0]], 2)


# The contract for users' own critics.


def test_check_critic_accepts_a_table() -> None:
    check_critic(Table([[1.0, 2.0], [3.0, 4.0]]), [at(0), at(1)], 2)


def test_check_critic_finds_noise() -> None:
    dice = np.random.default_rng(0)
    noisy = FunctionCritic(lambda x: dice.random((len(x), 2)), n_actions=2)
    with pytest.raises(InvalidData, match="must be the same at a second call"):
        check_critic(noisy, [[0.0]], 2)


def test_check_critic_finds_values_that_depend_on_the_batch() -> None:
    batchy = FunctionCritic(lambda x: (x - x.mean(axis=0)) * [1.0, 2.0], n_actions=2)
    with pytest.raises(InvalidData, match="must not depend on the rest of the batch"):
        check_critic(batchy, [[0.0], [1.0]], 2)


def test_check_critic_finds_a_critic_that_writes_to_its_input() -> None:
    def grabby(x: Array) -> Floats:
        x += 1.0
        return np.zeros((len(x), 2))

    with pytest.raises(InvalidData, match="must not write to the observations"):
        check_critic(FunctionCritic(grabby, n_actions=2), [[0.0]], 2)


# Ensembles.


def test_minmax_takes_the_least_and_the_greatest_of_any_member() -> None:
    ensemble = EnsembleCritics([Table([[1.0, 5.0]]), Table([[3.0, 4.0]]), Table([[2.0, 9.0]])])
    lower, upper = ensemble.q_bounds([at(0)])
    assert lower.tolist() == [[1.0, 4.0]]
    assert upper.tolist() == [[3.0, 9.0]]
    assert checked_q_values(ensemble.lower, [at(0)], 2).tolist() == [[1.0, 4.0]]
    assert checked_q_values(ensemble.upper, [at(0)], 2).tolist() == [[3.0, 9.0]]


def test_mean_sd_takes_sample_standard_deviations() -> None:
    # Members 1 and 3: mean 2, sample variance ((1 - 2)^2 + (3 - 2)^2) / 1 = 2.
    ensemble = EnsembleCritics([Table([[1.0]]), Table([[3.0]])], how="mean-sd", width=0.5)
    lower, upper = ensemble.q_bounds([at(0)])
    assert lower[0, 0] == pytest.approx(2 - 0.5 * math.sqrt(2))
    assert upper[0, 0] == pytest.approx(2 + 0.5 * math.sqrt(2))


def test_an_ensemble_asks_every_member_once_for_both_sides() -> None:
    members = [Table([[1.0, 5.0]]), Table([[3.0, 4.0]])]
    bounds = CriticBounds.from_ensemble(EnsembleCritics(members))
    values = bounds.evaluate([at(0)], 2)
    assert bounds.level == "uncertified"
    assert (values.baseline[0], values.v_upper[0]) == (1, 5.0)
    assert [member.calls for member in members] == [1, 1]


@pytest.mark.parametrize(
    ("members", "options"),
    [
        ([Table([[1.0]])], {}),
        ([], {}),
        (None, {}),
        ([Table([[1.0]]), 3], {}),
        ([Table([[1.0]]), Table([[1.0]])], {"width": 1.0}),
        ([Table([[1.0]]), Table([[1.0]])], {"how": "mean-sd"}),
        ([Table([[1.0]]), Table([[1.0]])], {"how": "mean-sd", "width": 0.0}),
    ],
)
def test_an_ensemble_that_cannot_bound_anything_is_refused(members: Any, options: Any) -> None:
    with pytest.raises(InvalidSetting):
        EnsembleCritics(members, **options)


def test_one_model_twice_is_no_ensemble() -> None:
    model = Table([[1.0]])
    with pytest.raises(InvalidSetting, match="at least two different models, got 2 of which 1 differ"):
        EnsembleCritics([model, model])


def test_members_that_disagree_about_the_actions_are_refused() -> None:
    ensemble = EnsembleCritics([Table([[1.0, 2.0]]), Table([[1.0]])])
    with pytest.raises(InvalidData, match=r"must have shape \(1, 2\)"):
        ensemble.q_bounds([at(0)])


# Bounds and their level.


def test_a_point_estimate_is_refused_unless_accepted_by_name() -> None:
    critic = Table([[1.0, 2.0]])
    with pytest.raises(InvalidSetting, match="'accept' must be 'uncertified'"):
        CriticBounds.from_point(critic)
    with pytest.raises(InvalidSetting, match="'accept' must be 'uncertified'"):
        CriticBounds.from_point(critic, accept="certified")
    assert CriticBounds.from_point(critic, accept="uncertified").level == "uncertified"


def test_one_critic_cannot_be_declared_certified_on_both_sides() -> None:
    critic = Table([[1.0, 2.0]])
    with pytest.raises(InvalidSetting, match="'level' must not be 'certified'"):
        CriticBounds(critic, critic, level="certified")


def test_a_level_that_critics_cannot_have_is_refused() -> None:
    with pytest.raises(UnknownName, match="'level' must be one of"):
        CriticBounds(Table([[1.0]]), Table([[1.0]]), level="conditional")


def test_certified_bounds_that_cross_contradict_the_word_given() -> None:
    crossed = CriticBounds(Table([[2.0, 0.0]]), Table([[1.0, 0.0]]), level="certified")
    with pytest.raises(InvalidData, match="cannot be 'certified' if the lower critic exceeds"):
        crossed.evaluate([at(0)], 2)


def test_other_bounds_that_cross_charge_by_the_larger_value() -> None:
    # pi = 0. The upper critic says 1 there, the lower one 2: v_upper is 2, not 1.
    crossed = CriticBounds(Table([[2.0, 0.5]]), Table([[1.0, 0.0]]), level="uncertified")
    assert CriticPlan(crossed, n_actions=2).charge(0, at(0), 1) == 1.5


def test_the_baseline_is_the_lowest_index_among_equals_and_honours_masks() -> None:
    bounds = point([[3.0, 7.0, 7.0]])
    assert bounds.evaluate([at(0)], 3).baseline[0] == 1
    assert bounds.evaluate([at(0)], 3, [[True, False, True]]).baseline[0] == 2
    assert bounds.evaluate([at(0)], 3, [[1, 0, 0]]).baseline[0] == 0


@pytest.mark.parametrize(
    "masks", [[[0, 0]], [[1, 2]], [[1]], [[True, False], [True, False]], "no", [[0.5, 1]]]
)
def test_masks_that_allow_nothing_or_make_no_sense_are_refused(masks: Any) -> None:
    with pytest.raises(InvalidData, match="'masks' must"):
        point([[1.0, 2.0]]).evaluate([at(0)], 2, masks)


def test_a_shift_never_changes_the_baseline_even_where_it_rounds_values_together() -> None:
    close = point([[0.0, 1e-9]])
    moved = close.shifted(1e12, 0.0, level="uncertified").evaluate([at(0)], 2)
    assert moved.q_lower[0, 0] == moved.q_lower[0, 1]
    assert moved.baseline[0] == 1


# Calibration, worked by hand.


def calibrated(values: Any, rewards: list[float], **options: Any) -> Calibration:
    episodes = [one_step(reward) for reward in rewards]
    return calibrate_critics(
        point(values), episodes, **{"n_actions": 1, "discount": 1.0, "alpha": 0.5, **options}
    )


def test_the_shift_is_the_conformal_rank_of_the_scores() -> None:
    # One action of value 5, returns 0, 1, ..., 7: lower scores 5, 4, ..., -2 and upper scores -5, ..., 2.
    # alpha / 2 = 1/4: of n = 8 the ceil(9 * 3/4) = 7th smallest, 4 for the lower critic, 1 for the upper.
    result = calibrated([[5.0]], [0, 1, 2, 3, 4, 5, 6, 7])
    assert (result.lower_shift, result.upper_shift) == (4.0, 1.0)
    assert (result.lower_episodes, result.upper_episodes, result.steps) == (8, 8, 8)
    values = result.bounds.evaluate([at(0)], 1)
    assert (values.q_lower[0, 0], values.v_upper[0]) == (1.0, 6.0)
    assert result.bounds.level == "calibrated"


def test_bounds_are_tightened_only_when_asked() -> None:
    # All returns are 8: the lower critic (5) could move up by 3, the upper one has to, too.
    assert calibrated([[5.0]], [8.0] * 3).lower_shift == 0.0
    assert calibrated([[5.0]], [8.0] * 3, tighten=True).lower_shift == -3.0
    assert calibrated([[5.0]], [8.0] * 3, tighten=True).upper_shift == 3.0


def test_a_step_counts_only_if_every_later_action_is_the_baselines() -> None:
    # States 0, 1, 2 in turn; the baseline plays 0 everywhere. The action at s = 1 is another's: s = 0 does
    # not count, s = 1 counts for the lower critic alone, s = 2 for both.
    values = [[100.0, 0.0], [9.0, 6.0], [4.0, 0.0]]
    episode = HeldOutEpisode(
        np.array([at(0), at(1), at(2), at(2)]),
        np.array([0, 1, 0]),
        np.array([1.0, 2.0, 3.0]),
        terminated=True,
    )
    result = calibrate_critics(
        point(values), [episode] * 3, n_actions=2, discount=0.5, alpha=0.5, tighten=True
    )
    # Returns: 3 at s = 2 and 2 + 0.5 * 3 = 3.5 at s = 1. Lower scores 4 - 3 and 6 - 3.5; upper 3 - 4.
    assert (result.lower_shift, result.upper_shift) == (2.5, -1.0)
    assert result.steps == 6


def test_masks_of_held_out_steps_decide_what_the_baseline_would_have_done() -> None:
    masked = HeldOutEpisode(
        np.array([at(0), at(0)]), np.array([0]), np.array([1.0]), terminated=True, masks=np.array([[1, 0]])
    )
    free = one_step(1.0)
    values = [[1.0, 2.0]]
    assert (
        calibrate_critics(point(values), [masked] * 3, n_actions=2, discount=1, alpha=0.5).upper_episodes == 3
    )
    with pytest.raises(InvalidData, match="ending with the baseline's own action"):
        calibrate_critics(point(values), [free] * 3, n_actions=2, discount=1, alpha=0.5)


@pytest.mark.parametrize("alpha", [0.9, 0.5, 0.2, 0.1, 0.05, 0.07])
def test_the_number_of_episodes_asked_for_is_the_least_that_will_do(alpha: float) -> None:
    needed = episodes_needed(alpha)
    assert calibrated([[0.0]], [1.0] * needed, alpha=alpha).upper_shift == 1.0
    with pytest.raises(InvalidData, match=f"must be at least {needed} for the lower critic"):
        calibrated([[0.0]], [1.0] * (needed - 1), alpha=alpha)
    level = alpha / 2
    assert math.ceil((needed + 1) * (1 - level) - 1e-9) <= needed
    assert needed == 1 or math.ceil(needed * (1 - level) - 1e-9) > needed - 1


def test_episodes_in_which_the_baseline_never_acts_last_cannot_calibrate_the_upper_critic() -> None:
    with pytest.raises(InvalidData, match=r"at least 3 for the upper critic.*got 0\. Hold out more"):
        calibrate_critics(point([[0.0, 1.0]]), [one_step(1.0)] * 9, n_actions=2, discount=1.0, alpha=0.5)


def test_episodes_that_were_cut_off_are_refused_left_out_or_taken_for_ended() -> None:
    cut = HeldOutEpisode(np.array([at(0), at(0)]), np.array([0]), np.array([-7.0]), terminated=False)
    episodes = [one_step(0.0)] * 3 + [cut] * 9
    options: dict[str, Any] = {"n_actions": 1, "discount": 1.0, "alpha": 0.5}
    with pytest.raises(InvalidData, match=r"'episodes\[3\]' must have terminated"):
        calibrate_critics(point([[0.0]]), episodes, **options)
    assert calibrate_critics(point([[0.0]]), episodes, cut_off="leave out", **options).lower_shift == 0.0
    assert calibrate_critics(point([[0.0]]), episodes, cut_off="end", **options).lower_shift == 7.0


def test_coverage_of_a_test_part_is_reported_before_and_after() -> None:
    test = [one_step(reward) for reward in (5.0, 4.0, 0.0, 0.0)]
    result = calibrated([[5.0]], [0, 1, 2, 3, 4, 5, 6], test=test)
    assert (result.tested, result.before, result.after) == (4, 0.25, 0.5)
    assert "25.0% were within before, 50.0% after" in result.describe()
    assert calibrated([[5.0]], [1.0] * 3).after is None


def test_calibrated_bounds_are_put_back_by_their_shifts() -> None:
    result = calibrated([[5.0]], [0, 1, 2, 3, 4, 5, 6, 7])
    again = CriticBounds(
        Table([[5.0]]),
        Table([[5.0]]),
        level="calibrated",
        lower_shift=result.bounds.lower_shift,
        upper_shift=result.bounds.upper_shift,
    )
    assert again.evaluate([at(0)], 1) == result.bounds.evaluate([at(0)], 1)


def test_calibrating_again_starts_from_the_bounds_as_they_are() -> None:
    first = calibrated([[5.0]], [0.0] * 3)
    again = calibrate_critics(first.bounds, [one_step(-2.0)] * 3, n_actions=1, discount=1.0, alpha=0.5)
    assert (again.lower_shift, again.bounds.lower_shift) == (2.0, 7.0)


@pytest.mark.parametrize(
    "parts",
    [
        {"observations": [[0.0]]},
        {"observations": [[0.0], [math.nan]]},
        {"observations": [["a"], ["b"]]},
        {"actions": [0, 1]},
        {"actions": [0.0]},
        {"actions": [-1]},
        {"actions": [True]},
        {"rewards": [math.inf]},
        {"rewards": [[1.0]]},
        {"rewards": None},
        {"terminated": 1},
        {"masks": [[0, 0]]},
        {"masks": [[1], [1]]},
        {"masks": 3},
    ],
)
def test_a_held_out_episode_that_makes_no_sense_is_refused(parts: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"observations": [[0.0], [0.0]], "actions": [0], "rewards": [1.0]}
    with pytest.raises(CharyError):
        HeldOutEpisode(**{**whole, "terminated": True, **parts})


def test_held_out_episodes_keep_copies() -> None:
    rewards = np.array([1.0])
    episode = HeldOutEpisode(np.array([at(0), at(0)]), np.array([0]), rewards, terminated=True)
    rewards[0] = 99.0
    assert episode.rewards[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        episode.rewards[0] = 2.0


@pytest.mark.parametrize(
    "options",
    [
        {"n_actions": 0},
        {"discount": 0.0},
        {"discount": 1.5},
        {"alpha": 0.0},
        {"alpha": 1.0},
        {"alpha": math.nan},
        {"tighten": 1},
        {"cut_off": "perhaps"},
        {"bounds": Table([[1.0]])},
        {"episodes": [None] * 3},
        {"episodes": one_step(1.0)},
        {"episodes": []},
        {"test": [one_step(1.0, action=1)]},
        {
            "test": [HeldOutEpisode(np.zeros((2, 3)), np.array([0]), np.zeros(1), terminated=True)] * 2
            + [one_step(1)]
        },
    ],
)
def test_a_calibration_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"bounds": point([[5.0]]), "episodes": [one_step(1.0)] * 3, "n_actions": 1}
    arguments = {**whole, "discount": 1.0, "alpha": 0.5, **options}
    with pytest.raises(CharyError):
        calibrate_critics(arguments.pop("bounds"), arguments.pop("episodes"), **arguments)


# The promise of calibration, on a problem whose true values are known.


class World:
    """A small shop, observed as (t, s), with its true Q and a generator of episodes."""

    def __init__(self, seed: int) -> None:
        self.mdp: FiniteMDP = inventory(horizon=5)
        self.rng = np.random.default_rng(seed)
        self.truth = exact(self.mdp)
        H, S, A = self.mdp.horizon, self.mdp.n_states, self.mdp.n_actions
        self.allowed = self.mdp.setting.allowed
        self.q = np.full((H, S, A), -np.inf)
        self.q[:, self.allowed] = self.truth.Q
        self.rows = {(s, a): self.mdp.row(s, a) for s in range(S) for a in range(A) if self.allowed[s, a]}

    def critic(self, values: Floats) -> FunctionCritic:
        def look_up(observations: Array) -> Floats:
            t, s = observations[:, 0].astype(int), observations[:, 1].astype(int)
            found: Floats = np.where(self.allowed[s], values[t, s], -1e3)
            return found

        return FunctionCritic(look_up, n_actions=self.mdp.n_actions)

    def move(self, s: int, a: int) -> tuple[int, float]:
        x, probability, reward = self.rows[s, a]
        i = self.rng.choice(len(x), p=probability)
        return int(x[i]), float(reward[i])

    def first(self) -> int:
        return int(self.rng.choice(self.mdp.n_states, p=self.mdp.start))

    def episode(self, policy: NDArray[np.int64], stray: float) -> HeldOutEpisode:
        """Play `policy`, (H, S), but any allowed action with probability `stray`."""
        seen = [(0, self.first())]
        actions: list[int] = []
        rewards: list[float] = []
        for t in range(self.mdp.horizon):
            s = seen[-1][1]
            options = np.flatnonzero(self.allowed[s])
            a = int(self.rng.choice(options)) if self.rng.random() < stray else int(policy[t, s])
            x, reward = self.move(s, a)
            seen.append((t + 1, x))
            actions.append(a)
            rewards.append(reward)
        masks = np.array([self.allowed[s] for _, s in seen[:-1]])
        return HeldOutEpisode(np.array(seen, dtype=float), np.array(actions), np.array(rewards), True, masks)


def lies_outside(bounds: CriticBounds, episode: HeldOutEpisode, n_actions: int) -> bool:
    """Whether a counted step lies outside: written apart from the code under test, step by step."""
    values = bounds.evaluate(episode.observations[:-1], n_actions, episode.masks)
    earned = 0.0
    for t in reversed(range(len(episode.actions))):
        earned += float(episode.rewards[t])
        a, own = episode.actions[t], int(values.baseline[t])
        if values.q_lower[t, a] > earned or (a == own and earned > values.v_upper[t]):
            return True
        if a != own:
            return False
    return False


def failures_of_calibration(
    seed: int, *, runs: int, held_out: int, alpha: float, tighten: bool
) -> tuple[int, int]:
    """Count the fresh episodes, one a run, that lie outside before and after calibration on noisy values."""
    world = World(seed)
    A = world.mdp.n_actions
    before = after = 0
    for _ in range(runs):
        noisy = world.q + world.rng.normal(0.0, 0.3, world.q.shape)
        bounds = CriticBounds.from_point(world.critic(noisy), accept="uncertified")
        policy = noisy.argmax(axis=2)
        episodes = [world.episode(policy, 0.2) for _ in range(held_out)]
        result = calibrate_critics(bounds, episodes, n_actions=A, discount=1.0, alpha=alpha, tighten=tighten)
        fresh = world.episode(policy, 0.2)
        before += lies_outside(bounds, fresh, A)
        after += lies_outside(result.bounds, fresh, A)
    return before, after


def test_a_fresh_episode_lies_outside_no_more_often_than_promised() -> None:
    runs, alpha = 150, 0.25
    before, after = failures_of_calibration(11, runs=runs, held_out=23, alpha=alpha, tighten=False)
    assert binom.sf(after - 1, runs, alpha) > SIGNIFICANCE
    # The test would notice: the noisy values themselves are far from covering.
    assert binom.sf(before - 1, runs, alpha) < SIGNIFICANCE


def test_tightened_bounds_are_no_wider_than_the_level_asks_for() -> None:
    runs, alpha = 150, 0.5
    _, after = failures_of_calibration(12, runs=runs, held_out=15, alpha=alpha, tighten=True)
    assert binom.sf(after - 1, runs, alpha) > SIGNIFICANCE
    # Scores are continuous (noise), so that each side alone fails with at least alpha / 2 - 1 / (n + 1).
    assert binom.cdf(after, runs, alpha / 2 - 1 / 16) > SIGNIFICANCE


def test_certified_critics_keep_the_budget_in_truth() -> None:
    world = World(13)
    A, H = world.mdp.n_actions, world.mdp.horizon
    error = world.rng.uniform(0.0, 0.1, world.q.shape[:2])[..., np.newaxis]
    bounds = CriticBounds(world.critic(world.q - error), world.critic(world.q + error), level="certified")
    eta = 0.5
    shield = CriticShield(
        bounds, Rule.strict(eta), n_actions=A, horizon=H, allowed=lambda o: world.allowed[int(o[1])]
    )
    assert shield.standing.label == "certified per run (1)"
    explored = 0
    for k in range(60):
        s, deficit = world.first(), 0.0
        shield.begin(k, [0.0, s])
        for t in range(H):
            wanted = int(world.rng.choice(np.flatnonzero(world.allowed[s])))
            decision = shield.act(k, t, [float(t), s], proposal=wanted)
            gap = world.truth.V[t, s] - world.q[t, s, decision.action]
            assert gap <= decision.charge + 1e-12
            deficit += gap
            explored += decision.action != world.truth.policy[t, s]
            x, _ = world.move(s, decision.action)
            shield.observe(k, step(np.array([t, s]), decision.action, np.array([t + 1, x])))
            s = x
        assert deficit <= shield.ledger(k).deficit + 1e-12 <= eta + 1e-12
        shield.finish(k)
    assert explored > 20


# The plan.

VALUES = [[1.0, 0.7, 0.2], [0.1, 0.5, 0.4]]


def test_the_plan_keeps_the_contract_of_plans() -> None:
    plan = CriticPlan(point(VALUES), n_actions=3, explorer=lambda s: 2)
    states = [tuple(at(0)), tuple(at(1))]
    check_plan(plan, states, horizon=2, allowed=lambda s: [0, 1, 2])


def test_the_charge_is_what_lies_between_the_baselines_upper_and_the_actions_lower_value() -> None:
    # pi(0) = 0 with v_upper = 1.3; charges 0 (own), 1.3 - 0.7 and 1.3 - 0.2.
    bounds = CriticBounds(Table([[1.0, 0.7, 0.2]]), Table([[1.3, 9.0, 9.0]]), level="certified")
    prices = CriticPlan(bounds, n_actions=3).price([at(0)])
    assert prices.baseline.tolist() == [0]
    assert prices.charges[0] == pytest.approx([0.0, 0.6, 1.1])


def test_a_plan_without_an_explorer_says_how_to_decide() -> None:
    with pytest.raises(OutOfOrder, match="Decide with proposal="):
        CriticPlan(point(VALUES), n_actions=3).explore(0, 0, at(0))


def test_the_critics_are_asked_once_for_a_batch_and_not_again_for_what_is_remembered() -> None:
    table = Table(VALUES)
    plan = CriticPlan(CriticBounds.from_point(table, accept="uncertified"), n_actions=3, memory=2)
    plan.price([at(0), at(1), at(0)])
    assert plan.baseline(0, at(0)) == 0
    assert plan.charge(0, at(1), 0) == pytest.approx(0.4)
    assert table.calls == 1
    # Other bytes, other observation: the oldest answer is forgotten, the batch itself is not.
    for second in (0.6, 0.7, 0.8):
        assert plan.price([[0.0, second], [1.0, second]]).baseline.tolist() == [0, 1]
    assert table.calls == 4
    plan.baseline(0, at(0))
    assert table.calls == 5


def test_one_observation_under_two_masks_has_two_answers() -> None:
    plan = CriticPlan(point(VALUES), n_actions=3)
    prices = plan.price([at(0), at(0)], [[1, 1, 1], [0, 1, 1]])
    assert prices.baseline.tolist() == [0, 1]
    assert prices.charges[1, 0] == math.inf
    assert plan.price([at(0)]).baseline.tolist() == [0]


# The shield.


def shield_of(values: Any = VALUES, eta: float = 0.5, **options: Any) -> CriticShield:
    return CriticShield(point(values), Rule.strict(eta), **{"n_actions": 3, "horizon": 3, **options})


def test_proposals_are_played_while_the_budget_lasts_and_the_baseline_after() -> None:
    shield = shield_of()
    shield.begin("a", at(0))
    first = shield.act("a", 0, at(0), proposal=1)
    assert (first.action, first.explored, first.chain) == (1, True, -1)
    assert (first.charge, first.deficit, first.remaining) == pytest.approx((0.3, 0.3, 0.2))
    shield.observe("a", step(at(0), 1, at(0)))
    second = shield.act("a", 1, at(0), proposal=1)
    assert (second.action, second.explored, second.charge) == (0, False, 0.0)
    shield.observe("a", step(at(0), 0, at(1)))
    third = shield.act("a", 2, at(1), proposal=2)
    assert (third.action, third.explored) == (2, True)
    assert shield.ledger("a").deficit == pytest.approx(0.4)
    shield.observe("a", step(at(1), 2, at(1)))
    with pytest.raises(OutOfOrder, match="call finish"):
        shield.act("a", 3, at(1), proposal=2)
    shield.finish("a")
    with pytest.raises(OutOfOrder, match="must name an open episode"):
        shield.ledger("a")


def test_asked_twice_the_answer_is_the_same_and_nothing_more_is_booked() -> None:
    shield = shield_of()
    shield.begin(0, at(0))
    first = shield.act(0, 0, at(0), proposal=1)
    spent = shield.ledger(0)
    assert shield.act(0, 0, at(0), proposal=1) is first
    assert shield.act(0, 0, at(0), proposal=2) is first
    assert shield.act_many([0, 0], [0, 0], [at(0), at(0)], [1, 0]) == [first, first]
    assert shield.ledger(0) == spent


def test_one_episode_twice_in_a_batch_is_decided_once_by_the_first_question() -> None:
    shield = shield_of()
    shield.begin(0, at(0))
    answers = shield.act_many([0, 0], [0, 0], [at(0), at(0)], [1, 2])
    assert answers[0] is answers[1]
    assert answers[0].action == 1
    assert shield.ledger(0).deficit == pytest.approx(0.3)


def test_nobody_proposing_plays_the_baseline_for_free() -> None:
    shield = shield_of(eta=0.0)
    shield.begin(0, at(1))
    decision = shield.act(0, 0, at(1))
    assert (decision.action, decision.explored, decision.deficit) == (1, False, 0.0)


def test_a_batch_decides_as_single_calls_do_with_one_call_of_the_critics() -> None:
    table = Table(VALUES)
    bounds = CriticBounds.from_point(table, accept="uncertified")
    many = CriticShield(bounds, Rule.strict(0.35), n_actions=3, horizon=3)
    single = shield_of(eta=0.35)
    proposals = [0, 1, 2, 1, None, 2]
    states = [np.array([k % 2, k], dtype=float) for k in range(6)]
    for k, s in enumerate(states):
        many.begin(k, s)
        single.begin(k, s)
    answers = many.act_many(range(6), [0] * 6, states, proposals)
    assert table.calls == 1
    assert answers == [single.act(k, 0, s, proposal=proposals[k]) for k, s in enumerate(states)]
    assert {a.explored for a in answers} == {True, False}


@pytest.mark.parametrize(
    "answer", [np.full((1, 3), np.nan), np.zeros((1, 2)), np.zeros(3), "x", None, np.full((1, 3), np.inf)]
)
def test_a_critic_that_fails_leaves_the_ledger_as_it_was(answer: Any) -> None:
    good = Table(VALUES)
    broken = False
    critic = FunctionCritic(lambda x: answer if broken else good.q_values(x), n_actions=3)
    bounds = CriticBounds.from_point(critic, accept="uncertified")
    shield = CriticShield(bounds, Rule.strict(0.5), n_actions=3, horizon=3)
    shield.begin(0, at(0))
    shield.act(0, 0, at(0), proposal=1)
    shield.observe(0, step(at(0), 1, at(1)))
    spent = shield.ledger(0)
    broken = True
    with pytest.raises(InvalidData, match="'q_values' of FunctionCritic"):
        shield.act(0, 1, at(1), proposal=0)
    assert shield.ledger(0) == spent
    broken = False
    assert shield.act(0, 1, at(1), proposal=2).explored


def test_one_bad_question_leaves_the_whole_batch_unbooked() -> None:
    shield = shield_of()
    for k in range(3):
        shield.begin(k, at(0))
    with pytest.raises(InvalidAction, match="'proposal' must be an allowed action, one of 0, 1, 2, got 3"):
        shield.act_many([0, 1, 2], [0] * 3, [at(0)] * 3, [1, 1, 3])
    with pytest.raises(OutOfOrder):
        shield.act_many([0, 1, 7], [0] * 3, [at(0)] * 3, [1, 1, 1])
    assert [shield.ledger(k) for k in range(3)] == [Ledger()] * 3


def test_masks_change_the_baseline_and_forbid_proposals() -> None:
    shield = shield_of(eta=0.0)
    shield.begin(0, at(0))
    with pytest.raises(InvalidAction, match="one of 1, 2, got 0"):
        shield.act(0, 0, at(0), proposal=0, mask=[0, 1, 1])
    assert shield.act(0, 0, at(0), proposal=2, mask=[0, 1, 1]).action == 1
    shield.begin(1, at(0))
    shield.begin(2, at(0))
    masked, free = shield.act_many([1, 2], [0, 0], [at(0)] * 2, [2, 2], masks=[[0, 1, 1], None])
    assert (masked.action, free.action) == (1, 0)


def test_actions_that_are_not_allowed_are_never_played() -> None:
    shield = shield_of(eta=100.0, allowed=lambda s: [False, True, True])
    shield.begin(0, at(0))
    decision = shield.act(0, 0, at(0), proposal=0)
    assert (decision.action, decision.explored, decision.deficit) == (1, False, 0.0)


def test_an_environment_may_overwrite_its_observations() -> None:
    shield = shield_of()
    buffer = at(0)
    shield.begin(0, buffer)
    buffer[0] = 1
    with pytest.raises(InvalidData, match=r"the state observed last, \[0. , 0.5\], got \[1. , 0.5\]"):
        shield.act(0, 0, buffer, proposal=1)
    assert shield.act(0, 0, at(0), proposal=1).explored


def test_abandoning_forgets_an_outstanding_action_and_frees_the_name() -> None:
    shield = shield_of()
    shield.begin(0, at(0))
    shield.act(0, 0, at(0), proposal=1)
    shield.finish(0)
    with pytest.raises(OutOfOrder, match="which waits for the outcomes"):
        shield.finish(0)
    shield.abandon(0)
    shield.begin(0, at(0))
    assert shield.ledger(0) == Ledger()


def test_critics_trained_between_episodes_are_asked_anew() -> None:
    table = Table(VALUES)
    shield = CriticShield(
        CriticBounds.from_point(table, accept="uncertified"), Rule.strict(0.0), n_actions=3, horizon=3
    )
    shield.begin(0, at(0))
    before = shield.act(0, 0, at(0), proposal=1)
    shield.abandon(0)
    table.values = table.values[:, ::-1]
    shield.begin(1, at(0))
    after = shield.act(1, 0, at(0), proposal=1)
    assert (before.action, after.action) == (0, 2)
    assert after.plan == before.plan + 1


GAPS = "no true gap of a baseline exceeds 0.05"


@pytest.mark.parametrize(
    ("rule", "level", "label", "gaps"),
    [
        (Rule.strict(0.1), "certified", "certified per run (1)", False),
        (Rule.strict(0.1), "calibrated", "calibrated per episode", False),
        (Rule.closed(), "uncertified", "certified per run (1)", False),
        (Rule.paper(0.1), "certified", "certified per run (1)", True),
        (Rule.capped(0.1, step_bound=0.05), "certified", "certified per run (1)", True),
        (Rule.paper(0.1), "calibrated", "calibrated per episode", True),
        (Rule.strict(0.1), "uncertified", "uncertified per run", False),
        (Rule.unlimited(), "certified", "no promise", False),
    ],
)
def test_the_standing_names_the_level_of_the_critics_and_the_assumption_of_the_rule(
    rule: Rule, level: str, label: str, gaps: bool
) -> None:
    bounds = CriticBounds(Table(VALUES), Table(VALUES), level=level)
    found = CriticShield(bounds, rule, n_actions=3, horizon=1).standing
    assert found.label == label
    assert any(GAPS in each for each in found.given) == gaps


def test_observing_what_was_not_decided_is_refused_and_changes_nothing() -> None:
    shield = shield_of()
    shield.begin(0, at(0))
    with pytest.raises(OutOfOrder, match="'observe' must follow an action"):
        shield.observe(0, step(at(0), 1, at(1)))
    shield.act(0, 0, at(0), proposal=1)
    with pytest.raises(InvalidAction, match="must be the one decided, 1, got 2"):
        shield.observe(0, step(at(0), 2, at(1)))
    with pytest.raises(InvalidData, match="'state' must be the one decided in"):
        shield.observe(0, step(at(1), 1, at(1)))
    with pytest.raises(InvalidData, match=r"'next_state' must be an observation of shape \(2,\)"):
        shield.observe(0, step(at(0), 1, np.zeros(3)))
    with pytest.raises(InvalidData, match="'next_state' must be finite"):
        shield.observe(0, step(at(0), 1, at(math.nan)))
    shield.observe(0, step(at(0), 1, at(1), terminated=True))
    with pytest.raises(OutOfOrder, match="call finish"):
        shield.act(0, 1, at(1), proposal=1)


@pytest.mark.parametrize(
    "options",
    [
        {"bounds": Table(VALUES)},
        {"rule": 0.5},
        {"n_actions": 0},
        {"n_actions": 2.5},
        {"horizon": 0},
        {"allowed": [1, 1, 1]},
        {"memory": 0},
    ],
)
def test_a_shield_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    whole = {"bounds": point(VALUES), "rule": Rule.strict(0.5), "n_actions": 3, "horizon": 3, **options}
    with pytest.raises(InvalidSetting):
        CriticShield(whole.pop("bounds"), whole.pop("rule"), **whole)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(-1, 3), st.floats(), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
    st.just(np.zeros(2)),
    st.just(np.array([0.0, 0.5])),
    st.just({1, 2}),
    st.just(b"x"),
)


@given(
    call=st.sampled_from(["begin", "act", "act_many", "observe", "finish", "ledger", "plan_of"]),
    data=st.data(),
)
def test_malformed_calls_raise_a_chary_error_and_change_no_ledger(call: str, data: st.DataObject) -> None:
    shield = shield_of()
    shield.begin(0, at(0))
    shield.act(0, 0, at(0), proposal=1)
    shield.begin(1, at(1))
    spent = [shield.ledger(0), shield.ledger(1)]
    episode = data.draw(st.one_of(st.sampled_from([0, 1]), ODD))
    arguments: dict[str, list[Any]] = {
        "begin": [episode, data.draw(ODD)],
        "act": [episode, data.draw(ODD), data.draw(ODD)],
        "act_many": [
            data.draw(st.one_of(st.just([1, 0]), ODD)),
            data.draw(ODD),
            data.draw(ODD),
            data.draw(ODD),
        ],
        "observe": [episode, data.draw(st.one_of(ODD, st.builds(Transition, ODD, ODD, ODD, ODD, ODD)))],
        "finish": [episode],
        "ledger": [episode],
        "plan_of": [episode],
    }
    options = {"proposal": data.draw(ODD), "mask": data.draw(ODD)} if call == "act" else {}
    try:
        getattr(shield, call)(*arguments[call], **options)
    except CharyError:
        assert [shield.ledger(0), shield.ledger(1)] == spent


# Saving.


def saved_shield(path: Path) -> CriticShield:
    """A shield with an episode that has explored, one that waits for an outcome, and one just begun."""
    shield = shield_of()
    for name in ("explored", "waits", "begun"):
        shield.begin(name, at(0))
    shield.act("explored", 0, at(0), proposal=1)
    shield.observe("explored", step(at(0), 1, at(1)))
    shield.act("waits", 0, at(0), proposal=1)
    shield.finish("waits")
    shield.save(path)
    return shield


def load_shield(path: Path, **options: Any) -> CriticShield:
    whole = {"rule": Rule.strict(0.5), "n_actions": 3, "horizon": 3, **options}
    return CriticShield.load(path, point(VALUES), whole.pop("rule"), **whole)


def test_a_shield_is_loaded_only_for_its_own_rule_actions_and_horizon(tmp_path: Path) -> None:
    saved_shield(tmp_path / "shield.npz")
    assert load_shield(tmp_path / "shield.npz").ledger("explored").deficit == pytest.approx(0.3)
    with pytest.raises(InvalidData, match="'rule' must be that of the file"):
        load_shield(tmp_path / "shield.npz", rule=Rule.strict(0.6))
    with pytest.raises(InvalidData, match="'n_actions' must be that of the file, 3, got 2"):
        load_shield(tmp_path / "shield.npz", n_actions=2)
    with pytest.raises(InvalidData, match="'horizon' must be that of the file, 3, got 4"):
        load_shield(tmp_path / "shield.npz", horizon=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("open.0.decision", lambda a: a * 0.5),
        ("open.0.decision", lambda a: a * 0.0),
        ("open.0.action", lambda a: a + 3),
        ("open.0.terminated", lambda a: ~a),
        ("open.0.now", lambda a: a + 1),
        ("open.0.next_state", lambda a: a * math.nan),
        ("open.0.reward", lambda a: a + math.inf),
        ("open.1.known", lambda a: a[:0]),
        ("open.2.now", lambda a: a[:1]),
    ],
)
def test_a_changed_file_is_refused_though_its_seal_is_right(
    name: str, value: Callable[[Array], Array], tmp_path: Path
) -> None:
    arrays, about = saved_shield(tmp_path / "shield.npz")._record()
    (tmp_path / "changed.npz").write_bytes(
        pack("critic shield", {**arrays, name: value(arrays[name])}, about)
    )
    with pytest.raises(InvalidData, match="'path' must contain a critic shield"):
        load_shield(tmp_path / "changed.npz")


@given(data=st.data())
@settings(max_examples=60)
def test_any_description_is_refused_or_works(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shield")
    arrays, about = saved_shield(folder / "shield.npz")._record()
    odd = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 5), st.text(max_size=2), st.just([]), st.just(0.5)
    )
    key = data.draw(st.sampled_from(sorted(about)))
    if key == "open":
        i, j = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 5))
        about["open"][i][j] = data.draw(odd)
    else:
        about[key] = data.draw(odd)
    (folder / "changed.npz").write_bytes(pack("critic shield", arrays, about))
    try:
        loaded = load_shield(folder / "changed.npz")
    except InvalidData:
        return
    for episode in loaded.open_episodes:
        assert loaded.ledger(episode).deficit <= 0.5
        loaded.abandon(episode)
