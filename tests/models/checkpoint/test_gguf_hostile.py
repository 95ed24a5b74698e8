"""GGUF files made to hurt: each is refused by name and place, in little time and memory."""

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farthing.errors import ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.gguf_file import read_gguf
from farthing.models.checkpoint.gguf_metadata import MAX_ARRAY, MAX_TENSORS
from farthing.models.registry import FAMILIES

HUGE = 2**64 - 1
Case = tuple[Callable[[SimpleNamespace], bytes], str, str | None, int | None]


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def aligned(value: bytes, kind: int = 4) -> Callable[[SimpleNamespace], bytes]:
    return lambda raw: raw.whole([raw.pair("general.alignment", kind, value)], [], bytes(64))


def one(dims: tuple[int, ...], kind: int = 0, offset: int = 0, data: int = 64) -> Any:
    return lambda raw: raw.whole([], [raw.tensor("t", dims, kind, offset)], bytes(data))


# content, what the message says, the field it names, the byte it names
CASES: dict[str, Case] = {
    "F1 empty": (lambda raw: b"", "empty", "magic", 0),
    "F1 seven bytes": (lambda raw: b"GGUF\3\0\0", "ends after 7 bytes", "header", 7),
    "F1 part of the magic": (lambda raw: b"GG", "ends after 2 bytes", "header", 2),
    "F1 wrong magic": (
        lambda raw: raw.whole([], [], magic=b"GGUE"), "starts with b'GGUE'", "magic", 0
    ),
    "F1 version 0": (lambda raw: raw.whole([], [], version=0), "version 0", "version", 4),
    "F1 version 1": (lambda raw: raw.whole([], [], version=1), "version 1", "version", 4),
    "F1 version 99": (lambda raw: raw.whole([], [], version=99), "version 99", "version", 4),
    "F1 byte-swapped": (lambda raw: raw.whole([], [], version=3 << 24), "big-endian", "version", 4),
    "F2 tensor count": (
        lambda raw: raw.whole([], [], counts=(HUGE, 0)), f"{HUGE} tensors", "tensor count", 8
    ),
    "F2 key count": (
        lambda raw: raw.whole([], [], counts=(0, HUGE)), f"{HUGE} key-value", "key count", 16
    ),
    "F2 one key too many": (
        lambda raw: raw.whole([raw.pair("k", 4, u32(1))], [], counts=(0, 2), alignment=1)
        + bytes(14),
        "empty key", "key 1", 41,
    ),
    "F2 key length": (
        lambda raw: raw.whole([u64(HUGE) + bytes(16)], []), f"{HUGE} bytes with", "key 0", 24
    ),
    "F2 string length": (
        lambda raw: raw.whole([raw.pair("k", 8, u64(HUGE))], []), f"{HUGE} bytes with", "k", 37
    ),
    "F2 string one byte too long": (
        lambda raw: raw.whole([raw.pair("k", 8, u64(6) + b"abcde")], [], alignment=1),
        "6 bytes with 5 left", "k", 37,
    ),
    "F2 array length": (
        lambda raw: raw.whole([raw.array("k", 5, HUGE)], []), f"{HUGE} elements", "k", 37
    ),
    "F2 string array length": (
        lambda raw: raw.whole([raw.array("k", 8, HUGE)], []), f"{HUGE} elements", "k", 37
    ),
    "F2 array whose bytes wrap": (
        lambda raw: raw.whole([raw.array("k", 10, 2**61)], []), f"{2**61} elements", "k", 37
    ),
    "F2 string in an array": (
        lambda raw: raw.whole(
            [raw.array("k", 8, 2, raw.string("a") + u64(HUGE))], [], bytes(64)
        ),
        f"{HUGE} bytes with", "k[1]", 58,
    ),
    "F2 array that ends with the file": (
        lambda raw: raw.whole([raw.array("k", 8, 2, raw.string("abcdefgh"))], [], alignment=1),
        "too early", "k[1]", 65,
    ),
    "F2 nested array": (
        lambda raw: raw.whole([raw.array("k", 9, 1, struct.pack("<IQI", 4, 1, 5))], []),
        "array of arrays", "k", 37,
    ),
    "F2 tensor name": (
        lambda raw: raw.whole([], [u64(2**40) + bytes(32)]), "string of", "name of tensor 0", 24
    ),
    "F2 dimensions": (
        lambda raw: raw.whole([], [raw.string("t") + u32(2**32 - 1) + bytes(32)]),
        "4294967295 dimensions", "tensor t", 24,
    ),
    "F2 array of unknown type": (
        lambda raw: raw.whole([raw.array("k", 13, 1, bytes(8))], []), "unknown type 13", "k", 37
    ),
    "F2 value of unknown type": (
        lambda raw: raw.whole([raw.pair("k", 13, bytes(8))], []), "unknown type 13", "k", 24
    ),
    "F2 boolean of 2": (
        lambda raw: raw.whole([raw.pair("k", 7, b"\2")], []), "boolean of 2", "k", 37
    ),
    "F3 duplicate key": (
        lambda raw: raw.whole([raw.pair("k", 4, u32(1)), raw.pair("k", 4, u32(1))], []),
        "duplicate key", "k", 41,
    ),
    "F3 duplicate tensor": (
        lambda raw: raw.whole([], [raw.tensor("t", (4,)), raw.tensor("t", (4,), 0, 32)], bytes(64)),
        "duplicate tensor name", "tensor t", 57,
    ),
    "F3 empty key": (
        lambda raw: raw.whole([raw.pair("", 4, u32(1))], []), "empty key", "key 0", 24
    ),
    "F3 empty tensor name": (
        lambda raw: raw.whole([], [raw.tensor("", (4,))], bytes(32)), "empty name", "tensor 0", 24
    ),
    "F3 key not UTF-8": (
        lambda raw: raw.whole([raw.pair(b"\xff\xfe", 4, u32(1))], []), "not UTF-8", "key 0", 24
    ),
    "F3 string not UTF-8": (
        lambda raw: raw.whole([raw.pair("k", 8, raw.string(b"\xc3("))], []), "not UTF-8", "k", 37
    ),
    "F4 alignment 0": (aligned(u32(0)), "is 0", "general.alignment", 24),
    "F4 alignment 13": (aligned(u32(13)), "is 13", "general.alignment", 24),
    "F4 alignment 2^31": (aligned(u32(2**31)), f"is {2**31}", "general.alignment", 24),
    "F4 alignment 4": (aligned(u32(4)), "is 4", "general.alignment", 24),
    "F4 alignment of uint64": (aligned(u64(32), 10), "not uint64", "general.alignment", 24),
    "F4 alignment of string": (aligned(u64(2) + b"32", 8), "not string", "general.alignment", 24),
    "F4 alignment of bool": (aligned(b"\1", 7), "not bool", "general.alignment", 24),
    "F6 part of a block": (one((33,), 2), "rows of 33 elements", "tensor t", 24),
    "F6 row of a K block": (one((128, 2), 12), "rows of 128 elements", "tensor t", 24),
    "F6 unknown dtype": (one((32,), 99), "unknown data type 99", "tensor t", 24),
    "F6 removed dtype": (one((32,), 4), "unknown data type 4", "tensor t", 24),
    "F7 misaligned": (one((4,), 0, 4), "offset 4 is not a multiple", "tensor t", 24),
    "F7 overlapping": (
        lambda raw: raw.whole([], [raw.tensor("a", (9,)), raw.tensor("b", (4,), 0, 32)], bytes(64)),
        "overlaps that of tensor a", "tensor b", 57,
    ),
    "F7 the same place": (
        lambda raw: raw.whole([], [raw.tensor("a", (4,)), raw.tensor("b", (4,))], bytes(64)),
        "overlaps that of tensor a", "tensor b", 57,
    ),
    "F7 past the end": (one((4,), 0, 96), "past the end", "tensor t", 24),
    "F7 back into the header": (one((4,), 0, 2**64 - 32), "past the end", "tensor t", 24),
    "F7 size that wraps": (one((2**32, 2**32, 2**32, 2**32)), "past the end", "tensor t", 24),
    "F8 one byte short": (one((16,), 0, 0, 63), "1 bytes past the end", "tensor t", 24),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hostile_file_is_refused(
    name: str, tmp_path: Path, raw: SimpleNamespace, bounded: Callable[[], Any]
) -> None:
    make, problem, field, offset = CASES[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(make(raw))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        open_checkpoint(path, FAMILIES)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert (caught.value.field, caught.value.offset) == (field, offset)


def sparse(path: Path, content: bytes, size: int) -> Path:
    """``content`` and zeros up to ``size``, which take no room on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda raw: raw.array("k", 8, 2**36), "more than"),
        (lambda raw: raw.array("k", 0, 2**38), "more than"),
        (lambda raw: raw.pair("k", 8, u64(2**38)), "more than"),
        (lambda raw: raw.array("k", 8, MAX_ARRAY), "empty key"),
    ],
    ids=["strings", "numbers", "string", "longest allowed array"],
)
def test_a_terabyte_of_zeros_is_not_read(
    make: Any, problem: str, tmp_path: Path, raw: SimpleNamespace, bounded: Callable[[], Any]
) -> None:
    content = raw.whole([make(raw)], [], counts=(0, 2), alignment=1)
    path = sparse(tmp_path / "a.gguf", content, 2**40)
    with bounded(), pytest.raises(ModelFormatError, match=problem):
        read_gguf(path)


def test_many_tensors_and_long_names_stay_bounded(
    tmp_path: Path, raw: SimpleNamespace, bounded: Callable[[], Any]
) -> None:
    path = tmp_path / "a.gguf"
    tensors = [raw.tensor(f"tensor {i}", (0,)) for i in range(MAX_TENSORS - 1)]
    path.write_bytes(raw.whole([], [*tensors, raw.tensor("t", (1,))]))
    with bounded(), pytest.raises(ModelFormatError, match="past the end"):
        read_gguf(path)
    names = [raw.tensor(f"{i:01000000}", (0,)) for i in range(20)]
    path.write_bytes(raw.whole([], names))
    with bounded(), pytest.raises(ModelFormatError, match="bytes of names and strings"):
        read_gguf(path)


def test_string_in_an_array_that_is_not_utf8_is_named_when_it_is_read(
    tmp_path: Path, raw: SimpleNamespace
) -> None:
    path = tmp_path / "a.gguf"
    strings = raw.string("fine") + raw.string(b"\xff")
    path.write_bytes(raw.whole([raw.array("k", 8, 2, strings)], []))
    array: Any = read_gguf(path).metadata["k"].value
    with pytest.raises(ModelFormatError, match="not UTF-8") as caught:
        list(array)
    assert (caught.value.field, caught.value.offset) == ("k[1]", 24 + 9 + 4 + 12 + 12)
