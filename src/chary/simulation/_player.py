"""The agent as compiled loops see it: what it has learnt, the plan in use, and how it chooses."""

from __future__ import annotations

from typing import NamedTuple

from chary.agents._mixtures import Mixture
from chary.arrays import Ints
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._batch_arrays import Batch
from chary.planner._full import Explorer, PlanArrays
from chary.shield.rule import Rule

# The kinds of agent.
SHIELD, MIXTURE, BASELINE, RANDOM = range(4)

PLANNERS = ("full", "incremental")
FULL, INCREMENTAL = range(2)


class Player(NamedTuple):
    """An agent and all that it plans with.

    `agent` is its kind, `planner` the way it plans, `charge` the kind of charge, and `prior` (S,) the actions
    that win the baseline's ties. `rows` and `radii` are what it has learnt; `meta_rows` and `meta_radii` are
    what its explorers learn from where that is finished chains alone, else rows of no pairs. `plan` is the
    plan in use, brought up to date from `batch` where plans are made several at once. `explorer` is the
    optimistic plan where they are not. The pool of chains is kept apart: guessed episodes feed a copy.
    """

    agent: int
    planner: int
    charge: int
    rule: Rule
    prior: Ints
    rows: Rows
    radii: Radii
    meta_rows: Rows
    meta_radii: Radii
    plan: PlanArrays
    batch: Batch
    explorer: Explorer
    mixture: Mixture
    scratch: Scratch
