"""Options of commands, generated from dataclasses and functions: from fields, types and `Args:` sections.

A command is a function. Its parameters are options or arguments of Typer, frozen dataclasses, which stand for
one option per field, or dictionaries annotated with `Options`, which stand for one option per parameter of a
function. Options are generated when the command is invoked, so that `chary --help` imports no numerics.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from typer.core import TyperCommand

from chary.texts import shown

ALL = ("*",)
# One entry of a docstring's section `Args:`, and where its first sentence ends.
ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z`])")

# The options that were given, by parameter: keyword arguments for the function they were generated from.
Given: TypeAlias = dict[str, Any]

Problem = Annotated[
    str,
    typer.Argument(
        help="Name of a problem, as listed by `chary problems`, or your own as module:name.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite existing results.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions:
    """The options that every problem has.

    Args:
        actions: Which actions may be played.
        horizon: Number of steps per episode.
    """

    actions: Annotated[str | None, ("admissible", "all")] = None
    horizon: int | None = None

    def given(self) -> Given:
        """Return those that were given, as keyword arguments for `chary.envs.make`."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


class Options(NamedTuple):
    """The source of generated options.

    `source` is a dataclass, a function, or "module:name" of one or of a dictionary of them, which is imported
    when the command is invoked. Parameters `without` an option are left out, as are those of types that no
    text describes; `names` are options called otherwise than their parameter; options that are `unset` have
    no default, so that the command decides what to do without them.
    """

    source: str | Callable[..., Any]
    without: tuple[str, ...] = ()
    names: Mapping[str, str] = {}
    unset: tuple[str, ...] = ()


def command(app: typer.Typer, name: str, function: Any) -> None:
    """Add a command to an app; its options are generated when it is invoked.

    A command that takes the context finds arguments after its last option there: an extra number behind
    `--etas 0.1` is one more budget.
    """
    more = "context" in inspect.signature(function).parameters
    settings = {"allow_extra_args": more, "ignore_unknown_options": False}

    class Late(TyperCommand):
        def make_context(self, *arguments: Any, **extra: Any) -> Any:
            alone = typer.Typer(add_completion=False, rich_markup_mode=self.rich_markup_mode)
            alone.command(name, context_settings=settings)(_flat(function))
            return typer.main.get_command(alone).make_context(*arguments, **extra)

    def described() -> None: ...

    described.__doc__ = function.__doc__
    app.command(name, cls=Late)(described)


def _flat(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function whose parameters are single options, and which calls `function` with the groups."""
    own: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, dict[str, str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        options = _options_of(parameter.annotation)
        if options is None:
            own.append(parameter)
            continue
        generated = dict(_generated(options))
        names = {each.name: source for source, each in generated.items()}
        own += generated.values()
        groups[parameter.name] = (parameter.annotation if is_dataclass(parameter.annotation) else dict, names)

    def call(**values: Any) -> None:
        for group, (make, names) in groups.items():
            chosen = {source: values.pop(name) for name, source in names.items()}
            given = {source: value for source, value in chosen.items() if value is not None}
            values[group] = make(**given)
        function(**values)

    flat = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    call.__doc__ = function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in flat}
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return call


def _options_of(annotation: Any) -> Options | None:
    """Return where the options of a command's parameter come from, None if it is an option itself."""
    if is_dataclass(annotation):
        return Options(typing.cast("Callable[..., Any]", annotation))
    return next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Options)), None)


def _generated(options: Options) -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield the parameters of a source, each with the option generated from it."""
    source: Any = options.source
    if isinstance(source, str):
        module, _, name = source.partition(":")
        source = getattr(import_module(module), name)
    seen = set(options.without)
    for each in source.values() if isinstance(source, Mapping) else (source,):
        hints, texts = typing.get_type_hints(each, include_extras=True), _texts(each)
        for name, parameter in inspect.signature(each).parameters.items():
            if name in seen or parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            seen.add(name)
            unset = name in options.unset or options.unset == ALL or parameter.default is parameter.empty
            called, default = options.names.get(name, name), None if unset else parameter.default
            option = _option(called, hints[name], default, texts.get(name, ""))
            if option is not None:
                yield name, option


def _option(name: str, hint: Any, default: Any, text: str) -> inspect.Parameter | None:
    """Return the option generated from one parameter, None where its type is not one that texts describe."""
    described: Any = None
    if typing.get_origin(hint) is Annotated:
        hint, described = typing.get_args(hint)
    members = typing.get_args(hint) or (hint,)
    several = typing.get_origin(hint) in (Iterable, Sequence)
    kind: Any = next((each for each in METAVARS if each in members), None)
    if kind is None:
        return None
    declarations: list[str] = []
    settings: dict[str, Any] = {"help": text}
    if kind is bool and default is not None:
        declarations = [] if default else [f"--{name.replace('_', '-')}"]
    else:
        settings["metavar"] = described if isinstance(described, str) else "|".join(described or ())
        settings["metavar"] = settings["metavar"] or METAVARS[kind]
        kind, parser = PARSED.get(kind, (kind, None))
        parser = _whole_or_none if settings["metavar"] == "N|none" else parser
        settings |= {} if parser is None else {"parser": parser}
    default = None if several else default
    kind = list[kind] if several else kind
    option = typer.Option(*declarations, **settings)
    annotation: Any = Annotated[kind | None if default is None else kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _texts(source: Any) -> dict[str, str]:
    """Return the first sentence about each parameter, from the docstrings of a function or of classes."""
    texts: dict[str, str] = {}
    for each in reversed(source.__mro__) if isinstance(source, type) else (source,):
        about = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2]
        for name, text in ENTRY.findall(about.partition("\n\n")[0]):
            texts[name] = SENTENCE.split(" ".join(text.split()))[0]
    return texts


def _whole(text: str) -> int:
    """Read a whole number; the parser's own message would not show the value."""
    try:
        return int(text)
    except ValueError as problem:
        raise typer.BadParameter(f"must be a whole number, got {shown(text)}.") from problem


def _whole_or_none(text: str) -> int | str:
    """Read a whole number, or `none`, which stays a text: None is an option that was not given."""
    return text if text == "none" else _whole(text)


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError as problem:
        raise typer.BadParameter(f"must be a number, got {shown(text)}.") from problem


# The types that options can have, by precedence in a union, and what stands for a value in the help.
METAVARS: dict[type, str] = {str: "NAME", Path: "FILE", bool: "on|off", int: "N", float: "X"}
# What the parser makes of a text; a boolean without a default stays a text, on or off.
PARSED: dict[type, tuple[type, Callable[[str], Any] | None]] = {
    bool: (str, None),
    int: (int, _whole),
    float: (float, _real),
}
