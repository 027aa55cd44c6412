"""What the tests of this folder compare: any agent on any small problem, and runs to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from chary.agents import AGENTS, AgentSpec, make_agent
from chary.agents.canary import CANDIDATES
from chary.agents.chary_ucbvi import DATA
from chary.agents.comparison import BASELINE_VALUES
from chary.audit import Truth
from chary.envs import corridor, inventory, riverswim
from chary.mdp import REWARD_KNOWLEDGE, FiniteMDP
from chary.model.bounds import FAMILIES, UCBVI_FAMILIES
from chary.planner._full import CHARGES
from chary.shield import AFTER_REFUSAL, CLOCKS, RULES
from chary.simulation.run import CanaryLog, ChainLog, Run, Steps

POOLS = (1, 3, 1000)
PATIENCE = (None, 0, 2)
# Scales at which a handful of episodes leaves bounds that are neither vacuous nor of no width.
SCALES = {"hoeffding": 0.002, "l1": 1.0, "kl": 1.0, "bernstein": 0.01, "ch": 0.01, "bf": 0.001}


def draw_mdp(rng: np.random.Generator) -> FiniteMDP:
    """Return any small MDP: terminal states, restricted actions, declared supports, caps, its own units."""
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    terminal = [S - 1] if S > 2 and rng.random() < 0.4 else []
    possible = rng.random((S, A, S)) < 0.7
    possible[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    P = (rng.dirichlet(np.full(S, 0.5), size=(S, A)) + 1e-3) * possible
    P /= P.sum(axis=2, keepdims=True)
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    R = rng.random((S, A, S)) if rng.random() < 0.7 else rng.integers(0, 2, size=(S, A, S)).astype(float)
    start = rng.dirichlet(np.ones(S)) * ~np.isin(np.arange(S), terminal)
    # From these units rewards do not always come back to the same bits.
    low, high = (0.0, float(rng.choice([1.0, 7.3]))) if terminal else (2.1873, 11.1951)
    options: dict[str, Any] = {
        "allowed": allowed,
        "horizon": int(rng.integers(1, 7)),
        "discount": float(rng.choice([1.0, 0.9])),
        "terminal": terminal,
        "start": start / start.sum(),
        "support": possible.sum(axis=2) if rng.random() < 0.5 else None,
        "reward_range": (low, high),
    }
    mdp = FiniteMDP.from_arrays(P, low + (high - low) * R, **options)
    best = float(Truth(mdp).optimal_value.max())
    if best == 0 or rng.random() < 0.5:
        return mdp
    # A cap makes the highest value the same at several stages.
    return FiniteMDP.from_arrays(
        P, low + (high - low) * R, **options, value_cap=best * rng.choice([1.0, 1.3])
    )


def draw_prior(mdp: FiniteMDP, rng: np.random.Generator) -> list[int]:
    return [int(rng.choice(np.flatnonzero(row))) if row.any() else 0 for row in mdp.setting.allowed]


def check_equal(one: object, other: object, names: Any) -> None:
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, name
            assert mine.shape == theirs.shape, name
            assert mine.tobytes() == theirs.tobytes(), name
        else:
            assert mine == theirs, name


def check_same_run(compiled: Run, step: Run) -> None:
    apart = {"seconds", "planning", "chains", "steps", "spec", "canary"}
    check_equal(compiled, step, [name for name in Run.__dataclass_fields__ if name not in apart])
    check_equal(compiled.chains, step.chains, ChainLog.__dataclass_fields__)
    check_equal(compiled.steps, step.steps, Steps.__dataclass_fields__)
    assert (compiled.canary is None) == (step.canary is None)
    if compiled.canary is not None:
        check_equal(compiled.canary, step.canary, CanaryLog.__dataclass_fields__)


def needed_by(name: str, mdp: FiniteMDP) -> dict[str, Any]:
    """Return the options without which an agent cannot play a problem whose values have a cap."""
    most = float(np.sum(mdp.setting.discount ** np.arange(mdp.horizon))) * mdp.scale.span
    return {"return_cap": most} if name == "canary" else {}


# Agents that learn from bounds; psrl knows posterior worlds alone, see tests/unit/test_world_runs.py.
BY_BOUNDS = tuple(name for name in AGENTS if name != "psrl")
names = st.sampled_from([*["chary"] * 6, *(name for name in BY_BOUNDS if name != "chary")])


@st.composite
def specs(draw: st.DrawFn, mdp: FiniteMDP, bonus: str | None = None) -> AgentSpec:
    """Return any agent with any options that fit together, of one family of bounds or of any."""
    name, span = draw(names), mdp.scale.span
    bonus = bonus or draw(st.sampled_from([*FAMILIES, *(UCBVI_FAMILIES if name == "ucbvi" else ())]))
    options: dict[str, Any] = {
        "bonus": bonus,
        "bonus_scale": 1.0 if SCALES[bonus] == 1 else SCALES[bonus] * draw(st.sampled_from([1.0, 0.1])),
        "reward": draw(st.sampled_from(REWARD_KNOWLEDGE)),
        "delta": draw(st.sampled_from([0.1, 0.9])),
        "ties": draw(st.sampled_from(["shuffled", "shuffled", "index"])),
        "eta": span * draw(st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0])),
    }
    if draw(st.booleans()):
        options["prior"] = draw_prior(mdp, np.random.default_rng(draw(st.integers(0, 99))))
    if name == "chary":
        rule, chains = draw(st.sampled_from(RULES)), draw(st.sampled_from([True, True, True, False]))
        options |= {
            "rule": rule,
            "chains": chains,
            "step_bound": span * draw(st.sampled_from([0.05, 0.5])) if rule == "capped" else None,
            "after_refusal": draw(st.sampled_from(AFTER_REFUSAL)) if chains else None,
            "charge": draw(st.sampled_from(CHARGES)),
            "clock": draw(st.sampled_from(CLOCKS)),
            "data": draw(st.sampled_from(DATA)),
            "pool": draw(st.sampled_from(POOLS)),
            "patience": draw(st.sampled_from(PATIENCE)),
        }
    options |= needed_by(name, mdp)
    if name == "canary":
        options["candidates"] = draw(st.sampled_from(CANDIDATES))
    if name in ("cucbvi", "stepmix", "epsmix"):
        options["baseline_value"] = draw(st.sampled_from(BASELINE_VALUES))
    return make_agent(name, **options)


PROBLEMS = {
    "inventory": inventory(horizon=8),
    "money": inventory(horizon=8, units="money"),
    "corridor": corridor(length=3, horizon=8),
    "riverswim": riverswim(horizon=8),
    "terminal": draw_mdp(np.random.default_rng(10)),
}
