"""Judged deep runs on any environment: saved and resumed they end in the same bytes, and NaN stops them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.deep_walk import HORIZON, START, broken_walk_in_jax, small, walk_in_jax

from chary.callbacks import Callback, play
from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.storage.sealed import pack, unpack

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")
chunks: Any = pytest.importorskip("chary.deep.simulation.chunks")
lanes: Any = pytest.importorskip("chary.deep.simulation.lanes")
networks: Any = pytest.importorskip("chary.deep.networks")

EPISODES = 5
TINY: Any = small(episodes=EPISODES)
WALK: Any = walk_in_jax()._replace(labels=(("problem", "walk"),), reward_mean=3.0, reward_std=2.0)


def started(options: Any = TINY, *, environment: Any = WALK, seed: int = 0, audit_every: int = 2) -> Any:
    run = deep.DeepSimulation(environment, options, seed=seed, audit_every=audit_every)
    run.start()
    return run


def played(options: Any = TINY, *, until: int = EPISODES, **told: Any) -> Any:
    run = started(options, **told)
    while run.done < until:
        run.advance()
    return run


@pytest.fixture(scope="module")
def whole() -> Any:
    return played().result()


@pytest.fixture(scope="module")
def halfway() -> Any:
    return played(until=2).state()


def test_a_run_resumed_from_a_file_ends_in_the_same_bytes(whole: Any, halfway: Any) -> None:
    content = pack("example", halfway, {}, container="safetensors")
    resumed = deep.DeepSimulation(WALK, TINY, audit_every=2)
    resumed.restore(unpack("example", content)[1])
    assert resumed.done == 2
    while resumed.done < EPISODES:
        resumed.advance()
    for name, array in whole.arrays().items():
        assert array.tobytes() == resumed.result().arrays()[name].tobytes(), name


def test_a_run_can_be_saved_before_its_first_episode() -> None:
    fresh = started()
    again = deep.DeepSimulation(WALK, TINY, audit_every=2)
    again.restore(fresh.state())
    assert again.done == 0
    assert again.advance() == fresh.advance() == 2
    np.testing.assert_array_equal(again.state()["log.returns"], fresh.state()["log.returns"])


def test_every_second_episode_is_audited_and_what_is_left_over_is_not(whole: Any) -> None:
    assert whole.audited.tolist() == [1, 3]
    assert whole.audit.deficit.shape == whole.held_out.covered.shape == (2,)
    assert whole.log.returns.shape == (EPISODES,)
    np.testing.assert_array_equal(whole.log.actions.sum(axis=1), whole.log.steps)
    assert whole.held_out.deviations.sum() > 0


def test_callbacks_are_told_of_training_and_change_nothing(whole: Any) -> None:
    told: list[tuple[int, float, float]] = []
    trained: list[tuple[int, list[str]]] = []

    class Collects(Callback):
        def on_episode(self, episode: int, values: Mapping[str, float]) -> None:
            told.append((episode, values["returns"], values["deficit"]))

        def on_plan(self, plan: int, values: Mapping[str, float]) -> None:
            trained.append((plan, list(values)))

    run = play(deep.DeepSimulation(WALK, TINY, audit_every=2), [Collects()])
    for name, array in whole.arrays().items():
        assert array.tobytes() == run.arrays()[name].tobytes(), name
    expected = zip(range(EPISODES), whole.log.returns.tolist(), whole.log.deficit.tolist(), strict=True)
    assert told == list(expected)
    assert trained == [(k, ["explorer_loss", "high_loss", "low_loss"]) for k in (2, 4, EPISODES)]


def test_audits_change_nothing_of_the_run(whole: Any) -> None:
    alone = played(audit_every=0).result()
    np.testing.assert_allclose(alone.log.returns, whole.log.returns, rtol=1e-9)
    assert len(alone.audited) == 0
    assert alone.summary()["max_true_deficit"] is None


def test_budgets_share_what_was_compiled_and_bind_each_by_itself(whole: Any) -> None:
    before = chunks.compiled_chunk.cache_info().currsize
    tight = played(replace(TINY, eta=0.0)).result()
    assert chunks.compiled_chunk.cache_info().currsize == before
    assert tight.log.deficit.max() == 0.0
    assert 0.0 < whole.log.deficit.max() <= TINY.eta


def test_returns_are_reported_in_raw_units_and_under_the_environments_labels(whole: Any) -> None:
    weight = (1.0 - 0.9**HORIZON) / (1.0 - 0.9)
    np.testing.assert_allclose(whole.raw_returns, 2.0 * whole.log.returns + 3.0 * weight)
    summary = whole.summary()
    assert next(iter(summary.items())) == ("problem", "walk")
    assert summary["best_raw_return"] == whole.raw_returns.max()
    plain = replace(whole, environment=walk_in_jax())
    np.testing.assert_array_equal(plain.raw_returns, plain.log.returns)


def test_a_patient_is_an_environment_with_labels_and_units_of_its_own() -> None:
    treated = pytest.importorskip("chary.envs.hiv").patient(5)
    environment = deep.hiv(5)
    assert environment.labels == (("problem", "hiv"), ("patient", 5))
    assert (environment.reward_mean, environment.reward_std) == (treated.reward_mean, treated.reward_std)
    # Equal, so that runs share what was compiled.
    assert deep.hiv(5) == environment != deep.hiv("base")
    with pytest.raises(UnknownName, match="patient"):
        deep.hiv(6)


def test_an_episode_that_lost_and_won_again_breaks_the_budget(whole: Any) -> None:
    audit = whole.audit._replace(deficit=np.array([50.0, 10.0]), signed_deficit=np.array([-70.0, 10.0]))
    run = replace(whole, audit=audit)
    assert run.violations(30.0).tolist() == [True, False]
    assert run.summary()["mean_signed_deficit"] == -30.0


@pytest.mark.parametrize("agent", ["dqn", "cql"])
def test_the_incumbent_is_the_warm_ups_baseline_and_the_same_for_every_agent(agent: str, whole: Any) -> None:
    run = started(replace(TINY, agent=agent))
    kept = jax.tree.map(np.asarray, run.incumbent)
    while run.done < EPISODES:
        run.advance()
    found = run.result()
    for before, after in zip(kept, run.incumbent, strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(found.incumbent.baseline_value, whole.incumbent.baseline_value, rtol=1e-9)
    # Every start is the same, so the incumbent's value is, too.
    assert np.ptp(found.incumbent.baseline_value) == 0.0


def test_in_the_first_episode_the_baseline_still_is_the_incumbent() -> None:
    first = played(replace(TINY, agent="random"), until=1, audit_every=1).state()
    assert first["audits.own.deviations"][0] > 0
    for name in ("deficit", "signed_deficit", "baseline_value", "deviations"):
        one, other = (first[f"audits.{which}.{name}"][0] for which in ("own", "incumbent"))
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), name


def test_the_deficit_against_the_incumbent_is_that_of_an_audit_by_its_networks() -> None:
    run = played(replace(TINY, agent="random"), until=2)
    audit = pytest.importorskip("chary.deep.simulation.audit")
    with jax.enable_x64(True):
        again = started(replace(TINY, agent="random"))
        _, _, logged = deep.proceed(WALK, again.options, again.learner, 2, record=True)
        last = jax.tree.map(lambda rows: rows[1], logged)
        plan = run.incumbent
        baseline = [
            int(
                np.argmax(
                    networks.forward(plan, networks.with_time(seen, t, HORIZON)[None])[networks.LOWER, 0]
                )
            )
            for t, seen in enumerate(last.observation)
        ]
        found = audit.audit_episode(WALK, TINY, plan, last._replace(baseline=np.array(baseline, np.int32)))
    stored = run.state()
    assert stored["audits.incumbent.deficit"][0] == pytest.approx(float(found.deficit), rel=1e-9)
    assert stored["audits.incumbent.deviations"][0] == int(found.deviations) > 0


@pytest.mark.parametrize(
    "missing", ["state.networks.w1", "log.returns", "audits.own.deficit", "incumbent.w1"]
)
def test_a_state_with_a_part_missing_is_refused(missing: str, halfway: Any) -> None:
    state = {name: array for name, array in halfway.items() if name != missing}
    with pytest.raises(InvalidData, match=missing.replace(".", r"\.")):
        deep.DeepSimulation(WALK, TINY, audit_every=2).restore(state)


def test_a_state_of_other_options_is_refused(halfway: Any) -> None:
    with pytest.raises(InvalidData, match=r"state\.networks\.w1"):
        deep.DeepSimulation(WALK, replace(TINY, width=5), audit_every=2).restore(halfway)
    with pytest.raises(InvalidData, match="at most 1 episodes"):
        deep.DeepSimulation(WALK, replace(TINY, episodes=1), audit_every=2).restore(halfway)
    with pytest.raises(InvalidData, match=r"audits\.own\.deficit"):
        deep.DeepSimulation(WALK, TINY, audit_every=1).restore(halfway)


def test_a_reward_that_is_not_finite_stops_the_run_and_is_named() -> None:
    run = started(environment=broken_walk_in_jax(1.0)._replace(labels=WALK.labels), seed=3, audit_every=0)
    place = ", ".join(f"{value:.6g}" for value in START)
    with pytest.raises(InvalidData) as stopped:
        run.advance()
    assert f"seed 3 on problem 'walk', episode 0, from [{place}, 1] under action" in str(stopped.value)
    assert run.done == 0
    for call in (run.advance, run.state, run.result):
        with pytest.raises(InvalidSetting):
            call()


def test_a_lane_that_fails_is_noted_and_the_others_go_on() -> None:
    # Without a warm-up: NaN there would be part of every lane.
    options = replace(TINY, episodes=3, warm_up=0, pretraining=0)
    told: dict[str, Any] = {"environment": broken_walk_in_jax(0.15), "audit_every": 1}
    simulations = [
        deep.DeepSimulation(told["environment"], replace(options, eta=eta), seed=seed, audit_every=1)
        for seed, eta in ((0, 0.75), (1, 0.5), (2, 0.75), (3, 0.75))
    ]
    together = lanes.DeepLanes(simulations)
    together.start()
    while together.done < together.episodes:
        together.advance()
    together.settle()
    assert 0 < len(together.failed) < len(simulations)
    for i, one in enumerate(simulations):
        alone = played(one.options, seed=one.seed, until=one.done, **told)
        if i in together.failed:
            assert one.done < 3
            with pytest.raises(InvalidData, match=f"seed {i} on the environment, episode {one.done}"):
                alone.advance()
            with pytest.raises(InvalidSetting):
                one.result()
        else:
            assert one.done == 3
            side, single = one.result().arrays(), alone.result().arrays()
            for name, array in single.items():
                np.testing.assert_allclose(side[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"options": None}, "'options' must be DeepOptions"),
        ({"environment": 5}, "'environment' must be a chary.deep.Environment"),
        ({"environment": WALK._replace(labels=([],))}, "'environment' must be made of plain functions"),
        ({"seed": -1}, "'seed'"),
        ({"audit_every": -1}, "'audit_every'"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    given = {"environment": WALK, "options": TINY, **wrong}
    with pytest.raises(CharyError, match=says):
        deep.DeepSimulation(given.pop("environment"), given.pop("options"), **given)


def test_only_runs_of_one_kind_go_side_by_side() -> None:
    other = deep.DeepSimulation(WALK, replace(TINY, width=5))
    for simulations in ([], [deep.DeepSimulation(WALK, TINY), other]):
        with pytest.raises(InvalidSetting, match=f"{len(simulations)} kinds"):
            lanes.DeepLanes(simulations)


def test_calls_have_an_order() -> None:
    run = deep.DeepSimulation(WALK, TINY)
    for call in (run.advance, run.state, run.result):
        with pytest.raises(InvalidSetting):
            call()
