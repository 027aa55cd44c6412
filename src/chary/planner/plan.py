"""Plans as values: policies and bounds that follow from counts, frozen for the episodes begun with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping
from typing import ClassVar, TypedDict, Unpack, final

import numpy as np

from chary.arrays import Floats, Ints
from chary.errors import InvalidData
from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.planner._backup import LOWER, UPPER, Scratch, new_scratch
from chary.planner._charges import charge_of, prices_into
from chary.planner._full import (
    CHARGES,
    DIFFERENCE,
    EVALUATE,
    EVALUATE_ALL,
    OPTIMISE,
    PAPER,
    Explorer,
    PlanArrays,
    backward_into,
    explore_into,
    new_explorer,
    new_plan_arrays,
    plan_differences_into,
    plan_into,
)
from chary.planner.deferred import Deferred
from chary.planner.explorers import Explorers, Shorts
from chary.policies import OwnBaseline, as_policy_table

# How far a lower bound may exceed the declared cap because of rounding.
CAP_TOLERANCE = 1e-9


class PlanOptions(TypedDict, total=False):
    """Options of plans besides the counts, see `TabularPlan`."""

    charge: str
    upper: bool
    explorers: MutableMapping[int, Shorts]
    new_explorer: Callable[[], Shorts]


@final
class TabularPlan(Deferred):
    """The plan that a shield needs, from counts and bounds; `chary.shield.Plan` for states 0..S-1.

    `arrays` are the values and the baseline, see `PlanArrays`. `explorers` maps open chains to their
    frozen policies, (H, S) in 16 bits, and is shared by all plans of an agent; a chain that is not in it
    starts here, with the policy that `new_explorer` makes.

    The baseline is the policy with the best lower bound, ties going to `prior`, actions (S,) or (H, S). With
    `fixed`, actions (H, S), it is that policy whatever the counts are: lower and upper values are its own,
    and charges bound what is lost against it. The attribute `fixed` says whether the baseline is the policy
    that the user declared.
    """

    __slots__ = ("_kind", "_new_explorer", "_prices", "_scratch", "arrays", "explorers", "fixed", "knowledge")

    MADE: ClassVar[tuple[str, ...]] = ("arrays", "fixed", "_kind", "_scratch")
    arrays: PlanArrays
    fixed: bool
    _kind: int
    _scratch: Scratch

    def __init__(
        self,
        setting: Setting,
        knowledge: Knowledge,
        prior: Ints,
        *,
        charge: str = "coupled",
        upper: bool = True,
        explorers: MutableMapping[int, Shorts] | None = None,
        new_explorer: Callable[[], Shorts] | None = None,
        fixed: Ints | None = None,
    ) -> None:
        self._later = None
        self._kind = CHARGES.index(charge)
        # States that stand for lost outcomes are planned for, too.
        n_states = len(knowledge.rows.visits)
        self._scratch = new_scratch(n_states)
        # Where the charges at (t, s) lie, by t * S + s: a table (B, A), and the row of it.
        self._prices: dict[int, tuple[Floats, int]] = {}
        self.knowledge = knowledge
        self.explorers: MutableMapping[int, Shorts] = {} if explorers is None else explorers
        self._new_explorer = new_explorer or (lambda: explorer_of(setting, knowledge))
        self.fixed = fixed is not None
        self.arrays = new_plan_arrays(n_states, setting.horizon, differences=self._kind == DIFFERENCE)
        if fixed is not None:
            self.arrays.baseline[:, : setting.n_states] = as_policy_table(fixed, setting)
            self.arrays.v_lower[:] = policy_values(knowledge, self.arrays.baseline, LOWER)
        elif prior.ndim == 2 and not (prior == prior[0]).all():
            _optimise_into(self.arrays, knowledge, prior)
        else:
            # A copy, which can be written to: for others the kernel would be compiled again.
            ties = np.array(prior[0] if prior.ndim == 2 else prior)
            plan_into(self.arrays, knowledge.rows, knowledge.radii, ties, self._kind, upper, self._scratch)
            return
        if upper:
            self.arrays.v_upper[:] = policy_values(knowledge, self.arrays.baseline, UPPER)
            if self._kind == DIFFERENCE:
                plan_differences_into(self.arrays, knowledge.rows, knowledge.radii, self._scratch)

    @classmethod
    def later(
        cls,
        whole: Callable[[], TabularPlan],
        knowledge: Knowledge,
        explorers: MutableMapping[int, Shorts],
        new_explorer: Callable[[], Shorts],
    ) -> TabularPlan:
        """Return the plan that `whole` returns, which is called once its values are needed."""
        plan = cls.__new__(cls)
        plan._later, plan._prices, plan.knowledge = whole, {}, knowledge
        plan.explorers, plan._new_explorer = explorers, new_explorer
        return plan

    def start(self, chain: int) -> None:
        """Have an explorer for a chain that starts here, made later where it follows from the plan alone."""
        if isinstance(self.explorers, Explorers) and isinstance(self._new_explorer, OwnExplorer):
            self.explorers.put_off(chain, self._new_explorer)
        else:
            self.explorers[chain] = self._new_explorer()

    def explore(self, chain: int, clock: int, s: int) -> int:
        """Return the action of that chain's explorer, pi_hat."""
        if chain not in self.explorers:
            self.explorers[chain] = self._new_explorer()
        return int(self.explorers[chain][clock, s])

    def baseline(self, t: int, s: int) -> int:
        """Return the baseline's action, pi_bar."""
        return int(self.arrays.baseline[t, s])

    def charge(self, t: int, s: int, a: int) -> float:
        """Return the charge of playing `a`, section 3; inf where it is not allowed."""
        if self._kind != PAPER and a == self.arrays.baseline[t, s]:
            return 0.0
        prepared = self._prices.get(t * len(self.knowledge.rows.visits) + s)
        if prepared is not None:
            prices, row = prepared
            return float(prices.item(row, a))
        rows, radii = self.knowledge.rows, self.knowledge.radii
        if rows.pair_index[s, a] < 0:
            return math.inf
        return float(charge_of(self._kind, rows, radii, self.arrays, t, s, a, self._scratch))

    def values(self, t: int, s: int) -> tuple[Floats, Floats]:
        """Return bounds on the value of playing each action at (t, s) and then the baseline, (A,) each.

        Both are NaN for actions that are not allowed.
        """
        rows, radii, arrays = self.knowledge.rows, self.knowledge.radii, self.arrays
        first, last = rows.pair_start[s], rows.pair_start[s + 1]
        # Nothing is computed for other states: none of them has an action here.
        pair_start = np.where(np.arange(len(rows.pair_start)) <= s, first, last)
        here, policy = rows._replace(pair_start=pair_start), np.array(arrays.baseline)
        nobody, none = np.full(len(rows.visits), -1), np.zeros((0, 0))
        upper = arrays.v_upper if arrays.v_upper.any() else policy_values(self.knowledge, policy, UPPER)
        bounds = np.full((2, rows.pair_index.shape[1]), np.nan)
        for i, (sign, v) in enumerate(((LOWER, arrays.v_lower), (UPPER, upper))):
            q = np.zeros((len(policy), len(rows.total)))
            backward_into(
                v.copy(), q, policy, here, radii, sign, EVALUATE_ALL, nobody, none, (t, t), self._scratch
            )
            bounds[i, rows.pair_action[first:last]] = q[t, first:last]
        return bounds[0], bounds[1]

    def prepare(
        self, stages: Iterable[int], states: Iterable[int], actions: Iterable[int | None] = ()
    ) -> None:
        """Compute the charges of all actions at many (t, s) in one call; those computed before are kept.

        `actions`, which plans of worlds need, make no difference.
        """
        n_states = len(self.knowledge.rows.visits)
        missing = {t * n_states + s for t, s in zip(stages, states, strict=True)}.difference(self._prices)
        if not missing:
            return
        t, s = np.divmod(np.fromiter(missing, dtype=np.int64, count=len(missing)), n_states)
        rows, radii = self.knowledge.rows, self.knowledge.radii
        prices = np.empty((len(missing), rows.pair_index.shape[1]))
        prices_into(prices, self._kind, rows, radii, self.arrays, t, s, self._scratch)
        self._prices.update(zip(missing, ((prices, row) for row in range(len(missing))), strict=True))


