"""The deep learner's step API beside its compiled loop; and saved beside never interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deep_walk import HORIZON, START, go_on, logged, new_agent, small, the_open, walk_in_jax

from chary import Transition

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")
trees: Any = pytest.importorskip("chary.deep.trees")
saving: Any = pytest.importorskip("chary.deep.saving")

EPISODES = 8
SEED = 3
# XLA fuses the two halves of a step with the environment in one program and with each other in the other, and
# so may round the last bit of a float32 another way; what is decided is the same.
TOLERANCE = 1e-5
# The loop runs for milliseconds: to optimise it would take longer than all the rest.
UNOPTIMISED = {"xla_backend_optimization_level": 0}


@cache
def by_the_loop(environment: Any, options: Any, episodes: int) -> tuple[Any, Any, Any]:
    """Play in one compiled call; NumPy's arrays, for nothing here is to be computed twice."""
    with jax.enable_x64(True):
        run = jax.jit(
            lambda key: deep.proceed(
                environment, options, deep.begin(environment, options, key), episodes, record=True
            ),
            compiler_options=UNOPTIMISED,
        )
        state, log, steps = run(jax.random.key(SEED))
    return trees.arrays_of(state), *jax.tree.map(np.asarray, (log, steps))


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
        else:
            assert found[name].tolist() == array.tolist(), name


def assert_same_bits(one: Any, other: Any) -> None:
    left, right = one._record(), other._record()
    assert left[0].keys() == right[0].keys()
    for name, array in left[0].items():
        assert array.tobytes() == right[0][name].tobytes(), name
    assert json.dumps(left[1]) == json.dumps(right[1])


@pytest.mark.parametrize("name", ["chary", "dqn", "cql"])
def test_the_step_api_does_what_the_compiled_loop_does(name: str) -> None:
    options = small(name, warm_up=0, pretraining=0)
    state, log, steps = by_the_loop(walk_in_jax(), options, EPISODES)
    agent = new_agent(name, SEED, warm_up=0, pretraining=0)
    for k in range(EPISODES):
        decisions = go_on(agent, HORIZON)
        agent.finish(k)
        assert [decision.action for decision in decisions] == steps.action[k].tolist()
        assert [decision.explored for decision in decisions] == steps.explored[k].tolist()
        assert decisions[-1].deficit == pytest.approx(log.deficit[k], rel=TOLERANCE)
        assert sum(decision.charge for decision in decisions) == pytest.approx(log.deficit[k], rel=TOLERANCE)
    assert_close(trees.arrays_of(agent._turns.state), state)
    # A learner that always plays the same proves little.
    assert len(set(steps.action.ravel().tolist())) > 1
    if name == "cql":
        # It explores nothing, and is not the baseline that it is judged by.
        assert log.explored.sum() == 0 < log.deviated.sum()
    if name == "chary":
        assert 0 < log.deficit.max() <= options.eta
        assert 0 < log.explored.sum() < EPISODES * HORIZON
        assert agent.chains["started"] > 1


def test_the_step_api_treats_a_patient_as_the_compiled_loop_does() -> None:
    import gymnasium

    options = small("chary", warm_up=0, pretraining=0)
    _, log, steps = by_the_loop(deep.hiv(5)._replace(horizon=HORIZON), options, 1)
    env = gymnasium.make("chary/HIV-v0", patient=5)
    agent = deep.DeepAgent.for_env(env, options, horizon=HORIZON, seed=SEED)
    observation, _ = env.reset()
    agent.begin("patient", observation)
    for t in range(HORIZON):
        decision = agent.act("patient", t, observation)
        assert (decision.action, decision.explored) == (steps.action[0, t], steps.explored[0, t])
        reached, reward, terminated, _, _ = env.step(decision.action)
        assert reward == pytest.approx(steps.reward[0, t], rel=1e-6)
        step = (observation, decision.action, reward, reached, terminated)
        agent.observe("patient", Transition._make(step))
        observation = reached
    agent.finish("patient")
    assert decision.deficit == pytest.approx(log.deficit[0], rel=1e-4)


