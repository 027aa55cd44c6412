"""Make the golden files with the installed version of chary; see README.md for when and with which.

    PYTHONPATH=OLD/src python tests/golden/make.py FOLDER

It uses what is public, so that it runs with other versions too. The unfinished run of the sweep is the one
exception: no command leaves a checkpoint behind on purpose.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import chary
from chary import FiniteMDP, OwnBaseline, TabularAgent, Transition, envs, make_agent
from chary.data import Bins

CHARY: dict[str, Any] = {"eta": 0.6, "bonus": "hoeffding", "bonus_scale": 0.001}
# By file: the agent, its options, the role of an own baseline, the problem, and whether Bins are saved too.
AGENTS: dict[str, tuple[str, dict[str, Any], str | None, str, bool]] = {
    "chary-strict": ("chary", CHARY, None, "inventory", False),
    "chary-paper": (
        "chary",
        CHARY | {"rule": "paper", "charge": "paper", "after_refusal": "close"},
        None,
        "riverswim",
        False,
    ),
    "chary-meta": ("chary", CHARY | {"clock": "meta", "data": "meta"}, None, "riverswim", False),
    "chary-capped-kl": (
        "chary",
        {"eta": 6.0, "bonus": "kl", "rule": "capped", "step_bound": 2.0, "pool": 2},
        None,
        "riverswim",
        False,
    ),
    "chary-discretised": ("chary", CHARY | {"patience": 1, "pool": 2}, None, "riverswim", True),
    "chary-own-floor": ("chary", CHARY, "floor", "inventory", False),
    "stepmix": ("stepmix", CHARY, None, "riverswim", False),
    "cucbvi": ("cucbvi", {"alpha": 0.1, "bonus": "hoeffding", "bonus_scale": 0.01}, None, "inventory", False),
    "random": ("random", {}, None, "riverswim", False),
}
# Agents whose outcomes count in the order of their decisions: the first four members as above, and whether
# losses are expected. They are made by `make.py FOLDER late`.
LATE: dict[str, tuple[str, dict[str, Any], str | None, str, bool]] = {
    "late-strict": ("chary", CHARY, None, "inventory", False),
    "late-capped-kl": (
        "chary",
        {"eta": 6.0, "bonus": "kl", "rule": "capped", "step_bound": 2.0, "pool": 2},
        None,
        "riverswim",
        True,
    ),
    "late-floor-kl": ("chary", {"eta": 2.0, "bonus": "kl"}, "floor", "inventory", True),
    "late-meta": ("chary", CHARY | {"clock": "meta", "data": "meta"}, None, "riverswim", False),
}
# Agents of posterior worlds, made by `make.py FOLDER worlds`.
WORLDS: dict[str, tuple[str, dict[str, Any], str | None, str, bool]] = {
    "worlds-auto": (
        "chary",
        {"eta": 3.0, "bonus": "posterior", "worlds": 8, "risk": 0.2},
        None,
        "riverswim",
        False,
    )
}
PROBLEMS = {"riverswim": lambda: envs.riverswim(horizon=5), "inventory": lambda: envs.inventory(horizon=4)}

SWEEP = """
name = "golden"
title = "A small sweep"
problem = "riverswim"
episodes = 60
warmup = 20
seeds = 2
etas = [0.2, 0.4]
bonus = "hoeffding"
bonus_scale = 0.002
reward = "known"

[[algorithms]]
label = "UCBVI"
agent = "ucbvi"
role = "unconstrained"

[[algorithms]]
label = "chary"
agent = "chary"
role = "ours"

[[studies]]
name = "unfinished"
question = "Does a run go on?"
algorithms = ["chary"]

[[studies.variants]]
label = "longer"
episodes = 400
etas = [0.2]
"""
HIV = """
name = "golden-hiv"
title = "A small HIV sweep"
problem = "hiv"
episodes = 2
warmup = 1
seeds = 1
etas = [40]
audit_every = 1

[learner]
pretraining = 5
width = 8
features = 8
batch = 8
fresh = 4
replay = 1000

[[algorithms]]
label = "DQN"
agent = "dqn"
role = "unconstrained"

