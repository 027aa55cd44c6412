"""Texts of users, shown as text: values in messages, and names without control characters."""

from __future__ import annotations

import unicodedata

# Characters of a whole message, and of one value in it.
LONGEST_MESSAGE = 500
LONGEST_VALUE = 120
# Bits of the largest integer that is written out; Python refuses to write those with more than 4,300 digits.
WRITTEN_BITS = 256
# Control characters, directions and other invisible ones, halves of characters, and line separators.
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
# They join letters in some languages and signs in emoji, and move nothing.
JOINERS = "\u200c\u200d"
# A `repr` may raise these: a number of 5,000 digits, a list within itself, an object half made.
UNSHOWABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text whose control characters are written as escapes, so that a terminal does not obey them.

    Args:
        text: Any text.
        keep: Control characters that stay as they are, for example the line breaks of a paragraph.

    Example:
        >>> print(visible("red \x1b[31m, reversed \u202e, née"))
        red \x1b[31m, reversed \u202e, née
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter
        if letter in keep or letter in JOINERS or unicodedata.category(letter) not in HIDDEN
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def clipped(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return a text of at most `most` characters, the middle of a longer one summarised.

    Example:
        >>> clipped("a" * 1000, 60)
        'aaaaaaaaaaaaaaaaaaaa [970 characters left out] aaaaaaaaaa'
    """
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3 - 20, most // 3 - 10
    return f"{text[:head]} [{len(text) - head - tail} characters left out] {text[-tail:]}"


def shown(value: object, most: int = LONGEST_VALUE) -> str:
    """Return a value for a message: its `repr` on one line, shortened, or its type where it has none.

    Example:
        >>> shown("much"), shown(10**5000), shown([10**5000])
        ("'much'", 'a whole number of about 5001 digits', 'a list that cannot be printed')
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > WRITTEN_BITS:
        return f"a whole number of about {int(value.bit_length() * 0.30103) + 1} digits"
    if isinstance(value, (str, bytes)) and len(value) > most:
        return f"{value[: most - 30]!r} and {len(value) - most + 30} more characters"
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except UNSHOWABLE:
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= most else f"{text[: most - 3]}..."
