"""The example of the demonstration and of the pages: a simulated clinic for blood pressure.

At each of six visits a patient has a grade from 0 to 5 (the state) and gets one of three treatments (the
action). A visit is worth up to 100 euros, less the grade's harm and the treatment's cost. Today's rule treats
mildly from grade 3 on; there is something better, which the rule's log hardly shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chary.envs.tabular_env import TabularEnv
from chary.errors import InvalidSetting
from chary.mdp import FiniteMDP
from chary.randomness import generator_for, seed_for
from chary.storage.files import write_new

GRADES, VISITS = 6, 6
TREATMENTS = ("none", "mild", "strong")
LOWEST, HIGHEST = -10.0, 100.0
# Euros per patient that exploring may lose in expectation.
ETA = 15.0
# The chance of a grade less and of a grade more, by treatment.
BETTER, WORSE = (0.15, 0.35, 0.55), (0.25, 0.15, 0.10)
HARM, COSTS = 18.0, (0.0, 6.0, 16.0)
# The share of visits at which the log has another treatment than today's rule.
STRAYED = 0.1
PATIENTS = 2000
LOG, RULE = "visits.csv", "rule.csv"


def todays_rule(grade: int) -> int:
    """Return the treatment of today: mild from grade 3 on."""
    return 1 if grade >= 3 else 0


def ward() -> FiniteMDP:
    """Return the clinic, which only the simulation of its patients knows."""
    moves = np.zeros((GRADES, len(TREATMENTS), GRADES))
    for grade in range(GRADES):
        for treatment in range(len(TREATMENTS)):
            moves[grade, treatment, max(grade - 1, 0)] += BETTER[treatment]
            moves[grade, treatment, min(grade + 1, GRADES - 1)] += WORSE[treatment]
            moves[grade, treatment, grade] += 1 - BETTER[treatment] - WORSE[treatment]
    euros = HIGHEST - HARM * np.arange(GRADES)[:, None] - np.array(COSTS)
    return FiniteMDP.from_arrays(
        moves,
        euros,
        horizon=VISITS,
        start=np.full(GRADES, 1 / GRADES),
        reward_range=(LOWEST, HIGHEST),
        name="ward",
    )


def write_files(folder: Path, *, seed: int = 0, patients: int = PATIENTS) -> tuple[Path, Path]:
    """Write a log of today's rule and the rule itself to a folder, and return the two files.

    Raises:
        InvalidSetting: if one of them exists.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, rule = folder / LOG, folder / RULE
    for file in (log, rule):
        if file.exists():
            raise InvalidSetting(f"'files' must be a folder without {file.name}, got {str(folder)!r}.")
    world, chance = TabularEnv(ward()), generator_for(seed, "treatments of the log")
    rows = ["episode,t,state,action,reward,next_state,terminated"]
    for patient in range(patients):
        grade = int(world.reset(seed=seed_for(seed, f"logged patient {patient}"))[0])
        for visit in range(VISITS):
            strays = chance.random() < STRAYED
            treatment = int(chance.integers(len(TREATMENTS))) if strays else todays_rule(grade)
            after, euros, _, _, _ = world.step(np.int64(treatment))
            rows.append(f"{patient},{visit},{grade},{TREATMENTS[treatment]},{float(euros):g},{int(after)},no")
            grade = int(after)
    write_new(log, ("\n".join(rows) + "\n").encode(), overwrite=False)
    acts = [f"{grade},{TREATMENTS[todays_rule(grade)]}" for grade in range(GRADES)]
    write_new(rule, ("\n".join(["state,action", *acts]) + "\n").encode(), overwrite=False)
    return log, rule
