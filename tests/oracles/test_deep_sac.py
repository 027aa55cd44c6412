"""Discrete SAC against plain sums over actions, and against PyTorch's own gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")
sac: Any = pytest.importorskip("chary.deep.sac")

BATCH, ACTIONS = 7, 4
ALPHA, GAMMA = 0.3, 0.9


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(4)
    return {
        name: draw.normal(size=(BATCH, ACTIONS)).astype(np.float32) for name in ("logits", "first", "second")
    } | {"rewards": draw.normal(size=BATCH).astype(np.float32), "ended": np.arange(BATCH) % 3 == 0}


def policy(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(shifted / shifted.sum())


def test_targets_are_rewards_and_what_the_policy_earns_and_may_choose(tensors: dict[str, np.ndarray]) -> None:
    found = sac.soft_targets(
        tensors["rewards"],
        tensors["ended"].astype(np.float32),
        tensors["logits"],
        tensors["first"],
        tensors["second"],
        jnp.float32(ALPHA),
        GAMMA,
    )
    for b in range(BATCH):
        pi = policy(tensors["logits"][b])
        after = sum(
            pi[a] * (min(tensors["first"][b, a], tensors["second"][b, a]) - ALPHA * np.log(pi[a]))
            for a in range(ACTIONS)
        )
        expected = tensors["rewards"][b] + (0.0 if tensors["ended"][b] else GAMMA * after)
        assert float(found[b]) == pytest.approx(expected, abs=1e-5)


def test_the_actor_moves_as_in_pytorch_and_moves_no_critic(tensors: dict[str, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor(tensors["logits"], requires_grad=True)
    log_policy = torch.nn.functional.log_softmax(logits, dim=1)
    worst = torch.minimum(torch.tensor(tensors["first"]), torch.tensor(tensors["second"]))
    loss = (log_policy.exp() * (ALPHA * log_policy - worst)).sum(1).mean()
    loss.backward()

    def ours(logits: Any, first: Any, second: Any) -> Any:
        return sac.actor_loss(logits, first, second, jnp.float32(ALPHA))

    value, by = jax.value_and_grad(ours, argnums=(0, 1, 2))(
        *(tensors[x] for x in ("logits", "first", "second"))
    )
    assert float(value) == pytest.approx(float(loss.detach()), abs=1e-5)
    np.testing.assert_allclose(by[0], logits.grad.numpy(), atol=1e-6)
    assert not by[1].any()
    assert not by[2].any()


def test_entropy_lies_between_none_and_that_of_all_actions_alike() -> None:
    found = sac.entropy(jnp.array([[0.0] * ACTIONS, [1e3, 0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(found, [np.log(ACTIONS), 0.0], atol=1e-6)


def test_a_policy_that_hardly_chooses_is_worth_the_smaller_critic() -> None:
    logits = jnp.array([[1e3, 0.0]])
    value = sac.soft_values(logits, jnp.array([[2.0, 9.0]]), jnp.array([[1.0, 9.0]]), jnp.float32(5.0))
    assert float(value[0]) == pytest.approx(1.0)


def test_actions_are_drawn_as_often_as_the_policy_says() -> None:
    logits = jnp.array([0.3, -1.0, 0.0, 2.0])
    uniforms = (jnp.arange(10_000) + 0.5) / 10_000
    actions = jax.vmap(lambda u: sac.drawn_action(logits, u))(uniforms)
    np.testing.assert_allclose(
        np.bincount(np.asarray(actions), minlength=4) / 10_000, policy(np.asarray(logits)), atol=2e-4
    )
    assert int(sac.drawn_action(logits, jnp.float32(np.nextafter(np.float32(1.0), np.float32(0.0))))) == 3
