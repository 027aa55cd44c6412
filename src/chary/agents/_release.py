"""The release of candidate policies by a coin, docs/canary.md: evidence, promotion, dropping.

Whole episodes are played by the incumbent or, with probability p, by a candidate. The mean return of each
policy is bounded by the returns of the episodes that it really played, for all numbers of episodes at once.
While the bounds hold, an episode loses at most p (U_incumbent - L_candidate) <= eta in expectation, before
the coin is tossed.

Returns count per policy in the order in which episodes *started*: the longest prefix whose returns are all
known, whatever the delays. A lost return counts 0 in the lower bound and the most in the upper one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, Ints
from chary.errors import InvalidData, check_choice, check_integer, check_real
from chary.statistics.always_valid import lower_bound, upper_bound
from chary.storage.sealed import as_array
from chary.texts import shown

# Bounds are computed again when a policy has this share more returns, and at least one more.
REFRESH = 0.01
NO_SHARES: Floats = np.zeros((0, 0))

# The numbers that are kept of a policy.
COUNTED = ("n", "lost", "refreshed", "low", "high", "lower", "upper")
# Sums of returns are rounded.
SLACK = 1e-6
CHANGES = ("promoted", "dropped", "replaced")


class Assigned(NamedTuple):
    """The policy of an episode: its `number` from 1, and the `probability` of the candidate's.

    `candidate` says whether the episode drew the candidate.
    """

    policy: int
    candidate: bool
    probability: float


class Evidence(NamedTuple):
    """What the returns show of one policy: their number and mean, and bounds on its value.

    The mean counts lost returns as the least, and is 0 without returns.
    """

    policy: int
    returns: int
    lost: int
    mean: float
    lower: float
    upper: float

    def describe(self) -> str:
        """Return the evidence in a few words."""
        lost = f" ({self.lost} lost)" if self.lost else ""
        return (
            f"{self.returns} returns{lost}, mean {self.mean:.6g}, value {self.lower:.6g} to {self.upper:.6g}"
        )


class Change(NamedTuple):
    """A promotion or the end of a candidate, with the evidence; `episode` is the number begun before it."""

    kind: str
    episode: int
    probability: float
    candidate: Evidence
    incumbent: Evidence

    def describe(self) -> str:
        """Return the change and its evidence as one line."""
        return (
            f"policy {self.candidate.policy} {self.kind} after {self.episode} episodes, at p = "
            f"{self.probability:.3g}: {self.candidate.describe()}; incumbent {self.incumbent.policy}: "
            f"{self.incumbent.describe()}"
        )


class Slot:
    """The place of one episode among those of its policy; its return, a share of the most, may come late."""

    __slots__ = ("high", "known", "low")

    def __init__(self) -> None:
        self.known, self.low, self.high = False, 0.0, 1.0

    def resolve(self, value: float | None) -> None:
        """Note the return, None where it is lost."""
        self.known = True
        if value is not None:
            self.low = self.high = value


@dataclass(slots=True, eq=False)
class Tried:
    """A policy and the returns of its episodes, as shares of the most that an episode can return.

    `actions` are (H, S); a random policy has `shares` (S, A) besides, which are played in their place.
    """

    number: int
    actions: Ints
    shares: Floats = field(default_factory=lambda: NO_SHARES)
    waiting: deque[Slot] = field(default_factory=deque)
    n: int = 0
    lost: int = 0
    low: float = 0.0
    high: float = 0.0
    lower: float = 0.0
    upper: float = 1.0
    refreshed: int = 0

    def begin(self) -> Slot:
        """Return the place of an episode that starts now."""
        slot = Slot()
        self.waiting.append(slot)
        return slot

    def count(self) -> None:
        """Count the returns whose turn has come."""
        while self.waiting and self.waiting[0].known:
            slot = self.waiting.popleft()
            self.add(slot.low, slot.high)

    def add(self, low: float, high: float) -> None:
        """Count a return between two values."""
        self.n += 1
        self.lost += int(low < high)
        self.low += low
        self.high += high

    @property
    def due(self) -> int:
        """The number of returns at which the bounds are computed again."""
        return self.refreshed + max(1, int(REFRESH * self.refreshed))

    def refresh(self, alpha: float) -> None:
        """Compute the bounds, each of which fails with probability `alpha`; they never get wider."""
        n = self.n
        self.refreshed = n
        self.lower = lower_bound(min(self.low, n), n, alpha, known=self.lower)
        self.upper = upper_bound(min(self.high, n), n, alpha, known=self.upper)


@final
class Release:
    """All policies that were tried, one of them the incumbent and at most one the candidate.

    Args:
        actions: The actions of the first incumbent, (H, S).
        eta: The budget as a share of the most that an episode can return.
        delta: The probability with which any bound of the run may fail.
        share: The largest probability of the candidate.
        shares: The probabilities (S, A) of a random incumbent.
    """

    def __init__(
        self, actions: Ints, *, eta: float, delta: float, share: float, shares: Floats = NO_SHARES
    ) -> None:
        self._eta, self._delta, self._share = eta, delta, share
        # By number; the late returns of those that are neither incumbent nor candidate no longer count.
        self.tried = [Tried(1, actions, shares)]
        self.incumbent = self.tried[0]
        self.candidate: Tried | None = None
        self.episodes = 0
        self.changes: list[Change] = []

    @property
    def probability(self) -> float:
        """The probability with which an episode that begins now is the candidate's."""
        if self.candidate is None:
            return 0.0
        most = self.incumbent.upper - self.candidate.lower
        return self._share if most <= self._eta else min(self._share, self._eta / most)

    def begin(self, u: float) -> tuple[Assigned, Slot]:
        """Toss the coin of an episode that starts now, with a uniform u."""
        p = self.probability
        drawn = u < p and self.candidate is not None
        policy = self.candidate if drawn and self.candidate is not None else self.incumbent
        self.episodes += 1
        return Assigned(policy.number, drawn, p), policy.begin()

    def propose(self, actions: Ints) -> None:
        """Take a policy for the next candidate; one that is still undecided is replaced."""
        if self.candidate is not None:
            self._end("replaced", self.candidate)
        self.candidate = Tried(len(self.tried) + 1, actions)
        self.tried.append(self.candidate)

    def settle(self) -> bool:
        """Count the returns that are known, decide by them, and return whether any bound was computed.

        Between two computations nothing changes, the probability included.
        """
        news = False
        for policy in (self.incumbent, self.candidate):
            if policy is not None:
                policy.count()
                if policy.n >= policy.due:
                    policy.refresh(self._alpha(policy.number))
                    news = True
        if news:
            self._decide()
        return news

    def changes_in(self, most: float, least: float) -> tuple[Change, ...]:
        """Return the changes in units in which episodes return between `least` and `least + most`."""

        def scaled(evidence: Evidence) -> Evidence:
            amounts = (least + most * each for each in evidence[3:])
            return Evidence(*evidence[:3], *amounts)

        return tuple(
            change._replace(candidate=scaled(change.candidate), incumbent=scaled(change.incumbent))
            for change in self.changes
        )

    def record(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and plain values for `restore`."""
        tried = self.tried
        arrays: dict[str, NDArray[Any]] = {
            "tables": np.stack([each.actions for each in tried]).astype(np.int32),
            "shares": tried[0].shares,
            "counted": np.array([[getattr(each, name) for name in COUNTED] for each in tried], dtype=float),
        }
        about = {
            "waiting": [[[slot.known, slot.low, slot.high] for slot in each.waiting] for each in tried],
            "incumbent": self.incumbent.number,
            "candidate": None if self.candidate is None else self.candidate.number,
            "episodes": self.episodes,
            "changes": [[*change[:3], *map(list, change[3:])] for change in self.changes],
        }
        return arrays, about

    def restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Take on what `record` returned; the actions must have been checked.

        Raises:
            InvalidData: if it cannot have been.
        """
        tables = np.array(arrays["tables"], dtype=np.int64)
        counted = as_array("counted", arrays, (len(tables), len(COUNTED)), np.float64)
        self.tried = []
        for i, (numbers, waiting) in enumerate(zip(counted.tolist(), about["waiting"], strict=True)):
            n, lost, refreshed, *amounts = numbers
            tried = Tried(i + 1, tables[i], np.array(arrays["shares"]) if i == 0 else NO_SHARES)
            tried.n, tried.lost, tried.refreshed = int(n), int(lost), int(refreshed)
            tried.low, tried.high, tried.lower, tried.upper = amounts
            tried.waiting.extend(map(_slot, waiting))
            _check_counted(tried)
            self.tried.append(tried)
        self.incumbent = self.numbered(about["incumbent"])
        self.candidate = None if about["candidate"] is None else self.numbered(about["candidate"])
        self.episodes = check_integer("episodes", about["episodes"], minimum=0, error=InvalidData)
        self.changes = [
            Change(check_choice("change", kind, CHANGES), int(episode), float(p), *map(_evidence, pair))
            for kind, episode, p, *pair in about["changes"]
        ]

    def numbered(self, number: object) -> Tried:
        """Return the policy of a number from 1.

        Raises:
            InvalidData: if there is none.
        """
        i = check_integer("policy", number, minimum=1, error=InvalidData) - 1
        if i >= len(self.tried):
            raise InvalidData(f"'policy' must be one of {len(self.tried)}, got {shown(number)}.")
        return self.tried[i]

    def _alpha(self, number: int) -> float:
        # The sum over all policies is delta, half of it for either side.
        return self._delta / (2.0 * number * (number + 1))

    def _decide(self) -> None:
        candidate, incumbent = self.candidate, self.incumbent
        if candidate is None:
            return
        if candidate.lower > incumbent.upper:
            self._log("promoted", candidate)
            incumbent.waiting.clear()
            self.incumbent, self.candidate = candidate, None
        elif candidate.upper < incumbent.lower:
            self._end("dropped", candidate)

    def _end(self, kind: str, candidate: Tried) -> None:
        self._log(kind, candidate)
        candidate.waiting.clear()
        self.candidate = None

    def _log(self, kind: str, candidate: Tried) -> None:
        evidence = (evidence_of(candidate), evidence_of(self.incumbent))
        self.changes.append(Change(kind, self.episodes, self.probability, *evidence))


def evidence_of(policy: Tried) -> Evidence:
    """Return what is known of a policy, as shares of the most that an episode can return."""
    mean = policy.low / policy.n if policy.n else 0.0
    return Evidence(policy.number, policy.n, policy.lost, mean, policy.lower, policy.upper)


def _evidence(values: Sequence[Any]) -> Evidence:
    return Evidence(*map(int, values[:3]), *map(float, values[3:]))


def _slot(values: Sequence[Any]) -> Slot:
    slot = Slot()
    slot.known, slot.low, slot.high = bool(values[0]), float(values[1]), float(values[2])
    if not 0.0 <= slot.low <= slot.high <= 1.0:
        raise InvalidData(f"'waiting' must hold returns between 0 and 1, got {shown(values)}.")
    return slot


def _check_counted(tried: Tried) -> None:
    n = check_integer("n", tried.n, minimum=0, error=InvalidData)
    low = check_real("low", tried.low, low=0.0, high=n + SLACK, error=InvalidData)
    check_real("high", tried.high, low=low, high=n + SLACK, error=InvalidData)
    check_real("lower", tried.lower, low=0.0, high=1.0, error=InvalidData)
    check_real("upper", tried.upper, low=0.0, high=1.0, error=InvalidData)
    check_integer("refreshed", tried.refreshed, minimum=0, error=InvalidData)
