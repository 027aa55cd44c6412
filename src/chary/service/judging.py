"""What exploring really cost in a rehearsal, where the problem behind the patients is known.

The service never sees it: its events are replayed afterwards, and every explored step is compared with the
baseline that its episode kept, by the true values of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from chary.arrays import Ints
from chary.audit import VIOLATION_TOLERANCE, Evaluation, Truth
from chary.mdp import FiniteMDP
from chary.policies import raw_value
from chary.service.deployment import Deployment
from chary.service.live import Live
from chary.service.modes import BUDGETED
from chary.service.store import Reader


class TrueLosses(NamedTuple):
    """True deficits of the episodes in which mode budgeted decided a step, in the user's units.

    `mean` and `highest` are over these `episodes`; `above` of them have lost more than `eta` in expectation.
    The values are those of the incumbent's policy and of the baseline in force at the end, per episode.
    """

    episodes: int
    mean: float
    highest: float
    above: int
    incumbent_value: float
    baseline_value: float


def true_losses(directory: Path, truth: FiniteMDP, eta: float) -> TrueLosses:
    """Return what exploring lost in expectation, as if every decision had been played, and what was learnt.

    Args:
        directory: A deployment whose patients came from `truth`.
        truth: The problem behind them.
        eta: The budget of an episode.

    Raises:
        CharyError: if the deployment cannot be read.
    """
    deployment = Deployment.open(directory)
    live, judge = Live.new(deployment.declaration), Truth(truth)
    S, span = truth.n_states, truth.scale.span
    evaluations: dict[int, Evaluation] = {}
    lost: dict[str, float] = {}
    reader = Reader(deployment.database)
    try:
        for event in reader.events():
            facts = event.facts()
            if event.kind == "decided" and facts.mode == BUDGETED:
                assert event.episode is not None
                lost.setdefault(event.episode, 0.0)
                if facts.explored:
                    if facts.plan not in evaluations:
                        plan = live.agent.plan_of(event.episode)
                        evaluations[facts.plan] = judge.evaluate(plan.arrays.baseline[:, :S])
                    of_baseline = evaluations[facts.plan]
                    pair = truth.setting.pair_index[facts.state, facts.action]
                    gap = of_baseline.value[facts.t, facts.state] - of_baseline.q[facts.t, pair]
                    lost[event.episode] += max(float(gap), 0.0) * span
            live.apply(event.seq, event.episode, event.t, facts, event.body.encode())
            live.prune(event.seq)
    finally:
        reader.close()

    def worth(policy: Ints) -> float:
        return raw_value(judge.value_of_start(judge.evaluate(policy[:, :S]).value), truth.setting)

    above = sum(each > eta + VIOLATION_TOLERANCE * span for each in lost.values())
    return TrueLosses(
        episodes=len(lost),
        mean=sum(lost.values()) / max(len(lost), 1),
        highest=max(lost.values(), default=0.0),
        above=above,
        incumbent_value=worth(live.incumbent),
        baseline_value=worth(live.agent.plan.arrays.baseline),
    )
