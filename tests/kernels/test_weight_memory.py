"""Where weights lie: memory nodes, and copies of packed matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing import _native


@pytest.mark.parametrize(
    ("listed", "nodes"),
    [
        ("0", [0]),
        ("0-1,4", [0, 1, 4]),
        ("7,2-3,2", [2, 3, 7]),
        ("", []),
        ("3-1", []),
        ("1-", []),
        ("99999999999999999999,5", [5]),
        ("1022-5000", [1022, 1023]),
    ],
)
def test_nodes_are_those_of_the_status_file(tmp_path: Path, listed: str, nodes: list[int]) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nMems_allowed:\t00000003\nMems_allowed_list:\t{listed}\nx:\t1\n")
    assert _native.memory_nodes(str(status)) == nodes


def test_no_status_file_names_no_nodes(tmp_path: Path) -> None:
    assert _native.memory_nodes(str(tmp_path / "none")) == []
    status = tmp_path / "status"
    status.write_text("Name:\tx\n")
    assert _native.memory_nodes(str(status)) == []


def test_this_process_has_a_node_and_memory_can_be_spread_over_it() -> None:
    nodes = _native.memory_nodes()
    if _native.interleaved_policy([]) == "refused, unknown":
        pytest.skip("this kernel knows no memory nodes")
    assert nodes
    assert _native.interleaved_policy(nodes[:1]) == f"interleave:{nodes[0]}"
    assert _native.interleaved_policy(nodes) == "interleave:" + ",".join(map(str, nodes))


@pytest.mark.parametrize("nodes", [[], [1023], [1024], [-1]])
def test_nodes_that_do_not_exist_change_nothing(nodes: list[int]) -> None:
    assert _native.interleaved_policy(nodes) in ("refused, default", "refused, unknown")


@pytest.mark.parametrize("scheme", ["q4_k", "q8_0", "f16"])
def test_a_copy_has_the_same_weights_and_memory_of_its_own(scheme: str) -> None:
    row = next(s for s in _native.schemes() if s["name"] == scheme)
    rows, cols = 37, 2 * max(row["block_cols"], 32)
    packed = np.random.default_rng(1).integers(
        0, 60, (rows, cols // row["block_cols"] * row["block_bytes"]), dtype=np.uint8
    )
    matrix = _native.Matrix(scheme, rows, cols)
    matrix.pack(0, packed)
    copy = _native.Matrix(scheme, rows, cols)
    for start in range(0, matrix.nbytes, 1000):
        copy.fill_packed(start, matrix.packed_bytes()[start : start + 1000])
    assert (copy.scheme, copy.rows, copy.cols, copy.nbytes) == (scheme, rows, cols, matrix.nbytes)
    values = matrix.dequantize(0, rows)
    assert np.any(values != 0)
    np.testing.assert_array_equal(copy.dequantize(0, rows), values)

    matrix.pack(0, np.zeros_like(packed))
    assert not np.any(matrix.dequantize(0, rows))
    np.testing.assert_array_equal(copy.dequantize(0, rows), values)
    del matrix
    copy.pack(0, packed[:1])
    np.testing.assert_array_equal(copy.dequantize(0, rows), values)
