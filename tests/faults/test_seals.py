"""Seals with a key and without: what each refuses, on agents, sweeps and logs."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.bad_files import GOLDEN, outcome, reseal, typed

from chary import Canary, CanaryAgent, Setting, TabularAgent, make_agent
from chary.data import Log, read_log, seal_log, write_log
from chary.envs import riverswim
from chary.errors import CharyError, InvalidData, InvalidSetting
from chary.storage.keys import KEY, KEYRING
from chary.storage.sealed import pack, unpack
from chary.sweeps.folder import SweepFolder

OURS, THEIRS = "a key of ours, long enough", "a key of somebody else"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.delenv(KEYRING, raising=False)


def saved(path: Path, *, horizon: int = 3) -> Path:
    setting = Setting.declare(n_states=3, n_actions=2, horizon=horizon)
    TabularAgent(make_agent("chary", eta=1.0, bonus="kl"), setting).save(path)
    return path


def test_with_a_key_only_files_sealed_with_it_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unkeyed = saved(tmp_path / "unkeyed.npz")
    monkeypatch.setenv(KEY, THEIRS)
    theirs = saved(tmp_path / "theirs.npz")
    monkeypatch.setenv(KEY, OURS)
    ours = saved(tmp_path / "ours.npz")
    assert TabularAgent.load(ours).setting.n_states == 3
    with pytest.raises(InvalidData, match=r"must be sealed with a key, got a seal without one"):
        TabularAgent.load(unkeyed)
    with pytest.raises(InvalidData, match=r"with a key that is set, got another seal"):
        TabularAgent.load(theirs)
    monkeypatch.delenv(KEY)
    # Without a key, a seal shows that nothing was damaged, whoever made it.
    for path in (unkeyed, theirs, ours):
        assert TabularAgent.load(path).setting.n_states == 3


def test_a_keyring_seals_with_its_first_key_and_accepts_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = tmp_path / "keys"
    ring.write_text(f"# the old one\n{THEIRS}\n")
    monkeypatch.setenv(KEYRING, str(ring))
    content = pack("example", {"n": np.arange(3)}, {})
    ring.write_text(f"{OURS}\n\n{THEIRS}\n")
    assert unpack("example", content)
    rotated = pack("example", {"n": np.arange(3)}, {})
    ring.write_text(OURS)
    assert unpack("example", rotated)
    with pytest.raises(InvalidData, match="another seal"):
        unpack("example", content)


@pytest.mark.parametrize("container", ["npz", "safetensors"])
def test_nothing_of_a_keyed_file_can_be_changed(container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, OURS)
    pytest.importorskip("safetensors")
    content = pack("example", {"n": np.arange(3)}, {"seed": 1}, container=container)
    assert unpack("example", content)[0] == {"seed": 1}
    monkeypatch.delenv(KEY)
    forged = pack("example", {"n": np.arange(3)}, {"seed": 2}, container=container)
    monkeypatch.setenv(KEY, OURS)
    for other in (
        forged,
        content.replace(b'seed": 1', b'seed": 2'),
        content.replace(b"s\0\0\0e", b"s\0\0\0f"),
    ):
        if other != content:
            with pytest.raises(InvalidData, match=r"."):
                unpack("example", other)


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        (KEY, "short", r"'CHARY_SEAL_KEY' must have at least 16 characters per key, got 5"),
        (KEY, "", r"got 0"),
        (KEYRING, "nowhere", r"'CHARY_SEAL_KEYRING' must be a file that can be read"),
        (KEYRING, "/dev/null", r"must be a file with one key per line"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(
    name: str, value: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CharyError, match=pattern) as refusal:
        pack("example", {}, {})
    assert "short" not in str(refusal.value)


def test_without_a_key_a_forged_file_is_caught_by_its_setting_alone(tmp_path: Path) -> None:
    setting = Setting.declare(n_states=3, n_actions=2, horizon=3)
    forged = saved(tmp_path / "forged.npz", horizon=9)
    # Its seal is intact: whoever changes a file can seal it again.
    assert TabularAgent.load(forged).setting.horizon == 9
    with pytest.raises(InvalidData, match="must hold an agent for this problem"):
        TabularAgent.load(forged, setting=setting)


def test_an_agent_is_loaded_for_its_own_problem_alone(tmp_path: Path) -> None:
    mdp = riverswim()
    ours, plain = mdp.told("known"), mdp.setting
    assert ours.known is not None
    theirs = replace(plain, known=ours.known._replace(other_high=np.ones_like(ours.known.other_high)))
    other = Setting.declare(n_states=plain.n_states, n_actions=plain.n_actions, horizon=4)
    for name, setting, fits, wrong in (
        ("known", ours, (ours, plain), (theirs, other)),
        ("estimated", plain, (ours, theirs, plain), (other,)),
    ):
        file = tmp_path / name
        TabularAgent(make_agent("chary", eta=1.0, bonus="kl", reward=name), setting).save(file)
        for each in fits:
            assert TabularAgent.load(file, setting=each).horizon == plain.horizon
        for each in wrong:
            with pytest.raises(InvalidData, match="must hold an agent for this problem"):
                TabularAgent.load(file, setting=each)
    canary = tmp_path / "canary"
    generator, incumbent = np.random.default_rng(0), np.zeros(plain.n_states, dtype=int)
    CanaryAgent(Canary(eta=0.1), plain, incumbent=incumbent, generator=generator).save(canary)
    assert CanaryAgent.load(canary, setting=plain).horizon == plain.horizon
    with pytest.raises(InvalidData, match="must hold an agent for this problem"):
        CanaryAgent.load(canary, setting=other)


def sweep(where: Path) -> SweepFolder:
    shutil.copytree(GOLDEN / "tabular-sweep", where)
    return SweepFolder(where)


def keyed(folder: SweepFolder) -> None:
    """Write a sweep's files again, as they are written with the key that is set."""
    described = json.loads((folder.path / "experiment.json").read_text())
    (folder.path / "experiment.json").unlink()
    from chary.sweeps.spec import Experiment

    folder.claim(Experiment.from_json(described["experiment"]), described["command"])
    for run in sorted((folder.path / "runs").iterdir()):
        files = {file.name: file.read_bytes() for file in run.iterdir() if file.name != "manifest.json"}
        shutil.rmtree(run)
        folder.write(run.name, files)


