"""CartPole with costs: the cart and pole of Barto, Sutton and Anderson, where pushing and straying cost.

Barto, A. G., Sutton, R. S. and Anderson, C. W. (1983), Neuronlike adaptive elements that can solve difficult
learning control problems, IEEE Transactions on Systems, Man and Cybernetics 13, 834-846; the friction is
left out and steps are Euler's, as in Gymnasium's `CartPole-v1`, whose trajectories these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from chary.envs.continuous.arithmetic import Arithmetic
from chary.envs.continuous.equations import State
from chary.errors import check_real

GRAVITY, CART_MASS, POLE_MASS = 9.8, 1.0, 0.1
# Half of the pole's length, in metres; the push, in newtons; the seconds of a step.
HALF_LENGTH, PUSH, SECONDS = 0.5, 10.0, 0.02
TOTAL_MASS = CART_MASS + POLE_MASS
# An episode ends beyond these: metres from the centre, radians (12 degrees) from upright.
EDGE, FALLEN = 2.4, 0.20943951023931953
# The forces of the actions: the first two are those of CartPole-v1.
FORCES = (-PUSH, PUSH, 0.0)
# What numbers of a state are divided by in an observation.
SCALES = (1.2, 1.0, 0.1, 1.0)
# The cost of a push, and of standing at the edge, per step; an upright pole earns 1.
PUSH_COST, EDGE_COST = 0.1, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CartPole:
    """Keep a pole upright on a cart for 200 steps of 0.02 s, near the centre and with few pushes.

    The reward of a step is 1 - 0.5 |x| / 2.4 - 0.1 for a push, at the position x that it leads to, and 0 for
    the step after which the pole has fallen (12 degrees) or the cart has left the track (2.4 m). The episode
    ends there, so that falling costs the rewards of all steps that are left. Rewards lie in [0, 1].

    Args:
        spread: Position, speed, angle and its speed start uniformly within -spread..spread, in [0, 0.2];
            CartPole-v1 has 0.05.

    Raises:
        InvalidSetting: if `spread` lies outside its range.

    Example:
        >>> CartPole().actions
        ('left', 'right', 'nothing')
    """

    name: ClassVar[str] = "cartpole"
    actions: ClassVar[tuple[str, ...]] = ("left", "right", "nothing")
    horizon: ClassVar[int] = 200
    quantities: ClassVar[tuple[str, ...]] = ("x, m", "speed, m/s", "angle, rad", "angular speed, rad/s")
    draws: ClassVar[int] = 4
    low: ClassVar[tuple[float, ...]] = (-2.5, -10.0, -4.0, -10.0)
    high: ClassVar[tuple[float, ...]] = (2.5, 10.0, 4.0, 10.0)

    spread: float = 0.05

    def __post_init__(self) -> None:
        check_real("spread", self.spread, low=0.0, high=0.2)

    def start(self, uniforms: Any) -> State:
        """Return a start from four uniforms."""
        return tuple(self.spread * (2.0 * uniforms[i] - 1.0) for i in range(4))

    def step(self, do: Arithmetic, state: State, action: Any) -> tuple[State, Any, Any]:
        """Return the state 0.02 s later, the reward, and whether the pole fell or the cart left the track."""
        x, speed, angle, turning = state
        force = do.one_of(FORCES, action)
        cos, sin = do.cos(angle), do.sin(angle)
        common = (force + POLE_MASS * HALF_LENGTH * turning * turning * sin) / TOTAL_MASS
        turned = (GRAVITY * sin - cos * common) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos * cos / TOTAL_MASS)
        )
        pushed = common - POLE_MASS * HALF_LENGTH * turned * cos / TOTAL_MASS
        x, speed = x + SECONDS * speed, speed + SECONDS * pushed
        angle, turning = angle + SECONDS * turning, turning + SECONDS * turned
        ended = (abs(x) > EDGE) | (abs(angle) > FALLEN)
        # Beyond the edge only after the end, where the reward is 0.
        away = do.minimum(abs(x) / EDGE, 1.0)
        earned = 1.0 - EDGE_COST * away - do.where(action == 2, 0.0, PUSH_COST)
        return (x, speed, angle, turning), do.where(ended, 0.0, earned), ended

    def observe(self, do: Arithmetic, state: State) -> State:
        """Return the state in units of (1.2 m, 1 m/s, 0.1 rad, 1 rad/s), within `low` and `high`."""
        bounds = zip(state, SCALES, self.low, self.high, strict=True)
        return tuple(do.between(value / scale, low, high) for value, scale, low, high in bounds)
