"""Write the settings chosen on seeds of their own into an experiment: python scripts/choose_settings.py DIR.

DIR is the finished sweep of experiments/NAME-selection.toml. UCBVI's best scale is the one with the least
mean regret. The setting to recommend has the least mean regret among those of ours that broke the budget in
at most half of the runs and in at most one of 2,000 episodes. Both go into experiments/NAME.toml, which
judges them on other seeds.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from chary.report.claims import OURS, UCBVI
from chary.report.measured import Measured, Place
from chary.results import load_tables
from chary.sweeps.folder import SweepFolder
from chary.sweeps.spec import MAIN, Experiment
from chary.sweeps.tabular import Algorithm
from chary.sweeps.toml import read_experiment

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
MOST_VIOLATIONS = 1 / 2000
BEST = re.compile(r"^bonus_scale_factor = .*(?= # UCBVI's best)", flags=re.MULTILINE)
CHOSEN = re.compile(
    r"(?<=# begin chosen: written by scripts/choose_settings.py\n).*(?=# end chosen)", re.DOTALL
)


class Choice(NamedTuple):
    """A setting and its mean regret on the selection seeds."""

    algorithm: Algorithm
    name: str
    factor: float
    regret: float


def choices_of(experiment: Experiment, measured: Measured, roles: tuple[str, ...]) -> list[Choice]:
    """Return the settings of algorithms with some roles, the one with the least regret first."""
    factors = {(MAIN, ""): 1.0} | {
        (study.name, variant.label): float(variant.changes["bonus_scale_factor"])
        for study in experiment.studies
        for variant in study.variants
    }
    found = []
    for place in measured.places:
        rate = measured.rate(place)
        few = rate.rate <= MOST_VIOLATIONS and not rate.most_broke
        if measured.role(place) in roles and (few or UCBVI in roles):
            name = f"{place.algorithm}, {place.variant or 'scale c'}"
            regret = measured.mean(place, "regret").value
            found.append(Choice(algorithm_of(experiment, place), name, factors[place[2:]], regret))
    return sorted(found, key=lambda choice: choice.regret)


def algorithm_of(experiment: Experiment, place: Place) -> Algorithm:
    """Return the algorithm of a place."""
    (found,) = (each for each in experiment.algorithms if each.label == place.algorithm)
    assert isinstance(found, Algorithm)
    return found


def table_of(choice: Choice) -> str:
    """Return the tables of the chosen setting, as an experiment has them."""
    import tomli_w

    options = {
        key: value for key, value in choice.algorithm.to_table().items() if key not in ("label", "role")
    }
    algorithm = {"label": "chary, chosen", "role": "chosen", **options}
    variant = {"label": choice.name, "bonus_scale_factor": choice.factor}
    return (
        f"[[studies.algorithms]]\n{tomli_w.dumps(algorithm)}\n[[studies.variants]]\n{tomli_w.dumps(variant)}"
    )


def main(where: Path, within: Path = EXPERIMENTS) -> list[str]:
    """Write the choices, and return them in words.

    Raises:
        SystemExit: if a run is missing, or the experiment has no place for a choice.
    """
    folder = SweepFolder(where)
    experiment, states = folder.experiment(), folder.states()
    if any(state.state != "done" for state in states):
        sys.exit(f"{where} must be a finished sweep. Start it again to play the rest.")
    target = within / f"{experiment.name.removesuffix('-selection')}.toml"
    text = target.read_text(encoding="utf-8")
    measured = Measured(load_tables(where))
    best, *_ = choices_of(experiment, measured, (UCBVI,))
    text, changed = BEST.subn(f"bonus_scale_factor = {best.factor}", text)
    if not changed:
        sys.exit(f"{target} must have a scale marked as UCBVI's best, got none.")
    said = [f"{best.name}: regret {best.regret:,.0f}"]
    chosen = choices_of(experiment, measured, OURS)
    if chosen and CHOSEN.search(text):
        text = CHOSEN.sub(lambda _: table_of(chosen[0]), text)
        said.append(f"chosen: {chosen[0].name}: regret {chosen[0].regret:,.0f}")
    target.write_text(text, encoding="utf-8")
    read_experiment(target).check()
    return said


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("The folder of one selection must be given. Run: python scripts/choose_settings.py DIR.")
    print("\n".join(main(Path(sys.argv[1]))))
