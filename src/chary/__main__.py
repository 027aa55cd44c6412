"""`python -m chary` is `chary`."""

from __future__ import annotations

from chary.cli import main

if __name__ == "__main__":
    main()
