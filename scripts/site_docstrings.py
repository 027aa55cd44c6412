"""An extension of Griffe, the reader of the sources: it marks examples and completes named tuples."""

from __future__ import annotations

import re
from typing import Any

import griffe

HEADING = re.compile(r"^( *)Example:$", flags=re.MULTILINE)


class ShownAsMeant(griffe.Extension):
    """Name sections of examples as Griffe expects it, and give named tuples their signature."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section in one docstring, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub(r"\1Examples:", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Add the constructor that a named tuple's fields make."""
        if not any(str(base).split("[")[0] == "NamedTuple" for base in cls.bases):
            return
        fields = [
            griffe.Parameter(
                field.name,
                annotation=field.annotation,
                kind=griffe.ParameterKind.positional_or_keyword,
                default=field.value,
            )
            for field in cls.attributes.values()
            if "instance-attribute" in field.labels
        ]
        here = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        made = griffe.Function("__init__", parameters=griffe.Parameters(here, *fields), returns="None")
        cls.set_member("__init__", made)
