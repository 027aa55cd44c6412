"""The specification of one run: a frozen value, named by the hash of its canonical form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chary.errors import InvalidSetting
from chary.texts import shown

# A change that alters results raises this number, and with it the id of every run.
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, completely.

    With the same packages, the same spec gives the same bytes on CPUs, with every engine and however often
    it is interrupted. (XLA compiles the deep learner for one kind of CPU: there, on machines of that kind.) A
    GPU rounds differently. Its results have the same id and name the `device` in their provenance, and
    `chary.sweeps.sweep` does not add them to a folder with results of a CPU, or the other way round.

    Args:
        problem: A problem's name.
        actions: Which actions may be played, or None for the problem's default.
        horizon: Steps of an episode, or None for the problem's default.
        agent: An agent's name.
        options: All options of the agent, its defaults included.
        episodes: Online episodes, >= 1.
        warmup: Uniformly random episodes before them, >= 0.
        seed: A whole number >= 0.
        coverage: Where bounds are compared with the truth, `played` or `everywhere`.
    """

    problem: str
    actions: str | None = None
    horizon: int | None = None
    agent: str
    options: Mapping[str, Any]
    episodes: int
    warmup: int
    seed: int
    coverage: str = "played"

    @property
    def canonical(self) -> str:
        """The spec as one line of JSON with sorted keys: hashed, stored, and sent to workers."""
        try:
            return json.dumps(
                {"schema": SCHEMA, **asdict(self)}, sort_keys=True, separators=(",", ":"), allow_nan=False
            )
        except ValueError as problem:
            raise InvalidSetting(
                f"'options' of a run must be finite, got {shown(dict(self.options))}. "
                "Use rule 'unlimited' for no budget."
            ) from problem

    @property
    def id(self) -> str:
        """The run's name: the first 16 hexadecimal digits of the SHA-256 of its canonical form."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Return the spec with this canonical form.

        Raises:
            InvalidSetting: if the text is not a spec, or of another schema.
        """
        try:
            values = json.loads(text)
            schema = values.pop("schema")
            spec = cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            raise InvalidSetting(
                f"a run's spec must be its canonical JSON, got {shown(text[:80])}."
            ) from problem
        if schema != SCHEMA:
            raise InvalidSetting(
                f"a run's spec must have schema {SCHEMA}, got {shown(schema)}. Use the chary that wrote it."
            )
        return spec
