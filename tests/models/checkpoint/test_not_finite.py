"""F14: a NaN or an infinity in any weight or scale is refused while it is loaded, by its place."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from farthing.errors import ModelFormatError
from farthing.models.checkpoint import check_tensors, open_checkpoint
from farthing.models.checkpoint.gguf_file import read_gguf
from farthing.models.registry import FAMILIES, build_program
from farthing.program.weights import load_weights
from farthing.quantization import SCHEMES_BY_GGUF_TYPE

READABLE = [row for row in SCHEMES_BY_GGUF_TYPE.values() if row.reading != "refused"]
MATRICES = ("token_embd", "output", "blk.0.attn_q", "blk.0.attn_k", "blk.0.ffn_down")
VECTORS = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")


def load(path: Path) -> None:
    checkpoint = open_checkpoint(path, FAMILIES)
    program = build_program(checkpoint.config)
    check_tensors(checkpoint, program.weights)
    load_weights(program, checkpoint.tensors, num_threads=2)


def assert_refused(path: Path, name: str, offset: int, *parts: str) -> None:
    with pytest.raises(ModelFormatError) as caught:
        load(path)
    assert (caught.value.file, caught.value.field) == (path, f"tensor {name}")
    assert caught.value.offset == offset
    for part in parts:
        assert part in str(caught.value)


def place(path: Path, name: str, row: int, row_bytes: int, inside: int = 0) -> int:
    """The byte of the file ``inside`` bytes into a row of a tensor, from the gguf package."""
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == name)
    return int(tensor.data_offset) + row * row_bytes + inside


def damage(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("name", MATRICES)
def test_a_number_of_a_matrix(
    value: float, name: str, tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()
    path = builder.write(tmp_path / "a.gguf")
    load(path)
    rows, cols = builder.tensors[f"{name}.weight"].shape
    for row, column in ((0, 0), (rows // 2, 3), (rows - 1, cols - 1)):
        path = builder.write(tmp_path / "a.gguf")
        at = place(path, f"{name}.weight", row, 4 * cols, 4 * column)
        damage(path, at, np.float32(value).tobytes())
        assert_refused(path, f"{name}.weight", at, f"column {column} is a NaN or an infinity")


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_number_of_a_vector(
    name: str, dtype: type, tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()
    vector = builder.tensors[f"{name}.weight"].astype(dtype)
    vector[5] = np.inf
    builder.tensors[f"{name}.weight"] = vector
    path = builder.write(tmp_path / "a.gguf")
    at = place(path, f"{name}.weight", 0, 0, 5 * vector.itemsize)
    assert_refused(path, f"{name}.weight", at, "the value at row 0, column 5")


def test_a_number_of_a_bias_whose_order_changes(
    tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()  # Llama stores q and k in another row order
    for name, size in (("q", 16), ("k", 8), ("v", 8), ("output", 16)):
        builder.tensors[f"blk.0.attn_{name}.bias"] = np.zeros(size, np.float32)
    load(builder.write(tmp_path / "a.gguf"))
    for element in range(16):
        path = builder.write(tmp_path / "a.gguf")
        at = place(path, "blk.0.attn_q.bias", 0, 0, 4 * element)
        damage(path, at, np.float32(np.nan).tobytes())
        assert_refused(path, "blk.0.attn_q.bias", at)


@pytest.mark.parametrize("scheme", READABLE, ids=lambda row: row.name)
def test_a_scale_of_any_scheme(
    scheme: Any,
    tmp_path: Path,
    gguf_builder: Callable[..., Any],
    random_blocks: Callable[..., np.ndarray],
) -> None:
    """Bytes of a block that make it infinite, by the gguf package, are refused in a model."""
    kind = gguf.GGMLQuantizationType[scheme.name.upper()]
    builder = gguf_builder()
    cols = max(64, scheme.block_cols)
    builder.keys["llama.feed_forward_length"] = (cols, gguf.GGUFValueType.UINT32)
    good = random_blocks(scheme.name, 16, cols)
    for part in ("gate", "up"):
        builder.tensors[f"blk.0.ffn_{part}.weight"] = np.zeros((cols, 16), np.float32)
    builder.tensors["blk.0.ffn_down.weight"] = (good, scheme.name)
    load(builder.write(tmp_path / "a.gguf"))
    places = 0
    numbers = {"f32": struct.pack("<f", np.inf), "bf16": b"\x80\x7f"}
    infinite = numbers.get(scheme.name, struct.pack("<e", np.inf))
    ones = [(0, b"\xff" * scheme.block_bytes)]  # iq1_m scatters the bits of its scale
    for at, content in [(i, infinite) for i in range(0, scheme.block_bytes, 2)] + ones:
        bad = good.copy()
        start = bad.shape[1] - scheme.block_bytes + at
        bad[11, start : start + len(content)] = list(content[: bad.shape[1] - start])
        with np.errstate(all="ignore"):
            values = gguf.dequantize(bad, kind)
        if np.isfinite(values).all():
            continue
        places += 1
        builder.tensors["blk.0.ffn_down.weight"] = (bad, scheme.name)
        path = builder.write(tmp_path / "a.gguf")
        block = place(path, "blk.0.ffn_down.weight", 11, bad.shape[1])
        block += bad.shape[1] - scheme.block_bytes
        assert_refused(path, "blk.0.ffn_down.weight", block, "at row 11, column")
    assert places or scheme.name == "nvfp4"  # whose scales all are numbers to the package


@pytest.mark.parametrize(
    ("dtype", "bits"), [("F32", 0x7F800000), ("F16", 0x7E00), ("BF16", 0xFF80)]
)
def test_a_number_of_a_safetensors_file(
    dtype: str, bits: int, tmp_path: Path, save_tiny: Callable[..., tuple[Any, Path]]
) -> None:
    _, made = save_tiny("qwen2", {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype])
    path = tmp_path / "model"
    shutil.copytree(made, path)
    load(path)
    file = path / "model.safetensors"
    length = struct.unpack("<Q", file.read_bytes()[:8])[0]
    header = json.loads(file.read_bytes()[8 : 8 + length])
    size = 4 if dtype == "F32" else 2
    name = "model.layers.1.mlp.up_proj.weight"
    at = 8 + length + header[name]["data_offsets"][0] + size * (48 * 3 + 7)
    damage(file, at, bits.to_bytes(size, "little"))
    with pytest.raises(ModelFormatError, match="row 3, column 7") as caught:
        load(path)
    assert (caught.value.file, caught.value.field) == (file, f"tensor {name}")
    assert caught.value.offset == at


def test_tensors_without_elements_and_without_dimensions(tmp_path: Path, raw: Any) -> None:
    path = tmp_path / "a.gguf"
    entries = [raw.tensor("empty", (0, 4)), raw.tensor("rows", (4, 0)), raw.tensor("scalar", ())]
    path.write_bytes(raw.whole([], entries, bytes(32)))
    shapes = {t.name: (t.shape, t.nbytes) for t in read_gguf(path).tensors}
    assert shapes == {"empty": ((4, 0), 0), "rows": ((0, 4), 0), "scalar": ((), 4)}


def test_a_tensor_without_elements_carries_nothing(
    tmp_path: Path, gguf_builder: Callable[..., Any]
) -> None:
    builder = gguf_builder()
    builder.tensors["empty"] = np.zeros((0, 16), np.float32)
    load(builder.write(tmp_path / "a.gguf"))
    builder.tensors["scalar"] = np.zeros((1,), np.float32)
    with pytest.raises(ModelFormatError, match=r"tensor scalar .*has no place"):
        load(builder.write(tmp_path / "a.gguf"))
