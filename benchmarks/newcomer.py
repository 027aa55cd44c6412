"""What a newcomer's program gains, judged by the true process: examples/tutor.py over ten seeds.

python benchmarks/newcomer.py [--seeds 10] [--pupils 500]

Every episode is judged by the process that make_lessons.py describes: what it gained, and whether its
expected loss against the baseline of its time exceeded the budget. Writes benchmarks/results/newcomer.json
and the table of docs/guide.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np

from _jobs import ROOT, fill, record, table

sys.path.insert(0, str(ROOT / "examples"))
NAME = "newcomer"


class Noting:
    """An agent whose episodes and whose baseline at the time of each are kept."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.episodes, self.baselines, self.deviating = agent, [], [], 0

    def begin(self, name: str, state: int) -> None:
        """Open an episode and keep its baseline."""
        self.baselines.append(np.array(self.agent.plan.arrays.baseline[:, : self.agent.setting.n_states]))
        self.episodes.append([])
        self.agent.begin(name, state)

    def act(self, name: str, t: int, state: int) -> Any:
        """Return the agent's decision."""
        decision = self.agent.act(name, t, state)
        self.deviating += decision.action != self.baselines[-1][t, state]
        return decision

    def observe(self, name: str, step: Any) -> None:
        """Keep the step, an early ending as one to the state that the setting has for it."""
        ended = step._replace(next_state=self.agent.setting.ending, terminated=False)
        self.episodes[-1].append(ended if step.terminated else step)
        self.agent.observe(name, step)

    def finish(self, name: str) -> None:
        """Fill the episode up, as the agent does, and close it."""
        import chary

        steps, over = self.episodes[-1], self.agent.setting.ending
        steps += [chary.Transition(over, 0, 0.0, over, False)] * (self.agent.horizon - len(steps))
        self.agent.finish(name)


def below(x: float) -> float:
    """Return the chance of a standard normal number below x."""
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def truth(agent: Any, states: list[str], exercises: list[str]) -> Any:
    """Return the true process over the agent's states."""
    import data.make_lessons as made

    import chary

    S, A = len(states), len(exercises)
    points = np.arange(-2, 9)
    P, R = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A))
    P[S, :, S] = 1.0
    for s, state in enumerate(states):
        number = made.STATES.index(state)
        level, tired = divmod(number, 2)
        share = 0.5 if tired else 1.0
        for a, exercise in enumerate(exercises):
            e = made.EXERCISES.index(exercise)
            mean = share * made.GAIN[level, e]
            cuts = [below((edge - mean) / 1.2) for edge in points[:-1] + 0.5]
            R[s, a] = float(points @ np.diff([0.0, *cuts, 1.0]))
            up, leaves, tires = share * made.LEARNS[level, e], made.LEAVES[tired, e], made.TIRES[tired, e]
            for rise, chance in ((0, 1 - up), (1, up)):
                for after, other in ((0, 1 - tires), (1, tires)):
                    if chance * other > 0:
                        reached = states.index(made.STATES[2 * (level + rise) + after])
                        P[s, a, reached] += (1 - leaves) * chance * other
            P[s, a, S] += leaves
    start = np.array(
        [1 / 3 if state in ("new, fresh", "shaky, fresh", "fair, fresh") else 0 for state in states]
    )
    mdp = chary.FiniteMDP.from_arrays(
        P, R, horizon=agent.horizon, start=np.append(start, 0.0), reward_range=(-2.0, 8.0)
    )
    return mdp, P, R


def worth(P: Any, R: Any, start: Any, horizon: int, policy: list[int] | None) -> float:
    """Return the expected gain of a policy, of the best one where it is None."""
    value = np.zeros(len(R))
    for _ in range(horizon):
        q = R + P @ value
        value = q.max(axis=1) if policy is None else q[np.arange(len(R)), policy]
    return float(start @ value)


def play(seed: int, pupils: int) -> dict[str, Any]:
    """Teach so many pupils by the program of the example, and judge every one."""
    import pandas as pd
    import tutor

    import chary

    agent, states, exercises = tutor.learnt(pd.read_csv(ROOT / "examples" / "data" / "lessons.csv"), seed)
    noting, chance = Noting(agent), np.random.default_rng([seed, 1])
    gains = [tutor.teach(noting, states, exercises, f"pupil {k}", tutor.Pupil(chance)) for k in range(pupils)]
    mdp, P, R = truth(agent, states, exercises)
    judged = chary.judge(mdp, noting.episodes, baseline=np.array(noting.baselines), eta=tutor.ETA)
    rule = [*(exercises.index(tutor.rule(state)) for state in states), 0]
    return {
        "seed": seed,
        "gain": float(np.mean(gains)),
        "rule": worth(P, R, mdp.start, agent.horizon, rule),
        "best": worth(P, R, mdp.start, agent.horizon, None),
        "violations": int(judged.violations().sum()),
        "largest": float(judged.true_deficit.max()),
        "deviating": noting.deviating / sum(len(each) for each in noting.episodes),
        "standing": agent.standing.label,
    }


def main() -> None:
    """Play all seeds, and write the result and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pupils", type=int, default=500)
    told = parser.parse_args()
    runs = [play(seed, told.pupils) for seed in range(told.seeds)]
    gains = [run["gain"] for run in runs]
    row = [
        f"{runs[0]['rule']:.2f}",
        f"{np.mean(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})",
        f"{runs[0]['best']:.2f}",
        f"{sum(run['violations'] for run in runs)} of {told.seeds * told.pupils:,}",
        f"{max(run['largest'] for run in runs):.2f}",
        f"{100 * np.mean([run['deviating'] for run in runs]):.1f}",
        runs[0]["standing"],
    ]
    header = [
        "the rule in the file",
        "the agent, live",
        "the best policy",
        "over budget",
        "largest true deficit",
    ]
    text = table([*header, "steps off the baseline, %", "standing"], [row])
    print(text)
    record(NAME, {"pupils": told.pupils, "runs": runs})
    fill(ROOT / "docs" / "guide.md", NAME, text)


if __name__ == "__main__":
    main()
