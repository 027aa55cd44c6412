"""Stands in for calls of the library until they are merged into this branch; then this file goes."""

from __future__ import annotations

from typing import Any

from chary.agents.tabular import TabularAgent


def install() -> None:
    """Add what is missing."""
    if hasattr(TabularAgent, "apply"):
        return
    plain_act, plain_begin, plain_init = TabularAgent.act, TabularAgent.begin, TabularAgent.__init__
    wrong: Any = TabularAgent

    def act(
        self: Any, episode: Any, t: int, state: int, *, proposal: Any = None, explore: bool = True
    ) -> Any:
        return plain_act(self, episode, t, state, proposal=proposal)

    def begin(self: Any, episode: Any, state: int, *, eta: Any = None) -> None:
        plain_begin(self, episode, state)

    def init(self: Any, *args: Any, replan: str = "", **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)

    def apply(self: Any, episode: Any, t: int, state: int, decision: Any, *, explore: bool = True) -> None:
        plain_act(self, episode, t, state)

    class Explained:
        action, charge, explored = 0, 0.0, False
        plan = t = state = baseline = 0
        deficit = remaining = 0.0
        actions = proposals = ()

    class Made:
        digest = "interim"

        def make(self) -> None:
            pass

    wrong.act, wrong.begin, wrong.__init__, wrong.apply = act, begin, init, apply
    wrong.recommend = wrong.explain = lambda self, episode, t, state: Explained()
    wrong.taken = wrong.tighten = wrong.adopt = lambda self, *args: None
    wrong.draft = lambda self: Made()
