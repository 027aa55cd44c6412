"""Tables of a sweep against the runs they come from, and statistics against numbers worked by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.tiny_sweep import EPISODES, ETAS, play, tiny_experiment

from chary.errors import InvalidData, InvalidSetting, UnknownName
from chary.results import load_results, load_tables, write_tables
from chary.simulation.run import Run
from chary.statistics import (
    bootstrap_band,
    bootstrap_mean,
    bootstrap_of,
    fitted_exponent,
    interquartile_mean,
    paired_difference,
    ratio_band,
    resampled_means,
    small_sample_factor,
    violation_rate,
)
from chary.sweeps.folder import SweepFolder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Run]]:
    where = tmp_path_factory.mktemp("sweep")
    return where, play(SweepFolder(where), tiny_experiment())


Swept = tuple[Path, dict[str, Run]]


def test_runs_have_one_row_per_place_and_judged_budget(swept: Swept) -> None:
    frame = load_results(swept[0])
    # Two seeds of four algorithms at two budgets; of one in two variants, of two, and of three.
    assert len(frame) == 2 * (4 * 2 + 2 + 2 + 3)
    # UCBVI and the baseline are run once, and the first variant of the scale is a run that there is already.
    assert frame["run"].n_unique() == 2 * (2 + 2 * 2 + 1 + 2 + 3)
    free = frame.filter((pl.col("algorithm") == "UCBVI") & (pl.col("study") == "main"))
    assert free["eta"].null_count() == len(free)
    assert sorted(set(free["budget"])) == list(ETAS)
    kept = frame.filter(pl.col("role").is_in(["ours", "paper", "naive"]))
    assert kept["eta"].to_list() == kept["budget"].to_list()


def test_numbers_are_those_of_the_runs(swept: Swept) -> None:
    where, runs = swept
    for row in load_results(where).iter_rows(named=True):
        run = runs[row["run"]]
        assert row["regret"] == pytest.approx(run.regret.sum())
        assert row["regret_first_half"] == pytest.approx(run.regret[: EPISODES // 2].sum())
        assert row["regret_first_half"] + row["regret_second_half"] == pytest.approx(row["regret"])
        assert row["regret_early_slope"] == pytest.approx(run.regret[: EPISODES // 10].mean())
        assert row["violations"] == run.violations(row["budget"]).sum()
        assert row["violations_incumbent"] == run.violations(row["budget"], against="incumbent").sum()
        assert row["violation_rate"] == row["violations"] / EPISODES
        assert row["true_deficit_max"] == run.true_deficit.max()
        assert row["signed_deficit_mean"] == pytest.approx(run.summary()["mean_signed_deficit"])
        assert row["exploring_steps"] == run.exploring_steps.sum()
        assert row["standing"] == run.standing.label
        assert json.loads(row["given"]) == list(run.standing.given)
        assert row["seconds"] == 2.0
        finished = run.chains.episodes > 0
        assert row["chains_finished"] == finished.sum()
        ages = EPISODES - run.chains.born[~finished]
        assert row["chains_unfinished"] == len(ages)
        assert row["chains_unfinished_episodes"] == ages.sum()
        assert row["chains_unfinished_oldest"] == (ages.max() if len(ages) else None)
        assert row["chain_exhausted"] + row["chain_long"] + row["chain_missed"] == run.chains.episodes.sum()
        assert row["chains_within_length_bound"] <= row["chains_finished"]


def test_curves_end_where_the_runs_do(swept: Swept) -> None:
    where, runs = swept
    frames = load_tables(where)
    parts = frames.curves.partition_by("study", "variant", "algorithm", "budget", "seed", as_dict=True)
    assert len(parts) == len(frames.runs)
    for (_, _, _, budget, _), part in parts.items():
        run = runs[part["run"][0]]
        at = part["episode"].to_numpy()
        assert len(at) == 100
        assert at[-1] == EPISODES
        np.testing.assert_allclose(part["regret"], np.cumsum(run.regret)[at - 1])
        np.testing.assert_array_equal(
            part["violations"], np.cumsum(run.violations(float(str(budget))))[at - 1]
        )
        width = np.diff(at, prepend=0)
        assert (part["deficit_mean"] * width).sum() == pytest.approx(run.deficit.sum())
        assert (part["exploring_steps"] * width).sum() == pytest.approx(run.exploring_steps.sum())
        assert part["true_deficit_max"].max() == run.true_deficit.max()
        # Chains are counted where they were born, and none is lost.
        assert part["chains_born"].sum() == run.chains.started
        assert part["chains_finished"].sum() == run.chains.finished
        lengths = (part["chain_episodes"] * part["chains_finished"]).sum()
        assert lengths == pytest.approx(run.chains.episodes.sum())
        first = part["chain_episodes"].to_list()[0]
        born_first = (run.chains.episodes > 0) & (run.chains.born < at[0])
        assert first is None if not born_first.any() else first == run.chains.episodes[born_first].mean()


def test_tables_are_written_with_the_same_bytes_every_time(swept: Swept) -> None:
    where = swept[0]
    first = [path.read_bytes() for path in write_tables(where)]
    again = write_tables(where, load_tables(where))
    assert [path.name for path in again] == ["runs.parquet", "curves.parquet"]
    assert [path.read_bytes() for path in again] == first
    assert pl.read_parquet(again[0]).equals(load_results(where))
    assert pl.read_parquet(again[1]).equals(load_results(where, table="curves"))


def test_only_finished_runs_are_read(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "some")
    runs = play(folder, tiny_experiment(), leave_out=9)
    frame = load_results(folder.path)
    assert set(frame["run"]) == set(runs)
    empty = SweepFolder(tmp_path / "none")
    empty.claim(tiny_experiment(), "chary sweep")
    assert [len(table) for table in load_tables(empty.path)] == [0, 0]
    assert load_results(empty.path).columns == frame.columns


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    first, second, *_ = play(folder, tiny_experiment(), leave_out=30)
    for run in (first, second):
        (folder.path / "runs" / run / "result.json").write_text("{}")
    with pytest.raises(InvalidData, match=f"2 that were changed.*{first}.*{second}"):
        load_results(folder.path)


def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSetting, match="must contain a sweep"):
        load_results(tmp_path)
    with pytest.raises(UnknownName, match="Did you mean 'curves'"):
        load_results(tmp_path, table="curve")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'chary\[report\]'"):
        load_results(tmp_path)


def test_a_band_covers_the_mean_of_independent_draws() -> None:
    # 2,000 samples of so many seeds, one a column: the standard error of a share of 95 % is 0.5 %. Normal
    # numbers are covered to within 2 %. Exponential ones, which are skewed, are not quite, no more than by
    # Student's interval: the floors are 2 to 3 % below what was seen. The plain percentile interval covered
    # 75, 84, 91 and 92 % of normal ones and 69, 79, 86 and 90 % of exponential ones.
    rng = np.random.default_rng(7)
    for seeds, skewed in ((3, 0.86), (5, 0.87), (10, 0.89), (20, 0.90)):
        normal = rng.normal(3.0, 2.0, size=(seeds, 2000))
        band = bootstrap_band(normal)
        assert np.mean((band.low <= 3.0) & (band.high >= 3.0)) == pytest.approx(0.95, abs=0.02), seeds
        np.testing.assert_allclose(band.mean, normal.mean(axis=0))
        band = bootstrap_band(rng.exponential(2.0, size=(seeds, 2000)))
        assert np.mean((band.low <= 2.0) & (band.high >= 2.0)) >= skewed, seeds


def test_intervals_of_ratios_and_differences_cover_too() -> None:
    # As above, 500 samples each: two standard errors are 1.9 %, and the tolerance is 3 %.
    rng = np.random.default_rng(8)
    for seeds in (5, 10, 20):
        common = rng.normal(0.0, 5.0, size=(500, seeds))
        pairs = [(common[i] + rng.normal(1.0, 1.0, seeds), common[i]) for i in range(500)]
        found = [paired_difference(ours, theirs, resamples=500) for ours, theirs in pairs]
        assert np.mean([each.low <= 1.0 <= each.high for each in found]) == pytest.approx(0.95, abs=0.03)
        ours, theirs = (rng.normal(mean, 0.2, size=(seeds, 1000)) for mean in (2.0, 1.0))
        band = ratio_band(ours, theirs)
        assert np.mean((band.low <= 2.0) & (band.high >= 2.0)) == pytest.approx(0.95, abs=0.03)


def test_functions_of_means_keep_seeds_together() -> None:
    values = np.array([[1.0, 2.0], [10.0, 20.0], [5.0, 10.0]])
    band = bootstrap_of(values, lambda means: means[:, :1] / means[:, 1:])
    assert (band.mean[0], band.low[0], band.high[0]) == pytest.approx((0.5, 0.5, 0.5))
    unknown = bootstrap_of(values, lambda means: np.where(means > 6.0, np.nan, means))
    assert np.isnan(unknown.low[1])


def test_exponents_are_compared_at_equal_seeds() -> None:
    n = np.arange(10, 1001, 10)
    powers = np.array([0.3, 0.6, 0.9])
    ours = [n ** (power + 0.1) for power in powers]
    theirs = [n**power for power in powers]
    apart = fitted_exponent(n, ours, less=theirs)
    alone = fitted_exponent(n, ours)
    # Apart they are 0.1 in every seed; the exponents themselves lie anywhere.
    assert apart.value == pytest.approx(0.1, abs=0.01)
    assert apart.high - apart.low < 0.1 * (alone.high - alone.low)
    with pytest.raises(InvalidData, match=r"must have shape \(seeds, points\)"):
        fitted_exponent(n, ours, less=theirs[:2])


def test_bootstraps_repeat_themselves_and_differ_by_seed() -> None:
    values = np.random.default_rng(1).normal(size=(9, 4))
    np.testing.assert_array_equal(bootstrap_band(values).low, bootstrap_band(values).low)
    assert (bootstrap_band(values).low != bootstrap_band(values, seed=1).low).any()
    wide, narrow = bootstrap_band(values), bootstrap_band(values, confidence=0.5)
    assert (wide.low < narrow.low).all()
    assert (wide.high > narrow.high).all()


def test_one_seed_has_no_interval() -> None:
    band = bootstrap_band([[1.0, 2.0]])
    assert band.mean.tolist() == [1.0, 2.0]
    assert np.isnan(band.low).all()
    assert np.isnan(bootstrap_mean([5.0]).high)
    assert np.isnan(fitted_exponent([1, 2, 3], [[1.0, 2.0, 3.0]]).low)
    assert np.isnan(ratio_band([[2.0]], [[1.0]]).low[0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        # Of three, a quarter is three quarters of one: (0.25 * 0 + 2 + 0.25 * 10) / 1.5.
        ([10.0, 2.0, 0.0], 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1000.0], 4.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(
    values: list[float], expected: float
) -> None:
    assert interquartile_mean(values) == pytest.approx(expected)


def test_paired_differences_drop_what_seeds_have_in_common() -> None:
    common = np.array([0.0, 100.0, 1000.0, 5.0])
    difference = paired_difference(common + np.array([1.0, 2.0, 1.0, 2.0]), common)
    assert difference.value == pytest.approx(1.5)
    # Student's interval of 1, 2, 1, 2: 1.5 -+ 3.182 * 0.577 / 2.
    assert (difference.low, difference.high) == pytest.approx((0.58, 2.42), abs=0.1)
    assert difference.above(0.0)
    assert not difference.below(0.0)


def test_ratios_are_of_means() -> None:
    band = ratio_band([[1.0], [3.0]], [[1.0], [1.0]])
    assert band.mean[0] == 2.0
    # Drawn are 1, 2 and 3; in logarithms, both ends are moved away from 2 by the factor of two seeds.
    factor = small_sample_factor(2)
    assert band.low[0] == pytest.approx(2.0 * 0.5**factor)
    assert band.high[0] == pytest.approx(2.0 * 1.5**factor)
    # A resample may hold none but the seed without regret: its ratio has no end.
    assert np.isinf(ratio_band([[1.0], [1.0]], [[0.0], [1.0]]).high[0])
    with pytest.raises(InvalidData, match="means above 0"):
        ratio_band([[1.0]], [[0.0]])
    assert resampled_means([[1.0], [1.0]]).tolist() == [[1.0]] * 2000


def test_rates_count_episodes_and_runs() -> None:
    rate = violation_rate([0, 0, 3, 1], [100, 100, 100, 100])
    assert (rate.violations, rate.episodes, rate.rate) == (4, 400, 0.01)
    assert (rate.broken_runs, rate.runs) == (2, 4)
    # Clopper and Pearson's table: 2 of 4 at 95 %.
    assert rate.run_interval == pytest.approx((0.0676, 0.9324), abs=1e-4)


def test_the_interval_of_a_rate_treats_episodes_of_a_run_as_dependent() -> None:
    # All violations in one run of ten: over 10,000 independent episodes 0.0111 to 0.0153 would be the
    # interval, which excludes that another ten runs have none.
    rate = violation_rate([130] + [0] * 9, [1000] * 10)
    assert rate.interval.low < 0.001
    assert rate.interval.high > 0.03
    # The same number in every run: the runs agree, and so the interval is narrow.
    even = violation_rate([13] * 10, [1000] * 10)
    assert even.interval == pytest.approx((0.013, 0.013))
    # A single run says nothing about others.
    assert np.isnan(violation_rate([1], [1000]).interval.high)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_exponents_of_powers_are_found(power: float) -> None:
    n = np.arange(10, 1001, 10)
    found = fitted_exponent(n, [3.0 * n**power, 5.0 * n**power])
    assert found == pytest.approx((power, power, power), abs=1e-9)


def test_the_exponent_is_that_of_the_part_asked_for() -> None:
    n = np.arange(1, 1001)
    regret = np.where(n <= 500, n, 500.0)[None, :]
    assert fitted_exponent(n, regret).value == pytest.approx(0.0, abs=1e-9)
    assert fitted_exponent(n, regret, start=0.0, stop=0.5).value == pytest.approx(1.0)
    assert np.isnan(fitted_exponent(n, 0.0 * regret).value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap_band([1.0, 2.0]),
        lambda: bootstrap_band([[np.nan]]),
        lambda: bootstrap_band(np.zeros((0, 3))),
        lambda: interquartile_mean([]),
        lambda: paired_difference([1.0], [1.0, 2.0]),
        lambda: violation_rate([2], [1]),
        lambda: violation_rate([1], [1, 1]),
        lambda: fitted_exponent([1, 2], [[1.0, 2.0, 3.0]]),
        lambda: fitted_exponent([1], [[1.0]]),
        lambda: ratio_band([[1.0]], [[1.0, 2.0]]),
    ],
)
def test_arrays_that_make_no_sense_are_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(InvalidData, match="must"):
        call()


def test_confidence_and_resamples_are_checked() -> None:
    with pytest.raises(InvalidSetting, match="'confidence' must lie in"):
        bootstrap_band([[1.0], [2.0]], confidence=1.0)
    with pytest.raises(InvalidSetting, match="'resamples' must be a whole number"):
        bootstrap_band([[1.0], [2.0]], resamples=0)
