"""A corridor in the plane: what is worth learning lies late in the episode, on top of a cliff at its far end.

The continuous counterpart of `chary.envs.corridor`: hurrying to the end spends a small budget on the way, and
the climb, which no baseline has tried, is affordable only for an episode whose budget is still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from chary.envs.continuous.arithmetic import Arithmetic
from chary.envs.continuous.equations import State
from chary.errors import check_real

DRIFT, HURRY, BRAKE, CLIMB, LEFT, RIGHT = range(6)
# Metres: from the start to the cliff, the half width of the corridor, the height of the cliff.
LENGTH, HALF_WIDTH, TOP = 6.0, 0.5, 3.0
# Metres per step: the current, a hurried step, a step of the climb, a slide down the cliff.
CURRENT, HURRIED, CLIMBED, SLIDE = 0.5, 1.0, 0.5, 8.0
# Metres sideways per step: the largest push of the eddies, of climbing in the corridor, of a step aside.
EDDY, SWAY, ASIDE = 0.05, 0.1, 0.25
# Rewards per step: in the corridor, at the foot of the cliff, on the cliff, on top of it.
CORRIDOR, FOOT, CLIFF, PRIZE = 0.45, 0.5, 0.3, 1.0
# Costs per step: of hurrying, and of any other move than drifting, of climbing only where there is no cliff.
HURRY_COST, TOIL_COST = 0.35, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """Drift down a corridor in the plane to the foot of a cliff, for 30 steps.

    A state is a position: 0 <= x <= 7 along the corridor, y across it. In the corridor the current carries
    on by 0.5 per step, hurrying by 1.0 for a cost of 0.35. Braking goes back by 0.5, climbing stays, left and
    right move aside by 0.25, each for a cost of 0.25, and eddies push sideways by up to 0.05. From x = 6 on,
    climbing gains 0.5 of height per step, and any other action slides to the foot. A step earns 0.45 in the
    corridor, 0.5 at the foot, 0.3 on the cliff and 1 on top, at a height of 3, where one stays. Rewards lie
    in [0, 1], and nothing ends early.

    Args:
        spread: Both coordinates start uniformly within -spread..spread, in [0, 0.5]; x is at least 0.

    Raises:
        InvalidSetting: if `spread` lies outside its range.

    Example:
        >>> Plane().actions
        ('drift', 'hurry', 'brake', 'climb', 'left', 'right')
    """

    name: ClassVar[str] = "plane"
    actions: ClassVar[tuple[str, ...]] = ("drift", "hurry", "brake", "climb", "left", "right")
    horizon: ClassVar[int] = 30
    quantities: ClassVar[tuple[str, ...]] = ("x, m", "y, m")
    draws: ClassVar[int] = 2
    low: ClassVar[tuple[float, ...]] = (-2.0, -2.0)
    high: ClassVar[tuple[float, ...]] = (2.0, 2.0)

    spread: float = 0.1

    def __post_init__(self) -> None:
        check_real("spread", self.spread, low=0.0, high=0.5)

    def start(self, uniforms: Any) -> State:
        """Return a start from two uniforms."""
        return (self.spread * uniforms[0], self.spread * (2.0 * uniforms[1] - 1.0))

    def step(self, do: Arithmetic, state: State, action: Any) -> tuple[State, Any, Any]:
        """Return the next position and the reward; nothing ends early."""
        x, y = state
        climbs, hurries = action == CLIMB, action == HURRY
        at_foot, on_cliff, on_top = x >= LENGTH, y > HALF_WIDTH, y >= TOP
        moved = do.one_of((CURRENT, HURRIED, -CURRENT, 0.0, CURRENT, CURRENT), action)
        along = do.where(on_cliff, x, do.between(x + moved, 0.0, LENGTH + 1.0))
        aside = do.one_of((0.0, 0.0, 0.0, SWAY, -ASIDE, ASIDE), action)
        pushed = y + EDDY * do.sin(3.0 * x) + aside
        higher = do.where(
            climbs, do.minimum(y + CLIMBED, TOP), do.between(y - SLIDE, -HALF_WIDTH, HALF_WIDTH)
        )
        across = do.where(at_foot, higher, do.between(pushed, -HALF_WIDTH, HALF_WIDTH))
        across = do.where(on_top, TOP, across)
        place = do.where(along >= LENGTH, FOOT, CORRIDOR)
        place = do.where(across >= TOP, PRIZE, do.where(across > HALF_WIDTH, CLIFF, place))
        rests = (action == DRIFT) | (climbs & at_foot)
        cost = do.where(hurries, HURRY_COST, do.where(rests, 0.0, TOIL_COST))
        return (along, across), place - cost, x < 0.0

    def observe(self, do: Arithmetic, state: State) -> State:
        """Return the position, centred, in units of 2 m."""
        x, y = state
        return ((x - LENGTH / 2.0) / 2.0, (y - TOP / 2.0) / 2.0)
