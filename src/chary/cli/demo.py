"""The demonstration of `make demo`: inventory control learnt by eight algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from chary.agents import CUCBVI, UCBVI, AgentSpec, Baseline, CharyUCBVI, StepMix
from chary.charts import Chart, Panel, Series, draw_files
from chary.charts.palette import PALETTE
from chary.envs import inventory
from chary.simulation import simulate
from chary.simulation.run import Run

# Budgets in scaled reward units; a month earns about half a unit. All are judged by the smallest.
BUDGETS = (0.1, 0.4)
JUDGED_AT = BUDGETS[0]
EPISODES = 2000
# Enough for a usable baseline, too little for a good one.
WARMUP = 300

COLUMNS = (
    "algorithm",
    "own budget",
    "regret",
    "broke own",
    f"broke {JUDGED_AT:g}",
    "worst deficit",
    "exploring steps",
    "deviating steps",
    "episodes/s",
)


class Contestant(NamedTuple):
    """One line of the table and of the figure."""

    label: str
    spec: AgentSpec
    colour: str
    dash: str = "solid"


def contestants() -> list[Contestant]:
    """Return the eight algorithms, all with a known reward function.

    All but the last have the same certified bounds; the last plans by posterior worlds, and its promise is a
    credible one. Those without a budget are judged by the smallest one; StepMix, which keeps one in
    expectation, the paper's variant and worlds get it, too.
    """
    common: dict[str, Any] = {"bonus": "kl", "reward": "known"}
    blues = ("light blue", "blue")
    return [
        Contestant("UCBVI", UCBVI(eta=JUDGED_AT, **common), PALETTE["vermillion"]),
        Contestant("CUCBVI", CUCBVI(eta=JUDGED_AT, **common), PALETTE["orange"]),
        Contestant("StepMix", StepMix(eta=JUDGED_AT, **common), PALETTE["purple"]),
        Contestant("baseline", Baseline(eta=JUDGED_AT, **common), PALETTE["grey"], "dash"),
        Contestant(
            "paper's variant",
            CharyUCBVI(eta=JUDGED_AT, rule="paper", charge="paper", pool=1, after_refusal="close", **common),
            PALETTE["green"],
        ),
        *(
            Contestant(
                f"chary, eta {eta:g}", CharyUCBVI(eta=eta, charge="difference", **common), PALETTE[blue]
            )
            for eta, blue in zip(BUDGETS, blues, strict=True)
        ),
        Contestant(
            f"worlds, eta {JUDGED_AT:g}",
            CharyUCBVI(eta=JUDGED_AT, bonus="posterior", reward="known"),
            PALETTE["dark blue"],
        ),
    ]


def play(
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[tuple[Contestant, Run]]:
    """Run each algorithm on the same warm-up and the same seed, and yield its run.

    Args:
        episodes: Number of online episodes per algorithm.
        seed: Random seed.
        progress: Called with a label, the number of finished episodes and of all episodes.
    """
    mdp = inventory()
    for contestant in contestants():
        label = contestant.label

        def report(done: int, total: int, label: str = label) -> None:
            if progress is not None:
                progress(label, done, total)

        # Show the label while kernels are compiled before the first episode.
        report(0, episodes)
        yield (
            contestant,
            simulate(mdp, contestant.spec, episodes=episodes, warmup=WARMUP, seed=seed, progress=report),
        )


def row(contestant: Contestant, run: Run) -> tuple[str, ...]:
    """Return the cells of the table, in the order of `COLUMNS`."""
    budgeted = contestant.spec.shielded or isinstance(contestant.spec, StepMix)
    return (
        contestant.label,
        f"{contestant.spec.eta:g}" if budgeted else "-",
        f"{run.regret.sum():.1f}",
        f"{run.violations().sum()}" if budgeted else "-",
        f"{run.violations(JUDGED_AT).sum()}",
        f"{run.true_deficit.max():.3f}",
        f"{run.exploring_steps.sum()}",
        f"{run.deviating_steps.sum()}",
        f"{run.episodes / run.seconds:.0f}" if run.seconds > 0 else "-",
    )


def draw(results: list[tuple[Contestant, Run]]) -> bytes:
    """Return the figure as a PNG: regret, and episodes that broke the budget all are judged by."""

    def panel(title: str, totals: Callable[[Run], Any]) -> Panel:
        series = []
        for each, run in results:
            x, y = tuple(range(1, run.episodes + 1)), tuple(totals(run).cumsum().tolist())
            series.append(Series(label=each.label, x=x, y=y, colour=each.colour, dash=each.dash))
        return Panel(title=title, x_label="episode", y_label="total so far", series=tuple(series))

    first = results[0][1]
    chart = Chart(
        key="demo",
        title=f"Inventory control: {first.episodes:,} episodes after {first.warmup} random ones",
        caption="",
        panels=(
            panel("Regret", lambda run: run.regret),
            panel(f"Episodes that broke a budget of {JUDGED_AT:g}", lambda run: run.violations(JUDGED_AT)),
        ),
    )
    return draw_files(chart)["png"]
