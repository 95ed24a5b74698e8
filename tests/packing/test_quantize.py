"""A packed directory holds the weights that rounding gives, and serves them bit for bit."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors

from farthing import LLM, SamplingParams
from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import PackedTensor, open_checkpoint
from farthing.models.checkpoint.checkpoint import LM_HEAD
from farthing.models.checkpoint.packed_manifest import Calibration
from farthing.models.registry import FAMILIES
from farthing.packing import PackOptions, quantize_model
from farthing.program.weights import NativeMatrix, load_weights
from farthing.quantization.rounding import ROUNDING_METHODS, RoundingMethod
from fuzz.corpus import write_gguf
from support.moe_gguf import write_moe_gguf
from support.native_runs import NativeModel, assert_same_bits
from support.packing import RoundedInMemory, pack
from support.tiny_models import make_tiny_model

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]
FAMILY_KINDS = ("qwen2-tied", "llama-llama3-rope", "gemma2", "gemma3", "qwen3-moe", "phi3-longrope")


def logits(model: NativeModel) -> np.ndarray:
    return model.run().logits(TOKENS)


@pytest.mark.parametrize("kind", FAMILY_KINDS)
def test_it_serves_what_rounding_in_memory_gives(kind: str, tmp_path: Path) -> None:
    source = make_tiny_model(kind, tmp_path / "source")
    packed = pack(source, tmp_path / "packed", "w4g64", "mse")
    served = NativeModel(packed)
    assert served.config == NativeModel(source).config
    assert_same_bits(logits(served), logits(RoundedInMemory(source, "w4g64", "mse")))


SCHEMES = ("w4g32", "w4g32m", "w4g128", "w4row", "w4g64m", "nf4g64", "iq4_nl", "w5g32", "w5g16",
           "w6g64", "w8g32", "w8row", "q8_0", "w2g256m", "w3g64", "w4tensor", "w7row", "w8tensor",
           "w4rowm", "nf4tensor", "nf4g16", "km4g64", "km4tensor", "km4g16")  # fmt: skip


@pytest.mark.parametrize("method", ["absmax", "weighted"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_kind_of_scheme_is_served_so(
    scheme: str, method: RoundingMethod, source: Path, tmp_path: Path
) -> None:
    packed = pack(source, tmp_path / "packed", scheme, method)
    assert_same_bits(logits(NativeModel(packed)), logits(RoundedInMemory(source, scheme, method)))


def test_a_matrix_of_many_chunks_has_what_all_of_them_share(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farthing.quantization.chunks._CHUNK_ELEMENTS", 2000)
    for scheme in ("w4tensor", "w4tensorm", "km4g64", "km4tensor", "w4g64"):
        for method in ROUNDING_METHODS:
            packed = pack(source, tmp_path / "packed", scheme, method, force=True)
            served = NativeModel(packed)
            assert_same_bits(logits(served), logits(RoundedInMemory(source, scheme, method)))


def test_a_search_over_too_much_is_refused_and_absmax_is_not(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farthing.packing.quantize.SEARCHED_BYTES", 4000)
    with pytest.raises(
        InvalidParameterError, match=r"--method mse: .* one scale of model.embed_tok"
    ):
        pack(source, tmp_path / "packed", "w4tensor", "mse")
    assert list(tmp_path.iterdir()) == []
    pack(source, tmp_path / "packed", "w4tensor")
    pack(source, tmp_path / "rows", "w4row", "mse")


def test_a_learnt_codebook_is_in_the_manifest(source: Path, tmp_path: Path) -> None:
    manifest = open_checkpoint(pack(source, tmp_path / "packed", "km4g64"), FAMILIES).manifest
    assert manifest is not None
    codebooks = {entry.codebook for entry in manifest.matrices.values()}
    assert None not in codebooks
    assert len(codebooks) == len(manifest.matrices), "each matrix has its own"
    assert {entry.carries for entry in manifest.matrices.values()} == {"km4g64"}
    assert {entry.scheme for entry in manifest.matrices.values()} == {"nf4g64"}


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed", "w4g32")
    with pytest.raises(AssertionError):
        assert_same_bits(
            logits(NativeModel(packed)), logits(RoundedInMemory(source, "w4g32", "mse"))
        )


@pytest.mark.parametrize("scheme", ["f32", "f16", "bf16"])
def test_floats_are_what_numpy_makes_of_them(scheme: str, tmp_path: Path) -> None:
    source = make_tiny_model("llama-llama3-rope", tmp_path / "source")
    served = NativeModel(pack(source, tmp_path / "packed", scheme))
    original = open_checkpoint(source, FAMILIES).tensors
    for name, weight in served.weights.items():
        if isinstance(weight, np.ndarray):
            continue
        values = original[name].dequantize()  # type: ignore[union-attr]
        if scheme == "bf16":
            import torch

            expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
        else:
            expected = values.astype(scheme.replace("f", "float")).astype(np.float32)
        np.testing.assert_array_equal(weight.dequantize(0, weight.rows), expected)


@pytest.mark.parametrize("weights", ["mmap", "copy"])
def test_kept_codes_are_served_as_from_the_gguf_file(weights: str, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    write_gguf(gguf)
    packed = pack(gguf, tmp_path / "packed", "keep")
    model, served = NativeModel(gguf), NativeModel(packed)
    assert served.config == model.config
    placed = load_weights(served.program, served.tensors, num_threads=2, placement=weights)  # type: ignore[arg-type]
    served.weights = placed
    assert_same_bits(logits(served), logits(model))
    schemes = {w.scheme for w in placed.values() if isinstance(w, NativeMatrix)}
    assert {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16"} == schemes


def test_what_a_gguf_file_says_beside_its_weights_comes_along(tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    write_gguf(gguf)
    packed = pack(gguf, tmp_path / "packed", "w8g32")
    one, other = LLM(gguf, num_threads=1), LLM(packed, num_threads=1)
    text = "hi hi <|end|> 12"
    assert one.tokenizer.encode(text) == other.tokenizer.encode(text)
    messages = [{"role": "user", "content": "hi"}]
    assert one.encode_chat(messages) == other.encode_chat(messages)
    assert one.config == other.config


def test_experts_of_a_gguf_file_are_rounded_and_routers_are_not(tmp_path: Path) -> None:
    directory = make_tiny_model("qwen3-moe", tmp_path / "source")
    gguf = write_moe_gguf(directory, tmp_path / "tiny.gguf", {"": "Q8_0"})
    served = NativeModel(pack(gguf, tmp_path / "packed", "w4g32"))
    assert_same_bits(logits(served), logits(RoundedInMemory(gguf, "w4g32")))
    for name, weight in served.weights.items():
        if isinstance(weight, NativeMatrix):
            assert weight.scheme == ("f32" if name in served.program.routers else "q4_0")


def test_mapped_and_copied_weights_are_the_same_bits(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed", "w4g64")
    prompt, params = (
        {"prompt_token_ids": TOKENS},
        SamplingParams(temperature=0, max_tokens=20, logprobs=4),
    )
    outputs = [LLM(packed, weights=w).generate(prompt, params)[0] for w in ("mmap", "copy")]
    assert outputs[0].outputs == outputs[1].outputs
    assert len(outputs[0].outputs[0].token_ids) > 4


def test_mapped_weights_lie_in_the_file_and_copied_ones_do_not(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed")
    model = NativeModel(packed)
    name, tensor = next((n, t) for n, t in model.tensors.items() if isinstance(t, PackedTensor))
    placements = {
        placement: load_weights(model.program, model.tensors, num_threads=2, placement=placement)[
            name
        ]
        for placement in ("mmap", "copy")
    }
    with tensor.file.open("r+b") as file:  # a writer through the same page cache
        file.seek(tensor.offset)
        old = file.read(1)
        file.seek(tensor.offset)
        file.write(bytes([old[0] ^ 1]))
    first = {p: int(w.packed_bytes()[0]) for p, w in placements.items()}  # type: ignore[union-attr]
    assert first == {"mmap": old[0] ^ 1, "copy": old[0]}


def mapping_at(address: int) -> tuple[str, set[str]]:
    """The file of this process's mapping that holds ``address``, "" if none, and its flags."""
    found: tuple[int, int, str] = (0, 0, "")
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head, _, rest = line.partition(" ")
        if head == "VmFlags:" and found[0] <= address < found[1]:
            return found[2], set(rest.split())
        if "-" in head:
            begin, end = (int(part, 16) for part in head.split("-"))
            found = begin, end, [*rest.split(maxsplit=4), ""][4]
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.parametrize("weights", ["mmap", "copy"])
def test_a_model_has_its_weights_where_they_were_asked_for(weights: str, tmp_path: Path) -> None:
    """Mapped from the file, by default; huge pages are asked for where the system has them."""
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed")
    llm = LLM(packed) if weights == "mmap" else LLM(packed, weights="copy")
    matrices = [w for w in llm.runner.executor.weights.values() if isinstance(w, NativeMatrix)]
    assert matrices
    for matrix in matrices:
        name, flags = mapping_at(matrix.packed_bytes().ctypes.data)
        if weights == "mmap":
            assert name == str(packed / "model.safetensors")
            assert "wr" not in flags
        else:
            assert name == ""
        assert "hg" in flags or not Path("/sys/kernel/mm/transparent_hugepage").exists()