[[algorithms]]
label = "chary"
agent = "chary"
role = "ours"
"""

# The deep learner's walk: sums of powers of two, so that nothing is rounded.
HORIZON = 6
START = np.array([0.25, -0.5, 0.0, 0.5, 0.0, -0.25])
MOVES = np.array([[1, 0, 0, 1, 0, 0], [-1, 0.5, 0, 0, 1, 0], [0, -1, 1, 0, 0, 1], [0.5, 0, -1, -1, 0, 0]]) / 2


class World:
    """Several episodes at once, some outcomes late; every call is recorded with what the agent returned."""

    def __init__(self, mdp: FiniteMDP, agent: TabularAgent, seed: int) -> None:
        self.mdp, self.agent = mdp, agent
        self.rng = np.random.default_rng(seed)
        self.calls: list[list[Any]] = []
        self.begun = 0
        self.state: dict[str, int] = {}
        self.played: dict[str, int] = {}
        self.late: dict[str, dict[int, Transition]] = {}

    def live(self, calls: int) -> None:
        """Make that many calls, with up to four episodes open."""
        while calls > 0:
            u = self.rng.random()
            going = [name for name in self.state if self.played[name] < self.mdp.horizon]
            over = [name for name in self.state if self.played[name] == self.mdp.horizon]
            waiting = [(name, t) for name, late in self.late.items() for t in late]
            if len(self.late) < 4 and (u < 0.15 or not self.late):
                self.begin()
            elif waiting and u < 0.3:
                self.observe(*waiting[int(self.rng.integers(len(waiting)))])
            elif over and u < 0.6:
                self.finish(over[0])
            elif u < 0.63 and len(self.late) > 2:
                self.abandon(next(iter(self.late)))
            elif going:
                self.step(going[int(self.rng.integers(len(going)))])
            else:
                continue
            calls -= 1

    def begin(self) -> None:
        name, self.begun = f"patient {self.begun}", self.begun + 1
        state = int(self.rng.choice(self.mdp.n_states, p=self.mdp.start))
        self.agent.begin(name, state)
        self.calls.append(["begin", name, state])
        self.state[name], self.played[name], self.late[name] = state, 0, {}

    def step(self, name: str) -> None:
        s, t = self.state[name], self.played[name]
        allowed = np.flatnonzero(self.mdp.setting.allowed[s])
        proposal = int(self.rng.choice(allowed)) if self.rng.random() < 0.2 else None
        if self.agent.shield is None:
            proposal = None
        decision = self.agent.act(name, t, s, proposal=proposal)
        self.calls.append(["act", name, t, s, proposal, list(decision)])
        x, p, r = self.mdp.row(s, decision.action)
        i = int(self.rng.choice(len(x), p=p))
        reward = self.mdp.scale.low + self.mdp.scale.span * float(r[i])
        self.late[name][t] = Transition(s, decision.action, reward, int(x[i]), False)
        self.state[name], self.played[name] = int(x[i]), t + 1
        if self.rng.random() < 0.4:
            self.observe(name, t)

    def observe(self, name: str, t: int) -> None:
        step = self.late[name].pop(t)
        self.agent.observe(name, step, t=t)
        self.calls.append(["observe", name, t, list(step)])
        if name not in self.state and not self.late[name]:
            del self.late[name]

    def finish(self, name: str) -> None:
        self.agent.finish(name)
        self.calls.append(["finish", name])
        del self.state[name]
        if not self.late[name]:
            del self.late[name]

    def abandon(self, name: str) -> None:
        self.agent.abandon(name)
        self.calls.append(["abandon", name])
        self.state.pop(name, None)
        del self.late[name]


def tabular_agent(case: str) -> tuple[FiniteMDP, TabularAgent]:
    """Return a new agent that has learnt from a few random episodes."""
    name, options, role, problem, losses = {**AGENTS, **LATE, **WORLDS}[case]
    more: dict[str, Any] = {"losses": losses} if case in LATE else {}
    mdp, spec = PROBLEMS[problem](), make_agent(name, **options)
    setting, own = mdp.told(spec.reward), None
    if role is not None:
        last = [int(np.flatnonzero(allowed)[-1]) for allowed in setting.allowed]
        own = OwnBaseline.declare(last, setting, role=role)
    agent = TabularAgent(
        spec, setting, max_episodes=500, warmup=30, generator=np.random.default_rng(3), own=own, **more
    )
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
    return mdp, agent


def make_tabular(folder: Path) -> None:
    for case, (*_, discretised) in AGENTS.items():
        mdp, agent = tabular_agent(case)
        world = World(mdp, agent, seed=4)
        world.live(120)
        # A file without open episodes and late outcomes would prove little.
        while len(agent.open_episodes) < 3 or sum(map(len, agent.outstanding.values())) < 2:
            world.live(1)
        bins = Bins.uniform([0.0], [1.0], [mdp.n_states]) if discretised else None
        agent.save(folder / f"{case}.npz", discretiser=bins)
        told = {
            "begun": agent.episodes_begun,
            "open": list(agent.open_episodes),
            "outstanding": {name: list(steps) for name, steps in agent.outstanding.items()},
            "counted": int(agent.plan.knowledge.rows.total.sum()),
        }
        world.calls.clear()
        world.live(160)
        assert case == "random" or any(call[0] == "act" and call[5][1] for call in world.calls)
        told["calls"] = world.calls
        (folder / f"{case}.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def make_late(folder: Path) -> None:
    for case in LATE:
        mdp, agent = tabular_agent(case)
        world = World(mdp, agent, seed=5)
        world.live(150)
        # Some outcomes must wait behind missing ones, others must have been lost.
        while len(agent.open_episodes) < 4 or sum(map(len, agent.outstanding.values())) < 4:
            world.live(1)
        agent.save(folder / f"{case}.npz")
        told = {"open": list(agent.open_episodes), "counted": int(agent.plan.knowledge.rows.total.sum())}
        world.calls.clear()
        world.live(200)
        told["calls"] = world.calls
        told["counted_later"] = int(agent.plan.knowledge.rows.total.sum())
        (folder / f"{case}.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def make_worlds(folder: Path) -> None:
    for case in WORLDS:
        mdp, agent = tabular_agent(case)
        world = World(mdp, agent, seed=5)
        world.live(30)
        agent.save(folder / f"{case}.npz")
        told = {
            "open": list(agent.open_episodes),
            "kinds": agent.plan.worlds.kinds.tolist(),
            "counted": agent.plan.worlds.learnt,
        }
        world.calls.clear()
        world.live(30)
        told["calls"], told["counted_later"] = world.calls, agent.plan.worlds.learnt
        (folder / f"{case}.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def make_ensemble(folder: Path) -> None:
    cheap = {"members": 3, "floor": 0.05, "offset": 0.01, "margin": 0.05, "z": 1.0, "spread": 0.5}
    make_deep(folder, "deep-ensemble", learner="ensemble", ensemble=cheap)


def make_deep(folder: Path, name: str = "deep", **changes: Any) -> None:
    from chary.deep import DeepAgent, DeepOptions

    options = DeepOptions(
        episodes=8,
        eta=0.75,
        discount=0.9,
        beta=1.0,
        optimism=1.0,
        length_scale=1.0,
        width=8,
        features=4,
        batch=4,
        fresh=2,
        replay=40,
        radius=0.1,
        warm_up=1,
        pretraining=3,
        learning_rate=1e-2,
        **changes,
    )
    agent = DeepAgent(options, observation_size=6, n_actions=4, horizon=HORIZON, seed=3)
    state, t, number = START, HORIZON, -1
    calls: list[list[Any]] = []
    for step in range(40):
        if t == HORIZON:
            if number >= 0:
                agent.finish(number)
                calls.append(["finish", number])
            state, t, number = START, 0, number + 1
            agent.begin(number, state)
            calls.append(["begin", number, state.tolist()])
        decision = agent.act(number, t, state)
        after = np.clip(state + MOVES[decision.action], -2.0, 2.0)
        reward = float(1.0 - state[0] * state[0] + 0.25 * decision.action)
        calls.append(["act", number, t, state.tolist(), list(decision)])
        agent.observe(number, Transition._make((state, decision.action, reward, after, False)))
        calls.append(["observe", number, [state.tolist(), decision.action, reward, after.tolist(), False]])
        state, t = after, t + 1
        if step == 20:
            agent.save(folder / f"{name}.safetensors")
            told = {
                "begun": agent.episodes_begun,
                "open": number,
                "updates": agent.updates,
                "chains": agent.chains,
            }
            calls.clear()
    (folder / f"{name}.json").write_text(json.dumps({**told, "calls": calls}) + "\n", encoding="utf-8")


def make_sweep(folder: Path, toml: str) -> None:
    """Sweep, and keep what `chary status` says of it."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "sweep.toml").write_text(toml, encoding="utf-8")
        chary_command("sweep", "sweep.toml", "--out", folder.name, "--workers", "1", cwd=scratch)
        told = json.loads(chary_command("status", folder.name, "--json", cwd=scratch))
        shutil.move(Path(scratch) / folder.name, folder)
    folder.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    summary = folder.name.replace("sweep", "summary.csv")
    shutil.copy(folder / "report" / "tables" / "summary.csv", folder.with_name(summary))
    shutil.rmtree(folder / "report")
    (folder / "lock").unlink()


