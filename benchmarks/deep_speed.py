"""Fill the tables of docs/deep.md from recorded results: python benchmarks/deep_speed.py."""

from __future__ import annotations

import json
from typing import Any

from _jobs import RESULTS, ROOT, fill, table


def recorded(name: str) -> dict[str, Any]:
    """Return the recorded results of a benchmark."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def told(spread: dict[str, float], digits: int = 0) -> str:
    """Return a median with its least and most."""
    return f"{spread['median']:,.{digits}f} ({spread['min']:,.{digits}f} to {spread['max']:,.{digits}f})"


def training() -> str:
    """Return the training speed of one core, and the comparison with Stable-Baselines3."""
    found = recorded("deep-training")
    rates = found["rates"]["hiv"]
    # Recorded when every agent learnt by three networks, and `chary` was what `paper` is now.
    earlier = "paper" not in rates
    names = {"chary": "paper"} if earlier else {}
    rows = [
        [names.get(agent, agent), told(rate["steps_a_processor_second"])] for agent, rate in rates.items()
    ]
    learners = ", all agents by three networks" if earlier else ""
    text = (
        f"One core, patient 5{learners}, environment steps per second of processor time "
        f"(`{found['command']}`):\n\n"
        f"{table(['agent', 'steps/s, median (least to most)'], rows)}\n\n"
    )
    peer = found["sb3"]
    ratios = ", ".join(
        f"{names.get(agent, agent)} {told(ratio, 1)}" for agent, ratio in peer["ratio"].items()
    )
    text += (
        f"DQN of Stable-Baselines3 on the same patient, in turns with ours: "
        f"{told(peer['sb3_steps_a_processor_second'])} steps/s; ours is faster by {ratios}. "
    )
    scaling = found["scaling"]
    return (
        f"{text}{scaling['processes']} processes on as many cores: {scaling['sum_over_alone']:.2f} times one."
    )


def ensemble() -> str:
    """Return the cost of the ensemble next to three networks, and that of a step of the step API."""
    found, live = recorded("deep-ensemble"), recorded("deep-live")
    rates = found["rates"]["hiv"]
    rows = [
        [agent, told(rate["steps_a_processor_second"]), told(rate["times_paper"], 2)]
        for agent, rate in rates.items()
    ]
    steps = "; ".join(
        f"`{agent}` {each['processor_milliseconds']['median']:.2f} ms (99 %: "
        f"{each['processor_milliseconds']['p99']:.2f} ms)"
        for agent, each in live["agents"].items()
    )
    return (
        "The ensemble next to three networks, one core, in turns, by processor time "
        f"(`{found['command']}`):\n\n"
        f"{table(['agent', 'steps/s, median (least to most)', 'time per step / paper'], rows)}\n\n"
        f"A step of the step API, act and observe, median of processor time (`{live['command']}`): {steps}."
    )


def constants() -> str:
    """Return the constants fitted on held-out episodes."""
    found = recorded("deep-constants")
    rows = [
        [
            str(row["seed"]),
            str(row["episode"]),
            str(row["deviations"]),
            f"{row['d']:.1f}",
            f"{100 * row['covered_by_the_usual_d']:.1f} %",
        ]
        for row in found["rows"]
    ]
    both = found["together"]
    headings = ["seed", "after episodes", "deviations", "d for 95 %", "covered by d = 16.5"]
    return (
        "On patient 5, by rollouts, on seeds that judge nothing "
        f"(`{found['command']}`):\n\n{table(headings, rows)}\n\n"
        f"All {both['deviations']:,} deviations together give d = {both['d']:.1f}; the usual 16.5 covers "
        f"{100 * both['covered_by_the_usual_d']:.1f} % of them. A smaller d explores more at small budgets: "
        "study `constants` of `experiments/hiv.toml`. The residuals have a standard deviation of "
        f"{both['residual_deviation']:.1f}, the members one of {both['members_deviation']:.1f} in the median."
    )


def audit() -> str:
    """Return the cost of the audit."""
    found = recorded("deep-audit")
    rows = []
    for stage in found["stages"]:
        cost = stage["all"]["microseconds_a_baseline_step"]["jax, 24 lanes"]
        rows.append([str(stage["episodes"]), told(cost, 1)])
    return (
        "The audit, microseconds of one core per step of a baseline's rollout, with all 200 steps of an "
        f"episode audited (`{found['command']}`):\n\n{table(['after episodes', 'us per step'], rows)}"
    )


def gpu() -> str:
    """Return the training speed of a GPU."""
    found = recorded("deep-gpu")
    rows = [[f"{row['lanes']}", told(row["with_audit"]["steps_a_second"])] for row in found["rows"]]
    bare = found["rows"][0]
    earlier = "--agent" not in found["command"]
    learners = "; by three networks, the ensemble was not measured on a GPU yet" if earlier else ""
    return (
        f"{found['device']}, runs side by side, with the ODE in float64, every tenth episode audited and as "
        f"many held out (`{found['command']}`){learners}:\n\n"
        f"{table(['lanes', 'environment steps/s'], rows)}\n\n"
        f"Without audits {told(bare['without_audit']['steps_a_second'])} at {bare['lanes']} lanes."
    )


def main() -> None:
    """Fill the page."""
    fill(ROOT / "docs" / "deep.md", "deep-constants", constants())
    fill(ROOT / "docs" / "deep.md", "deep-speed", "\n\n".join((ensemble(), training(), audit(), gpu())))


if __name__ == "__main__":
    main()
