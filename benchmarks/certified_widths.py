"""Widths of certified bounds on inventory, and charges of a step; docs/algorithm.md section 5.

Prints V_hi - V_lo of pi_bar at the start after 300 and 1,500 uniformly random episodes, for each
certified family with estimated and with known rewards, and the median charges at 1,500 episodes over
all steps at which the action is not the baseline's own. Numbers are medians over seeds, with minimum
and maximum. All of it is computed by the reference planner: no compiled code, about four seconds per seed.

    python benchmarks/certified_widths.py --seeds 9
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from chary.envs.inventory import inventory
from chary.mdp import REWARD_KNOWLEDGE, FiniteMDP
from chary.model.bounds import Bounds
from chary.reference.charges import charge_coupled, charge_difference, charge_paper, differences
from chary.reference.planner import Confidence, Solution, Tally, backward

WARM_UPS = (300, 1_500)
ONLINE = 50_000
FAMILIES = ("hoeffding", "l1", "kl")
CHARGES = ("paper", "coupled", "difference")


def observe(mdp: FiniteMDP, episodes: int, rng: np.random.Generator) -> Tally:
    """Play uniformly random allowed actions and count."""
    setting = mdp.setting
    counts, rewards = (np.zeros((setting.n_pairs, setting.n_states)) for _ in range(2))
    squares = np.zeros(setting.n_pairs)
    for _ in range(episodes):
        s = int(rng.choice(setting.n_states, p=mdp.start))
        for _ in range(setting.horizon):
            p = int(rng.integers(setting.pair_start[s], setting.pair_start[s + 1]))
            first, last = int(mdp.row_start[p]), int(mdp.row_start[p + 1])
            # A row's last sum may be 1 - 1e-16, below the uniform drawn.
            row = mdp.cumulative[first : last - 1]
            i = first + int(np.searchsorted(row, rng.random(), side="right"))
            s, earned = int(mdp.successor[i]), float(mdp.reward[i])
            counts[p, s] += 1
            rewards[p, s] += earned
            squares[p] += earned**2
    return Tally(counts, rewards, squares)


def plan(tally: Tally, confidence: Confidence) -> tuple[Solution, Solution]:
    """Return the lower and upper values of pi_bar."""
    lower = backward(tally, confidence, sign=-1)
    return lower, backward(tally, confidence, sign=+1, policy=lower.policy)


def median_charges(tally: Tally, confidence: Confidence, lower: Solution, upper: Solution) -> list[float]:
    """Return the median of each charge over the steps that explore."""
    setting = confidence.setting
    D = differences(tally, confidence, lower.policy, lower.V, upper.V)
    charge: list[Callable[[int, int, int], float]] = [
        lambda t, s, a: charge_paper(confidence, lower, upper, t, s, a),
        lambda t, s, a: charge_coupled(tally, confidence, lower, upper, t, s, a),
        lambda t, s, a: charge_difference(tally, confidence, lower, upper, D, t, s, a),
    ]
    steps = [
        (t, int(s), int(a))
        for t in range(setting.horizon)
        for s, a in np.argwhere(setting.allowed)
        if a != lower.policy[t, s]
    ]
    return [float(np.median([each(t, s, a) for t, s, a in steps])) for each in charge]


def spread(values: list[float]) -> str:
    """Write a median with the least and the most."""
    return f"{np.median(values):6.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs, seeded 0, 1, ...")
    seeds = parser.parse_args().seeds
    mdp = inventory()
    widths: dict[tuple[str, str, int], list[float]] = {}
    charges: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(seeds):
        for warm_up in WARM_UPS:
            tally = observe(mdp, warm_up, np.random.default_rng(np.random.SeedSequence([seed, warm_up])))
            for family in FAMILIES:
                for reward in REWARD_KNOWLEDGE:
                    confidence = Confidence(
                        setting=mdp.told(reward),
                        bounds=Bounds(family=family, delta=0.1),
                        episodes=ONLINE,
                        total_episodes=warm_up + ONLINE,
                    )
                    lower, upper = plan(tally, confidence)
                    width = float(mdp.start @ (upper.V[0] - lower.V[0]))
                    widths.setdefault((family, reward, warm_up), []).append(width)
                    if warm_up == WARM_UPS[-1]:
                        found = median_charges(tally, confidence, lower, upper)
                        charges.setdefault((family, reward), []).append(found)
    print(f"V_hi - V_lo of pi_bar at the start of inventory, delta .1, {seeds} seeds: median [least, most]")
    for (family, reward), found_charges in charges.items():
        cells = [f"{w:>5} episodes {spread(widths[family, reward, w])}" for w in WARM_UPS]
        costs = [
            f"{name} {spread(list(c))}"
            for name, c in zip(CHARGES, zip(*found_charges, strict=True), strict=True)
        ]
        print(f"{family:9} {reward:9}  {'  '.join(cells)}  median charge: {'  '.join(costs)}")


if __name__ == "__main__":
    main()
