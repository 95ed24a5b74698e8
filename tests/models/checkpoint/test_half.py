"""Codes read as fp16 are the values that packing in f16 writes, bit for bit; floats stay floats."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from farthing.engine.logit_head import LogitHead
from farthing.engine.model_loader import LoadOptions, load_model
from farthing.errors import ModelFormatError, UnsupportedOperationError
from farthing.files.reader import FileReader
from farthing.models.checkpoint import Checkpoint, TensorSource, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.packing.matrices import packed_matrices
from farthing.packing.plan import Placement
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import WeightSlot
from farthing.program.weights import NativeMatrix, NativeWeight, load_weights
from farthing.quantization import SCHEMES, SCHEMES_BY_GGUF_TYPE, Scheme
from fuzz.corpus import write_gguf as write_mixed_gguf
from support.moe_gguf import write_moe_gguf
from support.packing import pack
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model

CODES = [row for row in SCHEMES_BY_GGUF_TYPE.values() if row.reading in ("kept", "f16")]
CODES = [row for row in CODES if row.scale_levels]
OPTIONS = LoadOptions(num_threads=2, half=True)


def source(path: Path, rows: np.ndarray, stored: str, shape: tuple[int, ...]) -> TensorSource:
    path.write_bytes(rows.tobytes())
    return TensorSource("t", FileReader(path), shape, stored, 0, rows.nbytes)


def loaded(tensor: TensorSource) -> NativeMatrix:
    p = ProgramBuilder()
    program = p.finish(p.logit_rows(p.embed(WeightSlot("t", tensor.shape))))
    matrix = load_weights(program, {"t": tensor}, num_threads=2)["t"]
    assert isinstance(matrix, NativeMatrix)
    return matrix


def packed(tensor: TensorSource) -> NativeMatrix:
    with ThreadPoolExecutor(2) as threads:
        placements = [Placement("t", tensor, SCHEMES["f16"])]
        (made,) = packed_matrices(placements, "weighted", threads, 4)
    return made.matrix


def assert_same_bytes(one: NativeWeight, other: NativeWeight) -> None:
    assert isinstance(one, NativeMatrix) is isinstance(other, NativeMatrix)
    if isinstance(one, NativeMatrix) and isinstance(other, NativeMatrix):
        assert one.scheme == other.scheme
        np.testing.assert_array_equal(one.packed_bytes(), other.packed_bytes())
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("ordered", [False, True], ids=["in order", "reordered"])
@pytest.mark.parametrize("row", CODES, ids=lambda row: row.name)
def test_they_are_what_packing_writes_whatever_the_chunks(
    row: Scheme,
    ordered: bool,
    tmp_path: Path,
    random_blocks: Callable[..., np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = (83, 3 * row.block_cols)
    blocks = random_blocks(row.name, *shape)
    tensor = source(tmp_path / "t", blocks, row.name, shape)
    order = np.random.default_rng(0).permutation(83) if ordered else np.arange(83)
    tensor = replace(tensor, row_order=order if ordered else None)
    half = tensor.as_half()
    assert (half.dtype, half.row_nbytes) == ("f16", 2 * shape[1])
    assert (half.stored_dtype, half.nbytes) == (row.name, blocks.nbytes)
    values = gguf.dequantize(blocks, gguf.GGMLQuantizationType[row.name.upper()])[order]
    expected = values.astype(np.float16)
    assert len(np.unique(expected)) > 2
    assert not np.array_equal(expected[:-1], expected[1:])
    monkeypatch.setattr("farthing.models.checkpoint.tensor._CONVERT_ELEMENTS", 7 * shape[1])
    monkeypatch.setattr("farthing.program.weights._CHUNK_BYTES", 64 * shape[1])
    for start, stop in [(0, 83), (5, 20), (82, 83), (9, 9)]:
        read = half.read_rows(start, stop).view(np.uint16)
        np.testing.assert_array_equal(read, expected[start:stop].view(np.uint16))
    matrix = loaded(half)
    assert_same_bytes(matrix, packed(tensor))
    np.testing.assert_array_equal(matrix.dequantize(0, 83), expected.astype(np.float32))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_floats_stay_as_they_are(kind: str, tmp_path: Path) -> None:
    tensor = source(tmp_path / "t", np.zeros((4, 8), np.float32), kind, (4, 8))
    assert tensor.as_half() is tensor


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(path, FAMILIES)


def halves(path: Path) -> Checkpoint:
    checkpoint = opened(path)
    return checkpoint.as_half(build_program(checkpoint.config))


def weights(checkpoint: Checkpoint) -> dict[str, NativeWeight]:
    return load_weights(build_program(checkpoint.config), checkpoint.tensors, num_threads=2)


@pytest.mark.parametrize(
    ("kind", "scheme"), [("qwen2-tied", "Q4_0"), ("llama-mha", "Q8_0"), ("granite", "Q5_0")]
)
def test_a_model_is_loaded_as_the_one_that_is_packed(
    kind: str, scheme: str, tmp_path: Path
) -> None:
    directory = make_tiny_model(kind, tmp_path / "source")
    path = write_gguf(kind, directory, tmp_path / "model.gguf", scheme)
    found = weights(halves(path))
    written = weights(opened(pack(path, tmp_path / "packed", "f16")))
    codes = {name for name, t in opened(path).tensors.items() if t.dtype != "f32"}
    assert len(codes) > 6
    assert found.keys() == written.keys()
    for name, weight in found.items():
        if name in codes or not isinstance(weight, NativeMatrix):
            assert_same_bytes(weight, written[name])
    assert {w.scheme for n, w in found.items() if n in codes} == {"f16"}  # type: ignore[union-attr]


def test_a_model_of_halves_is_the_one_that_is_packed(tmp_path: Path) -> None:
    path = make_tiny_model("qwen2", tmp_path / "source", dtype="float16")
    found = weights(halves(path))
    written = weights(opened(pack(path, tmp_path / "packed", "f16")))
    as_it_is = weights(opened(path))
    assert found.keys() == written.keys() == as_it_is.keys()
    for name, weight in found.items():
        assert_same_bytes(weight, written[name])
        assert_same_bytes(weight, as_it_is[name])


def test_only_codes_of_a_file_of_many_types_change(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_mixed_gguf(path)
    stored = {n: t.stored_dtype for n, t in opened(path).tensors.items()}
    assert {"q4_0", "q8_0", "tq2_0", "bf16", "f16", "f32"} <= set(stored.values())
    plain, written = weights(opened(path)), weights(opened(pack(path, tmp_path / "p", "f16")))
    for name, weight in weights(halves(path)).items():
        floats = SCHEMES[stored[name]].family == "dense"
        assert_same_bytes(weight, plain[name] if floats else written[name])


def test_routers_are_served_as_they_were(tmp_path: Path) -> None:
    directory = make_tiny_model("qwen3-moe", tmp_path / "source")
    types = {"": "Q8_0", "ffn_gate_inp": "Q8_0"}
    path = write_moe_gguf(directory, tmp_path / "tiny.gguf", types)
    found, plain = weights(halves(path)), weights(opened(path))
    written = weights(opened(pack(path, tmp_path / "packed", "f16")))
    routers = build_program(opened(path).config).routers
    assert routers
    for name, weight in found.items():
        assert_same_bytes(weight, written[name])
        if name in routers:
            assert_same_bytes(weight, plain[name])
            assert weight.scheme == "f32"  # type: ignore[union-attr]


def test_the_head_is_that_of_the_packed_model(tmp_path: Path) -> None:
    directory = make_tiny_model("granite", tmp_path / "source")
    path = write_gguf("granite", directory, tmp_path / "model.gguf", "Q8_0")
    checkpoint = halves(path)
    states = np.random.default_rng(0).standard_normal(
        (8, checkpoint.config.hidden_size), np.float32
    )
    other = opened(pack(path, tmp_path / "packed", "f16"))
    heads = [LogitHead(each, max_rows=8, num_threads=1) for each in (checkpoint, other)]
    assert heads[0].weight_bytes == heads[1].weight_bytes
    one, two = (head.logits(states).copy() for head in heads)
    np.testing.assert_array_equal(one, two)
    plain = LogitHead(opened(path), max_rows=8, num_threads=1)
    assert (plain.logits(states) != one).mean() > 0.9, "codes were served as they are"


def test_loading_takes_them_and_tells_of_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_mixed_gguf(path)
    calls: list[tuple[int, int]] = []
    model = load_model(path, OPTIONS, lambda *call: calls.append(call))
    found, expected = model.runner.executor.weights, weights(halves(path))
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert_same_bytes(weight, expected[name])
    total = sum(weight.nbytes for weight in found.values())
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert calls[0][0] < total


@pytest.mark.parametrize(
    ("scale", "problem"),
    [
        (1000.0, "q8_0 value 127000 at row 2, column 33 does not fit fp16"),
        (np.inf, "a scale of its block at row 2, column 32 is a NaN or an infinity"),
    ],
    ids=str,
)
def test_what_fp16_cannot_hold_is_named(scale: float, problem: str, tmp_path: Path) -> None:
    blocks = np.zeros((3, 68), np.uint8)
    blocks[2, 34:36] = np.array([scale], np.float16).view(np.uint8)
    blocks[2, 37] = 127
    tensor = source(tmp_path / "t", blocks, "q8_0", (3, 64))
    with pytest.raises(ModelFormatError, match=re.escape(problem)) as caught:
        loaded(tensor.as_half())
    assert (caught.value.field, caught.value.offset) == ("tensor t", 2 * 68 + 34)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_that_rounds_to_a_number_is_taken(sign: int, tmp_path: Path) -> None:
    """65,520 lies between the largest number and what would be the next, and rounds up."""
    blocks = np.zeros((1, 34), np.uint8)
    blocks[0, 2:4] = np.array([sign * 120, 1], np.int8).view(np.uint8)
    for scale, expected in ((545.5, 65472), (546, None)):
        blocks[0, :2] = np.array([scale], np.float16).view(np.uint8)
        half = source(tmp_path / "t", blocks, "q8_0", (1, 32)).as_half()
        if expected is None:
            with pytest.raises(ModelFormatError, match=r"value -?65520 .* does not fit fp16"):
                half.read_rows(0, 1)
        else:
            assert half.read_rows(0, 1).view(np.float16)[0, 0] == sign * expected


def test_a_packed_model_is_refused_by_what_it_was_made_from(tmp_path: Path) -> None:
    directory = make_tiny_model("qwen2", tmp_path / "source")
    path = pack(directory, tmp_path / "packed", "w8row")
    with pytest.raises(UnsupportedOperationError, match=r"packed already; quantize .*, 'source'"):
        load_model(path, OPTIONS)


@pytest.mark.slow
def test_the_default_model_is_loaded_as_the_one_that_is_packed(
    qwen_gguf: Path, tmp_path: Path
) -> None:
    stored = {tensor.stored_dtype for tensor in opened(qwen_gguf).tensors.values()}
    assert {"q4_k", "q6_k", "q5_0", "q8_0"} <= stored
    written = weights(opened(pack(qwen_gguf, tmp_path / "packed", "f16")))
    found = weights(halves(qwen_gguf))
    assert found.keys() == written.keys()
    for name, weight in found.items():
        assert_same_bytes(weight, written[name])


CHILD = """
import json, sys
from pathlib import Path
from farthing.engine.model_loader import LoadOptions, load_model
options = LoadOptions(max_model_len=512, num_threads=2, half=True)
weights = load_model(Path(sys.argv[1]), options).runner.executor.weights
# Not ru_maxrss: a child inherits its parent's through fork and exec.
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([peak, sum(weight.nbytes for weight in weights.values())]))
"""


@pytest.mark.slow
def test_what_is_decoded_does_not_stay_in_memory(qwen_gguf: Path) -> None:
    child = [sys.executable, "-c", CHILD, str(qwen_gguf)]
    result = subprocess.run(child, check=True, capture_output=True, text=True)
    peak, nbytes = json.loads(result.stdout)
    assert nbytes > 1000 << 20, "not in fp16"
    assert qwen_gguf.stat().st_size > 300 << 20, "too little to be seen"
    assert peak <= nbytes + (300 << 20)
