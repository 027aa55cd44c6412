"""Many open episodes of the deep agent, in any order of calls, compared with the shield in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deep_walk import HORIZON, START, move, new_agent

from chary import Transition
from chary.shield import Shield, within

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
pytest.importorskip("safetensors")
deep: Any = pytest.importorskip("chary.deep")
learner: Any = pytest.importorskip("chary.deep.learner")
networks: Any = pytest.importorskip("chary.deep.networks")

RADIUS = 0.1
# Few places, so that episodes come by where a chain waits.
PLACES = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)


def prices(plan: Any, observation: Any, t: Any) -> Any:
    """Return the actions that a plan proposes, and the charge of every action."""
    inputs = networks.with_time(observation, t, HORIZON)
    return learner.prices(networks.forward(plan, inputs[None])[:, 0])


priced = jax.jit(prices)


class Written:
    """A plan with one answer: the prices that the agent's networks give at the step in question."""

    said: Any

    def explore(self, chain: int, clock: int, s: object) -> int:
        return int(self.said.explorer)

    def baseline(self, t: int, s: object) -> int:
        return int(self.said.baseline)

    def charge(self, t: int, s: object, a: int) -> float:
        return float(self.said.charges[a])


class Twin:
    """The agent, and the shield of the same episodes; every call goes to both, and they must agree."""

    def __init__(self, **options: Any) -> None:
        self.agents = [new_agent(radius=RADIUS, eta=2.0, **options)]
        rule = self.agents[0].options.budget_rule
        told = {"patience": 5, **options}
        self.shield: Shield[Any] = Shield(rule, horizon=HORIZON, match=within(RADIUS), **told)
        self.plans: dict[int, Written] = {}
        self.fed_by: dict[int, set[int]] = {}
        self.explored = self.overruled = 0

    @property
    def agent(self) -> Any:
        return self.agents[0]

    def begin(self, name: int, place: int) -> None:
        for agent in self.agents:
            agent.begin(name, PLACES[place])
        self.plans[name] = Written()
        self.shield.begin(name, self.plans[name], name)

    def act(self, name: int, place: int) -> None:
        (now,) = (each for each in self.agent._episodes if each.name == name)
        t, late = now.t, now.late
        if late:
            self.shield.observe(name, tuple(PLACES[place]), terminated=False)
        decision, *others = [agent.act(name, t, PLACES[place]) for agent in self.agents]
        assert [decision] * len(others) == others
        with jax.enable_x64(True):
            # The plan that was used is in the state now.
            self.plans[name].said = priced(self.agent._turns.state.plan, PLACES[place], np.int32(t))
        wanted = self.shield.decide(name, t, tuple(PLACES[place]))
        assert (decision.action, decision.explored, decision.chain) == (
            wanted.action,
            wanted.explored,
            wanted.chain,
        )
        assert (decision.charge, decision.deficit) == pytest.approx((wanted.charge, wanted.deficit), abs=1e-4)
        assert decision.deficit <= 2.0
        if decision.explored:
            self.explored += 1
            self.fed_by.setdefault(decision.chain, set()).add(name)

    def observe(self, name: int, t: int, place: int, *, ended: bool, other: bool) -> None:
        (now,) = (each for each in self.agent._episodes if each.name == name)
        decision, state = now.steps[t].decision, now.steps[t].state
        action = (decision.action + other) % 4
        step = Transition._make((state, action, float(place), PLACES[place], ended))
        last = now.is_last(t)
        for agent in self.agents:
            agent.observe(name, step, t=t, taken=action if other else None)
        if last:
            self.shield.observe(name, tuple(PLACES[place]), terminated=ended, taken=action)
        self.overruled += other and decision.chain >= 0

    def close(self, name: int, call: str) -> None:
        for agent in self.agents:
            getattr(agent, call)(name)
        getattr(self.shield, call)(name)

    def check(self) -> None:
        if self.agent._turns.unlearnt is not None:
            # The chain moves on with the next call.
            return
        chains = self.agent.chains
        shield = (self.shield.started, self.shield.finished, self.shield.abandoned, self.shield.blocked)
        assert tuple(chains.values()) == shield
        if self.agent.options.chains:
            assert self.shield.open_chains == bool(self.agent._turns.state.chain.open)

    def save(self, folder: Path) -> None:
        """From now on every call goes to a copy too, which was saved and loaded."""
        self.agent.save(folder / "agent.safetensors", overwrite=True)
        self.agents[1:] = [deep.DeepAgent.load(folder / "agent.safetensors")]
        assert_same_bits(*self.agents)


