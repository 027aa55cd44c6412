"""Live models of other libraries keep the contract of critics; skipped where the library is missing.

d3rlpy 2.8 asks for gymnasium 1.0.0 exactly, so that it is usually tried in an environment of its own.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from chary.agents.protocol import Transition
from chary.critics import (
    CriticBounds,
    CriticShield,
    D3RLPyCritic,
    EnsembleCritics,
    FunctionCritic,
    SB3Critic,
    checked_q_values,
)
from chary.envs import TabularEnv, riverswim
from chary.errors import InvalidData, InvalidSetting
from chary.shield import Rule
from chary.testing import check_critic

Array = NDArray[Any]


def library(name: str) -> Any:
    """Return a library, or skip: its own import may warn, which is none of our business."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.mark.parametrize(("missing", "adapter"), [("stable_baselines3", SB3Critic), ("d3rlpy", D3RLPyCritic)])
def test_a_library_that_is_not_installed_is_named(
    missing: str, adapter: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidSetting, match=f"Models of {missing} need the library.*pip install 'chary"):
        adapter(object())


# d3rlpy pins gymnasium 1.0.0; chary.wrappers needs 1.1.
@pytest.mark.skipif(
    tuple(int(part) for part in gymnasium.__version__.split(".")[:2]) < (1, 1),
    reason="chary.wrappers needs gymnasium 1.1",
)
def test_a_critic_shield_guards_a_gymnasium_environment() -> None:
    from chary.wrappers import Shielded

    weights = np.array([[0.0, 0.0], [0.0, 0.0], [-1.0, 1.0], [-1.0, 1.0]])
    bounds = CriticBounds.from_point(FunctionCritic(lambda x: x @ weights, n_actions=2), accept="uncertified")
    env = Shielded(
        gymnasium.make("CartPole-v1"),
        CriticShield(bounds, Rule.strict(0.3), n_actions=2, horizon=30),
        horizon=30,
    )
    seen = set()
    for k in range(3):
        env.reset(seed=k)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(k % 2)
            assert info["deficit"] <= 0.3
            seen.add((info["refused"], info["charge"] > 0))
            over = terminated or truncated
    assert seen == {(None, True), (None, False), ("budget", False)}


# Stable-Baselines3.


