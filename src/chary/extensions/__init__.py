"""Code of the user's own, named in a text: "module:name", or the name of an entry point.

This is the only place that imports what a text names, and the one boundary around such code: whatever it
raises becomes one sentence. A name is resolved without importing anything; `load` alone imports.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from chary.errors import CharyError, FailedCode, InvalidSetting, UnknownName, did_you_mean
from chary.texts import shown

__all__ = ["GROUPS", "installed", "is_reference", "load", "parameters_of", "resolved"]

# The groups of entry points, by what they are.
GROUPS = {"agent": "chary.agents", "problem": "chary.problems"}
LONGEST_NAME = 200


def is_reference(name: object) -> bool:
    """Return whether a text has the form "module:name".

    Example:
        >>> is_reference("clinic.agents:Mine"), is_reference("inventory"), is_reference("a:b:c")
        (True, False, False)
    """
    if not isinstance(name, str) or len(name) > LONGEST_NAME or name.count(":") != 1:
        return False
    return all(word.isidentifier() for part in name.split(":") for word in part.split("."))


def installed(what: str) -> dict[str, str]:
    """Return the entry points of installed packages, "module:name" by name; nothing is imported.

    Args:
        what: `agent` or `problem`.
    """
    found = {each.name: f"{each.module}:{each.attr}" for each in metadata.entry_points(group=GROUPS[what])}
    return {name: value for name, value in found.items() if is_reference(value)}


def resolved(what: str, name: object, known: Iterable[str]) -> str:
    """Return a name that is known, or the "module:name" that it is or stands for; nothing is imported.

    Args:
        what: `agent` or `problem`.
        name: The name of one of chary's, of an entry point, or "module:name".
        known: The names of chary's own.

    Raises:
        UnknownName: if it is none of these.

    Example:
        >>> resolved("agent", "chary", ["chary"]), resolved("agent", "clinic:Mine", ["chary"])
        ('chary', 'clinic:Mine')
    """
    ours = list(known)
    if isinstance(name, str) and (name in ours or is_reference(name)):
        return name
    others = installed(what)
    if isinstance(name, str) and name in others:
        return others[name]
    names = [*ours, *others]
    raise UnknownName(
        f"{what!r} must be one of {', '.join(names)}, or your own as 'module:name', got {shown(name)}."
        f"{did_you_mean(name, names)}"
    )


def load(what: str, reference: str) -> Callable[..., Any]:
    """Import what "module:name" names, and return it.

    The current folder is searched after everything else, so that no file in it takes the place of a package.

    Raises:
        InvalidSetting: if there is no such module, or nothing in it of this name that can be called.
        FailedCode: if the module raises an error.
    """
    if not is_reference(reference):
        raise InvalidSetting(f"{what!r} must be of the form 'module:name', got {shown(reference)}.")
    module, _, name = reference.partition(":")
    here = os.getcwd()
    if not {"", here} & set(sys.path):
        sys.path.append(here)
    try:
        with theirs(f"{what} {reference!r}"):
            found: Any = import_module(module)
    except FailedCode as problem:
        if not isinstance(problem.__cause__, ModuleNotFoundError):
            raise
        raise InvalidSetting(
            f"{what!r} must name a module that can be imported, got {reference!r}: {problem.__cause__}. "
            "Start chary in the module's folder, or install it."
        ) from problem
    for part in name.split("."):
        names = [each for each in vars(found) if not each.startswith("_")]
        if part not in vars(found):
            raise InvalidSetting(
                f"{what!r} must name something in module {module!r}, got {reference!r}."
                f"{did_you_mean(part, names)}"
            )
        found = vars(found)[part]
    if not callable(found):
        raise InvalidSetting(
            f"{what!r} must name a function or a class, got {reference!r}, which is a {type(found).__name__}."
        )
    return found  # type: ignore[no-any-return]


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters that have a name of their own; none where Python cannot tell."""
    try:
        found = signature(function).parameters
    except (TypeError, ValueError):
        return {}
    variable = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    return {name: each for name, each in found.items() if each.kind not in variable}


def check_options(what: str, function: Callable[..., Any], given: Mapping[str, Any], taken: int = 0) -> None:
    """Raise InvalidSetting at an option that a function does not take, or at a missing one.

    Args:
        what: The function, for the message.
        function: The user's function or class.
        given: The options.
        taken: How many of its first parameters are not options.
    """
    parameters = list(parameters_of(function).values())[taken:]
    names = [each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY]
    for name, value in given.items():
        if name not in names:
            raise InvalidSetting(
                f"{name!r} must be an option of {what} ({', '.join(names) or 'none'}), got "
                f"{name}={shown(value)}.{did_you_mean(name, names)}"
            )
    for each in parameters:
        if each.default is Parameter.empty and each.name not in given:
            raise InvalidSetting(f"{each.name!r} must be given for {what}, which has no default for it.")


def source_of(reference: str) -> dict[str, str | None]:
    """Return the file of a loaded module and its SHA-256, None where it has no file that can be read."""
    module = reference.partition(":")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        digest = None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        digest = None
    return {"reference": reference, "sha256": digest}


@contextmanager
def theirs(what: str) -> Iterator[None]:
    """Turn what the user's code inside raises into one sentence that names it; errors of chary stay.

    Raises:
        FailedCode: in place of any other error, from which it is raised.
    """
    try:
        yield
    except CharyError:
        raise
    except SystemExit as problem:
        raise FailedCode(f"{what} must not end the program, got SystemExit({problem.code}).") from problem
    except Exception as problem:  # the boundary around code of the user's, which may raise anything
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise FailedCode(f"{what} raised {type(problem).__name__}: {problem} ({where}).") from problem
