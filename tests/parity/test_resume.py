"""A run that was saved, and resumed by another, is the run that was never disturbed, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parity.same_runs import BY_BOUNDS, PROBLEMS, SCALES, check_same_run, draw_mdp, specs

from chary.agents import AgentSpec, CharyUCBVI, make_agent
from chary.envs import riverswim
from chary.errors import InvalidData, InvalidSetting
from chary.mdp import FiniteMDP
from chary.simulation import Simulation, _blocks, simulate
from chary.simulation import _compiled as _compiled_run

EPISODES = 60
OPTIONS: dict[str, Any] = {"episodes": EPISODES, "warmup": 15, "record_steps": True, "seed": 3}


def play_disturbed(mdp: FiniteMDP, spec: AgentSpec, stops: list[int], **options: Any) -> Any:
    """Play a run that is thrown away and resumed from its state after each of `stops` blocks."""
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of one episode, so that it may stop anywhere.
        patch.setattr(_blocks, "BLOCK_SECONDS", 0.0)
        patch.setattr(_compiled_run, "LANES", 1)
        simulation = Simulation(mdp, spec, **options)
        simulation.start()
        for stop in sorted(stops):
            while simulation.done < stop:
                simulation.advance()
            state = simulation.state()
            simulation = Simulation(mdp, spec, **options)
            simulation.restore(state)
            assert simulation.done == stop
    while simulation.done < options["episodes"]:
        simulation.advance()
    return simulation.result()


@pytest.mark.parametrize("bonus", ["hoeffding", "kl"])
@pytest.mark.parametrize("name", BY_BOUNDS)
def test_every_agent_resumes_where_it_stopped(name: str, bonus: str) -> None:
    mdp = PROBLEMS["inventory"]
    spec = make_agent(name, eta=0.4, bonus=bonus, bonus_scale=SCALES[bonus])
    check_same_run(play_disturbed(mdp, spec, [0, 17, 40], **OPTIONS), simulate(mdp, spec, **OPTIONS))


@given(data=st.data(), seed=st.integers(0, 10_000))
def test_any_run_resumes_where_it_stopped(data: st.DataObject, seed: int) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    spec = data.draw(specs(mdp))
    stops = data.draw(st.lists(st.integers(0, EPISODES), min_size=1, max_size=3, unique=True))
    check_same_run(play_disturbed(mdp, spec, stops, **OPTIONS), simulate(mdp, spec, **OPTIONS))


def test_a_state_is_not_changed_by_what_is_played_after_it() -> None:
    simulation = Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), **OPTIONS)
    simulation.start()
    simulation.advance()
    state = simulation.state()
    before = {name: array.tobytes() for name, array in state.items()}
    while simulation.done < EPISODES:
        simulation.advance()
    assert before == {name: array.tobytes() for name, array in state.items()}


@pytest.mark.parametrize("lost", ["rows.total", "chains.head", "run.generators", "log.regret"])
def test_an_incomplete_state_is_refused_by_name(lost: str) -> None:
    simulation = Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), **OPTIONS)
    simulation.start()
    state = simulation.state()
    del state[lost]
    with pytest.raises(InvalidData, match=f"^'state' must .* got '{lost}'"):
        Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), **OPTIONS).restore(state)


def test_the_state_of_another_problem_is_refused() -> None:
    simulation = Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), **OPTIONS)
    simulation.start()
    with pytest.raises(InvalidData, match=r"^'state' must "):
        Simulation(riverswim(), CharyUCBVI(eta=0.4), **OPTIONS).restore(simulation.state())


def test_step_by_step_runs_are_neither_saved_nor_resumed() -> None:
    simulation = Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), driver="step", **OPTIONS)
    with pytest.raises(InvalidSetting, match=r"^'driver' must be 'compiled'"):
        simulation.state()


def test_a_run_without_all_its_episodes_has_no_result() -> None:
    simulation = Simulation(PROBLEMS["inventory"], CharyUCBVI(eta=0.4), **OPTIONS)
    simulation.start()
    with pytest.raises(InvalidSetting, match=r"got 0 of 60\.$"):
        simulation.result()
