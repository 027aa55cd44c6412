"""Add files outside docs/ to the documentation site, as a hook of MkDocs.

Pages link to each other as files of the repository do. Here every file outside docs/ that a page links to
becomes part of the site, at its own path: Markdown and notebooks as pages, code as a page that shows it, the
rest unchanged. Links are rewritten to match; a broken link is left, and MkDocs reports it.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FRONT = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")),
)
LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)([^)#\s]+)")
README_PART = re.compile(r"^<!-- README: (.*) -->$", flags=re.MULTILINE)
# Code is a page, and the search passes it over: it would find each key of each experiment.
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
SHOWN_AS = {".py": "python", ".toml": "toml", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside docs/ that a page links to, and what those link to in turn."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting += [name for name in FRONT if (ROOT / name).exists()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/") and path != "README.md":
            for file in site_files(path, config):
                files.append(file)
        if path.endswith((".md", ".ipynb")):
            linked = {target for target in linked_paths(path) if (ROOT / target).is_file()}
            waiting += sorted(linked - seen)
            seen |= linked
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to their targets on the site, and insert parts of the README."""
    uri = page.file.src_uri
    outside = page.file.generated_by is not None
    text = moved_links(markdown, uri if outside else f"docs/{uri}", uri)
    return README_PART.sub(lambda found: moved_links(readme_part(found[1]), "README.md", uri), text)


def site_files(path: str, config: MkDocsConfig) -> Iterator[File]:
    """Yield the files of the site for one file of the repository."""
    uri, source = site_uri(path), ROOT / path
    if source.suffix == ".ipynb":
        page, pictures = notebook_page(json.loads(source.read_text(encoding="utf-8")), source.stem)
        yield File.generated(config, uri, content=page)
        for name, content in pictures.items():
            yield File.generated(config, posixpath.join(posixpath.dirname(uri), name), content=content)
    elif source.suffix in SHOWN_AS:
        code = source.read_text(encoding="utf-8").rstrip()
        page = (
            f'{NOT_SEARCHED}# `{source.name}`\n\n````{SHOWN_AS[source.suffix]} title="{path}"\n{code}\n````\n'
        )
        yield File.generated(config, uri, content=page)
    else:
        yield File.generated(config, uri, abs_src_path=str(source))


def site_uri(path: str) -> str:
    """Return the path of a file of the repository among the sources of the site."""
    suffix = posixpath.splitext(path)[1]
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if suffix == ".ipynb":
        return path.removesuffix(suffix) + ".md"
    return path + ".md" if suffix in SHOWN_AS else path


def linked_paths(path: str) -> set[str]:
    """Return the paths in the repository that a page links to, whether they exist or not."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return {repository_path(path, link) for link in LINK.findall(text)}


def repository_path(page: str, link: str) -> str:
    """Return the path in the repository of a page's link; a folder stands for its README."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def moved_links(text: str, source: str, uri: str) -> str:
    """Return the text of file `source` with its links rewritten for the page `uri`."""

    def moved(found: re.Match[str]) -> str:
        path = repository_path(source, found[1])
        if not (ROOT / path).is_file():
            return found[1]
        return os.path.relpath(site_uri(path), posixpath.dirname(uri) or ".").replace(os.sep, "/")

    return LINK.sub(moved, text)


def readme_part(heading: str) -> str:
    """Return the text of the README between a heading and the next one of its level."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    level = heading.split()[0]
    _, found, rest = text.partition(f"{heading}\n")
    if not found:
        raise ValueError(
            f"README.md must have the heading {heading!r}. Correct the name of the part in docs/index.md."
        )
    return re.split(rf"^(?:#{{1,{max(len(level), 2)}}} )", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()


def notebook_page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure drawn by the code above]({picture})")
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"``` {{ .text .output }}\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures
