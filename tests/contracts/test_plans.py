"""chary's own plans keep the contract that users' plans are checked against."""

from __future__ import annotations

import numpy as np
import pytest

import chary
from chary.errors import InvalidBudget
from chary.planner.plan import TabularPlan
from chary.testing import check_plan


def plan_of(charge: str) -> tuple[TabularPlan, chary.FiniteMDP]:
    shop = chary.envs.inventory(horizon=4)
    spec = chary.CharyUCBVI(eta=0.4, reward="known", charge=charge)
    agent = chary.TabularAgent(spec, shop.told("known"))
    dice = chary.TabularAgent(chary.Random(), shop.setting, generator=np.random.default_rng(1))
    played = chary.rollout(chary.envs.TabularEnv(shop), dice, episodes=60, seed=1)
    agent.warm_start([episode.transitions for episode in played])
    return agent.plan, shop


@pytest.mark.parametrize("charge", ["paper", "coupled", "difference"])
def test_every_charge_keeps_the_contract(charge: str) -> None:
    plan, shop = plan_of(charge)
    allowed = shop.setting.allowed
    check_plan(
        plan,
        range(shop.n_states),
        horizon=shop.horizon,
        allowed=lambda s: [int(a) for a in np.flatnonzero(allowed[s])],
        free_baseline=charge != "paper",
    )


def test_the_papers_charge_is_not_free_where_explorer_and_baseline_agree() -> None:
    plan, shop = plan_of("paper")
    with pytest.raises(InvalidBudget, match="'charge' must be 0 for the baseline's own action"):
        check_plan(plan, range(shop.n_states), horizon=shop.horizon)
