"""Make lessons.csv, the records of a tutoring product: 900 pupils of up to six lessons each.

    python examples/data/make_lessons.py     # writes examples/data/lessons.csv, always the same

The product's rule shows a video to whoever is new to the topic, and drills everybody else. Teachers chose
another exercise at one lesson of seven, by chance. Pupils may leave after any lesson. `Pupil` stands for the
pupils to come.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

LEVELS = ("new", "shaky", "fair", "solid")
EXERCISES = ("video", "drill", "quiz", "game")
STATES = [f"{level}, {mood}" for level in LEVELS for mood in ("fresh", "tired")]
LESSONS, PUPILS, OWN_WAY = 6, 900, 1 / 7
# Expected gain in points of the test, by level and exercise, and the chance to reach the next level by it.
GAIN = np.array([[2.5, 1.0, 0.0, 0.8], [1.2, 2.2, 2.0, 0.8], [0.5, 1.2, 3.2, 0.8], [0.0, 0.4, 1.5, 0.6]])
LEARNS = np.array([[0.5, 0.3, 0.1, 0.1], [0.2, 0.35, 0.4, 0.1], [0.1, 0.2, 0.4, 0.1], [0.0, 0.0, 0.0, 0.0]])
# The chances to be tired afterwards, and to leave, by exercise; whoever is tired learns half as much.
TIRES = np.array([[0.2, 0.5, 0.4, 0.05], [0.5, 0.8, 0.7, 0.15]])
LEAVES = np.array([[0.02, 0.03, 0.03, 0.01], [0.08, 0.2, 0.15, 0.03]])


class Pupil:
    """A pupil who starts at a random level: `state` in words, and `lesson` to teach one."""

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance
        self._level, self._tired = int(chance.integers(3)), 0

    @property
    def state(self) -> str:
        """The level and the mood, in words."""
        return STATES[2 * self._level + self._tired]

    def lesson(self, exercise: str) -> tuple[int, str, bool]:
        """Return the gain in points, the state afterwards, and whether the pupil leaves."""
        chance, e = self._chance, EXERCISES.index(exercise)
        share = 0.5 if self._tired else 1.0
        # One forgets as well: a lesson may lose up to two points.
        gain = int(np.clip(round(chance.normal(share * GAIN[self._level, e], 1.2)), -2, 8))
        left = bool(chance.random() < LEAVES[self._tired, e])
        self._level += int(chance.random() < share * LEARNS[self._level, e])
        self._tired = int(chance.random() < TIRES[self._tired, e])
        return gain, self.state, left


def rule(state: str) -> str:
    """Return the exercise that the product chooses today."""
    return "video" if state.startswith("new") else "drill"


def main() -> None:
    """Write the file."""
    chance = np.random.default_rng(2025)
    with Path(__file__).with_name("lessons.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["pupil", "lesson", "level", "exercise", "gain", "level after", "left"])
        for number in range(PUPILS):
            pupil, left = Pupil(chance), False
            for lesson in range(1, LESSONS + 1):
                state, exercise = pupil.state, rule(pupil.state)
                if chance.random() < OWN_WAY:
                    exercise = str(chance.choice(EXERCISES))
                gain, after, left = pupil.lesson(exercise)
                table.writerow(
                    [f"p{number:03}", lesson, state, exercise, gain, after, "yes" if left else "no"]
                )
                if left:
                    break


if __name__ == "__main__":
    main()
