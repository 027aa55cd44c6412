"""Use each part of an installed chary once, in a minute: a smoke test of versions of what it depends on.

    python smoke_extras.py core figures report cluster minari deep serve wrappers sb3 d3rlpy

Each name is an extra of chary, or `core` and `wrappers`, which need none. Run it outside the checkout. Every
check runs, and the exit code is 1 if one of them failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SWEEP = """
name = "smoke"
title = "A smoke test"
problem = "riverswim"
episodes = 20
warmup = 10
seeds = 2
etas = [0.4]
bonus = "hoeffding"
bonus_scale = 0.002

[[algorithms]]
label = "UCBVI"
agent = "ucbvi"
role = "unconstrained"

[[algorithms]]
label = "chary"
agent = "chary"
role = "ours"
"""


def chary_says(folder: Path, *arguments: object) -> str:
    """Run the command line in a folder and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "chary", *map(str, arguments)], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(
            f"chary {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}"
        )
    return done.stdout


def check_core(folder: Path) -> None:
    """A simulated run, a live agent saved and loaded, and the command line."""
    import chary

    run = chary.simulate(chary.envs.riverswim(), chary.CharyUCBVI(eta=0.3), episodes=3, warmup=2)
    assert len(run.regret) == 3
    agent = chary.TabularAgent(chary.CharyUCBVI(eta=0.3), chary.envs.riverswim().setting)
    agent.begin("first", 0)
    agent.save(folder / "agent.npz")
    assert chary.TabularAgent.load(folder / "agent.npz").act("first", 0, 0) == agent.act("first", 0, 0)
    assert "sweep" in chary_says(folder, "--help")
    assert "riverswim" in chary_says(folder, "problems")
    assert "regret" in chary_says(folder, "run", "riverswim", "--episodes", 3, "--json")


def check_figures(folder: Path) -> None:
    """A page with a chart, by Jinja2 and matplotlib."""
    from chary.charts._matplotlib import draw_files
    from chary.charts.chart import Chart, Panel, Series

    curve = Series(label="a curve", x=(0.0, 1.0), y=(0.5, 0.25))
    panel = Panel(title="a panel", x_label="x", y_label="y", series=(curve,))
    assert all(draw_files(Chart(key="smoke", title="A chart", caption="", panels=(panel,))).values())
    import jinja2  # noqa: F401


def check_report(folder: Path) -> None:
    """A sweep, its tables and its page."""
    import chary

    (folder / "smoke.toml").write_text(SWEEP, encoding="utf-8")
    chary_says(folder, "sweep", "smoke.toml", "--out", "local", "--workers", 1)
    assert (folder / "local" / "report" / "index.html").stat().st_size > 10_000
    assert len(chary.load_results(folder / "local")) == 4


def check_cluster(folder: Path) -> None:
    """The same sweep by Ray."""
    (folder / "smoke.toml").write_text(SWEEP, encoding="utf-8")
    options = ("--engine", "ray", "--workers", 1, "--no-report")
    chary_says(folder, "sweep", "smoke.toml", "--out", "ray", *options)
    assert len(list((folder / "ray" / "runs").iterdir())) == 4


