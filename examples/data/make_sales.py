"""Make sales.csv, the sales of one article in 600 shops of a chain, ten weeks each.

    python examples/data/make_sales.py     # writes examples/data/sales.csv, always the same

Shops 0 to 299 follow the chain's rule: with an empty shelf, order 2, else nothing. Shops 300 to 599 were
drawn to order at random, so that the effect of other orders is known.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

CAPACITY, WEEKS, BY_RULE, SHOPS = 5, 10, 300, 600


def main() -> None:
    """Write the file."""
    chance = np.random.default_rng(2024)
    with Path(__file__).with_name("sales.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["shop", "week", "stock", "ordered", "sold"])
        for shop in range(SHOPS):
            stock = 0
            for week in range(WEEKS):
                by_rule = 2 if stock == 0 else 0
                ordered = by_rule if shop < BY_RULE else int(chance.integers(CAPACITY - stock + 1))
                # Demand is uniform on 0..5; no more can be sold than is there.
                sold = min(stock + ordered, int(chance.integers(CAPACITY + 1)))
                table.writerow([shop, week, stock, ordered, sold])
                stock += ordered - sold


if __name__ == "__main__":
    main()
