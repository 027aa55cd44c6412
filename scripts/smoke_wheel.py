"""Check that the installed wheel works alone; run outside the checkout, with the wheel's folder."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import chary

site = Path(sys.argv[1]).resolve()
assert Path(chary.__file__).is_relative_to(site), f"imported {chary.__file__}, not the wheel in {site}"
assert metadata.version("chary") == chary.__version__
assert sorted(chary.__all__) == dir(chary)
for name in chary.__all__:
    getattr(chary, name)
assert (site / "chary" / "py.typed").exists()
# The data files: sepsis checks its own hash, problems reads every preset.
assert chary.envs.sepsis().n_states == 716
listed = subprocess.run(
    [str(site / "bin" / "chary"), "problems", "--json"], check=True, capture_output=True, text=True
)
assert len(json.loads(listed.stdout)["problems"]) == 5
for preset in ("inventory", "sepsis"):
    subprocess.run(
        [str(site / "bin" / "chary"), "sweep", "--template", preset], check=True, capture_output=True
    )
print(f"wheel of chary {chary.__version__}: complete")
