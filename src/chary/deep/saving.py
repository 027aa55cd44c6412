"""Saving of `DeepAgent`: all of an agent as arrays and plain values, and an agent of them again.

It reads and writes the private parts of an agent, as one half of that class. A file can be changed and sealed
again, so whatever compiled calls trust is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from chary.agents._episodes import OpenEpisode, Played
from chary.agents._steps import observed_steps, steps_from
from chary.agents.protocol import Transition, check_episode_id
from chary.deep.agent import DeepAgent
from chary.deep.calls import Own, Seen
from chary.deep.learners import Observed
from chary.deep.networks import EXPLORER, LOWER, UPPER, Networks
from chary.deep.options import DeepOptions
from chary.deep.trees import arrays_of, tree_like
from chary.deep.turns import Open, Pinned, Unlearnt
from chary.errors import InvalidData, check_integer, check_truth
from chary.shield import Decision
from chary.storage.sealed import as_array

Arrays = dict[str, NDArray[Any]]


def record(agent: DeepAgent) -> tuple[Arrays, dict[str, Any]]:
    """Return all there is to save, as arrays and as plain values."""
    arrays, episodes = arrays_of(agent._turns.state, "state."), list(agent._episodes)
    for i, now in enumerate(episodes):
        pinned, prefix = now.pinned, f"open.{i}."
        arrays |= arrays_of(pinned.draws, f"{prefix}draws.") | arrays_of(pinned.ledger, f"{prefix}ledger.")
        arrays |= observed_steps(now.steps, (agent.observation_size,), prefix)
        arrays[f"{prefix}observation"] = now.state
        if pinned.own is not None:
            arrays |= arrays_of(pinned.own, f"{prefix}own.")
    unlearnt = agent._turns.unlearnt
    if unlearnt is not None:
        arrays |= arrays_of(unlearnt.seen, "unlearnt.")
    about = {
        "options": _as_json(asdict(agent.options)),
        "shape": list(agent._form.shape),
        "n_actions": agent.n_actions,
        "horizon": agent.horizon,
        "seed": agent.seed,
        "warmed": agent._warmed,
        "plays_by": "explorer",
        "open": [
            {
                "name": now.name,
                "number": now.pinned.number,
                "chain": now.pinned.chain,
                "flags": now.flags,
                "own": now.pinned.own is not None,
                "served": now is agent._turns.served,
            }
            for now in episodes
        ],
        "unlearnt": None if unlearnt is None else [episodes.index(unlearnt.now), unlearnt.t],
    }
    return arrays, about


def restored(about: Mapping[str, Any], arrays: Arrays) -> DeepAgent:
    """Return the agent that `record` was called with; malformed values raise whatever they lead to."""
    agent = DeepAgent.__new__(DeepAgent)
    # Version 0.1.0 had one learner.
    options = {"learner": "networks"} | {
        name: _from_json(name, value) for name, value in about["options"].items()
    }
    shape = tuple(check_integer("shape", n, minimum=1, error=InvalidData) for n in about["shape"])
    agent._declare(DeepOptions(**options), shape, about["n_actions"], about["horizon"], about["seed"])
    agent._warmed = check_truth("warmed", about["warmed"], error=InvalidData)
    if agent.options.agent == "cql" and "plays_by" not in about:
        arrays = _with_cql_first(arrays)
    with jax.enable_x64(True):
        shapes = jax.eval_shape(agent._calls.first, jax.random.key(0))
        state = _sound(tree_like(shapes, arrays, "state."), "state.")
        agent._take_on(state)
        if not isinstance(about["open"], list):
            about, arrays = _upgraded(agent, about, arrays)
        episodes = [_episode(agent, shapes, arrays, i, kept) for i, kept in enumerate(about["open"])]
        agent.episodes_begun = int(state.episodes) + sum(not now.released for now in episodes)
        for now in episodes:
            agent._episodes.restore(now)
        served = [now for now, kept in zip(episodes, about["open"], strict=True) if kept["served"]]
        parts = [now.released or now in served or now.pinned.own is not None for now in episodes]
        if len(served) > 1 or len(agent._episodes) < len(episodes) or not all(parts):
            raise InvalidData("'open' must hold episodes that can be open together, got others.")
        agent._turns.served = served[0] if served else None
        if about["unlearnt"] is not None:
            agent._turns.unlearnt = _unlearnt(agent, episodes, arrays, about["unlearnt"])
    return agent


def _episode(
    agent: DeepAgent, shapes: Any, arrays: Mapping[str, NDArray[Any]], i: int, kept: Mapping[str, Any]
) -> Open:
    """Return an open episode of a file, once it can have come to be."""
    prefix = f"open.{i}."
    _, draws_like, ledger_like = jax.eval_shape(agent._calls.open, shapes)
    draws = tree_like(draws_like, arrays, f"{prefix}draws.")
    ledger = tree_like(ledger_like, arrays, f"{prefix}ledger.")
    if not all(bool(((leaf >= 0) & (leaf < 1)).all()) for leaf in map(np.asarray, draws)):
        raise InvalidData(f"'{prefix}draws' must lie in [0, 1), got others.")
    number = check_integer("number", kept["number"], minimum=0, error=InvalidData)
    chain = check_integer("chain", kept["chain"], minimum=-1, error=InvalidData)
    pinned = Pinned(draws, ledger, number, chain)
    if check_truth("own", kept["own"], error=InvalidData):
        pinned.own = _sound(
            tree_like(Own(shapes.plan, shapes.chain, shapes.account), arrays, f"{prefix}own."), prefix
        )
    observation = as_array(f"{prefix}observation", arrays, (agent.observation_size,), np.float32)
    seen = agent._form.observation("observation", observation)
    steps = steps_from(arrays, (agent.observation_size,), prefix, n_actions=agent.n_actions, plan=number)
    kinds = {np.asarray(arrays[prefix + name]).dtype for name in ("state", "next_state")}
    if steps and kinds != {np.dtype(np.float32)}:
        raise InvalidData(f"'{prefix}state' must be float32, got others.")
    # Nothing is ever refunded.
    deficit, booked = float(ledger.deficit), steps[-1].decision.deficit_scaled if steps else 0.0
    if deficit != booked:
        raise InvalidData(
            f"'{prefix}ledger.deficit' must be that of the last decision, {booked}, got {deficit}."
        )
    terminated, closing, released = (check_truth("flags", flag, error=InvalidData) for flag in kept["flags"])
    return OpenEpisode(check_episode_id(kept["name"]), seen, pinned, steps, terminated, closing, released)


def _unlearnt(
    agent: DeepAgent, episodes: list[Open], arrays: Mapping[str, NDArray[Any]], kept: Any
) -> Unlearnt:
    """Return the outcome of a file that is yet to be learnt."""
    i, t = (check_integer("unlearnt", number, minimum=0, error=InvalidData) for number in kept)
    one, flag = np.zeros(agent.observation_size, np.float32), np.bool_(False)
    blank = Seen(Observed._make((one, np.int32(0), np.float64(0.0), one, flag)), flag)
    seen = jax.tree.map(lambda leaf: np.asarray(leaf)[()], tree_like(blank, arrays, "unlearnt."))
    step = agent._form.transition(Transition._make(seen.step))
    outcome = episodes[i].steps[t].outcome
    if outcome is None or not np.array_equal(outcome.next_state, step.next_state):
        raise InvalidData("'unlearnt' must be the outcome of an open episode's step, got another.")
    return Unlearnt(episodes[i], t, seen)


def _upgraded(agent: DeepAgent, about: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return a record of version 0.1.0, with one open episode at most, in the present form.

    Of the steps before the last that version kept nothing: their states are NaN here, so that none of them
    can be requested again.
    """
    kept = about["open"]
    if kept is None:
        return {**about, "open": [], "unlearnt": None}, arrays
    deficit, number = float(arrays["open.ledger.deficit"]), int(agent._turns.state.episodes)
    t = check_integer("t", kept["t"], minimum=0, largest=agent.horizon, error=InvalidData)
    here, made = arrays["open.observation"], kept["decision"]
    terminated, unlearnt = False, None
    nowhere = np.full_like(here, np.nan)
    forgotten = Decision(0, False, 0.0, deficit, agent._room(deficit), number, -1)
    steps = [Played(forgotten, nowhere, Transition(nowhere, 0, 0.0, nowhere, False)) for _ in range(t)]
    if t:
        steps[-1].outcome = Transition(nowhere, 0, 0.0, here, False)
    if made is not None:
        action, explored, charge, chain = made
        check_truth("decision", explored, error=InvalidData)
        for name, whole in (("action", action), ("chain", chain)):
            check_integer(name, whole, minimum=-1, error=InvalidData)
        made = Decision(action, explored, charge, deficit, agent._room(deficit), number, chain)
        steps.append(Played(made, here))
    elif t:
        unlearnt, terminated = [0, t - 1], bool(arrays["open.seen.step.ended"])
    moved = {
        name.replace("open.seen.", "unlearnt.").replace("open.", "open.0."): array
        for name, array in arrays.items()
    }
    episode = {
        "name": kept["name"],
        "number": number,
        "chain": int(agent._turns.state.chain.started) - 1,
        "flags": [terminated, False, False],
        "own": False,
        "served": True,
    }
    moved |= observed_steps(steps, (agent.observation_size,), "open.0.")
    return {**about, "open": [episode], "unlearnt": unlearnt}, moved