def test_a_warm_start_from_the_loops_own_warm_up_ends_in_the_loops_state() -> None:
    options = small(warm_up=2, pretraining=3)
    environment = walk_in_jax()
    with jax.enable_x64(True):
        begin = jax.jit(lambda key: deep.begin(environment, options, key), compiler_options=UNOPTIMISED)
        wanted = trees.arrays_of(begin(jax.random.key(SEED)))
    # What it played can be read off its replay: inputs, next inputs, action and reward of every step.
    rows = wanted["replay.rows"][: 2 * HORIZON]
    steps = [
        Transition._make((row[:6], int(row[14]), float(row[15]), row[7:13], False))
        for row in rows.astype(float)
    ]
    agent = new_agent("chary", SEED, warm_up=2)
    agent.warm_start([steps[:HORIZON], steps[HORIZON:]])
    assert agent.updates == 3
    assert_close(trees.arrays_of(agent._turns.state), wanted)


# After how many decisions; whether the last one was observed, and the episode finished if it was over.
MOMENTS = {
    "before the first episode": (0, False),
    "decided at the first step": (1, False),
    "observed at the first step": (1, True),
    "decided in the middle": (2 * HORIZON + 3, False),
    "observed in the middle": (2 * HORIZON + 3, True),
    "observed at the end": (3 * HORIZON, True),
}


def brought_to(name: str, moment: str) -> Any:
    decisions, observed = MOMENTS[moment]
    agent = new_agent(name)
    agent.warm_start(logged())
    if decisions:
        go_on(agent, decisions if observed else decisions - 1)
    if decisions and not observed:
        if agent.open_episode is None:
            agent.begin(agent.episodes_begun, START)
        agent.act(agent.open_episode, the_open(agent).t, the_open(agent).state)
    return agent


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", ["chary", "dqn"])
def test_an_agent_saved_at_any_moment_goes_on_as_if_nothing_had_been(
    name: str, moment: str, tmp_path: Path
) -> None:
    original = brought_to(name, moment)
    original.save(tmp_path / "agent.safetensors")
    copy = deep.DeepAgent.load(tmp_path / "agent.safetensors")
    assert_same_bits(original, copy)
    assert copy.episodes_begun == original.episodes_begun
    assert go_on(original, 2 * HORIZON) == go_on(copy, 2 * HORIZON)
    assert_same_bits(original, copy)


def test_an_agent_saved_between_episodes_goes_on(tmp_path: Path) -> None:
    original = brought_to("chary", "observed at the end")
    original.finish(original.open_episode)
    original.save(tmp_path / "agent.safetensors")
    copy = deep.DeepAgent.load(tmp_path / "agent.safetensors")
    assert copy.open_episode is None
    assert go_on(original, HORIZON) == go_on(copy, HORIZON)
    assert_same_bits(original, copy)


def test_options_that_json_cannot_say_come_back(tmp_path: Path) -> None:
    agent = new_agent()
    # In place of a new agent, which would compile all anew.
    agent.options = small(eta=float("inf"), huber=float("inf"), patience=None, discount=np.float32(0.5))
    agent.save(tmp_path / "agent.safetensors")
    assert deep.DeepAgent.load(tmp_path / "agent.safetensors").options == agent.options


# Gymnasium is not there: the step API alone does not need it.
IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "gymnasium":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from chary.deep import DeepAgent
from tests.deep_walk import go_on

path = Path(sys.argv[1])
agent = DeepAgent.load(path)
made = go_on(agent, int(sys.argv[2]))
agent.save(path.parent / "later.safetensors")
print(json.dumps([list(decision) for decision in made]))
"""


def test_an_agent_loaded_in_a_new_process_without_gymnasium_goes_on_bit_for_bit(tmp_path: Path) -> None:
    original = brought_to("chary", "observed in the middle")
    original.save(tmp_path / "agent.safetensors")
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "agent.safetensors"), "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    decisions = go_on(original, 3)
    assert json.loads(done.stdout) == json.loads(json.dumps([list(decision) for decision in decisions]))
    original.save(tmp_path / "here.safetensors")
    assert (tmp_path / "later.safetensors").read_bytes() == (tmp_path / "here.safetensors").read_bytes()


def test_a_cql_agent_of_version_0_1_goes_on_playing_by_its_conservative_network() -> None:
    """It kept that network as Q_lo, behind an explorer by which nothing was played."""
    agent = new_agent("cql")
    go_on(agent, 2 * HORIZON + 2)
    arrays, about = agent._record()
    weights = [name for name in arrays if name.rpartition(".")[2] in ("w1", "b1", "w2", "b2", "w3", "b3")]
    turned = arrays | {name: arrays[name][[2, 1, 0]] for name in weights}
    old = saving.restored({name: value for name, value in about.items() if name != "plays_by"}, turned)
    assert_same_bits(old, saving.restored(about, arrays))
    assert [d.action for d in go_on(old, HORIZON)] == [d.action for d in go_on(agent, HORIZON)]
