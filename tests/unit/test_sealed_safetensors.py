"""The same sealed format in a safetensors file: nothing that was changed is taken for what it was."""

from __future__ import annotations

import json

import numpy as np
import pytest

from chary.errors import CharyError, InvalidData
from chary.storage.sealed import kind_of, pack, unpack

pytest.importorskip("safetensors")

ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "key": np.array([1, 2**31], np.uint32),
    "open": np.array(True),
    "none": np.zeros((0, 3)),
}


def packed() -> bytes:
    return pack("example", ARRAYS, {"seed": 3}, container="safetensors")


def test_arrays_come_back_as_they_were() -> None:
    about, arrays = unpack("example", packed())
    assert about == {"seed": 3}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)


def test_the_same_arrays_give_the_same_bytes_and_other_programs_read_them() -> None:
    import safetensors.numpy

    assert packed() == packed()
    np.testing.assert_array_equal(safetensors.numpy.load(packed())["weights"], ARRAYS["weights"])


def test_the_kind_is_told_and_another_is_refused() -> None:
    assert kind_of(packed()) == "example"
    with pytest.raises(InvalidData, match="of kind 'other' was expected, got one of kind 'example'"):
        unpack("other", packed())


@pytest.mark.parametrize("place", range(0, 1200, 37))
def test_a_changed_byte_is_found(place: int) -> None:
    content = bytearray(packed())
    content[place % len(content)] ^= 1
    with pytest.raises(InvalidData):
        unpack("example", bytes(content))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -1, -20])
def test_a_cut_file_is_found(length: int) -> None:
    with pytest.raises(InvalidData):
        unpack("example", packed()[:length])


def test_a_file_of_somebody_else_is_refused() -> None:
    import safetensors.numpy

    foreign = safetensors.numpy.save({"x": np.zeros(2)})
    assert kind_of(foreign) is None
    with pytest.raises(InvalidData):
        unpack("example", foreign)
    told = json.dumps({"schema": 99, "kind": "example", "sha256": "", "about": {}})
    newer = safetensors.numpy.save({"x": np.zeros(2)}, metadata={"chary": told})
    with pytest.raises(InvalidData, match="schema"):
        unpack("example", newer)


def test_there_are_two_containers() -> None:
    with pytest.raises(CharyError, match="container"):
        pack("example", ARRAYS, {}, container="pickle")
