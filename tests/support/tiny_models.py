"""Tiny random models of each family, written as Hugging Face directories.

Weights are random but shaped like trained ones: norms that differ by channel and have an outlier,
large q and k biases, and logits spread enough that greedy decoding has clear winners.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from farthing.config import Experts, ModelConfig, Rope, RopeScaling
from farthing.models.registry import find_family
from farthing.program.rope import yarn_magnitude
from support.tiny_tokenizer import BOS_ID, EOS_ID, TOKENIZER_SIZE, tiny_tokenizer

_LLAMA = ModelConfig(
    architecture="llama",
    num_layers=3,
    hidden_size=64,
    intermediate_size=176,
    num_heads=4,
    num_kv_heads=4,
    head_dim=16,
    vocab_size=TOKENIZER_SIZE,
    context_length=256,
    rms_norm_eps=1e-5,
    rope=Rope(10_000.0, 16),
    bos_token_id=BOS_ID,
    eos_token_ids=(EOS_ID,),
)
_QWEN2 = replace(
    _LLAMA,
    architecture="qwen2",
    num_heads=6,
    num_kv_heads=2,
    rms_norm_eps=1e-6,
    rope=Rope(1_000_000.0, 16),
    attention_bias=True,
)
_QWEN3_MOE = replace(
    _LLAMA,
    architecture="qwen3_moe",
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-6,
    rope=Rope(1_000_000.0, 32),
    experts=Experts(8, 2, 64, normalize=True),
)
_ORIGINAL_CONTEXT = 32

KINDS: dict[str, ModelConfig] = {
    # Llama 2: every query head has its own kv head, output projection of its own.
    "llama-mha": _LLAMA,
    # Llama 3.2: grouped heads wider than hidden_size / num_heads, tied, llama3 scaling.
    "llama-llama3-rope": replace(
        _LLAMA,
        num_kv_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        rope=Rope(
            500_000.0,
            32,
            RopeScaling(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_context_length=_ORIGINAL_CONTEXT,
            ),
        ),
    ),
    "llama-linear-rope": replace(
        _LLAMA, num_kv_heads=1, rope=Rope(10_000.0, 16, RopeScaling("linear", factor=4.0))
    ),
    # The magnitude is YaRN's own for its factor.
    "llama-yarn": replace(
        _LLAMA,
        head_dim=32,
        rope=Rope(
            10_000.0,
            32,
            RopeScaling(
                "yarn",
                factor=4.0,
                original_context_length=_ORIGINAL_CONTEXT,
                beta_fast=8.0,
                beta_slow=1.0,
                magnitude=yarn_magnitude(4.0),
            ),
        ),
    ),
    "llama-attention-bias": replace(_LLAMA, num_kv_heads=2, attention_bias=True),
    # Qwen2.5 7B and up: untied; more vocabulary rows than the tokenizer has tokens.
    "qwen2": replace(_QWEN2, vocab_size=TOKENIZER_SIZE + 5),
    # A window in some layers only, narrower than a block of the cache and not a divisor of one.
    "qwen2-sliding": replace(_QWEN2, sliding_window=13, sliding_layers=(False, True, True)),
    # Qwen2.5 0.5B to 3B: tied.
    "qwen2-tied": replace(_QWEN2, num_heads=4, tie_word_embeddings=True),
    # Qwen3-30B-A3B: every layer has experts.
    "qwen3-moe": _QWEN3_MOE,
    # The first layer plain, weights as they are, experts of odd number and width.
    "qwen3-moe-mixed": replace(
        _QWEN3_MOE,
        attention_bias=True,
        sliding_window=37,
        experts=Experts(5, 3, 40, normalize=False, dense_layers=(0,)),
    ),
}
"""Every kind by name, with the configuration a checkpoint reader must find in its directory."""


def make_tiny_model(
    kind: str, directory: Path, seed: int = 0, *, dtype: str = "float32", **save_options: Any
) -> Path:
    """Writes model and tokenizer of ``kind`` into ``directory``; returns ``directory``.

    ``dtype``: of the stored weights (``float32``, ``float16``, ``bfloat16``). ``save_options`` go
    to ``save_pretrained``, e.g. ``max_shard_size="100KB"`` for a sharded checkpoint.
    """
    config = KINDS[kind]
    model_class = getattr(transformers, find_family(config.architecture).hugging_face.classes[0])
    model = model_class(hugging_face_config(config))
    randomize(model, seed)
    if config.vocab_size > TOKENIZER_SIZE:  # rows no training ever touched
        with torch.no_grad():
            model.get_output_embeddings().weight[TOKENIZER_SIZE:] = 0
    model.to(getattr(torch, dtype)).save_pretrained(directory, **save_options)
    tiny_tokenizer(config.architecture).save_pretrained(directory)
    return directory


def hugging_face_config(config: ModelConfig) -> transformers.PretrainedConfig:
    """The ``config.json`` that describes ``config``."""
    options: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": _rope_parameters(config.rope),
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_ids[0],
    }
    if config.architecture in ("llama", "qwen3_moe"):
        options["attention_bias"] = config.attention_bias
    if config.sliding_window is not None:
        options |= {
            "use_sliding_window": True,
            "sliding_window": config.sliding_window,
        }
    if config.sliding_layers:
        options["layer_types"] = [_LAYER_TYPES[slides] for slides in config.sliding_layers]
    if config.experts is not None:
        options |= {
            "num_experts": config.experts.count,
            "num_experts_per_tok": config.experts.per_token,
            "moe_intermediate_size": config.experts.intermediate_size,
            "norm_topk_prob": config.experts.normalize,
            "mlp_only_layers": list(config.experts.dense_layers),
        }
    model_type = config.architecture  # transformers calls both families as Farthing does
    return transformers.AutoConfig.for_model(model_type, **options)


_LAYER_TYPES = {False: "full_attention", True: "sliding_attention"}


def _rope_parameters(rope: Rope) -> dict[str, Any]:
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    scaling = rope.scaling
    if scaling is None:
        return parameters
    parameters |= {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = scaling.original_context_length
    if scaling.kind == "llama3":
        parameters["low_freq_factor"] = scaling.low_freq_factor
        parameters["high_freq_factor"] = scaling.high_freq_factor
    if scaling.kind == "yarn":
        parameters["beta_fast"] = scaling.beta_fast
        parameters["beta_slow"] = scaling.beta_slow
    return parameters


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Overwrites every parameter of ``model``; depends on ``seed`` and the names only."""
    rng = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if name.endswith("norm.weight"):
            values = np.exp(0.3 * values)
            values[rng.integers(len(values))] *= 6
        elif name.endswith(("q_proj.bias", "k_proj.bias")):
            values *= 2
        elif name.endswith("bias"):
            values *= 0.3
        elif "embed" in name or name.startswith("lm_head"):
            values *= 2.5 / np.sqrt(parameter.shape[-1])
        else:
            values *= 1.2 / np.sqrt(parameter.shape[-1])
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
