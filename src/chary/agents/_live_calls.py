"""What a service asks of a tabular agent besides the protocol: reports, budgets of single episodes."""

from __future__ import annotations

from abc import ABC

from chary.agents._episodes import EpisodeId
from chary.agents._tabular_core import TabularCore
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.errors import InvalidBudget, InvalidSetting, check_real
from chary.texts import shown

# The rules whose promise holds for any budget, so that an episode may have its own.
OWN_BUDGETS = ("strict", "capped")


class LiveCalls(TabularCore, ABC):
    """Calls of a tabular agent in live use."""

    def tighten(self, episode: EpisodeId, eta: float) -> None:
        """Lower the budget of an open episode, from its next step on.

        A budget below what the episode has spent is allowed: then nothing more is afforded, not even steps
        that cost nothing. The same budget again changes nothing.

        Args:
            episode: An open episode.
            eta: The new budget, in the user's units, not above the present one.

        Raises:
            OutOfOrder: if the episode is not open.
            InvalidBudget: if `eta` is not finite and >= 0, or above the episode's budget.
            InvalidSetting: if the agent's rule is neither `strict` nor `capped`.
        """
        now = self._episodes.named("tighten", episode)
        limit, had = self._limit(eta), self._limit_of(now)
        if limit > had:
            raise InvalidBudget(
                f"'eta' must be at most the budget of the episode, {self.eta_of(episode):g}, got "
                f"{shown(eta)}. A budget is never raised."
            )
        if limit == had:
            return
        self._changing = True
        now.pinned.limits.append((now.t, limit))
        if self.shield is not None and not now.released:
            self.shield.tighten(now.name, limit)
            if now.pinned.closed_at < 0 and self.shield.ledger(now.name).closed:
                now.pinned.closed_at = now.t

    def _limit(self, eta: object) -> float:
        """Return an episode's own budget in scaled units."""
        spec = self.spec
        if not isinstance(spec, CharyUCBVI) or spec.rule not in OWN_BUDGETS:
            rule = spec.rule if isinstance(spec, CharyUCBVI) else "none"
            raise InvalidSetting(
                f"'eta' of one episode can be given with rules {' and '.join(OWN_BUDGETS)}, got {shown(eta)} "
                f"with rule {rule!r}, whose promise holds for the budget declared or for none."
            )
        budget = check_real("eta", eta, low=0.0, open_high=True, error=InvalidBudget)
        if spec.calibration is not None and spec.eta is not None and budget > spec.eta:
            raise InvalidBudget(
                f"'eta' of one episode must be at most {spec.eta:g}, which was calibrated, got {shown(eta)}."
            )
        return budget / self.setting.scale.span
