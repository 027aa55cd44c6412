"""Saved linear agents that were changed and sealed again: refused by name, or whole agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chary.agents.protocol import Transition
from chary.errors import InvalidData
from chary.linear import LinearAgent, LinearModel, LinearOptions
from chary.linear.agent import KIND
from chary.linear.saving import record
from chary.storage.sealed import pack

H = 3
Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def saved() -> tuple[Arrays, dict[str, Any]]:
    """Return the content of a file: open episodes, a late outcome, a chain, and steps that wait."""
    model = LinearModel(low=-1.0, high=1.0, features=4, worlds=4, explorers=2, length_scale=1.0, growth=5.0)
    agent = LinearAgent(
        LinearOptions(model=model, eta=2.0, pool=2), observation_size=2, n_actions=2, horizon=H
    )
    x = np.array([0.1, 0.2])
    for k in range(4):
        agent.begin(k, x)
        for t in range(H):
            action = agent.act(k, t, x).action
            agent.observe(k, Transition(x, action, 0.5, x, False))
        agent.finish(k)
    agent.begin("late", x)
    agent.act("late", 0, x)
    for name in ("open", "closed"):
        agent.begin(name, x)
        action = agent.act(name, 0, x).action
        agent.observe(name, Transition(x, action, 0.5, x, False))
    agent.finish("closed")
    assert agent._order.pending()
    return record(agent)


def loaded(tmp_path: Path, arrays: Arrays, about: dict[str, Any]) -> LinearAgent | None:
    """Return the agent of a file with this content, or None where it is refused."""
    file = tmp_path / "agent"
    file.write_bytes(pack(KIND, arrays, about))
    try:
        return LinearAgent.load(file)
    except InvalidData:
        return None


def test_the_file_as_it_was_is_an_agent(saved: tuple[Arrays, dict[str, Any]], tmp_path: Path) -> None:
    agent = loaded(tmp_path, *saved)
    assert agent is not None
    assert agent.open_episodes == ("late", "open")


def test_an_array_of_another_shape_type_or_without_numbers_is_refused(
    saved: tuple[Arrays, dict[str, Any]], tmp_path: Path
) -> None:
    arrays, about = saved
    for name, array in arrays.items():
        changes = [np.zeros((*array.shape, 2), array.dtype), array.astype(np.complex128)]
        # Of an outcome that is missing nothing is read.
        free = name.endswith(("votes", "priority")) or name in ("open.0.next_state", "open.0.reward")
        if array.dtype == np.float64 and array.size and not free:
            changes.append(np.full_like(array, np.nan))
        for change in changes:
            assert loaded(tmp_path, {**arrays, name: change}, about) is None, name
        assert loaded(tmp_path, {k: v for k, v in arrays.items() if k != name}, about) is None or name in (
            # Files may lack votes, and say nothing of what was reported.
            "open.0.votes",
            "open.1.votes",
        ), name


def test_a_description_that_lacks_or_replaces_a_value_is_refused(
    saved: tuple[Arrays, dict[str, Any]], tmp_path: Path
) -> None:
    arrays, about = saved
    for name in about:
        assert loaded(tmp_path, arrays, {k: v for k, v in about.items() if k != name}) is None, name
        for value in ("x", [["x"]], {"x": 1}, -1):
            if name == "seed" and value == -1:
                continue
            assert loaded(tmp_path, arrays, {**about, name: value}) is None, (name, value)


def test_a_ledger_that_was_refilled_is_refused(saved: tuple[Arrays, dict[str, Any]], tmp_path: Path) -> None:
    arrays, about = saved
    told = dict(about["shield"])
    told["episodes"] = [[name, number, [False, 0.75], *rest] for name, number, _, *rest in told["episodes"]]
    assert loaded(tmp_path, arrays, {**about, "shield": told}) is None