def test_with_a_key_sweeps_without_it_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep(tmp_path / "sweep")
    before = [state.sha256 for state in folder.states() if state.state == "done"]
    assert before
    monkeypatch.setenv(KEY, OURS)
    with pytest.raises(InvalidData, match=r"the experiment in .* must be sealed with a key"):
        folder.states()
    assert outcome(typed("status", str(folder.path))) == "refused"
    keyed(folder)
    assert [state.sha256 for state in folder.states() if state.state == "done"] == before
    run = next((folder.path / "runs").iterdir())
    reseal(run)
    assert folder.state(run.name).state == "damaged"
    assert "must be sealed with a key" in folder.state(run.name).reason
    monkeypatch.setenv(KEY, THEIRS)
    with pytest.raises(InvalidData, match="another seal"):
        folder.states()


def forge(rng: random.Random, run: Path) -> None:
    """Change something in a run and make a manifest that agrees, with a seal that needs no key."""
    manifest = json.loads((run / "manifest.json").read_text())
    kind = rng.randrange(4)
    file = run / rng.choice(["result.json", "provenance.json"])
    file.write_text(file.read_text().replace(":", ": ", 1))
    reseal(run)
    forged = json.loads((run / "manifest.json").read_text())
    forged |= [{}, {"hmac": manifest["hmac"]}, {"hmac": None}, {"hmac": "0" * 64}][kind]
    (run / "manifest.json").write_text(json.dumps(forged))


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_no_forged_run_is_accepted_with_a_key(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, OURS)
    folder = sweep(tmp_path / "sweep")
    keyed(folder)
    run = next((folder.path / "runs").iterdir())
    good = {file.name: file.read_bytes() for file in run.iterdir()}
    for number in range(count):
        forge(random.Random(number), run)
        assert folder.state(run.name).state == "damaged"
        for name, content in good.items():
            (run / name).write_bytes(content)
        assert folder.state(run.name).state == "done"


def log() -> Log:
    columns: dict[str, Any] = {"episode": [0, 0], "t": [0, 1], "state": [0, 1], "action": [0, 1]}
    return Log.from_arrays(**columns, reward=[0.5, 1.0], next_state=[1, 2], terminated=[False, True])


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_sealed_log_is_read_as_it_was_sealed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    write_log(log(), file)
    assert outcome(typed("data", "seal", str(file))) == "accepted"
    assert len(read_log(file)) == 2
    with pytest.raises(InvalidSetting, match=r"must not be sealed, got .*Remove .*\.seal' first"):
        write_log(log(), file, overwrite=True)
    with pytest.raises(InvalidSetting, match="must not exist yet"):
        seal_log(file)
    good = file.read_bytes()
    file.write_bytes(good.replace(b"0.5", b"0.7") if name == "log.csv" else good[:-9] + b"x" + good[-8:])
    with pytest.raises(InvalidData, match="must be as it was sealed, got one that was changed"):
        read_log(file)
    file.write_bytes(good)
    monkeypatch.setenv(KEY, OURS)
    with pytest.raises(InvalidData, match="must be sealed with a key"):
        read_log(file)
    seal_log(file, overwrite=True)
    assert len(read_log(file)) == 2
    seal = file.with_name(f"{name}.seal")
    half = json.dumps(json.loads(seal.read_text()) | {"hmac": "\ud800"})
    for text in ("", "[]", "{}", "[" * 100_000, half, seal.read_text().replace('"log"', '"other"')):
        seal.write_text(text)
        with pytest.raises(InvalidData, match="seal"):
            read_log(file)
