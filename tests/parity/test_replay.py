"""A history replayed by `apply` and `adopt` gives the same agent, byte by byte, and the same decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.agents import PSRL, Baseline, CharyUCBVI, Transition
from chary.agents.tabular import TabularAgent
from chary.mdp import Setting
from chary.shield import Decision

STATES, ACTIONS, HORIZON, END = 5, 3, 4, 4
SETTING = Setting.declare(n_states=STATES, n_actions=ACTIONS, horizon=HORIZON)
Event = tuple[str, tuple[Any, ...], dict[str, Any]]

BOUNDS: dict[str, Any] = {"bonus": "hoeffding", "bonus_scale": 0.02}
WORLDS: dict[str, Any] = {"bonus": "posterior", "worlds": 8, "risk": 0.2}
SPECS: dict[str, Any] = {
    "strict": CharyUCBVI(eta=0.6, pool=3, patience=6, **BOUNDS),
    "capped, by the chain's clock": CharyUCBVI(
        eta=0.6, rule="capped", step_bound=0.2, pool=4, clock="meta", **BOUNDS
    ),
    "paper": CharyUCBVI(eta=0.8, rule="paper", charge="paper", pool=2, **BOUNDS),
    "closing": CharyUCBVI(eta=0.4, after_refusal="close", patience=3, **BOUNDS),
    "meta": CharyUCBVI(eta=2.0, data="meta", pool=3, **BOUNDS),
    "without chains": CharyUCBVI(eta=0.6, chains=False, **BOUNDS),
    "kl": CharyUCBVI(eta=0.9, pool=5, patience=8),
    "worlds": CharyUCBVI(eta=0.6, pool=4, patience=6, **WORLDS),
    "worlds, quantile": CharyUCBVI(eta=0.6, charge="quantile", pool=4, **WORLDS),
    "psrl": PSRL(worlds=6),
    "baseline": Baseline(),
}


def made(spec: Any, replan: str, overrides: str = "counted") -> TabularAgent:
    agent = TabularAgent(
        spec,
        SETTING,
        max_episodes=1000,
        generator=np.random.default_rng(7),
        overrides=overrides,
        replan=replan,
    )
    random = np.random.default_rng(3)
    agent.warm_start([walk(random) for _ in range(15)])
    return agent


def walk(random: np.random.Generator) -> list[Transition]:
    s, steps = int(random.integers(END)), []
    for _ in range(HORIZON):
        a, x = int(random.integers(ACTIONS)), int(random.integers(STATES))
        steps.append(Transition(s, a, float(a == 1) * 0.5, x, x == END))
        if x == END:
            break
        s = x
    return steps


class History:
    """A random history of an agent, with every event as it happened."""

    def __init__(self, agent: TabularAgent, seed: int) -> None:
        self.agent, self.random = agent, np.random.default_rng(seed)
        self.events: list[Event] = []
        self.begun = 0
        self.kinds: Counter[str] = Counter()
        # State, and by step the decision, the state it was made in, what was played, and whether it is known.
        self.open: dict[int, dict[str, Any]] = {}

    def did(self, call: str, *args: Any, **options: Any) -> Any:
        self.events.append((call, args, options))
        self.kinds[call] += 1
        return getattr(self.agent, call)(*args, **options)

    def step(self) -> None:
        """Let something happen that can."""
        choices = [self.begin, self.act, self.act, self.act, self.observe, self.observe, self.end, self.taken]
        choices += [self.tighten, self.learn] if self.random.random() < 0.3 else []
        choices += [self.plan] if self.agent.replan == "adopt" else []
        choices[int(self.random.integers(len(choices)))]()

    def begin(self) -> None:
        if len(self.open) < 6:
            own = self.has_budget and self.random.random() < 0.3
            s = int(self.random.integers(END))
            self.did("begin", self.begun, s, **({"eta": float(self.random.random())} if own else {}))
            self.open[self.begun] = {"state": s, "steps": [], "over": False}
            self.begun += 1

    @property
    def has_budget(self) -> bool:
        spec = self.agent.spec
        return isinstance(spec, CharyUCBVI) and spec.rule in ("strict", "capped")

    def pick(self, suits: Callable[[dict[str, Any]], bool]) -> int | None:
        names = [name for name, story in self.open.items() if suits(story)]
        return int(self.random.choice(names)) if names else None

    def act(self) -> None:
        name = self.pick(lambda story: not story["over"] and len(story["steps"]) < HORIZON)
        if name is None:
            return
        story = self.open[name]
        t, last = len(story["steps"]), story["steps"][-1] if story["steps"] else None
        s = story["state"] if last is None or last["known"] else None
        s = int(self.random.integers(END)) if s is None else s
        options: dict[str, Any] = {}
        if self.random.random() < 0.2:
            options["explore"] = False
        elif self.agent.spec.shielded and self.random.random() < 0.2:
            options["proposal"] = int(self.random.integers(ACTIONS))
        decision = self.agent.act(name, t, s, **options)
        self.events.append(("apply", (name, t, s, decision), options))
        self.kinds["explored" if decision.explored else "baseline"] += 1
        self.kinds["chain"] += decision.chain >= 0
        story["steps"].append({"decision": decision, "state": s, "known": False, "taken": None})

    def observe(self) -> None:
        name = self.pick(lambda story: any(not step["known"] for step in story["steps"]))
        if name is None:
            return
        steps = self.open[name]["steps"]
        t = int(self.random.choice([i for i, step in enumerate(steps) if not step["known"]]))
        step, last = steps[t], t + 1 == len(steps)
        x = int(self.random.integers(STATES)) if last else steps[t + 1]["state"]
        a = step["decision"].action if step["taken"] is None else step["taken"]
        taken = None
        if step["taken"] is None and (last or step["decision"].chain < 0) and self.random.random() < 0.2:
            taken = a = (a + 1) % ACTIONS
        if not last and x == END:
            return
        outcome = Transition(step["state"], a, float(a == 1) * 0.5, x, x == END)
        self.did("observe", name, outcome, t=t, taken=taken)
        step["known"] = True
        if last:
            self.open[name]["state"] = x
            self.open[name]["over"] |= x == END
        self.forget_closed()

    def taken(self) -> None:
        name = self.pick(lambda story: bool(story["steps"]) and not story["steps"][-1]["known"])
        if name is None or self.open[name]["steps"][-1]["taken"] is not None:
            return
        steps = self.open[name]["steps"]
        a, kind = steps[-1]["decision"].action, int(self.random.integers(3))
        if kind == 2:
            self.did("taken", name, len(steps) - 1, None)
            # Known as far as it ever will be; the next state may be any.
            steps[-1]["known"], self.open[name]["state"] = True, None
            self.forget_closed()
            return
        steps[-1]["taken"] = a if kind == 0 else (a + 1) % ACTIONS
        self.did("taken", name, len(steps) - 1, steps[-1]["taken"])
        self.forget_closed()

    def end(self) -> None:
        name = self.pick(lambda story: True)
        if name is None:
            return
        if self.random.random() < 0.3:
            self.did("abandon", name)
            del self.open[name]
        elif not self.open[name].get("finished"):
            self.did("finish", name)
            self.open[name]["finished"] = self.open[name]["over"] = True
            self.forget_closed()

    def forget_closed(self) -> None:
        for name in set(self.open) - set(self.agent.open_episodes):
            del self.open[name]

    def tighten(self) -> None:
        name = self.pick(lambda story: True)
        if name is not None and self.has_budget:
            self.did("tighten", name, self.agent.eta_of(name) * float(self.random.random()))

    def learn(self) -> None:
        self.did("learn", [walk(self.random) for _ in range(3)])

    def plan(self) -> None:
        if self.agent.drafted is None or self.random.random() < 0.3:
            self.did("draft")
            if self.random.random() < 0.7:
                assert self.agent.drafted is not None
                self.agent.drafted.make()
        else:
            self.events.append(("adopt", (self.agent.drafted.digest,), {}))
            self.kinds["adopt"] += 1
            self.agent.adopt(self.agent.drafted)


def replayed(agent: TabularAgent, events: list[Event]) -> None:
    """Play events by an agent that decides nothing, and makes no draft's plan."""
    for call, args, options in events:
        if call == "adopt":
            assert agent.drafted is not None
            assert agent.drafted.digest == args[0]
            agent.adopt(agent.drafted)
        else:
            getattr(agent, call)(*args, **options)


