"""The IDX reader reads what it writes, and reports each kind of damage with one clear message."""

import gzip
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dualml.common.errors import UserError
from dualml.experiment.data import idx

ELEMENTS = ["uint8", "int8", "int16", "int32", "float32", "float64"]
IMAGES = np.arange(3 * 28 * 28, dtype=np.int64).reshape(3, 28, 28).astype(np.uint8)


@given(
    st.sampled_from(ELEMENTS).flatmap(
        lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0))
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_reads_what_it_writes(tmp_path_factory, array, packed):
    path = tmp_path_factory.mktemp("idx") / "a"
    data = idx.encode(array)
    path.write_bytes(gzip.compress(data) if packed else data)
    back = idx.read(path)
    assert back.dtype == array.dtype
    assert back.dtype.isnative
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_known_bytes(tmp_path):
    path = tmp_path / "known"
    path.write_bytes(bytes([0, 0, 0x0B, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x01, 0x02, 0xFF, 0xFE]))
    assert idx.read(path).tolist() == [[258, -2]]


def test_no_element_type():
    with pytest.raises(UserError, match="IDX has no element type complex64"):
        idx.encode(np.zeros(2, np.complex64))


def fails(path, data, pattern, **expect):
    path.write_bytes(data)
    with pytest.raises(UserError, match=pattern) as caught:
        idx.read(path, remedy="dualml data get mnist", **expect)
    text = str(caught.value)
    assert str(path) in text
    assert text.endswith("remedy: dualml data get mnist")
    assert "\n" not in text


GOOD = idx.encode(IMAGES)


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 7, 15, 16, 17, len(GOOD) // 2, len(GOOD) - 1])
def test_plain_file_cut_off(tmp_path, keep):
    numbers = rf"expected .*found {keep}\b|needs {len(GOOD):,} bytes.*found {keep:,}"
    fails(tmp_path / "cut", GOOD[:keep], numbers, dtype="uint8", ndim=3)


PACKED = gzip.compress(GOOD)


@pytest.mark.parametrize("keep", [0, 1, 2, 5, 10, 11, len(PACKED) // 2, len(PACKED) - 8])
def test_gzip_file_cut_off(tmp_path, keep):
    fails(tmp_path / "cut.gz", PACKED[:keep], "cut off|not gzip", dtype="uint8", ndim=3)


def test_no_prefix_of_a_gzip_file_is_accepted(tmp_path):
    for keep in range(len(PACKED)):
        fails(tmp_path / "cut.gz", PACKED[:keep], "cut off|not gzip", dtype="uint8", ndim=3)


def test_every_flipped_byte_of_gzip_data_is_noticed(tmp_path):
    # A flip in the ten header bytes (time, operating system) may change nothing that matters.
    for place in range(10, len(PACKED)):
        broken = bytearray(PACKED)
        broken[place] ^= 0x55
        fails(tmp_path / "flip.gz", bytes(broken), "damaged|cut off|no IDX|needs|holds", ndim=3)


def test_bytes_after_the_end(tmp_path):
    fails(tmp_path / "long", GOOD + b"x", f"after its end.*{len(GOOD):,}.*{len(GOOD) + 1:,}")


@pytest.mark.parametrize("magic", ["00000703", "00000800", "01000803", "50000803", "3c68746d"])
def test_wrong_magic_number(tmp_path, magic):
    fails(tmp_path / "magic", bytes.fromhex(magic) + GOOD[4:], f"found magic number 0x{magic}")


def test_another_array_than_asked_for(tmp_path):
    labels = idx.encode(np.zeros(5, np.uint8))
    pattern = re.escape("expected uint8 in 3 dimensions, found uint8 in 1")
    fails(tmp_path / "labels", labels, pattern, dtype="uint8", ndim=3)
    wide = idx.encode(IMAGES.astype(np.int32))
    fails(tmp_path / "wide", wide, "expected uint8 .* found int32", dtype="uint8", ndim=3)


def test_a_header_that_promises_the_moon_needs_no_memory(tmp_path):
    moon = struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3)
    fails(tmp_path / "moon", moon, "cut off.*found 16")


def test_gz_name_without_gzip_inside(tmp_path):
    fails(tmp_path / "web.gz", b"<html>not found</html>", "is not gzip: expected 1f8b.*found 3c68")


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        idx.read(tmp_path / "nothing")
