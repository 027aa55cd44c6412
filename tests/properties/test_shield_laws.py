"""Laws of the whole shield, over random plans and worlds on a handful of states."""

from __future__ import annotations

import itertools
import math
import random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from chary.shield import Decision, EpisodeEnd, Matcher, MetaRollout, Rule, Shield, same

STATES, ACTIONS, EPISODES = 3, 3, 12
ETA = st.floats(0.0, 2.0, allow_subnormal=False)


def equal(target: int, s: int) -> bool:
    """A user's own matcher: says what `same` says, but the shield cannot know and must scan."""
    return target == s


class Game(NamedTuple):
    """Everything a run depends on; `lanes` is how many episodes are open at once."""

    rule: Rule
    horizon: int = 4
    pool: int = 1
    clock: str = "episode"
    patience: int | None = None
    chains: bool = True
    lanes: int = 1
    seed: int = 0
    odd_charges: bool = False
    cut_short: bool = False
    match: Matcher[int] = same


class Tables:
    """A plan and a world drawn once from a seed; the same numbers answer the same question."""

    def __init__(self, game: Game) -> None:
        draw = random.Random(game.seed)
        size = range(game.horizon)
        self._explore = [[[draw.randrange(ACTIONS) for _ in range(STATES)] for _ in size] for _ in range(5)]
        self._baseline = [[draw.randrange(ACTIONS) for _ in range(STATES)] for _ in size]
        odd = [math.nan, math.inf] if game.odd_charges else []
        self._charge = [
            [[draw.choice([0.0, 0.1, draw.random(), *odd]) for _ in range(ACTIONS)] for _ in range(STATES)]
            for _ in size
        ]
        for t, s in itertools.product(size, range(STATES)):
            self._charge[t][s][self._baseline[t][s]] = 0.0

    def explore(self, chain: int, clock: int, s: int) -> int:
        return self._explore[chain % 5][clock][s]

    def baseline(self, t: int, s: int) -> int:
        return self._baseline[t][s]

    def charge(self, t: int, s: int, a: int) -> float:
        return self._charge[t][s][a]


class Row(NamedTuple):
    """One step as played."""

    episode: int
    t: int
    s: int
    decision: Decision
    s_next: int
    terminated: bool


class Run(NamedTuple):
    """What a game did, in the order in which it happened."""

    game: Game
    plan: Tables
    rows: list[Row]
    outcomes: list[EpisodeEnd[int]]
    shield: Shield[int]

    @property
    def rollouts(self) -> list[MetaRollout[int]]:
        return [rollout for outcome in self.outcomes for rollout in outcome.finished]

    def rows_of_episodes(self) -> list[list[Row]]:
        by_episode: dict[int, list[Row]] = {}
        for row in self.rows:
            by_episode.setdefault(row.episode, []).append(row)
        return list(by_episode.values())


def run(game: Game) -> Run:
    """Play EPISODES episodes, `lanes` at once, the next lane to move drawn at random."""
    plan = Tables(game)
    world = random.Random(game.seed + 1)
    shield: Shield[int] = Shield(
        game.rule,
        horizon=game.horizon,
        pool=game.pool,
        clock=game.clock,
        patience=game.patience,
        chains=game.chains,
        match=game.match,
    )
    rows: list[Row] = []
    outcomes: list[EpisodeEnd[int]] = []
    places: dict[int, tuple[int, int]] = {}
    begun = 0
    while places or begun < EPISODES:
        while len(places) < game.lanes and begun < EPISODES:
            shield.begin(begun, plan, number=100 + begun)
            places[begun] = (0, world.randrange(2))
            begun += 1
        episode = world.choice(sorted(places))
        t, s = places.pop(episode)
        decision = shield.decide(episode, t, s)
        s_next, terminated = world.randrange(STATES), world.random() < 0.05
        shield.observe(episode, s_next, terminated=terminated, transition=(t, terminated))
        rows.append(Row(episode, t, s, decision, s_next, terminated))
        cut = game.cut_short and world.random() < 0.1
        if terminated or cut or t + 1 == game.horizon:
            outcomes.append(shield.finish(episode))
        else:
            places[episode] = (t + 1, s_next)
    return Run(game, plan, rows, outcomes, shield)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    name = draw(st.sampled_from(["strict", "strict", "capped", "capped", "paper", "unlimited", "closed"]))
    step_bound = draw(st.floats(1e-3, 2.0)) if name == "capped" else None
    after_refusal = draw(st.sampled_from(["pause", "close"]))
    return Rule.named(name, eta=draw(ETA), step_bound=step_bound, after_refusal=after_refusal)


def games(rule: st.SearchStrategy[Rule] | None = None) -> st.SearchStrategy[Game]:
    return st.builds(
        Game,
        rule=rules() if rule is None else rule,
        horizon=st.integers(1, 8),
        pool=st.integers(1, 4),
        clock=st.sampled_from(["episode", "meta"]),
        patience=st.sampled_from([None, None, 0, 1, 3]),
        chains=st.sampled_from([True, True, True, False]),
        lanes=st.integers(1, 4),
        seed=st.integers(0, 2**32),
        odd_charges=st.booleans(),
        cut_short=st.booleans(),
        match=st.just(same),
    )


bounded = st.one_of(
    st.builds(Rule.strict, ETA, after_refusal=st.sampled_from(["pause", "close"])),
    st.builds(Rule.capped, ETA, step_bound=st.floats(1e-3, 2.0)),
)


@given(game=games(bounded))
def test_strict_and_capped_never_book_beyond_eta(game: Game) -> None:
    for row in run(game).rows:
        assert row.decision.deficit <= game.rule.limit


