"""A ward of 50 beds: hospital logs, today's treatment as the floor, late outcomes, and a restart.

    python examples/clinic.py [--quick] [--figure clinic.png]

Patients are simulated by ICU-Sepsis: 716 states, 25 treatments, reward 1 for survival.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import chary
from chary.data import Log, inspect, read_log, write_log
from chary.evaluation import evaluate_policy
from chary.presets import preset

BEDS, ETA = 50, 0.1  # exploring may cost a patient at most 10 percentage points of survival, in expectation
WARD = chary.envs.make("sepsis")
SETTING = WARD.told()  # what agents may know: states, allowed treatments, the horizon; no probabilities
USUAL_CARE = np.array(WARD.recorded_policy)  # the most frequent treatment per state


class Patient:
    """A simulated patient; in a hospital, real patients take the place of this class."""

    def __init__(self, number: int) -> None:
        self.env = chary.envs.TabularEnv(WARD)
        self.t, self.state = 0, int(self.env.reset(seed=number)[0])

    def treat(self, action: int) -> tuple[chary.Transition, bool]:
        """Return the report on one treatment, and whether the stay is over."""
        after, reward, ended, cut_off, _ = self.env.step(np.int64(action))
        report = chary.Transition(self.state, action, float(reward), int(after), ended)
        self.t, self.state = self.t + 1, int(after)
        return report, ended or cut_off


def stay(number: int, treatment: Callable[[int], int]) -> list[chary.Transition]:
    """Return the reports on a whole stay under a policy."""
    patient, reports, over = Patient(number), [], False
    while not over:
        report, over = patient.treat(int(treatment(patient.state)))
        reports.append(report)
    return reports


def run_ward(folder: Path, patients: int, logged: int) -> NDArray[np.float64]:
    """Go from logs to a live ward, and return the deficit booked for each patient."""
    # 1. The hospital's data: a file of usual care, and one of a trial with random treatments. Participation
    # in the trial was decided beforehand, so the first file is a fair sample of usual care.
    chance, numbers = np.random.default_rng(0), iter(range(10**6))
    usual = [stay(next(numbers), lambda s: USUAL_CARE[s]) for _ in range(logged)]
    write_log(Log.from_transitions(usual), folder / "usual.csv")
    drawn = [np.flatnonzero(row) for row in SETTING.allowed]
    trial = [stay(next(numbers), lambda s: chance.choice(drawn[s])) for _ in range(logged)]
    write_log(Log.from_transitions(trial), folder / "trial.csv")
    care, tried = (read_log(folder / name, setting=SETTING) for name in ("usual.csv", "trial.csv"))
    print(inspect(care, SETTING).describe(), end="\n\n")

    # 2. The value of usual care. A stay earns 0 or 1; declaring this makes the interval much tighter.
    worth = evaluate_policy(care, USUAL_CARE, SETTING, method="returns", return_range=(0, 1))
    print(f"Usual care is {worth.describe()}")
    floor = chary.OwnBaseline.declare(USUAL_CARE, SETTING, role="floor")

    # 3. No certified bound explores at 716 states. Hoeffding's with the preset's scale does. That scale was
    #    not calibrated for a ward like this, so the promise is uncertified, and the agent says why.
    scale = preset("sepsis").bonus_scale("hoeffding")
    # Among 716 states a chain meets the one that it waits for rarely: it may wait for ever.
    spec = chary.CharyUCBVI(eta=ETA, bonus="hoeffding", bonus_scale=scale, patience=None)
    agent = chary.TabularAgent(spec, SETTING, own=floor, max_episodes=patients)
    agent.warm_start(itertools.chain(care.episodes(), tried.episodes()))
    print(
        f"The baseline is usual care{'' if agent.plan.fixed else ', improved'}. {agent.standing.describe()}"
    )

    # 4. Live: fill the beds, decide for all of them at once, and process the reports that have arrived.
    ward: dict[str, Patient] = {}
    mail: list[tuple[str, int, chary.Transition]] = []
    booked: dict[str, float] = {}
    explored, differing, left, restarted = 0, 0, 0, False
    waiting = [f"patient {n}" for n in range(patients)]
    while waiting or ward:
        while waiting and len(ward) < BEDS:
            name = waiting.pop(0)
            ward[name] = Patient(next(numbers))
            agent.begin(name, ward[name].state)
        asked = list(ward), [bed.t for bed in ward.values()], [bed.state for bed in ward.values()]
        decisions = agent.act_many(*asked)
        if not restarted and len(waiting) < patients // 2:
            # 5. The server goes down between decision and treatment. After the restart the decisions are
            #    requested again: they are the same, and nothing is booked twice.
            agent.save(folder / "ward.npz")
            agent = chary.TabularAgent.load(folder / "ward.npz", setting=SETTING)
            assert agent.act_many(*asked) == decisions
            restarted = True
            print(f"Restarted with {len(agent.open_episodes)} open episodes: the same decisions.")
        for (name, bed), decision in zip(list(ward.items()), decisions, strict=True):
            booked[name] = decision.deficit
            explored += decision.explored
            differing += decision.action != agent.plan_of(name).baseline(bed.t, bed.state)
            report, over = bed.treat(decision.action)
            mail.append((name, bed.t - 1, report))
            if over:
                agent.finish(name)  # learnt from once its last report has arrived
            elif chance.random() < 0.01:
                agent.abandon(name)  # what is missing counts as lost, and nothing is refunded
                mail = [letter for letter in mail if letter[0] != name]
                left, over = left + 1, True
            if over:
                del ward[name]
        chance.shuffle(mail)  # reports arrive late and in any order
        arrived = len(mail) // 2 if ward else len(mail)
        for name, t, report in mail[:arrived]:
            agent.observe(name, report, t=t)
        del mail[:arrived]

    # 6. The result: a deficit bounds what an episode lost compared with its baseline, in survival
    # probability.
    deficits = np.array(list(booked.values()))
    assert (deficits <= ETA).all()
    assert not agent.open_episodes
    print(f"patients             {len(booked)}, of whom {left} left early")
    print(f"explored steps       {explored}, of which {differing} off the baseline")
    print(f"patients charged     {(deficits > 0).sum()}")
    print(f"deficit              {deficits.mean():.4f} in the mean, {deficits.max():.4f} at most")
    print(f"over {ETA}             {(deficits > ETA).sum()}")
    print(f"baseline by now      usual care{'' if agent.plan.fixed else ', improved'}")
    return deficits


def main() -> None:
    """Run the ward, and print a summary for clinicians."""
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="fewer patients")
    options.add_argument("--figure", type=Path, metavar="PATH", help="needs pip install 'chary[figures]'")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        deficits = run_ward(Path(folder), *((200, 3000) if given.quick else (500, 8000)))
    if given.figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 3), dpi=150, layout="constrained")
        axes = figure.subplots()
        axes.bar(range(len(deficits)), deficits, width=2.0, color="#1F6FB2")
        axes.axhline(ETA, color="#D55E00", linestyle="--")
        axes.text(0, ETA, "budget of every patient", color="#D55E00", va="bottom")
        axes.set(xlabel="patient, by admission", ylabel="deficit booked", ylim=(0, ETA * 1.15))
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(given.figure)


if __name__ == "__main__":
    main()
