"""Two certified promises that break because something they lean on is false: what is said, and what is lost.

    python examples/leans_on.py

First a log of a clinician who saw more than was logged, then two conditions of a patient behind one cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import chary
from chary.data import Bins

ETA = 0.1  # trying something may cost a patient at most 10 percentage points of survival, in expectation
USUAL, NEW = 0, 1
LOGGED, PATIENTS = 4_000, 500


class Outcome(NamedTuple):
    """The promise as it was made, and the truth about it."""

    standing: chary.Standing
    patients: int  # given the new treatment
    loss: float  # true expected loss of each of them, compared with usual care

    def show(self, title: str) -> None:
        """Print it."""
        print(title)
        print(f"  {self.patients} of {PATIENTS} patients get the new treatment.")
        print(f"  Its true expected loss is {self.loss:.2f} per patient, the budget {ETA}.")
        print(f"  {self.standing.describe()}\n")


def agent_for(setting: chary.Setting, cells: Bins | None = None) -> chary.TabularAgent:
    """Return an agent whose baseline is usual care, with certified bounds and the strictest rule."""
    usual = chary.OwnBaseline.declare(np.full(setting.n_states, USUAL), setting, role="only")
    return chary.TabularAgent(chary.CharyUCBVI(eta=ETA), setting, own=usual, discretiser=cells)


# 1. A clinician who saw more than the log. Patients are mild or severe, which nobody wrote down. The new
# treatment lowers survival by 0.2 for both.
SURVIVAL = np.array([[0.9, 0.7], [0.5, 0.3]])  # by severity and treatment


def one_visit(*, confounded: bool) -> Outcome:
    """Learn from a log in which the new treatment was given to mild patients, or by lot, and go live."""
    chance = np.random.default_rng(0)
    agent = agent_for(chary.Setting.declare(n_states=1, n_actions=2, horizon=1))

    def visit(action: int, severity: int) -> chary.Transition:
        survives = chance.random() < SURVIVAL[severity, action]
        return chary.Transition(0, action, float(survives), 0, False)

    log = []
    for severity in chance.integers(2, size=LOGGED).tolist():
        share = (0.95, 0.05)[severity] if confounded else 0.5
        log.append([visit(int(chance.random() < share), severity)])
    agent.warm_start(log)
    new = 0
    for k, severity in enumerate(chance.integers(2, size=PATIENTS).tolist()):
        agent.begin(k, 0)
        action = agent.act(k, 0, 0, proposal=NEW).action
        new += action == NEW
        agent.observe(k, visit(action, severity))
        agent.finish(k)
    loss = SURVIVAL[:, USUAL].mean() - SURVIVAL[:, NEW].mean()
    return Outcome(agent.standing, new, float(loss))


# 2. Two conditions behind one cell. After usual care a patient recovers, after the new treatment one is weak.
# Both have a low pressure, and with wide bins both are in one cell. A weak patient survives with 0.3.
ADMITTED, RECOVERED, WEAK = 0.8, 0.4, 0.2  # blood pressure
SURVIVES = {RECOVERED: 0.9, WEAK: 0.3}


def two_visits(edges: list[float]) -> Outcome:
    """Learn from a trial with treatments by lot, with patients in cells of blood pressure, and go live."""
    chance = np.random.default_rng(0)
    cells = Bins([edges])
    agent = agent_for(chary.Setting.declare(n_states=cells.n_states, n_actions=2, horizon=2), cells)

    def cell(pressure: float) -> int:
        return int(cells([[pressure]])[0])

    def after(action: int) -> float:
        return RECOVERED if action == USUAL else WEAK

    def first(action: int) -> chary.Transition:
        return chary.Transition(cell(ADMITTED), action, 0.0, cell(after(action)), False)

    def second(pressure: float, action: int) -> chary.Transition:
        here, survives = cell(pressure), chance.random() < SURVIVES[pressure]
        return chary.Transition(here, action, float(survives), here, False)

    trial = chance.integers(2, size=LOGGED).tolist()
    agent.warm_start([[first(action), second(after(action), USUAL)] for action in trial])
    new = 0
    for k in range(PATIENTS):
        agent.begin(k, cell(ADMITTED))
        action = agent.act(k, 0, cell(ADMITTED), proposal=NEW).action
        new += action == NEW
        agent.observe(k, first(action))
        pressure = after(action)
        later = agent.act(k, 1, cell(pressure), proposal=USUAL).action
        agent.observe(k, second(pressure, later))
        agent.finish(k)
    return Outcome(agent.standing, new, SURVIVES[RECOVERED] - SURVIVES[WEAK])


def main() -> None:
    """Print both examples, each with its remedy."""
    one_visit(confounded=True).show("A log of a clinician who saw more than it contains:")
    one_visit(confounded=False).show("A log of treatments by lot:")
    two_visits([0.0, 0.5, 1.0]).show("Two conditions behind one cell:")
    two_visits([0.0, 0.3, 0.5, 1.0]).show("One more edge between them:")


if __name__ == "__main__":
    main()
