"""StepBatch: flat arrays that cannot contradict each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError
from farthing.program.step import SequenceRows, StepBatch, step_batch


def int32(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


BATCH = step_batch(
    [
        SequenceRows([7, 8, 9], position=14, block_table=[5, 2], logits=2, argmax=1, hidden=1),
        SequenceRows([4], position=0, block_table=[3], argmax=1),
        SequenceRows([1, 2], position=30, block_table=[0, 6, 1, 8], logits=0, hidden=2),
    ]
)


def test_sequences_become_rows_in_the_order_given() -> None:
    expected = {
        "tokens": [7, 8, 9, 4, 1, 2],
        "positions": [14, 15, 16, 0, 30, 31],
        "row_offsets": [0, 3, 4, 6],
        "logit_rows": [1, 2, 3],
        "argmax_rows": [2, 3],
        "hidden_rows": [2, 4, 5],
    }
    assert {name: getattr(BATCH, name).tolist() for name in expected} == expected
    tables = zip(BATCH.block_tables.tolist(), [[5, 2], [3], [0, 6, 1, 8]], strict=True)
    assert all(row[: len(table)] == table for row, table in tables)
    assert (BATCH.num_rows, BATCH.num_sequences) == (6, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": np.arange(6)}, "tokens: expected a contiguous int32 array of 1 dimension"),
        ({"tokens": np.zeros(12, np.int32)[::2]}, "tokens: expected a contiguous int32"),
        ({"block_tables": int32(1, 2, 3)}, "block_tables: expected .* 2 dimension"),
        ({"positions": int32(14, 15, 16, 0, 30)}, "positions: 5 entries for 6 tokens"),
        ({"positions": int32(14, 15, 17, 0, 30, 31)}, "positions: .* consecutive"),
        ({"positions": int32(14, 15, 16, -1, 30, 31)}, "positions: .* from 0 up"),
        ({"row_offsets": int32(0, 3, 3, 6)}, "row_offsets: .* at least one row"),
        ({"row_offsets": int32(0, 3, 4, 5)}, "row_offsets: .* does not split 6 rows"),
        ({"row_offsets": int32(1, 3, 4, 6)}, "row_offsets: .* does not split 6 rows"),
        ({"row_offsets": int32(0)}, "row_offsets: .* does not split 6 rows"),
        ({"row_offsets": np.zeros(0, np.int32)}, "row_offsets: .* does not split 6 rows"),
        ({"block_tables": np.zeros((3, 1), np.int32)}, "block_tables: .* up to 2 block"),
        ({"block_tables": np.zeros((2, 4), np.int32)}, "block_tables: .* hold 3 sequence"),
        ({"block_tables": np.full((3, 4), -1, np.int32)}, "block_tables: a negative block id"),
        ({"logit_rows": int32(0, 6)}, r"logit_rows: a row index is outside 0\.\.5"),
        ({"argmax_rows": int32(6)}, r"argmax_rows: a row index is outside 0\.\.5"),
        ({"hidden_rows": int32(-1)}, r"hidden_rows: a row index is outside 0\.\.5"),
    ],
)
def test_contradictions_are_errors(changes: dict[str, NDArray[np.int32]], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        replace(BATCH, **changes).check()


@pytest.mark.parametrize("count", [-1, 3])
@pytest.mark.parametrize("result", ["logits", "argmax", "hidden"])
def test_no_more_results_than_rows(result: str, count: int) -> None:
    asked = {"logits": 0, result: count}
    with pytest.raises(InvalidParameterError, match=f"{result}: {count} rows asked of .* 2 row"):
        step_batch([SequenceRows([1, 2], 0, [0], **asked)])


def test_a_step_needs_a_sequence_and_a_sequence_needs_a_row() -> None:
    with pytest.raises(InvalidParameterError, match="at least one sequence"):
        step_batch([])
    with pytest.raises(InvalidParameterError, match="at least one row"):
        step_batch([SequenceRows([], 0, [0], logits=0)])


def test_an_empty_batch_is_refused() -> None:
    empty = np.zeros(0, np.int32)
    with pytest.raises(InvalidParameterError, match="row_offsets"):
        StepBatch(empty, empty, int32(0), np.zeros((0, 1), np.int32), empty, empty, empty).check()
