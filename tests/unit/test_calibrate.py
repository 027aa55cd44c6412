"""Calibration: the scale returned is one that passed, and the search goes where it must."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chary import calibrate as module
from chary.calibrate import calibrate
from chary.errors import CharyError, InvalidSetting


class Inline:
    """A pool of no processes: the work is done here."""

    def map(self, function: Callable[[str], Any], work: Iterable[str]) -> Iterator[Any]:
        return map(module._play, work)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[float], bool]], None]:
    """Replace the runs by a rule that says at which scales every ledger lies."""

    @contextmanager
    def pool(workers: int) -> Iterator[Inline]:
        yield Inline()

    def install(lies: Callable[[float], bool]) -> None:
        def play(work: str) -> tuple[bool, bool, bool, bool]:
            return lies(json.loads(work)["agent"]["bonus_scale"]), False, False, True

        monkeypatch.setattr(module, "worker_pool", pool)
        monkeypatch.setattr(module, "_play", play)

    return install


@pytest.mark.parametrize("edge", [3e-4, 0.02, 0.9, 1.0, 5.0, 200.0])
def test_the_edge_is_found_and_the_chosen_scale_passed(
    edge: float, inline: Callable[[Callable[[float], bool]], None]
) -> None:
    inline(lambda scale: scale < edge)
    found = calibrate("riverswim", eta=0.3, runs=3, precision=1.1)
    assert found.chosen.failures == 0
    assert edge <= found.scale <= 1.1 * edge


def test_a_family_that_always_fails_is_refused(inline: Callable[[Callable[[float], bool]], None]) -> None:
    inline(lambda scale: True)
    with pytest.raises(InvalidSetting, match="fails on siblings of 'riverswim' at every scale"):
        calibrate("riverswim", eta=0.3, runs=3)


def test_a_family_that_never_fails_is_refused(inline: Callable[[Callable[[float], bool]], None]) -> None:
    inline(lambda scale: False)
    with pytest.raises(InvalidSetting, match="never failed on siblings of 'riverswim'"):
        calibrate("riverswim", eta=0.3, runs=3)


@pytest.mark.parametrize(
    "options",
    [
        {"bonus": "kl"},
        {"runs": 0},
        {"delta": 1.0},
        {"precision": 1.0},
        {"workers": 0},
        {"eta": -1.0},
        {"charge": "papr"},
        {"episodes": 0},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CharyError):
        calibrate("riverswim", **{"eta": 0.3, **options})


def test_a_real_calibration_is_repeatable() -> None:
    settings: dict[str, Any] = {"eta": 0.4, "runs": 3, "episodes": 30, "warmup": 30, "precision": 3.9}
    once, again = (calibrate("inventory", **settings) for _ in range(2))
    assert once.to_json() == again.to_json()
    assert once.chosen.failures <= once.delta * once.runs
    assert "needs a scale of" in once.describe()
