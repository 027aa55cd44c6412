"""The step API of linear worlds: the protocol, late and lost outcomes, saves, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chary.agents.protocol import Transition
from chary.arrays import Floats
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder, UnknownName
from chary.linear import LinearAgent, LinearModel, LinearOptions, Misfit, one_hot, own
from chary.linear.options import linear_model

H = 4
SMALL: dict[str, Any] = {
    "low": -2.0, "high": 2.0, "features": 8, "length_scale": 1.0, "worlds": 8, "explorers": 3, "prior": 0.1,
}  # fmt: skip


def agent(seed: int = 0, **options: Any) -> LinearAgent:
    model = LinearModel(**{**SMALL, **options.pop("model", {})})
    given = LinearOptions(model=model, **{"eta": 3.0, "discount": 0.9, "pool": 3, **options})
    return LinearAgent(given, observation_size=2, n_actions=3, horizon=H, seed=seed)


def moved(x: Floats, a: int, rng: np.random.Generator) -> Transition:
    after = 0.8 * x + 0.3 * (a - 1) + 0.1 * rng.normal(size=2)
    return Transition(x, a, float(np.clip(-abs(after[0]), -2.0, 2.0)), after, terminated=False)


def play(one: LinearAgent, episodes: int, seed: int = 5, first: int = 0) -> list[tuple[int, bool, float]]:
    rng, told = np.random.default_rng(seed), []
    for k in range(first, first + episodes):
        x = rng.normal(size=2)
        one.begin(k, x)
        for t in range(H):
            decision = one.act(k, t, x)
            told.append((decision.action, decision.explored, decision.deficit))
            step = moved(x, decision.action, rng)
            one.observe(k, step)
            x = step.next_state
        one.finish(k)
    return told


def test_the_budget_is_kept_and_the_same_seed_gives_the_same_decisions() -> None:
    first, again, other = agent(), agent(), agent(seed=1)
    told = play(first, 12)
    assert told == play(again, 12)
    assert told != play(other, 12)
    assert all(0.0 <= deficit <= 3.0 for _, _, deficit in told)
    assert any(explored for _, explored, _ in told)
    assert first.stats().episodes == 12
    assert first.learnt == 12 * H


def test_a_step_is_afforded_by_the_vote_of_the_worlds() -> None:
    one = agent(chains=False)
    play(one, 6)
    x = np.array([0.2, -0.1])
    one.begin("a", x)
    plan = one.plan_of("a")
    deviation = (plan.baseline(0, x) + 1) % 3
    charges = plan.charges(0, x, deviation)
    decision = one.act("a", 0, x, proposal=deviation)
    assert decision.vote is not None
    assert decision.vote.worlds == 8
    assert decision.explored == (plan.charge(0, x, deviation) <= 3.0)
    assert decision.vote.worst == pytest.approx(charges.max())
    # Asked again, the same, and nothing more is booked.
    assert one.act("a", 0, x) == decision
    assert one.ledger("a").deficit == decision.deficit_scaled


def test_a_saved_agent_goes_on_to_the_bit_with_open_episodes(tmp_path: Path) -> None:
    for chains in (True, False):
        one = agent(chains=chains, radius=1.0)
        play(one, 8)
        x = np.array([0.3, 0.4])
        one.begin("open", x)
        one.act("open", 0, x)
        late = one.act("open", 1, x + 0.1)
        one.begin("closed", x)
        one.act("closed", 0, x)
        one.abandon("closed")
        file = tmp_path / f"{chains}.npz"
        one.save(file)
        two = LinearAgent.load(file)
        assert two.outstanding == one.outstanding == {"open": (0, 1)}
        assert two.act("open", 1, x + 0.1) == late
        for each in (one, two):
            for t, here in enumerate((x, x + 0.1)):
                action = each.act("open", t, here).action
                each.observe("open", Transition(here, action, 0.5, x + 0.1 * (t + 1), False), t=t)
            each.finish("open")
        assert play(one, 6, first=50) == play(two, 6, first=50)
        assert one.standing == two.standing
        assert one.stats().steps - two.stats().steps == 8 * H + 3
        changed = bytearray(file.read_bytes())
        changed[len(changed) // 2] ^= 1
        file.write_bytes(changed)
        with pytest.raises(InvalidData):
            LinearAgent.load(file)


def test_own_features_are_given_again_at_load(tmp_path: Path) -> None:
    square = own(lambda x: np.concatenate([x, x**2], axis=1), 2)
    options = LinearOptions(model=LinearModel(**SMALL), eta=1.0)
    one = LinearAgent(options, observation_size=2, n_actions=3, horizon=H, features=square)
    play(one, 3)
    one.save(tmp_path / "own.npz")
    with pytest.raises(InvalidData, match="given again"):
        LinearAgent.load(tmp_path / "own.npz")
    two = LinearAgent.load(tmp_path / "own.npz", features=square)
    assert play(one, 3, first=9) == play(two, 3, first=9)


def test_outcomes_wait_behind_a_missing_one_of_the_same_action_alone() -> None:
    one = agent(eta=0.0, model={"held_out": 0.0})
    x = np.array([0.3, 0.4])
    one.begin("slow", x)
    slow = one.act("slow", 0, x).action
    learnt = []
    rng = np.random.default_rng(0)
    for k in range(6):
        one.begin(k, x)
        action = one.act(k, 0, x).action
        one.observe(k, moved(x, action, rng))
        one.finish(k)
        learnt.append((action, one.learnt))
    # Nothing is learnt of the action whose first outcome is missing, and everything of the others.
    others = np.cumsum([action != slow for action, _ in learnt])
    assert [number for _, number in learnt] == others.tolist()
    assert others[-1] < 6
    one.abandon("slow")
    # The lost one, and all that waited for it.
    assert one.learnt == 7
    assert one._ready_worlds().losses == 1


def test_lost_outcomes_widen_the_charge_of_what_replaces_the_baseline() -> None:
    # One feature per state: the features are not negative, and the bound holds in every world.
    def taught(lost: bool) -> LinearAgent:
        model = LinearModel(low=0.0, high=1.0, worlds=8, explorers=2, held_out=0.0, prior=0.1)
        one = LinearAgent(
            LinearOptions(model=model, eta=0.0), observation_size=1, n_actions=2, horizon=1,
            features=one_hot(2), seed=3,
        )  # fmt: skip
        log = [[Transition([0], a, 0.8 - 0.4 * a, [1], False)] for a in (0, 1) for _ in range(20)]
        one.warm_start(log)
        for k in range(5):
            one.begin(k, [0])
            decided = one.act(k, 0, [0])
            if lost:
                one.abandon(k)
            else:
                one.observe(k, Transition([0], decided.action, 0.8, [1], False))
                one.finish(k)
        return one

    x = np.array([0.0])
    whole, gone = taught(False), taught(True)
    assert gone.plan.charges(0, x, 1).mean() > whole.plan.charges(0, x, 1).mean() + 0.02
    # Least squares of 20 outcomes of .8 and 5 lost ones, which are worth 1 at most, less .4.
    assert gone.plan.charges(0, x, 1).mean() == pytest.approx((20 * 0.8 + 5) / 25 - 0.4, abs=0.1)
    assert "could get lost" in gone.standing.describe()


def test_an_override_is_not_learnt_and_stays_booked() -> None:
    one = agent(model={"held_out": 0.0})
    x = np.array([0.3, 0.4])
    one.begin(0, x)
    decided = one.act(0, 0, x)
    other = (decided.action + 1) % 3
    with pytest.raises(InvalidAction, match="taken"):
        one.observe(0, Transition(x, other, 0.0, x, False))
    one.observe(0, Transition(x, other, 0.0, x, False), taken=other)
    assert one.ledger(0).deficit == decided.deficit_scaled
    one.finish(0)
    assert one.learnt == 0


def test_a_log_sets_the_length_scale_and_comes_first() -> None:
    one = agent(model={"length_scale": None})
    with pytest.raises(InvalidSetting, match="'length_scale' must be given"):
        one.begin(0, [0.0, 0.0])
    rng = np.random.default_rng(0)
    log = [[moved(rng.normal(size=2), int(rng.integers(3)), rng)] for _ in range(80)]
    one.warm_start(log)
    with pytest.raises(OutOfOrder, match="once and before"):
        one.warm_start(log)
    assert "length scale 1." in one.standing.describe()
    assert "logs are unconfounded" in one.standing.describe()
    assert one.learnt == 80
    play(one, 2)


def test_the_standing_is_credible_and_says_what_it_leans_on() -> None:
    one = agent()
    play(one, 3)
    standing = one.standing
    assert (standing.level, standing.per, standing.probability) == ("credible", "episode", 0.99)
    said = standing.describe()
    for part in (
        "linear in 8 random Fourier features",
        "untested",
        "states are Markov",
        "[-2, 2], as declared",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"worlds": 1}, InvalidSetting, "'worlds' must be"),
        ({"worlds": 2.5}, InvalidSetting, "'worlds' must be"),
        ({"risk": 0.0}, InvalidSetting, "'risk' must"),
        ({"risk": 1.0}, InvalidSetting, "'risk' must"),
        ({"risk": "half"}, InvalidSetting, "'risk' must"),
        ({"features": 1}, InvalidSetting, "'features' must be"),
        ({"length_scale": 0.0}, InvalidSetting, "'length_scale' must"),
        ({"high": -2.0}, InvalidSetting, "'high' must be above 'low'"),
        ({"low": float("nan")}, InvalidSetting, "'low' must"),
        ({"prior": 0.0}, InvalidSetting, "'prior' must"),
        ({"margin": -1.0}, InvalidSetting, "'margin' must"),
        ({"held_out": 1.0}, InvalidSetting, "'held_out' must"),
        ({"nodes": 0}, InvalidSetting, "'nodes' must"),
        ({"explorer": "greedy"}, UnknownName, "greedy"),
    ],
)
def test_settings_out_of_range_are_refused(
    options: dict[str, Any], error: type[CharyError], message: str
) -> None:
    with pytest.raises(error, match=message):
        agent(model=options)


def test_wrong_problems_and_features_are_refused() -> None:
    options = LinearOptions(model=LinearModel(**SMALL))
    sizes: dict[str, Any] = {"observation_size": 2, "n_actions": 3, "horizon": H}
    for name in sizes:
        with pytest.raises(InvalidSetting, match=name):
            LinearAgent(options, **{**sizes, name: 0})
    with pytest.raises(InvalidSetting, match="'features' must be of observations of length 2"):
        LinearAgent(options, **sizes, features=one_hot(3))
    with pytest.raises(InvalidSetting, match="'features' must be"):
        LinearAgent(options, **sizes, features=np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(InvalidData, match="shape"):
        own(lambda x: x[:, 0], 2)
    with pytest.raises(InvalidData, match="finite"):
        own(lambda x: x + np.inf, 2)
    bad = own(lambda x: np.where(x > 5.0, np.nan, x), 2)
    one = LinearAgent(options, **sizes, features=bad)
    with pytest.raises(InvalidData, match="'features' must be finite"):
        one.begin(0, [9.0, 0.0])
    one.begin(0, [0.0, 0.0])
    with pytest.raises(InvalidData, match=r"whole number in 0\.\.2"):
        LinearAgent(
            options, observation_size=1, n_actions=3, horizon=H, features=one_hot(3)
        ).begin(0, [3])  # fmt: skip
    with pytest.raises(InvalidSetting, match="table"):
        LinearOptions(model=3)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="wolds"):
        linear_model({"low": 0, "high": 1, "wolds": 3})
    with pytest.raises(InvalidSetting, match="got no 'high'"):
        linear_model({"low": 0})


def test_a_refused_call_changes_nothing() -> None:
    one, two = agent(), agent()
    x = np.array([0.1, 0.2])
    for each in (one, two):
        each.begin(0, x)
        each.act(0, 0, x)
    action = one.act(0, 0, x).action
    wrong: list[tuple[type[CharyError], Any]] = [
        (InvalidData, lambda: one.begin(1, [np.nan, 0.0])),
        (InvalidData, lambda: one.begin(1, [0.0])),
        (OutOfOrder, lambda: one.begin(0, x)),
        (OutOfOrder, lambda: one.act(0, 2, x)),
        (InvalidData, lambda: one.act(0, 0, x + 1)),
        (InvalidAction, lambda: one.act(0, 1, x, proposal=3)),
        (InvalidData, lambda: one.observe(0, Transition(x, action, 2.5, x, False))),
        (InvalidData, lambda: one.observe(0, Transition(x, action, np.nan, x, False))),
        (InvalidData, lambda: one.observe(0, Transition(x + 1, action, 0.5, x, False))),
        (OutOfOrder, lambda: one.finish(7)),
        (OutOfOrder, lambda: one.warm_start([])),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    for each in (one, two):
        each.observe(0, Transition(x, action, 0.5, x, False))
        each.finish(0)
    assert play(one, 4, first=10) == play(two, 4, first=10)


def test_a_misfit_is_told_in_words() -> None:
    assert "untested" in Misfit(3, float("nan"), float("nan"), 1.0, float("nan")).describe()
    assert not Misfit(500, 20.0, 0.2, 1.0, 0.0).found
    assert Misfit(500, 99.0, 1e-9, 1.0, 0.5).found
