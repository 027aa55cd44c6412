"""ICU-Sepsis: the public MDP of sepsis treatment (icu-sepsis 2.0.1, MIT; see data/README.md)."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Ints, frozen
from chary.errors import InvalidData, check_choice, check_integer
from chary.mdp import FiniteMDP, KnownReward

ACTIONS = ("admissible", "all")
DEATH, SURVIVAL, SINK = 713, 714, 715
DATA_SHA256 = "512bcce670ce9caa262483611c33d5ab4cde496e57c7eb36afa195bcb3f5ac8d"

Numbers = NDArray[Any]


class SepsisRows(NamedTuple):
    """The admissible pairs of the data, in order of state and action, with counts instead of probabilities.

    Pair p is (`state[p]`, `action[p]`) and has the entries `begin[p]:begin[p + 1]` of `successor` and
    `counts`. `start`, shape (S,), and `expert`, shape (S, A), are counts too.
    """

    n_states: int
    n_actions: int
    state: Ints
    action: Ints
    begin: Ints
    successor: Ints
    counts: Numbers
    start: Ints
    expert: Ints


def sepsis(*, actions: str = "admissible", horizon: int = 20) -> FiniteMDP:
    """Return ICU-Sepsis: 713 states of a patient, then death, survival and a sink; 25 treatments.

    Entering survival earns 1, everything else 0, so the value of a policy is the probability of survival
    within `horizon` steps from admission, and 1 caps it. The three last states are terminal; nothing leads to
    the sink. An episode starts in a random state. `recorded_policy` has the clinicians' most frequent action
    per state.

    Args:
        actions: `admissible` allows the 2,238 pairs that clinicians used often enough for their outcomes to
            be known; `all` allows all 25 actions, where a pair that is not admissible has the mean row of
            those that are.
        horizon: H.

    Raises:
        InvalidData: if the data file is not the one that was shipped.
        UnknownName: if `actions` is neither `admissible` nor `all`.

    Example:
        >>> sepsis().setting.n_pairs
        2238

    Reference: Choudhary, Gupta and Thomas (2024), "ICU-Sepsis: A benchmark MDP built from real medical data".
    """
    check_choice("actions", actions, ACTIONS)
    return _shipped(actions, check_integer("horizon", horizon, minimum=1))


@lru_cache(maxsize=2)
def _shipped(actions: str, horizon: int) -> FiniteMDP:
    # An MDP is read-only, so one copy can be shared; with all actions it takes seconds to build.
    return build(load(), actions=actions, horizon=horizon)


def clinicians() -> NDArray[np.float64]:
    """Return the recorded policy of the clinicians, probabilities of shape (S, A), zero in terminal states.

    They sometimes chose actions that are not admissible, so it can be evaluated with `actions="all"` only.
    """
    expert = load().expert
    share: NDArray[np.float64] = expert / np.maximum(expert.sum(axis=1, keepdims=True), 1)
    return share


@cache
def load() -> SepsisRows:
    """Read the data file, and refuse one that differs from the shipped one."""
    content = resources.files("chary.envs").joinpath("data", "sepsis.npz").read_bytes()
    return parse(content)


def parse(content: bytes) -> SepsisRows:
    """Return the rows in the bytes of `data/sepsis.npz`.

    Raises:
        InvalidData: if their SHA-256 is not `DATA_SHA256`.
    """
    digest = hashlib.sha256(content).hexdigest()
    if digest != DATA_SHA256:
        raise InvalidData(
            f"'sepsis.npz' must have the SHA-256 {DATA_SHA256}, got {digest}. "
            "Reinstall chary, or rebuild the file with scripts/build_sepsis.py."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: frozen(stored[name], np.int64) for name in stored.files}
    n_states, n_actions = (int(n) for n in arrays.pop("shape"))
    begin = np.concatenate([[0], np.cumsum(arrays.pop("length"))])
    return SepsisRows(
        n_states=n_states, n_actions=n_actions, begin=begin, counts=arrays.pop("count"), **arrays
    )


def build(rows: SepsisRows, *, actions: str, horizon: int, name: str = "sepsis") -> FiniteMDP:
    """Return the MDP of `rows`, whose counts may be any positive numbers."""
    S, A = rows.n_states, rows.n_actions
    n_pairs = len(rows.state)
    admissible = np.zeros((S, A), dtype=bool)
    admissible[rows.state, rows.action] = True
    P = np.zeros((n_pairs, S))
    pair = np.repeat(np.arange(n_pairs), np.diff(rows.begin))
    P[pair, rows.successor] = rows.counts
    P /= P.sum(axis=1, keepdims=True)

    lists: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
    first = np.searchsorted(rows.state, np.arange(S + 1))
    for s in range(S):
        own = P[first[s] : first[s + 1]]
        if not len(own):
            continue
        for row, a in zip(own, rows.action[first[s] : first[s + 1]], strict=True):
            lists[s, int(a)] = _entries(row)
        if actions == "all":
            mean = _entries(own.mean(axis=0))
            lists.update({(s, a): mean for a in range(A) if not admissible[s, a]})
    mdp = FiniteMDP.from_successors(
        lists,
        n_states=S,
        n_actions=A,
        name=name,
        horizon=horizon,
        start=rows.start / rows.start.sum(),
        terminal=(DEATH, SURVIVAL, SINK),
        value_cap=1.0,
        recorded_policy=np.where(admissible, rows.expert, 0),
    )
    # Successor lists do not contain states never seen after a pair, but the reward there is known as well: 0.
    return replace(mdp, known=_pays_for_survival(mdp.setting.n_pairs))


def _entries(row: NDArray[np.float64]) -> list[tuple[int, float, float]]:
    return [(int(x), float(row[x]), float(x == SURVIVAL)) for x in np.flatnonzero(row)]


def _pays_for_survival(n_pairs: int) -> KnownReward:
    nothing = np.zeros(n_pairs)
    start, successor = np.arange(n_pairs + 1, dtype=np.int64), np.full(n_pairs, SURVIVAL, dtype=np.int64)
    return KnownReward(*map(frozen, (start, successor, np.ones(n_pairs), nothing, nothing)))