class Pictures(gymnasium.Env[Array, Any]):
    """Noise to look at: images with the colours last, which SB3 turns around."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), dtype=np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return self._look(), float(action == 1), False, False, {}

    def _look(self) -> Array:
        return self.np_random.integers(0, 256, (36, 36, 1), dtype=np.uint8)


def trained(env: Any, *, seed: int = 0, policy: str = "MlpPolicy", **options: Any) -> Any:
    sb3 = library("stable_baselines3")
    small = {"learning_starts": 16, "buffer_size": 64, "batch_size": 8, "device": "cpu", "verbose": 0}
    model = sb3.DQN(policy, env, seed=seed, **{**small, **options})
    return model.learn(total_timesteps=48)


@pytest.fixture(scope="module")
def cartpole() -> Any:
    return trained(gymnasium.make("CartPole-v1"), policy_kwargs={"net_arch": [8]})


@pytest.fixture
def carts() -> Array:
    return np.random.default_rng(1).normal(0.0, 0.1, (7, 4)).astype(np.float32)


def test_an_sb3_dqn_keeps_the_contract(cartpole: Any, carts: Array) -> None:
    check_critic(SB3Critic(cartpole), carts, 2)


def test_an_sb3_critic_answers_as_the_network_and_prefers_what_the_model_plays(
    cartpole: Any, carts: Array
) -> None:
    torch = library("torch")
    critic = SB3Critic(cartpole)
    values = checked_q_values(critic, carts, critic.n_actions)
    with torch.no_grad():
        network = cartpole.q_net.q_net(torch.as_tensor(carts)).numpy()
    assert np.allclose(values, network, rtol=0, atol=1e-6)
    assert values.std() > 0
    assert values.argmax(axis=1).tolist() == cartpole.predict(carts, deterministic=True)[0].tolist()


def test_whole_numbers_are_encoded_as_sb3_does() -> None:
    env = TabularEnv(riverswim(n_states=4, horizon=5))
    model = trained(env, policy_kwargs={"net_arch": [8]})
    states = np.arange(4)
    critic = SB3Critic(model)
    check_critic(critic, states, 2)
    values = checked_q_values(critic, states, 2)
    assert values.argmax(axis=1).tolist() == model.predict(states, deterministic=True)[0].tolist()


def test_images_with_the_colours_last_are_turned_around_as_sb3_does() -> None:
    model = trained(Pictures(), policy="CnnPolicy")
    frames = np.random.default_rng(2).integers(0, 256, (3, 36, 36, 1), dtype=np.uint8)
    values = checked_q_values(SB3Critic(model), frames, 3)
    assert values.argmax(axis=1).tolist() == model.predict(frames, deterministic=True)[0].tolist()
    check_critic(SB3Critic(model), frames, 3)


def test_dropout_is_switched_off(carts: Array) -> None:
    dropout = library("torch").nn.Dropout
    model = trained(gymnasium.make("CartPole-v1"), policy_kwargs={"net_arch": [32], "activation_fn": dropout})
    model.policy.set_training_mode(True)
    check_critic(SB3Critic(model), carts, 2)


def test_sb3_observations_of_another_shape_are_refused(cartpole: Any) -> None:
    critic = SB3Critic(cartpole)
    with pytest.raises(InvalidData, match=r"'observations' of SB3Critic\(DQN\) must fit its space"):
        checked_q_values(critic, np.zeros((2, 3)), 2)
    with pytest.raises(InvalidData, match="must have one row per observation, got a single one"):
        checked_q_values(critic, np.zeros(4), 2)


def test_other_sb3_models_are_refused_by_name() -> None:
    sb3 = library("stable_baselines3")
    ppo = sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu", n_steps=8, batch_size=8)
    with pytest.raises(
        InvalidSetting, match=r"must be a stable_baselines3\.DQN.*got stable_baselines3's PPO"
    ):
        SB3Critic(ppo)
    continuous = sb3.SAC("MlpPolicy", "Pendulum-v1", device="cpu", buffer_size=8)
    with pytest.raises(InvalidSetting, match="got stable_baselines3's SAC"):
        SB3Critic(continuous)
    with pytest.raises(InvalidSetting, match="got one that was not set up"):
        SB3Critic(sb3.DQN("MlpPolicy", "CartPole-v1", _init_setup_model=False))


def test_an_sb3_model_of_normalised_rewards_is_refused() -> None:
    library("stable_baselines3")
    vectors = library("stable_baselines3.common.vec_env")
    plain = vectors.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    scaled = trained(vectors.VecNormalize(plain), policy_kwargs={"net_arch": [8]})
    with pytest.raises(InvalidSetting, match="got VecNormalize with norm_reward=True"):
        SB3Critic(scaled)
    observed = vectors.VecNormalize(plain, norm_reward=False)
    SB3Critic(trained(observed, policy_kwargs={"net_arch": [8]}))


def test_an_ensemble_of_dqns_shields_another_models_proposals(cartpole: Any) -> None:
    env = gymnasium.make("CartPole-v1")
    members = [SB3Critic(trained(env, seed=seed, policy_kwargs={"net_arch": [8]})) for seed in (1, 2)]
    bounds = CriticBounds.from_ensemble(EnsembleCritics(members))
    shield = CriticShield(bounds, Rule.strict(0.5), n_actions=2, horizon=20)
    explored = refused = 0
    for k in range(4):
        s, _ = env.reset(seed=k)
        shield.begin(k, s)
        for t in range(20):
            proposal = (int(cartpole.predict(s, deterministic=True)[0]) + k) % 2
            decision = shield.act(k, t, s, proposal=proposal)
            assert decision.deficit <= 0.5
            explored += decision.explored and decision.charge > 0
            refused += not decision.explored
            x, reward, terminated, _, _ = env.step(decision.action)
            shield.observe(k, Transition(s, decision.action, float(reward), x, bool(terminated)))
            s = x
            if terminated:
                break
        shield.finish(k)
    assert explored + refused > 0
    assert shield.standing.level == "uncertified"


# d3rlpy.


def dataset(*, discrete: bool = True) -> Any:
    d3rlpy = library("d3rlpy")
    rng = np.random.default_rng(3)
    steps = 200
    actions = rng.integers(0, 3, (steps, 1)) if discrete else rng.normal(size=(steps, 2))
    ends = np.zeros(steps)
    ends[9::10] = 1.0
    return d3rlpy.dataset.MDPDataset(
        observations=rng.normal(size=(steps, 4)).astype(np.float32),
        actions=actions if discrete else actions.astype(np.float32),
        rewards=rng.random((steps, 1)).astype(np.float32),
        terminals=ends,
    )


def fitted(name: str, *, discrete: bool = True, **options: Any) -> Any:
    d3rlpy = library("d3rlpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(d3rlpy.algos, f"{name}Config")(batch_size=8, **options).create(device="cpu:0")
        model.fit(
            dataset(discrete=discrete),
            n_steps=4,
            n_steps_per_epoch=4,
            show_progress=False,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )
    return model


@pytest.fixture
def points() -> Array:
    return np.random.default_rng(4).normal(size=(6, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ["DiscreteCQL", "DQN", "DoubleDQN", "NFQ", "DiscreteSAC", "DiscreteBCQ"])
def test_d3rlpy_models_of_discrete_actions_keep_the_contract(name: str, points: Array) -> None:
    model = fitted(name)
    critic = D3RLPyCritic(model)
    assert critic.n_actions == 3
    check_critic(critic, points, 3)
    values = checked_q_values(critic, points, 3)
    for a in range(3):
        assert np.allclose(values[:, a], model.predict_value(points, np.full(6, a)), rtol=0, atol=1e-6)


def test_a_d3rlpy_critic_prefers_what_the_model_plays_even_with_scaled_observations(points: Array) -> None:
    d3rlpy = library("d3rlpy")
    scaler = d3rlpy.preprocessing.StandardObservationScaler()
    model = fitted("DiscreteCQL", observation_scaler=scaler)
    values = checked_q_values(D3RLPyCritic(model), points.astype(np.float64), 3)
    assert values.argmax(axis=1).tolist() == model.predict(points).tolist()


def test_d3rlpy_models_that_do_not_value_discrete_actions_are_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="which value discrete actions, got d3rlpy's CQL"):
        D3RLPyCritic(fitted("CQL", discrete=False))
    with pytest.raises(InvalidSetting, match="got d3rlpy's DiscreteBC"):
        D3RLPyCritic(fitted("DiscreteBC"))


def test_a_d3rlpy_model_that_was_not_fitted_is_refused() -> None:
    d3rlpy = library("d3rlpy")
    with pytest.raises(InvalidSetting, match="'model' must be fitted, got a DiscreteCQL without networks"):
        D3RLPyCritic(d3rlpy.algos.DiscreteCQLConfig().create(device="cpu:0"))


def test_a_d3rlpy_model_of_scaled_rewards_is_refused() -> None:
    d3rlpy = library("d3rlpy")
    scaler = d3rlpy.preprocessing.StandardRewardScaler()
    with pytest.raises(InvalidSetting, match="got StandardRewardScaler"):
        D3RLPyCritic(fitted("DiscreteCQL", reward_scaler=scaler))


def test_d3rlpy_observations_of_another_shape_are_refused() -> None:
    critic = D3RLPyCritic(fitted("DiscreteCQL"))
    with pytest.raises(InvalidData, match=r"'q_values' of D3RLPyCritic\(DiscreteCQL\) must accept"):
        checked_q_values(critic, np.zeros((2, 3)), 3)
