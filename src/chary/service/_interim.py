"""Stands in for calls of the library until they are merged into this branch; then this file goes."""

from __future__ import annotations

from typing import Any

from chary.agents.tabular import TabularAgent


def install() -> None:
    """Add what is missing."""
    if hasattr(TabularAgent, "apply"):
        return
    wrong: Any = TabularAgent
    plain_init, plain_act = wrong.__init__, wrong.act
    explores = hasattr(wrong, "recommend")

    def init(self: Any, *args: Any, replan: str = "", **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)

    def apply(self: Any, episode: Any, t: int, state: int, decision: Any, *, explore: bool = True) -> None:
        options = {"explore": explore} if explores else {}
        plain_act(self, episode, t, state, **options)

    class Made:
        digest = "interim"

        def make(self) -> None:
            pass

    wrong.__init__, wrong.apply = init, apply
    wrong.adopt = lambda self, *args: None
    wrong.draft = lambda self: Made()
    if explores:
        return
    plain_begin = wrong.begin
    wrong.act = lambda self, *args, explore=True, **options: plain_act(self, *args, **options)
    wrong.begin = lambda self, episode, state, *, eta=None: plain_begin(self, episode, state)

    class Told:
        action, charge, explored = 0, 0.0, False
        plan = t = state = baseline = 0
        deficit = remaining = 0.0
        actions = proposals = ()

    wrong.recommend = wrong.explain = lambda self, episode, t, state: Told()
    wrong.taken = wrong.tighten = lambda self, *args: None
