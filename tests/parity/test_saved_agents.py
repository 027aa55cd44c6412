"""An agent that was saved and loaded is the agent: the same decisions, counts and later files, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary import FiniteMDP, OwnBaseline, TabularAgent, Transition, envs, make_agent
from chary.planner.joint import JointPlan
from chary.policies import ROLES
from chary.shield import Decision
from chary.storage.sealed import pack

CHARY: dict[str, Any] = {"eta": 0.6, "bonus": "hoeffding", "bonus_scale": 0.001}
WORLDS: dict[str, Any] = {"eta": 3.0, "bonus": "posterior", "worlds": 5, "risk": 0.3, "growth": 0.1}
# Name, options, and the role of an own baseline, if any.
AGENTS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "chary strict": ("chary", CHARY, None),
    "chary capped": ("chary", CHARY | {"rule": "capped", "step_bound": 0.2}, None),
    "chary paper": ("chary", CHARY | {"rule": "paper", "charge": "paper", "after_refusal": "close"}, None),
    "chary unlimited": ("chary", {"rule": "unlimited", "bonus": "kl"}, None),
    "chary closed": ("chary", {"rule": "closed", "bonus": "kl"}, None),
    "chary difference": ("chary", CHARY | {"charge": "difference"}, None),
    "chary data meta": ("chary", CHARY | {"data": "meta"}, None),
    "chary clock meta": ("chary", CHARY | {"clock": "meta", "data": "meta"}, None),
    "chary pool 2": ("chary", CHARY | {"pool": 2}, None),
    "chary chains off": ("chary", CHARY | {"chains": False}, None),
    "chary patience": ("chary", CHARY | {"patience": 1, "pool": 2}, None),
    "chary kl": ("chary", {"eta": 6.0, "bonus": "kl"}, None),
    "chary bernstein": ("chary", CHARY | {"bonus": "bernstein"}, None),
    "chary l1": ("chary", {"eta": 6.0, "bonus": "l1"}, None),
    "chary known reward": ("chary", CHARY | {"reward": "known"}, None),
    "ucbvi": ("ucbvi", {"bonus": "hoeffding", "bonus_scale": 0.01}, None),
    "ucbvi ch": ("ucbvi", {"bonus": "ch", "bonus_scale": 0.01}, None),
    "ucbvi bf": ("ucbvi", {"bonus": "bf", "bonus_scale": 0.01}, None),
    "cucbvi": ("cucbvi", {"alpha": 0.1, "bonus": "hoeffding", "bonus_scale": 0.01}, None),
    "stepmix": ("stepmix", CHARY, None),
    "epsmix": ("epsmix", CHARY, None),
    "frozen": ("frozen", {}, None),
    "baseline": ("baseline", {}, None),
    "random": ("random", {}, None),
    **{f"chary own {role}": ("chary", CHARY, role) for role in ROLES},
    "baseline own floor": ("baseline", {"bonus": "hoeffding", "bonus_scale": 0.01}, "floor"),
    "worlds": ("chary", WORLDS, None),
    "worlds every episode": ("chary", WORLDS | {"growth": 0.0, "pool": 2}, None),
    "worlds quantile": ("chary", WORLDS | {"charge": "quantile", "risk": 0.01}, None),
    "worlds chains off": ("chary", WORLDS | {"chains": False, "world_prior": "shrunk"}, None),
    "psrl": ("psrl", {"worlds": 4, "growth": 0.1}, None),
    **{f"worlds own {role}": ("chary", WORLDS, role) for role in ROLES},
}
PROBLEMS: dict[str, Callable[[], FiniteMDP]] = {
    "riverswim": lambda: envs.riverswim(horizon=5),
    "inventory": lambda: envs.inventory(horizon=4),
}


class World:
    """A clinic: several episodes at once, some of their outcomes late; all it does follows from the seed.

    Each call goes to all agents, and all have to answer the same.
    """

    def __init__(self, mdp: FiniteMDP, agents: list[TabularAgent], seed: int) -> None:
        self.mdp, self.agents = mdp, agents
        self._rng = np.random.default_rng(seed)
        self._next = 0
        # By episode: where it is, the steps played, and the outcomes nobody was told yet.
        self._state: dict[str, int] = {}
        self._played: dict[str, int] = {}
        self._late: dict[str, dict[int, Transition]] = {}
        self._over: set[str] = set()
        self.decisions: list[Decision] = []

    def copy_for(self, agents: list[TabularAgent]) -> World:
        """Return the same world for other agents."""
        other = World(self.mdp, agents, 0)
        other._rng.bit_generator.state = self._rng.bit_generator.state
        other._next = self._next
        other._state, other._played, other._over = dict(self._state), dict(self._played), set(self._over)
        other._late = {name: dict(late) for name, late in self._late.items()}
        return other

    def begin(self) -> str:
        name, self._next = f"patient {self._next}", self._next + 1
        state = int(self._rng.choice(self.mdp.n_states, p=self.mdp.start))
        self._all(lambda agent: agent.begin(name, state))
        self._state[name], self._played[name], self._late[name] = state, 0, {}
        return name

    def step(self, name: str, *, late: bool) -> None:
        s, t = self._state[name], self._played[name]
        allowed = np.flatnonzero(self.mdp.setting.allowed[s])
        proposal = int(self._rng.choice(allowed)) if self._rng.random() < 0.2 else None
        if not self.agents[0].spec.shielded:
            proposal = None
        decision = self._all(lambda agent: agent.act(name, t, s, proposal=proposal))
        self.decisions.append(decision)
        x, p, r = self.mdp.row(s, decision.action)
        i = int(self._rng.choice(len(x), p=p))
        scale = self.mdp.scale
        step = Transition(s, decision.action, scale.low + scale.span * float(r[i]), int(x[i]), False)
        self._late[name][t] = step
        self._state[name], self._played[name] = step.next_state, t + 1
        if not late:
            self.tell(name, t)
        if t + 1 == self.mdp.horizon:
            self._over.add(name)

    def tell(self, name: str, t: int) -> None:
        step = self._late[name].pop(t)
        self._all(lambda agent: agent.observe(name, step, t=t))
        if name in self._over and name not in self._state and not self._late[name]:
            self._forget(name)

    def finish(self, name: str) -> None:
        self._all(lambda agent: agent.finish(name))
        del self._state[name]
        self._over.add(name)
        if not self._late[name]:
            self._forget(name)

    def live(self, calls: int) -> None:
        """Make that many calls at random, with up to four episodes open."""
        for _ in range(calls):
            going = [name for name in self._state if name not in self._over]
            waiting = [(name, t) for name, late in self._late.items() for t in late]
            ready = [name for name in self._state if name in self._over]
            u = self._rng.random()
            if len(self._late) < 4 and (u < 0.15 or not self._late):
                self.begin()
            elif waiting and u < 0.3:
                self.tell(*waiting[int(self._rng.integers(len(waiting)))])
            elif ready and u < 0.6:
                self.finish(ready[0])
            elif u < 0.63 and len(self._late) > 2:
                self._abandon(next(iter(self._late)))
            elif going:
                self.step(going[int(self._rng.integers(len(going)))], late=self._rng.random() < 0.6)

    def _abandon(self, name: str) -> None:
        self._all(lambda agent: agent.abandon(name))
        self._state.pop(name, None)
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self._played[name], self._late[name]
        self._over.discard(name)

    def _all(self, call: Callable[[TabularAgent], Any]) -> Any:
        first, *others = [call(agent) for agent in self.agents]
        for other in others:
            assert other == first
        return first


def new_agent(case: str, mdp: FiniteMDP, *, warm: bool = True) -> TabularAgent:
    name, options, role = AGENTS[case]
    spec = make_agent(name, **options)
    setting = mdp.told(spec.reward)
    own = None
    if role is not None:
        last = [int(np.flatnonzero(allowed)[-1]) for allowed in setting.allowed]
        own = OwnBaseline.declare(last, setting, role=role)
    agent = TabularAgent(
        spec, setting, max_episodes=500, warmup=30, generator=np.random.default_rng(3), own=own
    )
    if warm:
        warm_up(agent, mdp)
    return agent


def warm_up(agent: TabularAgent, mdp: FiniteMDP) -> None:
    rng, episodes = np.random.default_rng(8), []
    for _ in range(20):
        s, steps = int(rng.choice(mdp.n_states, p=mdp.start)), []
        for _ in range(mdp.horizon):
            a = int(rng.choice(np.flatnonzero(mdp.setting.allowed[s])))
            x, p, r = mdp.row(s, a)
            i = int(rng.choice(len(x), p=p))
            steps.append(Transition(s, a, mdp.scale.low + mdp.scale.span * float(r[i]), int(x[i]), False))
            s = int(x[i])
        episodes.append(steps)
    agent.warm_start(episodes)


def saved(agent: TabularAgent) -> bytes:
    """Return all of an agent as the bytes of its file."""
    arrays, about = agent._record()
    return pack("agent", arrays, about)


def reloaded(agent: TabularAgent, folder: Path) -> TabularAgent:
    path = folder / "agent.npz"
    agent.save(path, overwrite=True)
    return TabularAgent.load(path, setting=agent.setting)


def assert_same(a: TabularAgent, b: TabularAgent) -> None:
    """Compare all there is to save, named, and the plans that follow from it."""
    left, right = a._record(), b._record()
    assert list(left[0]) == list(right[0])
    for name in left[0]:
        assert left[0][name].dtype == right[0][name].dtype, name
        assert left[0][name].tobytes() == right[0][name].tobytes(), name
    assert plain(left[1]) == plain(right[1])
    assert a.open_episodes == b.open_episodes
    assert a.outstanding == b.outstanding
    # Plans of worlds also have room for one stage, which is whatever the last call left there.
    names = ("value", "baseline", "explorer", "spread", "top") if isinstance(a.plan, JointPlan) else None
    for name in names or a.plan.arrays._fields:
        one, other = (np.asarray(getattr(agent.plan.arrays, name)) for agent in (a, b))
        assert one.tobytes() == other.tobytes(), name


def plain(about: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(about))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("case", AGENTS)
def test_an_agent_saved_among_open_episodes_goes_on_as_if_nothing_had_been(
    case: str, problem: str, tmp_path: Path
) -> None:
    mdp = PROBLEMS[problem]()
    world = World(mdp, [new_agent(case, mdp)], seed=4)
    open_at, late_at, explored = [], [], 0
    for _ in range(4):
        world.live(45)
        original = world.agents[0]
        open_at.append(len(original.open_episodes))
        late_at.append(sum(map(len, original.outstanding.values())))
        copy = reloaded(original, tmp_path)
        assert_same(original, copy)
        # Both go on for a while with the same calls, and are compared in every one.
        world = world.copy_for([original, copy])
        world.live(45)
        assert_same(original, copy)
        assert saved(original) == saved(copy)
        explored += sum(decision.explored for decision in world.decisions)
        world = world.copy_for([copy])
    # A test that saves nothing of interest proves nothing.
    assert explored or case in ("chary closed", "frozen", "baseline", "baseline own floor")
    assert max(open_at) >= 3
    assert max(late_at) >= 2


@pytest.mark.parametrize("case", AGENTS)
def test_an_agent_saved_before_its_first_episode_begins_like_the_original(case: str, tmp_path: Path) -> None:
    mdp = PROBLEMS["riverswim"]()
    for warm in (False, True):
        original = new_agent(case, mdp, warm=warm)
        copy = reloaded(original, tmp_path)
        assert_same(original, copy)
        if not warm:
            warm_up(original, mdp)
            warm_up(copy, mdp)
            assert_same(original, copy)
        World(mdp, [original, copy], seed=1).live(60)
        assert_same(original, copy)


@pytest.mark.parametrize(
    "case", ["chary data meta", "chary patience", "chary chains off", "stepmix", "random"]
)
def test_an_agent_saved_with_nothing_open_goes_on(case: str, tmp_path: Path) -> None:
    mdp = PROBLEMS["inventory"]()
    original = new_agent(case, mdp)
    world = World(mdp, [original], seed=2)
    for _ in range(6):
        name = world.begin()
        for _ in range(mdp.horizon):
            world.step(name, late=False)
        world.finish(name)
    assert original.open_episodes == ()
    copy = reloaded(original, tmp_path)
    assert_same(original, copy)
    world.copy_for([original, copy]).live(120)
    assert_same(original, copy)


@pytest.mark.parametrize("case", ["chary strict", "chary clock meta", "cucbvi", "chary own floor"])
def test_a_finished_episode_that_waits_for_outcomes_still_counts_after_loading(
    case: str, tmp_path: Path
) -> None:
    mdp = PROBLEMS["riverswim"]()
    original = new_agent(case, mdp)
    world = World(mdp, [original], seed=6)
    name = world.begin()
    for t in range(mdp.horizon):
        world.step(name, late=t % 2 == 0)
    world.finish(name)
    waiting = original.outstanding[name]
    assert waiting == tuple(range(0, mdp.horizon, 2))
    before = original.plan.knowledge.rows.total.sum()
    copy = reloaded(original, tmp_path)
    both = world.copy_for([original, copy])
    for t in reversed(waiting):
        both.tell(name, t)
    assert copy.open_episodes == ()
    for agent in both.agents:
        assert agent.plan.knowledge.rows.total.sum() == before + mdp.horizon
    assert_same(original, copy)


def test_a_step_told_by_numpy_numbers_is_saved_as_any_other(tmp_path: Path) -> None:
    mdp = PROBLEMS["riverswim"]()
    plainly, oddly = new_agent("chary strict", mdp), new_agent("chary strict", mdp)
    number: Any
    for agent, number in ((plainly, int), (oddly, np.int64)):
        agent.begin(number(3), number(0))
        agent.begin("x", number(0))
        first, _ = agent.act_many([number(3), "x"], [number(0)] * 2, [number(0)] * 2)
        agent.observe(
            number(3), Transition(number(0), number(first.action), np.float64(0.0), number(0), False), t=0
        )
        agent.act(number(3), number(1), number(0), proposal=number(1))
        agent.act_many(["x"], np.array([1]), np.array([0]), [number(0)])
    assert_same(plainly, oddly)
    assert_same(oddly, reloaded(oddly, tmp_path))


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from tests.parity.test_saved_agents import PROBLEMS, World, saved
from chary import TabularAgent

path, told = Path(sys.argv[1]), json.loads(sys.argv[2])
mdp = PROBLEMS["inventory"]()
world = World(mdp, [TabularAgent.load(path)], seed=11)
world._next = told
world.live(150)
(path.parent / "later.npz").write_bytes(saved(world.agents[0]))
print(json.dumps([list(decision) for decision in world.decisions]))
"""


def test_an_agent_loaded_in_a_new_process_decides_as_the_original(tmp_path: Path) -> None:
    mdp = PROBLEMS["inventory"]()
    original = new_agent("chary data meta", mdp)
    world = World(mdp, [original], seed=5)
    world.live(100)
    assert original.open_episodes
    original.save(tmp_path / "agent.npz")
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "agent.npz"), json.dumps(world._next)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    here = World(mdp, [original], seed=11)
    here._next = world._next
    here.live(150)
    assert here.decisions
    assert json.loads(done.stdout) == plain({"all": [list(decision) for decision in here.decisions]})["all"]
    assert (tmp_path / "later.npz").read_bytes() == saved(original)
