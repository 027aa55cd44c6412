"""The canary as an agent: options, the coin, evidence, what counts as lost, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chary
from chary.agents._candidates import lower_policy, posterior_policy, reach
from chary.agents._release import Release
from chary.agents.canary_agent import CANARY_FILE
from chary.envs import TabularEnv, riverswim
from chary.errors import CharyError, InvalidData, InvalidSetting, OutOfOrder, UnknownName
from chary.mdp import FiniteMDP, Setting
from chary.rollouts import rollout
from chary.standing import Standing
from chary.storage.sealed import pack, unpack

TOLD = Setting.declare(n_states=3, n_actions=2, horizon=2, terminal=[2])
KEEP = np.zeros(3, dtype=np.int64)


def new_agent(**options: Any) -> chary.CanaryAgent:
    chance = np.random.default_rng(options.pop("seed", 0))
    return chary.CanaryAgent(
        chary.Canary(**{"eta": 0.5, "return_cap": 1.0, **options}), TOLD, generator=chance, incumbent=KEEP
    )


def step(agent: chary.CanaryAgent, name: int | str, reward: float, *, taken: int | None = None) -> None:
    """Play an episode of one step, which ends it."""
    agent.begin(name, 0)
    action = agent.act(name, 0, 0).action
    played = action if taken is None else taken
    agent.observe(name, chary.Transition(0, played, reward, 2, True), taken=taken)
    agent.finish(name)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InvalidSetting),
        ({"eta": -1.0}, InvalidSetting),
        ({"eta": 0.1, "share": 0.0}, InvalidSetting),
        ({"eta": 0.1, "share": 1.5}, InvalidSetting),
        ({"eta": 0.1, "ask_growth": 0.0}, InvalidSetting),
        ({"eta": 0.1, "return_cap": 0.0}, InvalidSetting),
        ({"eta": 0.1, "candidates": "worlds"}, UnknownName),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], error: type[CharyError]) -> None:
    with pytest.raises(error):
        chary.Canary(**options)


def test_a_tabular_agent_is_not_a_canary() -> None:
    with pytest.raises(InvalidSetting, match="CanaryAgent"):
        chary.TabularAgent(chary.Canary(eta=0.1), TOLD)
    spec = chary.Canary(eta=0.1, prior=[0, 0, 0])
    with pytest.raises(InvalidSetting, match="'incumbent'"):
        chary.CanaryAgent(spec, TOLD, generator=np.random.default_rng(0), incumbent=KEEP)


def test_without_data_the_coin_is_the_budget_as_a_share_of_the_most() -> None:
    release = Release(KEEP[None], eta=0.05, delta=0.1, share=0.9)
    assert release.probability == 0.0
    release.propose(KEEP[None] + 1)
    assert release.probability == pytest.approx(0.05)
    generous = Release(KEEP[None], eta=5.0, delta=0.1, share=0.9)
    generous.propose(KEEP[None] + 1)
    assert generous.probability == 0.9


def test_the_coin_follows_from_the_seed_and_the_number_of_the_episode() -> None:
    def coins(seed: int, names: list[int | str]) -> list[bool]:
        agent = new_agent(seed=seed)
        agent.release.propose(np.ones((2, 3), dtype=np.int64))
        agent._proposals.asked_at = 1e9
        for name in names:
            agent.begin(name, 0)
        return [agent.assigned(name).candidate for name in names]

    assert coins(1, list(range(50))) == coins(1, [f"patient {i}" for i in range(50)])
    assert coins(1, list(range(50))) != coins(2, list(range(50)))
    assert 10 < sum(coins(1, list(range(50)))) < 40


def test_a_decision_names_its_policy_and_the_episode_its_probability() -> None:
    agent = new_agent(share=1.0, eta=2.0)
    agent.release.propose(np.ones((2, 3), dtype=np.int64))
    agent.begin("a", 0)
    assert agent.assigned("a") == (2, True, 1.0)
    decision = agent.act("a", 0, 0)
    assert (decision.action, decision.explored, decision.plan, decision.chain) == (1, True, 2, -1)
    # The policy of an open episode stays, whatever happens to the candidate.
    agent.release.propose(np.array([[0, 0, 0], [1, 1, 1]]))
    agent.observe("a", chary.Transition(0, 1, 0.0, 1, False))
    assert agent.act("a", 1, 1).action == 1
    assert agent.assigned("a").policy == 2


def test_returns_wait_for_those_of_episodes_that_began_before() -> None:
    agent = new_agent()
    agent.begin("slow", 0)
    slow = agent.act("slow", 0, 0)
    for k in range(5):
        step(agent, k, 1.0)
    assert agent.incumbent.returns == 0
    agent.observe("slow", chary.Transition(0, slow.action, 0.0, 2, True))
    agent.finish("slow")
    assert agent.incumbent.returns == 6
    assert agent.incumbent.mean == pytest.approx(5 / 6)


def test_what_did_not_follow_the_policy_to_the_end_is_lost() -> None:
    # With this seed the coin gives all five to the incumbent.
    agent = new_agent(seed=14)
    step(agent, "whole", 1.0)
    step(agent, "overruled", 1.0, taken=1)
    agent.begin("broken off", 0)
    agent.act("broken off", 0, 0)
    agent.abandon("broken off")
    agent.begin("finished early", 0)
    agent.observe(
        "finished early", chary.Transition(0, agent.act("finished early", 0, 0).action, 1.0, 1, False)
    )
    agent.finish("finished early")
    agent.begin("nothing played", 0)
    agent.finish("nothing played")
    now = agent.incumbent
    assert (now.returns, now.lost, now.mean) == (5, 4, 0.2)
    assert (agent.release.incumbent.low, agent.release.incumbent.high) == (1.0, 5.0)


def test_a_return_above_the_declared_most_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    agent = new_agent()
    agent.begin(0, 0)
    first = agent.act(0, 0, 0)
    agent.observe(0, chary.Transition(0, first.action, 0.8, 1, False))
    second = agent.act(0, 1, 1)
    agent.save(tmp_path / "before.npz")
    with pytest.raises(InvalidData, match=r"'return_cap' must bound.*got 1\.3 in episode 0"):
        agent.observe(0, chary.Transition(1, second.action, 0.5, 2, True))
    agent.save(tmp_path / "after.npz")
    assert (tmp_path / "before.npz").read_bytes() == (tmp_path / "after.npz").read_bytes()


def test_simulations_refuse_a_cap_on_values_that_single_episodes_exceed() -> None:
    lucky = FiniteMDP.from_arrays(
        [[[0.5, 0.5]], [[0.5, 0.5]]], [[[0.0, 1.0]], [[0.0, 1.0]]], horizon=3, start=[1.0, 0.0], value_cap=1.5
    )
    with pytest.raises(InvalidSetting, match="return_cap=3"):
        chary.simulate(lucky, chary.Canary(eta=0.1), episodes=1)
    chary.simulate(lucky, chary.Canary(eta=0.1, return_cap=3.0), episodes=1)


def test_a_random_incumbent_is_played_as_it_is() -> None:
    shares = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0]])
    agent = chary.CanaryAgent(
        chary.Canary(eta=0.1), TOLD, generator=np.random.default_rng(5), incumbent=shares
    )
    for k in range(2000):
        agent.begin(k, 0)
    played = np.array([agent.act(k, 0, 0).action for k in range(2000)])
    assert abs(played.mean() - 0.75) < 0.04


def test_the_warm_up_decides_the_first_incumbent_and_is_no_evidence() -> None:
    agent = chary.CanaryAgent(
        chary.Canary(eta=0.1, bonus="hoeffding", bonus_scale=0.01), TOLD, generator=np.random.default_rng(0)
    )
    logged = [[chary.Transition(0, a, float(a), 2, True)] for a in (0, 1)] * 50
    agent.warm_start(logged)
    assert agent.actions(1)[0, 0] == 1
    assert agent.incumbent.returns == 0
    agent.begin(0, 0)
    with pytest.raises(OutOfOrder, match="'warm_start'"):
        agent.warm_start(logged)
    with pytest.raises(InvalidData, match="'policy'"):
        agent.actions(99)


def play(agent: chary.CanaryAgent, mdp: FiniteMDP, first: int, episodes: int) -> list[Any]:
    played = rollout(TabularEnv(mdp), agent, episodes=episodes, first=first, seed=first)
    return [(episode.transitions, episode.decisions) for episode in played]


@pytest.mark.parametrize("candidates", ["posterior", "lower"])
def test_a_saved_canary_goes_on_to_the_same_bytes(tmp_path: Path, candidates: str) -> None:
    mdp = riverswim(n_states=3, horizon=4)
    spec = chary.Canary(
        eta=1.0, candidates=candidates, bonus="hoeffding", bonus_scale=0.002, return_cap=4.0, ask_growth=0.05
    )
    agent = chary.CanaryAgent(spec, mdp.setting, generator=np.random.default_rng(1), incumbent=[0, 0, 0])
    dice = chary.TabularAgent(chary.Random(), mdp.setting, generator=np.random.default_rng(2))
    agent.warm_start([each.transitions for each in rollout(TabularEnv(mdp), dice, episodes=30, seed=3)])
    play(agent, mdp, 0, 40)
    assert len(agent.release.tried) > 1
    agent.begin("open", 0)
    agent.act("open", 0, 0)
    agent.save(tmp_path / "one.npz")
    again = chary.CanaryAgent.load(tmp_path / "one.npz")
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    assert play(agent, mdp, 40, 60) == play(again, mdp, 40, 60)
    for each in (agent, again):
        each.abandon("open")
    assert agent.changes == again.changes
    agent.save(tmp_path / "two.npz")
    again.save(tmp_path / "three.npz")
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "three.npz").read_bytes()
    with pytest.raises(InvalidData, match="'path'"):
        chary.TabularAgent.load(tmp_path / "one.npz")


def test_evidence_is_in_the_units_of_the_problem() -> None:
    told = Setting.declare(n_states=2, n_actions=2, horizon=3, scale=chary.mdp.RewardScale(-10.0, 10.0))
    agent = chary.CanaryAgent(
        chary.Canary(eta=1.0), told, generator=np.random.default_rng(0), incumbent=[0, 0]
    )
    assert (agent.incumbent.lower, agent.incumbent.upper) == (-30.0, 30.0)
    agent.begin(0, 0)
    for t in range(3):
        agent.observe(0, chary.Transition(0, agent.act(0, t, 0).action, 5.0, 0, False))
    agent.finish(0)
    assert agent.incumbent.mean == 15.0
    assert agent.candidate is None or agent.candidate.policy == 2


def test_the_standing_says_what_is_promised_and_what_is_not() -> None:
    standing = new_agent(delta=0.05).standing
    assert standing.label == "certified per run (0.95), before the coin"
    text = standing.describe()
    assert "before its coin" in text
    assert "no budget of its own" in text
    assert "independent and stationary" in text
    assert "no episode returns more than 1, as declared" in text
    # The promise needs neither Markov states nor logs that tell the truth.
    assert "Markov" not in text
    assert Standing.from_json(standing.to_json()) == standing
    assert new_agent(eta=float("inf")).standing.label == "no promise"


def test_a_policy_is_compared_where_it_can_get() -> None:
    mdp = riverswim(n_states=3, horizon=3)
    agent = chary.CanaryAgent(
        chary.Canary(eta=0.1), mdp.setting, generator=np.random.default_rng(0), incumbent=[0, 0, 0]
    )
    agent.warm_start([[chary.Transition(0, 0, 0.0, 0, False)], [chary.Transition(0, 1, 0.0, 1, False)]])
    starts = np.array([True, False, False])
    stay, swim = np.zeros((3, 3), dtype=np.int64), np.ones((3, 3), dtype=np.int64)
    assert reach(agent._knowledge, stay, starts).tolist() == [[True, False, False]] * 3
    assert reach(agent._knowledge, swim, starts).sum(axis=1).tolist() == [1, 1, 0]
    # Ties go to the incumbent, in both ways to find candidates.
    for find in (lower_policy, posterior_policy):
        found = find(mdp.setting, agent._knowledge, stay)
        assert found.shape == (3, 3)
    assert lower_policy(mdp.setting, agent._knowledge, swim)[2].tolist() == [1, 1, 1]


def _tampered(name: str, arrays: dict[str, Any], about: dict[str, Any]) -> None:
    """Change one thing in a file so that it can no longer be of this agent."""
    if name == "action":
        arrays["release.tables"][0, 0, 0] = 7
    elif name == "policy":
        about["release"]["incumbent"] = 99
    elif name == "bound":
        arrays["release.counted"][0, -1] = 1.5
    elif name == "returns":
        arrays["release.counted"][0, 3] = 1e9
    elif name == "known":
        about["release"]["waiting"][0] = [[True, 0.5, 0.5]]
    elif name == "probability":
        about["open"][0][2][2] = 2.0
    elif name == "place":
        about["open"][0][3] = 5
    elif name == "uniforms":
        arrays["uniforms"][:] = 2.0
    elif name == "agent":
        about["spec"][0] = "chary"
    else:
        arrays["rank"][:] = 0


@pytest.mark.parametrize(
    "name",
    ["action", "policy", "bound", "returns", "known", "probability", "place", "uniforms", "agent", "rank"],
)
def test_a_file_that_was_changed_and_sealed_again_is_refused(tmp_path: Path, name: str) -> None:
    # With this seed the coin gives all of them to the incumbent.
    agent = new_agent(seed=14)
    for k in range(5):
        step(agent, k, 1.0)
    agent.begin("open", 0)
    agent.act("open", 0, 0)
    agent.save(tmp_path / "agent.npz")
    about, arrays = unpack(CANARY_FILE, (tmp_path / "agent.npz").read_bytes())
    arrays = {each: np.array(array) for each, array in arrays.items()}
    _tampered(name, arrays, about)
    (tmp_path / "agent.npz").write_bytes(pack(CANARY_FILE, arrays, about))
    with pytest.raises(InvalidData, match="'path' must contain a canary"):
        chary.CanaryAgent.load(tmp_path / "agent.npz")