def leave_unfinished(folder: Path) -> None:
    """Take one run of a sweep back to its middle, as a power cut would have left it."""
    sweeps = "sweeps" if Path(chary.__file__).parent.joinpath("sweeps").exists() else "runner"
    perform = importlib.import_module(f"chary.{sweeps}.perform")
    spec_of = importlib.import_module(f"chary.{sweeps}.spec")
    kept = importlib.import_module(f"chary.{sweeps}.folder").SweepFolder(folder)
    spec = next(each.spec for each in kept.experiment().plan() if each.spec.episodes == 400)
    shutil.copy(folder / "runs" / spec.id / "result.npz", folder.with_name("finished-later.npz"))
    shutil.rmtree(folder / "runs" / spec.id)
    simulation = spec_of.family_of(spec.problem).simulation(spec)
    simulation.start()
    while simulation.done < 100:
        simulation.advance()
    assert simulation.done < spec.episodes, simulation.done
    spent = {"wall": 1.0, "cpu": 1.0, "resumed": 0}
    if sweeps == "sweeps":
        perform.save(spec, kept, simulation, spent)
    else:
        kept.write_checkpoint(spec.id, perform.checkpoint_of(spec, simulation, spent))


def chary_command(*arguments: object, cwd: str) -> str:
    command = [sys.executable, "-m", "chary", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd).stdout


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    print("chary", chary.__version__, chary.__file__)
    if sys.argv[2:]:
        {"late": make_late, "worlds": make_worlds, "ensemble": make_ensemble}[sys.argv[2]](target)
        sys.exit()
    make_tabular(target)
    make_sweep(target / "tabular-sweep", SWEEP)
    leave_unfinished(target / "tabular-sweep")
    make_deep(target)
    make_sweep(target / "hiv-sweep", HIV)
