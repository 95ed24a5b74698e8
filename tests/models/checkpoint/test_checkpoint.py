"""Opening whatever a path is, and checking a checkpoint against a program's weights."""

import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.models.checkpoint import (
    Checkpoint,
    TensorSource,
    check_tensors,
    open_checkpoint,
)
from farthing.models.registry import FAMILIES
from farthing.program.ops import WeightSlot


@pytest.fixture
def checkpoint(gguf_builder: Any, tmp_path: Path) -> Checkpoint:
    return open_checkpoint(gguf_builder("llama").write(tmp_path / "a.gguf"), FAMILIES)


def slots_of(checkpoint: Checkpoint) -> list[WeightSlot]:
    return [WeightSlot(name, tensor.shape) for name, tensor in checkpoint.tensors.items()]


def with_tensor(checkpoint: Checkpoint, name: str, **changes: Any) -> Checkpoint:
    some = checkpoint.tensors["model.norm.weight"]
    added = {**checkpoint.tensors, name: replace(some, name=name, **changes)}
    return replace(checkpoint, tensors=MappingProxyType(added))


def test_a_checkpoint_with_exactly_the_needed_tensors_passes(checkpoint: Checkpoint) -> None:
    slots = slots_of(checkpoint)
    assert len(slots) == 12
    check_tensors(checkpoint, slots)


def test_a_missing_tensor_is_named_with_its_shape(checkpoint: Checkpoint) -> None:
    slots = [*slots_of(checkpoint), WeightSlot("model.layers.1.mlp.up_proj.weight", (32, 16))]
    with pytest.raises(ModelFormatError, match=r"is missing; .*\(32, 16\)") as caught:
        check_tensors(checkpoint, slots)
    assert caught.value.field == "tensor model.layers.1.mlp.up_proj.weight"
    assert caught.value.file == checkpoint.path


def test_a_misshapen_tensor_is_named_with_both_shapes(checkpoint: Checkpoint) -> None:
    slots = [
        replace(slot, shape=(8, 32)) if "k_proj" in slot.name else slot
        for slot in slots_of(checkpoint)
    ]
    with pytest.raises(ModelFormatError, match=r"\(8, 16\) where \(8, 32\) is needed") as caught:
        check_tensors(checkpoint, slots)
    # as the file calls it, and as the program does
    assert caught.value.field == (
        "tensor blk.0.attn_k.weight (model.layers.0.self_attn.k_proj.weight)"
    )
    assert caught.value.offset is not None


def test_a_transposed_tensor_is_misshapen(checkpoint: Checkpoint) -> None:
    slots = [
        replace(slot, shape=slot.shape[::-1]) if "up_proj" in slot.name else slot
        for slot in slots_of(checkpoint)
    ]
    with pytest.raises(ModelFormatError, match=r"\(32, 16\) where \(16, 32\)"):
        check_tensors(checkpoint, slots)


def test_an_unknown_tensor_is_named(checkpoint: Checkpoint) -> None:
    slots = slots_of(checkpoint)
    extra = with_tensor(checkpoint, "blk.0.attn_sinks.weight")
    with pytest.raises(ModelFormatError, match=r"of shape \(16\) has no place.*'llama'") as caught:
        check_tensors(extra, slots)
    assert caught.value.field == "tensor blk.0.attn_sinks.weight"


@pytest.mark.parametrize(
    "name", ["rope_freqs.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"]
)
def test_rope_frequencies_are_passed_over(name: str, checkpoint: Checkpoint) -> None:
    slots = slots_of(checkpoint)
    extra = with_tensor(checkpoint, name)
    assert name in extra.tensors
    check_tensors(extra, slots)


def with_output_matrix(
    checkpoint: Checkpoint, matrix: TensorSource, *, tied: bool = True
) -> Checkpoint:
    tensors = MappingProxyType({**checkpoint.tensors, "lm_head.weight": matrix})
    config = replace(checkpoint.config, tie_word_embeddings=tied)
    return replace(checkpoint, tensors=tensors, config=config)


