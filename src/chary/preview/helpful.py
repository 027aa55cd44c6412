"""Search for the data that would lower the charges most: new plans with more visits to one pair each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chary.arrays import Floats, Ints
from chary.mdp.setting import Setting
from chary.model.knowledge import Knowledge
from chary.planner.plan import TabularPlan
from chary.preview.measure import Cells, price
from chary.preview.result import HelpfulPair
from chary.preview.words import percent

# The largest number of pairs that are tried, each with a new plan, and of numbers read to price proposals:
# about as many per proposal as there are states.
MOST_PAIRS = 12
MOST_PRICING = 4_000_000
PRICING_ANYWAY = 100
FEWEST_CELLS, MOST_CELLS = 50, 5000
# A plan over more visited pairs and steps takes seconds; then fewer pairs are tried.
LARGE_PLAN = 2_000_000
FEWEST_PAIRS = 4
# A smaller reduction of the charge is ignored.
NOTICEABLE = 1e-3


def rank_pairs(
    setting: Setting,
    knowledge: Knowledge,
    plan: TabularPlan,
    make_plan: Callable[[Knowledge], TabularPlan],
    cells: Cells,
    proposals: Ints,
    charge: Floats,
    *,
    added: int,
    progress: Callable[[], None],
) -> tuple[tuple[HelpfulPair, ...], str]:
    """Return the pairs whose further visits would lower the charges most, and a note on the method.

    `proposals` and `charge`, (C,), are the explorer's actions at the cells and their charges, scaled;
    `make_plan` plans with more knowledge.
    """
    cost = charge * cells.weight
    most = min(MOST_CELLS, max(FEWEST_CELLS, MOST_PRICING // (setting.n_states + PRICING_ANYWAY)))
    heavy = np.argsort(-cost, kind="stable")[:most]
    heavy = heavy[cost[heavy] > 0]
    if not len(heavy):
        return (), "No proposal is charged, so data cannot lower the charges."
    some = Cells(cells.t[heavy], cells.state[heavy], cells.weight[heavy], np.zeros(0, dtype=np.int64))
    wanted, weight = proposals[heavy], cells.weight[heavy] / cells.weight[heavy].sum()
    baseline = plan.arrays.baseline[some.t, some.state]
    asked, own = setting.pair_index[some.state, wanted], setting.pair_index[some.state, baseline]
    mass = np.zeros(setting.n_pairs)
    np.add.at(mass, asked, cost[heavy])
    np.add.at(mass, own, cost[heavy])
    visited = int((knowledge.rows.total > 0).sum())
    tries = max(FEWEST_PAIRS, min(MOST_PAIRS, LARGE_PLAN // max(1, visited * setting.horizon)))
    span = setting.scale.span
    before = float(weight @ charge[heavy])
    found: list[tuple[float, HelpfulPair]] = []
    tried = 0
    for p in np.argsort(-mass, kind="stable")[:tries]:
        if mass[p] == 0:
            break
        progress()
        s = int(np.searchsorted(setting.pair_start, p, side="right")) - 1
        more = _with_visits(setting, knowledge, s, int(p), added)
        if more is None:
            continue
        tried += 1
        after = float(weight @ price(make_plan(more), some, wanted))
        if before - after > NOTICEABLE * before:
            roles = (bool((asked == p).any()), bool((own == p).any()))
            pair = HelpfulPair(
                state=s,
                action=int(setting.pair_action[p]),
                role="both" if all(roles) else "explorer" if roles[0] else "baseline",
                visits=int(knowledge.rows.total[p]),
                added=added,
                supposed="its own" if knowledge.rows.total[p] else "other actions",
                charge_before=before * span,
                charge_after=after * span,
            )
            found.append((after, pair))
    found.sort(key=lambda each: (each[0], each[1].state, each[1].action))
    share = float(cost[heavy].sum() / cost.sum())
    note = (
        f"The {tried} pairs with the largest charges were tried, each with {added:,} more visits, on the "
        f"{len(heavy):,} proposals with the largest charges times visits, {percent(share)} of all charges. "
        "Other pairs may matter, too. Outcomes are assumed to occur in the proportions seen, and reductions "
        f"below {NOTICEABLE:.1%} are left out."
    )
    return tuple(pair for _, pair in found), note


def _with_visits(setting: Setting, knowledge: Knowledge, s: int, p: int, added: int) -> Knowledge | None:
    """Return the knowledge with more visits to pair p, or None if nothing was seen in its state s."""
    rows = knowledge.rows
    like = [p] if rows.total[p] else list(range(setting.pair_start[s], setting.pair_start[s + 1]))
    spans = [np.arange(rows.begin[each], rows.begin[each] + rows.length[each]) for each in like]
    entries = np.concatenate(spans)
    weight = rows.weight[entries]
    if not len(entries):
        return None
    # Whole visits in the proportions seen; the rest after rounding goes to the largest remainders.
    exact = added * weight / weight.sum()
    visits = np.floor(exact).astype(np.int64)
    visits[np.argsort(visits - exact, kind="stable")[: added - int(visits.sum())]] += 1
    nexts = np.repeat(rows.successor[entries], visits)
    rewards = np.repeat(rows.reward[entries] / weight, visits)
    more = knowledge.copy()
    more.learn(np.full(added, s), np.full(added, p), nexts, np.clip(rewards, 0.0, 1.0))
    return more
