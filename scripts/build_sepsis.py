"""Rebuild src/chary/envs/data/sepsis.npz from the PyPI package icu-sepsis 2.0.1, byte for byte.

    python scripts/build_sepsis.py [--wheel FILE] [--out FILE]

Without `--wheel` the wheel is downloaded by pip into a temporary folder. The package is only unzipped,
never imported or installed: its dependencies include the unmaintained `gym`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

REQUIREMENT = "icu-sepsis==2.0.1"
WHEEL = "icu_sepsis-2.0.1-py3-none-any.whl"
WHEEL_SHA256 = "7f55ff190f11b252593000814b6cd56ecf9b5de6fdca256e4966c0a0dc369466"
ASSETS = "icu_sepsis/envs/assets"
SHIPPED = Path(__file__).resolve().parent.parent / "src" / "chary" / "envs" / "data" / "sepsis.npz"

N_TERMINAL = 3  # death, survival and the sink that icu-sepsis calls s_inf, the last three states
LARGEST_COUNT = 65_535  # uint16
COUNT_TOLERANCE = 1e-6


def download(folder: Path) -> Path:
    """Fetch the wheel, and nothing it depends on, into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--only-binary", ":all:", "--dest", str(folder), REQUIREMENT], check=True)
    return folder / WHEEL


def read_source(wheel: Path) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.bool_]]:
    """Return the arrays of dynamics.npz, and which action is admissible where, (S, A)."""
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"'wheel' must be {WHEEL} with SHA-256 {WHEEL_SHA256}, got {digest} from {wheel}.")
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        with np.load(io.BytesIO(package.read(f"{ASSETS}/dynamics.npz")), allow_pickle=False) as stored:
            source = {name: stored[name] for name in ("tx_mat", "r_mat", "d_0", "expert_policy")}
        lines = package.read(f"{ASSETS}/admissible_actions.txt").decode("ascii").splitlines()
    admissible = np.zeros(source["tx_mat"].shape[:2], dtype=bool)
    for s, line in enumerate(lines[1 : len(admissible) + 1]):  # the first line holds the counts
        admissible[s, [int(a) for a in line.split()]] = True
    return source, admissible


def as_counts(distribution: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the smallest whole numbers whose shares are `distribution`.

    Every distribution of icu-sepsis is a table of counts divided by its sum, so this loses nothing.
    """
    smallest = distribution[distribution > 0].min()
    for count in range(1, 200):
        total = round(count / smallest)
        scaled = distribution * total
        whole: NDArray[np.int64] = np.rint(scaled).astype(np.int64)
        if np.abs(scaled - whole).max() < COUNT_TOLERANCE and whole.sum() == total:
            if whole.max() > LARGEST_COUNT:
                raise SystemExit(f"a count must be <= {LARGEST_COUNT}, got {whole.max()}.")
            return whole
    raise SystemExit("a distribution of the source is not a table of counts; is it another version?")


def compact(
    source: dict[str, NDArray[np.float64]], admissible: NDArray[np.bool_]
) -> dict[str, NDArray[np.uint16]]:
    """Return the arrays to ship; see data/README.md for their meaning."""
    P, R = source["tx_mat"], source["r_mat"]
    S, A = admissible.shape
    n_patients = S - N_TERMINAL
    survival = n_patients + 1
    entering = np.zeros_like(R, dtype=bool)
    entering[:n_patients, :, survival] = True
    if not np.array_equal(R[:n_patients] != 0, entering[:n_patients]) or not (R[entering] == 1).all():
        raise SystemExit("the source must pay 1 on entering survival and nothing else.")
    state, action, length = [], [], []
    successor: list[int] = []
    count: list[int] = []
    for s, a in zip(*np.nonzero(admissible[:n_patients]), strict=True):
        whole = as_counts(P[s, a])
        reached = np.flatnonzero(whole)
        state.append(s)
        action.append(a)
        length.append(len(reached))
        successor.extend(reached)
        count.extend(whole[reached])
    expert = np.zeros((S, A), dtype=np.int64)
    for s in range(n_patients):
        expert[s] = as_counts(source["expert_policy"][s])
    arrays = {
        "shape": [S, A],
        "state": state,
        "action": action,
        "length": length,
        "successor": successor,
        "count": count,
        "start": as_counts(source["d_0"]),
        "expert": expert,
    }
    return {name: np.asarray(values).astype("<u2") for name, values in arrays.items()}


def pack(arrays: dict[str, NDArray[np.uint16]]) -> bytes:
    """Write an .npz whose bytes depend on the arrays alone.

    Entries are stored, not deflated, because deflate's output differs between builds of zlib; dates are
    fixed.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression=zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.ascontiguousarray(values), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # the operating system is otherwise written into the archive
            info.external_attr = 0o644 << 16
            archive.writestr(info, entry.getvalue())
    return packed.getvalue()


def main() -> None:
    """Build the file and print its SHA-256."""
    parser = argparse.ArgumentParser(description="Rebuild the sepsis data file from icu-sepsis 2.0.1.")
    parser.add_argument("--wheel", type=Path, help="the wheel, if already downloaded")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or download(Path(folder))
        content = pack(compact(*read_source(wheel)))
    temporary = options.out.with_name(options.out.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, options.out)
    print(f"{hashlib.sha256(content).hexdigest()}  {options.out}  {len(content)} bytes")


if __name__ == "__main__":
    main()
