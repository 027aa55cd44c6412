"""What a deployment declares in its `chary.toml`: the problem, the agent, the incumbent, and its limits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
import tomli_w

from chary.agents import make_agent
from chary.agents.canary import Canary
from chary.agents.comparison import MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.arrays import Ints
from chary.data import Log, read_log, read_policy, read_rewards
from chary.errors import (
    InvalidData,
    InvalidSetting,
    check_choice,
    check_integer,
    check_real,
    check_seed,
    check_type,
    did_you_mean,
)
from chary.mdp.setting import Setting
from chary.policies import ROLES, OwnBaseline, load_policy
from chary.service.events import encode
from chary.service.modes import check_mode
from chary.storage.files import parse_toml, read_file, read_text
from chary.texts import shown

FILE: Final = "chary.toml"
# What `Setting.declare` takes as it is.
PLAIN: Final = (
    *("horizon", "discount", "terminal", "value_cap", "support", "reward_range", "allowed"),
    "early_endings",
)
SETTING: Final = ("n_states", "n_actions", "states", "actions", "rewards", *PLAIN)
# What the agent takes besides the options of its specification.
BESIDES: Final = ("name", "losses", "overrides", "max_episodes", "warmup")
# Episodes' worth of outcomes, and their share of all, between two drafts of a plan.
PLANNING: Final = {"every": 20, "growth": 0.02}
LIMITS: Final = {"open_episodes": 10_000, "snapshot_every": 10_000}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """All that a deployment declares; `chary.toml` has one table per field that is a dictionary.

    Args:
        name: What people call the deployment.
        setting: The arguments of `Setting.declare` that TOML can express, besides `states` and `actions`, the
            labels of both, and `rewards`, a file of known rewards.
        agent: `name` and options of the agent, as for `make_agent`; `losses`, `overrides`, `max_episodes` and
            `warmup` as for `TabularAgent`.
        policy: `file` and `role` of the incumbent's policy; empty if there is none.
        log: `file` of the warm-start log; empty if there is none.
        seed: Seed of the agent's generator.
        mode: The mode at the start.
        planning: A plan is drafted once `every` episodes were completed since the last draft and these are at
            least the share `growth` of all before. With `every = 0` there is a new plan before each episode
            that follows a completed one, made while it waits.
        limits: `open_episodes`, the most at once; `snapshot_every`, events between snapshots; and what else
            the server limits.
        folder: Where the files that it names are looked up.
    """

    name: str
    setting: dict[str, Any]
    agent: dict[str, Any]
    policy: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    mode: str = "apprentice"
    planning: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    @classmethod
    def read(cls, path: str | Path) -> Declaration:
        """Return what a TOML file declares; relative files in it are looked up beside it.

        Raises:
            CharyError: if it is missing, malformed, or has a key that is not known.
        """
        source = Path(path)
        return cls.parse(read_text(source, FILE), source.parent)

    @classmethod
    def parse(cls, text: str, folder: Path) -> Declaration:
        """Return what a text of TOML declares.

        Raises:
            CharyError: if it is malformed, or has a key that is not known.
        """
        try:
            values = parse_toml(text)
        except ValueError as problem:
            raise InvalidData(f"{FILE!r} must be TOML, got an error: {problem}.") from problem
        values.pop("deployment", None)
        known = [each.name for each in fields(cls) if each.name != "folder"]
        _check_keys(FILE, values, known)
        for name in ("name", "setting", "agent"):
            if name not in values:
                raise InvalidData(f"{name!r} must be declared in {FILE}, got nothing.")
        made = cls(**values, folder=folder)
        made.check()
        return made

    def check(self) -> None:
        """Raise a CharyError unless everything that can be checked without reading a file is in order."""
        check_type("name", self.name, str, "a text", error=InvalidData)
        for name in ("setting", "agent", "policy", "log", "planning", "limits"):
            check_type(name, getattr(self, name), dict, "a table", error=InvalidData)
        _check_keys("setting", self.setting, SETTING)
        _check_keys("policy", self.policy, ("file", "role"))
        _check_keys("log", self.log, ("file",))
        _check_keys("planning", self.planning, PLANNING)
        for name in ("policy", "log"):
            if (table := getattr(self, name)) and not isinstance(table.get("file"), str):
                raise InvalidData(f"'file' must be declared under [{name}] in {FILE}, got nothing.")
        check_choice("role", self.policy.get("role", "prior"), ROLES)
        check_seed(self.seed)
        check_mode(self.mode)
        check_integer("every", self.plans["every"], minimum=0)
        check_real("growth", self.plans["growth"], low=0.0, open_high=True)
        for name in LIMITS:
            check_integer(name, self.bounds[name], minimum=1)

    @property
    def plans(self) -> dict[str, Any]:
        """When plans are drafted, with what is not declared filled in."""
        return {**PLANNING, **self.planning}

    @property
    def bounds(self) -> dict[str, Any]:
        """The limits, with those of this module that are not declared filled in."""
        return {**LIMITS, **self.limits}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are named."""
        named = (self.policy.get("file"), self.log.get("file"), self.setting.get("rewards"))
        return tuple(name for name in named if name)

    @property
    def fixed(self) -> str:
        """A hash of what must stay as it is once the deployment was made."""
        kept = {name: getattr(self, name) for name in ("setting", "agent", "policy", "log", "seed", "mode")}
        return hashlib.sha256(encode(_sorted(kept))).hexdigest()

    def to_toml(self, deployment: str) -> bytes:
        """Return `chary.toml`, with the deployment's own number."""
        tables = {
            each.name: value
            for each in fields(self)
            if each.name != "folder" and (value := getattr(self, each.name)) != {}
        }
        plain = {name: value for name, value in tables.items() if not isinstance(value, dict)}
        return tomli_w.dumps({**plain, "deployment": deployment, **tables}).encode()

    def digest_of(self, name: str) -> str:
        """Return the sha256 of a file that is named."""
        return hashlib.sha256(read_file(self.folder / name, name="file")).hexdigest()

    def problem(self, *, with_log: bool = True) -> Problem:
        """Return the setting, the agent's specification, the incumbent and the log.

        Raises:
            CharyError: at the first thing that is wrong, or contradicts another one.
        """
        states, actions = (_labels(name, self.setting.get(name)) for name in ("states", "actions"))
        S = _size("n_states", self.setting, states)
        A = _size("n_actions", self.setting, actions)
        labels = {name: given for name, given in (("state", states), ("action", actions)) if given}
        plain: dict[str, Any] = {name: self.setting[name] for name in PLAIN if name in self.setting}
        if "horizon" not in plain:
            raise InvalidData(f"'horizon' must be declared under [setting] in {FILE}, got nothing.")
        if "reward_range" in plain:
            plain["reward_range"] = _pair("reward_range", plain["reward_range"])
        if "rewards" in self.setting:
            file = self.folder / self.setting["rewards"]
            plain["reward"] = read_rewards(file, n_states=S, n_actions=A, labels=labels)
        setting = Setting.declare(n_states=S, n_actions=A, **plain)
        options = {name: value for name, value in self.agent.items() if name not in BESIDES}
        spec = make_agent(self.agent.get("name", "chary"), **options)
        if isinstance(spec, (Canary, MixtureSpec)):
            raise InvalidSetting(
                "'agent' must be one whose plans serve all episodes that begin under them, got "
                f"{spec.name!r}, which makes a plan per episode. Use 'chary'."
            )
        own = table = None
        if self.policy:
            table = self._policy(setting, labels)
            own = OwnBaseline.declare(table, setting, role=self.policy.get("role", "prior"))
        log = None
        if self.log and with_log:
            log = read_log(self.folder / self.log["file"], labels=labels, setting=setting)
        return Problem(setting, spec, tuple(states), tuple(actions), own, table, log)

    def _policy(self, setting: Setting, labels: Mapping[str, Sequence[str]]) -> Ints:
        file = self.folder / self.policy["file"]
        if file.suffix == ".npz":
            return load_policy(file, setting)
        S = declared_states(setting)
        table = read_policy(file, n_states=S, horizon=setting.horizon, labels=labels)
        acting = ~setting.terminal[:S]
        if (table[..., acting] < 0).any():
            s = int(np.flatnonzero((np.atleast_2d(table) < 0).any(axis=0) & acting)[0])
            raise InvalidData(f"'policy' must have an action for every state, got none for state {s}.")
        table = np.where(acting, table, 0)
        # In the separate state of early endings there is nothing to choose.
        table = np.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, setting.n_states - S)])
        return OwnBaseline.declare(table, setting, role="prior").table

    def beside(self, folder: Path) -> Declaration:
        """Return this declaration with its files looked up in another folder, by their names alone."""
        moved = replace(self, folder=folder)
        for table, key in (("policy", "file"), ("log", "file"), ("setting", "rewards")):
            values = getattr(moved, table)
            if key in values:
                moved = replace(moved, **{table: {**values, key: Path(values[key]).name}})  # type: ignore[arg-type]
        return moved