def _with_cql_first(arrays: Arrays) -> Arrays:
    """Return the arrays of a `cql` agent of version 0.1.0, which played by Q_lo, with that as its explorer.

    The explorer of then, by which nothing was played, becomes Q_lo, and learns on as such.
    """
    order = [LOWER, UPPER, EXPLORER]
    weights = {name for name in arrays if name.rpartition(".")[2] in Networks._fields}
    return {name: array[order] if name in weights else array for name, array in arrays.items()}


def _sound(tree: Any, prefix: str) -> Any:
    """Return a copy, since calls write into the state they are given, once its counts are counts."""
    for name, array in arrays_of(tree, prefix).items():
        # A negative one would point outside the replay.
        if array.dtype.kind == "i" and (array < 0).any():
            raise InvalidData(f"{name!r} of a saved agent must be >= 0, got {array.min()}.")
    return jax.tree.map(jnp.copy, tree)


def _as_json(value: Any) -> Any:
    """Return options as JSON has them, which lacks infinity."""
    if isinstance(value, Mapping):
        return {name: _as_json(each) for name, each in value.items()}
    if value is None or isinstance(value, (bool, str)):
        return value
    number = int(value) if isinstance(value, Integral) else float(value)
    return number if math.isfinite(number) else repr(number)


def _from_json(name: str, value: Any) -> Any:
    """Return the option that `_as_json` wrote."""
    return math.inf if value == "inf" and name in ("eta", "step_bound", "huber") else value
