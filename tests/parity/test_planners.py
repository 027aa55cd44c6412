"""The incremental planner and the full pass: equal bits, for every agent and every option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parity.same_runs import BY_BOUNDS, PROBLEMS, check_same_run, draw_mdp, needed_by, specs

from chary import simulation
from chary._compile import OPTIONS
from chary.agents import UCBVI, AgentSpec, CharyUCBVI, make_agent
from chary.agents._mixtures import UCBVI as UCBVI_KIND
from chary.agents._mixtures import new_mixture
from chary.arrays import Floats, Ints
from chary.envs import inventory, riverswim, sepsis
from chary.errors import InvalidSetting, PlannerMismatch, UnknownName
from chary.mdp import FiniteMDP
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.model.rows import no_rows
from chary.planner._backup import new_scratch
from chary.planner._batch_arrays import Batch, Now, new_batch
from chary.planner._full import (
    DIFFERENCE,
    PlanArrays,
    explore_into,
    new_explorer,
    new_plan_arrays,
    plan_into,
)
from chary.planner._vectors import LANES
from chary.shield import Rule
from chary.simulation import Simulation, _blocks, simulate
from chary.simulation import _compiled as _compiled_run
from chary.simulation._judge import PLAYED, Judge, evaluate_truly_into, mean_at_start, new_judge
from chary.simulation._plan_check import QUANTITIES, Check, check_plan_into, check_truth_into, new_check
from chary.simulation._player import INCREMENTAL, SHIELD, Player
from chary.simulation._record import EpisodeColumns, new_record
from chary.simulation.run import Run

# Several batches, the first of them guessed by hardly any data.
EPISODES = 60
# The space of options is large, and a pair of runs takes milliseconds.
more = settings(max_examples=3 * settings().max_examples)


def runs(mdp: FiniteMDP, spec: AgentSpec, *, episodes: int = EPISODES, **options: Any) -> tuple[Run, Run]:
    options |= {"episodes": episodes, "record_steps": True}
    return (
        simulate(mdp, spec, planner="incremental", check_every=1, **options),
        simulate(mdp, spec, planner="full", **options),
    )


@more
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), warmup=st.sampled_from([0, 5, 60]))
def test_any_agent_on_any_problem_plays_the_run_of_the_full_planner(
    data: st.DataObject, seed: int, warmup: int
) -> None:
    mdp = draw_mdp(np.random.default_rng(seed))
    # Lanes are for one family of bounds: half of the examples have it.
    families = {"bonus": "hoeffding"} if data.draw(st.booleans()) else {}
    spec = data.draw(specs(mdp, **families))
    coverage = data.draw(st.sampled_from(["played", "everywhere"]))
    check_same_run(*runs(mdp, spec, warmup=warmup, seed=seed, coverage=coverage))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", BY_BOUNDS)
def test_every_agent_plays_the_run_of_the_full_planner_on_every_problem(name: str, problem: str) -> None:
    mdp = PROBLEMS[problem]
    deviating = 0
    for scale, eta in ((0.0001, 2.0), (0.002, 0.4), (0.02, 2.0)):
        options = {"eta": eta * mdp.scale.span, "bonus": "hoeffding", "bonus_scale": scale, "reward": "known"}
        spec = make_agent(name, **options, **needed_by(name, mdp))
        incremental, full = runs(mdp, spec, warmup=20, seed=3)
        check_same_run(incremental, full)
        deviating += int(incremental.deviating_steps.sum())
    assert deviating > 0 or name != "chary"


@pytest.mark.parametrize("rule", ["strict", "capped"])
def test_sepsis_is_played_as_with_the_full_planner(rule: str) -> None:
    spec = CharyUCBVI(
        eta=0.1,
        rule=rule,
        step_bound=0.02 if rule == "capped" else None,
        bonus="hoeffding",
        bonus_scale=0.0005,
    )
    incremental, full = runs(sepsis(), spec, episodes=40, warmup=500)
    check_same_run(incremental, full)
    assert incremental.exploring_steps.sum() > 0


@pytest.mark.parametrize("seconds", [0.0, 10.0])
@pytest.mark.parametrize("name", ["chary", "stepmix"])
def test_a_run_does_not_depend_on_how_it_is_cut_into_blocks(
    name: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = inventory(horizon=8)
    spec = make_agent(name, eta=0.4, bonus="hoeffding", bonus_scale=0.002)
    options: dict[str, Any] = {"episodes": 100, "warmup": 20, "record_steps": True}
    whole = simulate(mdp, spec, **options)
    monkeypatch.setattr(_blocks, "BLOCK_SECONDS", seconds)
    blocks: list[int] = []
    check_same_run(simulate(mdp, spec, **options, progress=lambda done, _: blocks.append(done)), whole)
    if seconds == 0:
        # As many episodes a block as are planned together, and no more.
        assert blocks == [*range(0, 100, LANES), 100]
    else:
        assert len(blocks) < 10


def batches_of(
    mdp: FiniteMDP, spec: AgentSpec, monkeypatch: pytest.MonkeyPatch, episodes: int
) -> tuple[int, int]:
    """Return how many batches a run had, and how many of its blocks began one anyhow."""
    kept: list[Batch] = []

    def keep(*arguments: Any) -> Batch:
        kept.append(new_batch(*arguments))
        return kept[-1]

    monkeypatch.setattr(_compiled_run, "new_batch", keep)
    playing = Simulation(mdp, spec, episodes=episodes, warmup=20)
    playing.start()
    blocks = 0
    while playing.done < episodes:
        playing.advance()
        blocks += 1
    return int(kept[0].now[Now.BATCHES]), blocks


def test_the_runs_compared_have_batches_with_right_and_with_wrong_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_blocks, "BLOCK_SECONDS", 10.0)
    spec = CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.002)
    batches, blocks = batches_of(PROBLEMS["inventory"], spec, monkeypatch, EPISODES)
    assert batches < EPISODES, "no guess was right"
    assert batches > blocks + EPISODES // LANES, "no guess was wrong"


@pytest.mark.parametrize("planner", ["incremental", "full"])
def test_both_planners_are_compared_with_the_step_by_step_driver(planner: str) -> None:
    mdp, spec = PROBLEMS["inventory"], CharyUCBVI(eta=0.4, bonus="hoeffding", bonus_scale=0.002)
    options: dict[str, Any] = {"episodes": EPISODES, "warmup": 20, "record_steps": True}
    check_same_run(
        simulate(mdp, spec, planner=planner, **options), simulate(mdp, spec, driver="step", **options)
    )


# What is asked for and refused


@pytest.mark.parametrize("options", [{"planner": "full"}, {"driver": "step"}], ids=str)
def test_a_planner_that_makes_the_full_pass_itself_is_not_checked_against_it(options: dict[str, str]) -> None:
    with pytest.raises(
        InvalidSetting, match=r"^'check_every' must be 0 with driver .+ and planner .+, got 5\."
    ):
        simulate(riverswim(), UCBVI(), episodes=2, check_every=5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [-1, 0.5, True])
def test_check_every_is_a_whole_number_and_not_negative(every: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^'check_every' must "):
        simulate(riverswim(), UCBVI(), episodes=2, check_every=every)


def test_planners_are_chosen_by_name() -> None:
    with pytest.raises(UnknownName, match=r"^'planner' must "):
        simulate(riverswim(), UCBVI(), episodes=2, planner="ful")


# Planted errors


class Seen(NamedTuple):
    """What a run under way plans and is judged with."""

    batch: Batch
    judge: Judge


def play_tampered(
    spec: AgentSpec,
    tamper: Callable[[Seen], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    mdp: FiniteMDP = PROBLEMS["inventory"],
    at: int = 20,
    **options: Any,
) -> Run:
    """Play a run and spoil what it plans with once `at` episodes were played."""
    # Blocks of one episode, though more could be planned together.
    monkeypatch.setattr(_blocks, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(_compiled_run, "LANES", 1)
    batch: list[Batch] = []
    judges: list[Judge] = []

    def keep_batch(*arguments: Any) -> Batch:
        batch.append(new_batch(*arguments))
        return batch[-1]

    def keep_judge(*arguments: Any, **named: Any) -> Judge:
        judges.append(new_judge(*arguments, **named))
        return judges[-1]

    monkeypatch.setattr(_compiled_run, "new_batch", keep_batch)
    monkeypatch.setattr(simulation, "new_judge", keep_judge)
    playing = Simulation(mdp, spec, episodes=60, warmup=20, **options)
    playing.start()
    while playing.done < 60:
        if playing.done == at:
            # From here on batches are as long as they can be.
            monkeypatch.setattr(_blocks, "BLOCK_SECONDS", 1e6)
            tamper(Seen(batch[0], judges[0]))
        playing.advance()
    return playing.result()


def spoil_lower(seen: Seen) -> None:
    seen.batch.lower.v[-1] = 0.25


def spoil_baseline(seen: Seen) -> None:
    # Where an episode has ended nothing is planned, so that nothing repairs this.
    seen.batch.lower.policy[:, -1] = 1


def spoil_upper(seen: Seen) -> None:
    seen.batch.upper[-1] = 0.25


def spoil_explorer(seen: Seen) -> None:
    seen.batch.optimistic.v[:, -1] = 3.0


def spoil_truth(seen: Seen) -> None:
    seen.judge.columns[-1] = 0.25


shield = CharyUCBVI(eta=3.0, bonus="hoeffding", bonus_scale=0.002)


@pytest.mark.parametrize(
    ("tamper", "quantity", "problem"),
    [
        (spoil_lower, "lower value", "inventory"),
        (spoil_baseline, "baseline", "terminal"),
        (spoil_upper, "upper value", "inventory"),
        (spoil_explorer, "explorer", "terminal"),
        (spoil_truth, "true value", "inventory"),
    ],
)
def test_a_spoilt_planner_is_found_out_and_only_if_asked(
    tamper: Callable[[Seen], None], quantity: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = PROBLEMS[problem]
    play_tampered(shield, tamper, monkeypatch, mdp=mdp)
    play_tampered(shield, lambda _: None, monkeypatch, mdp=mdp, check_every=1)
    expected = (
        rf"^'planner' incremental must equal the full pass bit for bit, got another {quantity} in episode "
        r"\d+ at stage \d+ and state \d+\. Use planner 'full'"
    )
    with pytest.raises(PlannerMismatch, match=expected):
        play_tampered(shield, tamper, monkeypatch, mdp=mdp, check_every=1)


def test_a_value_difference_that_is_not_the_full_passs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, mdp = (
        CharyUCBVI(eta=3.0, bonus="hoeffding", bonus_scale=0.002, charge="difference"),
        PROBLEMS["inventory"],
    )
    simulate(mdp, spec, episodes=20, warmup=20, check_every=1)
    H, S = mdp.horizon, mdp.n_states
    # The differences of both planners lie in the same room, one number apart: the check spoils the plan.
    room = np.zeros((H + 1) * S * S + 1)
    plans = iter((room[:-1], room[1:]))

    def overlapping(*arguments: Any, **named: Any) -> PlanArrays:
        plan = new_plan_arrays(*arguments, **named)
        return plan._replace(difference=next(plans).reshape(plan.difference.shape))

    def check_in_the_same_room(*arguments: Any, **named: Any) -> Check:
        check = new_check(*arguments, **named)
        return check._replace(plan=overlapping(S, H, differences=True))

    monkeypatch.setattr(_compiled_run, "new_plan_arrays", overlapping)
    monkeypatch.setattr(_compiled_run, "new_check", check_in_the_same_room)
    with pytest.raises(PlannerMismatch, match="got another value difference in episode 0 at stage"):
        simulate(mdp, spec, episodes=20, warmup=20, check_every=1)


def test_only_every_nth_episode_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlannerMismatch, match="in episode 21 at"):
        play_tampered(shield, spoil_lower, monkeypatch, at=20, check_every=7)
    play_tampered(shield, spoil_lower, monkeypatch, at=20, check_every=1000)


class Planned(NamedTuple):
    """A plan made by the full pass with all that is compared, and the judge's values of its baseline."""

    mdp: FiniteMDP
    knowledge: Knowledge
    prior: Ints
    plan: PlanArrays
    batch: Batch
    judge: Judge