def check_minari(folder: Path) -> None:
    """A dataset of Minari as a log."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari  # type: ignore[import-not-found, unused-ignore]
    from gymnasium.spaces import Discrete
    from minari.data_collector import EpisodeBuffer  # type: ignore[import-not-found, unused-ignore]

    from chary.data import read_minari

    buffer = EpisodeBuffer(
        id=0,
        observations=[0, 1, 2],
        actions=[1, 0],
        rewards=[0.5, 1.0],
        terminations=[False, True],
        truncations=[False, False],
    )
    minari.create_dataset_from_buffers(
        "chary/smoke-v0",
        buffer=[buffer],
        observation_space=Discrete(3),
        action_space=Discrete(2),
        algorithm_name="smoke",
        author="chary",
        author_email="chary@example.org",
        code_permalink="none",
        description="A short episode.",
    )
    assert [len(episode) for episode in read_minari("chary/smoke-v0").episodes()] == [2]


def check_deep(folder: Path) -> None:
    """Steps of the deep learner, saved and loaded."""
    import numpy as np

    from chary import Transition
    from chary.deep import DeepAgent, DeepOptions

    options = DeepOptions(eta=0.5, width=4, features=4, batch=4, fresh=2, replay=40, pretraining=2)
    agent = DeepAgent(options, observation_size=2, n_actions=2, horizon=3)
    agent.begin(0, np.zeros(2))
    action = agent.act(0, 0, np.zeros(2)).action
    agent.observe(0, Transition(np.zeros(2), action, 0.5, np.ones(2), False))
    agent.save(folder / "agent.safetensors")
    loaded = DeepAgent.load(folder / "agent.safetensors")
    assert loaded.act(0, 1, np.ones(2)) == agent.act(0, 1, np.ones(2))


def check_serve(folder: Path) -> None:
    """A deployment that decides and is audited, behind the server's own application, and the light client."""
    from chary.client import Client  # noqa: F401
    from chary.service.declaring import Declaration
    from chary.service.deployment import Deployment
    from chary.service.engine import Engine
    from chary.service.hosting import serve  # noqa: F401
    from chary.service.verify import verify

    told = Declaration(
        name="smoke",
        setting={"n_states": 2, "n_actions": 2, "horizon": 2},
        agent={"name": "chary", "eta": 0.5},
        mode="budgeted",
    )
    Deployment.create(folder / "smoke", told)
    for connection in ("sqlite3", "apsw") if find_spec("apsw") else ("sqlite3",):
        engine = Engine.open(folder / "smoke", connection=connection)
        engine.begin(connection, 0)
        answer = engine.decide(connection, 0, 0)
        engine.wait(answer.seq)
        assert engine.decide(connection, 0, 0) == answer
        engine.finish()
    assert verify(folder / "smoke").is_whole
    assert "run" in chary_says(folder, "serve", "--help")


def check_wrappers(folder: Path) -> None:
    """An environment of Gymnasium under a guard."""
    env = guarded()
    env.reset(seed=0)
    assert env.step(0)[4]["deficit"] <= 0.3


def guarded(critic: Any = None) -> Any:
    """Return CartPole whose actions are proposals to a shield."""
    import gymnasium
    import numpy as np

    from chary.critics import CriticBounds, CriticShield, FunctionCritic
    from chary.shield import Rule
    from chary.wrappers import Shielded

    weights = np.array([[0.0, 0.0], [0.0, 0.0], [-1.0, 1.0], [-1.0, 1.0]])
    critic = FunctionCritic(lambda x: x @ weights, n_actions=2) if critic is None else critic
    bounds = CriticBounds.from_point(critic, accept="uncertified")
    shield = CriticShield(bounds, Rule.strict(0.3), n_actions=2, horizon=30)
    return Shielded(gymnasium.make("CartPole-v1"), shield, horizon=30)


def check_sb3(folder: Path) -> None:
    """A model of Stable-Baselines3 as a critic."""
    from stable_baselines3 import DQN  # type: ignore[import-not-found, unused-ignore]

    from chary.critics import SB3Critic

    env = guarded(SB3Critic(DQN("MlpPolicy", "CartPole-v1", device="cpu", buffer_size=64)))
    env.reset(seed=0)
    assert env.step(0)[4]["deficit"] <= 0.3


def check_d3rlpy(folder: Path) -> None:
    """A model of d3rlpy as a critic."""
    import d3rlpy  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    from chary.critics import D3RLPyCritic
    from chary.testing import check_critic

    model = d3rlpy.algos.DQNConfig(batch_size=4).create(device="cpu")
    model.create_impl((4,), 2)
    check_critic(D3RLPyCritic(model), np.zeros((3, 4), dtype=np.float32), 2)


CHECKS = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


def main() -> None:
    """Run the checks named on the command line."""
    failed = []
    for name in sys.argv[1:] or CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                CHECKS[name](Path(folder))
            except Exception:
                failed.append(name)
                traceback.print_exc()
        print(f"{name}: {'FAILED' if name in failed else 'works'}", flush=True)
    versions = sorted({(each.name.lower(), each.version) for each in metadata.distributions() if each.name})
    print(" ".join(f"{name}=={version}" for name, version in versions))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
