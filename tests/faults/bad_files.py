"""A program that feeds bad files to chary and counts outcomes: `python tests/faults/bad_files.py [COUNT]`.

Every attack makes a file and a call. The call is `refused` if it leads to one sentence of at most 500
characters (at the command line with exit code 2), `accepted` if it returns, and `broken` otherwise. Tests run
each class a few times; the program runs it COUNT times and prints the counts as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chary import Rule, Setting, TabularAgent, make_agent
from chary.cli import main
from chary.data import Bins, load_discretiser, read_log
from chary.errors import CharyError
from chary.policies import load_policy
from chary.presets import preset
from chary.results import load_tables

GOLDEN = Path(__file__).parents[1] / "golden"
LONGEST = 500
HUGE = 10**5000
VERBOSE = bool(os.environ.get("CHARY_VERBOSE"))
WRONG: list[Any] = [
    None, "x", "", -1, 0.5, True, [], {}, [None], {"a": None}, 10**30, 1e308, "\x1b[2J", [[1]], "9" * 3000,
]  # fmt: skip

Call = Callable[[], object]
Attack = Callable[[random.Random, Path], Call]


def outcome(call: Call) -> str:
    """Make a call and return `refused`, `accepted`, or `broken` with the reason."""
    try:
        call()
    except CharyError as problem:
        return sentence(str(problem))
    except Exception as problem:
        if VERBOSE:
            traceback.print_exc()
        return f"broken: {type(problem).__name__}"
    return "accepted"


def sentence(text: str) -> str:
    if len(text) > LONGEST:
        return "broken: too long"
    return "refused" if text.isprintable() else "broken: control characters"


def typed(*arguments: str) -> Call:
    """Return a call of the command line, which raises CharyError where it ends with one sentence."""

    def call() -> None:
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main(arguments)
        except SystemExit as end:
            if end.code == 2 and err.getvalue().count("\n") == 1:
                raise CharyError(err.getvalue().removeprefix("chary: ").rstrip("\n")) from end
            if end.code != 0:
                raise RuntimeError(f"exit code {end.code}: {err.getvalue()[:300]}") from end

    return call


def archive(rng: random.Random, where: Path) -> Call:
    """An agent, or a run of a sweep, whose archive is compressed otherwise, damaged or both."""
    sealed = rng.random() < 0.5
    folder = copied(where)
    run = rng.choice(sorted((folder / "runs").iterdir()))
    source = GOLDEN / "chary-strict.npz" if sealed else run / "result.npz"
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    target = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    content = bytearray(target.getvalue())
    for _ in range(rng.choice([0, 1, 3, 20])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.1:
        del content[rng.randrange(len(content)) :]
    if sealed:
        (where / "agent.npz").write_bytes(bytes(content))
        return lambda: TabularAgent.load(where / "agent.npz")
    (run / "result.npz").write_bytes(bytes(content))
    reseal(run)
    return lambda: load_tables(folder)


def npy(rng: random.Random, where: Path) -> Call:
    """A prior that is no npy file, or declares what it does not have."""
    file = where / "prior.npy"
    kind = rng.randrange(6)
    if kind == 0:
        file.write_bytes(b"")
    elif kind == 1:
        other = rng.choice([GOLDEN / "chary-strict.npz", GOLDEN / "deep.json", Path(__file__)])
        shutil.copy(other, file)
    elif kind == 2:
        shape = rng.choice(
            ["(10**18,)", f"({10**18},)", f"({10**18}, 0)", "(-1,)", "(None,)", f"({10**40},)"]
        )
        described = rng.choice(["'<i8'", "'|O'", "'<U9999999999'", "[('a', '<i8')]", "'<U0'", "'|V0'"])
        text = f"{{'descr': {described}, 'fortran_order': False, 'shape': {shape}}}"
        write_npy(file, text.encode(), b"12345678" * rng.randrange(3))
    elif kind == 3:
        write_npy(
            file, rng.choice([b"[" * 3000, b"{" + b"-" * 5000 + b"1}", b"{'a': " * 900, b"1" * 6000]), b""
        )
    else:
        saved = io.BytesIO()
        np.save(saved, np.zeros(6, dtype=np.int64))
        content = bytearray(saved.getvalue())
        for _ in range(rng.randrange(1, 6)):
            content[rng.randrange(80)] = rng.randrange(256)
        file.write_bytes(bytes(content[: rng.choice([len(content), rng.randrange(len(content))])]))
    return typed("run", "riverswim", "--agent", "baseline", "--episodes", "0", "--prior", str(file))


def toml(rng: random.Random, where: Path) -> Call:
    """An experiment nested too deeply, with numbers of 5,000 digits, or with values of other types."""
    template = (GOLDEN.parents[1] / "experiments" / "inventory.toml").read_text(encoding="utf-8")
    depth = rng.choice([50, 2000, 100_000])
    kind = rng.randrange(7)
    if kind == 0:
        text = "a = " + "[" * depth + "]" * depth
    elif kind == 1:
        text = "a = " + "{a = " * depth + "1" + "}" * depth
    elif kind == 2:
        # In Python 3.11 a key of 100,000 parts takes 40 GB.
        text = f"title = 'x'\n{'.'.join('a' * min(depth, 4000))} = 1\n{template}"
    elif kind == 3:
        key = rng.choice(["seeds", "episodes", "warmup", "etas", "title", "unknown"])
        number = rng.choice(
            ["9" * 5000, "-" + "9" * 5000, "[" + "9" * 5000 + "]", "0x" + "f" * 5000, "9" * 4000]
        )
        text = changed_line(template, key, number)
    elif kind == 4:
        key = rng.choice(
            ["seeds", "episodes", "warmup", "etas", "title", "problem", "bonus", "name", "delta"]
        )
        value = rng.choice(
            ["''", "[]", "{}", "nan", "-1", "true", "1979-05-27", "['x']", "[[1]]", "'" + "y" * 5000 + "'"]
        )
        text = changed_line(template, key, value)
    elif kind == 5:
        text = "".join(letter for letter in template if rng.random() > 0.003)
    else:
        letters = list(template)
        for _ in range(rng.randrange(1, 20)):
            letters[rng.randrange(len(letters))] = rng.choice("[]{}='\",.#\n\t\x00\x1b\ud800é9")
        text = "".join(letters)
    file = where / "own.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    # An engine of another device ends before anything is played, if the experiment is accepted.
    return typed("sweep", str(file), "--device", "gpu", "--out", str(where / "out"))


def changed_line(text: str, key: str, value: str) -> str:
    lines = [line for line in text.split("\n") if not line.startswith(f"{key} =")]
    return "\n".join([f"{key} = {value}", *lines])


def resealed(rng: random.Random, where: Path) -> Call:
    """A sweep in which one value was replaced by null or by another type, with a manifest that agrees."""
    folder = copied(where)
    run = rng.choice(sorted((folder / "runs").iterdir()))
    file = rng.choice(
        [run / "result.json", run / "provenance.json", folder / "experiment.json", run / "result.npz"]
    )
    if file.suffix == ".npz":
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        name = rng.choice(sorted(arrays))
        size = len(np.atleast_1d(arrays[name]))
        others: list[Any] = [
            np.zeros(0),
            np.zeros((2, 2)),
            np.full(3, np.nan),
            np.full(size, -1),
            np.zeros(max(size - 1, 0)),
        ]
        others += [np.array("x"), np.array([[["a"]]]), np.array(5), np.array(True)]
        arrays[name] = rng.choice(others)
        if rng.random() < 0.2:
            del arrays[name]
        np.savez_compressed(file, **arrays)
    else:
        values = json.loads(file.read_text())
        put_wrong(rng, values)
        file.write_text(json.dumps(values))
    reseal(run)
    return rng.choice([lambda: load_tables(folder), typed("status", str(folder))])


def put_wrong(rng: random.Random, values: Any) -> None:
    """Replace or remove one value somewhere in nested tables."""
    while True:
        keys = list(values) if isinstance(values, dict) else list(range(len(values)))
        key = rng.choice(keys)
        if isinstance(values[key], (dict, list)) and values[key] and rng.random() < 0.7:
            values = values[key]
            continue
        if rng.random() < 0.15:
            del values[key]
        else:
            values[key] = rng.choice(WRONG)
        return


def paths(rng: random.Random, where: Path) -> Call:
    """A path of 300 characters, with a null character, or of a folder, wherever a path may be given."""
    bad = rng.choice(
        ["y" * 300, "y" * 5000, "a\0b", "z" * 255 + "/" + "z" * 300, "\x1b[2Jname", "", "/dev/full/x"]
    )
    kind = rng.randrange(14)
    log = where / "log.csv"
    log.write_text("episode,t,state,action,reward,next_state,terminated\n0,0,0,0,0,0,1\n")
    named = f"{where}/{bad}" if rng.random() < 0.5 else bad
    episodes = ("--agent", "baseline", "--episodes", "1", "--warmup", "1")
    calls: list[Call] = [
        typed("run", "riverswim", *episodes, "--prior", f"{named}.npy"),
        typed("run", "riverswim", *episodes, "--prior", f"{named}.csv"),
        typed("run", "riverswim", *episodes, "--calibration", named),
        typed("sweep", named, "--out", str(where / "out")),
        typed("sweep", named),
        typed("status", named),
        typed("report", named),
        typed("data", "inspect", f"{named}.csv"),
        typed("data", "convert", f"{named}.csv", f"{named}.csv"),
        typed("data", "inspect", str(log), "--discretiser", named),
        typed("plan", f"{named}.csv", "--eta", "1", "--out", named),
        lambda: TabularAgent.load(named),
        lambda: load_discretiser(named),
        lambda: load_tables(named),
    ]
    return calls[kind]


def integers(rng: random.Random, where: Path) -> Call:
    """A whole number of 5,000 digits, wherever a number may be given."""
    huge: Any = rng.choice([HUGE, -HUGE, 10**400, [HUGE], {"a": HUGE}, (HUGE, HUGE)])
    digits = rng.choice(["9" * 5000, "-" + "9" * 5000, "9" * 400, "1e99999", "9" * 20])
    (where / "c.json").write_text('{"episodes": ' + "9" * 5000 + "}")
    (where / "log.csv").write_text(
        f"episode,t,state,action,reward,next_state,terminated\n0,0,{digits},0,0,0,1\n"
    )
    declared: dict[str, Any] = {"n_states": 3, "n_actions": 2, "horizon": 2}
    name = rng.choice(list(declared))
    setting = Setting.declare(**declared)
    agent = TabularAgent(make_agent("chary", eta=1.0, bonus="kl"), setting, max_episodes=5)
    agent.begin(0, 0)
    option = rng.choice(["--episodes", "--warmup", "--horizon", "--pool", "--patience", "--eta", "--delta"])
    calls: list[Call] = [
        typed("run", "riverswim", "--episodes", "1", option, digits),
        typed("run", "riverswim", "--calibration", str(where / "c.json")),
        typed("data", "inspect", str(where / "log.csv")),
        typed("sweep", "--template", "inventory", "--seeds", digits),
        lambda: Setting.declare(**{**declared, name: huge}),
        lambda: Setting.declare(**{**declared, "scale": (0, huge)}),
        lambda: Rule.strict(huge),
        lambda: make_agent("chary", eta=huge),
        lambda: make_agent(
            "chary", eta=1.0, **{rng.choice(["pool", "patience", "bonus", "rule", "delta"]): huge}
        ),
        lambda: agent.act(0, huge, 0),
        lambda: agent.act(0, 0, huge),
        lambda: agent.act(0, 0, 0, proposal=huge),
        lambda: agent.begin(huge, huge),
        lambda: agent.finish(huge),
        lambda: Bins(huge),
        lambda: read_log(where / "log.csv", n_states=huge),
        lambda: load_policy(where / "c.json", huge),
    ]
    return rng.choice(calls)


def calibrations(rng: random.Random, where: Path) -> Call:
    """A calibration with other values, or nested too deeply."""
    good = {"calibration": preset("riverswim").calibration[0].to_plain()}
    text = json.dumps(good)
    kind = rng.randrange(4)
    if kind == 0:
        text = "[" * 100_000 + "]" * 100_000
    elif kind == 1:
        text = text[: rng.randrange(len(text))]
    else:
        for _ in range(rng.randrange(1, 4)):
            put_wrong(rng, good["calibration"])
        text = json.dumps(good)
    (where / "c.json").write_text(text)
    # Nothing is played: there is no such rule.
    calibration = ("--calibration", str(where / "c.json"))
    return typed("run", "riverswim", "--episodes", "1", "--rule", "none", *calibration)


def parquet_bombs(rng: random.Random, where: Path) -> Call:
    """A Parquet log of kilobytes with millions of rows; the call breaks where memory is taken."""
    import polars as pl

    file = where / "log.parquet"
    names = ["episode", "t", "state", "action", "reward", "next_state", "terminated"]
    rows = rng.choice([6_000_000, 8_000_000])
    pl.select(pl.repeat(0, rows, dtype=pl.Int64).alias(name) for name in names).write_parquet(file)
    return bounded(lambda: read_log(file))


def bombs(rng: random.Random, where: Path) -> Call:
    """An archive of kilobytes that inflates to gigabytes; the call breaks where much memory is taken."""
    folder = copied(where)
    run = rng.choice(sorted((folder / "runs").iterdir()))
    size = rng.choice([1 << 29, 3 << 28])
    file = rng.choice([run / "result.npz", where / "agent.npz"])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        with target.open("regret.npy", "w", force_zip64=True) as member:
            header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({size // 8},)}}".encode()
            member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            for _ in range(size >> 20):
                member.write(bytes(1 << 20))
    reseal(run)

    if file.name == "agent.npz":
        return bounded(lambda: TabularAgent.load(file))
    return bounded(lambda: load_tables(folder))


def bounded(call: Call) -> Call:
    """Return a call that breaks where it takes much memory, in this process or in one that it starts."""

    def measured() -> object:
        # A new process counts what its parent has taken, too.
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        usual = max(1 << 18, *(resource.getrusage(each).ru_maxrss for each in whose))
        tracemalloc.start()
        try:
            return call()
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            if peak > 1 << 27 or after > 1.1 * usual:
                raise MemoryError(f"{peak >> 20} MB here, {after >> 10} MB there")

    return measured


def write_npy(file: Path, header: bytes, rest: bytes) -> None:
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + rest)


def copied(where: Path) -> Path:
    shutil.copytree(GOLDEN / "tabular-sweep", where / "sweep")
    return where / "sweep"


def reseal(run: Path) -> None:
    """Write the manifest that a run's files have now."""
    names = [file.name for file in run.iterdir() if file.name != "manifest.json"]
    digests = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    (run / "manifest.json").write_text(json.dumps(digests))


ATTACKS: dict[str, Attack] = {
    each.__name__: each
    for each in (archive, npy, toml, resealed, paths, integers, calibrations, bombs, parquet_bombs)
}


def attack(name: str, count: int, seed: int = 0) -> Counter[str]:
    """Make `count` attacks of a class and return how often each outcome came."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + count):
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{name} {number}")
            found[outcome(ATTACKS[name](rng, Path(folder)))] += 1
    return found


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(ATTACKS)
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    for each in chosen:
        print(json.dumps({"attack": each, **attack(each, number)}), flush=True)