def planned() -> Planned:
    mdp, rng = PROBLEMS["terminal"], np.random.default_rng(0)
    setting = mdp.setting
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs
    knowledge = Knowledge.empty(setting, Bounds(family="hoeffding", scale=0.01), episodes=9, total_episodes=9)
    pairs = rng.permutation(np.repeat(np.arange(P), 30))
    states = np.repeat(np.arange(S), np.diff(setting.pair_start))[pairs]
    knowledge.learn(states, pairs, rng.integers(S, size=len(pairs)), rng.random(len(pairs)))
    prior, scratch = np.full(S, -1, dtype=np.int64), new_scratch(S)
    plan, explorer = new_plan_arrays(S, H, differences=True), new_explorer(S, P, H, falling=False)
    plan_into(plan, knowledge.rows, knowledge.radii, prior, DIFFERENCE, True, scratch)
    explore_into(explorer, knowledge.rows, knowledge.radii, scratch)
    # No lanes but for the explorer: the plan is compared as it stands.
    batch = new_batch(setting, -1)
    side = new_batch(setting, knowledge.radii.family).optimistic
    side.policy[:] = explorer.policy
    batch = batch._replace(optimistic=side)
    batch.now[[Now.UPPER_FROM, Now.DIFFERENCES]] = 0, 1
    judge = new_judge(mdp, scratch, coverage=PLAYED)
    evaluate_truly_into(judge.v_true, np.zeros((0, 0)), judge, plan.baseline, 0, scratch)
    return Planned(mdp, knowledge, prior, plan, batch, judge)


