"""The result of one run: the cost of every episode, in the user's units, and its standing."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

import chary
from chary.agents._release import CHANGES, Change
from chary.agents.protocol import POSTERIOR, AgentSpec
from chary.arrays import Bools, Floats, Ints
from chary.audit import baseline_over_time, violates
from chary.errors import InvalidSetting, check_choice, check_real
from chary.mdp import RewardScale
from chary.standing import Standing
from chary.storage.archives import npz_bytes
from chary.storage.files import as_json

RUN_FILES = ("episodes.csv", "run.npz", "run.json")

# The kinds of columns, by their annotation.
DTYPES: dict[object, type[np.generic]] = {Floats: np.float64, Ints: np.int64, Bools: np.bool_}


def _freeze(value: object) -> None:
    """Make the arrays of a result read-only: what was measured stays what it was."""
    for each in fields(value):  # type: ignore[arg-type]
        array = getattr(value, each.name)
        if isinstance(array, np.ndarray):
            array.setflags(write=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainLog:
    """One row per chain, in the order they started: `episodes` is N_m, 0 while it is unfinished.

    N_m falls into `exhausted` (refused in that episode), `long` (advanced by H/4 or more) and `missed`;
    `fed` counts the episodes that advanced the chain.
    """

    started: int
    finished: int
    abandoned: int
    blocked: int
    born: Ints
    episodes: Ints
    fed: Ints
    exhausted: Ints
    long: Ints

    @property
    def missed(self) -> Ints:
        """Episodes of a finished chain's life that neither exhausted its budget nor advanced it far."""
        return np.where(self.episodes > 0, self.episodes - self.exhausted - self.long, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Every step of a run: `state` (K, H + 1), the rest (K, H); -1 after the end of an episode.

    `booked` is in scaled units; `chain` is the chain whose explorer chose, -1 for none.
    """

    state: Ints
    action: Ints
    explored: Bools
    booked: Floats
    chain: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryLog:
    """One entry per episode of a canary, and every promotion and drop with its evidence.

    `policy` is the number of the policy that played, `probability` that of drawing the candidate, and `loss`
    the true expected loss before the coin was tossed: p (V_incumbent - V_candidate), in the user's units.
    """

    policy: Ints
    probability: Floats
    loss: Floats
    changes: tuple[Change, ...]

    def summary(self, eta: float, span: float) -> dict[str, Any]:
        """Return plain values; a breach is an episode whose expected loss exceeds `eta`."""
        kinds = [change.kind for change in self.changes]
        return {
            "breaches": int(violates(self.loss / span, eta / span).sum()),
            "max_loss": float(self.loss.max()),
            "mean_probability": float(self.probability.mean()),
            **{kind: kinds.count(kind) for kind in CHANGES},
            "changes": [
                {
                    **change._asdict(),
                    "candidate": change.candidate._asdict(),
                    "incumbent": change.incumbent._asdict(),
                }
                for change in self.changes
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpisodeArrays:
    """The arrays of a run with one entry per episode, shape (K,), in the order of the columns of its table.

    This is the one list of them: the compiled record, results and files follow from it.
    """

    regret: Floats
    true_deficit: Floats
    signed_deficit: Floats
    incumbent_deficit: Floats
    baseline_value: Floats
    deficit: Floats
    returns: Floats
    exploring_steps: Ints
    deviating_steps: Ints
    length: Ints
    blocked: Bools
    value_failed: Bools
    bonus_failed: Bools
    charge_failed: Bools
    largest_gap: Floats


def _columns_of(arrays: type) -> dict[str, type[np.generic]]:
    return {name: DTYPES[kind] for name, kind in get_type_hints(arrays).items() if kind in DTYPES}


# Columns by name, with their types: per episode, per step and per chain.
EPISODE_COLUMNS = _columns_of(EpisodeArrays)
STEP_COLUMNS = _columns_of(Steps)
CHAIN_COLUMNS = _columns_of(ChainLog)
CANARY_COLUMNS = _columns_of(CanaryLog)


def no_chains() -> ChainLog:
    """Return the log of an agent without chains."""
    columns = {name: np.zeros(0, dtype) for name, dtype in CHAIN_COLUMNS.items()}
    return ChainLog(started=0, finished=0, abandoned=0, blocked=0, **columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run(EpisodeArrays):
    """The result of K episodes; arrays have shape (K,) and are in the user's reward units.

    `regret` is the loss against the optimum; `true_deficit` is z* of eq. (1) against the episode's own
    baseline and `incumbent_deficit` the same against the incumbent, the policy of the first day: the `prior`
    of the agent, or else the warm-up's baseline. `baseline_value` is the true value of the episode's
    baseline, a mean over first states, and `incumbent_value` that of the incumbent. `signed_deficit` is
    unbiased for the weaker constraint, eq. (2); `deficit` is what the ledger booked. The `*_failed` arrays
    mark where a bound failed (see `coverage`), and `largest_gap` is the largest true gap there. `planning`
    counts the `batches` of the incremental planner where it plans several episodes at once, and the `rows`
    it evaluated.
    """

    problem: str
    spec: AgentSpec
    standing: Standing
    scale: RewardScale
    episodes: int
    warmup: int
    seed: int
    coverage: str
    seconds: float
    incumbent_value: float
    chains: ChainLog
    steps: Steps | None = None
    planning: dict[str, int] = field(default_factory=dict)
    canary: CanaryLog | None = None

    def __post_init__(self) -> None:
        _freeze(self)
        _freeze(self.chains)
        for part in (self.steps, self.canary):
            if part is not None:
                _freeze(part)

    def violations(self, eta: float | None = None, *, against: str = "own") -> Bools:
        """Return which episodes broke a budget: z* > eta + 1e-12 in scaled units.

        Args:
            eta: The budget in the user's units; by default the agent's own.
            against: `own` judges by the baseline of the agent's own data, `incumbent` by the first day's.

        Raises:
            InvalidSetting: if there is no budget to judge by.
        """
        budget = self.spec.eta if eta is None else check_real("eta", eta, low=0.0)
        if budget is None:
            raise InvalidSetting("'eta' must be given where the agent has no budget of its own, got None.")
        deficits = {"own": self.true_deficit, "incumbent": self.incumbent_deficit}
        check_choice("against", against, deficits)
        return np.asarray(violates(deficits[against] / self.scale.span, budget / self.scale.span))

    def summary(self) -> dict[str, Any]:
        """Return the run in one dictionary of plain values, the object `chary run --json` prints."""
        eta = self.spec.eta
        judged = eta is not None
        # Only a shield prices steps: nothing was looked at where an agent without one was judged as played.
        # A canary relies on no such bounds.
        covered = self.spec.shielded or (self.coverage == "everywhere" and self.canary is None)
        bounded = covered and self.spec.bonus != POSTERIOR
        span = self.scale.span
        regret = float(self.regret.sum())
        return {
            "problem": self.problem,
            "agent": self.spec.label,
            **self.spec.options(),
            "standing": self.standing.to_json(),
            "eta": eta,
            "eta_scaled": eta / span if eta is not None else None,
            "reward_span": span,
            "delta": self.spec.delta,
            "episodes": self.episodes,
            "warmup": self.warmup,
            "seed": self.seed,
            "regret": regret,
            "regret_scaled": regret / span,
            "mean_return": float(self.returns.mean()),
            "violations": int(self.violations().sum()) if judged else None,
            "violations_incumbent": int(self.violations(against="incumbent").sum()) if judged else None,
            "max_true_deficit": float(self.true_deficit.max()),
            "mean_signed_deficit": float(self.signed_deficit.mean()),
            "max_deficit": float(self.deficit.max()),
            "exploring_steps": int(self.exploring_steps.sum()),
            "deviating_steps": int(self.deviating_steps.sum()),
            **baseline_over_time(self.baseline_value, self.incumbent_value, span),
            "chains_started": self.chains.started,
            "chains_finished": self.chains.finished,
            "chains_abandoned": self.chains.abandoned,
            "chains_blocked": self.chains.blocked,
            "coverage": self.coverage,
            "value_coverage_failures": int(self.value_failed.sum()) if bounded else None,
            "bonus_coverage_failures": int(self.bonus_failed.sum()) if bounded else None,
            "charge_coverage_failures": int(self.charge_failed.sum()) if covered else None,
            "largest_gap": float(self.largest_gap.max()),
            **({} if self.canary is None else {"canary": self.canary.summary(eta or 0.0, span)}),
            "seconds": self.seconds,
            "episodes_per_second": self.episodes / self.seconds if self.seconds > 0 else None,
            "version": chary.__version__,
        }


def run_arrays(run: Run) -> dict[str, NDArray[Any]]:
    """Return the arrays of a run: by episode, by chain (`chain_` before the name), and of a canary."""
    columns = {name: getattr(run, name) for name in EPISODE_COLUMNS}
    columns |= {f"chain_{name}": getattr(run.chains, name) for name in CHAIN_COLUMNS}
    if run.canary is not None:
        columns |= {f"canary_{name}": getattr(run.canary, name) for name in CANARY_COLUMNS}
    return columns


def run_files(run: Run, summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the contents of a run's files by name: the table, the arrays, and last the summary."""
    columns = {name: getattr(run, name) for name in EPISODE_COLUMNS}
    # tolist: Python's own floats are written with as many digits as it takes to read them back exactly.
    # Booleans as 0 and 1, which every reader of CSV takes for numbers.
    cells = [(array.astype(int) if array.dtype == bool else array).tolist() for array in columns.values()]
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["episode", *columns])
    writer.writerows(zip(range(run.episodes), *cells, strict=True))
    return {
        "episodes.csv": table.getvalue().encode(),
        "run.npz": npz_bytes(run_arrays(run)),
        "run.json": (as_json(summary) + "\n").encode(),
    }
