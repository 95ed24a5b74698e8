"""Sizes that do not fit the arithmetic made with them are refused, with numbers that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from farthing import _native

INT32, INT64 = 2**31 - 1, 2**63 - 1


def matrix() -> _native.Matrix:
    return _native.Matrix("w4g64", 20, 64)


def bytes_of(n: int) -> npt.NDArray[np.uint8]:
    return np.zeros(n, np.uint8)


@pytest.mark.parametrize(("first", "count"), [(INT64, 1), (1, INT64), (INT64, INT64), (-1, INT64)])
def test_rows_past_the_last_are_refused(first: int, count: int) -> None:
    words = f"^{count} rows from row {first} on, of a matrix of 20 rows$"
    with pytest.raises(ValueError, match=words):
        matrix().dequantize(first, count)


def test_bytes_past_the_last_are_refused() -> None:
    nbytes = matrix().nbytes
    words = f"^64 bytes from byte {2**64 - 1} on, of packed memory of {nbytes} bytes$"
    with pytest.raises(ValueError, match=words):
        matrix().fill_packed(2**64 - 1, bytes_of(64))


def test_a_matrix_has_no_more_rows_than_can_be_counted() -> None:
    with pytest.raises(ValueError, match=f"^a matrix has at most {2**31 - 16} rows, got {INT32}$"):
        _native.Matrix("w4g64", INT32, 64)
    nbytes = (2**27 - 1) * _native.Matrix("w4g64", 16, 64).nbytes
    with pytest.raises(ValueError, match=f" takes {nbytes} bytes, not 64$"):
        _native.Matrix.from_packed("w4g64", 2**31 - 16, 64, bytes_of(64))


def test_the_bytes_of_a_matrix_are_known_without_one() -> None:
    for scheme, cols in (("w4g64", 64), ("w4g64", 70), ("q4_k", 512), ("f32", 5), ("w8row", 33)):
        whole = _native.Matrix(scheme, 33, cols).nbytes
        assert 3 * _native.row_block_bytes(scheme, cols) == whole
    most = 2**30 - 256
    assert _native.row_block_bytes("f32", most) == 64 * most
    for cols in (0, -1, most + 1, INT32):
        with pytest.raises(ValueError, match=r"needs rows and columns|has at most 1073741568 col"):
            _native.row_block_bytes("f32", cols)
    with pytest.raises(ValueError, match="q4_k needs a multiple of 256 columns, got 64"):
        _native.row_block_bytes("q4_k", 64)


@pytest.mark.parametrize("padding", [2**64 - 1, 2**64 - 20, 2**62, 2**61])
def test_a_result_that_no_memory_holds_is_refused(padding: int) -> None:
    x = np.ones((2, 64), np.float32)
    with pytest.raises(MemoryError):
        _native.linear(matrix(), x, "scalar", padding=padding)


def test_columns_that_cannot_be_filled_up_are_refused() -> None:
    words = f"^x has at most {2**30 - 256} columns, got {INT32}$"
    with pytest.raises(ValueError, match=words):
        _native.quantize_rows(np.empty((0, INT32), np.float32), 64, "scalar")
    with pytest.raises(ValueError, match=f"^int8 buffer cols is {INT32}, must be from 1 to "):
        _native.Program(1, "scalar").int8_buffer("T", INT32, 64)


def test_a_pool_whose_blocks_no_memory_holds_is_refused() -> None:
    # 2 * 4 bytes * 16 tokens * 2^30 * 2^24 * 2^3: none, counted in 64 bits.
    with pytest.raises(MemoryError):
        _native.TestPool("scalar", "fp32", 1 << 24, 8, 1 << 30, bytes_of(64))
    with pytest.raises(MemoryError):
        _native.KvPool("fp32", 1 << 24, 8, 1 << 30, 1)


def attend(**changed: Any) -> npt.NDArray[np.float32]:
    pool = _native.TestPool("scalar", "fp32", 1, 1, 16, bytes_of(4096))
    arguments: dict[str, Any] = {
        "layer": 0,
        "block_table": np.zeros(1, np.int32),
        "position": 0,
        "q": np.ones((2, 1, 16), np.float32),
        "scale": 1.0,
        "softcap": 0.0,
        "window": 0,
        "tiles": [2],
    }
    return pool.attend(**{**arguments, **changed})


def test_a_position_past_the_block_table_is_refused() -> None:
    assert attend().shape == (2, 1, 16)
    for position in (15, INT32 - 17, INT32 - 1, INT32):
        with pytest.raises(ValueError, match=r"^block_table is too short$"):
            attend(position=position)


def test_tiles_of_more_rows_than_there_are_are_refused() -> None:
    for tiles in ([3], [1, INT32], [1, 1, INT32], [INT32]):
        with pytest.raises(ValueError, match=r"^tiles must add up to the tokens$"):
            attend(tiles=tiles)


def test_more_numbers_than_are_counted_are_refused() -> None:
    words = rf"^an array of {2**32 - 1} rows or columns; there may be {INT32}$"
    with pytest.raises(ValueError, match=words):
        _native.gumbel("scalar", 0, 0, 0, 0, 2**32 - 1)
    with pytest.raises(ValueError, match=words):
        _native.philox("scalar", 0, np.zeros(4, np.uint32), 2**32 - 1)


@pytest.mark.parametrize("name", ["barrier_seconds", "start_seconds"])
def test_rounds_that_cannot_be_kept_are_refused(name: str) -> None:
    pool, idle = _native.ThreadPool(1, 1), {"idle": 0.0} if name == "start_seconds" else {}
    time: Callable[..., list[float]] = getattr(_native, name)
    for rounds in (0, -1, 1_000_001, INT32):
        with pytest.raises(ValueError, match=f"^rounds={rounds} must be from 1 to 1000000$"):
            time(pool, rounds, **idle)
    assert len(time(pool, 3, **idle)) == 3


def run(*positions: int, logit_rows: int = 0) -> None:
    program = _native.Program(4, "scalar")
    program.embed(_native.Matrix("f32", 8, 16), program.float_buffer("T", 16))
    none = np.empty(0, np.int32)
    program.run(
        _native.ThreadPool(1, 1),
        _native.KvPool("fp16", 1, 1, 16, 4),
        np.zeros(len(positions), np.int32),
        np.array(positions, np.int32),
        np.array([0, len(positions)], np.int32),
        np.zeros((1, 4), np.int32),
        np.zeros(logit_rows, np.int32),
        none,
        none,
        [],
        none,
    )


def test_no_position_comes_after_the_last_that_can_be_counted() -> None:
    run(0, 1)
    words = f"^positions has {-(2**31)}, must be consecutive within a sequence$"
    with pytest.raises(ValueError, match=words):
        run(INT32, -(2**31))


def test_rows_are_counted_before_anything_else() -> None:
    run(0, 1, logit_rows=4)
    with pytest.raises(ValueError, match=r"^the step has 5, must be at most 4 rows$"):
        run(0, 1, logit_rows=5)
    with pytest.raises(ValueError, match=r"^the step has 5, must be at most 4 rows$"):
        run(0, 1, 2, 3, 4)
