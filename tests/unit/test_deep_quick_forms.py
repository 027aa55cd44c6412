"""Forms of the deep learner's arithmetic that were chosen for speed, against the plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
bonus = pytest.importorskip("chary.deep.bonus")
networks = pytest.importorskip("chary.deep.networks")
jax_step = pytest.importorskip("chary.envs.hiv.jax_step")


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("shape", [(9, 4), (3, 9, 4)], ids=["shared", "own"])
def test_the_gradient_of_the_networks_is_that_of_automatic_differentiation(shape: tuple[int, ...]) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    three = networks.first_networks(keys[0], 4, 8, 5)
    inputs = jax.random.normal(keys[1], shape, jnp.float32)
    weights = jax.random.normal(keys[2], (3, 9, 5), jnp.float32)

    def gradients(forward: Any) -> Any:
        return jax.grad(lambda n, x: jnp.sum(weights * jnp.sin(forward(n, x))), argnums=(0, 1))(three, inputs)

    ours, plain = gradients(networks.forward), gradients(lambda n, x: networks._layers(n, x)[-1])
    for own, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert own.shape == expected.shape
        assert np.abs(expected).max() > 0.0
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)


def test_the_cosine_is_numpys() -> None:
    x = np.linspace(-40.0, 40.0, 100_001).astype(np.float32)
    # 40 in float32 is known to 2e-6.
    np.testing.assert_allclose(bonus._cosine(jnp.asarray(x)), np.cos(x.astype(np.float64)), atol=5e-6)
    small = x[np.abs(x) < 3.0]
    np.testing.assert_allclose(bonus._cosine(jnp.asarray(small)), np.cos(small.astype(np.float64)), atol=5e-7)
    assert np.isnan(bonus._cosine(jnp.array([jnp.nan, jnp.inf]))).all()


def test_one_patient_by_scalars_is_one_by_vectors() -> None:
    from chary.envs.hiv import EFFICACIES, START, patient

    rng = np.random.default_rng(2)
    for action in range(4):
        start = jnp.asarray(START * rng.lognormal(0.0, 0.7, 6))[:, None]
        q = jnp.asarray(jax_step.rk.under_treatment(patient(5).vector, *EFFICACIES[action]))[:, None]
        after, done = jax_step._flow_in_scalars(q, start)
        expected, _ = jax_step._flow_in_vectors(q, start)
        np.testing.assert_allclose(after, expected, rtol=1e-9)
        assert done.tolist() == [1.0]


def test_scalars_that_cannot_be_integrated_say_so() -> None:
    from chary.envs.hiv import EFFICACIES, START, patient

    q = jnp.asarray(jax_step.rk.under_treatment(patient(5).vector, *EFFICACIES[0]))[:, None]
    _, done = jax_step._flow_in_scalars(q, jnp.asarray(START).at[4].set(1e300)[:, None])
    assert done.tolist() == [0.0]
