"""A fresh reader's way: from a semicolon CSV in words to a live agent, by what the docs alone say.

The problem is a reader's own: a bed in a greenhouse is an episode of at most eight days, counted from 1,
which may be given up early; a day earns cents, which may be negative, by the soil and the watering.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.arrays import Floats

SOIL = ["parched", "dry", "moist", "soaked"]
WATER = ["none", "a can", "the hose"]
# The chances to rise by two and by one; else the soil dries by one.
RISE = {"none": (0.0, 0.15), "a can": (0.1, 0.6), "the hose": (0.75, 0.2)}
COST = {"none": 0, "a can": 8, "the hose": 25}
GROWN = [-30, 20, 90, 10]
GIVEN_UP = 0.12
DAYS, ETA, LOGGED = 8, 60.0, 1500

PROGRAM = """
import numpy as np
import chary
from chary.data import read_log

soils, ways = ["parched", "dry", "moist", "soaked"], ["none", "a can", "the hose"]
columns = {"episode": "bed", "t": "day", "state": "soil", "action": "watered", "reward": "cents"}
columns |= {"next_state": "soil next morning", "terminated": "given up"}
labels = {"state": soils, "action": ways}
log = read_log("beds.csv", delimiter=";", columns=columns, labels=labels, first_step=1)
setting = chary.Setting.declare(
    n_states=4, n_actions=3, horizon=8, early_endings=True, reward_range=(-65, 100)
)
agent = chary.TabularAgent(chary.CharyUCBVI(eta=60, bonus=bonus), setting)
agent.warm_start(log.episodes())

waiting, opened, earned, decided, plans = list(range(beds)), {}, {}, {}, {}
while waiting or opened:
    while waiting and len(opened) < 20:  # twenty beds are open at once
        name = waiting.pop(0)
        opened[name], earned[name], decided[name] = Bed(name), 0, []
        agent.begin(name, soils.index(opened[name].soil))
        plans[name] = agent.plan_of(name)
    for name, bed in list(opened.items()):
        soil = soils.index(bed.soil)
        decision = agent.act(name, bed.day - 1, soil)
        decided[name].append((soil, decision.action))
        cents, after, given_up = bed.water(ways[decision.action])
        agent.observe(name, chary.Transition(soil, decision.action, cents, soils.index(after), given_up))
        earned[name] += cents
        if bed.over:
            agent.finish(name)
            del opened[name]
"""


class Bed:
    """One bed of the greenhouse."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.day, self.soil, self.over = 1, self._chance.choice(["dry", "moist"]), False

    def water(self, how: str) -> tuple[int, str, bool]:
        """Return what the day earned in cents, the soil next morning, and whether the bed was given up."""
        i, u, (two, one) = SOIL.index(self.soil), self._chance.random(), RISE[how]
        j = min(i + 2, 3) if u < two else min(i + 1, 3) if u < two + one else max(i - 1, 0)
        cents = GROWN[j] - COST[how] + self._chance.choice([-10, 0, 10])
        given_up = j == 0 and self._chance.random() < GIVEN_UP
        self.day += 1
        self.soil, self.over = SOIL[j], given_up or self.day > DAYS
        return cents, self.soil, given_up


def habit(soil: str, chance: random.Random) -> str:
    """The gardener's way: a can for dry soil, and now and then anything."""
    if chance.random() < GIVEN_UP:
        return chance.choice(WATER)
    return "a can" if soil in ("parched", "dry") else "none"


def log_of_beds(beds: int) -> tuple[str, list[int]]:
    """Return the gardener's log as a file, and what each bed earned."""
    lines, earned = ["bed;day;soil;watered;cents;soil next morning;given up"], []
    for k in range(beds):
        bed, chance, total = Bed(10**6 + k), random.Random(2 * 10**6 + k), 0
        while not bed.over:
            day, soil, how = bed.day, bed.soil, habit(bed.soil, chance)
            cents, after, given_up = bed.water(how)
            total += cents
            lines.append(f"B{k:04};{day};{soil};{how};{cents};{after};{'yes' if given_up else 'no'}")
        earned.append(total)
    return "\n".join(lines) + "\n", earned


def true_model() -> tuple[Floats, Floats]:
    """Return the mean cents (S, A) and the chances (S, A, S) to go on in each soil: what is missing ends."""
    cents, go_on = np.zeros((4, 3)), np.zeros((4, 3, 4))
    for i in range(4):
        for a, how in enumerate(WATER):
            two, one = RISE[how]
            for j, p in ((min(i + 2, 3), two), (min(i + 1, 3), one), (max(i - 1, 0), 1 - two - one)):
                cents[i, a] += p * (GROWN[j] - COST[how])
                go_on[i, a, j] += p * (1 - GIVEN_UP if j == 0 else 1)
    return cents, go_on


def true_gaps(plan: Any) -> Floats:
    """Return what each action loses compared with the baseline of a plan, (H, S, A)."""
    cents, go_on = true_model()
    gaps, value = np.zeros((DAYS, 4, 3)), np.zeros(4)
    for t in reversed(range(DAYS)):
        worth = cents + go_on @ value
        value = np.array([worth[s, plan.baseline(t, s)] for s in range(4)])
        gaps[t] = value[:, None] - worth
    return gaps


def live(bonus: str, beds: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names that the reader's program leaves behind."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"Bed": Bed, "bonus": bonus, "beds": beds}
    exec(compile(PROGRAM, "live.py", "exec"), names)
    return names


def deficits(names: dict[str, Any]) -> Floats:
    """Return what every bed lost in expectation by leaving its baseline."""
    plans = names["plans"]
    # The plans are kept, so that the ids are theirs alone.
    gaps = {number: true_gaps(plan) for number, plan in {id(plan): plan for plan in plans.values()}.items()}
    return np.array(
        [
            sum(gaps[id(plans[name])][t, s, a] for t, (s, a) in enumerate(steps))
            for name, steps in names["decided"].items()
        ]
    )


def standard_error(amounts: Sequence[float]) -> float:
    return float(np.std(amounts) / len(amounts) ** 0.5)


def test_a_log_in_words_goes_live_better_than_the_habit_and_within_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROGRAM.strip().count("\n") < 40
    text, habits = log_of_beds(LOGGED)
    (tmp_path / "beds.csv").write_text(text)
    found = live("posterior", 600, tmp_path, monkeypatch)
    earned, agent = list(found["earned"].values()), found["agent"]
    apart = np.mean(earned) - np.mean(habits)
    assert apart > 4 * np.hypot(standard_error(earned), standard_error(habits))
    lost = deficits(found)
    assert lost.max() <= ETA
    assert (lost > 0).any()  # it tried something that cost something
    assert agent.standing.level == "credible"
    # Steps after an ending are not counted, and asking for one says that the episode has ended.
    assert agent.stats().steps == sum(map(len, found["decided"].values())) < 600 * DAYS

    # The guide says so: a small problem is no sign that certified bounds would explore.
    proved = list(live("kl", 600, tmp_path, monkeypatch)["earned"].values())
    ahead = np.mean(earned) - np.mean(proved)
    assert ahead > 3 * np.hypot(standard_error(earned), standard_error(proved))
