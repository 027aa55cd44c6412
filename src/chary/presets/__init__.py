"""Defaults of `chary run PROBLEM`: one TOML file per problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType
from typing import Any

from chary.errors import InvalidSetting, UnknownName, check_choice, check_integer, check_real, check_type
from chary.extensions import is_reference, resolved
from chary.model.calibration import CalibrationRecord
from chary.storage.files import parse_toml
from chary.texts import shown

__all__ = ["NAMES", "Preset", "parse", "preset"]

NAMES = ("inventory", "sepsis", "corridor", "riverswim", "random")
# Problems that other commands play.
CONTINUOUS = ("hiv", "cartpole", "glucose", "plane")

BONUSES = ("hoeffding", "l1", "kl", "bernstein")
# In place of a family of bounds: posterior worlds.
POSTERIOR = "posterior"
# The families with a bonus scale that can be calibrated.
SCALED = ("hoeffding", "bernstein")
REWARDS = ("estimated", "known")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The settings of one problem.

    Args:
        episodes: Online episodes, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        eta: The exploration budget of every episode, >= 0, in the problem's own reward units; None where the
            user must give one.
        bonus: The family of bounds, or `posterior` for posterior worlds.
        bounds: The family of bounds of agents that have no worlds; by default `bonus`.
        risk: With posterior worlds, the probability, in (0, 1), of exceeding the budget in an episode.
        reward: Whether the reward function is `known` to the agent or `estimated` from data.
        delta: The probability, in (0, 1), with which the bounds of a run may fail.
        note: What to expect of a run beside its numbers, in one sentence, or nothing.
        scale: The factor on the bonus, > 0, per family that has one.
        calibration: The calibrations of the problem that passed (`chary calibrate`). A run with one of these
            scales is calibrated if it fits one of them exactly, and uncertified otherwise.

    Raises:
        CharyError: if a value is out of range.
    """

    episodes: int
    warmup: int
    eta: float | None
    bonus: str
    bounds: str = ""
    risk: float = 0.001
    reward: str
    delta: float = 0.1
    note: str = ""
    scale: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    calibration: tuple[CalibrationRecord, ...] = ()

    def __post_init__(self) -> None:
        check_integer("episodes", self.episodes, minimum=1)
        check_integer("warmup", self.warmup, minimum=0)
        if self.eta is not None:
            check_real("eta", self.eta, low=0.0)
        check_choice("bonus", self.bonus, (*BONUSES, POSTERIOR))
        if not self.bounds:
            object.__setattr__(self, "bounds", self.bonus)
        check_choice("bounds", self.bounds, BONUSES)
        check_real("risk", self.risk, low=0.0, high=1.0, open_low=True, open_high=True)
        check_type("note", self.note, str, "a sentence")
        check_choice("reward", self.reward, REWARDS)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        for family, factor in self.scale.items():
            check_choice("scale", family, SCALED)
            check_real(f"scale.{family}", factor, low=0.0, open_low=True, open_high=True)

    def bonus_scale(self, bonus: str) -> float:
        """Return the factor of a family of bounds, or 1 if it has none."""
        return self.scale.get(bonus, 1.0)

    def under(self, bonus: str) -> Preset:
        """Return the preset for a family of bounds, with the length and budget that its scale is for."""
        record = self._record(bonus)
        if record is None:
            return self
        return replace(self, episodes=record.episodes, warmup=record.warmup, eta=record.eta)

    def of_agent(self, bonus: str | None = None) -> dict[str, Any]:
        """Return the options of an agent that the preset sets, with its own or another family of bounds."""
        family = self.bonus if bonus is None else bonus
        record = self._record(family)
        return {
            **({} if self.eta is None else {"eta": self.under(family).eta}),
            "bonus": family,
            "bonus_scale": self.bonus_scale(family),
            "reward": self.reward,
            "delta": self.delta,
            **({"risk": self.risk} if family == POSTERIOR else {}),
            **({} if record is None else {"patience": record.patience}),
        }

    def _record(self, bonus: str) -> CalibrationRecord | None:
        """Return the calibration of the preset's scale of a family, None where there is none."""
        fitting = (each for each in self.calibration if each.bonus == bonus)
        return next((each for each in fitting if each.bonus_scale == self.scale.get(bonus)), None)


# For a problem without a preset: sizes to start with, and the defaults of agents.
NONE = Preset(episodes=1000, warmup=0, eta=None, bonus="kl", reward="estimated")


def counted(problem: object) -> str:
    """Return the name of a problem whose states can be counted, or the "module:name" of your own.

    Raises:
        UnknownName: if there is no such problem, or its states are vectors of numbers.
    """
    if problem in CONTINUOUS:
        raise UnknownName(
            f"'problem' must have states that can be counted, got {problem!r}, whose states are vectors of "
            f"numbers. Run: chary reproduce {problem}"
        )
    return resolved("problem", problem, NAMES)


def preset(problem: str) -> Preset:
    """Return the preset of a problem; one of your own, as "module:name" or of an entry point, has none.

    Raises:
        UnknownName: if there is no such problem.

    Example:
        >>> preset("inventory").warmup
        5
    """
    name = counted(problem)
    if is_reference(name):
        return NONE
    return parse(resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def parse(text: str) -> Preset:
    r"""Return the preset that a TOML text describes.

    Raises:
        UnknownName: if it has a key that presets do not have.
        InvalidSetting: if it is not TOML, lacks a key, or has a value out of range.

    Example:
        >>> parse('episodes = 5\nwarmup = 1\neta = 0.2\nbonus = "kl"\nreward = "known"').episodes
        5
    """
    try:
        table = parse_toml(text)
    except ValueError as problem:
        raise InvalidSetting(f"'preset' must be TOML: {problem}.") from problem
    known = Preset.__dataclass_fields__
    for key in table:
        if key not in known:
            raise UnknownName(f"a preset's keys must be among {', '.join(known)}, got {key!r}.")
    missing = [key for key in ("episodes", "warmup", "eta", "bonus", "reward") if key not in table]
    if missing:
        raise InvalidSetting(f"{missing[0]!r} must be given in a preset. Add this key.")
    scale = table.pop("scale", {})
    if not isinstance(scale, dict):
        raise InvalidSetting(f"'scale' must be a table of factors, got {shown(scale)}.")
    records = table.pop("calibration", [])
    if not (isinstance(records, list) and all(isinstance(each, dict) for each in records)):
        raise InvalidSetting(
            f"'calibration' must be a list of tables, [[calibration]], got {shown(records)}."
        )
    found = tuple(CalibrationRecord.from_plain(each) for each in records)
    if failed := [each for each in found if not each.passed]:
        raise InvalidSetting(f"'calibration' must contain what passed alone, but {failed[0].describe()}.")
    return Preset(**table, scale=MappingProxyType(scale), calibration=found)
