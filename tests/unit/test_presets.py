"""Presets: every problem has one, and every scale in them was made by `chary calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chary.envs import PROBLEMS
from chary.errors import CharyError
from chary.presets import NAMES, parse, preset

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_every_problem_has_a_preset() -> None:
    assert set(NAMES) == set(PROBLEMS)


@pytest.mark.parametrize("name", NAMES)
def test_scales_are_those_that_calibration_recorded(name: str) -> None:
    for family, scale in preset(name).scale.items():
        recorded = json.loads((RESULTS / "calibrations.json").read_text(encoding="utf-8"))["results"]
        found = recorded[f"{name} preset"]
        assert (found["scale"], found["calibration"]["bonus"]) == (scale, family)
        assert found["standing"] == "calibrated"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("episodes = 5", "'warmup' must be given"),
        ('episodes = 5\nwarmup = 1\neta = 0.2\nbonus = "kl"\nreward = "known"\nepisode = 3', "got 'episode'"),
        ('episodes = 0\nwarmup = 1\neta = 0.2\nbonus = "kl"\nreward = "known"', "'episodes' must be"),
        ('episodes = 5\nwarmup = 1\neta = -1\nbonus = "kl"\nreward = "known"', "'eta' must"),
        ("episodes = ", "'preset' must be TOML"),
        (
            'episodes = 5\nwarmup = 1\neta = 1\nbonus = "posterior"\nreward = "known"',
            "'bounds' must be",
        ),
        ('episodes = 5\nwarmup = 1\neta = 1\nbonus = "kl"\nreward = "known"\nrisk = 0', "'risk' must"),
        ('episodes = 5\nwarmup = 1\neta = 1\nbonus = "kl"\nreward = "known"\nnote = 3', "'note' must be"),
    ],
)
def test_a_wrong_preset_is_refused(text: str, message: str) -> None:
    with pytest.raises(CharyError, match=message):
        parse(text)
