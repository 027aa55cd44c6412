"""The shield in a compiled JAX loop against Python's: the same bits, the same decisions, the same chains."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from chary.shield import Ledger, Rule, Shield, authorise, within

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("optax")
options_of = pytest.importorskip("chary.deep.options").DeepOptions
shielding = pytest.importorskip("chary.deep.shielding")

LENGTH, EPISODES_OF_NUMBERS = 40, 250
on_arrays: Any = authorise


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random_rule(rng: np.random.Generator) -> Rule:
    name = ("strict", "capped", "paper", "unlimited", "closed")[rng.integers(5)]
    bound = float(rng.choice([1e-3, 0.1, 0.25, 0.3, rng.uniform(1e-3, 2.0)])) if name == "capped" else None
    after = ("pause", "close")[rng.integers(2)]
    eta = float(rng.choice([0.0, 0.1, 0.3, rng.uniform(0.0, 4.0)]))
    return Rule.named(name, eta=eta, step_bound=bound, after_refusal=after)


def random_charges(rng: np.random.Generator, number: int) -> Any:
    # Sums of tenths meet the limit exactly; some are tiny, some beyond any budget.
    tenths = rng.integers(0, 4, number) * 0.1
    others = rng.choice([0.0, 1e-300, 0.25, 1e308, 2.2e-16], number)
    return np.where(
        rng.random(number) < 0.5, tenths, np.where(rng.random(number) < 0.3, others, rng.random(number))
    )


def bits(afforded: object, closed: object, deficit: float) -> tuple[bool, bool, bytes]:
    return bool(afforded), bool(closed), struct.pack("<d", deficit)


def test_authorise_in_a_scan_gives_pythons_bits_over_thousands_of_steps() -> None:
    rng = np.random.default_rng(2)
    rules = [random_rule(rng) for _ in range(EPISODES_OF_NUMBERS)]
    charges = np.stack([random_charges(rng, LENGTH) for _ in rules])
    candidates = rng.random(charges.shape) < 0.8
    lanes = Rule(*(jnp.asarray(np.array(column)) for column in zip(*rules, strict=True)))

    def episode(rule: Any, candidates: Any, charges: Any) -> Any:
        def step(ledger: Any, at: Any) -> Any:
            afforded, after = on_arrays(ledger, at[0], at[1], rule)
            return after, (afforded, after.closed, after.deficit)

        return jax.lax.scan(step, shielding.first_ledger(), (candidates, charges))[1]

    afforded, closed, deficit = map(np.asarray, jax.jit(jax.vmap(episode))(lanes, candidates, charges))
    seen = set()
    for k, rule in enumerate(rules):
        ledger = Ledger()
        for i in range(LENGTH):
            answer, ledger = authorise(ledger, bool(candidates[k, i]), float(charges[k, i]), rule)
            assert bits(answer, *ledger) == bits(afforded[k, i], closed[k, i], deficit[k, i])
            seen.add((bool(answer), bool(ledger.closed)))
    assert seen == {(True, False), (False, False), (False, True)}


class Scripted:
    """A plan whose explorer always plays 1, at a price written down beforehand."""

    def __init__(self, prices: Any) -> None:
        self._prices = prices

    def explore(self, chain: int, clock: int, s: object) -> int:
        return 1

    def baseline(self, t: int, s: object) -> int:
        return 0

    def charge(self, t: int, s: object, a: int) -> float:
        return float(self._prices[t])


@pytest.mark.parametrize("chains", [True, False])
@pytest.mark.parametrize(("patience", "after_refusal"), [(None, "pause"), (0, "pause"), (2, "close")])
def test_the_compiled_shield_does_what_the_step_shield_does(
    chains: bool, patience: int | None, after_refusal: str
) -> None:
    horizon, episodes = 6, 300
    # Of three networks: without chains the ensemble tries every step, and not only what follows the first.
    options = options_of(
        agent="paper", eta=0.5, after_refusal=after_refusal, chains=chains, patience=patience, radius=0.5
    )
    rng = np.random.default_rng(11)
    prices = rng.choice([0.0, 0.1, 0.2, 0.4, 0.7, math.nan, math.inf], (episodes, horizon))
    # A walk on whole numbers: targets are met often, and no distance lies near the radius.
    walk = np.cumsum(rng.integers(-1, 2, (episodes, horizon + 1)), axis=1)[:, :, None].astype(float)
    terminal = rng.random((episodes, horizon)) < 0.05

    def compiled(chain: Any, at: Any) -> Any:
        prices, walk, terminal = at
        rule = shielding.rule_on_arrays(options.budget_rule)

        def step(carry: Any, now: Any) -> Any:
            ledger, chain, playing = carry
            t, price, s, s_next, ended = now
            verdict = shielding.decide(options, rule, ledger, chain, t, s, price)
            moved = shielding.advance(verdict.chain, verdict.explored, s_next, ended, horizon)
            after = jax.tree.map(
                lambda a, b: jnp.where(playing, a, b), (verdict.ledger, moved), (ledger, chain)
            )
            row = (verdict.explored & playing, jnp.where(playing, verdict.cost, 0.0), after[0].deficit)
            return (*after, playing & ~ended), row

        steps = (jnp.arange(horizon), prices, walk[:-1], walk[1:], terminal)
        (_, chain, _), rows = jax.lax.scan(step, (shielding.first_ledger(), chain, jnp.bool_(True)), steps)
        chain = shielding.close(options, chain)
        return chain, (rows, chain)

    first = shielding.first_chain(1)
    _, (rows, after) = jax.jit(lambda *at: jax.lax.scan(compiled, first, at))(prices, walk, terminal)
    explored, costs, deficits = map(np.asarray, rows)

    shield: Shield[Any] = Shield(
        Rule.strict(0.5, after_refusal=after_refusal),
        horizon=horizon,
        chains=chains,
        patience=patience,
        match=within(0.5),
    )
    for k in range(episodes):
        shield.begin(k, Scripted(prices[k]))
        for t in range(horizon):
            decision = shield.decide(k, t, tuple(walk[k, t]))
            assert decision.explored == explored[k, t]
            assert (decision.charge, decision.deficit) == (costs[k, t], deficits[k, t])
            shield.observe(k, tuple(walk[k, t + 1]), terminated=bool(terminal[k, t]))
            if terminal[k, t]:
                break
        shield.finish(k)
        assert shield.open_chains == after.open[k]
        assert (shield.started, shield.finished) == (after.started[k], after.finished[k])
        assert (shield.abandoned, shield.blocked) == (after.abandoned[k], after.blocked[k])
    assert shield.finished > 0
    assert explored.any()
    assert not explored.all()
