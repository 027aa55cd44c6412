"""Bad files and absurd numbers: one sentence of at most 500 characters, before memory is taken for them."""

from __future__ import annotations

import io
import os
import tracemalloc
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.bad_files import ATTACKS, attack

from chary.data import read_log
from chary.errors import CharyError, InvalidData, InvalidSetting, check_integer
from chary.storage import archives
from chary.storage.archives import npy_array, npz_arrays, npz_bytes
from chary.storage.files import parse_toml, read_file, read_text
from chary.sweeps.toml import parse_experiment
from chary.texts import LONGEST_MESSAGE, clipped, shown, visible

# How often each class of attacks is made here; a bomb takes seconds to write.
REDUCED = {"resealed": 30, "archive": 30, "integers": 60, "bombs": 1, "parquet_bombs": 1}
WHOLE = {"bombs": 20, "parquet_bombs": 20}


@pytest.mark.parametrize("name", ATTACKS)
def test_bad_files_are_refused_by_one_sentence(name: str) -> None:
    found = attack(name, REDUCED.get(name, 50))
    assert set(found) <= {"refused", "accepted"}, found
    assert found["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_many_bad_files_are_refused_by_one_sentence(name: str) -> None:
    found = attack(name, WHOLE.get(name, 1000), seed=10_000)
    assert set(found) <= {"refused", "accepted"}, found


# No delta, no regret, no deficits, and chains that are not numbers.
@pytest.mark.parametrize("number", [84, 474, 739, 785])
def test_numbers_that_numpy_warns_about_are_refused(number: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert attack("resealed", 1, seed=number) == {"refused": 1}


ARRAYS: dict[str, Any] = {
    "whole": np.arange(6).reshape(2, 3),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "text": np.array("a text"),
    "one": np.array(0.5),
    "none": np.zeros((0, 3)),
    "truth": np.array([True, False]),
}


@pytest.mark.parametrize("compressed", [True, False])
def test_archives_are_read_back_as_they_were(compressed: bool) -> None:
    read = npz_arrays(npz_bytes(ARRAYS, compressed=compressed), compressed=compressed)
    assert list(read) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert read[name].dtype == array.dtype
        assert read[name].flags.aligned
        assert read[name].flags.writeable
        assert read[name].flags.f_contiguous == array.flags.f_contiguous
        np.testing.assert_array_equal(read[name], array)


def test_arrays_that_would_look_like_a_bomb_are_stored_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "INFLATED", 1 << 16)
    constant = {"zero": np.zeros(1 << 20)}
    assert len(npz_bytes(constant)) > constant["zero"].nbytes
    np.testing.assert_array_equal(npz_arrays(npz_bytes(constant))["zero"], constant["zero"])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_are_stored_or_deflated(method: int) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz_bytes(ARRAYS))) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(InvalidData, match="compressed by method"):
        npz_arrays(target.getvalue())


def test_a_declared_size_is_refused_before_it_is_inflated() -> None:
    target = io.BytesIO()
    size = archives.INFLATED + (1 << 28)
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zero.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(size >> 22):
            member.write(bytes(1 << 22))
    content = target.getvalue()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidData, match="must contain at most"):
            npz_arrays(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(shape=st.lists(st.integers(0, 10**20), max_size=4), kind=st.sampled_from(["<f8", "<U0", "|b1", "|O"]))
def test_an_npy_file_contains_what_its_header_declares(shape: list[int], kind: str) -> None:
    header = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode()
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
    with suppress(InvalidData):
        assert npy_array(content).nbytes == 8


def test_a_file_without_an_end_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="larger than"):
        read_file(Path("/dev/zero"), largest=1 << 20)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidData, match="larger than"):
        read_text(tmp_path / "sparse", "FILE")
    with pytest.raises(InvalidData, match="larger than"):
        read_file(tmp_path / "sparse")
    assert read_file(Path("/proc/self/stat"))


def test_a_log_that_memory_does_not_suffice_for_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log.csv"
    file.write_text("episode,t,state,action,reward,next_state,terminated\n" + "0,0,0,0,0,0,1\n")
    monkeypatch.setattr("chary.data._tables.machine_memory", lambda: 16 * file.stat().st_size)
    assert len(read_log(file)) == 1
    monkeypatch.setattr("chary.data._tables.machine_memory", lambda: 15 * file.stat().st_size)
    with pytest.raises(InvalidData, match="larger than"):
        read_log(file)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 100_000,
        ".".join("a" * 100_000) + " = 1",
        "a = " + "9" * 5000,
        "a = 1\n" * 300_000,
    ],
)
def test_toml_beyond_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_toml(text)
    with pytest.raises(InvalidSetting, match="an experiment must be TOML"):
        parse_experiment(text)


def test_numbers_of_5000_digits_are_named_by_their_size() -> None:
    with pytest.raises(CharyError, match="about 5001 digits"):
        check_integer("seed", 10**5000, minimum=0)
    with pytest.raises(CharyError, match="a list that cannot be printed"):
        check_integer("seed", [10**5000], minimum=0)


@given(st.text(max_size=2000))
def test_every_message_is_one_printable_line_of_500_characters(text: str) -> None:
    message = str(CharyError(f"'name' must be short, got {text}."))
    assert len(message) <= LONGEST_MESSAGE
    assert len(message.splitlines()) <= 1
    assert message.startswith("'name' must be short, got")
    assert not any(letter in message for letter in "\x00\x1b\x7f\x9b\u202e\u2028\ud800")
    assert message.encode()


@given(st.text())
def test_visible_texts_are_the_same_where_nothing_is_hidden(text: str) -> None:
    shown_text = visible(text)
    assert visible(shown_text) == shown_text
    if text.isprintable():
        assert shown_text == text


@given(st.text() | st.binary() | st.integers() | st.lists(st.text()), st.integers(60, 500))
def test_values_are_shown_within_their_room(value: object, most: int) -> None:
    assert len(shown(value, most)) <= max(most, 60) + 120
    assert len(clipped(str(value), most)) <= most


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise AttributeError("half made")

    inside: list[Any] = []
    deep = inside
    for _ in range(100_000):
        inside.append([])
        inside = inside[0]
    assert shown(Broken()) == "a Broken that cannot be printed"
    assert shown(deep) == "a list that cannot be printed"
    assert os.linesep not in shown(np.zeros((30, 30)))
