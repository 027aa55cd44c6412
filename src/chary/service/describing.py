"""What a running deployment says of itself, as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import chary
from chary.agents.explanation import ActionView
from chary.service.declaring import declared_states
from chary.service.deployment import Deployment
from chary.service.live import Live


def explanation(live: Live, identity: str, t: int, state: int) -> dict[str, Any] | None:
    """Return values and charges of all actions at a step; None where the episode has ended."""
    if not live.is_open(identity):
        return None
    told = live.agent.explain(identity, t, state)
    return {
        "t": told.t,
        "state": told.state,
        "plan": told.plan,
        "baseline": told.baseline,
        "deficit": told.deficit,
        "remaining": _finite(told.remaining),
        "proposals": list(told.proposals),
        "actions": [_action(view, live.problem.actions) for view in told.actions],
    }


def _action(view: ActionView, labels: Sequence[str]) -> dict[str, Any]:
    amounts = {name: _finite(getattr(view, name)) for name in ("lower", "upper", "mean", "sd", "charge")}
    vote = None
    if view.vote is not None:
        vote = {"within": view.vote.within, "worlds": view.vote.worlds}
    return {
        "action": view.action,
        "label": labels[view.action] if labels else None,
        "baseline": view.baseline,
        **amounts,
        "vote": vote,
        "affordable": view.affordable,
        "why_not": view.why_not,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def baseline(live: Live) -> dict[str, Any]:
    """Return the table that a client plays when the service is away: actions (H, S)."""
    states = declared_states(live.setting)
    table = live.incumbent if live.mode in ("apprentice", "stopped") else live.agent.plan.arrays.baseline
    return {
        "actions": table[:, :states].tolist(),
        "mode": live.mode,
        "plan": live.plans,
        "states": list(live.problem.states) or None,
        "labels": list(live.problem.actions) or None,
    }


def deployment(live: Live, of: Deployment) -> dict[str, Any]:
    """Return the setting, the agent, the promise, and the budget."""
    setting, spec, standing = live.setting, live.problem.spec, live.standing
    return {
        "deployment": of.number,
        "setting": {
            "n_states": declared_states(setting),
            "early_endings": setting.ending is not None,
            "n_actions": setting.n_actions,
            "horizon": setting.horizon,
            "discount": setting.discount,
            "reward_range": [setting.scale.low, setting.scale.high],
            "terminal": [
                s for s, ends in enumerate(setting.terminal.tolist()) if ends and s < declared_states(setting)
            ],
            "states": list(live.problem.states),
            "actions": list(live.problem.actions),
        },
        "agent": {
            "name": spec.name,
            **{key: value for key, value in spec.options().items() if value is not None},
        },
        "eta": live.budget,
        "standing": standing.describe(),
        "policy": of.declaration.policy.get("role"),
        "chary": chary.__version__,
    }


def median(values: Iterable[float]) -> float:
    """Return the median of some numbers, 0 of none."""
    kept = list(values)
    return statistics.median(kept) if kept else 0.0
