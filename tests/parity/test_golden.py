"""Files of an earlier version still load; see tests/golden/README.md for what is compared.

Charges and results are compared up to the rounding that differs between processors.
"""

from __future__ import annotations

import csv
import json
import operator
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.make import AGENTS, HIV, LATE, PROBLEMS, SWEEP, WORLDS
from tests.sweeps import chary, digests

from chary import TabularAgent, Transition, load_results
from chary.data import load_discretiser
from chary.model.beliefs import FLAT
from chary.report import write_report
from chary.storage.archives import npz_arrays
from chary.sweeps.folder import SweepFolder

GOLDEN = Path(__file__).parents[1] / "golden"
# Columns about where and when a run was made; none is part of its results.
ELSEWHERE = set("seconds cpu_seconds episode_seconds version commit python machine finished packages".split())
ELSEWHERE |= {"cores", "resumed"}
RENAMED = {
    "frozen_deficit": "incumbent_deficit",
    "violations_frozen": "violations_incumbent",
    "true_loss_mean": "signed_deficit_mean",
    "baseline_first": "baseline_value_first",
    "baseline_last": "baseline_value_last",
}
# Version 0.1 summed signed gaps of the deep learner, so its true deficits and violations are not known.
SIGNED = frozenset("true_deficit true_deficit_max violations violation_rate runs_with_violations".split())
SIGNED |= {f"violations_per_1000{end}" for end in ("", "_low", "_high")}
# The one word that version 0.1 stored for a standing, and the level of what is derived in its place.
LEVELS = {
    "certified": ("certified",),
    "conditional": ("certified",),
    "calibrated": ("calibrated", "uncertified"),
}
LEVELS["uncertified"] = ("no",)


