"""Limits as laws, on whole runs: any small MDP, any options, the compiled driver."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chary.agents import UCBVI, AgentSpec, Baseline, CharyUCBVI, Frozen
from chary.agents.chary_ucbvi import DATA
from chary.mdp import REWARD_KNOWLEDGE, FiniteMDP
from chary.model.bounds import FAMILIES
from chary.planner._full import CHARGES
from chary.shield import AFTER_REFUSAL, CLOCKS, Ledger, Rule, authorise
from chary.simulation import simulate
from chary.simulation.run import ChainLog, Run, Steps

EPISODES, WARMUP = 30, 30
ROUNDING = 1e-9

seeds = st.integers(0, 2**32 - 1)
etas = st.sampled_from([0.0, 0.1, 0.3, 1.0, 3.0])
# Scales at which a few dozen episodes leave bounds that are neither vacuous nor, but for the last, worthless.
SCALES = {"hoeffding": [0.02, 0.005, 0.001], "l1": [1.0], "kl": [1.0], "bernstein": [0.1, 0.01, 0.003]}


def draw_mdp(seed: int) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    terminal = [S - 1] if S > 2 and rng.random() < 0.4 else []
    allowed = rng.random((S, A)) < 0.8
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    start = rng.dirichlet(np.ones(S)) * ~np.isin(np.arange(S), terminal)
    high = float(rng.choice([1.0, 7.3]))
    return FiniteMDP.from_arrays(
        rng.dirichlet(np.full(S, float(rng.choice([0.3, 1.0]))), size=(S, A)),
        high * rng.random((S, A)),
        allowed=allowed,
        horizon=int(rng.integers(1, 8)),
        discount=float(rng.choice([1.0, 0.9])),
        terminal=terminal,
        start=start / start.sum(),
        reward_range=(0.0, high),
    )


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, Any]:
    """Options of the bounds."""
    bonus = draw(st.sampled_from(FAMILIES))
    scale = draw(st.sampled_from(SCALES[bonus]))
    return {"bonus": bonus, "bonus_scale": scale, "reward": draw(st.sampled_from(REWARD_KNOWLEDGE))}


@st.composite
def keeping(draw: st.DrawFn) -> dict[str, Any]:
    """Options of the chains."""
    return {
        "pool": draw(st.sampled_from([1, 3, 1000])),
        "clock": draw(st.sampled_from(CLOCKS)),
        "data": draw(st.sampled_from(DATA)),
        "patience": draw(st.sampled_from([None, 0, 2])),
        "charge": draw(st.sampled_from(CHARGES)),
        "after_refusal": draw(st.sampled_from(AFTER_REFUSAL)),
    }


def play(mdp: FiniteMDP, spec: AgentSpec, seed: int, **options: Any) -> Run:
    return simulate(
        mdp, spec, episodes=EPISODES, warmup=WARMUP, seed=seed, **{"record_steps": True, **options}
    )


def steps_of(run: Run) -> Steps:
    assert run.steps is not None
    return run.steps


def check_same_steps(one: Run, other: Run, *names: str) -> None:
    for name in names or ("state", "action"):
        assert getattr(one.steps, name).tobytes() == getattr(other.steps, name).tobytes(), name


# The rules at their limits


@given(seed=seeds, bounds=bounds(), keeping=keeping(), chains=st.booleans())
def test_unlimited_is_ucbvi_trajectory_for_trajectory(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], chains: bool
) -> None:
    mdp = draw_mdp(seed)
    kept = {**keeping, "data": "all", "after_refusal": None, "chains": chains}
    ours = play(mdp, CharyUCBVI(rule="unlimited", **bounds, **kept), seed)
    check_same_steps(ours, play(mdp, UCBVI(**bounds), seed), "state", "action", "explored")
    assert ours.exploring_steps.sum() == ours.length.sum()
    assert ours.chains.started == EPISODES


@given(seed=seeds, bounds=bounds(), keeping=keeping())
def test_unlimited_mimics_ucbvi_on_chains_alone_too(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any]
) -> None:
    # Every episode is one finished chain, so `meta` data are all data.
    mdp = draw_mdp(seed)
    ours = play(mdp, CharyUCBVI(rule="unlimited", **bounds, **{**keeping, "data": "meta"}), seed)
    check_same_steps(ours, play(mdp, UCBVI(**bounds), seed))


@given(seed=seeds, bounds=bounds(), keeping=keeping())
def test_closed_is_the_pure_baseline(seed: int, bounds: dict[str, Any], keeping: dict[str, Any]) -> None:
    mdp = draw_mdp(seed)
    ours = play(mdp, CharyUCBVI(rule="closed", **bounds, **keeping), seed)
    check_same_steps(ours, play(mdp, Baseline(**bounds), seed), "state", "action", "explored", "booked")
    assert not ours.exploring_steps.any()
    assert not ours.true_deficit.any()
    assert not ours.deficit.any()


@given(seed=seeds, bounds=bounds(), keeping=keeping())
def test_a_strict_rule_without_end_is_unlimited(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any]
) -> None:
    mdp = draw_mdp(seed)
    strict = play(mdp, CharyUCBVI(eta=np.inf, **bounds, **keeping), seed)
    unlimited = play(mdp, CharyUCBVI(rule="unlimited", **bounds, **keeping), seed)
    check_same_steps(strict, unlimited, *Steps.__dataclass_fields__)
    np.testing.assert_array_equal(strict.deficit, unlimited.deficit)


# The ledger


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas, rule=st.sampled_from(["strict", "capped"]))
def test_strict_and_capped_never_book_beyond_eta(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float, rule: str
) -> None:
    mdp = draw_mdp(seed)
    span = mdp.scale.span
    bound = 0.1 * span if rule == "capped" else None
    run = play(mdp, CharyUCBVI(eta=eta * span, rule=rule, step_bound=bound, **bounds, **keeping), seed)
    ledger = np.cumsum(steps_of(run).booked, axis=1)
    # To the bit, in the units of the ledger.
    assert ledger.max() <= eta * span / span
    np.testing.assert_array_equal(ledger[:, -1] * span, run.deficit)
    if bound is not None:
        assert steps_of(run).booked.max() <= bound / span


@given(
    seed=seeds,
    bounds=bounds(),
    keeping=keeping(),
    eta=etas,
    rule=st.sampled_from(["strict", "paper", "unlimited"]),
)
def test_the_deficit_never_falls_and_only_exploring_costs(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float, rule: str
) -> None:
    mdp = draw_mdp(seed)
    run = play(mdp, CharyUCBVI(eta=eta * mdp.scale.span, rule=rule, **bounds, **keeping), seed)
    steps = steps_of(run)
    assert (steps.booked >= 0).all()
    assert (steps.booked[~steps.explored] == 0).all()
    assert ((steps.chain >= 0) == steps.explored).all()
    assert (run.deviating_steps <= run.exploring_steps).all()
    if rule == "paper":
        # Whatever is explored began with at most half of eta spent.
        before = np.cumsum(steps.booked, axis=1) - steps.booked
        assert (before[steps.explored] <= eta / 2 + ROUNDING).all()


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas, share=st.sampled_from([0.1, 0.5, 1.0]))
def test_capped_explores_wherever_paper_does_on_the_same_trajectory(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float, share: float
) -> None:
    assume(eta > 0)
    mdp = draw_mdp(seed)
    budget, bound = eta * mdp.scale.span, eta * mdp.scale.span * share / 2
    paper = play(mdp, CharyUCBVI(eta=budget, rule="paper", **bounds, **keeping), seed)
    steps = steps_of(paper)
    rule = Rule.capped(budget / mdp.scale.span, step_bound=bound / mdp.scale.span)
    for k in range(EPISODES):
        ledger = Ledger()
        for charge in steps.booked[k, steps.explored[k]]:
            afforded, ledger = authorise(ledger, True, float(charge), rule)
            assert afforded
    # In the first episode both have the same plan: capped follows paper as far as paper explores.
    capped = play(mdp, CharyUCBVI(eta=budget, rule="capped", step_bound=bound, **bounds, **keeping), seed)
    refusals = np.flatnonzero(~steps.explored[0])
    first = int(refusals[0]) if len(refusals) else int(paper.length[0])
    np.testing.assert_array_equal(steps_of(capped).action[0, :first], steps.action[0, :first])
    assert steps_of(capped).explored[0, :first].all()


# Chains


class Link(NamedTuple):
    """One explored step."""

    episode: int
    t: int
    s: int
    s_next: int


def links(run: Run) -> dict[int, list[Link]]:
    """Return the explored steps of every chain, in the order in which they were played."""
    steps = steps_of(run)
    found: dict[int, list[Link]] = {m: [] for m in range(run.chains.started)}
    for k, t in zip(*np.nonzero(steps.explored), strict=True):
        s, s_next = steps.state[k, t : t + 2]
        found[int(steps.chain[k, t])].append(Link(int(k), int(t), int(s), int(s_next)))
    return found


@given(
    seed=seeds,
    bounds=bounds(),
    keeping=keeping(),
    eta=etas,
    rule=st.sampled_from(["strict", "paper", "capped", "unlimited"]),
)
def test_every_finished_chain_is_a_chain(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float, rule: str
) -> None:
    mdp = draw_mdp(seed)
    span, H, ends = mdp.scale.span, mdp.horizon, mdp.setting.terminal
    bound = 0.2 * span if rule == "capped" else None
    run = play(mdp, CharyUCBVI(eta=eta * span, rule=rule, step_bound=bound, **bounds, **keeping), seed)
    log = run.chains
    lives = []
    for m, played in links(run).items():
        chain = played[:H]
        last = next((i for i, link in enumerate(chain) if ends[link.s_next]), H - 1)
        chain, rest = played[: last + 1], played[last + 1 :]
        assert all(one.s_next == other.s for one, other in itertools.pairwise(chain))
        complete = bool(chain) and (len(chain) == H or bool(ends[chain[-1].s_next]))
        assert complete == (log.episodes[m] > 0)
        lives.append((log.born[m], chain[-1].episode if complete else EPISODES))
        if chain:
            assert chain[0].episode >= log.born[m]
        if not complete:
            assert not rest
            continue
        # What is explored after completion is the same episode, without a break.
        places = [(chain[-1].episode, chain[-1].t + 1 + i) for i in range(len(rest))]
        assert [(link.episode, link.t) for link in rest] == places
        assert log.episodes[m] == chain[-1].episode - log.born[m] + 1
        assert log.fed[m] == len({link.episode for link in chain})
        assert log.exhausted[m] + log.long[m] + log.missed[m] == log.episodes[m]
        assert min(log.exhausted[m], log.long[m], log.missed[m]) >= 0
    assert log.finished == (log.episodes > 0).sum()
    if keeping["patience"] is None:
        for k in range(EPISODES):
            assert sum(born <= k <= over for born, over in lives) <= keeping["pool"]
        assert log.abandoned == 0


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_patience_abandons_what_has_not_advanced(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    mdp = draw_mdp(seed)
    spec = CharyUCBVI(eta=eta * mdp.scale.span, **bounds, **{**keeping, "patience": 2})
    run = play(mdp, spec, seed)
    for m, played in links(run).items():
        episodes = [int(run.chains.born[m]), *(link.episode for link in played)]
        assert max(np.diff(episodes), default=0) <= 2
    open_chains = run.chains.started - run.chains.finished - run.chains.abandoned
    assert 0 <= open_chains <= keeping["pool"]


@given(
    seed=seeds,
    bounds=bounds(),
    keeping=keeping(),
    eta=etas,
    chains=st.booleans(),
    rule=st.sampled_from(["strict", "paper"]),
)
def test_with_close_the_explored_steps_of_an_episode_are_one_block(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float, chains: bool, rule: str
) -> None:
    mdp = draw_mdp(seed)
    kept = {**keeping, "after_refusal": "close", "chains": chains}
    run = play(mdp, CharyUCBVI(eta=eta * mdp.scale.span, rule=rule, **bounds, **kept), seed)
    steps = steps_of(run)
    for k in range(EPISODES):
        explored = np.flatnonzero(steps.explored[k])
        assert (np.diff(explored) == 1).all()
        assert len(set(steps.chain[k, explored])) <= 1
        if not chains and len(explored):
            assert explored[0] == 0


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_an_episode_is_blocked_if_all_it_got_was_refusals(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    mdp = draw_mdp(seed)
    run = play(mdp, CharyUCBVI(eta=eta * mdp.scale.span, **bounds, **keeping), seed)
    assert not (run.blocked & (run.exploring_steps > 0)).any()
    assert run.chains.blocked == run.blocked.sum()
    # A chain that starts is tried at once.
    born = np.isin(np.arange(EPISODES), run.chains.born)
    assert (run.blocked | (run.exploring_steps > 0))[born].all()


# Bounds and the truth


@given(seed=seeds, bounds=bounds(), charge=st.sampled_from(CHARGES), eta=etas)
def test_the_true_gap_is_at_most_the_charge_whenever_the_bonus_event_holds(
    seed: int, bounds: dict[str, Any], charge: str, eta: float
) -> None:
    # A ball is more than one deviation: of `difference` with l1 and kl the event is not the judge's.
    assume(charge != "difference" or bounds["bonus"] not in ("l1", "kl"))
    mdp = draw_mdp(seed)
    spec = CharyUCBVI(eta=eta * mdp.scale.span, charge=charge, **bounds)
    run = play(mdp, spec, seed, coverage="everywhere")
    assert not (run.charge_failed & ~run.value_failed & ~run.bonus_failed).any()


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_the_ledger_covers_the_true_deficit_where_no_bound_failed(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    mdp = draw_mdp(seed)
    run = play(mdp, CharyUCBVI(eta=eta * mdp.scale.span, **bounds, **keeping), seed)
    covered = ~run.charge_failed
    assert (run.true_deficit <= run.deficit + ROUNDING * mdp.horizon)[covered].all()
    assert not run.violations(eta * mdp.scale.span + ROUNDING * mdp.horizon)[covered].any()
    if keeping["charge"] != "difference":
        covered = ~(run.value_failed | run.bonus_failed)
        assert (run.true_deficit <= run.deficit + ROUNDING * mdp.horizon)[covered].all()


def test_the_runs_tried_have_in_them_what_the_laws_speak_of() -> None:
    found = dict.fromkeys(("stitched", "exhausted", "blocked", "abandoned", "deviating", "extra", "short"), 0)
    for seed, bonus in itertools.product(range(15), ("hoeffding", "kl")):
        mdp = draw_mdp(seed)
        scale = 0.01 if bonus == "hoeffding" else 1.0
        spec = CharyUCBVI(eta=mdp.scale.span, bonus=bonus, bonus_scale=scale, pool=3, patience=seed)
        run = play(mdp, spec, seed)
        log = run.chains
        found["stitched"] += int((log.fed > 1).any())
        found["exhausted"] += int(log.exhausted.any())
        found["blocked"] += int(run.blocked.any())
        found["abandoned"] += int(log.abandoned > 0)
        found["deviating"] += int(run.deviating_steps.any())
        found["extra"] += int(any(len(played) > mdp.horizon for played in links(run).values()))
        found["short"] += int((run.length < mdp.horizon).any())
    assert min(found.values()) >= 3, found


def test_bounds_that_are_too_narrow_do_fail() -> None:
    # Where nothing fails, laws of what holds without failures are laws of everything.
    charge = value = bonus = undercharged = 0
    for seed in range(40):
        mdp = draw_mdp(seed)
        spec = CharyUCBVI(eta=0.3 * mdp.scale.span, bonus="hoeffding", bonus_scale=0.002)
        run = play(mdp, spec, seed, coverage="everywhere")
        charge, value = charge + int(run.charge_failed.any()), value + int(run.value_failed.any())
        bonus += int(run.bonus_failed.any())
        undercharged += int((run.true_deficit > run.deficit + ROUNDING).any())
    assert min(charge, value, bonus, undercharged) > 0


@given(seed=seeds, bounds=bounds())
def test_a_run_that_never_leaves_its_baseline_loses_nothing_against_it(
    seed: int, bounds: dict[str, Any]
) -> None:
    mdp = draw_mdp(seed)
    assert not play(mdp, Baseline(**bounds), seed).true_deficit.any()
    frozen = play(mdp, Frozen(**bounds), seed)
    assert not frozen.incumbent_deficit.any()
    assert (frozen.regret >= -ROUNDING).all()


# What a result may depend on


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_watching_changes_nothing(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    mdp = draw_mdp(seed)
    spec = CharyUCBVI(eta=eta * mdp.scale.span, **bounds, **keeping)
    plain = play(mdp, spec, seed, record_steps=False)
    reported: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of one episode.
        patch.setattr("chary.simulation._blocks.BLOCK_SECONDS", 0.0)
        patch.setattr("chary.simulation._compiled.LANES", 1)
        watched = play(
            mdp,
            spec,
            seed,
            coverage="everywhere",
            progress=lambda done, total: reported.append((done, total)),
        )
    assert reported == [(k, EPISODES) for k in range(EPISODES + 1)]
    assert plain.steps is None
    judged = {"value_failed", "bonus_failed", "charge_failed", "largest_gap"}
    for name in Run.__dataclass_fields__:
        mine, theirs = getattr(plain, name), getattr(watched, name)
        if isinstance(mine, np.ndarray) and name not in judged:
            assert mine.tobytes() == theirs.tobytes(), name
    for name in ChainLog.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(plain.chains, name), getattr(watched.chains, name))
    # Looking everywhere, one sees at least what one sees at the steps played.
    for name in judged - {"bonus_failed"}:
        assert (getattr(watched, name) >= getattr(plain, name)).all(), name


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_the_past_does_not_depend_on_how_long_the_run_will_be(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    # Of the four families `kl` alone needs no number of episodes.
    mdp = draw_mdp(seed)
    told = {"bonus": "kl", "reward": bounds["reward"]}
    spec = CharyUCBVI(eta=eta * mdp.scale.span, **told, **{**keeping, "pool": 3})
    long = play(mdp, spec, seed)
    short = simulate(mdp, spec, episodes=EPISODES // 2, warmup=WARMUP, seed=seed, record_steps=True)
    for name in Steps.__dataclass_fields__:
        kept = getattr(steps_of(long), name)[: EPISODES // 2]
        assert kept.tobytes() == getattr(steps_of(short), name).tobytes(), name


@given(seed=seeds, bounds=bounds(), keeping=keeping(), eta=etas)
def test_units_do_not_change_what_is_played(
    seed: int, bounds: dict[str, Any], keeping: dict[str, Any], eta: float
) -> None:
    mdp = draw_mdp(seed)
    span = 4.0  # a power of two: no rounding
    scale = type(mdp.scale)(0.0, span)
    raw = replace(mdp, setting=replace(mdp.setting, scale=scale))
    one = replace(mdp, setting=replace(mdp.setting, scale=type(mdp.scale)(0.0, 1.0)))
    runs = [
        play(each, CharyUCBVI(eta=eta * each.scale.span, **bounds, **keeping), seed) for each in (raw, one)
    ]
    check_same_steps(runs[0], runs[1], *Steps.__dataclass_fields__)
    for name in ("regret", "true_deficit", "deficit", "returns", "largest_gap"):
        mine: NDArray[np.float64] = getattr(runs[0], name)
        np.testing.assert_array_equal(mine, span * getattr(runs[1], name))
