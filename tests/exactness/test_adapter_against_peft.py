"""Adapters on float models: as close to float64 as the ``peft`` library's own float32 run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.native_runs import NativeModel, assert_same_bits
from support.rounded_inputs import reference_weights
from support.tiny_adapters import ADAPTERS, load_peft, make_tiny_adapter
from support.tiny_gguf import write_gguf
from support.tiny_models import KINDS, make_tiny_model
from support.truth import (
    assert_equal_in_float64,
    assert_greedy,
    assert_within_yardstick,
    in_float64,
    logits,
)

LENGTH = 100
TOKENS: list[int] = np.random.default_rng(1).integers(0, 331, LENGTH).tolist()
EVERY = "every linear layer"


@dataclass(frozen=True)
class Case:
    base: Path
    adapter: Path
    model: torch.nn.Module
    float32: NDArray[np.float64]
    truth: NDArray[np.float64]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_tiny_model(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def make_case(base: Path, directory: Path, name: str = EVERY, dtype: str = "float32") -> Case:
    adapter = make_tiny_adapter(base, directory, name, dtype=dtype)
    model = load_peft(base, adapter)
    return Case(base, adapter, model, logits(model, TOKENS), logits(in_float64(model), TOKENS))


def native_logits(base: Path, adapter: Path | None) -> NDArray[np.float32]:
    return NativeModel(base, adapter).run(kv_dtype="fp32").logits(TOKENS)


def reference_logits(case: Case, base: Path | None = None) -> NDArray[np.floating]:
    model = NativeModel(base or case.base, case.adapter)
    exact, _ = reference_weights(model)
    rows = SequenceRows(TOKENS, 0, range(LENGTH // 16 + 1), logits=LENGTH)
    return ReferenceExecutor(model.program, exact).run(step_batch([rows])).logits


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("kind", ["llama-mha", "qwen2-tied"])
def test_every_setting_is_within_the_yardstick_and_greedy_tokens_are_the_same(
    bases: dict[str, Path], tmp_path: Path, kind: str, name: str
) -> None:
    case = make_case(bases[kind], tmp_path, name)
    native = NativeModel(case.base, case.adapter)
    assert_within_yardstick(native.run(kv_dtype="fp32").logits(TOKENS), case.float32, case.truth)
    generated, _ = native.run(kv_dtype="fp32").greedy(TOKENS[:20], 64)
    assert_greedy(case.model, TOKENS[:20], generated)
    assert len(set(generated)) > 4, "degenerate generation: any executor would pass"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_within_the_yardstick(
    bases: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    name = EVERY if KINDS[kind].experts is None else "rank 1, q and v"  # none of experts
    case = make_case(bases[kind], tmp_path, name)
    assert_within_yardstick(native_logits(case.base, case.adapter), case.float32, case.truth)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [EVERY, "gaussian start", "rank 5, residual layers"])
def test_stored_types_are_read_as_they_are(
    bases: dict[str, Path], tmp_path: Path, name: str, dtype: str
) -> None:
    case = make_case(bases["qwen2"], tmp_path, name, dtype)
    assert_within_yardstick(native_logits(case.base, case.adapter), case.float32, case.truth)


def test_the_reference_executor_is_peft_in_float64(bases: dict[str, Path], tmp_path: Path) -> None:
    """The scale of this adapter is 2, so that folding it into B rounds nothing."""
    case = make_case(bases["llama-mha"], tmp_path)
    assert_equal_in_float64(reference_logits(case), case.float32, case.truth)


def test_a_slightly_wrong_scale_fails_the_yardstick(bases: dict[str, Path], tmp_path: Path) -> None:
    case = make_case(bases["llama-mha"], tmp_path)
    config = case.adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 16', '"lora_alpha": 16.001'))
    candidate = native_logits(case.base, case.adapter)
    with pytest.raises(AssertionError, match="error"):
        assert_within_yardstick(candidate, case.float32, case.truth)


def test_an_adapter_changes_the_logits_and_one_whose_b_is_zero_changes_no_bit(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    base = bases["qwen2-tied"]
    plain = native_logits(base, None)
    adapter = make_tiny_adapter(base, tmp_path / "zero", "every layer and the output", b_scale=0)
    weights = load_file(adapter / "adapter_model.safetensors")
    assert not any(values.any() for name, values in weights.items() if "lora_B" in name)
    assert_same_bits(native_logits(base, adapter), plain)
    adapter = make_tiny_adapter(base, tmp_path / "one", "some layers")
    changed = native_logits(base, adapter)
    assert np.abs(changed - plain).mean() > 0.1
    assert (changed != plain).any(axis=1).all()


@pytest.mark.parametrize("kind", ["llama-mha", "qwen2-tied"])
def test_a_gguf_base_takes_the_same_adapter(
    bases: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """GGUF files of Llama store q and k in an order of their own; the adapter knows only one."""
    case = make_case(bases[kind], tmp_path / "adapter")
    stored = write_gguf(kind, case.base, tmp_path / "base.gguf")
    assert_same_bits(native_logits(stored, case.adapter), native_logits(case.base, case.adapter))
    assert_equal_in_float64(reference_logits(case, stored), case.float32, case.truth)


@pytest.mark.parametrize("name", [EVERY, "every layer and the output"])
@pytest.mark.parametrize("kind", ["llama-mha", "qwen2-tied"])
def test_beside_eight_bit_weights_the_error_is_that_of_rounded_activations(
    bases: dict[str, Path], tmp_path: Path, kind: str, name: str
) -> None:
    adapter = make_tiny_adapter(bases[kind], tmp_path / "adapter", name)
    stored = write_gguf(kind, bases[kind], tmp_path / "base.gguf", "Q8_0")
    plain, model = NativeModel(stored), NativeModel(stored, adapter)
    for slot in plain.program.weights:
        assert type(model.weights[slot.name]) is type(plain.weights[slot.name])
    rows = SequenceRows(TOKENS, 0, range(LENGTH // 16 + 1), logits=LENGTH)
    truth, rounded = (
        ReferenceExecutor(model.program, weights).run(step_batch([rows])).logits
        for weights in reference_weights(model)
    )
    assert np.abs(rounded - truth).max() > 1e-4, "the yardstick rounds nothing"
    served = model.run(kv_dtype="fp32").logits(TOKENS)
    assert_within_yardstick(served, rounded, np.asarray(truth, np.float64))
    assert np.abs(plain.run(kv_dtype="fp32").logits(TOKENS) - served).mean() > 0.1


def test_stacked_modules_are_their_parts_with_one_a(bases: dict[str, Path], tmp_path: Path) -> None:
    """Phi-3 names q, k and v together, and gate and up; here the same update in both spellings."""
    base = bases["qwen2-tied"]
    adapter = make_tiny_adapter(base, tmp_path / "split", EVERY)
    file = adapter / "adapter_model.safetensors"
    split = load_file(file)
    stacks = {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")}
    stacked = {n: v for n, v in split.items() if ".o_proj." in n or ".down_proj." in n}
    for layer in range(KINDS["qwen2-tied"].num_layers):
        for stack, parts in stacks.items():
            to = f"base_model.model.model.layers.{layer}.{stack}"
            names = [f"{to.rpartition('.')[0]}.{part}_proj" for part in parts]
            for name in names:  # all parts have the A of the first
                split[f"{name}.lora_A.weight"] = split[f"{names[0]}.lora_A.weight"].copy()
            stacked[f"{to}.lora_A.weight"] = split[f"{names[0]}.lora_A.weight"]
            stacked[f"{to}.lora_B.weight"] = np.concatenate(
                [split[f"{name}.lora_B.weight"] for name in names]
            )
    save_file(split, file)
    expected = native_logits(base, adapter)
    float32, truth = (
        logits(model, TOKENS)
        for model in (load_peft(base, adapter), in_float64(load_peft(base, adapter)))
    )
    assert_within_yardstick(expected, float32, truth)
    save_file(stacked, file)
    assert_same_bits(native_logits(base, adapter), expected)
