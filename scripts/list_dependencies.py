"""Write docs/dependencies.md: what chary and each of its extras install, from the locked constraints.

    python scripts/list_dependencies.py [--check]

`make lock` writes the constraints and calls this. With --check nothing is written, and the exit code is 1 if
the page is not up to date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
LOCKS = ("dev.txt", "peers.txt")

HEAD = """# Dependencies

The packages that chary and each of its extras install, with everything that those need in turn. Derived
from the locked versions in `constraints/` by `scripts/list_dependencies.py`; some are needed on certain
platforms or versions of Python only. `make lock` renews both.

| extra | asks for | installs besides the core | number |
| --- | --- | --- | ---: |
"""

FOOT = """
## Locked versions

`constraints/dev.txt` contains the versions and hashes of everything that development uses, on Python 3.11
to 3.13, what builds the package included; `constraints/peers.txt` those of Stable-Baselines3 and d3rlpy.
`make LOCKED=1 suite` installs exactly these files, and pip refuses any with another hash. The tools that
install and look up (pip, uv, pip-audit) are not locked themselves. `make audit` looks all locked versions up
in the list of known vulnerabilities; the workflow does so for every change. Users install within the bounds
of `pyproject.toml`, whose lower ends `make test-lowest` tries.
"""


def plain(name: str) -> str:
    """Return the name of a package as indexes spell it, without extras, versions and markers."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name.strip(), maxsplit=1)[0]).lower()


def needed_by() -> dict[str, set[str]]:
    """Return the packages that each locked package needs, from the comments `# via`."""
    needs: dict[str, set[str]] = {}
    for lock in LOCKS:
        package, listing = "", False
        for line in (ROOT / "constraints" / lock).read_text(encoding="utf-8").splitlines():
            if match := re.match(r"([\w.-]+)==", line):
                package, listing = plain(match[1]), False
                needs.setdefault(package, set())
            elif match := re.match(r"    # via ?(.*)", line):
                listing = True
                if match[1]:
                    needs.setdefault(plain(match[1]), set()).add(package)
            elif listing and (match := re.match(r"    #   (\S+)", line)):
                needs.setdefault(plain(match[1]), set()).add(package)
    return needs


def closure(names: set[str], needs: dict[str, set[str]]) -> set[str]:
    """Return packages with all that they need."""
    found: set[str] = set()
    while new := names - found:
        found |= new
        names = {other for name in new for other in needs.get(name, ())}
    return found


def page() -> str:
    """Return the page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    needs = needed_by()

    def asked(requirements: list[str]) -> set[str]:
        names: set[str] = set()
        for each in requirements:
            if match := re.match(r"chary\[(.*)\]", each):
                for extra in match[1].split(","):
                    names |= asked(extras[extra])
            else:
                names.add(plain(each))
        return names

    core = closure(asked(project["dependencies"]), needs)
    rows = [("(core)", asked(project["dependencies"]), core - asked(project["dependencies"]), len(core))]
    for extra, requirements in extras.items():
        direct = asked(requirements)
        new = closure(direct, needs) - core
        rows.append((f"`{extra}`", direct, new - direct, len(new)))
    lines = [
        f"| {name} | {', '.join(sorted(direct))} | {', '.join(sorted(new)) or '-'} | {number} |"
        for name, direct, new, number in rows
    ]
    return HEAD + "\n".join(lines) + "\n" + FOOT


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1)
    PAGE.write_text(page(), encoding="utf-8")