# Options are arguments: a literal would compile all kernels below once more.
@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def check_both_into(
    check: Check,
    k: int,
    player: Player,
    explores: bool,
    upper: bool,
    judge: Judge,
    columns: EpisodeColumns,
    since: int,
    states: Ints,
) -> None:
    check_plan_into(check, k, player, explores, upper)
    baseline, scratch = player.plan.baseline, player.scratch
    check_truth_into(check, k, judge, columns, baseline, since, states, len(states), scratch)


def found_in(here: Planned) -> Ints:
    setting, knowledge = here.mdp.setting, here.knowledge
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs
    check = new_check(S, P, H, every=1, differences=True)
    player = Player(
        agent=SHIELD,
        planner=INCREMENTAL,
        charge=DIFFERENCE,
        rule=Rule.strict(1.0),
        prior=here.prior,
        rows=knowledge.rows,
        radii=knowledge.radii,
        meta_rows=no_rows(knowledge.rows),
        meta_radii=knowledge.radii,
        plan=here.plan,
        batch=here.batch,
        explorer=new_explorer(S, P, H, falling=False),
        mixture=new_mixture(UCBVI_KIND, frozen=here.plan.baseline),
        scratch=new_scratch(S),
    )
    columns = new_record(18, H, steps=False).episodes
    columns.baseline_value[17] = mean_at_start(here.judge, here.judge.v_true)
    check_both_into(check, 17, player, True, True, here.judge, columns, 1, np.zeros(H, dtype=np.int64))
    return check.found