@final
class OwnExplorer:
    """The explorer of all chains that start from one plan, made from its counts once it is needed."""

    def __init__(self, setting: Setting, knowledge: Knowledge) -> None:
        self._setting, self._knowledge = setting, knowledge
        self._policy: Shorts | None = None

    def __call__(self) -> Shorts:
        """Return the optimistic policy."""
        if self._policy is None:
            self._policy = explorer_of(self._setting, self._knowledge)
        return self._policy


def own_plan(
    setting: Setting, knowledge: Knowledge, own: OwnBaseline, **options: Unpack[PlanOptions]
) -> TabularPlan:
    """Return the plan in which a policy of the user's has the role that it was declared for.

    Role `prior` breaks ties with it, `only` makes it the baseline, and `floor` replaces it where another
    action is known to be better: see `floor_policy`. The options are those of `TabularPlan`.
    """
    if own.role == "prior":
        return TabularPlan(setting, knowledge, own.table, **options)
    table = own.table if own.role == "only" else floor_policy(knowledge, own.table)
    plan = TabularPlan(setting, knowledge, own.table, fixed=table, **options)
    plan.fixed = bool((table == own.table).all())
    return plan


def floor_policy(knowledge: Knowledge, own: Ints) -> Ints:
    """Return `own`, (H, S), improved wherever the counts show that another action is better.

    Stage by stage backwards, the action with the best lower bound replaces that of `own` at (t, s) if this
    bound, with the improved policy to follow, exceeds the upper value of `own` there. Where all bounds hold,
    the result is at least as good as `own` in every state and at every step: by induction, an action that
    was kept is followed by values no lower than before, and one that was replaced is worth more than `own`.
    """
    upper = policy_values(knowledge, own, UPPER)
    n_states = len(knowledge.rows.visits)
    v, none, scratch = np.zeros_like(upper), np.zeros((0, 0)), new_scratch(n_states)
    played, nobody = np.zeros((len(own), n_states), dtype=np.int64), np.full(n_states, -1)
    rows, radii, S = knowledge.rows, knowledge.radii, own.shape[1]
    for t in reversed(range(len(own))):
        backward_into(v, none, played, rows, radii, LOWER, OPTIMISE, nobody, none, (t, t), scratch)
        kept = v[t, :S] <= upper[t, :S]
        played[t, :S][kept] = own[t][kept]
        backward_into(v, none, played, rows, radii, LOWER, EVALUATE, nobody, none, (t, t), scratch)
    return np.array(played[:, :S])