@given(game=games(st.builds(Rule.paper, ETA, after_refusal=st.sampled_from(["pause", "close"]))))
def test_paper_books_at_most_one_charge_beyond_half_the_budget(game: Game) -> None:
    for row in run(game).rows:
        assert row.decision.deficit <= game.rule.limit + 1.0


@given(game=games())
def test_each_episode_books_exactly_what_its_explored_steps_cost(game: Game) -> None:
    played = run(game)
    for rows in played.rows_of_episodes():
        deficit = 0.0
        for _, t, s, decision, *_ in rows:
            charge = played.plan.charge(t, s, decision.action)
            if decision.explored:
                assert math.isfinite(charge)
                assert decision.charge == min(charge, game.rule.step_bound)
            else:
                assert decision.charge == 0.0
                assert decision.action == played.plan.baseline(t, s)
            deficit += decision.charge
            assert decision.deficit == deficit
            assert decision.remaining == max(game.rule.limit - deficit, 0.0)


@given(game=games())
def test_explored_steps_are_the_named_chains_and_baseline_steps_nobodys(game: Game) -> None:
    for row in run(game).rows:
        assert row.decision.explored is (row.decision.chain >= 0)
        assert row.decision.plan == 100 + row.episode


@given(game=games(st.just(Rule.unlimited())))
def test_unlimited_explores_always_and_finishes_a_chain_an_episode(game: Game) -> None:
    played = run(game._replace(lanes=1, odd_charges=False, cut_short=False))
    assert all(row.decision.explored for row in played.rows)
    assert [rollout.chain for rollout in played.rollouts] == list(range(EPISODES))
    assert all(rollout.episodes == 1 for rollout in played.rollouts)


@given(game=games(st.just(Rule.closed())))
def test_closed_never_explores(game: Game) -> None:
    played = run(game)
    assert not any(row.decision.explored for row in played.rows)
    assert not any(outcome.finished for outcome in played.outcomes)


@given(game=games())
def test_with_close_the_explored_steps_of_an_episode_are_one_block_of_one_chain(game: Game) -> None:
    played = run(game._replace(rule=game.rule._replace(closes=True)))
    for rows in played.rows_of_episodes():
        blocks = [explored for explored, _ in itertools.groupby(row.decision.explored for row in rows)]
        assert blocks.count(True) <= 1
        assert len({row.decision.chain for row in rows if row.decision.explored}) <= 1


@given(game=games())
def test_with_chains_off_exploration_is_a_prefix_of_every_episode(game: Game) -> None:
    played = run(game._replace(chains=False))
    for rows in played.rows_of_episodes():
        explored = [row.decision.explored for row in rows]
        assert explored == sorted(explored, reverse=True)
    assert played.shield.started == EPISODES
    assert played.shield.open_chains == 0


@given(game=games())
def test_every_finished_chain_is_a_chain_of_its_own_explorer(game: Game) -> None:
    played = run(game)
    for rollout in played.rollouts:
        ends = []
        for clock, step in enumerate(rollout.steps):
            assert isinstance(step.transition, tuple)
            t, terminated = step.transition
            assert step.a == played.plan.explore(rollout.chain, clock if game.clock == "meta" else t, step.s)
            ends.append(terminated)
        for before, after in itertools.pairwise(rollout.steps):
            assert before.s_next == after.s
        assert not any(ends[:-1])
        assert ends[-1] or len(rollout.steps) == game.horizon


@given(game=games())
def test_a_chain_is_fed_by_one_open_episode_at_a_time(game: Game) -> None:
    played = run(game._replace(lanes=4, pool=2))
    last = {rows[-1].episode: rows[-1].t for rows in played.rows_of_episodes()}
    fed: dict[int, int] = {}
    for row in played.rows:
        fed.pop(row.episode, None)
        if row.decision.explored:
            assert row.decision.chain not in fed.values()
            fed[row.episode] = row.decision.chain
        if row.t == last[row.episode]:
            fed.pop(row.episode, None)


@given(game=games())
def test_an_ended_chain_never_explores_again_and_none_is_lost(game: Game) -> None:
    played = run(game)
    shield = played.shield
    ended = [chain for outcome in played.outcomes for chain in outcome.ended]
    assert len(ended) == len(set(ended)) == shield.finished + shield.abandoned + shield.dropped
    assert shield.started == len(ended) + shield.open_chains
    assert shield.finished == len(played.rollouts)
    assert shield.abandoned == sum(len(outcome.abandoned) for outcome in played.outcomes)
    assert shield.blocked == sum(outcome.blocked for outcome in played.outcomes)
    if game.chains:
        assert shield.open_chains <= game.pool
    if game.lanes == 1:
        gone: set[int] = set()
        for rows, outcome in zip(played.rows_of_episodes(), played.outcomes, strict=True):
            assert not gone & {row.decision.chain for row in rows}
            gone.update(outcome.ended)


@given(game=games())
def test_the_parts_of_a_chains_episodes_add_up(game: Game) -> None:
    for rollout in run(game).rollouts:
        assert rollout.exhausted + rollout.long + rollout.missed == rollout.episodes
        assert min(rollout.exhausted, rollout.long, rollout.missed) >= 0
        assert 1 <= rollout.fed_episodes <= rollout.episodes


@given(game=games())
def test_same_inputs_give_same_decisions(game: Game) -> None:
    first, again = run(game), run(game)
    assert first.rows == again.rows
    assert first.outcomes == again.outcomes


@given(game=games())
def test_scanning_for_targets_and_looking_them_up_decide_alike(game: Game) -> None:
    looked_up, scanned = run(game), run(game._replace(match=equal))
    assert looked_up.rows == scanned.rows
    assert looked_up.outcomes == scanned.outcomes
