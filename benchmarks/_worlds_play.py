"""Runs of `worlds.py`: its problems, the logs that it starts from, and one run in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A run that starts from a log of the problem's incumbent, in place of random episodes.
LOG, LOGGED, NOISE = "log", 500, 0.05
CLINIC_ETA, PATIENTS, CLINIC_LOGGED, CLINIC_NOISE = 200.0, 3_000, 2_000, 0.15
# What tells one run of a part from another.
NAMES = ("label", "problem", "warmup", "seed", "risk", "episodes", "flat_shares")


def problem_of(told: dict[str, Any]) -> Any:
    """Return the problem of a job."""
    import chary

    if told["problem"] == "deterministic":
        return deterministic(told["mdp_seed"])
    if told["problem"] == "toll-road":
        return toll_road()
    if told["problem"] == "siblings":
        return chary.envs.sibling("inventory", told["mdp_seed"])
    mdp = chary.envs.make(told["problem"], **told.get("options", {}))
    return with_expected_rewards(mdp) if told.get("expected") else mdp


def deterministic(seed: int) -> Any:
    """Return an MDP of 8 states and 3 actions, each with one successor of its own and a reward."""
    import chary

    rng = np.random.default_rng([77, seed])
    P = np.eye(8)[rng.integers(8, size=(8, 3))]
    return chary.FiniteMDP.from_arrays(P, rng.random((8, 3)), name="deterministic", horizon=10)


def toll_road() -> Any:
    """Return a road on which exploration needs more than one budget, and always by the same states.

    Cells 0..9 lead to a gate. In a cell, action 0 walks one cell on and earns 0.5, action 1 takes a coach
    five cells on and earns 0.2 less, and action 2 goes back to cell 0 and earns 0.2. At the gate action 0
    leads to a house and earns 0.5. The two others earn 1 where they lead to the last cell and 0.375
    elsewhere; action 1 does lead there, and action 2 to the house. From the house one returns to the gate
    and earns 0.5.
    """
    import chary

    gate, house = 10, 11
    P, R = np.zeros((12, 3, 12)), np.zeros((12, 3, 12))
    for cell in range(gate):
        P[cell, 0, cell + 1] = P[cell, 1, min(cell + 5, gate)] = P[cell, 2, 0] = 1.0
    R[:gate, 0], R[:gate, 1], R[:gate, 2] = 0.5, 0.3, 0.2
    P[gate, 0, house] = P[gate, 1, gate - 1] = P[gate, 2, house] = P[house, 0, gate] = 1.0
    R[gate, 0], R[gate, 1:], R[gate, 1:, gate - 1], R[house] = 0.5, 0.375, 1.0, 0.5
    allowed = np.ones((12, 3), dtype=bool)
    allowed[house, 1:] = False
    return chary.FiniteMDP.from_arrays(P, R, name="toll-road", horizon=16, allowed=allowed, support=1)


def with_expected_rewards(mdp: Any) -> Any:
    """Return the same transitions with the expected reward of each pair in place of r(s, a, s')."""
    import chary

    setting = mdp.setting
    P = np.zeros((setting.n_states, setting.n_actions, setting.n_states))
    R = np.zeros(P.shape[:2])
    for s, a in np.argwhere(setting.allowed):
        p = setting.pair_index[s, a]
        row = slice(mdp.row_start[p], mdp.row_start[p + 1])
        P[s, a, mdp.successor[row]] = mdp.probability[row]
        R[s, a] = mdp.probability[row] @ mdp.reward[row]
    return chary.FiniteMDP.from_arrays(
        P,
        R,
        name=mdp.name,
        horizon=mdp.horizon,
        allowed=setting.allowed,
        support=int(setting.support.max()),
        start=mdp.start,
    )


def clinic_mdp() -> tuple[Any, Any]:
    """Return a clinic in euros, and its rule: severity 0..11, and wait, standard or intensive treatment."""
    import chary

    S = 12
    shifts = ({-1: 0.25, 0: 0.35, 1: 0.4}, {-1: 0.45, 0: 0.4, 1: 0.15}, {-2: 0.5, -1: 0.3, 0: 0.2})
    price = (0.0, 80.0, 220.0)
    P, R = np.zeros((S, 3, S)), np.zeros((S, 3))
    for s in range(S):
        for a in range(3):
            for shift, chance in shifts[a].items():
                P[s, a, min(max(s + shift, 0), S - 1)] += chance
            R[s, a] = -price[a] - 7.0 * s**2
    start = np.zeros(S)
    start[4:9] = 0.2
    mdp = chary.FiniteMDP.from_arrays(
        P, R, name="clinic", horizon=6, start=start, reward_range=(float(R.min()), 0.0)
    )
    # The rule treats late and little.
    return mdp, np.array([0] * 9 + [1] * 3)


def incumbent(mdp: Any) -> NDArray[np.int64]:
    """Return the policy of today on a small problem, (S,): what somebody would do who has not learnt.

    Riverswim: swim left, where the sure reward is. Corridor: walk, and play the safe arm. Inventory: order
    two items when there are none. Elsewhere: the action with the largest expected reward of the next step.
    """
    from chary.audit import Truth

    if mdp.name in ("riverswim", "corridor"):
        return np.zeros(mdp.n_states, dtype=np.int64)
    if mdp.name == "inventory":
        return np.array([2] + [0] * (mdp.n_states - 1))
    truth = Truth(mdp)
    return truth.highest(truth.reward)[0]


def visit(env: Any, mdp: Any, act: Callable[[int, int], int], seed: int) -> list[Any]:
    """Return the transitions of one episode."""
    import chary

    state = int(env.reset(seed=seed)[0])
    seen = []
    for t in range(mdp.horizon):
        action = int(act(t, state))
        after, reward, ended, _, _ = env.step(np.int64(action))
        seen.append(chary.Transition(state, action, float(reward), int(after), ended))
        state = int(after)
        if ended:
            break
    return seen


def noisy_log(env: Any, mdp: Any, rule: Any, *, episodes: int, noise: float, seed: int) -> list[list[Any]]:
    """Return logged episodes of a rule, a share `noise` of whose decisions are random."""
    rng, allowed = np.random.default_rng([seed, 5]), [np.flatnonzero(row) for row in mdp.setting.allowed]

    def act(t: int, s: int) -> int:
        return int(allowed[s][rng.integers(len(allowed[s]))]) if rng.random() < noise else int(rule[s])

    return [visit(env, mdp, act, 10**6 * seed + i) for i in range(episodes)]


def live(agent: Any, mdp: Any, env: Any, *, episodes: int, seed: int, eta: float) -> dict[str, Any]:
    """Let an agent play through the step API, and judge every episode; amounts are in the problem's units."""
    import chary
    from chary.audit import Truth, audit_episode

    truth, span = Truth(mdp), mdp.setting.scale.span
    judged, deviating, steps = [], 0, 0
    for i in range(episodes):
        state = int(env.reset(seed=2 * 10**9 + 10**6 * seed + i)[0])
        agent.begin(i, state)
        policy = np.array(agent.plan_of(i).arrays.baseline)
        states, actions = [state], []
        for t in range(mdp.horizon):
            action = int(agent.act(i, t, state).action)
            after, reward, ended, _, _ = env.step(np.int64(action))
            agent.observe(i, chary.Transition(state, action, float(reward), int(after), ended))
            state = int(after)
            states.append(state)
            actions.append(action)
            if ended:
                break
        agent.finish(i)
        judged.append(audit_episode(truth, np.array(states), np.array(actions), policy))
        deviating += sum(a != policy[t, s] for t, (s, a) in enumerate(zip(states, actions, strict=False)))
        steps += len(actions)
    regret = span * np.array([each.regret for each in judged])
    worst = span * np.array([each.true_deficit for each in judged])
    return {
        "regret": float(regret.sum()),
        "regret_late": float(regret[-episodes // 5 :].sum()),
        "violations": int((worst > eta + 1e-9).sum()),
        "worst": float(worst.max()),
        "deviating": float(deviating / steps),
        "standing": agent.standing.label,
    }


def share_flat(shares: str | None) -> None:
    """Divide the share of flat rows otherwise among their weights in this process: a prior on trial."""
    from chary.model import beliefs

    if shares is not None:
        beliefs.FLAT_SHARES = tuple(float(each) for each in shares.split())  # type: ignore[assignment]


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON, and return its summary."""
    import chary

    told = json.loads(job)
    share_flat(told.get("flat_shares"))
    began = time.process_time()
    mdp, spec = problem_of(told), chary.make_agent(told["agent"], **told["settings"])
    if told["warmup"] == LOG:
        env, seed = chary.envs.TabularEnv(mdp), told["seed"]
        agent = chary.TabularAgent(
            spec,
            mdp.told(spec.reward),
            max_episodes=told["episodes"],
            generator=np.random.default_rng([seed, 6]),
        )
        agent.warm_start(noisy_log(env, mdp, incumbent(mdp), episodes=LOGGED, noise=NOISE, seed=seed))
        found = live(agent, mdp, env, episodes=told["episodes"], seed=seed, eta=spec.eta)
    else:
        run = chary.simulate(mdp, spec, episodes=told["episodes"], warmup=told["warmup"], seed=told["seed"])
        found = {
            "regret": float(run.regret.sum()),
            "regret_late": float(run.regret[-run.episodes // 5 :].sum()),
            "violations": int(run.violations().sum()),
            "worst": float(run.true_deficit.max()),
            "deviating": float(run.deviating_steps.sum() / run.length.sum()),
            "standing": run.standing.label,
        }
    named = {name: told.get(name) for name in NAMES}
    return {**named, **found, "cpu_seconds": time.process_time() - began}


def play_clinic(job: str) -> dict[str, Any]:
    """Play the clinic with one seed, through the step API."""
    import chary
    from chary.audit import Truth

    told = json.loads(job)
    mdp, rule = clinic_mdp()
    env, truth, seed = chary.envs.TabularEnv(mdp), Truth(mdp), told["seed"]
    spec = chary.CharyUCBVI(eta=CLINIC_ETA, bonus="posterior", reward=told["label"])
    agent = chary.TabularAgent(spec, mdp.told(spec.reward), generator=np.random.default_rng([seed, 6]))
    agent.warm_start(noisy_log(env, mdp, rule, episodes=CLINIC_LOGGED, noise=CLINIC_NOISE, seed=seed))

    def worth(policy: Any) -> float:
        value = truth.value_of_start(truth.evaluate(policy).value)
        return float(value * mdp.setting.scale.span + mdp.horizon * mdp.setting.scale.low)

    first = worth(agent.plan.arrays.baseline)
    found = live(agent, mdp, env, episodes=told["episodes"], seed=seed, eta=CLINIC_ETA)
    last, usual, best = (worth(each) for each in (agent.plan.arrays.baseline, rule, truth.optimal_policy))
    return {
        **{name: told.get(name) for name in NAMES},
        **{"rule": usual, "optimum": best, "from_log": first, "live": last},
        "closed_by_log": (first - usual) / (best - usual),
        "closed_live": (last - usual) / (best - usual),
        **{name: found[name] for name in ("violations", "deviating")},
    }
