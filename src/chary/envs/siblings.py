"""Siblings: other random MDPs of the same size and kind as a problem, on which bounds are calibrated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from chary.envs.corridor import corridor
from chary.envs.inventory import inventory
from chary.envs.random_mdp import random
from chary.envs.riverswim import riverswim
from chary.envs.sepsis import DEATH, build, load
from chary.mdp import FiniteMDP

Options = Mapping[str, Any]


def inventory_sibling(rng: np.random.Generator, options: Options) -> FiniteMDP:
    """Redraw the demand distribution, and every cost within half of its value."""
    drawn = dict(options)
    demand = options["demand"]
    n_levels = int(options["capacity"]) + 1 if demand is None else len(demand)
    drawn["demand"] = rng.dirichlet(np.ones(n_levels))
    for name in ("fixed_cost", "unit_cost", "holding_cost", "unit_revenue"):
        drawn[name] = float(options[name]) * rng.uniform(0.5, 1.5)
    return inventory(**drawn)


def sepsis_sibling(rng: np.random.Generator, options: Options) -> FiniteMDP:
    """Give every state the rows of another with as many admissible actions, drawn around their counts.

    A row keeps its successors, except that a transition to the same state stays one; start states are
    shuffled. So sparsity, lengths of stay and the spread of survival are typical of the problem, while the
    values of states are almost unrelated to the original's.
    """
    rows = load()
    n_patients = DEATH
    first = np.searchsorted(rows.state, np.arange(n_patients + 1))
    n_admissible = np.diff(first)
    donor = np.arange(n_patients)
    for n in np.unique(n_admissible):
        same = np.flatnonzero(n_admissible == n)
        donor[same] = rng.permutation(same)
    # Pair p of the sibling is the donor's action of the same rank.
    rank = np.arange(len(rows.state)) - first[rows.state]
    source = first[donor[rows.state]] + rank
    length = np.diff(rows.begin)[source]
    begin = np.concatenate([[0], np.cumsum(length)])
    within = np.arange(begin[-1]) - np.repeat(begin[:-1], length)
    entry = np.repeat(rows.begin[:-1][source], length) + within
    here, there = np.repeat(rows.state, length), np.repeat(donor[rows.state], length)
    x = rows.successor[entry]
    x = np.where(x == there, here, np.where(x == here, there, x))
    expert = np.zeros_like(rows.expert)
    expert[rows.state, rows.action] = rows.expert[rows.state[source], rows.action[source]]
    start = np.zeros_like(rows.start)
    start[:n_patients] = rng.permutation(rows.start[:n_patients])
    # Gamma draws, divided by their sum later, are a Dirichlet draw; a count of 1 gives 0 by underflow only.
    counts = np.maximum(rng.standard_gamma(rows.counts[entry]), np.finfo(float).tiny)
    drawn = rows._replace(begin=begin, successor=x, counts=counts, start=start, expert=expert)
    return build(drawn, actions=options["actions"], horizon=options["horizon"])


def corridor_sibling(rng: np.random.Generator, options: Options) -> FiniteMDP:
    """Redraw every reward and probability within a fifth of its value, as far as its range allows."""
    drawn = _redrawn(rng, options, 0.2, keep=("length", "horizon", "arms"))
    safe = drawn["safe_reward"]
    drawn["early_gap"] = min(drawn["early_gap"], drawn["early_reward"])
    drawn["late_gain"] = min(drawn["late_gain"], safe, 1 - safe)
    return corridor(**drawn)


def riverswim_sibling(rng: np.random.Generator, options: Options) -> FiniteMDP:
    """Redraw every reward and probability within half of its value, as far as its range allows."""
    drawn = _redrawn(rng, options, 0.5, keep=("n_states", "horizon"))
    drawn["backward"] = min(drawn["backward"], 1 - drawn["forward"])
    return riverswim(**drawn)


def random_sibling(rng: np.random.Generator, options: Options) -> FiniteMDP:
    """Draw another MDP of the same size."""
    seed = int(rng.integers(2**63))
    # A probability of 2^-63 is still not 0.
    return random(**{**options, "seed": seed if seed != options["seed"] else seed + 1})


def _redrawn(
    rng: np.random.Generator, options: Options, share: float, *, keep: Sequence[str]
) -> dict[str, Any]:
    """Return options, all but those to `keep` drawn within a share of their value, and at most 1."""
    return {
        name: value if name in keep else min(float(value) * rng.uniform(1 - share, 1 + share), 1.0)
        for name, value in options.items()
    }


SIBLINGS: dict[str, Callable[[np.random.Generator, Options], FiniteMDP]] = {
    "inventory": inventory_sibling,
    "sepsis": sepsis_sibling,
    "corridor": corridor_sibling,
    "riverswim": riverswim_sibling,
    "random": random_sibling,
}
