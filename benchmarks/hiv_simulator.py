"""Speed and accuracy of the HIV simulator, compared with SciPy's integrators.

python benchmarks/hiv_simulator.py [--turns 35]

The same as `chary bench hiv`; writes benchmarks/results/hiv-simulator.json and the table of docs/hiv.md.
"""

from __future__ import annotations

import argparse

from _jobs import ROOT, fill, record, table
from chary.bench.hiv import COLUMNS, bench_hiv


def main() -> None:
    """Measure, record, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=35)
    arguments = parser.parse_args()
    result = bench_hiv(turns=arguments.turns)
    written = record("hiv-simulator", result.to_json())
    fill(ROOT / "docs" / "hiv.md", "simulator", table(list(COLUMNS), [list(row) for row in result.rows()]))
    print(result.describe())
    print(written)


if __name__ == "__main__":
    main()