class Problem(NamedTuple):
    """What a declaration describes, checked; `incumbent` is the user's policy, (H, S), if there is one."""

    setting: Setting
    spec: AgentSpec
    states: tuple[str, ...]
    actions: tuple[str, ...]
    own: OwnBaseline | None
    incumbent: Ints | None
    log: Log | None


def declared_states(setting: Setting) -> int:
    """Return the number of states without the separate one of early endings, which no request names."""
    return setting.n_states - (setting.ending is not None)


def _check_keys(where: str, values: Mapping[str, Any], known: Any) -> None:
    for name in values:
        if name not in known:
            raise InvalidData(
                f"{where!r} must have known keys only, got {shown(name)}.{did_you_mean(name, list(known))}"
            )


def _labels(name: str, labels: object) -> list[str]:
    if labels is None:
        return []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InvalidData(f"{name!r} must be a list of texts, got {shown(labels)}.")
    if len(set(labels)) < len(labels):
        raise InvalidData(f"{name!r} must be different texts, got one of them twice.")
    return labels


def _size(name: str, setting: Mapping[str, Any], labels: Sequence[str]) -> int:
    if name not in setting:
        if labels:
            return len(labels)
        raise InvalidData(f"{name!r} must be declared under [setting] in {FILE}, got nothing.")
    size = check_integer(name, setting[name], minimum=1, error=InvalidData)
    if labels and len(labels) != size:
        raise InvalidData(f"{name!r} must be the number of labels, {len(labels)}, got {size}.")
    return size


def _pair(name: str, value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidData(f"{name!r} must be a lowest and a highest number, got {shown(value)}.")
    return value[0], value[1]


def _sorted(value: Any) -> Any:
    """Return plain values with all keys in order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_sorted(each) for each in value]
    return value