def test_an_output_matrix_that_is_no_copy_of_a_tied_embedding_is_refused(
    checkpoint: Checkpoint, gguf_builder: Any, tmp_path: Path
) -> None:
    """It is ignored by some readers and obeyed by others."""
    slots = [slot for slot in slots_of(checkpoint) if slot.name != "lm_head.weight"]
    builder = gguf_builder("llama")
    builder.tensors["token_embd.weight"] = builder.tensors["token_embd.weight"].copy()
    builder.tensors["token_embd.weight"][19] += 1
    other = open_checkpoint(builder.write(tmp_path / "other.gguf"), FAMILIES)
    trained = other.tensors["model.embed_tokens.weight"]
    with pytest.raises(ModelFormatError, match="differs from model") as caught:
        check_tensors(with_output_matrix(checkpoint, trained), slots)
    assert caught.value.field == "tensor token_embd.weight (lm_head.weight)"
    half = replace(trained, shape=(10, 16))
    with pytest.raises(ModelFormatError, match="has no place"):
        check_tensors(with_output_matrix(checkpoint, half), slots)


@pytest.mark.parametrize(
    ("tied", "shape", "passes"), [(True, (20, 16), True), (True, (20, 8), False),
                                  (False, (20, 16), False)],
)  # fmt: skip
def test_an_output_matrix_beside_a_tied_embedding_is_passed_over(
    tied: bool, shape: tuple[int, int], passes: bool, checkpoint: Checkpoint
) -> None:
    slots = [slot for slot in slots_of(checkpoint) if slot.name != "lm_head.weight"]
    embedding = checkpoint.tensors["model.embed_tokens.weight"]
    matrix = embedding.row_range(0, 20)
    extra = with_output_matrix(checkpoint, replace(matrix, shape=shape), tied=tied)
    if passes:
        check_tensors(extra, slots)
    else:
        with pytest.raises(ModelFormatError, match="has no place"):
            check_tensors(extra, slots)


def test_bytes_are_counted_by_type(gguf_builder: Any, tmp_path: Path, random_blocks: Any) -> None:
    builder = gguf_builder("llama")
    builder.tensors = {
        "token_embd.weight": np.zeros((20, 16), np.float32),
        "blk.0.ffn_up.weight": (random_blocks("iq4_nl", 8, 32), "iq4_nl"),
        "output_norm.weight": np.zeros(16, np.float16),
    }
    opened = open_checkpoint(builder.write(tmp_path / "b.gguf"), FAMILIES)
    assert opened.bytes_by_dtype() == {"f32": 1280, "iq4_nl": 144, "f16": 32}
    assert list(opened.bytes_by_dtype()) == ["f32", "iq4_nl", "f16"]
    assert opened.nbytes == 1456


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("model.bin", b"\x80\x02}q\x00", "is a PyTorch file"),
        ("model.pt", b"PK\x03\x04rest", "is a PyTorch file"),
        ("ggml-model.bin", b"tjgg\3\0\0\0", "older than GGUF"),
        ("notes.txt", b"hello", "neither a GGUF file nor"),
        ("empty", b"", "neither a GGUF file nor"),
        ("model.safetensors", b"{}", "name its directory"),
        ("config.json", b"{}", "name its directory"),
        ("x.gguf", b"hello, world", "starts with b'hell'"),
    ],
)
def test_other_files_are_refused_with_what_they_are(
    name: str, content: bytes, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=problem) as caught:
        open_checkpoint(path, FAMILIES)
    assert caught.value.file == path


def test_gguf_is_known_by_its_content(gguf_builder: Any, tmp_path: Path) -> None:
    path = gguf_builder("llama").write(tmp_path / "no-extension")
    assert open_checkpoint(path, FAMILIES).format == "gguf"


def test_a_path_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file or directory"):
        open_checkpoint(tmp_path / "nowhere", FAMILIES)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(FarthingError, match="cannot be read: Too many levels"):
        open_checkpoint(tmp_path / "circle", FAMILIES)
    with pytest.raises(FarthingError, match="cannot be read: File name too long"):
        open_checkpoint(tmp_path / ("x" * 300), FAMILIES)
    with pytest.raises(FarthingError, match="cannot be read: embedded null"):
        open_checkpoint(tmp_path / "a\0b", FAMILIES)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FarthingError, match="cannot be read: Not a directory"):
        open_checkpoint(tmp_path / "file" / "x", FAMILIES)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFormatError, match="not a regular file"):
        open_checkpoint(tmp_path / "pipe", FAMILIES)


def test_a_file_without_permission_says_so(
    gguf_builder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_builder("llama").write(tmp_path / "a.gguf")

    def refuse(*_: object) -> int:  # the tests may run as root, whom the system refuses nothing
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FarthingError, match=r"a\.gguf: cannot be read: Permission denied"):
        open_checkpoint(path, FAMILIES)
