"""Posterior worlds measured: small problems, the honesty of their risk, a clinic, and chains.

python benchmarks/worlds.py [--part small|risk|clinic|chains] [--seeds 10] [--quick] [--redraw]

Every part has one configuration, the defaults of `CharyUCBVI(bonus="posterior")` when the tables were played:
chains waited for ever then. The defaults were chosen on seeds from 1000 on; the seeds here are 0, 1, ...

- `small`: riverswim, corridor, inventory and a random MDP, after 500 and after 5 random episodes; 1,000
  episodes, known rewards. Worlds with chains on and off, the posterior baseline alone, PSRL and UCBVI (kl).
  Another row gives worlds the expected rewards r(s, a) in place of r(s, a, s').
- `risk`: violations per 1,000 episodes at nominal 5 %, 1 % and 0.1 %, after 5 random episodes: inventory, 100
  siblings of it, and 100 MDPs with deterministic rows, whose actions are unrelated. The interval is a cluster
  bootstrap over runs.
- `clinic`: 12 states, 3 actions, horizon 6, costs in euros; 2,000 logged episodes of a rule with 15 % noise.
  How much of the gap between rule and optimum the baseline closes by the log alone, and after 3,000 patients.
- `chains`: corridor after 5 random episodes with a budget of 1, chains on and off, 3,000 episodes.

Writes benchmarks/results/worlds-PART.json and the tables of docs/worlds-measured.md; --quick writes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from _jobs import RESULTS, ROOT, fill, play_all, record, table

# Of the prototype's table, docs/algorithm.md section 11; the random MDP has a budget of its own.
BUDGETS = {"riverswim": 0.3, "corridor": 0.4, "inventory": 0.1, "random": 0.3}
STARTS = (500, 5)
EPISODES = 1_000
WORLDS: dict[str, Any] = {"bonus": "posterior", "patience": None}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "worlds": ("chary", WORLDS),
    "worlds, chains off": ("chary", {**WORLDS, "chains": False}),
    "worlds, expected rewards": ("chary", WORLDS),
    "posterior baseline alone": ("chary", {**WORLDS, "rule": "closed"}),
    "PSRL": ("psrl", {}),
    "UCBVI, kl": ("ucbvi", {"bonus": "kl"}),
}
RISKS = (0.05, 0.01, 0.001)
SIBLINGS, SHORT = 100, 150
CLINIC_ETA, LOGGED, PATIENTS, NOISE = 200.0, 2_000, 3_000, 0.15
CHAIN_START, CHAIN_EPISODES, CHAIN_ETA = 5, 3_000, 1.0
PARTS = ("small", "risk", "clinic", "chains")


def problem_of(told: dict[str, Any]) -> Any:
    """Return the problem of a job."""
    import chary

    if told["problem"] == "deterministic":
        return deterministic(told["mdp_seed"])
    if told["problem"] == "siblings":
        return chary.envs.sibling("inventory", told["mdp_seed"])
    mdp = chary.envs.make(told["problem"])
    return with_expected_rewards(mdp) if told.get("expected") else mdp


def deterministic(seed: int) -> Any:
    """Return an MDP of 8 states and 3 actions, each with one successor of its own and a reward."""
    import chary

    rng = np.random.default_rng([77, seed])
    P = np.eye(8)[rng.integers(8, size=(8, 3))]
    return chary.FiniteMDP.from_arrays(P, rng.random((8, 3)), name="deterministic", horizon=10)


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


def play(job: str) -> dict[str, Any]:
    """Play one run, described in JSON, and return its summary."""
    import chary

    told = json.loads(job)
    spec = chary.make_agent(told["agent"], **told["settings"])
    run = chary.simulate(
        problem_of(told), spec, episodes=told["episodes"], warmup=told["warmup"], seed=told["seed"]
    )
    kept = ("label", "problem", "warmup", "seed", "risk", "episodes")
    return {
        **{name: told.get(name) for name in kept},
        "regret": float(run.regret.sum()),
        "regret_late": float(run.regret[-run.episodes // 5 :].sum()),
        "violations": int(run.violations().sum()),
        "worst": float(run.true_deficit.max()),
        "deviating": float(run.deviating_steps.sum() / run.length.sum()),
        "standing": run.standing.label,
    }


def job(label: str, problem: str, agent: str, settings: dict[str, Any], **told: Any) -> dict[str, Any]:
    """Return a run as JSON; rewards are known."""
    return {
        "label": label,
        "problem": problem,
        "agent": agent,
        "settings": {"reward": "known", **settings},
        "episodes": EPISODES,
        **told,
    }


def per_thousand(runs: list[dict[str, Any]]) -> str:
    """Return the violations per 1,000 episodes, with the interval over runs."""
    from chary.statistics import violation_rate

    found = violation_rate([r["violations"] for r in runs], [r["episodes"] for r in runs])
    low, high = found.interval
    return f"{1000 * found.rate:.2f} [{1000 * low:.2f}, {1000 * high:.2f}]"


def spread(runs: list[dict[str, Any]], name: str, digits: int = 0) -> str:
    """Return the mean over runs, and the least and the most."""
    values = [r[name] for r in runs]
    return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def small(seeds: int, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """Play the small problems."""
    starts = STARTS[-1:] if quick else STARTS
    problems = ("riverswim",) if quick else tuple(BUDGETS)
    results = play_all(
        [
            job(
                label,
                problem,
                agent,
                {**settings, "eta": BUDGETS[problem]},
                warmup=start,
                seed=seed,
                expected=label == "worlds, expected rewards",
            )
            for problem in problems
            for start in starts
            for label, (agent, settings) in VARIANTS.items()
            for seed in range(seeds)
            # Rewards of the others do not depend on the successor.
            if label != "worlds, expected rewards" or problem in ("corridor", "inventory")
        ],
        worker=play,
    )
    return small_table(results), results


def small_table(results: list[dict[str, Any]]) -> str:
    """Return a row per problem, start and method."""
    rows = []
    for problem in BUDGETS:
        for start in STARTS:
            for label in VARIANTS:
                runs = [
                    r for r in results if (r["problem"], r["warmup"], r["label"]) == (problem, start, label)
                ]
                if runs:
                    deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
                    cells = [label, spread(runs, "regret"), per_thousand(runs), deviating]
                    rows.append([problem, str(start), *cells])
    header = ["problem", "random episodes before", "method", "regret, mean (least to most)"]
    return table([*header, "violations per 1,000", "deviating steps, %"], rows)


def risk(seeds: int, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """Measure the risk against the nominal one."""
    many = 4 if quick else SIBLINGS
    jobs = []
    for nominal in RISKS:
        settings = {**WORLDS, "risk": nominal}
        told = {"warmup": 5, "risk": nominal}
        inventory = {**settings, "eta": BUDGETS["inventory"]}
        for seed in range(seeds):
            jobs.append(job("inventory", "inventory", "chary", inventory, seed=seed, **told))
        for i in range(many):
            one = {**told, "seed": i, "mdp_seed": i, "episodes": SHORT}
            jobs.append(job("siblings of inventory", "siblings", "chary", inventory, **one))
            other = {**settings, "eta": 0.3}
            jobs.append(job("deterministic, unrelated", "deterministic", "chary", other, **one))
    results = play_all(jobs, worker=play)
    return risk_table(results), results


def risk_table(results: list[dict[str, Any]]) -> str:
    """Return a row per problem, with a column per nominal risk."""
    rows = []
    for label in dict.fromkeys(r["label"] for r in results):
        runs = {
            nominal: [r for r in results if (r["label"], r["risk"]) == (label, nominal)] for nominal in RISKS
        }
        worst = max(r["worst"] for each in runs.values() for r in each)
        deviating = " / ".join(
            f"{100 * np.mean([r['deviating'] for r in each]):.2f}" for each in runs.values()
        )
        rows.append([label, *(per_thousand(each) for each in runs.values()), deviating, f"{worst:.2f}"])
    header = ["violations per 1,000 [95 % interval over runs]"]
    header += [f"nominal {1000 * nominal:g}" for nominal in RISKS]
    return table([*header, "deviating steps, %", "largest z*"], rows)


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


def visit(env: Any, mdp: Any, act: Any, seed: int | None) -> list[Any]:
    """Return the transitions of one patient."""
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


def clinic_run(job: str) -> dict[str, Any]:
    """Play the clinic with one seed, through the step API."""
    import chary
    from chary.audit import Truth, audit_episode

    told = json.loads(job)
    mdp, rule = clinic_mdp()
    truth, env = Truth(mdp), chary.envs.TabularEnv(mdp)
    rng = np.random.default_rng([told["seed"], 5])

    def noisy(t: int, s: int) -> int:
        return int(rng.integers(3)) if rng.random() < NOISE else int(rule[s])

    log = [visit(env, mdp, noisy, 10**6 * told["seed"] + i) for i in range(LOGGED)]
    spec = chary.CharyUCBVI(eta=CLINIC_ETA, reward=told["reward"], **WORLDS)
    agent = chary.TabularAgent(
        spec, mdp.told(told["reward"]), generator=np.random.default_rng([told["seed"], 6])
    )
    agent.warm_start(log)
    span = mdp.setting.scale.span

    def table_of(plan: Any) -> Any:
        return np.array([[plan.baseline(t, s) for s in range(mdp.n_states)] for t in range(mdp.horizon)])

    def worth(policy: Any) -> float:
        value = truth.value_of_start(truth.evaluate(policy).value)
        return float(value * span + mdp.horizon * mdp.setting.scale.low)

    broken, deviating, steps, plan, policy = 0, 0, 0, None, None
    first = worth(table_of(agent.plan))
    for i in range(told["patients"]):
        state = int(env.reset(seed=2 * 10**9 + 10**6 * told["seed"] + i)[0])
        agent.begin(i, state)
        if agent.plan_of(i) is not plan:
            plan = agent.plan_of(i)
            policy = table_of(plan)
        states, actions = [state], []
        for t in range(mdp.horizon):
            action = int(agent.act(i, t, state).action)
            after, reward, ended, _, _ = env.step(np.int64(action))
            agent.observe(i, chary.Transition(state, action, float(reward), int(after), ended))
            state = int(after)
            states.append(state)
            actions.append(action)
        agent.finish(i)
        assert policy is not None
        judged = audit_episode(truth, np.array(states), np.array(actions), policy)
        broken += judged.true_deficit * span > CLINIC_ETA + 1e-9
        deviating += sum(a != policy[t, s] for t, (s, a) in enumerate(zip(states, actions, strict=False)))
        steps += len(actions)
    usual, best = worth(np.broadcast_to(rule, policy.shape)), worth(truth.optimal_policy)  # type: ignore[union-attr]
    last = worth(table_of(agent.plan))
    return {
        **{"seed": told["seed"], "label": told["reward"], "episodes": told["patients"]},
        **{"rule": usual, "optimum": best, "from_log": first, "live": last},
        "closed_by_log": (first - usual) / (best - usual),
        "closed_live": (last - usual) / (best - usual),
        "violations": int(broken),
        "deviating": deviating / steps,
    }


def clinic(seeds: int, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """Play the clinic."""
    patients = 100 if quick else PATIENTS
    results = play_all(
        [
            {"seed": seed, "reward": reward, "patients": patients}
            for reward in ("known", "estimated")
            for seed in range(seeds)
        ],
        worker=clinic_run,
    )
    return clinic_table(results), results


def clinic_table(results: list[dict[str, Any]]) -> str:
    """Return a row per knowledge of the rewards."""
    rows = []
    for label in ("known", "estimated"):
        runs = [
            {**r, "log": 100 * r["closed_by_log"], "late": 100 * r["closed_live"]}
            for r in results
            if r["label"] == label
        ]
        over = 100 * sum(r["violations"] for r in runs) / sum(r["episodes"] for r in runs)
        deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
        ends = [f"{np.mean([r[name] for r in runs]):,.0f}" for name in ("rule", "optimum")]
        shares = [spread(runs, "log", 1), spread(runs, "late", 1)]
        rows.append([label, *ends, *shares, f"{over:.3f}", deviating])
    header = ["costs", "rule, euros", "optimum, euros", "gap closed by the log, %", "gap closed live, %"]
    return table([*header, "patients over budget, %", "deviating steps, %"], rows)


def chains(seeds: int, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """Play the corridor with chains and without."""
    results = play_all(
        [
            job(
                label,
                "corridor",
                "chary",
                {**VARIANTS[label][1], "eta": CHAIN_ETA},
                warmup=CHAIN_START,
                seed=seed,
                episodes=200 if quick else CHAIN_EPISODES,
            )
            for label in ("worlds", "worlds, chains off", "posterior baseline alone")
            for seed in range(seeds)
        ],
        worker=play,
    )
    return chains_table(results), results


def chains_table(results: list[dict[str, Any]]) -> str:
    """Return a row per method."""
    rows = []
    for label in dict.fromkeys(r["label"] for r in results):
        runs = [r for r in results if r["label"] == label]
        deviating = f"{100 * np.mean([r['deviating'] for r in runs]):.2f}"
        rows.append(
            [label, spread(runs, "regret"), spread(runs, "regret_late", 1), per_thousand(runs), deviating]
        )
    header = ["corridor", "regret", "of which in the last fifth", "violations per 1,000"]
    return table([*header, "deviating steps, %"], rows)


PLAY = {"small": small, "risk": risk, "clinic": clinic, "chains": chains}
TABLES = {"small": small_table, "risk": risk_table, "clinic": clinic_table, "chains": chains_table}


def main() -> None:
    """Measure, print and record the parts asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="repeat it for several; default all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--quick", action="store_true", help="few runs to check that it runs; records nothing"
    )
    parser.add_argument("--redraw", action="store_true", help="print recorded results, play nothing")
    told = parser.parse_args()
    page: Path = ROOT / "docs" / "worlds-measured.md"
    for part in told.part or PARTS:
        if told.redraw:
            runs = json.loads((RESULTS / f"worlds-{part}.json").read_text())["runs"]
            text = TABLES[part](runs)
        else:
            text, runs = PLAY[part](2 if told.quick else told.seeds, told.quick)
        print(f"\n{text}", flush=True)
        if not told.quick:
            if not told.redraw:
                settings = {"budgets": BUDGETS, "worlds": WORLDS, "seeds": told.seeds}
                record(f"worlds-{part}", {"settings": settings, "table": text, "runs": runs})
            fill(page, f"worlds-{part}", text)


if __name__ == "__main__":
    main()
