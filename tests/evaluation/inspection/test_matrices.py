"""Which matrices a model has, and their values however they are stored."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.numpy

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.evaluation.inspection.matrices import Matrices, find_matrices, short_name
from farthing.models.checkpoint import TensorSource, open_checkpoint
from farthing.models.registry import FAMILIES
from support.packing import RoundedInMemory, pack
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model


def matrices_of(path: Path) -> Matrices:
    return find_matrices(open_checkpoint(path, FAMILIES))


def test_projections_are_the_layers_and_the_tied_embedding_is_apart(planted_model: Path) -> None:
    found = matrices_of(planted_model)
    attention = [f"self_attn.{x}_proj" for x in "qkvo"]
    parts = [*attention, *(f"mlp.{x}_proj" for x in ("gate", "up", "down"))]
    names = [f"model.layers.{i}.{part}.weight" for i in range(3) for part in parts]
    assert [matrix.name for matrix in found.layers] == names
    assert [matrix.name for matrix in found.apart] == ["model.embed_tokens.weight"]
    assert found.routers == 0
    assert found.stored() == {"f32": 22}
    assert found.largest_bytes == 4 * max(matrix.size for matrix in found.all)


def test_experts_are_matrices_and_their_router_is_not(tmp_path: Path) -> None:
    found = matrices_of(make_tiny_model("qwen3-moe", tmp_path / "moe"))
    assert len(found.layers) == 3 * (4 + 8 * 3)
    assert [matrix.name for matrix in found.apart] == [
        "model.embed_tokens.weight",
        "lm_head.weight",
    ]
    assert found.routers == 3
    assert not [matrix for matrix in found.all if matrix.name.endswith("mlp.gate.weight")]


def test_values_are_the_files(planted_model: Path) -> None:
    tensors = safetensors.numpy.load_file(planted_model / "model.safetensors")
    for matrix in matrices_of(planted_model).all:
        np.testing.assert_array_equal(matrix.read(), tensors[matrix.name])


def test_values_of_a_quantized_file_are_its_dequantized_ones(tmp_path: Path) -> None:
    directory = make_tiny_model("qwen2-tied", tmp_path / "model")
    found = matrices_of(write_gguf("qwen2-tied", directory, tmp_path / "q8.gguf", "Q8_0"))
    assert found.stored()["q8_0"] > 10
    for matrix in found.all:
        source = matrix.source
        assert isinstance(source, TensorSource)
        stored = np.fromfile(source.file, np.uint8)[source.offset :][: source.nbytes]
        kind = gguf.GGMLQuantizationType[source.stored_dtype.upper()]
        expected = gguf.dequantize(stored.view(np.float32) if kind == 0 else stored, kind)
        np.testing.assert_array_equal(matrix.read(), expected.reshape(matrix.shape))


@pytest.mark.parametrize("scheme", ["w4g64", "nf4g64", "w8row", "w3tensor", "km4g64", "bf16"])
def test_values_of_a_packed_directory_are_what_it_serves(
    planted_model: Path, tmp_path: Path, scheme: str
) -> None:
    """Rounded, packed and read back: the values of the same matrices packed in memory."""
    found = matrices_of(pack(planted_model, tmp_path / "packed", scheme))
    assert set(found.stored()) == {scheme}
    if scheme == "bf16":
        tensors = safetensors.numpy.load_file(planted_model / "model.safetensors")
        for matrix in found.all:
            error = np.abs(matrix.read() - tensors[matrix.name])
            assert (error <= np.abs(tensors[matrix.name]) / 256).all()
            assert error.any()
        return
    rounded = RoundedInMemory(planted_model, scheme).weights
    for matrix in found.all:
        weight = rounded[matrix.name]
        assert not isinstance(weight, np.ndarray)
        np.testing.assert_array_equal(matrix.read(), weight.dequantize(0, matrix.shape[0]))


def test_a_weight_that_is_no_number_is_named(planted_model: Path, tmp_path: Path) -> None:
    directory = make_tiny_model("qwen2-tied", tmp_path / "model")
    file = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][2, 7] = np.nan
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    matrix = matrices_of(directory).named("layers.1.mlp.up_proj")
    with pytest.raises(ModelFormatError, match=r"up_proj.*row 2, column 7 is a NaN"):
        matrix.read()


def test_names_may_be_short_and_near_ones_are_told(planted_model: Path) -> None:
    found = matrices_of(planted_model)
    whole = "model.layers.2.mlp.down_proj.weight"
    assert short_name(whole) == "layers.2.mlp.down_proj"
    for name in (whole, short_name(whole), "layers.2.mlp.down_proj.weight"):
        assert found.named(name).name == whole
    with pytest.raises(
        InvalidParameterError, match=r"'layers\.9\.mlp\.down_proj'.*layers\.\d\.mlp"
    ):
        found.named("layers.9.mlp.down_proj")
    with pytest.raises(InvalidParameterError, match="its 22 are named like"):
        found.named("?")