def told(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found


def decided(decision: Any, recorded: list[Any], tolerance: float) -> None:
    action, explored, charge, deficit, remaining, plan, chain = decision[:7]
    assert [action, explored, plan, chain] == [recorded[i] for i in (0, 1, 5, 6)]
    assert (charge, deficit, remaining) == pytest.approx(recorded[2:5], rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("case", AGENTS)
def test_a_saved_agent_loads_with_its_counts_and_the_plans_of_its_open_episodes(
    case: str, tmp_path: Path
) -> None:
    """Until outcomes count: version 0.1 counted whole episodes, and not in the order of the decisions."""
    before = told(case)
    shutil.copy(GOLDEN / f"{case}.npz", tmp_path / "agent.npz")
    agent = TabularAgent.load(tmp_path / "agent.npz", setting=PROBLEMS[AGENTS[case][3]]().setting)
    assert agent.episodes_begun == before["begun"]
    assert list(agent.open_episodes) == before["open"]
    assert {name: list(steps) for name, steps in agent.outstanding.items()} == before["outstanding"]
    assert agent.plan.knowledge.rows.total.sum() == before["counted"]
    # Version 0.1 counted whole episodes, so plans made from here on differ; open episodes keep theirs.
    for call, name, *values in before["calls"]:
        if call == "act" and name in before["open"] and agent.shield is not None:
            t, state, _, (action, explored, *_) = values
            assert explored or agent.plan_of(name).baseline(t, state) == action
    agent.save(tmp_path / "agent.npz", overwrite=True)
    again = TabularAgent.load(tmp_path / "agent.npz")
    for name in before["open"]:
        again.abandon(name)
    assert again.open_episodes == ()
    assert again.plan.knowledge.rows.total.sum() > before["counted"]


@pytest.mark.parametrize("case", LATE)
def test_an_agent_with_open_episodes_and_waiting_visits_goes_on_as_it_went_on_then(
    case: str, tmp_path: Path
) -> None:
    before = told(case)
    agent = TabularAgent.load(GOLDEN / f"{case}.npz", setting=PROBLEMS[LATE[case][3]]().setting)
    assert list(agent.open_episodes) == before["open"]
    assert agent.plan.knowledge.rows.total.sum() == before["counted"]
    # More visits wait than outcomes are missing: some are known and may not count yet.
    missing = sum(map(len, agent.outstanding.values()))
    assert len(agent._visits.pending()) > missing > 0
    for number, (call, name, *values) in enumerate(before["calls"]):
        if number == 100:
            # Saved and loaded once more, in the middle.
            agent.save(tmp_path / "agent.npz")
            agent = TabularAgent.load(tmp_path / "agent.npz")
        if call == "act":
            t, state, proposal, recorded = values
            decided(agent.act(name, t, state, proposal=proposal), recorded, 1e-9)
        elif call == "observe":
            agent.observe(name, Transition._make(values[1]), t=values[0])
        else:
            getattr(agent, call)(name, *values)
    assert agent.plan.knowledge.rows.total.sum() == before["counted_later"]


@pytest.mark.parametrize("case", WORLDS)
def test_an_agent_with_worlds_of_an_earlier_prior_goes_on_with_them(case: str) -> None:
    """Until its prior is fitted again: then rows may have kinds that there were not, see the changelog."""
    before = told(case)
    agent = TabularAgent.load(GOLDEN / f"{case}.npz", setting=PROBLEMS[WORLDS[case][3]]().setting)
    assert list(agent.open_episodes) == before["open"]
    assert agent.plan.worlds.learnt == before["counted"] < before["counted_later"]
    kinds = np.array(before["kinds"])
    assert (agent.plan.worlds.kinds == kinds).all()
    assert kinds.max() == FLAT
    for call, name, *values in before["calls"]:
        if call == "act":
            t, state, proposal, recorded = values
            decided(agent.act(name, t, state, proposal=proposal), recorded, 1e-9)
        elif call == "observe":
            agent.observe(name, Transition._make(values[1]), t=values[0])
        else:
            getattr(agent, call)(name, *values)
    assert agent.plan.worlds.learnt == before["counted_later"]
    # Nothing above was drawn anew.
    assert (agent.plan.worlds.kinds == kinds).all()


def test_a_discretiser_saved_with_an_agent_comes_back() -> None:
    bins = load_discretiser(GOLDEN / "chary-discretised.npz")
    assert bins([[0.0], [0.5], [1.0]]).tolist() == [0, bins.n_states // 2, bins.n_states - 1]


@pytest.mark.parametrize("name", ["deep", "deep-ensemble"])
def test_a_saved_deep_agent_goes_on_as_it_went_on_then(name: str) -> None:
    deep = pytest.importorskip("chary.deep")
    before, agent = told(name), deep.DeepAgent.load(GOLDEN / f"{name}.safetensors")
    assert (agent.episodes_begun, agent.updates, agent.chains) == tuple(
        before[name] for name in ("begun", "updates", "chains")
    )
    for call, name, *values in before["calls"]:
        if call == "act":
            t, observation, recorded = values
            decided(agent.act(name, t, np.array(observation)), recorded, 1e-4)
        elif call == "observe":
            state, action, reward, after, ended = values[0]
            agent.observe(name, Transition._make((np.array(state), action, reward, np.array(after), ended)))
        else:
            getattr(agent, call)(name, *values)


def same_standing(now: str, then: str) -> bool:
    return now.split()[0] in LEVELS[then]


def assert_same_table(
    folder: Path, recorded: Path, table: str, unknown: frozenset[str] = frozenset()
) -> None:
    """Compare what is read from the runs now with the table that was written then.

    Columns that have another meaning by now are `unknown`.
    """
    polars = pytest.importorskip("polars")
    now, then = load_results(folder, table=table), polars.read_parquet(recorded / f"{table}.parquet")
    then = then.rename({old: new for old, new in RENAMED.items() if old in then.columns})
    assert set(then.columns) <= set(now.columns)
    assert len(now) == len(then) > 0
    for name in unknown & set(now.columns):
        assert now[name].null_count() == len(now), name
    for name in set(then.columns) - ELSEWHERE - unknown:
        a, b = now[name], then[name]
        if a.dtype.is_float():
            np.testing.assert_allclose(a.to_numpy(), b.to_numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
        elif name == "standing":
            assert all(map(same_standing, a, b))
        else:
            assert a.to_list() == b.to_list(), name


def assert_same_summary(page: Path, recorded: str, unknown: frozenset[str] = frozenset()) -> None:
    with (page.parent / "tables" / "summary.csv").open(newline="") as now, (GOLDEN / recorded).open() as then:
        for row, before in zip(csv.DictReader(now), csv.DictReader(then), strict=True):
            for end in ("low", "high"):
                # There were two intervals, and the one over dependent episodes is gone.
                before[f"violations_per_1000_{end}"] = before.pop(f"violations_per_1000_seeds_{end}")
            assert all(row[name] == "" for name in unknown & row.keys())
            for name in before.keys() - ELSEWHERE - unknown:
                found = row[name] if name in row else row[RENAMED[name]]
                try:
                    assert float(found) == pytest.approx(float(before[name]), rel=1e-9), name
                except ValueError:
                    same = same_standing if name == "standing" else operator.eq
                    assert same(found, before[name])


def copy_of(name: str, tmp_path: Path) -> Path:
    """Return a copy of a sweep: commands write into its folder."""
    return shutil.copytree(GOLDEN / name, tmp_path / name)


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_sweep_is_finished_from_its_checkpoint(tmp_path: Path) -> None:
    folder = copy_of("tabular-sweep", tmp_path)
    # Ties went to the lowest index then, and chains waited for ever.
    (tmp_path / "sweep.toml").write_text(f'ties = "index"\npatience = "none"\n{SWEEP}', encoding="utf-8")
    recorded = {run["id"]: run["sha256"] for run in told("tabular-sweep")["runs"]}
    before = digests(folder)
    (unfinished,) = (run for run, sha256 in before.items() if sha256 is None)
    assert before == {**recorded, unfinished: None}
    swept = chary("sweep", tmp_path / "sweep.toml", "--out", folder, "--workers", "1")
    assert swept.returncode == 0, swept.stderr
    assert list(digests(folder)) == list(recorded)
    stored = SweepFolder(folder).read(unfinished)
    assert stored.provenance["resumed"] == 1
    then = npz_arrays((GOLDEN / "finished-later.npz").read_bytes())
    for name, array in then.items():
        found = np.asarray(stored.arrays[RENAMED.get(name, name)], float)
        np.testing.assert_allclose(found, array, rtol=1e-9, atol=1e-12, err_msg=name)
    # The true value of the baseline is known of the episodes played by this version alone.
    known = ~np.isnan(stored.arrays["baseline_value"])
    assert 0 < known.sum() < len(known)
    assert known[-1]
    for table in ("runs", "curves"):
        assert_same_table(folder, GOLDEN / "tabular-sweep" / "tables", table)
    assert_same_summary(folder / "report" / "index.html", "tabular-summary.csv")


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_of_the_hiv_problem_is_read_and_reported(tmp_path: Path) -> None:
    folder = copy_of("hiv-sweep", tmp_path)
    assert digests(folder) == {run["id"]: run["sha256"] for run in told("hiv-sweep")["runs"]}
    for table in ("runs", "curves"):
        assert_same_table(folder, GOLDEN / "hiv-sweep" / "tables", table, SIGNED)
    assert_same_summary(write_report(folder), "hiv-summary.csv", SIGNED)
    # The file of then names the same runs: nothing is left to play. Baselines had one learner then.
    same = HIV.replace("audit_every = 1", 'audit_every = 1\nbaseline = "networks"')
    (tmp_path / "sweep.toml").write_text(same, encoding="utf-8")
    again = chary("sweep", tmp_path / "sweep.toml", "--out", folder, "--no-report", "--workers", "1")
    assert again.returncode == 0, again.stderr
    assert digests(folder) == {run["id"]: run["sha256"] for run in told("hiv-sweep")["runs"]}
