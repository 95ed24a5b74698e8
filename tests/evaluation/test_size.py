"""Bytes and bits of a loaded model, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.evaluation.size import Size, size_of
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from support.packing import pack


def size(path: Path) -> Size:
    loaded = load_model(path, LoadOptions(kv_cache_tokens=256))
    try:
        return size_of(loaded)
    finally:
        loaded.runner.close()


def matrices(path: Path) -> list[tuple[int, int]]:
    tensors = open_checkpoint(path, FAMILIES).tensors.values()
    return [(t.shape[0], t.shape[1]) for t in tensors if len(t.shape) == 2]


def test_floats_take_what_they_are(reference_model: Path) -> None:
    found = size(reference_model)
    assert found.bits_per_weight == 32
    assert found.files == (reference_model / "model.safetensors").stat().st_size
    assert found.weights >= sum(4 * rows * cols for rows, cols in matrices(reference_model))


@pytest.mark.parametrize(
    ("scheme", "scales"),
    [
        ("w8row", lambda rows, cols: rows),
        ("w4g64", lambda rows, cols: rows * -(-cols // 64)),
        ("w4tensor", lambda rows, cols: 1),
    ],
)
def test_bits_are_those_of_codes_and_scales(
    scheme: str, scales: object, reference_model: Path, tmp_path: Path
) -> None:
    """Of the scheme itself, whatever layout carries it; groups count whole."""
    found = size(pack(reference_model, tmp_path / "packed", scheme))
    shapes = matrices(reference_model)
    code_bits, group = int(scheme[1]), 64 if scheme.endswith("g64") else 1
    assert callable(scales)
    bits = sum(
        code_bits * rows * -(-cols // group) * group + 16 * scales(rows, cols)
        for rows, cols in shapes
    )
    assert found.bits_per_weight == bits / sum(rows * cols for rows, cols in shapes)


def test_what_a_carrier_takes_more_is_in_memory(reference_model: Path, tmp_path: Path) -> None:
    carried = size(pack(reference_model, tmp_path / "carried", "w4tensor"))
    carrier = size(pack(reference_model, tmp_path / "carrier", "w4row"))
    assert carried.weights == carrier.weights
    assert carried.bits_per_weight < carrier.bits_per_weight
