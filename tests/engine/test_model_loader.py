"""What loading a mixture of experts takes, and what it says of it."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.config import Experts, ModelConfig, Rope
from farthing.engine.model_loader import LoadOptions, load_model, packed_bytes, workspace_bytes
from farthing.models.checkpoint import TensorSource, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.program.lowering import lower
from farthing.program.ops import Rows
from farthing.program.weights import load_weights
from support.moe_gguf import write_moe_gguf
from support.tiny_models import make_tiny_model

QWEN3_30B_A3B = ModelConfig(
    architecture="qwen3_moe",
    num_layers=48,
    hidden_size=2048,
    intermediate_size=6144,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    vocab_size=151_936,
    context_length=32_768,
    rms_norm_eps=1e-6,
    rope=Rope(1e6, 128),
    experts=Experts(128, 8, 768, normalize=True),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen3-moe", tmp_path_factory.mktemp("tiny"))


def test_progress_ends_at_the_bytes_of_all_experts(directory: Path) -> None:
    calls: list[tuple[int, int]] = []
    options = LoadOptions(kv_cache_tokens=256)
    model = load_model(directory, options, lambda *call: calls.append(call))
    total = sum(weight.nbytes for weight in model.runner.executor.weights.values())
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert len(calls) > 3 * 8 * 3, "told of each expert"


def test_every_expert_is_packed_by_its_name(directory: Path) -> None:
    checkpoint = open_checkpoint(directory, FAMILIES)
    program = build_program(checkpoint.config)
    sizes: list[int] = []
    weights = load_weights(program, checkpoint.tensors, num_threads=3, progress=sizes.append)
    assert list(weights) == [slot.name for slot in program.weights]
    assert sizes == [weight.nbytes for weight in weights.values()]


def test_the_memory_bill_is_what_the_weights_take(directory: Path, tmp_path: Path) -> None:
    """Routers included, which are served in floats where the file has integers."""
    types = {"": "Q8_0", "ffn_gate_exps": "Q4_0", "ffn_gate_inp": "Q8_0"}
    checkpoint = open_checkpoint(write_moe_gguf(directory, tmp_path / "tiny.gguf", types), FAMILIES)
    program = build_program(checkpoint.config)
    bill = {
        slot.name: packed_bytes(checkpoint.tensors[slot.name], router=slot.name in program.routers)
        for slot in program.weights
    }
    weights = load_weights(program, checkpoint.tensors, num_threads=2)
    assert bill == {name: weight.nbytes for name, weight in weights.items()}


def test_loading_reads_a_few_experts_at_a_time(tmp_path: Path, directory: Path) -> None:
    """A stack of experts is one tensor of the file, and is never held whole."""
    gguf = write_moe_gguf(directory, tmp_path / "tiny.gguf", {"": "Q8_0"})
    checkpoint = open_checkpoint(gguf, FAMILIES)
    program = build_program(checkpoint.config)
    alive: list[weakref.ref[NDArray[np.uint8]]] = []
    most = 0

    class Watched:
        """A tensor that counts the bytes of its file that are held."""

        def __init__(self, tensor: TensorSource) -> None:
            self._tensor = tensor
            self.shape, self.dtype = tensor.shape, tensor.dtype
            self.dequantize = tensor.dequantize

        def read_rows(self, start: int, stop: int) -> NDArray[np.uint8]:
            nonlocal most
            rows = self._tensor.read_rows(start, stop)
            alive.append(weakref.ref(rows))
            most = max(most, sum(a.nbytes for ref in alive if (a := ref()) is not None))
            return rows

    sources = {name: Watched(tensor) for name, tensor in checkpoint.tensors.items()}
    load_weights(program, sources, num_threads=2)
    assert len(alive) > 3 * 3 * 8
    largest = max(tensor.nbytes for tensor in checkpoint.tensors.values())
    assert 0 < most <= 2 * largest


def test_the_memory_bill_covers_the_buffers_of_routed_rows() -> None:
    """Buffers of the real model's shape, with integer experts and the default rows of a pass."""
    program = build_program(QWEN3_30B_A3B)
    lowered = lower(program, lambda name: 0 if name in program.routers else 256)
    copies = {Rows.TOKENS: 1, Rows.EXPERT: 8, Rows.LOGITS: 0, Rows.HIDDEN: 0}
    options = LoadOptions()
    floats = [4 * b.width * copies[b.rows] for b in lowered.float_buffers if b.output is None]
    codes = [1.3 * b.cols * copies[b.rows] for b in lowered.int8_buffers]
    taken = (sum(floats) + sum(codes)) * options.max_num_batched_tokens
    assert taken <= workspace_bytes(program, options) <= 2 * taken
