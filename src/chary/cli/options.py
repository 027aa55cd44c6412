"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = [
    "Actions",
    "Charge",
    "Delta",
    "Episodes",
    "Eta",
    "Horizon",
    "Json",
    "Overwrite",
    "Problem",
    "RewardKnowledge",
    "RuleName",
    "Seed",
    "StepBound",
    "Warmup",
    "count",
    "number",
    "word",
]


def _whole(text: str) -> int:
    """Read a whole number; the parser's own complaint would not show what it was given."""
    try:
        return int(text)
    except ValueError as problem:
        raise typer.BadParameter(f"must be a whole number, got {text!r}.") from problem


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError as problem:
        raise typer.BadParameter(f"must be a number, got {text!r}.") from problem


def number(about: str) -> Any:
    """Return an option that takes a number."""
    return typer.Option(help=about, parser=_real, metavar="X")


def count(about: str) -> Any:
    """Return an option that takes a whole number."""
    return typer.Option(help=about, parser=_whole, metavar="N")


def word(choices: str, about: str) -> Any:
    """Return an option that takes one of some words."""
    return typer.Option(help=about, metavar=choices)


# Options that several commands share. They are plain words here: chary itself refuses unknown ones and
# suggests the nearest, the same for the command line as for Python.
Problem = Annotated[str, typer.Argument(help="A problem's name, see `chary problems`.", show_default=False)]
Eta = Annotated[float | None, number("Budget of every episode, in the problem's reward units; inf is none.")]
RewardKnowledge = Annotated[
    str | None, word("known|estimated", "What the agent knows of the reward function.")
]
RuleName = Annotated[
    str | None, word("strict|capped|paper|unlimited|closed", "Which exploring steps the budget affords.")
]
StepBound = Annotated[float | None, number("With rule capped: the largest true gap assumed.")]
Charge = Annotated[str | None, word("paper|coupled|difference", "What an exploring step is charged.")]
Delta = Annotated[float | None, number("Probability with which the bounds of a run may fail.")]
Episodes = Annotated[int | None, count("Online episodes.")]
Warmup = Annotated[int | None, count("Uniformly random episodes before them.")]
Seed = Annotated[int, count("All randomness comes from it.")]
Actions = Annotated[str | None, word("admissible|all", "Which actions may be played.")]
Horizon = Annotated[int | None, count("Steps of an episode.")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that lie there already.")]
