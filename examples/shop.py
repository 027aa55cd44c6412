"""A chain of shops: a CSV of sales, the chain's own reorder rule, and a budget in money for every season.

    python examples/shop.py [--quick] [--seed N] [--figure shop.png]

An episode is one season of ten weeks in one shop: the state is Monday's stock, the action the number of items
ordered.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

import chary
from chary.data import Log, inspect
from chary.evaluation import evaluate_policy
from chary.preview import preview

SALES = Path(__file__).parent / "data" / "sales.csv"
BY_RULE = 300  # shops before this number follow the rule; the others were drawn to order at random
ETA = 10.0  # money: what a season may lose compared with its baseline, in expectation
# The live shops are simulated. Agents receive prices and costs, which the chain knows, but not the demand.
SHOP = chary.envs.make("inventory", horizon=10, units="money")
SETTING = SHOP.told("known")


def reorder(stock: int) -> int:
    """Return the order by today's rule."""
    return 2 if stock == 0 else 0


def sales_log(path: Path) -> Log:
    """Turn weekly sales into transitions: stock, order, profit, and remaining stock."""
    shop, week, stock, ordered, sold = np.loadtxt(path, np.int64, delimiter=",", skiprows=1, unpack=True)
    # 8 per item sold; 2 per item ordered and 2 for the order itself; 1 per item in the shop.
    profit = 8.0 * sold - 2.0 * ordered - 2.0 * (ordered > 0) - 1.0 * (stock + ordered)
    return Log.from_arrays(
        episode=shop,
        t=week,
        state=stock,
        action=ordered,
        reward=profit,
        next_state=stock + ordered - sold,
        terminated=np.zeros(len(stock), dtype=bool),  # a season is cut off; the process does not end
        setting=SETTING,  # every row is compared with the declared prices
    )


class Season(NamedTuple):
    """One live season: its transitions, and the deficit booked by the end of each week."""

    steps: list[chary.Transition]
    booked: list[float]


def live(agent: chary.TabularAgent, seasons: int, seed: int) -> list[Season]:
    """Let an agent order for some seasons, check the budget in every week, and print the results."""
    done, before = [], agent.plan.fixed
    for season in chary.rollout(chary.envs.TabularEnv(SHOP), agent, episodes=seasons, seed=seed):
        booked = [week.deficit for week in season.decisions]
        assert max(booked) <= ETA * (1 + 1e-12)  # by more than the rounding of its units
        done.append(Season(list(season.transitions), booked))
    profit = [sum(step.reward for step in season.steps) for season in done]
    most = max(max(season.booked) for season in done)
    whose = ["the rule" if fixed else "the rule, improved" for fixed in (before, agent.plan.fixed)]
    print(
        f"{seasons} seasons: mean profit {np.mean(profit):.1f}, at most {most:.2f} of {ETA:g} booked by any "
        f"week; baseline at first {whose[0]}, in the end {whose[1]}"
    )
    return done


def main() -> None:
    """Go from a CSV file to live shops."""
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="fewer seasons")
    options.add_argument("--figure", type=Path, metavar="PATH", help="needs pip install 'chary[figures]'")
    options.add_argument("--seed", type=int, default=1, help="random seed of the live shops' demand")
    given = options.parse_args()
    seasons = 60 if given.quick else 1000

    log = sales_log(SALES)
    print(inspect(log, SETTING).describe(), end="\n\n")

    # The value of the rule. Method `returns` applies, because these shops always followed the rule. By this
    # rule no season earns more than 80 (two sold every week) or less than -26 (two bought, none ever sold).
    own = Log.from_transitions(list(log.episodes())[:BY_RULE])
    worth = evaluate_policy(own, reorder, SETTING, method="returns", return_range=(-26, 80))
    print(f"The rule is {worth.describe()}\n")

    # What a budget would buy, from the log alone, with estimated rewards; `chary plan` does it for files.
    rule = [reorder(stock) for stock in range(SETTING.n_states)]
    found = preview(
        log, etas=[5, ETA, 20], reward_low=-17, reward_high=35, bonus="kl", prior=rule, allowed="seen"
    )
    print("\n".join(found.sentences()[3:7]), end="\n\n")

    # Live. Bonus `kl` is certified for any number of seasons. The rule is a floor: another action takes its
    # place wherever the data show that it is better, and from then on the budget is kept against that.
    spec = chary.CharyUCBVI(eta=ETA, bonus="kl", reward="known")
    floor = chary.OwnBaseline.declare(reorder, SETTING, role="floor")
    agent = chary.TabularAgent(spec, SETTING, own=floor)
    agent.warm_start(log.episodes())
    print(agent.standing.describe())
    first = live(agent, seasons, seed=given.seed)
    second = live(agent, seasons, seed=given.seed + 1)
    if given.figure:
        draw(first, second, given.figure)


def draw(first: list[Season], second: list[Season], path: Path) -> None:
    """Draw the profit of seasons, and the budget spent in them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    for seasons, colour, name, begin in (
        (first, "#5AA9DD", "first", 0),
        (second, "#0B3C6B", "second", len(first)),
    ):
        profit = [sum(step.reward for step in season.steps) for season in seasons]
        width = len(profit) // 8
        mean = np.convolve(profit, np.full(width, 1 / width), "valid")
        left.plot(begin + width + np.arange(len(mean)), mean, color=colour)
        left.text(begin + len(profit) / 2, 42, f"{name} {len(profit)}", color=colour, ha="center")
        last = [season.booked[-1] for season in seasons]
        right.plot(begin + np.arange(len(last)), last, ".", color=colour)
    left.set(xlabel="season", ylabel=f"profit, mean of {width} seasons", ylim=(40, 95))
    right.axhline(ETA, color="#D55E00", linestyle="--")
    right.text(0, ETA, "budget of every season", color="#D55E00", va="bottom")
    right.set(xlabel="season", ylabel="booked", ylim=(-0.3, ETA * 1.15))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
