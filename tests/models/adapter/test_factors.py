"""The factors as weights: scaled once, stored types kept where that loses nothing, all finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from farthing.errors import ModelFormatError
from farthing.models.adapter import open_adapter
from farthing.models.adapter.factors import FactorPart, InputFactor, OutputFactor
from farthing.models.checkpoint import TensorSource

NAMES = {
    half: f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight" for half in "AB"
}
OUTPUTS, INPUTS, RANK = 40, 24, 3


def factors(builder: Any, path: Path, dtype: str = "float32", **values: torch.Tensor) -> Any:
    """(A, B, their tensors), stored as ``dtype``."""
    torch.manual_seed(3)
    tensors = {
        NAMES["A"]: values.get("A", torch.randn(RANK, INPUTS)),
        NAMES["B"]: values.get("B", torch.randn(OUTPUTS, RANK)),
    }
    tensors = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}
    save_file(tensors, builder.write(path) / "adapter_model.safetensors")
    (pair,) = open_adapter(path).pairs
    return pair.a, pair.b, tensors


def output(b: TensorSource, scale: float, first_col: int = 0, cols: int = RANK) -> OutputFactor:
    return OutputFactor((OUTPUTS, cols), (FactorPart(b, 0, first_col, scale),))


@pytest.mark.parametrize(
    ("dtype", "scale", "served"),
    [
        ("float32", 2.0, "f32"),
        ("float32", 0.7, "f32"),
        ("bfloat16", 0.5, "bf16"),
        ("bfloat16", -4.0, "bf16"),
        ("bfloat16", 1.5, "f32"),
        ("bfloat16", 0.0, "f32"),
        ("float16", 1.0, "f16"),
        ("float16", 0.5, "f32"),
    ],
)
def test_b_is_scaled_with_one_rounding_and_keeps_its_type_where_none_is_needed(
    builder: Any, tmp_path: Path, dtype: str, scale: float, served: str
) -> None:
    a, b, tensors = factors(builder, tmp_path, dtype)
    factor = output(b, scale)
    assert factor.dtype == served
    exact = tensors[NAMES["B"]].double() * scale
    np.testing.assert_array_equal(factor.dequantize(), exact.float().numpy())
    rows = factor.read_rows(5, 21)
    assert rows.shape == (16, factor.row_nbytes)
    stored = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[served]
    read = torch.frombuffer(bytearray(rows.tobytes()), dtype=stored).reshape(16, RANK)
    assert torch.equal(read.double(), exact[5:21].float().double())
    np.testing.assert_array_equal(InputFactor(a).dequantize(), tensors[NAMES["A"]].float().numpy())
    assert InputFactor(a).read_rows(1, 3).tobytes() == a.read_rows(1, 3).tobytes()


def test_pairs_stand_side_by_side_and_the_rest_is_zero(builder: Any, tmp_path: Path) -> None:
    _, b, tensors = factors(builder, tmp_path)
    values = tensors[NAMES["B"]].numpy()
    parts = (FactorPart(b, 10, 1, 1.0), FactorPart(b, 0, 5, 2.0))
    expected = np.zeros((20, 9), np.float32)
    expected[:, 1:4], expected[:, 5:8] = values[10:30], 2 * values[:20]
    np.testing.assert_array_equal(OutputFactor((20, 9), parts).dequantize(), expected)
    nothing = OutputFactor((20, 9), ())
    assert not nothing.dequantize().any()
    assert nothing.read_rows(0, 20).nbytes == nothing.rows * nothing.row_nbytes


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", ["A", "B"])
def test_a_value_that_is_not_finite_is_named_with_its_place(
    builder: Any, tmp_path: Path, dtype: str, bad: float, half: str
) -> None:
    values = torch.zeros((RANK, INPUTS) if half == "A" else (OUTPUTS, RANK))
    values[2, 1] = bad
    a, b, _ = factors(builder, tmp_path, dtype, **{half: values})
    source = InputFactor(a) if half == "A" else output(b, 1.0)
    with pytest.raises(ModelFormatError, match="row 2, column 1 is a NaN or an infinity") as caught:
        source.read_rows(1, 3)
    assert caught.value.field == f"tensor {NAMES[half]}"
    source.read_rows(0, 2)
    stacked = OutputFactor((3, 9), (FactorPart(b, 1, 4, 1.0), FactorPart(b, 30, 0, 1.0)))
    if half == "B":
        with pytest.raises(ModelFormatError, match="row 2, column 1 is a NaN or an infinity"):
            stacked.dequantize()


def test_a_scale_that_overflows_is_refused(builder: Any, tmp_path: Path) -> None:
    _, b, _ = factors(builder, tmp_path, B=torch.full((OUTPUTS, RANK), 1e38))
    with pytest.raises(
        ModelFormatError, match=r"row 0, column 0 is 1e\+38, .* scale 4 does not fit"
    ):
        output(b, 4.0).read_rows(0, 8)
