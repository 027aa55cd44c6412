"""`chary bench`: what it reports, and that both planners play the same run; never how fast they are."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import chary
from chary.bench import _dense
from chary.bench import planner as module
from chary.bench._configurations import configurations
from chary.bench._dense import replan_densely
from chary.bench.planner import AMOUNTS, COLUMNS, Measurement, bench, identical
from chary.cli import main
from chary.errors import CharyError
from chary.presets import NAMES, preset
from chary.reference.planner import exact

PROMISED = (
    "us_per_episode ratio_vs_full ratio_vs_dense identical seconds_50k peak_memory_mb start_seconds "
    "rows_touched"
).split()


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(("bench", *arguments))
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


# What is reported


def test_json_has_every_promised_key_for_each_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "inventory", "--episodes", "120", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    assert list(found["configurations"]) == ["strict", "capped", "worst"]
    for block in (found, *found["configurations"].values()):
        assert [key for key in PROMISED if key not in block] == []
        assert block["identical"] is True
        assert block["ratio_vs_full"] > 0
        assert block["ratio_vs_dense"] > 0
        assert block["seconds_50k"] is None
        assert all(list(times) == ["100", "120"] for times in block["us_per_episode"].values())
        assert all(us > 0 for times in block["us_per_episode"].values() for us in times.values())
        slices = block["ratio_vs_full_by_slice"]
        assert 0 < slices["min"] <= slices["median"] <= slices["max"]
    assert {key: found[key] for key in PROMISED} == {
        key: found["configurations"]["strict"][key] for key in PROMISED
    }
    assert (found["problem"], found["episodes"], found["seed"]) == ("inventory", 120, 0)
    assert found["versions"]["chary"] == chary.__version__
    assert found["machine"]["cores"] >= 1


def test_the_table_has_a_row_an_amount_and_one_for_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "riverswim", "--episodes", "60", "--config", "worst", "--repeats", "2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "riverswim, worst: microseconds per episode"
    assert re.split(r"\s{2,}", lines[1]) == list(COLUMNS)
    assert [line.split("  ")[0] for line in lines[2:4]] == ["60", "whole run"]
    assert re.search(r"60 episodes in .* repeats .* results identical; ", lines[4])


def test_only_the_configurations_asked_for_are_measured_in_that_order() -> None:
    found = bench("riverswim", episodes=5, only=["worst", "strict", "worst"])
    assert list(found.measurements) == ["worst", "strict"]
    assert found.to_json()["configuration"] == "worst"


def test_repeats_are_all_kept() -> None:
    (found,) = bench("riverswim", episodes=5, only=["capped"], repeats=3).measurements.values()
    assert {name: len(ratios) for name, ratios in found.by_repeat.items()} == {
        "ratio_vs_full": 3,
        "ratio_vs_dense": 3,
    }
    assert found.ratio_vs_full == sorted(found.by_repeat["ratio_vs_full"])[1]


def test_rows_are_counted() -> None:
    """The full pass evaluates all pairs and the baseline's at every step, and all again for an explorer."""
    (found,) = bench("riverswim", episodes=40, only=["capped"]).measurements.values()
    mdp = chary.envs.riverswim()
    H, S, P = mdp.horizon, mdp.n_states, mdp.setting.n_pairs
    full, incremental = found.rows_touched["full"], found.rows_touched["incremental"]
    assert full is not None
    assert incremental is not None
    assert H * (P + S) < full <= H * (P + S + P)
    assert 0 < incremental
    assert found.episodes_per_batch is not None
    assert 1 <= found.episodes_per_batch <= 40


def test_a_tensor_too_large_is_not_made_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dense, "DENSE_BYTES", 8)
    (found,) = bench("riverswim", episodes=5, only=["strict"]).measurements.values()
    assert (found.us_per_episode["dense"], found.ratio_vs_dense, found.dense_threads) == (None, None, None)
    assert "GiB" in (found.dense_skipped or "")
    assert "no dense replanning: " in found.describe()
    assert [row[3] for row in found.rows()] == ["-", "-"]


def test_progress_ends_at_the_total() -> None:
    heard: list[tuple[str, int, int]] = []

    def hear(label: str, done: int, total: int) -> None:
        heard.append((label, done, total))

    bench("riverswim", episodes=10, only=["strict"], repeats=2, progress=hear)
    assert heard[0] == ("strict on riverswim", 0, 40)
    assert heard[-1] == ("strict on riverswim", 40, 40)
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)


# What is played