def flip_last_bit(array: Floats, place: tuple[int, ...]) -> None:
    array[place] = np.nextafter(array[place], np.inf)


@pytest.mark.slow  # compiling the check by itself takes 20 s
def test_a_plan_with_one_bit_flipped_is_found_whatever_the_quantity() -> None:
    assert found_in(planned()).tolist() == [-1, -1, -1, -1]
    for quantity in QUANTITIES:
        here, place = planned(), (2, 1)
        if quantity == "baseline":
            here.plan.baseline[place] += 1
        elif quantity == "explorer":
            here.batch.optimistic.policy[place] += 1
        elif quantity == "value difference":
            flip_last_bit(here.plan.difference, (*place, 0))
        elif quantity == "true value":
            place = (2, 0)
            flip_last_bit(here.judge.v_true, place)
        else:
            flip_last_bit(here.plan.v_lower if quantity == "lower value" else here.plan.v_upper, place)
        found = found_in(here)
        assert found.tolist() == [17, QUANTITIES.index(quantity), *place]
        said = rf"^'planner' .+, got another {quantity} in episode 17 at stage 2 and state {place[1]}\. Use"
        with pytest.raises(PlannerMismatch, match=said):
            _compiled_run._raise_mismatch(found)


@pytest.mark.slow
def test_true_values_that_no_step_was_judged_by_are_not_compared() -> None:
    here = planned()
    flip_last_bit(here.judge.v_true, (0, 0))  # before the stage from which the episode is judged
    flip_last_bit(here.judge.v_true, (2, 1))  # a state that was not visited
    assert found_in(here).tolist() == [-1, -1, -1, -1]


def test_a_check_that_found_nothing_says_nothing() -> None:
    _compiled_run._raise_mismatch(new_check(2, 2, 2, every=0, differences=False).found)
