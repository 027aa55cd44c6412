"""Speed and accuracy of the HIV simulator on a GPU.

python benchmarks/hiv_gpu.py [--to FILE]

Every lane is a patient under random actions, in one `lax.scan` of 200 steps. The kernel's numbers are
compared with the same program on the CPU in float64, and its time with the adaptive loop as XLA compiles it
for a GPU: many small kernels per attempt. Writes benchmarks/results/hiv-gpu.json, or FILE.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from chary.envs.hiv import HORIZON, PATIENTS, START, jax_step, patient

RESULTS = Path(__file__).resolve().parent / "results"
LANES, REPEATS = (64, 256, 1024, 4096), 7


def episodes(flow: Callable[..., Any] | None, params: Any, actions: Any) -> tuple[Any, Any, Any]:
    """Play (steps, B) actions; `flow` replaces the integrator. Returns final states, rewards and `ok`."""

    def body(state: Any, action: Any) -> tuple[Any, Any]:
        if flow is None:
            after, reward, ok = jax.vmap(jax_step.step)(params, state, action)
        else:
            e = jnp.asarray(jax_step.EFFICACIES)[action]
            q = jnp.stack(jax_step.rk.under_treatment(params.T, e[:, 0], e[:, 1]))
            y, done = flow(q, state.T)
            after, reward, ok = y.T, jax_step.rk.reward_of(y[4], y[5], e[:, 0], e[:, 1]), done > 0.5
        return after, (reward, ok)

    start = jnp.broadcast_to(jnp.asarray(START), (params.shape[0], 6))
    end, (rewards, ok) = jax.lax.scan(body, start, actions)
    return end, rewards, ok


def measured(lanes: int, steps: int, repeats: int, flow: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Time `repeats` batches of episodes, after one that compiles."""
    rng = np.random.default_rng(lanes)
    params = jnp.asarray(np.array([patient(PATIENTS[i % len(PATIENTS)]).vector for i in range(lanes)]))
    play = jax.jit(partial(episodes, flow))
    began = time.perf_counter()
    jax.block_until_ready(play(params, jnp.asarray(rng.integers(0, 4, (steps, lanes)))))
    compiled = time.perf_counter() - began
    seconds = []
    for _ in range(repeats):
        actions = jax.block_until_ready(jnp.asarray(rng.integers(0, 4, (steps, lanes))))
        began = time.perf_counter()
        _, _, ok = jax.block_until_ready(play(params, actions))
        seconds.append(time.perf_counter() - began)
        assert bool(jnp.all(ok))
    rates = sorted(lanes * steps / each for each in seconds)
    return {
        "lanes": lanes,
        "steps": steps,
        "repeats": repeats,
        "first_call_seconds": compiled,
        "steps_per_second": {"median": median(rates), "min": rates[0], "max": rates[-1]},
        "microseconds_a_scan_step": 1e6 * median(seconds) / steps,
    }


def worst_difference(lanes: int = 70) -> dict[str, float]:
    """Return the largest relative difference between both devices over 200 random steps."""
    rng = np.random.default_rng(7)
    params = np.array([patient(PATIENTS[i % len(PATIENTS)]).vector for i in range(lanes)])
    actions = rng.integers(0, 4, (HORIZON, lanes))
    results = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        with jax.default_device(device):
            end, rewards, ok = jax.jit(partial(episodes, None))(jnp.asarray(params), jnp.asarray(actions))
            assert bool(jnp.all(ok)), device
            results.append((np.asarray(end), np.asarray(rewards)))
    (end, rewards), (expected, expected_rewards) = results
    # A reward is a difference and may be nearly 0: its parts are of the order of 1e4.
    scale = np.maximum(np.abs(expected_rewards), 1e4)
    return {
        "lanes": lanes,
        "state": float(np.max(np.abs(end / expected - 1))),
        "reward": float(np.max(np.abs(rewards - expected_rewards) / scale)),
    }


def main() -> None:
    """Check, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=RESULTS / "hiv-gpu.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "command": "python benchmarks/hiv_gpu.py",
        "device": jax.devices()[0].device_kind,
        "platform": jax.devices()[0].platform,
        "jax": jax.__version__,
    }
    with jax.enable_x64(True):
        result["worst_relative_difference_from_cpu"] = worst_difference()
        print(json.dumps(result), flush=True)
        result["fused"] = []
        for lanes in LANES:
            result["fused"].append(measured(lanes, HORIZON, REPEATS))
            print(json.dumps(result["fused"][-1]), flush=True)
        result["as_xla_does_it"] = measured(64, 10, 3, jax_step._flow_in_vectors)
        print(json.dumps(result["as_xla_does_it"]), flush=True)
    arguments.to.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
