"""Whole deep runs: saved and resumed they end in the same bytes, and what is not finite stops them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chary.errors import CharyError, InvalidData, InvalidSetting, UnknownName
from chary.storage.sealed import pack, unpack

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
simulation: Any = pytest.importorskip("chary.deep.simulation")
deep: Any = pytest.importorskip("chary.deep")

EPISODES = 5
TINY: Any = deep.DeepOptions(
    episodes=EPISODES, eta=30.0, warm_up=1, pretraining=3, width=4, features=4, batch=4, fresh=2, replay=500
)


def played(options: Any = TINY, *, seed: int = 0, audit_every: int = 2, until: int = EPISODES) -> Any:
    run = simulation.DeepSimulation(options, seed=seed, audit_every=audit_every)
    run.start()
    while run.done < until:
        run.advance()
    return run


@pytest.fixture(scope="module")
def whole() -> Any:
    return played().result()


def test_a_run_resumed_from_a_file_ends_in_the_same_bytes(whole: Any) -> None:
    content = pack("example", played(until=2).state(), {}, container="safetensors")
    resumed = simulation.DeepSimulation(TINY, audit_every=2)
    resumed.restore(unpack("example", content)[1])
    assert resumed.done == 2
    while resumed.done < EPISODES:
        resumed.advance()
    for name, array in whole.arrays().items():
        assert array.tobytes() == resumed.result().arrays()[name].tobytes(), name


def test_a_run_can_be_saved_before_its_first_episode() -> None:
    fresh = played(until=0)
    again = simulation.DeepSimulation(TINY, audit_every=2)
    again.restore(fresh.state())
    assert again.done == 0
    assert again.advance() == fresh.advance() == 2
    np.testing.assert_array_equal(again.state()["log.returns"], fresh.state()["log.returns"])


def test_every_second_episode_is_audited_and_what_is_left_over_is_not(whole: Any) -> None:
    assert whole.audited.tolist() == [1, 3]
    assert whole.audit.deficit.shape == whole.held_out.covered.shape == (2,)
    assert whole.log.returns.shape == (EPISODES,)
    np.testing.assert_array_equal(whole.log.actions.sum(axis=1), whole.log.steps)


def test_audits_change_nothing_of_the_run(whole: Any) -> None:
    alone = played(audit_every=0).result()
    np.testing.assert_array_equal(alone.log.returns, whole.log.returns)
    assert len(alone.audited) == 0
    assert alone.summary()["max_true_deficit"] is None


def test_budgets_share_what_was_compiled_and_bind_each_by_itself(whole: Any) -> None:
    before = simulation._plays.cache_info().currsize
    tight = played(replace(TINY, eta=0.0)).result()
    assert simulation._plays.cache_info().currsize == before
    assert tight.log.deficit.max() == 0.0
    assert 0.0 <= whole.log.deficit.max() <= 30.0


def test_returns_are_told_in_the_simulators_own_units(whole: Any) -> None:
    treated = pytest.importorskip("chary.envs.hiv").patient(5)
    weight = (1.0 - 0.99**200) / (1.0 - 0.99)
    np.testing.assert_allclose(
        whole.raw_returns, whole.log.returns * treated.reward_std + weight * treated.reward_mean
    )
    assert whole.summary()["best_raw_return"] == whole.raw_returns.max()


def test_losses_are_held_against_the_budget_as_charges_were() -> None:
    run = replace_audit(played().result(), deficit=[50.0, 10.0], loss=[10.0, 50.0])
    assert run.violations(30.0).tolist() == [True, False]
    from_start = replace(run, options=replace(TINY, charge_from="start"))
    assert from_start.violations(30.0).tolist() == [False, True]


def replace_audit(run: Any, **values: Any) -> Any:
    return replace(run, audit=run.audit._replace(**{k: np.array(v) for k, v in values.items()}))


@pytest.mark.parametrize("missing", ["state.networks.w1", "log.returns", "audit.deficit", "held_out.covered"])
def test_a_state_with_a_part_missing_is_refused(missing: str) -> None:
    state = played(until=2).state()
    del state[missing]
    with pytest.raises(InvalidData, match=missing.replace(".", r"\.")):
        simulation.DeepSimulation(TINY, audit_every=2).restore(state)


def test_a_state_of_other_options_is_refused() -> None:
    state = played(until=2).state()
    with pytest.raises(InvalidData, match=r"state\.networks\.w1"):
        simulation.DeepSimulation(replace(TINY, width=5), audit_every=2).restore(state)
    with pytest.raises(InvalidData, match="at most 1 episodes"):
        simulation.DeepSimulation(replace(TINY, episodes=1), audit_every=2).restore(state)
    with pytest.raises(InvalidData, match=r"audit\.deficit"):
        simulation.DeepSimulation(TINY, audit_every=1).restore(state)


def test_what_cannot_be_integrated_stops_the_run_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    jnp = pytest.importorskip("jax.numpy")
    healthy = simulation.hiv

    def failing(patient: Any) -> Any:
        environment = healthy(patient)

        def step(state: Any, action: Any) -> Any:
            after, reward, ended = environment.step(state, action)
            return after, jnp.where(action == 2, jnp.nan, reward), ended

        return environment._replace(step=step)

    simulation._begins.cache_clear()
    simulation._plays.cache_clear()
    monkeypatch.setattr(simulation, "hiv", failing)
    options = replace(TINY, agent="random", warm_up=0, pretraining=0)
    run = simulation.DeepSimulation(options, seed=3, audit_every=0)
    run.start()
    with pytest.raises(InvalidData, match=r"seed 3 on patient 5, episode 0: .* under action 2"):
        run.advance()
    simulation._begins.cache_clear()
    simulation._plays.cache_clear()
    assert run.done == 0


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"options": None}, InvalidSetting, "'options' must be DeepOptions"),
        ({"patient": 6}, UnknownName, "patient"),
        ({"seed": -1}, InvalidSetting, "'seed'"),
        ({"audit_every": -1}, InvalidSetting, "'audit_every'"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], error: type[CharyError], says: str) -> None:
    given = {"options": TINY, **wrong}
    with pytest.raises(error, match=says):
        simulation.DeepSimulation(given.pop("options"), **given)


def test_calls_have_an_order() -> None:
    run = simulation.DeepSimulation(TINY)
    for call in (run.advance, run.state, run.result):
        with pytest.raises(InvalidSetting):
            call()