def assert_same_bits(one: Any, other: Any) -> None:
    left, right = one._record(), other._record()
    assert left[1] == right[1]
    assert left[0].keys() == right[0].keys()
    for name, array in left[0].items():
        assert array.tobytes() == right[0][name].tobytes(), name


@pytest.mark.parametrize("options", [{"patience": None}, {"patience": 2}, {"chains": False}], ids=str)
def test_every_order_of_calls_is_decided_as_the_shield_decides(
    options: dict[str, Any], tmp_path: Path
) -> None:
    rng, twin = np.random.default_rng(7), Twin(**options)
    for call in range(600):
        open_ = [now for now in twin.agent._episodes if not now.closing]
        if len(open_) < 4 and (not open_ or rng.random() < 0.2):
            twin.begin(twin.agent.episodes_begun, int(rng.integers(4)))
            continue
        now = open_[rng.integers(len(open_))]
        over = now.terminated or now.t == HORIZON
        chance = rng.random()
        if now.outstanding and (chance < 0.5 or over):
            t = int(rng.choice(now.outstanding))
            later = None if now.is_last(t) else now.steps[t + 1].state
            place = int(rng.integers(4)) if later is None else place_of(later)
            may = now.is_last(t) or now.steps[t].decision.chain < 0
            ended = later is None and rng.random() < 0.1
            twin.observe(now.name, t, place, ended=ended, other=bool(may and rng.random() < 0.15))
        elif over:
            twin.close(now.name, "finish")
        elif chance > 0.97:
            twin.close(now.name, "abandon")
        else:
            again = int(rng.integers(now.t)) if now.t else None
            if again is not None:
                made = now.steps[again]
                assert twin.agent.act(now.name, again, made.state) is made.decision
            twin.act(now.name, int(rng.integers(4)) if now.late else place_of(now.state))
        twin.check()
        if call in (200, 400):
            twin.save(tmp_path)
    assert_same_bits(*twin.agents)
    # Otherwise little was compared.
    assert twin.explored > 50
    assert twin.overruled > 0
    if options.get("chains", True):
        assert twin.shield.finished > 2
        assert any(len(episodes) > 1 for episodes in twin.fed_by.values())


def place_of(state: Any) -> int:
    return int(np.argmin(np.abs(PLACES - state).sum(axis=1)))


def told(agent: Any, name: str, t: int) -> Transition:
    """Return the outcome of a decided step of the walk."""
    (now,) = (each for each in agent._episodes if each.name == name)
    state = np.asarray(now.steps[t].state, np.float64)
    after, reward = move(state, now.steps[t].decision.action)
    return Transition._make((state, now.steps[t].decision.action, reward, after, False))


def test_outcomes_are_learnt_in_the_order_in_which_they_come() -> None:
    agent = new_agent()
    for name in ("a", "b"):
        agent.begin(name, START)
        first = agent.act(name, 0, START)
        agent.act(name, 1, move(START, first.action)[0])
    assert agent.outstanding == {"a": (0, 1), "b": (0, 1)}
    agent.finish("a")
    order = [("b", 1), ("a", 0), ("b", 0), ("a", 1)]
    outcomes = [told(agent, name, t) for name, t in order]
    for n, ((name, t), outcome) in enumerate(zip(order, outcomes, strict=True)):
        assert agent.updates == max(n - 1, 0) + (n == 4)
        agent.observe(name, outcome, t=t)
    # The last one completes an episode, and is learnt at once.
    assert (agent.open_episodes, agent.updates) == (("b",), 4)
    rows = np.asarray(agent._turns.state.replay.rows)[:4]
    np.testing.assert_array_equal(rows[:, :6], [np.float32(outcome.state) for outcome in outcomes])
    np.testing.assert_array_equal(rows[:, 15], [np.float32(outcome.reward) for outcome in outcomes])
    left = [(HORIZON - t) / HORIZON for _, t in order]
    np.testing.assert_allclose(rows[:, 6], left, rtol=1e-6)
    # Observed once more, an outcome changes nothing.
    agent.observe("b", outcomes[0], t=1)
    assert agent.updates == 4


def test_episodes_keep_the_networks_they_began_with() -> None:
    agent = new_agent(eta=0.0)
    agent.begin("early", START)
    first = agent.act("early", 0, START)
    frozen = np.array(agent._turns.state.plan.w3[1:])
    for k in range(3):
        agent.begin(k, START)
        decision = agent.act(k, 0, START)
        after, reward = move(START, decision.action)
        agent.observe(k, Transition._make((START, decision.action, reward, after, False)))
        agent.finish(k)
    agent.act("early", 1, move(START, first.action)[0])
    np.testing.assert_array_equal(agent._turns.state.plan.w3[1:], frozen)
    assert np.any(np.asarray(agent._turns.state.networks.w3[1:]) != frozen)
