"""The result of a judged training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Floats
from chary.audit import covers, drops, falls, violates
from chary.deep.environment import Environment
from chary.deep.loop import EpisodeLog
from chary.deep.options import DeepOptions
from chary.deep.simulation.audit import EpisodeAudit
from chary.standing import Grounds, Standing

# Columns of held-out episodes: how many actions were audited, and how many of their charges sufficed.
COVERAGE = ("deviations", "covered")
# Columns of audits against the warm-up's baseline; there was no charge against it.
INCUMBENT = ("deficit", "signed_deficit", "baseline_value", "deviations")


def coverage_in_words(counts: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> str | None:
    """Return how many charges covered the true gap, by kind of episodes; None where none was audited.

    Example:
        >>> coverage_in_words({"audited": ([1, 2], [2, 2]), "held-out": ([], [])})
        'charges covered the true gap at 3 of 4 deviating steps of audited episodes'
    """
    told = []
    for kind, (covered, deviations) in counts.items():
        if number := int(np.sum(deviations)):
            told.append(f"{int(np.sum(covered))} of {number} deviating steps of {kind} episodes")
    return f"charges covered the true gap at {' and '.join(told)}" if told else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeepRun:
    """A training run and the truth about a sample of its episodes, in the rewards that the learner sees.

    Args:
        environment: The environment played.
        options: The agent, and how it learnt.
        seed: The seed of the run.
        audit_every: One episode in so many was audited; 0 for none.
        seconds: Seconds of playing.
        log: The log of every episode.
        audited: The numbers of the audited episodes, shape (n,).
        audit: The truth about them, each of shape (n,).
        incumbent: The truth about the same episodes against the baseline at the end of the warm-up. With the
            same seed and options that is one policy for all agents, up to rounding.
        held_out: The truth about an episode held out after each of them, with random deviations.
        chains: Meta-rollouts started, finished and abandoned, and episodes in which none moved.
        counts: What else the learner counted, by name, such as its retreats to better networks.
        grounds: Everything that the promise of the budget leans on, with the result of any test of it.
    """

    environment: Environment
    options: DeepOptions
    seed: int
    audit_every: int
    seconds: float
    log: EpisodeLog
    audited: NDArray[np.int64]
    audit: EpisodeAudit
    incumbent: EpisodeAudit
    held_out: EpisodeAudit
    chains: Mapping[str, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    grounds: Grounds = field(default_factory=Grounds)

    @property
    def ledgers(self) -> tuple[int, int]:
        """How many ledgers covered the true deficit, of audited episodes that deviated, and of how many."""
        deviated = np.asarray(self.audit.deviations) > 0
        booked = np.asarray(self.log.deficit)[self.audited]
        covered = covers(booked, np.asarray(self.audit.deficit)) & deviated
        return int(covered.sum()), int(deviated.sum())

    @property
    def raw_returns(self) -> Floats:
        """Discounted returns in the environment's raw units, before rewards were standardised."""
        mean, std = self.environment.reward_mean, self.environment.reward_std
        steps = np.asarray(self.log.steps)
        weights = np.power(self.options.discount, np.arange(int(steps.max())))
        total = np.concatenate([[0.0], np.cumsum(weights)])[steps]
        return np.asarray(self.log.returns * std + mean * total)

    def violations(self, eta: float, *, incumbent: bool = False) -> NDArray[np.bool_]:
        """Return which audited episodes had a true deficit above `eta`, shape (n,).

        Their reference is the baseline of the episode or, if so chosen, that of the warm-up.
        """
        return np.asarray(violates(np.asarray((self.incumbent if incumbent else self.audit).deficit), eta))

    @property
    def standing(self) -> Standing:
        """The standing of the budget's promise, with the coverage that was measured."""
        counts = {
            "audited": (self.audit.covered, self.audit.deviations),
            "held-out": (self.held_out.covered, self.held_out.deviations),
        }
        told = [coverage_in_words(counts)]
        covered, number = self.ledgers if self.options.shielded else (0, 0)
        if number:
            told.append(f"ledgers covered the true deficit in {covered} of {number} audited episodes")
        found = "; ".join(each for each in told if each) or None
        return replace(self.grounds, coverage=found).standing

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything by name: (K, ...) for every episode, (n,) for audited ones.

        These are `true_...`, `incumbent_...` and `held_out_...`.
        """
        log = {name: np.asarray(value) for name, value in self.log._asdict().items()}
        audit = {f"true_{name}": np.asarray(value) for name, value in self.audit._asdict().items()}
        held_out = {f"held_out_{name}": np.asarray(getattr(self.held_out, name)) for name in COVERAGE}
        incumbent = {f"incumbent_{name}": np.asarray(getattr(self.incumbent, name)) for name in INCUMBENT}
        truth = {"audited": self.audited, **audit, **incumbent, **held_out}
        return {**log, "raw_returns": self.raw_returns, **truth}

    def summary(self) -> dict[str, Any]:
        """Return the run in one flat dictionary of plain numbers, after the environment's labels."""
        raw, log, audit = self.raw_returns, self.log, self.audit
        shielded, (low, longest), ledgers = self.options.shielded, drops(raw), self.ledgers
        eta = self.options.eta if shielded else None
        return {
            **dict(self.environment.labels),
            "agent": self.options.agent,
            "eta": eta,
            "standing": self.standing.to_json(),
            "seed": self.seed,
            "episodes": len(raw),
            "steps": int(log.steps.sum()),
            "best_raw_return": float(raw.max()),
            "best_episode": int(raw.argmax()),
            "mean_raw_return": float(raw.mean()),
            "last_raw_return": float(raw[-max(1, len(raw) // 10) :].mean()),
            "max_deficit": float(log.deficit.max()),
            "explored": int(log.explored.sum()),
            "deviated": int(log.deviated.sum()),
            **{f"chains_{name}": number for name, number in self.chains.items()},
            "audit_every": self.audit_every,
            "audited": len(self.audited),
            "violations": None if eta is None else int(self.violations(eta).sum()),
            "violations_incumbent": None if eta is None else int(self.violations(eta, incumbent=True).sum()),
            "max_true_deficit": float(audit.deficit.max()) if len(self.audited) else None,
            "mean_signed_deficit": float(audit.signed_deficit.mean()) if len(self.audited) else None,
            "baseline_falls": falls(np.asarray(audit.baseline_value)),
            "deviations": int(audit.deviations.sum()),
            "covered": int(audit.covered.sum()),
            "booked": int(audit.booked.sum()),
            "booked_covered": int(audit.booked_covered.sum()),
            "held_out_deviations": int(self.held_out.deviations.sum()),
            "held_out_covered": int(self.held_out.covered.sum()),
            "ledgers": ledgers[1] if shielded else None,
            "ledgers_covered": ledgers[0] if shielded else None,
            "drops": low,
            "longest_drop": longest,
            **self.counts,
            "seconds": self.seconds,
        }