@pytest.mark.parametrize("problem", NAMES)
def test_configurations_follow_the_preset(problem: str) -> None:
    found = {name: make() for name, make in configurations(problem).items()}
    assert set(found) == {"strict", "capped", "worst"} | ({"all actions"} if problem == "sepsis" else set())
    usual = preset(problem).under("hoeffding")
    assert usual.eta is not None
    for name, each in found.items():
        assert each.name == name
        assert (each.spec.eta, each.spec.bonus, each.warmup) == (usual.eta, "hoeffding", usual.warmup)
        assert each.spec.step_bound == (None if name == "strict" else usual.eta / 2)
    assert found["worst"].spec.bonus_scale == found["capped"].spec.bonus_scale / 30
    if "hoeffding" in usual.scale:
        assert found["capped"].spec.bonus_scale == usual.scale["hoeffding"]
    if problem == "sepsis":
        assert found["all actions"].mdp.setting.n_pairs > found["capped"].mdp.setting.n_pairs


def test_runs_are_identical_only_if_every_array_is() -> None:
    def run(seed: int, planner: str = "incremental") -> chary.Run:
        spec = chary.CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.001)
        return chary.simulate(
            chary.envs.inventory(), spec, episodes=30, warmup=50, seed=seed, planner=planner
        )

    one = run(0)
    assert identical(one, run(0, "full"))
    assert not identical(one, run(1))
    regret = one.regret.copy()
    regret[-1] = np.nextafter(regret[-1], np.inf)
    assert not identical(one, replace(one, regret=regret))
    assert not identical(one, replace(one, chains=replace(one.chains, born=one.chains.born + 1)))


def test_slices_end_at_every_amount_reported_and_at_the_end() -> None:
    for episodes in (1, 60, 100, 777, 30_000, 50_000):
        ends = module._ends(episodes).tolist()
        assert ends == sorted(set(ends))
        assert ends[-1] == episodes
        assert {amount for amount in AMOUNTS if amount <= episodes} <= set(ends)


def test_microseconds_are_those_of_the_slices_before_and_after() -> None:
    """Seconds at 10, 20 and 40 episodes: (3 - 1) s for the 10 to 40 around 20, (3 - 2) s for the last 20."""
    ends, seconds = np.array([10, 20, 40]), np.array([1.0, 2.0, 3.0])
    assert module._us_around(20, ends, seconds) == pytest.approx(2e6 / 30)
    assert module._us_around(40, ends, seconds) == pytest.approx(1e6 / 20)
    assert module._us_around(10, ends, seconds) == pytest.approx(2e6 / 20)


# Dense replanning


def test_without_a_bonus_all_three_dense_values_are_the_optimum() -> None:
    mdp = chary.envs.random(n_states=5, n_actions=3, horizon=4)
    P, reward = mdp.dense()
    found = replan_densely(P, reward, np.zeros_like(reward), horizon=4)
    optimum = exact(mdp).V
    for value in (found.v_lower, found.v_upper, found.v_optimistic):
        np.testing.assert_allclose(value[:4], optimum[:4], atol=1e-12)


def test_with_a_bonus_dense_values_enclose_the_baseline() -> None:
    mdp = chary.envs.random(n_states=5, n_actions=3, horizon=4)
    P, reward = mdp.dense()
    found = replan_densely(P, reward, np.linspace(0.0, 0.3, 15).reshape(5, 3), horizon=4)
    baseline = exact(mdp, found.baseline).V
    assert (found.v_lower[:4] <= baseline[:4] + 1e-12).all()
    assert (baseline[:4] <= found.v_upper[:4] + 1e-12).all()
    assert (found.v_upper <= found.v_optimistic).all()


def test_blas_of_new_processes_has_one_thread_and_ours_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with _dense.single_threaded():
        assert {os.environ[name] for name in _dense.THREADS} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ("riversim", r"'problem' must be one of .* got 'riversim'\. Did you mean 'riverswim'\?"),
        (
            "riverswim --config wurst",
            r"'config' must be one of strict, capped, worst, got 'wurst'\. Did you mean",
        ),
        ("riverswim --config all", r"'config' must be one of strict, capped, worst, got 'all'"),
        ("riverswim --episodes 0", r"'episodes' must be a whole number >= 1, got 0"),
        ("riverswim --seed -1", r"'seed' must be a whole number >= 0, got -1"),
        ("riverswim --repeats 0", r"'repeats' must be a whole number >= 1, got 0"),
        ("riverswim --repeats few", r"must be a whole number, got 'few'"),
    ],
)
def test_mistakes_get_one_sentence(arguments: str, pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(pattern, err), err


@pytest.mark.parametrize(
    "options", [{"only": ["worse"]}, {"episodes": 0}, {"episodes": True}, {"seed": -1}, {"repeats": 0}]
)
def test_python_refuses_them_too(options: dict[str, Any]) -> None:
    with pytest.raises(CharyError):
        bench("riverswim", **options)


def test_a_measurement_says_when_planners_differ() -> None:
    (found,) = bench("riverswim", episodes=5, only=["strict"]).measurements.values()
    assert isinstance(found, Measurement)
    assert "results identical" in found.describe()
    assert "results DIFFERENT" in replace(found, identical=False).describe()
