"""The options of a deep agent: its kind, and every number that training needs, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from chary.deep.ensemble.options import CONSTANTS, EnsembleOptions, ensemble_options
from chary.errors import InvalidAction, InvalidSetting, check_choice, check_integer, check_real
from chary.linear.options import LinearModel, linear_model
from chary.shield.rule import Rule
from chary.shield.shield import CLOCKS
from chary.standing import Grounds
from chary.texts import shown

AGENTS = ("chary", "paper", "dqn", "cql", "sac", "random", "constant")
# Agents with a shield.
SHIELDED = ("chary", "paper")
# How the baseline is learnt that plays, prices or judges.
LEARNERS = ("ensemble", "networks", "linear")
# Agents without networks of their own.
WITHOUT_NETWORKS = ("chary", "random", "constant")
LOWER_BOUNDS = ("lcb", "cql")
TARGETS = ("polyak", "period")
CHARGES_FROM = ("step", "start")
# A replay is one array, addressed by 32 bits.
LARGEST_REPLAY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepOptions:
    """The options of training, in the environment's units of reward.

    Args:
        agent: `chary` is shielded; `paper` is, too, and learns by three networks as in the paper; `dqn` is
            epsilon-greedy double DQN; `cql` is greedy in a conservative Q and explores nothing; `sac` is
            discrete soft actor-critic; `random` and `constant` learn, but do not play by what they learn. All
            of them learn the baseline that they are judged by, as chary does: by the same learner with the
            same options and from their own data.
        learner: How the baseline is learnt: by `ensemble`, a paired ensemble, by `networks`, three with
            bonuses, or by `linear`, linear worlds, which agents with networks of their own cannot have. None
            is `networks` for the agent `paper` and `ensemble` for others.
        ensemble: Options of that learner, or a table of them.
        linear: The `LinearModel` of that learner, or a table of its options; None for others.
        episodes: Episodes to play, >= 1, after the warm-up.
        discount: gamma, in [0, 1].
        eta: The budget of one episode, >= 0.
        rule: Which steps the budget affords, as in `Rule.named`.
        step_bound: Of the rule `capped` alone, > 0.
        after_refusal: `pause` or `close`.
        charge_from: A charge is discounted from the `step` it is booked at, as networks estimate it, or from
            the `start` of the episode, times gamma^t.
        chains: Whether exploring steps are stitched to chains. Without them `networks` explores from the
            start of each episode until refused, and for `ensemble` every step is a candidate. None is True
            for `networks` and False for `ensemble`.
        radius: Distance in observations at which a state is a chain's target, >= 0.
        patience: Abandon a chain once this many episodes have ended since it last advanced; None never does.
        clock: The explorer's time input: that of the `episode`, or `meta`, its chain's length.
        lower: The way Q_lo is learnt, in which the baseline is greedy: `lcb` or `cql`.
        beta: Bonuses' weight in V_hi and, under `lcb`, in Q_lo, >= 0.
        optimism: Bonuses' weight in the explorer, >= 0; `dqn` and `sac` have none.
        cql_weight: alpha of CQL(H), >= 0.
        features: Random Fourier features per action, >= 1.
        length_scale: Distance over which features vary, > 0.
        fresh: Transitions of a batch whose bonus is computed again, >= 1; others keep the one computed last,
            which is larger.
        ridge: The bonus matrices start as this multiple of the identity, > 0.
        width: Units of each of the two hidden layers, >= 1.
        learning_rate: Of Adam, > 0.
        huber: Error from which a loss grows linearly, > 0; infinity squares all.
        target: Target networks follow by `polyak` averages or copies every `period`.
        tau: Weight of the new in a Polyak average, in (0, 1].
        period: Updates between two copies, >= 1.
        batch: Transitions of an update, >= 1.
        replay: Transitions kept, >= 1.
        warm_up: Episodes of uniformly random actions before the first, >= 0.
        pretraining: Updates between the warm-up and the first episode, >= 0.
        epsilon_start: Of `dqn`, in [0, 1].
        epsilon_end: Of `dqn`, in [0, 1].
        anneal: Share of the episodes over which epsilon falls, in (0, 1].
        entropy: Of `sac`: which share of the largest possible entropy its temperature aims at, in [0, 1].
        action: Of `constant`, >= 0.

    Raises:
        InvalidSetting: if a number lies outside its range.
        InvalidBudget: if `eta` or `step_bound` does.
        UnknownName: if there is no agent, rule, bound, clock or target of that name.

    Example:
        >>> DeepOptions(agent="chary", eta=40.0).budget_rule.limit
        40.0
    """

    agent: str = "chary"
    learner: str | None = None
    ensemble: EnsembleOptions = field(default_factory=EnsembleOptions)
    linear: LinearModel | None = None
    episodes: int = 1000
    discount: float = 0.99
    eta: float = 40.0
    rule: str = "strict"
    step_bound: float | None = None
    after_refusal: str = "pause"
    charge_from: str = "step"
    chains: bool | None = None
    radius: float = 0.5
    patience: int | None = 5
    clock: str = "episode"
    lower: str = "lcb"
    beta: float = 16.0
    optimism: float = 0.3
    cql_weight: float = 1.0
    features: int = 64
    length_scale: float = 2.0
    fresh: int = 16
    ridge: float = 1.0
    width: int = 64
    learning_rate: float = 5e-4
    huber: float = 1.0
    target: str = "polyak"
    tau: float = 0.005
    period: int = 200
    batch: int = 64
    replay: int = 100_000
    warm_up: int = 50
    pretraining: int = 10_000
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    anneal: float = 0.5
    entropy: float = 0.5
    action: int = 0

    def __post_init__(self) -> None:
        check_choice("agent", self.agent, AGENTS)
        if self.learner is not None:
            check_choice("learner", self.learner, LEARNERS)
        if self.agent == "paper" and self.learns_by != "networks":
            raise InvalidSetting(
                f"'learner' must be 'networks' for the agent 'paper', got {self.learner!r}. "
                "Leave it out, or use the agent 'chary'."
            )
        object.__setattr__(self, "ensemble", ensemble_options(self.ensemble))
        self._check_linear()
        check_choice("lower", self.lower, LOWER_BOUNDS)
        check_choice("clock", self.clock, CLOCKS)
        check_choice("target", self.target, TARGETS)
        check_choice("charge_from", self.charge_from, CHARGES_FROM)
        Rule.named(self.rule, eta=self.eta, step_bound=self.step_bound, after_refusal=self.after_refusal)
        if not isinstance(self.chains, (bool, type(None))):
            raise InvalidSetting(f"'chains' must be True, False or None, got {shown(self.chains)}.")
        for name in ("episodes", "features", "width", "period", "batch", "replay", "fresh"):
            check_integer(name, getattr(self, name), minimum=1)
        for name in ("warm_up", "pretraining", "action"):
            check_integer(name, getattr(self, name), minimum=0)
        if self.replay > LARGEST_REPLAY:
            raise InvalidSetting(f"'replay' must be at most {LARGEST_REPLAY}, got {shown(self.replay)}.")
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=0, way_out="Use None to wait for ever.")
        for name in ("discount", "epsilon_start", "epsilon_end", "entropy"):
            check_real(name, getattr(self, name), low=0.0, high=1.0)
        for name in ("radius", "beta", "optimism", "cql_weight"):
            check_real(name, getattr(self, name), low=0.0, open_high=True)
        for name in ("length_scale", "ridge", "learning_rate"):
            check_real(name, getattr(self, name), low=0.0, open_low=True, open_high=True)
        check_real("huber", self.huber, low=0.0, open_low=True)
        for name in ("tau", "anneal"):
            check_real(name, getattr(self, name), low=0.0, high=1.0, open_low=True)
        if self.pretraining > 0 and self.warm_up == 0:
            raise InvalidSetting(
                f"'pretraining' must be 0 without a warm-up, got {shown(self.pretraining)}. "
                "There is nothing to learn from: set 'warm_up' to 1 or more."
            )

    def _check_linear(self) -> None:
        if self.linear is not None:
            object.__setattr__(self, "linear", linear_model(self.linear))
        if self.learns_by != "linear":
            return
        if self.linear is None:
            raise InvalidSetting(
                "'linear' must be a LinearModel for the learner 'linear', got None. "
                "Give the range of rewards: linear=LinearModel(low=..., high=...)."
            )
        if self.agent not in WITHOUT_NETWORKS:
            raise InvalidSetting(
                f"'learner' must be 'ensemble' or 'networks' for the agent {self.agent!r}, with networks "
                "of its own, got 'linear'."
            )

    def check_action(self, n_actions: int) -> None:
        """Raise InvalidAction unless `action` is one of the actions of an environment."""
        if self.action >= n_actions:
            raise InvalidAction(
                f"'action' must lie in 0..{n_actions - 1}, got {shown(self.action)}. "
                "It is the action of the agent 'constant'."
            )

    @property
    def budget_rule(self) -> Rule:
        """The rule of the budget; with chains off the first refusal closes the episode."""
        rule = Rule.named(
            self.rule, eta=self.eta, step_bound=self.step_bound, after_refusal=self.after_refusal
        )
        return rule if self.chained or self.every_step else rule._replace(closes=True)

    @property
    def grounds(self) -> Grounds:
        """Everything that the promise of a budget leans on as far as options tell."""
        rule = self.rule if self.shielded else "none"
        if self.learns_by == "linear" and self.linear is not None:
            described = self.linear.describe()
            told = Grounds(rule=rule, eta=self.eta, step_bound=self.step_bound)
            return replace(told, delta=self.linear.risk, prior=described)
        also = (CONSTANTS[self.ensemble.constants],) if self.learns_by == "ensemble" else ()
        return Grounds(rule=rule, eta=self.eta, step_bound=self.step_bound, networks=True, also=also)

    @property
    def shielded(self) -> bool:
        """Whether the agent has a budget."""
        return self.agent in SHIELDED

    @property
    def learns_by(self) -> str:
        """The name of the learner."""
        return self.learner or ("networks" if self.agent == "paper" else "ensemble")

    @property
    def chained(self) -> bool:
        """Whether exploring steps are stitched to chains."""
        return self.learns_by == "networks" if self.chains is None else self.chains

    @property
    def every_step(self) -> bool:
        """Whether every step is a candidate for exploring, without chains."""
        return self.learns_by != "networks" and not self.chained

    @property
    def explorer_beta(self) -> float:
        """The weight of bonuses in the explorer, given the agent."""
        return 0.0 if self.agent in ("dqn", "sac") else self.optimism
