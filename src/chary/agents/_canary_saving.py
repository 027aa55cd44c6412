"""Saving of `CanaryAgent`: all of an agent as arrays and plain values, and an agent of them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chary.agents import make_agent
from chary.agents._choosing import check_policy
from chary.agents._episodes import OpenEpisode, Played
from chary.agents._learner import check_counts, counted_successors
from chary.agents._learnt import generator_from, generator_values, rank_from
from chary.agents._release import Assigned, Slot
from chary.agents._saving import PlayedTable, options_from, recalled, spec_values
from chary.agents.canary import Canary
from chary.agents.canary_agent import CanaryAgent, Drawn
from chary.errors import InvalidData, check_index, check_integer, check_real, check_truth
from chary.mdp.setting import Setting
from chary.storage.sealed import as_array, under

Arrays = dict[str, NDArray[Any]]
# The place of an episode whose policy is neither incumbent nor candidate any more.
NOWHERE = -1


def record(agent: CanaryAgent) -> tuple[Arrays, dict[str, Any]]:
    """Return all there is to save, as arrays and as plain values."""
    table = PlayedTable()
    tables, release = agent.release.record()
    opened = list(agent._episodes)
    about = {
        "spec": [agent.spec.name, spec_values(agent.spec)],
        "generator": generator_values(agent._generator),
        "release": release,
        "proposals": agent._proposals.record(),
        "open": [
            [now.name, now.state, list(now.pinned.assigned), _place(agent, now.pinned),
             table.numbers(now.steps), *now.flags]
            for now in opened
        ],
        "waiting": [[table.number(step), action] for step, action in agent._visits.pending()],
    }  # fmt: skip
    arrays = {f"setting.{name}": array for name, array in agent.setting.to_arrays().items()}
    arrays |= {f"counts.{name}": array for name, array in agent._knowledge.to_arrays().items()}
    arrays |= {f"release.{name}": array for name, array in tables.items()}
    arrays |= {"facts.ends": agent._facts.ends, "facts.left": agent._facts.left}
    arrays["rank"] = agent._knowledge.rows.rank
    arrays["starts"] = agent._proposals.starts
    H = agent.horizon
    arrays["uniforms"] = np.array([now.pinned.uniforms for now in opened]).reshape(len(opened), H + 1)
    return arrays | table.to_arrays(), about


def restored(about: Mapping[str, Any], arrays: Arrays) -> CanaryAgent:
    """Return the agent that `record` was called with; malformed values raise whatever they lead to."""
    name, options = about["spec"]
    spec, setting = make_agent(name, **options_from(options)), Setting.from_arrays(under("setting.", arrays))
    generator = generator_from(about["generator"])
    if not isinstance(spec, Canary) or generator is None:
        raise InvalidData(f"'spec' must be of a canary with a generator, got {name!r}.")
    S, A, H = setting.n_states, setting.n_actions, setting.horizon
    tables = np.asarray(arrays["release.tables"])
    if tables.ndim != 3 or not len(tables):
        raise InvalidData("'tables' must be policies of this problem, got none.")
    tables = as_array("release.tables", arrays, (len(tables), H, S), np.int32, below=A)
    for table in tables:
        check_policy("tables", table, setting, np.asarray(arrays["facts.ends"], dtype=bool))
    shares = np.asarray(arrays["release.shares"])
    inside = shares.shape == (S, A) and bool(
        ((shares >= 0) & (shares <= 1) & (setting.allowed | (shares == 0))).all()
    )
    if shares.size and not inside:
        raise InvalidData("'shares' must be probabilities of this problem, got others.")
    agent = CanaryAgent(spec, setting, generator=generator)
    agent._release = agent._new_release(tables[0].astype(np.int64), shares.astype(np.float64))
    agent._release.restore(under("release.", arrays), about["release"])
    agent._proposals.restore(about["proposals"])
    agent._proposals.starts[:] = as_array("starts", arrays, (S,), bool)
    counts = under("counts.", arrays)
    check_counts("counts", counts, setting)
    agent._knowledge.restore(counts)
    agent._knowledge.rows = agent._knowledge.rows._replace(rank=rank_from(arrays, spec, setting))
    agent._facts.restore(arrays)
    _restore_episodes(agent, arrays, about)
    return agent


def _place(agent: CanaryAgent, drawn: Drawn) -> int:
    """Return the place of an episode among those of its policy that wait to be counted."""
    waiting = agent.release.numbered(drawn.assigned.policy).waiting
    return next((i for i, slot in enumerate(waiting) if slot is drawn.slot), NOWHERE)


def _restore_episodes(agent: CanaryAgent, arrays: Arrays, about: Mapping[str, Any]) -> None:
    setting, opened = agent.setting, about["open"]
    steps = PlayedTable.steps(arrays, setting)
    rows = as_array("uniforms", arrays, (len(opened), setting.horizon + 1), np.float64)
    if not ((rows >= 0) & (rows < 1)).all():
        raise InvalidData("'uniforms' must lie in [0, 1), got others.")

    def recall(number: object) -> Played[int]:
        step = recalled(steps, number)
        if step is None:
            raise InvalidData("'played' must hold every step, got one without a number.")
        return step

    for uniforms, (name, state, assigned, place, played, *flags) in zip(rows, opened, strict=True):
        number, candidate, p = assigned
        policy = agent.release.numbered(number)
        slot = Slot()
        if place != NOWHERE:
            slot = policy.waiting[check_index("place", place, len(policy.waiting), error=InvalidData)]
            if slot.known:
                raise InvalidData(f"'open' must hold episodes whose return is not known, got {name!r}.")
        drawn = Assigned(
            policy.number,
            check_truth("candidate", candidate, error=InvalidData),
            check_real("probability", p, low=0.0, high=1.0, error=InvalidData),
        )
        taken = [recall(each) for each in played]
        known = [(t, step.outcome) for t, step in enumerate(taken) if step.outcome is not None]
        total = sum(setting.discount**t * outcome.reward for t, outcome in known)
        s = agent._facts.state("state", state)
        pinned = Drawn(drawn, slot, uniforms, total)
        agent._episodes.restore(OpenEpisode.restored(name, s, pinned, taken, flags))
    waiting = [
        (recall(number), check_integer("waiting", action, minimum=0, error=InvalidData))
        for number, action in about["waiting"]
    ]
    agent._visits.restore(waiting)
    agent._facts.recall(*counted_successors(agent._knowledge, setting))
    for step in steps:
        if step.outcome is not None:
            agent._facts.note(step.outcome)
