"""Speed and accuracy of the HIV simulator, compared with SciPy's integrators.

Every method treats the same patients by the same actions from the same states, in turns of a few steps, so
that other load on the machine affects all of them equally. Processor time is measured. SciPy is given the
compiled equations. Its methods:

- `lsoda`: `solve_ivp(method="LSODA")` at tolerances of 1e-8;
- `odeint`: the same integrator at the same tolerances by its older and leaner function;
- `vode`: as the simulator of Killian et al. (2017) sets it up, github.com/dtak/hip-mdp-public,
  hiv_simulator/hiv.py: a new `ode(...)` for every action, BDF, at most 10,000 steps, SciPy's own tolerances.

The truth is `solve_ivp(method="DOP853")` at tolerances of 1e-10.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import ode, odeint, solve_ivp

from chary.arrays import Floats
from chary.bench import Progress, machine, versions
from chary.envs.hiv._arithmetic import DAYS
from chary.envs.hiv._kernels import slope_into
from chary.envs.hiv.parameters import EFFICACIES, HORIZON, PATIENTS, START, patient
from chary.envs.hiv.simulator import step, step_many
from chary.errors import check_integer, check_seed

COLUMNS = ("method", "microseconds per step", "slower than chary", "least", "most", "worst relative error")
# Steps of every method in one turn; the lanes of a batch.
TURN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The measurements of one method.

    Args:
        microseconds: Processor time of one step, the median over turns.
        microseconds_spread: The minimum and maximum over turns.
        ratio: Its time divided by that of `chary`, the median over turns.
        ratio_spread: The minimum and maximum over turns.
        error: The worst relative error of a concentration after one step.
    """

    microseconds: float
    microseconds_spread: tuple[float, float]
    ratio: float
    ratio_spread: tuple[float, float]
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HIVBenchmark:
    """All measurements, by method; `jax, a lane` only if JAX is installed."""

    turns: int
    steps: int
    seed: int
    versions: dict[str, str]
    machine: dict[str, Any]
    methods: dict[str, Method]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"problem": "hiv", **asdict(self)}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, in the order of `COLUMNS`."""
        return [
            (
                name,
                f"{each.microseconds:.1f}",
                f"{each.ratio:.3g}",
                f"{each.ratio_spread[0]:.3g}",
                f"{each.ratio_spread[1]:.3g}",
                f"{each.error:.1e}",
            )
            for name, each in self.methods.items()
        ]

    def describe(self) -> str:
        """Return the measurements in words."""
        chary, lsoda, vode = (self.methods[name] for name in ("chary", "lsoda", "vode"))
        return (
            f"A step takes chary {chary.microseconds:.1f} microseconds: {lsoda.ratio:.0f} times as fast as "
            f"LSODA at 1e-8, {vode.ratio:.0f} times as fast as vode set up as in the original; its worst "
            f"relative error over {self.steps} steps of {len(PATIENTS)} patients is {chary.error:.1e}."
        )


def bench_hiv(*, turns: int = 35, seed: int = 0, progress: Progress | None = None) -> HIVBenchmark:
    """Compare the time of the simulator with that of SciPy's integrators, in turns.

    The states are those of episodes under random actions, one per patient.

    Args:
        turns: The number of turns of 40 steps per method, >= 1; 35 turns use every state once.
        seed: A whole number >= 0, for the actions.
        progress: Called from time to time with a label, turns done and turns in all.

    Raises:
        InvalidSetting: if a number is out of range.

    Example:
        >>> bench_hiv(turns=1).methods["chary"].error < 1e-6
        True
    """
    check_integer("turns", turns, minimum=1)
    check_seed(seed)
    who, states, actions = _visited(seed)
    methods = _methods()
    # An even sample of all patients and times in every turn.
    order = np.random.default_rng(seed).permutation(len(states))
    for method in methods.values():
        method(who[order[:TURN]], states[order[:TURN]], actions[order[:TURN]])
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    errors = dict.fromkeys(methods, 0.0)
    for turn in range(turns):
        # After all states, the first ones again.
        chosen = np.take(order, np.arange(turn * TURN, (turn + 1) * TURN), mode="wrap")
        given = who[chosen], states[chosen], actions[chosen]
        truth = integrate_by_scipy("truth", *given)
        # Another method begins in every turn.
        names = list(methods)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            # Processor time of all threads: on a busy machine other programs interrupt the long turns of
            # SciPy more often than our short ones.
            began = time.process_time()
            after = methods[name](*given)
            seconds[name].append((time.process_time() - began) / TURN)
            errors[name] = max(errors[name], float(np.max(np.abs(after / truth - 1.0))))
        if progress is not None:
            progress("hiv simulator", turn + 1, turns)
    return HIVBenchmark(
        turns=turns,
        steps=turns * TURN,
        seed=seed,
        versions=versions("numpy", "numba", "scipy", *(["jax"] if find_spec("jax") is not None else [])),
        machine={**machine(), "load": os.getloadavg()[0] if platform.system() != "Windows" else None},
        methods={name: _summary(seconds[name], seconds["chary"], errors[name]) for name in methods},
    )


def integrate_by_scipy(method: str, who: Any, states: Floats, actions: Any) -> Floats:
    """Return concentrations (B, 6) after one action each, by `lsoda`, `odeint`, `vode` or `truth`."""
    after = np.empty_like(states)
    for i, name in enumerate(who):
        vector = patient(name).vector
        e1, e2 = EFFICACIES[actions[i]]
        after[i] = _SCIPY[method](vector, e1, e2, states[i])
    return after


def _slope(t: float, y: Floats, vector: Floats, e1: float, e2: float) -> Floats:
    out = np.empty(6)
    slope_into(out, vector, e1, e2, y)
    return out


def _solve_ivp(method: str, tolerance: float) -> Callable[[Floats, float, float, Floats], Floats]:
    def solve(vector: Floats, e1: float, e2: float, state: Floats) -> Floats:
        given = (vector, e1, e2)
        found = solve_ivp(_slope, (0.0, DAYS), state, method, args=given, rtol=tolerance, atol=tolerance)
        end: Floats = found.y[:, -1]
        return end

    return solve


def _odeint(vector: Floats, e1: float, e2: float, state: Floats) -> Floats:
    given, tight = (vector, e1, e2), {"rtol": 1e-8, "atol": 1e-8}
    end: Floats = odeint(_slope, state, (0.0, DAYS), args=given, tfirst=True, **tight)[-1]
    return end


def _vode(vector: Floats, e1: float, e2: float, state: Floats) -> Floats:
    solver = ode(_slope).set_integrator("vode", nsteps=10_000, method="bdf")
    solver.set_initial_value(state, 0.0).set_f_params(vector, e1, e2)
    end: Floats = solver.integrate(DAYS)
    return end


_SCIPY: dict[str, Callable[[Floats, float, float, Floats], Floats]] = {
    "lsoda": _solve_ivp("LSODA", 1e-8),
    "odeint": _odeint,
    "vode": _vode,
    "truth": _solve_ivp("DOP853", 1e-10),
}


def _methods() -> dict[str, Callable[[Any, Floats, Any], Floats]]:
    """Return the methods by name, each a function of patients, states and actions."""

    def one_by_one(who: Any, states: Floats, actions: Any) -> Floats:
        return np.array([step(y, a, patient=p)[0] for p, y, a in zip(who, states, actions, strict=True)])

    def batch(who: Any, states: Floats, actions: Any) -> Floats:
        return step_many(states, actions, patient=who)[0]

    def scipy(name: str) -> Callable[[Any, Floats, Any], Floats]:
        return lambda who, states, actions: integrate_by_scipy(name, who, states, actions)

    found: dict[str, Callable[[Any, Floats, Any], Floats]] = {"chary": one_by_one, "chary, batch": batch}
    if find_spec("jax") is not None:
        found["jax, a lane"] = _jax_method()
    return {**found, **{name: scipy(name) for name in ("lsoda", "odeint", "vode")}}


def _jax_method() -> Callable[[Any, Floats, Any], Floats]:
    import jax

    from chary.envs.hiv import jax_step

    compiled = jax.jit(jax.vmap(jax_step.step))

    def on_lanes(who: Any, states: Floats, actions: Any) -> Floats:
        with jax.enable_x64(True):
            vectors = np.array([patient(name).vector for name in who])
            return np.asarray(compiled(vectors, states, actions).state)

    return on_lanes


def _visited(seed: int) -> tuple[Any, Floats, NDArray[np.int64]]:
    """Return patients, states and actions of one episode of each patient under random actions."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, len(EFFICACIES), (HORIZON, len(PATIENTS)))
    states = np.empty((HORIZON, len(PATIENTS), 6))
    now = np.tile(START, (len(PATIENTS), 1))
    for t in range(HORIZON):
        states[t] = now
        now, _ = step_many(now, actions[t], patient=PATIENTS)
    who = np.array([*PATIENTS] * HORIZON, dtype=object)
    return who, states.reshape(-1, 6), actions.reshape(-1)


def _summary(seconds: list[float], reference: list[float], error: float) -> Method:
    ratios = [mine / chary for mine, chary in zip(seconds, reference, strict=True)]
    return Method(
        microseconds=1e6 * median(seconds),
        microseconds_spread=(1e6 * min(seconds), 1e6 * max(seconds)),
        ratio=median(ratios),
        ratio_spread=(min(ratios), max(ratios)),
        error=error,
    )