def content(agent: TabularAgent, folder: Path) -> bytes:
    agent.save(folder / "agent", overwrite=True)
    return (folder / "agent").read_bytes()


def again(agent: TabularAgent, folder: Path) -> TabularAgent:
    agent.save(folder / "agent", overwrite=True)
    return TabularAgent.load(folder / "agent")


@pytest.mark.parametrize("replan", ["episode", "adopt"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_a_replayed_history_gives_the_same_agent(spec: Any, replan: str, tmp_path: Path) -> None:
    for seed in range(3):
        played = History(made(spec, replan), seed)
        copy, loaded = made(spec, replan), made(spec, replan)
        for _ in range(4):
            done = len(played.events)
            for _ in range(60):
                played.step()
            replayed(copy, played.events[done:])
            # Half of the time another agent goes on from a file, as after a restart from a snapshot.
            loaded = again(loaded, tmp_path)
            replayed(loaded, played.events[done:])
            assert content(played.agent, tmp_path) == content(copy, tmp_path) == content(loaded, tmp_path)
        assert played.kinds["baseline"] > 3
        assert spec.name == "baseline" or played.kinds["explored"] > 3
        assert replan == "episode" or played.kinds["adopt"] > 3
        # From here on all three decide, and decide alike.
        played.events.clear()
        for _ in range(80):
            played.step()
        for agent in (copy, loaded):
            for call, args, options in played.events:
                if call == "apply":
                    *where, decision = args
                    assert agent.act(*where, **options) == decision
                else:
                    replayed(agent, [(call, args, options)])
        assert content(played.agent, tmp_path) == content(copy, tmp_path) == content(loaded, tmp_path)


def test_a_history_replayed_without_planning_makes_no_plan() -> None:
    played = History(made(SPECS["worlds"], "adopt"), 5)
    for _ in range(300):
        played.step()
    assert played.kinds["adopt"] > 5
    copy = made(SPECS["worlds"], "adopt")
    plans: set[int] = set()
    for event in played.events:
        replayed(copy, [event])
        plans |= {id(now.pinned.plan) for now in copy._episodes if now.pinned.plan.is_made}
    # The first one is made when the first episode begins.
    assert len(plans) == 1


def of_numpy(value: Any) -> Any:
    return np.bool_(value) if isinstance(value, bool) else np.array(value)[()]


def test_decisions_are_typed_as_those_that_were_made(tmp_path: Path) -> None:
    agent = made(SPECS["strict"], "episode")
    agent.begin(0, 0)
    told = agent.recommend(0, 0, 0)
    odd: Any = Decision(*map(of_numpy, told[:7]), told.vote, told.span)  # type: ignore[call-arg]
    agent.apply(0, 0, 0, odd)
    assert [type(each) for each in agent.act(0, 0, 0)] == [type(each) for each in told]
    assert isinstance(agent.act(0, 0, 0), Decision)
    assert content(agent, tmp_path)
