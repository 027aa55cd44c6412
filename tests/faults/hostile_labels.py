"""A program that shows hostile names and counts outcomes: `python tests/faults/hostile_labels.py [COUNT]`.

A name is shown as `text` if whoever reads the output finds its letters there, and nothing in it was obeyed:
no markup of rich, no escape of a terminal, no formula of matplotlib or of a spreadsheet, no tag. Anything
else is `obeyed`, or the exception that it raised.
"""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from chary.charts import Chart, Panel, Series, draw_files, plotly_figure
from chary.cli import terminal
from chary.pages import _environment
from chary.report import page as report_page
from chary.report.tables import csv_bytes

PIECES = [
    "chary", "=1+1", "+1", "-1", "@SUM(A1)", "[red]", "[/red]", "[link=x]", "$", "$x^2$", r"$\frac{1}$",
    r"\$", "_", "<b>", "</b>", "<script>", "</script>", "<!--", "-->", "&lt;", "&#36;", "%{x}", "%{y:.2f}",
    "{", "}", "\x1b[31m", "\x1b]0;title\x07", "\x00", "\r", "\n", "\t", "\x7f", "\x9b2J", "\u202e", "\u2028",
    "\ud800", "'", '"', ";=2", ",", "é", "η", "日本", "😀", "\\", "\\n", "`", "<a href='javascript:x'>",
    "<br>", " ",
]  # fmt: skip


def name_of(rng: random.Random) -> str:
    """Return a name made of a few hostile pieces."""
    return "a" + "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 6))) + "z"


def starting(rng: random.Random) -> str:
    """Return a name that begins with a hostile piece."""
    return name_of(rng)[1:]


def expected(name: str, *, keep: str = "") -> str:
    """Return the letters that a reader finds for a name, found without chary's own function."""
    hidden = "\x00\x1b\x07\r\n\t\x7f\x9b\u202e\u2028\ud800"
    return "".join(ascii(each)[1:-1] if each in hidden and each not in keep else each for each in name)


def on_terminal(name: str, *, rich: bool) -> str:
    """Return what a terminal receives of a table, a bar and a line with this name, without rich's colours."""

    class Screen(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return rich

    screen = Screen()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        terminal.show(["algorithm", name], [[name, "1"], ["other", "2"]])
        print(name) if not hasattr(terminal, "say") else terminal.say(name)
    return screen.getvalue()


def plain(rng: random.Random) -> bool:
    name = name_of(rng)
    printed = on_terminal(name, rich=False)
    return printed.count(expected(name)) >= 2 and printed.replace("\n", "").isprintable()


def rich_table(rng: random.Random) -> bool:
    name = name_of(rng)
    printed = on_terminal(name, rich=True)
    # Without the frame, and the colours that rich itself sets.
    lines = printed.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    cells = [cell.strip() for line in lines for cell in line.replace("┃", "│").split("│")]
    wide = any(ord(letter) > 0x2FFF for letter in name)
    found = expected(name).strip() in cells or wide or len(name) > 30
    return found and all(line.isprintable() for line in lines)


def chart_of(name: str) -> Chart:
    points = {"x": (1.0, 2.0), "y": (1.0, 2.0), "colour": "#112233"}
    series = tuple(Series(label=label, **points) for label in (name, "other"))  # type: ignore[arg-type]
    panel = Panel(title=name, x_label=name, y_label=name, series=series, categories=(name, "b"))
    return Chart(key="k", title=name, caption=name, panels=(panel,))


def matplotlib_file(rng: random.Random) -> bool:
    """Whether all texts of a figure are drawn as they are: matplotlib is asked what it would draw."""
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    name, drawn = starting(rng), set()
    before = Text.draw

    def draw(self: Any, renderer: Any) -> None:
        text, formula = self._preprocess_math(self.get_text())
        drawn.add((text, bool(formula), isinstance(self.figure, Legend)))
        before(self, renderer)

    Text.draw = draw  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")
            draw_files(chart_of(name))
    finally:
        Text.draw = before  # type: ignore[method-assign]
    texts = {text for text, *_ in drawn}
    return expected(name) in texts and not any(formula for _, formula, _ in drawn)


def plotly_page(rng: random.Random) -> bool:
    """Whether a figure's texts are the name once a browser has decoded them, without tags and templates."""
    name = name_of(rng)
    figure = plotly_figure(chart_of(name))
    layout = figure["layout"]
    texts = [trace["name"] for trace in figure["data"]] + list(layout["xaxis"]["ticktext"])
    texts += [layout["xaxis"]["title"]["text"], layout["annotations"][0]["text"][3:-4]]
    templates = [
        trace.get("hovertemplate", "").replace("%{y:.4~g}<extra></extra>", "") for trace in figure["data"]
    ]
    lines = "<br>".join(expected(line) for line in name.split("\n")) if "\n" in name else expected(name)
    seen = [html.unescape(text) for text in texts if text not in ("other", "b")]
    obeyed = any("<" in text.replace("<br>", "") or "%{" in text for text in [*texts, *templates])
    return all(text == lines for text in seen) and not obeyed


def spreadsheet(rng: random.Random) -> bool:
    """Whether no cell begins a formula, in either half of the world."""
    name = starting(rng)
    written = csv_bytes([{"algorithm": name, "n": -1.5}]).decode("utf-8", "replace")
    _, row = csv.reader(io.StringIO(written, newline=""))
    parts = [part for cell in row[:1] for part in cell.split(";")]
    safe = not any(
        part.lstrip(" \"'\t\r\n").startswith(("=", "+", "-", "@")) and not part.startswith("'")
        for part in parts
    )
    return safe and row[1] == "-1.5" and row[0].replace("'", "") == expected(name).replace("'", "")


class Seen(HTMLParser):
    """The texts and the elements that a browser makes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.texts += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html_page(rng: random.Random) -> bool:
    name, seen = name_of(rng), Seen()
    page = _environment().from_string('<p title="{{ name }}">{{ name }}</p>').render(name=name)
    seen.feed(page)
    seen.close()
    wanted = expected(name, keep="\n\t")
    return seen.tags == ["p"] and seen.texts == [wanted, wanted]


def charts_in_script(rng: random.Random) -> bool:
    """Whether figures inside a page's script element stay inside, and are read back as they were."""
    name = name_of(rng).replace("\ud800", "")
    text = str(report_page._charts_json([chart_of(name)], 10))
    inside = "</script" not in text.lower() and "<!--" not in text
    return inside and json.loads(text)["charts"][0]["data"][0]["legendgroup"] == name


SINKS: dict[str, Callable[[random.Random], bool]] = {
    each.__name__: each
    for each in (plain, rich_table, matplotlib_file, plotly_page, spreadsheet, html_page, charts_in_script)
}


def show_many(sink: str, count: int, seed: int = 0) -> Counter[str]:
    """Show `count` names in a sink, and return how often each outcome came."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + count):
        try:
            shown = SINKS[sink](random.Random(f"{sink} {number}"))
        except Exception as problem:
            found[f"raised {type(problem).__name__}"] += 1
        else:
            found["text" if shown else "obeyed"] += 1
    return found


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for each in sys.argv[2:] or SINKS:
        counted = show_many(each, number // 20 if each == "matplotlib_file" else number)
        print(json.dumps({"sink": each, **counted}), flush=True)
