"""Targets and losses of the deep learner against PyTorch, Stable-Baselines3 and d3rlpy, on fixed tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
losses = pytest.importorskip("chary.deep.losses")
networks = pytest.importorskip("chary.deep.networks")

B, A, D, GAMMA = 32, 4, 3, 0.97
RNG = np.random.default_rng(5)
VALUES, NEXT_ONLINE, NEXT_TARGET = (RNG.normal(0.0, 2.0, (B, A)).astype(np.float32) for _ in range(3))
REWARDS, BONUSES = (RNG.normal(0.0, 1.0, B).astype(np.float32) for _ in range(2))
ENDED = (RNG.random(B) < 0.3).astype(np.float32)
ACTIONS = RNG.integers(0, A, B)


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, imported when a test needs it: it takes seconds, which collecting tests need not wait for."""
    return pytest.importorskip("torch")


def test_double_q_targets_are_those_of_torch(torch: Any) -> None:
    best = torch.tensor(NEXT_ONLINE).argmax(dim=1, keepdim=True)
    after = torch.tensor(NEXT_TARGET).gather(1, best).squeeze(1)
    expected = torch.tensor(REWARDS + BONUSES) + GAMMA * (1 - torch.tensor(ENDED)) * after
    ours = losses.double_q_targets(REWARDS, BONUSES, ENDED, NEXT_ONLINE, NEXT_TARGET, GAMMA)
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-6, atol=1e-6)


def test_the_cql_loss_and_its_gradient_are_those_of_torch(torch: Any) -> None:
    goals = RNG.normal(0.0, 2.0, B).astype(np.float32)
    weight = 1.7
    values = torch.tensor(VALUES, requires_grad=True)
    played = values.gather(1, torch.tensor(ACTIONS)[:, None]).squeeze(1)
    penalty = (torch.logsumexp(values, dim=1) - played).mean()
    whole = torch.nn.functional.smooth_l1_loss(played, torch.tensor(goals)) + weight * penalty
    whole.backward()

    def ours(values: Any) -> Any:
        errors = losses.at_actions(values, ACTIONS) - goals
        return jnp.mean(losses.huber(errors, 1.0)) + weight * losses.cql_penalty(values, ACTIONS)

    value, gradient = jax.value_and_grad(ours)(jnp.asarray(VALUES))
    np.testing.assert_allclose(value, whole.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient, values.grad.numpy(), rtol=1e-5, atol=1e-7)


def network_of(layers: Any) -> Any:
    """Put a copy of a torch network's three linear layers into one of ours."""
    (w1, b1), (w2, b2), (w3, b3) = (
        (layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())
        for layer in layers
        if type(layer).__name__ == "Linear"
    )
    return networks.Networks(w1.T[None], b1[None, None], w2.T[None], b2[None, None], w3[None], b3[None, None])


def test_the_loss_of_one_update_is_that_of_stable_baselines3(torch: Any) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    class Nothing(gymnasium.Env):  # type: ignore[misc, name-defined]
        observation_space = gymnasium.spaces.Box(-9.0, 9.0, (D,), np.float32)
        action_space = gymnasium.spaces.Discrete(A)

    model = sb3.DQN(
        "MlpPolicy", Nothing(), gamma=GAMMA, policy_kwargs={"net_arch": [8, 8]}, seed=1, device="cpu"
    )
    model.set_logger(Logger(None, []))
    with torch.no_grad():
        for parameter in model.q_net_target.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    online, target = (network_of(net.q_net) for net in (model.q_net, model.q_net_target))
    states, next_states = (RNG.normal(size=(B, D)).astype(np.float32) for _ in range(2))
    fixed = [
        torch.tensor(x) for x in (states, ACTIONS[:, None], next_states, ENDED[:, None], REWARDS[:, None])
    ]
    # A buffer that always draws the same batch.
    fields = dict(
        zip(("observations", "actions", "next_observations", "dones", "rewards"), fixed, strict=True)
    )
    model.replay_buffer.sample = lambda *_, **__: ReplayBufferSamples(**fields)
    model.train(gradient_steps=1, batch_size=B)

    after = networks.forward(target, jnp.asarray(next_states))[0]
    goals = losses.evaluation_targets(REWARDS, 0.0, ENDED, after, jnp.argmax(after, axis=-1), GAMMA)
    played = losses.at_actions(networks.forward(online, jnp.asarray(states))[0], ACTIONS)
    ours = jnp.mean(losses.huber(played - goals, 1.0))
    np.testing.assert_allclose(ours, model.logger.name_to_value["train/loss"], rtol=1e-5)


def test_targets_and_the_whole_cql_loss_are_those_of_d3rlpy(torch: Any) -> None:
    d3rlpy = pytest.importorskip("d3rlpy")
    from d3rlpy.torch_utility import TorchMiniBatch

    weight = 1.7
    config = d3rlpy.algos.DiscreteCQLConfig(
        gamma=GAMMA, alpha=weight, encoder_factory=d3rlpy.models.VectorEncoderFactory([8, 8])
    )
    model = config.create(device="cpu:0")
    model.create_impl((D,), A)
    online, target = model.impl.modules.q_funcs[0], model.impl.modules.targ_q_funcs[0]
    with torch.no_grad():
        for parameter in target.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    states, next_states = (RNG.normal(size=(B, D)).astype(np.float32) for _ in range(2))
    column = {"actions": ACTIONS, "rewards": REWARDS, "terminals": ENDED}
    batch = TorchMiniBatch(
        observations=torch.tensor(states),
        next_observations=torch.tensor(next_states),
        next_actions=torch.zeros(B, 1),
        returns_to_go=torch.zeros(B, 1),
        intervals=torch.ones(B, 1),
        device="cpu:0",
        **{name: torch.tensor(values)[:, None] for name, values in column.items()},
    )
    after = model.impl.compute_target(batch)
    expected = model.impl.compute_loss(batch, after)

    ours, behind = (network_of(net.modules()) for net in (online, target))
    next_online, next_target = (networks.forward(net, jnp.asarray(next_states))[0] for net in (ours, behind))
    goals = losses.double_q_targets(REWARDS, 0.0, ENDED, next_online, next_target, GAMMA)
    theirs = torch.tensor(REWARDS) + GAMMA * after.squeeze(1) * (1 - torch.tensor(ENDED))
    np.testing.assert_allclose(goals, theirs.numpy(), rtol=1e-5, atol=1e-6)
    values = networks.forward(ours, jnp.asarray(states))[0]
    errors = losses.at_actions(values, ACTIONS) - goals
    penalty = losses.cql_penalty(values, ACTIONS)
    np.testing.assert_allclose(penalty, expected.conservative_loss.item(), rtol=1e-5)
    whole = jnp.mean(losses.huber(errors, 1.0)) + weight * penalty
    np.testing.assert_allclose(whole, expected.loss.item(), rtol=1e-5)
