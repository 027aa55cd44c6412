"""What no rule can reach after five episodes: two calculations for docs/worlds-measured.md.

python benchmarks/worlds_limit.py

- Corridor, rewards known by outcome. An arm earns 1 or 0 and the safe one 0.5, so a twin of the corridor
  whose arms never light up makes every try cost more than the budget, and until the first try nobody can tell
  the two apart. A rule that breaks its budget with a probability of at most `risk` in every episode of either
  has tried an arm by episode k with a probability of at most k * risk. Before that it earns what is possible
  without arms: its regret is at least what an episode loses without them, times the sum of max(0, 1 - k *
  risk) over k.
- Inventory. The number of visits of each of two actions at the empty stock, with true frequencies, until a
  posterior that does not relate them (Dirichlet, weight 1/2) puts a gap above the budget with probability
  `risk`. The values behind the step are taken for known. The most favourable of all actions counts.

Nothing is recorded but what is printed and the table that goes into the page.
"""

from __future__ import annotations

import numpy as np

from _jobs import ROOT, fill, table
from worlds import BUDGETS, EPISODES

RISKS = (0.001, 0.01, 0.05)
DRAWS = 40_000
MOST_VISITS = 400


def without_arms() -> float:
    """Return what an episode of the corridor loses without its arms, the safe one apart."""
    import chary
    from chary.audit import Truth

    corridor = chary.envs.make("corridor")
    truth = Truth(corridor)
    setting, gate = corridor.setting, corridor.n_states - 3
    P, _ = corridor.dense()
    R = np.zeros(P.shape)
    for s, a in np.argwhere(setting.allowed).tolist():
        x, _, r = corridor.row(s, a)
        R[s, a, x] = r
    allowed = np.array(setting.allowed)
    allowed[gate, 1:] = False
    rest = Truth(chary.FiniteMDP.from_arrays(P, R, name="no arms", horizon=corridor.horizon, allowed=allowed))
    return float(truth.value_of_start(truth.optimal_value) - rest.value_of_start(rest.optimal_value))


def least_regret(risk: float, per_episode: float) -> float:
    """Return the regret that every rule with this risk has at least."""
    return per_episode * float(np.maximum(1.0 - risk * np.arange(1, EPISODES + 1), 0.0).sum())


def least_risk(regret: float, per_episode: float) -> float:
    """Return the risk that a rule with this regret has at least."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if least_regret(middle, per_episode) > regret else (low, middle)
    return high


def visits_needed(risk: float) -> int:
    """Return the visits of two actions until a deviation at the empty stock is affordable."""
    import chary
    from chary.audit import Truth

    inventory = chary.envs.make("inventory")
    truth, rng = Truth(inventory), np.random.default_rng(0)
    behind, best = np.array(truth.optimal_value)[1], int(np.array(truth.optimal_policy)[0, 0])
    rows = []
    for a in range(inventory.n_actions):
        x, p, r = inventory.row(0, a)
        rows.append((p, r + behind[x]))
    # With independent rows both have the same number of visits: a grid, from few to many.
    for n in range(1, MOST_VISITS):
        shares = [rng.dirichlet(0.5 + n * p, DRAWS) @ worth for p, worth in rows]
        others = [a for a in range(len(rows)) if a != best]
        if min(np.quantile(shares[best] - shares[a], 1.0 - risk) for a in others) <= BUDGETS["inventory"]:
            return n
    return MOST_VISITS


def main() -> None:
    """Print both calculations and put them into the page."""
    loss = without_arms()
    rows = [[f"{risk:g}", f"{least_regret(risk, loss):.0f}", str(visits_needed(risk))] for risk in RISKS]
    text = table(["risk per episode", "corridor: regret at least", "inventory: visits of both actions"], rows)
    text += (
        f"\n\nWithout the arms an episode of the corridor loses {loss:.2f}. Regret 35 in {EPISODES:,} "
        f"episodes, that of PSRL, needs a risk of at least {100 * least_risk(35.0, loss):.1f} % per episode."
    )
    print(text)
    fill(ROOT / "docs" / "worlds-measured.md", "worlds-limit", text)


if __name__ == "__main__":
    main()