def check_cap(setting: Setting, bounds: Bounds, knowledge: Knowledge, policy: Ints, v_lower: Floats) -> None:
    """Raise InvalidData if certified bounds show that a policy is worth more than the declared cap.

    `v_lower` are the policy's lower values, (H + 1, S). They are cut off at the cap, which hides the
    contradiction: where they reach it, they are computed again without it.

    Raises:
        InvalidData: with the latest step, the state and the action of such a value.
    """
    steps = setting.discount ** np.arange(setting.horizon)
    left = np.append(np.cumsum(steps)[::-1], 0.0)
    cut, S = setting.value_bounds, setting.n_states
    reached = (v_lower[:, :S] >= cut[:, None]) & (cut < left)[:, None]
    if not bounds.certified or not reached.any():
        return
    free = Knowledge(knowledge.rows, knowledge.radii._replace(vmax=left), knowledge.lost)
    worth = policy_values(free, policy, LOWER)[:-1, :S]
    over = worth > cut[:-1, None] + CAP_TOLERANCE
    if over.any():
        t, s = (int(i) for i in np.argwhere(over)[-1])
        raise InvalidData(
            f"'value_cap' must bound the value of every policy, declared as {setting.value_cap:g}, got at "
            f"least {worth[t, s]:.6g} at state {s}, action {int(policy[t, s])}, step {t}, by the counts. "
            "Declare a larger cap, or leave it out: what was promised with this one does not hold."
        )


def policy_values(knowledge: Knowledge, policy: Ints, sign: int) -> Floats:
    """Return the lower (`sign` LOWER) or upper (UPPER) values of a policy (H, S), (H + 1, S).

    States that stand for lost outcomes follow the S of the problem.
    """
    horizon, n_states = len(policy), len(knowledge.rows.visits)
    v = np.zeros((horizon + 1, n_states))
    # Arrays that can be written to, as everywhere else: for others the kernel would be compiled again.
    played, nobody, none = np.array(policy), np.full(n_states, -1), np.zeros((0, 0))
    rows, radii, stages, scratch = knowledge.rows, knowledge.radii, (0, horizon - 1), new_scratch(n_states)
    backward_into(v, none, played, rows, radii, sign, EVALUATE, nobody, none, stages, scratch)
    return v


def optimistic_policy(setting: Setting, knowledge: Knowledge, explorer: Explorer | None = None) -> Ints:
    """Return the explorer, (H, S): the argmax of the upper Q, ties to the first by `rank`.

    An `explorer` handed in is filled, and keeps the falling ceiling of UCBVI's own bonuses.
    """
    n_states, horizon = len(knowledge.rows.visits), setting.horizon
    room = explorer or new_explorer(n_states, setting.n_pairs, horizon, falling=False)
    if room.v.shape[1] != n_states:
        # States that stand for lost outcomes have been added.
        v, policy = np.zeros((horizon + 1, n_states)), np.zeros((horizon, n_states), dtype=np.int64)
        room = room._replace(v=v, policy=policy)
    explore_into(room, knowledge.rows, knowledge.radii, new_scratch(n_states))
    return np.array(room.policy[:, : setting.n_states])


def explorer_of(setting: Setting, knowledge: Knowledge) -> Shorts:
    """Return the optimistic policy as chains keep it."""
    return optimistic_policy(setting, knowledge).astype(np.int16)


def _optimise_into(plan: PlanArrays, knowledge: Knowledge, prior: Ints) -> None:
    """Fill the lower optimum with its baseline, ties going to the actions of `prior`, (H, S)."""
    v, baseline, rows, radii = plan.v_lower, plan.baseline, knowledge.rows, knowledge.radii
    none, scratch = np.zeros((0, 0)), new_scratch(len(knowledge.rows.visits))
    for t in reversed(range(len(prior))):
        ties = np.array(prior[t])
        backward_into(v, none, baseline, rows, radii, LOWER, OPTIMISE, ties, none, (t, t), scratch)
