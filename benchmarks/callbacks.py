"""What callbacks cost a compiled run: the same run with and without them, in turns, in one process.

python benchmarks/callbacks.py [--episodes 2000] [--repeats 5]

The first round warms up and is not counted. Times are those of the processor, since other programs may share
the machine. Writes benchmarks/results/callbacks.json and the table of docs/callbacks.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import chary
from _jobs import ROOT, fill, record, table
from chary.callbacks import Callback
from chary.callbacks.loggers import CSVLogger

NAME = "callbacks"


class Nothing(Callback):
    """A callback that does nothing."""


def kinds(folder: Path) -> dict[str, Callable[[], list[Callback]]]:
    """Return what is compared, each as new callbacks for one run."""
    number = iter(range(10**6))
    return {
        "none": list,
        "one that does nothing": lambda: [Nothing()],
        "`CSVLogger`, a row per episode": lambda: [CSVLogger(folder / str(next(number)))],
        "`CSVLogger`, a row per 100 episodes": lambda: [CSVLogger(folder / str(next(number)), every=100)],
    }


def main() -> None:
    """Time all kinds in turns, and write the result and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    told = parser.parse_args()
    mdp, spec = chary.envs.inventory(), chary.CharyUCBVI(eta=0.4, bonus="kl", reward="known")
    with TemporaryDirectory() as folder:
        made = kinds(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in made}
        regrets = set()
        for _ in range(told.repeats + 1):
            for name, make in made.items():
                callbacks = make()
                begun = time.process_time()
                run = chary.simulate(
                    mdp, spec, episodes=told.episodes, warmup=300, seed=0, callbacks=callbacks
                )
                seconds[name].append(time.process_time() - begun)
                for each in callbacks:
                    if isinstance(each, CSVLogger):
                        each.close()
                regrets.add(float(run.regret.sum()))
    # The numbers are the same with all of them.
    assert len(regrets) == 1
    kept = {name: times[1:] for name, times in seconds.items()}
    alone = float(np.median(kept["none"]))
    rows = [
        [
            name,
            f"{np.median(times):.2f} ({min(times):.2f} to {max(times):.2f})",
            f"{told.episodes / float(np.median(times)):,.0f}",
            f"{float(np.median(times)) / alone:.2f}",
        ]
        for name, times in kept.items()
    ]
    text = table(["callbacks", "seconds per run", "episodes per second", "of the time without"], rows)
    print(text)
    record(NAME, {"episodes": told.episodes, "seconds": kept})
    fill(ROOT / "docs" / "callbacks.md", NAME, text)


if __name__ == "__main__":
    main()
