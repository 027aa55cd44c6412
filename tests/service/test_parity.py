"""The service decides what the library decides in process, bit for bit, for the same history."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from tests.conftest import FULL
from tests.service.served import make
from tests.service.test_recovery import AGENTS
from tests.service.wandering import Wanderer

from chary import TabularAgent, Transition
from chary.service.deployment import Deployment
from chary.service.engine import Engine
from chary.service.events import Decided, as_decided, encode
from chary.service.store import Reader

SEEDS = range(8 if FULL else 2)
REQUESTS = 4000 if FULL else 700


def new_twin(directory: Path, **options: Any) -> TabularAgent:
    declared = Deployment.open(directory).declaration
    problem = declared.problem()
    besides = {name: declared.agent[name] for name in ("losses", "overrides") if name in declared.agent}
    return TabularAgent(
        problem.spec,
        problem.setting,
        own=problem.own,
        generator=np.random.default_rng(declared.seed),
        **besides,
        **options,
    )


def follow(directory: Path, twin: TabularAgent, *, plans: bool) -> tuple[int, int]:
    """Give an agent in process the same history; return how many decisions it made, and how many explored."""
    states: dict[tuple[str, int], int] = {}
    draft: Any = None
    decided = explored = 0
    reader = Reader(Deployment.open(directory).database)
    for event in reader.events():
        name, facts = event.episode or "", event.facts()
        if event.kind == "begun":
            twin.begin(name, facts.state, eta=facts.eta)
        elif event.kind == "decided":
            states[name, facts.t] = facts.state
            decision = twin.act(name, facts.t, facts.state, explore=facts.mode == "budgeted")
            again: Decided = as_decided(decision, facts.t, facts.state, facts.mode, label=facts.label)
            if not plans:
                # The service plans after each completed episode, also where nothing of it could be counted.
                again = structs.replace(again, plan=facts.plan)
            assert encode(again) == event.body.encode(), event.seq
            decided, explored = decided + 1, explored + decision.explored
        elif event.kind == "observed":
            outcome = Transition(
                states[name, facts.t], facts.action, facts.reward, facts.next_state, facts.terminated
            )
            twin.observe(name, outcome, t=facts.t, taken=facts.action)
        elif event.kind == "taken":
            twin.taken(name, facts.t, facts.action)
        elif event.kind == "tightened":
            twin.tighten(name, facts.eta)
        elif event.kind == "closed":
            twin.finish(name)
        elif event.kind == "abandoned":
            twin.abandon(name)
        elif event.kind == "drafted" and plans:
            draft = twin.draft()
            assert draft.digest == facts.counts
        elif event.kind == "adopted" and plans:
            draft.make()
            twin.adopt(draft)
    reader.close()
    return decided, explored


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("agent", AGENTS)
def test_decisions_equal_those_of_an_agent_in_process(tmp_path: Path, agent: str, seed: int) -> None:
    directory = make(tmp_path, agent=AGENTS[agent], planning={"every": 4}, seed=seed)
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(seed), modes=("budgeted", "frozen"))
    # Steps that clients play by themselves are decided by nobody.
    client.fallback = lambda: None  # type: ignore[method-assign]
    while client.answers < REQUESTS or not engine.counters["plans"]:
        client.requests(50)
        engine.wait(engine.head)
    engine.finish()
    decided, explored = follow(directory, new_twin(directory, replan="adopt"), plans=True)
    assert decided > 100
    assert explored > 5


@pytest.mark.parametrize("agent", ["bounds", "counted"])
def test_with_a_plan_before_each_episode_they_equal_those_of_a_plain_agent(
    tmp_path: Path, agent: str
) -> None:
    directory = make(tmp_path, agent=AGENTS[agent], planning={"every": 0})
    engine = Engine.open(directory)
    client = Wanderer(engine, Random(9), modes=())
    client.fallback = lambda: None  # type: ignore[method-assign]
    while client.answers < REQUESTS:
        client.requests(50)
    engine.finish()
    decided, explored = follow(directory, new_twin(directory), plans=False)
    assert decided > 100
    assert explored > 5
