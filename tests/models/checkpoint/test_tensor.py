"""TensorSource: rows, row order, conversion and files that change."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.files.reader import FileReader
from farthing.models.checkpoint import TensorSource
from farthing.quantization import SCHEMES, SCHEMES_BY_GGUF_TYPE, Scheme

KEPT = [row for row in SCHEMES_BY_GGUF_TYPE.values() if row.reading == "kept"]
CONVERTED = [row for row in SCHEMES_BY_GGUF_TYPE.values() if row.reading == "f16"]
QUANTIZED = [row for row in KEPT if row.scale_levels] + CONVERTED


def source(
    path: Path, rows: np.ndarray, stored: str, shape: tuple[int, ...], **more: Any
) -> TensorSource:
    """A tensor of the bytes ``rows`` that starts 5 bytes into a file."""
    path.write_bytes(b"start" + rows.tobytes() + b"end")
    return TensorSource("t", FileReader(path), shape, stored, 5, rows.nbytes, **more)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("row", QUANTIZED, ids=lambda row: row.name)
def test_dequantized_values_are_those_of_the_gguf_package_bit_for_bit(
    row: Scheme, tmp_path: Path, random_blocks: Callable[..., np.ndarray]
) -> None:
    shape = (37, 3 * row.block_cols)
    blocks = random_blocks(row.name, *shape)
    tensor = source(tmp_path / "t", blocks, row.name, shape)
    truth = gguf.dequantize(blocks, gguf.GGMLQuantizationType[row.name.upper()])
    assert np.unique(truth).size > 2
    assert same_bits(tensor.dequantize(), truth)
    assert same_bits(tensor.dequantize(5, 20), truth[5:20])
    assert same_bits(tensor.dequantize(9, 9), truth[9:9])


@pytest.mark.parametrize("row", CONVERTED, ids=lambda row: row.name)
def test_other_types_are_read_as_fp16_rows(
    row: Scheme, tmp_path: Path, random_blocks: Callable[..., np.ndarray]
) -> None:
    shape = (5, 256 * 1024)  # more than one step of the conversion
    blocks = np.tile(random_blocks(row.name, 5, 1024), (1, 256))
    tensor = source(tmp_path / "t", blocks, row.name, shape)
    truth = gguf.dequantize(blocks, gguf.GGMLQuantizationType[row.name.upper()])
    assert (tensor.dtype, tensor.stored_dtype) == ("f16", row.name)
    assert tensor.row_nbytes == 2 * shape[1]
    read = tensor.read_rows(1, 5)
    assert same_bits(read.view(np.float16), truth[1:5].astype(np.float16))


@pytest.mark.parametrize("row", [row for row in KEPT if row.scale_levels], ids=lambda row: row.name)
def test_kept_types_yield_the_bytes_of_the_file(
    row: Scheme, tmp_path: Path, random_blocks: Callable[..., np.ndarray]
) -> None:
    shape = (12, 2 * row.block_cols)
    blocks = random_blocks(row.name, *shape)
    tensor = source(tmp_path / "t", blocks, row.name, shape)
    assert (tensor.rows, tensor.cols, tensor.dtype) == (*shape, row.name)
    assert same_bits(tensor.read_rows(0, 12), blocks)
    assert same_bits(tensor.read_rows(3, 11), blocks[3:11])
    assert tensor.read_rows(4, 4).shape == (0, tensor.row_nbytes)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_floats_are_exact(kind: str, tmp_path: Path) -> None:
    bits = 32 if kind == "f32" else 16
    patterns = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(f"u{bits // 8}")[: 60 * 1024]
    rows = patterns.reshape(60, 1024)
    tensor = source(tmp_path / "t", rows, kind, rows.shape)
    values = tensor.dequantize()
    if kind == "bf16":
        truth = gguf.dequantize(rows.view(np.uint8), gguf.GGMLQuantizationType.BF16)
        assert same_bits(values, truth.view(np.float32))
    else:
        truth = rows.view(f"f{bits // 8}").astype(np.float32)
        np.testing.assert_array_equal(values, truth)
    assert np.isnan(values).any()
    assert (np.abs(values[np.isfinite(values)]) < np.finfo(np.float32).tiny).any()  # denormals


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (0, 4), (4, 0)], ids=str
)
def test_shapes_of_any_rank(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    tensor = source(tmp_path / "t", values, "f32", shape)
    assert same_bits(tensor.dequantize(), values)
    rows = tensor.read_rows(0, tensor.rows)
    assert rows.shape == (tensor.rows, 4 * tensor.cols)
    assert rows.tobytes() == values.tobytes()


@pytest.mark.parametrize("row", [SCHEMES["q8_0"], SCHEMES["iq4_xs"]], ids=lambda row: row.name)
def test_row_order_applies_to_any_part(
    row: Scheme, tmp_path: Path, random_blocks: Callable[..., np.ndarray]
) -> None:
    shape = (24, 2 * row.block_cols)
    blocks = random_blocks(row.name, *shape)
    order = np.random.default_rng(0).permutation(24)
    plain = source(tmp_path / "t", blocks, row.name, shape)
    ordered = replace(plain, row_order=order)
    rows, values = plain.read_rows(0, 24), plain.dequantize()
    for start, stop in [(0, 24), (0, 1), (5, 17), (23, 24), (8, 8)]:
        assert same_bits(ordered.read_rows(start, stop), rows[order[start:stop]])
        assert same_bits(ordered.dequantize(start, stop).reshape(-1, shape[1]),
                         values[order[start:stop]])  # fmt: skip


@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_row_order_of_a_vector_orders_its_elements(kind: str, tmp_path: Path) -> None:
    values = np.arange(12).astype(kind)
    order = np.random.default_rng(1).permutation(12)
    stored = {"f4": "f32", "f2": "f16"}[kind]
    tensor = source(tmp_path / "t", values, stored, (12,), row_order=order)
    assert tensor.read_rows(0, 1).tobytes() == values[order].tobytes()
    np.testing.assert_array_equal(tensor.dequantize(), values[order].astype(np.float32))


def test_rows_are_read_into_a_given_buffer(tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(6, 10)
    tensor = source(tmp_path / "t", values, "f32", (6, 10))
    buffer = np.empty(80, np.uint8)
    rows = tensor.read_rows(2, 4, buffer)
    assert np.shares_memory(rows, buffer)
    assert buffer.tobytes() == values[2:4].tobytes()
    buffers: list[Any] = [
        np.empty(79, np.uint8),
        np.empty(160, np.uint8)[::2],
        np.empty(20, np.float32),
    ]
    for wrong in buffers:
        with pytest.raises(InvalidParameterError, match="80 contiguous bytes"):
            tensor.read_rows(2, 4, wrong)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 7), (4, 3)])
def test_rows_outside_the_tensor_are_refused(start: int, stop: int, tmp_path: Path) -> None:
    tensor = source(tmp_path / "t", np.zeros((6, 4), np.float32), "f32", (6, 4))
    with pytest.raises(InvalidParameterError, match="within 0 to 6"):
        tensor.read_rows(start, stop)
    with pytest.raises(InvalidParameterError, match="within 0 to 6"):
        tensor.dequantize(start, stop)


@pytest.mark.parametrize(
    ("scale", "value"), [(1000.0, "4.064e+06"), (np.inf, "inf"), (np.nan, "nan")], ids=str
)
def test_a_value_that_does_not_fit_fp16_names_the_tensor(
    scale: float, value: str, tmp_path: Path
) -> None:
    blocks = np.zeros((3, 136), np.uint8)  # sub-scales of -32, levels of -127
    blocks[2, :2] = np.array([scale], np.float16).view(np.uint8)
    tensor = source(tmp_path / "t", blocks, "iq4_xs", (3, 256))
    assert tensor.read_rows(0, 2).shape == (2, 512)
    problem = re.escape(f"iq4_xs value {value} at row 2")
    with pytest.raises(ModelFormatError, match=problem) as caught:
        tensor.read_rows(0, 3)
    assert "does not fit fp16" in str(caught.value)
    assert (caught.value.field, caught.value.offset) == ("tensor t", 5 + 2 * 136)


def test_a_file_cut_after_opening_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(6, 10)
    tensor = source(tmp_path / "t", values, "f32", (6, 10))
    with (tmp_path / "t").open("r+b") as file:
        file.truncate(5 + 100)
    assert tensor.read_rows(0, 2).tobytes() == values[:2].tobytes()
    with pytest.raises(ModelFormatError, match="changed after it was opened") as caught:
        tensor.read_rows(0, 6)
    assert caught.value.offset == 105


def test_a_file_replaced_after_opening_is_still_read_as_it_was(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = source(tmp_path / "t", values, "f32", (3, 4))
    (tmp_path / "new").write_bytes(bytes(100))
    (tmp_path / "new").replace(tmp_path / "t")
    assert same_bits(tensor.dequantize(), values)


def test_files_are_closed_when_the_last_tensor_is_dropped(tmp_path: Path) -> None:
    def is_open(path: Path) -> bool:
        links = (link.resolve() for link in Path("/proc/self/fd").iterdir())
        return path in list(links)

    tensor = source(tmp_path / "t", np.zeros(4, np.float32), "f32", (4,))
    assert is_open(tmp_path / "t")
    del tensor
    assert not is_open(tmp_path / "t")
