"""The safetensors parser: what the package writes is read; hostile files are refused by name."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from farthing.errors import ModelFormatError
from farthing.models.checkpoint.safetensors_file import MAX_HEADER, read_safetensors

GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
RAW = json.dumps(GOOD).encode()


def with_header(header: object, data: bytes = bytes(24)) -> bytes:
    """A file of a JSON value, or of bytes given as they are, as its header."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def one(**changes: Any) -> bytes:
    return with_header({"t": GOOD | changes})


def test_files_of_the_package_are_read_as_the_package_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float16),
        "c": np.zeros((0, 4), np.float32),
        "d": np.array(1.5, np.float32),
        "e": np.arange(6, dtype=np.int8).reshape(1, 2, 3),
        "naïve": np.array([True, False]),
    }
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata={"format": "pt"})
    file = read_safetensors(path)
    assert {tensor.name for tensor in file.tensors} == set(arrays)
    for tensor in file.tensors:
        truth = arrays[tensor.name]
        assert tensor.shape == truth.shape
        assert file.reader.read(tensor.offset, tensor.nbytes) == truth.tobytes()
    with safetensors.safe_open(path, "np") as theirs:
        kinds = {name: theirs.get_slice(name).get_dtype() for name in theirs.keys()}  # noqa: SIM118
    assert {tensor.name: tensor.dtype for tensor in file.tensors} == kinds


def test_bfloat16_is_read(tmp_path: Path) -> None:
    bits = np.arange(6, dtype=np.uint16)
    header = {"t": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}
    path = tmp_path / "a.safetensors"
    path.write_bytes(with_header(header, bits.tobytes()))
    (tensor,) = read_safetensors(path).tensors
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == ("BF16", (2, 3), 12)


PAIR: dict[str, object] = {
    "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
    "b": {"dtype": "U8", "shape": [8], "data_offsets": [8, 16]},
}


def second(begin: int, end: int) -> dict[str, object]:
    return PAIR | {"b": {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}}


REFUSED: dict[str, tuple[bytes, str, str | None]] = {
    "empty": (b"", "ends after 0 bytes", "header length"),
    "seven bytes": (bytes(7), "ends after 7 bytes", "header length"),
    "length 0": (with_header(b"", bytes(8)), "is 0", "header length"),
    "length past the file": (struct.pack("<Q", 100) + b"{}", "is 100", "header length"),
    "length 2^64-1": (struct.pack("<Q", 2**64 - 1) + b"{}", "is 1844", "header length"),
    "not UTF-8": (with_header(b'{"\xff": 1}'), "not UTF-8", "JSON"),
    "not JSON": (with_header(b"{'t': 1}"), "not JSON", "JSON"),
    "an array": (with_header([]), "not a JSON object", "JSON"),
    "lists": (with_header(b"[" * 100_000), "not a JSON object", "JSON"),
    "deep": (with_header(b'{"t": ' + b"[" * 100_000), "nested deeper than 64", "JSON"),
    "deep objects": (with_header(b'{"t": ' * 100_000), "nested deeper than 64", "JSON"),
    "NaN": (with_header(b'{"t": NaN}'), "has NaN, which is not JSON", "JSON"),
    "5000 digits": (with_header(b'{"t": %s}' % (b"9" * 5000)), "a number of 5000", "JSON"),
    "duplicate tensor": (
        with_header(b'{"t": %s, "t": %s}' % (RAW, RAW)), "duplicate key 't'", "JSON"
    ),
    "duplicate field": (with_header(b'{"t": {"dtype": 1, "dtype": 2}}'), "duplicate", "JSON"),
    "entry not an object": (with_header({"t": 5}), "not an object", "tensor t"),
    "unknown dtype": (one(dtype="F99"), "unknown dtype 'F99'", "tensor t"),
    "dtype missing": (one(dtype=None), "unknown dtype", "tensor t"),
    "dtype a list": (one(dtype=["F32"]), "unknown dtype", "tensor t"),
    "shape negative": (one(shape=[-2, -3]), "list of at most", "tensor t"),
    "shape of floats": (one(shape=[2.0, 3.0]), "list of at most", "tensor t"),
    "shape of booleans": (one(shape=[True, 6]), "list of at most", "tensor t"),
    "shape missing": (one(shape=None), "list of at most", "tensor t"),
    "shape huge": (one(shape=[2**63 - 1] * 8), "24 bytes of data", "tensor t"),
    "shape of 9": (one(shape=[1] * 9), "list of at most", "tensor t"),
    "offsets missing": (one(data_offsets=None), "two byte offsets", "tensor t"),
    "offsets of three": (one(data_offsets=[0, 24, 24]), "two byte offsets", "tensor t"),
    "reversed": (one(data_offsets=[24, 0]), "reversed", "tensor t"),
    "size unlike shape": (one(shape=[2, 4]), "24 bytes of data for F32", "tensor t"),
    "part of a byte": (
        with_header({"t": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, b"\0"),
        "1 bytes of data", "tensor t",
    ),
    "alias": (with_header(second(0, 8), bytes(8)), "overlaps", "tensor b"),
    "overlap": (with_header(second(4, 16), bytes(16)), "overlaps", "tensor b"),
    "hole": (with_header(second(9, 16), bytes(16)), "1 bytes before", "tensor b"),
    "hole at the start": (one(data_offsets=[1, 25]) + b"\0", "1 bytes before", "tensor t"),
    "bytes after the last": (with_header(PAIR, bytes(17)), "1 bytes after", None),
    "truncated": (with_header(PAIR, bytes(15)), "past the end", "tensor b"),
    "offset past the end": (one(data_offsets=[2**40, 2**40 + 24]), "past the end", "tensor t"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_file_is_refused(name: str, tmp_path: Path, bounded: Callable[[], Any]) -> None:
    content, problem, field = REFUSED[name]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    with bounded(), pytest.raises(ModelFormatError) as caught:
        read_safetensors(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.field == field
    assert caught.value.offset is not None


def test_a_header_longer_than_the_format_allows_is_not_read(
    tmp_path: Path, bounded: Callable[[], Any]
) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1))
        file.truncate(2**40)
    with bounded(), pytest.raises(ModelFormatError, match=str(MAX_HEADER + 1)):
        read_safetensors(path)


def test_position_of_a_syntax_error_counts_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(with_header(b'{"\xc3\xa9": %s, oops}' % RAW))
    with pytest.raises(ModelFormatError) as caught:
        read_safetensors(path)
    assert path.read_bytes()[caught.value.offset or 0 :].startswith(b"oops")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(6, dtype=np.float32),
        "b": np.arange(4, dtype=np.float16),
    }
    content = safetensors.numpy.save(arrays)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFormatError):
            read_safetensors(path)
    path.write_bytes(content)
    assert len(read_safetensors(path).tensors) == 2


def test_a_damaged_header_is_read_or_refused_but_nothing_else(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(6, dtype=np.float32),
        "b": np.arange(4, dtype=np.float16),
    }
    content = safetensors.numpy.save(arrays, metadata={"format": "pt"})
    header = len(content) - 32
    path = tmp_path / "a.safetensors"
    rng = random.Random(5)
    refused = 0
    for _ in range(600):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(header)] = rng.choice(b'\0\xff{}[]":,019-e. tA')
        path.write_bytes(damaged)
        try:
            read_safetensors(path)
        except ModelFormatError:
            refused += 1
    assert 200 < refused < 600
