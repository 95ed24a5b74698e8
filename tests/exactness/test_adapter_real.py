"""The default model with an adapter beside its quantized weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from farthing import LLM, SamplingParams
from farthing.models.adapter import open_adapter
from farthing.models.checkpoint import open_checkpoint
from farthing.models.names import WeightNames
from farthing.models.registry import FAMILIES

pytestmark = pytest.mark.slow

GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=3, ignore_eos=True)
QUESTIONS = ("Write a Python function that reverses a linked list.", "What is a farthing?")
RANK = 16


@pytest.fixture(scope="module")
def adapter(qwen_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random adapter of every linear layer, of about the size that training gives one."""
    config = open_checkpoint(qwen_gguf, FAMILIES).config
    names = WeightNames(config)
    rng = np.random.default_rng(0)
    tensors = {}
    for i in range(config.num_layers):
        for slot in (*names[i].qkv, names[i].o, *names[i].gate_up, names[i].down):
            outputs, inputs = slot.shape
            module = f"base_model.model.{slot.name.removesuffix('.weight')}"
            a = rng.standard_normal((RANK, inputs)) / np.sqrt(inputs)
            b = rng.standard_normal((outputs, RANK)) * 0.01
            tensors[f"{module}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"{module}.lora_B.weight"] = b.astype(np.float32)
    path = tmp_path_factory.mktemp("adapter")
    save_file(tensors, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK})
    )
    assert len(open_adapter(path).pairs) == 7 * config.num_layers
    return path


def answers(
    llm: LLM, questions: tuple[str, ...] = QUESTIONS
) -> list[tuple[list[int], list[float]]]:
    conversations = [[{"role": "user", "content": question}] for question in questions]
    completions = [output.outputs[0] for output in llm.chat(conversations, GREEDY)]
    return [
        (c.token_ids, [e[t].logprob for t, e in zip(c.token_ids, c.logprobs or [], strict=True)])
        for c in completions
    ]


def test_the_default_model_with_an_adapter_is_another_and_always_the_same(
    qwen_gguf: Path, adapter: Path
) -> None:
    plain = answers(LLM(qwen_gguf, kv_cache_tokens=2048))
    adapted = LLM(qwen_gguf, adapter=adapter, kv_cache_tokens=2048)
    together = answers(adapted)
    for (_, logprobs), (_, others) in zip(together, plain, strict=True):
        assert np.isfinite(logprobs).all()
        assert logprobs[0] != others[0]
    assert [answers(adapted, (question,))[0] for question in QUESTIONS] == together
    other = LLM(
        qwen_gguf, adapter=adapter, kv_cache_tokens=2048, num_threads=1, max_num_batched_tokens=16
    )
    assert answers(other) == together
