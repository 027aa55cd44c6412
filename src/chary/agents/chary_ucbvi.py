"""chary itself: UCBVI inside a per-episode budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from chary.agents.protocol import POSTERIOR
from chary.agents.worlds import WORLD_OPTIONS, WorldsSpec
from chary.errors import (
    InvalidBudget,
    InvalidSetting,
    check_choice,
    check_integer,
    check_real,
    check_truth,
    check_type,
)
from chary.mdp import Setting
from chary.model.calibration import CalibrationRecord
from chary.model.risk_calibration import RiskRecord
from chary.planner._full import CHARGES
from chary.shield import AFTER_REFUSAL, CLOCKS, RULES, Rule
from chary.shield.chains import PATIENCE
from chary.shield.worlds import Panel
from chary.standing import Grounds
from chary.texts import shown

DATA = ("all", "meta")
# Charges and explorers by posterior worlds.
WORLD_CHARGES = ("quantile", "worlds")
EXPLORERS = ("sampled", "optimistic")

# A table of value differences has H * S^2 entries and is computed before every episode.
MAX_DIFFERENCE_STATES = 128
# The explorers of all open chains are kept, in 16 bits per action.
MAX_ACTIONS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CharyUCBVI(WorldsSpec):
    """Uniformly conservative UCBVI, docs/algorithm.md sections 2 to 5.

    Args:
        rule: Rule that decides which exploring steps the budget allows.
        step_bound: Largest true gap assumed by rule capped, in the problem's reward units.
        after_refusal: Whether an episode may explore again after a refusal. `pause` keeps the ledger open for
            cheaper steps later in the episode, `close` ends exploration. By default `pause` (`close` with
            chains off).
        charge: Formula for the charge of an exploring step, by default coupled. With posterior worlds,
            `worlds` (the default) keeps a deficit per world, `quantile` books an upper end of their gaps.
        risk: Probability, in (0, 1), of exceeding the budget in an episode, given the prior of the worlds.
        explorer: Whether explorers are the optimal policies of single posterior worlds or, with optimistic,
            maximise mean + sd over the exploring worlds.
        pool: Largest number of chains open at once, >= 1, by default 1000. With posterior worlds it is 100.
        clock: Whether explorers count the steps of the episode or, with meta, of the chain.
        data: Whether explorers learn from all data or, with meta, from the warm-up and finished chains.
        patience: Number of episodes without an advance after which a chain is abandoned, none for never.
        chains: Whether exploration resumes in later episodes; off explores from each start until refused.
        calibration: The calibration of the bonus scale, `chary.calibrate.calibrate(...).record`, or of the
            risk, `chary.calibrate.calibrate_risk(...).record`. By default simulations use those of the
            problem's preset.
    """

    name: ClassVar[str] = "chary"
    summary: ClassVar[str] = "UCBVI inside a per-episode exploration budget"
    shielded: ClassVar[bool] = True

    rule: Annotated[str, RULES] = "strict"
    step_bound: float | None = None
    after_refusal: Annotated[str | None, AFTER_REFUSAL] = None
    charge: Annotated[str, (*CHARGES, *WORLD_CHARGES)] = ""
    risk: float = 0.001
    explorer: Annotated[str, EXPLORERS] = "sampled"
    # Resolved when a specification is made, so that everybody reads a number.
    pool: int = None  # type: ignore[assignment]
    clock: Annotated[str, CLOCKS] = "episode"
    data: Annotated[str, DATA] = "all"
    patience: Annotated[int | None, "N|none"] = PATIENCE
    chains: bool = True
    calibration: CalibrationRecord | RiskRecord | None = None

    def __post_init__(self) -> None:
        check_type("bonus", self.bonus, str, "the name of a family of bounds")
        if self.charge == "":
            object.__setattr__(self, "charge", "worlds" if self.bonus == POSTERIOR else "coupled")
        if self.pool is None:
            object.__setattr__(self, "pool", 100 if self.bonus == POSTERIOR else 1000)
        self.check()

    def check(self) -> None:
        """Raise a CharyError at the first option that is out of range or excluded by another."""
        # The decorator replaces slotted dataclasses: zero-argument super() would miss the new class.
        WorldsSpec.check(self)
        check_choice("rule", self.rule, RULES)
        if self.eta is None and self.rule not in ("unlimited", "closed"):
            raise InvalidSetting(
                f"'eta' must be given with rule {self.rule!r}, got None. "
                "Use rule 'unlimited' for no budget at all."
            )
        check_truth("chains", self.chains)
        self.resolved_rule(1.0)
        self._check_worlds()
        check_choice("clock", self.clock, CLOCKS)
        check_choice("data", self.data, DATA)
        check_integer("pool", self.pool, minimum=1)
        if self.calibration is not None:
            of_risk = self.bonus == POSTERIOR
            kind, words = (RiskRecord, "risk") if of_risk else (CalibrationRecord, "bonus scale")
            check_type("calibration", self.calibration, kind, f"the record of a calibrated {words}")
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=0, way_out="Use None to wait for ever.")
        if not self.chains and self.after_refusal == "pause":
            raise InvalidSetting(
                "'after_refusal' must be 'close' with chains off, got 'pause': without chains nothing could "
                "resume. Leave it out."
            )

    def _check_worlds(self) -> None:
        """Raise a CharyError where charge, data or rule do not fit the bonus."""
        Panel.of(self.risk, worlds=self.worlds)
        check_choice("explorer", self.explorer, EXPLORERS)
        check_choice("charge", self.charge, (*CHARGES, *WORLD_CHARGES))
        fitting = WORLD_CHARGES if self.bonus == POSTERIOR else CHARGES
        if self.charge not in fitting:
            raise InvalidSetting(
                f"'charge' must be {' or '.join(fitting)} with bonus {self.bonus!r}, got "
                f"{shown(self.charge)}."
            )
        if self.bonus == POSTERIOR and self.data == "meta":
            raise InvalidSetting("'data' must be 'all' with bonus 'posterior', got 'meta'.")
        if self.charge == "worlds" and self.rule in ("capped", "paper"):
            raise InvalidSetting(
                f"'rule' must be strict, unlimited or closed where every world keeps a deficit, "
                f"got {shown(self.rule)}. Use charge 'quantile'."
            )

    def check_problem(self, setting: Setting) -> None:
        """Raise InvalidSetting if these options cannot work on a problem of this size."""
        WorldsSpec.check_problem(self, setting)
        if setting.n_actions > MAX_ACTIONS:
            raise InvalidSetting(f"'n_actions' must be at most {MAX_ACTIONS}, got {setting.n_actions}.")
        if self.charge == "difference" and setting.n_states > MAX_DIFFERENCE_STATES:
            raise InvalidSetting(
                f"'charge' can be 'difference' up to {MAX_DIFFERENCE_STATES} states, got {setting.n_states}. "
                "Use charge 'coupled'."
            )

    def resolved_rule(self, span: float) -> Rule:
        """Return the rule in scaled units, one of which is worth `span` of the user's."""
        eta = float("inf")
        if self.eta is not None:
            eta = check_real("eta", self.eta, low=0.0, error=InvalidBudget) / span
        bound = self.step_bound
        if bound is not None:
            bound = check_real("step_bound", bound, low=0.0, open_low=True, error=InvalidBudget) / span
        return Rule.named(self.rule, eta=eta, step_bound=bound, after_refusal=self._after)

    @property
    def _after(self) -> str:
        """The rule after a refusal, by default or as given."""
        return ("pause" if self.chains else "close") if self.after_refusal is None else self.after_refusal

    def grounds(self, setting: Setting | None = None) -> Grounds:
        """Return what the promise leans on, the rule included."""
        delta = self.risk if self.bonus == POSTERIOR else self.delta
        told = WorldsSpec.grounds(self, setting)
        return replace(told, rule=self.rule, step_bound=self.step_bound, delta=delta)

    def options(self) -> dict[str, Any]:
        """Return the options as results list them."""
        pool = self.pool if self.chains else None
        return {**WorldsSpec.options(self), "after_refusal": self._after, "pool": pool}

    def calibrated(self, episodes: int, warmup: int) -> dict[str, Any]:
        """Return what a calibration must share with a run of this agent, by the names of its record."""
        prior = self.prior if isinstance(self.prior, str) else "none" if self.prior is None else "given"
        played = {"prior": prior, "episodes": episodes, "warmup": warmup}
        options = self.options()
        if self.bonus == POSTERIOR:
            # Worlds have neither a scaled bonus nor delta.
            return {**options, "eta": self.eta, **played}
        options = {name: value for name, value in options.items() if name not in WORLD_OPTIONS}
        return {"ties": "index", **options, "eta": self.eta, "delta": self.delta, **played}
