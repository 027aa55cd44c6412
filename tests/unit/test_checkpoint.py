"""What is kept of unfinished work is read back as it was, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chary.errors import InvalidData
from chary.storage.sealed import pack, unpack

ARRAYS = {"counts": np.arange(6).reshape(2, 3), "text": np.array("generators"), "empty": np.zeros((0, 2))}
WHOLE = pack("run", ARRAYS, {"run": "abc", "wall": 1.5})


def test_what_was_packed_comes_back() -> None:
    about, arrays = unpack("run", WHOLE)
    assert about == {"run": "abc", "wall": 1.5}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


def test_the_same_work_gives_the_same_bytes() -> None:
    assert pack("run", ARRAYS, {"run": "abc", "wall": 1.5}) == WHOLE


def test_another_kind_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"of kind 'agent' was expected, got one of kind 'run'"):
        unpack("agent", WHOLE)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(InvalidData, match=r"^a file of kind 'run' must be whole, got "):
        unpack("run", WHOLE[:length])


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found_out_or_changes_nothing(place: int, flip: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= flip
    try:
        about, arrays = unpack("run", bytes(changed))
    except InvalidData as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017
        return
    # Some bytes of a zip file mean nothing, such as dates.
    assert about == {"run": "abc", "wall": 1.5}
    assert all(arrays[name].tobytes() == ARRAYS[name].tobytes() for name in ARRAYS)


def test_nothing_that_is_loaded_can_run_code() -> None:
    class Danger:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("executed",)

    content = pack("run", {"x": np.array([Danger()], dtype=object)}, {})
    with pytest.raises(InvalidData, match=r"must be whole, got .* must contain numbers or texts"):
        unpack("run", content)