def resident_pages(path: Path) -> int:
    """How many pages of a file the system has in memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as whole:
        pages = (ctypes.c_ubyte * -(-len(whole) // mmap.PAGESIZE))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        result = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(len(whole)), ctypes.byref(pages)
        )
        assert result == 0
        return sum(page & 1 for page in pages)


def test_small_pages_of_writing_do_not_stay_in_memory(tmp_path: Path) -> None:
    """So that the file is read into large ones; where the file system drops pages when asked."""
    packed = pack(make_tiny_model("qwen2-tied", tmp_path / "source"), tmp_path / "packed")
    written = (packed / "model.safetensors").read_bytes()
    control = tmp_path / "control"
    control.write_bytes(written)
    kept = resident_pages(control)
    assert kept == -(-len(written) // mmap.PAGESIZE)
    with control.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_pages(control) == kept:
        return  # all that was written is in memory only
    again = pack(tmp_path / "source", tmp_path / "again")
    assert resident_pages(again / "model.safetensors") < kept / 2


def test_a_head_may_have_a_scheme_of_its_own(tmp_path: Path) -> None:
    for kind, last in (("llama-mha", "lm_head.weight"),
                       ("qwen2-tied", "model.embed_tokens.weight")):  # fmt: skip
        source = make_tiny_model(kind, tmp_path / kind)
        packed = pack(source, tmp_path / f"{kind}-packed", "w4g64", head_scheme="w8g64")
        weights = NativeModel(packed).weights
        schemes = {n: w.scheme for n, w in weights.items() if isinstance(w, NativeMatrix)}
        assert schemes.pop(last) == "w8g64"
        assert set(schemes.values()) == {"w4g64"}


def test_single_matrices_may_have_schemes_of_their_own(tmp_path: Path) -> None:
    source = make_tiny_model("qwen3-moe", tmp_path / "source")
    up, router = "model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.gate.weight"
    schemes = {up: "w6g64", LM_HEAD: "keep"}
    text = Calibration("mixed", "a text", "0" * 64)
    options = PackOptions(
        "w4g32", "absmax", "w8g32", num_threads=2, schemes=schemes, calibration=text
    )
    packed = quantize_model(source, tmp_path / "packed", options).path
    manifest = open_checkpoint(packed, FAMILIES).manifest
    assert manifest is not None
    assert manifest.calibration == text
    found = {name: entry.scheme for name, entry in manifest.matrices.items()}
    assert found.pop(up) == "w6g64"
    assert found.pop(LM_HEAD) == "f32"
    routers = {name for name in found if name.endswith(".mlp.gate.weight")}
    assert router in routers
    assert {found.pop(name) for name in routers} == {"f32"}
    assert set(found.values()) == {"q4_0"}
    for name in (router, "model.norm.weight", "other.weight"):
        with pytest.raises(InvalidParameterError, match=f"the model has no matrix '{name}' to be"):
            quantize_model(source, tmp_path / "no", replace(options, schemes={name: "w4g32"}))
    assert not (tmp_path / "no").exists()


def test_the_files_are_safetensors_and_every_matrix_is_aligned(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    packed = pack(source, tmp_path / "packed", shard_bytes=40_000)
    model = NativeModel(packed)
    seen = {}
    for path in sorted(packed.glob("*.safetensors")):
        with safetensors.safe_open(path, "numpy") as file:
            seen |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert len(list(packed.glob("*.safetensors"))) > 2
    assert seen.keys() == model.weights.keys()
    for name, weight in model.weights.items():
        if isinstance(weight, np.ndarray):
            np.testing.assert_array_equal(seen[name], weight)
            continue
        assert seen[name].shape[0] == weight.row_blocks
        np.testing.assert_array_equal(seen[name].reshape(-1), weight.packed_bytes())
        tensor = model.tensors[name]
        assert isinstance(tensor, PackedTensor)
        assert tensor.offset % 64 == 0
        assert tensor.mapped().ctypes.data % 64 == 0


def test_one_file_and_several_hold_the_same_model(tmp_path: Path) -> None:
    source = make_tiny_model("llama-llama3-rope", tmp_path / "source", max_shard_size="100KB")
    whole = pack(source, tmp_path / "whole")
    parts = pack(source, tmp_path / "parts", shard_bytes=30_000)
    assert (whole / "model.safetensors").is_file()
    assert (parts / "model.safetensors.index.json").is_file()
    assert_same_bits(logits(NativeModel(parts)), logits(NativeModel(whole)))


def test_terms_come_along(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    (source / "LICENSE").write_text("the terms")
    assert (pack(source, tmp_path / "packed") / "LICENSE").read_text() == "the terms"


@pytest.mark.parametrize("scheme", ["w4g32", "km4tensor"])
def test_the_number_of_threads_changes_no_byte(scheme: str, tmp_path: Path) -> None:
    from farthing.packing import PackOptions, quantize_model

    source = make_tiny_model("gemma2", tmp_path / "source")
    for threads in (1, 3):
        options = PackOptions(scheme, "mse", num_threads=threads)
        quantize_model(source, tmp_path / str(threads), options)
    one, three = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "13"
    )
    assert one == three
