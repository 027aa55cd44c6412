"""Saving of `LinearAgent`: all of an agent as arrays and plain values, and an agent of them again.

It reads and writes the private parts of an agent, as one half of that class.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents._episodes import OpenEpisode, Played
from chary.agents._steps import observed_steps, steps_from, vote_rows, votes_from
from chary.errors import InvalidData, check_index, check_integer, check_truth
from chary.linear.agent import LinearAgent, Open, Pinned
from chary.linear.algebra import steps_left
from chary.linear.features import Features
from chary.linear.options import LinearOptions
from chary.linear.order import Timed
from chary.linear.plan import LinearPlan
from chary.linear.worlds import Coefficients, Pseudo, Steps, joined, no_steps
from chary.shield.decision import Plan
from chary.storage.sealed import as_array, under

Arrays = dict[str, NDArray[Any]]
# The key of an array among plain values.
ARRAY = "array"


def record(agent: LinearAgent) -> tuple[Arrays, dict[str, Any]]:
    """Return all there is to save, as arrays and as plain values."""
    arrays: Arrays = {}
    about: dict[str, Any] = {
        "options": _as_json(agent.options),
        "shape": list(agent._form.shape),
        "n_actions": agent.n_actions,
        "horizon": agent.horizon,
        "seed": agent.seed,
        "begun": agent.episodes_begun,
        "plans": agent._plans,
        "before": agent._before,
        "warmed": agent._warmed,
        "untaken": agent._untaken,
        "shield": _plain(agent.shield.record(lambda _: None)),
        "features": None,
        "pseudo": agent._pseudo is not None,
    }
    worlds = agent._worlds
    if worlds is not None:
        waves, about["features"] = worlds.features.record()
        about["generators"] = worlds.states()
        if agent._ahead is not None:
            waves, about["ahead"] = agent._ahead.record()
            arrays |= {f"ahead.{name}": array for name, array in waves.items()}
        arrays |= {f"features.{name}": array for name, array in waves.items()}
        arrays |= {f"worlds.{name}": array for name, array in worlds.to_arrays().items()}
        waiting = joined([no_steps(agent._form.size), *agent._waiting])
        arrays |= {f"waiting.{name}": column for name, column in waiting._asdict().items()}
    if agent._pseudo is not None:
        arrays |= {f"pseudo.{name}": column for name, column in agent._pseudo.steps._asdict().items()}
        arrays["pseudo.weights"] = agent._pseudo.shape
    episodes = list(agent._episodes)
    plans = [] if agent._plan is None else [agent._plan]
    plans += [p for p in dict.fromkeys(now.pinned.plan for now in episodes) if p is not agent._plan]
    for i, plan in enumerate(plans):
        arrays |= {f"plan.{i}.theta": plan.values.theta, f"plan.{i}.top": plan.values.top}
    about["planned"], about["current"] = len(plans), agent._plan is not None
    for chain, theta in agent._explorers.items():
        arrays[f"explorer.{chain}"] = theta
    about["explorers"] = sorted(agent._explorers)
    about["open"] = []
    for i, now in enumerate(episodes):
        prefix = f"open.{i}."
        arrays |= observed_steps(now.steps, (agent._form.size,), prefix)
        arrays |= {f"{prefix}now": now.state, f"{prefix}votes": vote_rows(now.steps)}
        about["open"].append([now.name, now.pinned.number, plans.index(now.pinned.plan), *now.flags])
    pending: list[list[int]] = []
    closed: list[Timed] = []
    places = {id(step): [i, t] for i, now in enumerate(episodes) for t, step in enumerate(now.steps)}
    for t, step in agent._order.pending():
        if id(step) not in places:
            places[id(step)] = [-1, len(closed)]
            closed.append((t, step))
        pending.append(places[id(step)])
    # Steps of closed episodes that wait behind a missing outcome of another one.
    kept = [replace(step, decision=step.decision._replace(plan=0)) for _, step in closed]
    arrays |= observed_steps(kept, (agent._form.size,), "closed.")
    about |= {"pending": pending, "closed": [[t, step.lost] for t, step in closed]}
    return arrays, about


def restored(
    about: Mapping[str, Any],
    arrays: Arrays,
    *,
    features: Features | None = None,
    ahead: Features | None = None,
) -> LinearAgent:
    """Return the agent that `record` was called with; malformed values raise whatever they lead to."""
    agent = LinearAgent.__new__(LinearAgent)
    count = _count
    shape = tuple(check_integer("shape", n, minimum=1, error=InvalidData) for n in about["shape"])
    options = LinearOptions(**about["options"])
    agent._declare(options, shape, about["n_actions"], about["horizon"], about["seed"])
    agent.episodes_begun, agent._plans = count("begun", about), count("plans", about)
    agent._before = count("before", about)
    agent._warmed = check_truth("warmed", about["warmed"], error=InvalidData)
    agent._untaken = check_truth("untaken", about["untaken"], error=InvalidData)
    if about["pseudo"]:
        steps = _columns(agent, arrays, "pseudo.")
        weights = as_array("pseudo.weights", arrays, (len(steps.action),), np.float64)
        agent._pseudo = Pseudo(steps, weights)
    if about["features"] is not None:
        if about.get("ahead") is not None:
            function = None if ahead is None else ahead.function
            agent._ahead = Features.restored(about["ahead"], under("ahead.", arrays), function)
        given = None if features is None else features.function
        found = Features.restored(about["features"], under("features.", arrays), given)
        agent._take_on(found)
        worlds = agent._ready_worlds()
        worlds.restore(under("worlds.", arrays), about["generators"])
        waiting = _columns(agent, arrays, "waiting.")
        agent._waiting = [waiting] if len(waiting.action) else []
    plans = [_plan(agent, arrays, i) for i in range(count("planned", about))]
    agent._plan = plans[0] if check_truth("current", about["current"], error=InvalidData) else None
    for chain in about["explorers"]:
        exploring = options.model.explorers if options.model.explorer == "optimistic" else 1
        like = (agent.horizon, agent.n_actions, exploring, found.number)
        agent._explorers[chain] = _finite(f"explorer.{chain}", arrays, like)
    episodes = [_episode(agent, arrays, i, kept, plans) for i, kept in enumerate(about["open"])]
    _restore_shield(agent, about["shield"], episodes)
    for now in episodes:
        agent._episodes.restore(now)
    _restore_order(agent, about, arrays, episodes)
    agent._episodes.begun = agent.episodes_begun
    return agent


def _episode(agent: LinearAgent, arrays: Arrays, i: int, kept: Any, plans: list[LinearPlan]) -> Open:
    name, number, place, *flags = kept
    number = check_integer("number", number, minimum=0, error=InvalidData)
    plan = plans[check_index("plan", place, len(plans), error=InvalidData)]
    prefix = f"open.{i}."
    steps = _steps(agent, arrays, prefix, number)
    for step, vote in zip(steps, votes_from(f"{prefix}votes", arrays, len(steps)), strict=True):
        step.decision = step.decision._replace(vote=vote)
    state = _finite(f"{prefix}now", arrays, (agent._form.size,))
    return OpenEpisode.restored(name, state, Pinned(plan, number), steps, flags)


def _steps(agent: LinearAgent, arrays: Arrays, prefix: str, plan: int) -> list[Played[Any]]:
    """Return the decided steps of a file, once their outcomes can be learnt."""
    steps = steps_from(arrays, (agent._form.size,), prefix, n_actions=agent.n_actions, plan=plan)
    for step in steps:
        agent._form.observation(f"{prefix}state", step.state)
        if step.outcome is not None:
            agent._form.transition(step.outcome)
    return steps


def _restore_shield(agent: LinearAgent, told: Any, episodes: list[Open]) -> None:
    going = {now.name: now for now in episodes if not now.released}
    known = _back(told)
    if {each[0] for each in known["episodes"]} != set(going):
        raise InvalidData("'shield' must hold the open episodes, got others.")
    plans: dict[Hashable, Plan[Any]] = {name: now.pinned.plan for name, now in going.items()}
    agent.shield.restore(known, plans, lambda kept: kept)
    for name, now in going.items():
        booked = now.steps[-1].decision.deficit_scaled if now.steps else 0.0
        if agent.shield.ledger(name).deficit != booked:
            raise InvalidData(f"'shield' must have booked {booked:g} in episode {name!r}, got another sum.")


def _restore_order(
    agent: LinearAgent, about: Mapping[str, Any], arrays: Arrays, episodes: list[Open]
) -> None:
    closed = _steps(agent, arrays, "closed.", 0)
    timed: list[Timed] = []
    for step, (t, lost) in zip(closed, about["closed"], strict=True):
        step.lost = check_truth("lost", lost, error=InvalidData)
        timed.append((check_index("t", t, agent.horizon, error=InvalidData), step))
    pending: list[Timed] = []
    for i, place in about["pending"]:
        if i < 0:
            pending.append(timed[check_index("pending", place, len(timed), error=InvalidData)])
        else:
            steps = episodes[check_index("pending", i, len(episodes), error=InvalidData)].steps
            pending.append((place, steps[check_index("pending", place, len(steps), error=InvalidData)]))
    agent._order.restore(pending)


def _plan(agent: LinearAgent, arrays: Arrays, i: int) -> LinearPlan:
    worlds, model = agent._ready_worlds(), agent.options.model
    A, H, F = agent.n_actions, agent.horizon, worlds.features.number
    theta = _finite(f"plan.{i}.theta", arrays, (H, A, model.lanes, F))
    some = np.shape(arrays[f"plan.{i}.top"])[0] > 0
    top = _finite(f"plan.{i}.top", arrays, (H, A, model.worlds, F) if some else (0, 0, 0, 0))
    weight = np.array(steps_left(H, agent.options.discount))
    values = Coefficients(theta, top, model.low * weight, model.high * weight)
    return LinearPlan(values, worlds.features, model, agent._explorers)


def _columns(agent: LinearAgent, arrays: Arrays, prefix: str) -> Steps:
    """Return the transitions of a file, once they are some of this agent."""
    number = len(np.atleast_1d(arrays[f"{prefix}action"]))
    blank = no_steps(agent._form.size)
    limits = {"action": agent.n_actions, "time": agent.horizon}
    steps = Steps(
        *(
            as_array(
                prefix + name,
                arrays,
                (number, *like.shape[1:]),
                like.dtype.type,
                below=limits.get(name),
            )
            for name, like in zip(Steps._fields, blank, strict=True)
        )
    )
    if not all(np.isfinite(each).all() for each in (steps.observation, steps.reward, steps.after)):
        raise InvalidData(f"{prefix!r} must hold finite numbers, got others.")
    return steps


def _finite(name: str, arrays: Arrays, shape: tuple[int, ...]) -> NDArray[np.float64]:
    found = as_array(name, arrays, shape, np.float64)
    if not np.isfinite(found).all():
        raise InvalidData(f"{name!r} must be finite, got others.")
    return found


def _count(name: str, about: Mapping[str, Any]) -> int:
    return check_integer(name, about[name], minimum=0, error=InvalidData)


def _as_json(options: LinearOptions) -> dict[str, Any]:
    """Return options as JSON has them; the constructor reads them again."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in asdict(options).items()
    }


def _plain(value: Any) -> Any:
    """Return a record of a shield with arrays as lists under a key of their own."""
    if isinstance(value, np.ndarray):
        return {ARRAY: value.tolist()}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _back(value: Any) -> Any:
    """Return what `_plain` was called with."""
    if isinstance(value, Mapping):
        if set(value) == {ARRAY}:
            return np.array(value[ARRAY], dtype=np.float64)
        return {name: _back(each) for name, each in value.items()}
    return [_back(each) for each in value] if isinstance(value, list) else value
