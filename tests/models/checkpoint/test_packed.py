"""Packed directories that are not what they should be are refused, naming file and field."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.errors import ModelFormatError, ModelNotFoundError
from farthing.models.checkpoint import PackedTensor, open_checkpoint
from farthing.models.checkpoint.packed_manifest import Calibration, PackedEntry, fingerprint_of
from farthing.models.registry import FAMILIES, build_program
from farthing.program.weights import load_weights
from fuzz.corpus import write_gguf
from support.packing import pack
from support.tiny_models import make_tiny_model

EMBEDDING = "model.embed_tokens.weight"
GATE = "model.layers.1.mlp.gate_proj.weight"
WHOLE = "model.safetensors"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    return pack(make_tiny_model("qwen2-tied", folder / "source"), folder / "packed", "w4g64m")


@pytest.fixture
def packed(good: Path, tmp_path: Path) -> Path:
    return shutil.copytree(good, tmp_path / "packed")


def change_manifest(packed: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = packed / "farthing.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def change_header(packed: Path, change: Callable[[dict[str, Any]], object], pad: int = 64) -> None:
    path = packed / WHOLE
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % pad)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def refusal(packed: Path) -> str:
    with pytest.raises(ModelFormatError) as caught:
        load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))
    assert str(packed) in str(caught.value)
    return str(caught.value)


def test_the_good_one_loads(packed: Path) -> None:
    change_manifest(packed, lambda manifest: None)
    change_header(packed, lambda header: None)
    load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))


def set_to(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest.__setitem__(key, value)


def matrix(value: object, name: str = GATE) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["matrices"].__setitem__(name, value)


def sums(key: str, name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest[key].__setitem__(name, value)


def calibration(**changes: object) -> Callable[[dict[str, Any]], object]:
    return set_to("calibration", {"use": "mixed", "name": "a", "sha256": "0" * 64} | changes)


MANIFESTS = {
    "format": (set_to("format", "other"), "farthing.json: format"),
    "version": (set_to("layout_version", 2), "layout_version .*is 2, and this version .* reads 1"),
    "version text": (set_to("layout_version", "1"), "layout_version .*must be an integer"),
    "no version": (lambda m: m.pop("layout_version"), "layout_version.*: is missing"),
    "method": (set_to("method", "best"), "method .*is 'best'; known: absmax"),
    "source": (set_to("source_format", "zip"), "source_format .*is 'zip'; known: gguf, hugg"),
    "long": (set_to("source", "x" * 256), "source .*has 256 characters, more than 255"),
    "no matrices": (set_to("matrices", {}), "matrices .*must be an object, not empty"),
    "list": (set_to("matrices", []), "matrices .*must be an object, not empty"),
    "entry": (matrix("w4g64"), rf"matrices.{GATE} .*must be a list of scheme"),
    "scheme": (matrix(["w4g65", 176, 64]), "scheme 'w4g65' is unknown to this version"),
    "refused": (matrix(["q8_k", 176, 64]), "'q8_k' is not one that kernels compute with"),
    "converted": (matrix(["q2_k", 176, 64]), "'q2_k' is not one that kernels compute with"),
    "sizes": (matrix(["q4_0", 176, -64]), "sizes must be positive"),
    "wide": (matrix(["f32", 176, 2**30 - 256]), rf"{GATE} .*, {2**36 - 2**14}\), not \(11"),
    "wider": (matrix(["f32", 176, 2**31 - 1]), f"tensor {GATE} .*at most {2**30 - 256} columns"),
    "bool": (matrix(["q4_0", 176, True]), "sizes must be positive"),
    "huge": (matrix(["q4_0", 1 << 31, 64]), "sizes must be positive"),
    "levels": (matrix(["nf4g64", 176, 64, [1, 2]]), "a codebook is a list of 16 levels"),
    "level": (matrix(["nf4g64", 176, 64, [200] * 16]), "integers from -128 to 127"),
    "codebook": (matrix(["w4g64m", 176, 64, [0] * 16]), "scheme 'w4g64m' has no codebook"),
    "other bytes": (matrix(["w8g64", 176, 64]), rf"{WHOLE}: tensor {GATE} .*shape \(11, .*not \("),
    "more rows": (matrix(["w4g64m", 177, 64]), rf"tensor {GATE} .*177 rows .*\(12, .*, not \(11, "),
    "as long": (matrix(["w4g128m", 176, 64]), f"tensor {GATE} .*a packed w4g128m matrix"),
    "same bytes": (matrix(["nf4g64", 176, 64]), "fingerprint.*is not as 'farthing quantize'"),
    "levels of another": (matrix(["iq4_nl", 176, 64, [0] * 16]), "fingerprint.*is not as 'farth"),
    "fingerprint": (set_to("fingerprint", "0" * 16), "fingerprint.*is '000000000000000"),
    "sums": (set_to("tensor_crc32", []), "tensor_crc32 .*must be an object"),
    "no sums": (lambda m: m.pop("tensor_crc32"), "tensor_crc32.*must be an object"),
    "no file sums": (lambda m: m.pop("file_crc32"), "file_crc32.*must be an object"),
    "sum": (sums("tensor_crc32", GATE, "1234567"), f"tensor_crc32.{GATE}.*eight hexadecimal"),
    "sum number": (sums("tensor_crc32", GATE, 12345678), "must be eight hexadecimal digits"),
    "sum of none": (sums("tensor_crc32", "other", "0" * 8), "tensor other: has a checksum and"),
    "unsummed": (lambda m: m["tensor_crc32"].pop(GATE), f"tensor {GATE}: has no checksum"),
    "path": (sums("file_crc32", "../x", "0" * 8), "file_crc32.*'../x' is not a file name"),
    "other shape": (matrix(["w4g64m", 175, 64]), r"has shape \(175, 64\) where \(176, 64\)"),
    "k-quant": (matrix(["q4_k", 176, 64]), f"tensor {GATE} .*multiple of 256 columns, got 64"),
    "calibration": (set_to("calibration", []), "calibration .*must have a use of \"mixed\""),
    "use": (calibration(use="training"), "calibration .*must have a use of \"mixed\""),
    "long name": (calibration(name="x" * 256), "calibration .*must have .* a name"),
    "control name": (calibration(name="a\x1b"), "calibration .*must have .* a name"),
    "sha": (calibration(sha256="0" * 63), "calibration .*must have .*64 hexadecimal digits"),
    "more": (calibration(more=1), "calibration .*must have .*64 hexadecimal digits"),
    "carried": (set_to("carried", []), "carried .*must be an object"),
    "carried what": (set_to("carried", {GATE: 3}), f"carried.{GATE} .*scheme '3' is unknown"),
    "not known": (set_to("carried", {GATE: "w3g65"}), f"carried.{GATE} .*'w3g65' is unknown"),
    "itself": (set_to("carried", {GATE: "w4g64m"}), "w4g64m does not carry w4g64m"),
    "by none": (set_to("carried", {GATE: "w8g64m"}), "w4g64m does not carry w8g64m"),
    "by another": (set_to("carried", {GATE: "w3g64"}), "w4g64m does not carry w3g64"),
    "no levels": (
        lambda m: (
            matrix(["nf4g64", 176, 64])(m),
            set_to("carried", {GATE: "km4g64"})(m),
        ),
        "a km4g64 matrix has a codebook of its own",
    ),
    "whose": (set_to("carried", {"other": "w3g64"}), "carried.other .*not listed under matrices"),
    "absent": (matrix(["q4_0", 16, 64], "other.weight"), "tensor other.weight: is in no safet"),
    "unlisted": (lambda m: m["matrices"].pop(GATE), f"tensor {GATE} .*is neither a vector of F32"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(MANIFESTS))
def test_a_wrong_manifest_is_refused(case: str, packed: Path) -> None:
    change, words = MANIFESTS[case]
    change_manifest(packed, change)
    message = refusal(packed)
    assert re.search(words, message), message


def retype(name: str, dtype: str, shape: list[int]) -> Callable[[dict[str, Any]], object]:
    return lambda header: header[name].update({"dtype": dtype, "shape": shape})


def test_a_matrix_of_another_type_is_refused(packed: Path) -> None:
    def half(header: dict[str, Any]) -> None:
        rows, nbytes = header[GATE]["shape"]
        header[GATE].update({"dtype": "F16", "shape": [rows, nbytes // 2]})

    change_header(packed, half)
    assert f"tensor {GATE}" in (message := refusal(packed))
    assert "is a packed matrix of dtype F16; U8 is needed" in message


def test_a_matrix_that_is_not_aligned_is_refused(packed: Path) -> None:
    change_header(packed, lambda header: header.setdefault("__metadata__", {}), pad=8)
    if (packed / WHOLE).read_bytes()[:8] == b"":
        pytest.fail("unreachable")
    (length,) = struct.unpack_from("<Q", (packed / WHOLE).read_bytes())
    if (8 + length) % 64 == 0:
        change_header(packed, lambda h: h["__metadata__"].update({"a": "12345678"}), pad=8)
    assert "a packed matrix must start at a multiple of 64 bytes" in refusal(packed)


@pytest.mark.parametrize("missing", [1, 64, 5000])
def test_a_truncated_file_is_refused(missing: int, packed: Path) -> None:
    path = packed / WHOLE
    path.write_bytes(path.read_bytes()[:-missing])
    assert f"{WHOLE}: tensor " in (message := refusal(packed))
    assert "the file is truncated or its directory is wrong" in message


@pytest.mark.parametrize("weights", ["mmap", "copy"])
def test_a_file_cut_after_it_was_opened_is_refused(weights: str, packed: Path) -> None:
    checkpoint = open_checkpoint(packed, FAMILIES)
    path = packed / WHOLE
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(ModelFormatError, match="it changed after it was opened"):
        load_weights(
            build_program(checkpoint.config),
            checkpoint.tensors,
            num_threads=2,
            placement=weights,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("weights", ["mmap", "copy"])
@pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7E00, 0x7C01])
def test_a_scale_or_minimum_that_is_no_number_is_refused(
    half: int, weights: str, packed: Path
) -> None:
    checkpoint = open_checkpoint(packed, FAMILIES)
    tensor = checkpoint.tensors[GATE]
    assert isinstance(tensor, PackedTensor)
    for column in (3, 16 + 3):  # of the scales of 16 rows, and of their minimums
        with tensor.file.open("r+b") as file:
            file.seek(tensor.offset + 2 * column)
            good = file.read(2)
            file.seek(tensor.offset + 2 * column)
            file.write(struct.pack("<H", half))
        with pytest.raises(ModelFormatError) as caught:
            load_model(packed, LoadOptions(num_threads=2, kv_cache_tokens=64, weights=weights))  # type: ignore[arg-type]
        assert f"tensor {GATE} (byte {tensor.offset}): the value or scale at row 3, column 0" in (
            str(caught.value)
        )
        with tensor.file.open("r+b") as file:
            file.seek(tensor.offset + 2 * column)
            file.write(good)
    load_model(packed, LoadOptions(num_threads=2, kv_cache_tokens=64))


def test_a_vector_that_is_no_number_is_refused(packed: Path) -> None:
    name = "model.norm.weight"
    source = open_checkpoint(packed, FAMILIES).tensors[name]
    with source.file.open("r+b") as file:
        file.seek(source.offset + 8)
        file.write(np.float32(np.nan).tobytes())
    assert f"tensor {name} (byte {source.offset + 8}): the value at row 0" in refusal(packed)


def test_a_directory_without_its_weights_or_configuration_is_refused(packed: Path) -> None:
    for name in ("config.json", WHOLE):
        content = (packed / name).read_bytes()
        (packed / name).unlink()
        with pytest.raises(ModelNotFoundError, match=rf"{packed}: has n.*{name.split('.')[0]}"):
            load_model(packed, LoadOptions())
        (packed / name).write_bytes(content)


def test_one_of_before_there_were_checksums_loads(packed: Path) -> None:
    def forget(manifest: dict[str, Any]) -> None:
        del manifest["tensor_crc32"], manifest["file_crc32"]

    change_manifest(packed, forget)
    load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))


def test_a_scheme_in_the_layout_of_another_is_known(packed: Path) -> None:
    """Bytes, offsets and the fingerprint are those of what carries it."""
    change_manifest(packed, set_to("carried", {GATE: "w3g64m"}))
    checkpoint = open_checkpoint(packed, FAMILIES)
    tensor = checkpoint.tensors[GATE]
    assert (tensor.stored_dtype, tensor.dtype) == ("w3g64m", "w4g64m")
    assert checkpoint.manifest is not None
    assert checkpoint.manifest.matrices[GATE] == PackedEntry("w4g64m", 176, 64, None, "w3g64m")
    load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))


def test_what_it_was_calibrated_on_is_read(packed: Path) -> None:
    change_manifest(packed, calibration())
    manifest = open_checkpoint(packed, FAMILIES).manifest
    assert manifest is not None
    assert manifest.calibration == Calibration("mixed", "a", "0" * 64)


def test_the_fingerprint_of_another_version_is_believed(packed: Path) -> None:
    change_manifest(packed, lambda m: m.update(numerics_version=2**30, fingerprint="0" * 16))
    load_model(packed, LoadOptions(num_threads=1, kv_cache_tokens=64))


WITHOUT_MANIFEST = "has no farthing.json, without which a directory that 'farthing quantize' made"


def assert_recognized_without_manifest(packed: Path) -> None:
    (packed / "farthing.json").unlink()
    with pytest.raises(ModelNotFoundError) as caught:
        open_checkpoint(packed, FAMILIES)
    assert str(caught.value).startswith(f"{packed}: {WITHOUT_MANIFEST}")


@pytest.mark.parametrize("shard_bytes", [1 << 40, 40_000])
def test_a_directory_without_its_manifest_is_recognized(shard_bytes: int, tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed", shard_bytes=shard_bytes)
    assert len(list(packed.glob("*.safetensors"))) == (1 if shard_bytes > 40_000 else 3)
    assert_recognized_without_manifest(packed)


def test_one_of_a_gguf_file_without_its_manifest_is_recognized(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    write_gguf(source)
    packed = pack(source, tmp_path / "packed")
    for name in ("farthing.json", "metadata.gguf"):
        with pytest.raises(ModelFormatError, match=f"{name}: is part of a model; name its direct"):
            open_checkpoint(packed / name, FAMILIES)
    assert_recognized_without_manifest(packed)


def test_metadata_with_tensors_is_refused(tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    write_gguf(gguf)
    packed = pack(gguf, tmp_path / "packed")
    shutil.copy(gguf, packed / "metadata.gguf")
    with pytest.raises(ModelFormatError, match=r"metadata.gguf: tensor .*has no tensors"):
        open_checkpoint(packed, FAMILIES)


def test_a_head_beside_a_tied_embedding_has_no_place(packed: Path) -> None:
    def rename(header: dict[str, Any]) -> None:
        header["lm_head.weight"] = header.pop(GATE)

    def relist(manifest: dict[str, Any]) -> None:
        for key in ("matrices", "tensor_crc32"):
            manifest[key]["lm_head.weight"] = manifest[key].pop(GATE)
        entries = manifest["matrices"].items()
        manifest["fingerprint"] = fingerprint_of({n: PackedEntry(*e) for n, e in entries})

    change_header(packed, rename)
    change_manifest(packed, relist)
    assert f"tensor {GATE}" in refusal(packed)
