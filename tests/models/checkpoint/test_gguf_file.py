"""The GGUF parser: what GGUFWriter writes is read as GGUFReader reads it."""

import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from farthing.errors import FarthingError, ModelFormatError
from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.gguf_file import GgufFile, read_gguf
from farthing.models.checkpoint.gguf_metadata import WINDOW, NumberArray, StringArray, ValueType
from farthing.models.registry import FAMILIES

SCALARS = {
    "UINT8": 255, "INT8": -128, "UINT16": 65535, "INT16": -32768, "UINT32": 2**32 - 1,
    "INT32": -(2**31), "UINT64": 2**64 - 1, "INT64": -(2**63), "FLOAT32": 0.1, "FLOAT64": 0.1,
    "BOOL": True, "STRING": "naïve 東京 \N{CRAB}",
}  # fmt: skip


def plain(file: GgufFile, key: str) -> Any:
    value = file.metadata[key].value
    if isinstance(value, StringArray):
        return list(value)
    if isinstance(value, NumberArray):
        return value.floats() if value.kind.name.startswith("FLOAT") else value.integers()
    return value


def assert_same_as_gguf_package(path: Path) -> GgufFile:
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert list(ours.metadata) == keys
    for key in keys:
        assert plain(ours, key) == theirs.fields[key].contents(), key
        assert ours.metadata[key].offset == theirs.fields[key].offset
    assert ours.data_offset == theirs.data_offset
    assert len(ours.tensors) == len(theirs.tensors)
    for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert mine.name == other.name
        assert mine.shape == tuple(other.shape.tolist()[::-1])
        assert mine.scheme.name == other.tensor_type.name.lower()
        assert (mine.offset, mine.nbytes) == (other.data_offset, other.n_bytes)
        assert ours.reader.read(mine.offset, mine.nbytes) == other.data.tobytes()
    return ours


def test_every_kind_of_value_is_read_as_the_gguf_package_reads_it(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for name, value in SCALARS.items():
        writer.add_key_value(f"scalar.{name}", value, gguf.GGUFValueType[name])
        if name not in ("STRING", "BOOL"):
            writer.add_key_value(
                f"array.{name}",
                [value, 0, value],
                gguf.GGUFValueType.ARRAY,
                gguf.GGUFValueType[name],
            )
    writer.add_array("array.STRING", ["", "a", "é" * 300])
    writer.add_array("array.BOOL", [True, False, True])
    writer.add_tensor("x", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    writer.add_tensor("y", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = assert_same_as_gguf_package(tmp_path / "a.gguf")
    assert file.metadata["scalar.UINT64"].kind is ValueType.UINT64
    assert file.tensors[0].shape == (2, 3, 4)


def test_strings_are_read_across_windows_of_the_file(
    tmp_path: Path, raw: Any, gguf_builder: Any
) -> None:
    rng = random.Random(3)
    strings = ["x" * rng.choice([0, 1, 7, 1000, 70_000]) for _ in range(200)]
    strings.append("y" * (WINDOW - 1))  # longer than what is left of any window
    strings += ["z"] * 3
    pairs = [
        raw.pair("pad", 8, raw.string("p" * (WINDOW - 100))),
        raw.array("strings", 8, len(strings), b"".join(raw.string(s) for s in strings)),
        raw.array("numbers", 5, 300_000, bytes(1_200_000)),
        raw.pair("after", 4, (77).to_bytes(4, "little")),
    ]
    path = tmp_path / "a.gguf"
    path.write_bytes(raw.whole(pairs, []))
    file = read_gguf(path)
    array = file.metadata["strings"].value
    assert isinstance(array, StringArray)
    assert len(array) == len(strings)
    assert list(array) == strings
    assert array[-1] == "z"
    assert array[0:2] == strings[0:2]
    assert plain(file, "numbers") == [0] * 300_000
    assert plain(file, "after") == 77


def test_version_2_is_read(tmp_path: Path, raw: Any) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(raw.whole([raw.pair("k", 7, b"\1")], [], version=2))
    file = read_gguf(path)
    assert (file.version, plain(file, "k")) == (2, True)


def test_alignment_moves_the_data(tmp_path: Path, raw: Any) -> None:
    path = tmp_path / "a.gguf"
    pairs = [raw.pair("general.alignment", 4, (256).to_bytes(4, "little"))]
    tensors = [raw.tensor("a", (2,), 0, 0), raw.tensor("b", (2,), 0, 256)]
    path.write_bytes(raw.whole(pairs, tensors, bytes(range(256)) + b"B" * 8, alignment=256))
    file = read_gguf(path)
    assert file.alignment == 256
    assert file.data_offset == 256
    assert file.reader.read(file.tensors[1].offset, 8) == b"B" * 8


def test_tensors_without_elements_and_without_dimensions_are_read(tmp_path: Path, raw: Any) -> None:
    path = tmp_path / "a.gguf"
    tensors = [
        raw.tensor("empty", (0,), 0, 0),
        raw.tensor("none", (32, 0), 2, 0),
        raw.tensor("scalar", (), 0, 0),
    ]
    path.write_bytes(raw.whole([], tensors, b"\0\0\x80\x3f"))
    empty, none, scalar = read_gguf(path).tensors
    assert (empty.shape, empty.nbytes) == ((0,), 0)
    assert (none.shape, none.nbytes) == ((0, 32), 0)
    assert (scalar.shape, scalar.nbytes) == ((), 4)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path, gguf_builder: Any) -> None:
    builder = gguf_builder("qwen2")
    builder.keys["tokenizer.ggml.tokens"] = ["a", "bc", "def"]
    builder.keys["tokenizer.ggml.scores"] = [0.5, 1.5, 2.5]
    content = builder.write(tmp_path / "whole.gguf").read_bytes()
    last = max(read_gguf(tmp_path / "whole.gguf").tensors, key=lambda t: t.offset)
    end = last.offset + last.nbytes
    directory = read_gguf(tmp_path / "whole.gguf").data_offset
    path = tmp_path / "cut.gguf"
    for length in [*range(0, directory, 2), *range(directory, end, 997), end - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFormatError):
            read_gguf(path)
    path.write_bytes(content[:end])  # the padding after the last tensor may be missing
    assert len(read_gguf(path).tensors) == len(builder.tensors)


def test_a_damaged_file_is_read_or_refused_but_nothing_else(
    tmp_path: Path, gguf_builder: Any
) -> None:
    builder = gguf_builder("llama")
    builder.keys["tokenizer.ggml.tokens"] = ["a", "bc", "def"]
    builder.keys["tokenizer.ggml.add_bos_token"] = True
    content = builder.write(tmp_path / "whole.gguf").read_bytes()
    directory = read_gguf(tmp_path / "whole.gguf").data_offset
    path = tmp_path / "damaged.gguf"
    rng = random.Random(11)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(directory)] = rng.choice([0, 1, 9, 127, 128, 255])
        path.write_bytes(damaged)
        try:
            file = read_gguf(path)
            for entry in file.metadata:
                plain(file, entry)
            open_checkpoint(path, FAMILIES)
        except FarthingError:
            refused += 1
    assert 300 < refused < 1000


@pytest.mark.slow
def test_real_files_are_read_as_the_gguf_package_reads_them(
    qwen_gguf: Path, gemma_gguf: Path
) -> None:
    assert len(assert_same_as_gguf_package(qwen_gguf).tensors) == 291
    assert len(assert_same_as_gguf_package(gemma_gguf).tensors) == 236
