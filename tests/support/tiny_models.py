"""Tiny random models of each family, written as Hugging Face directories.

Weights are random but shaped like trained ones: norms that differ by channel and have an outlier,
large q and k biases, and logits spread enough that greedy decoding has clear winners.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from farthing.config import Experts, ModelConfig, Rope, RopeScaling
from farthing.models.registry import find_family
from farthing.program.rope import longrope_magnitude, yarn_magnitude
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
_QWEN3 = replace(
    _LLAMA,
    architecture="qwen3",
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-6,
    rope=Rope(1_000_000.0, 32),
)
_QWEN3_MOE = replace(_QWEN3, architecture="qwen3_moe", experts=Experts(8, 2, 64, normalize=True))
_SMOLLM3 = replace(
    _LLAMA,
    architecture="smollm3",
    num_kv_heads=2,
    rope=Rope(5_000_000.0, 16),
    tie_word_embeddings=True,
)
_PHI3_LONG = replace(
    _LLAMA, architecture="phi3", hidden_size=96, num_heads=3, num_kv_heads=3, head_dim=32
)
_ORIGINAL_CONTEXT = 32
# Rows narrower than a head times heads, a window that no block size divides, caps that bite.
_GEMMA2 = replace(
    _LLAMA,
    architecture="gemma2",
    num_layers=4,
    hidden_size=72,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-6,
    rope=Rope(10_000.0, 32),
    sliding_window=13,
    sliding_layers=(True, False, True, False),
    attention_scale=1 / math.sqrt(20),
    attention_softcap=5.0,
    logit_softcap=2.0,
    embedding_scale=math.sqrt(72),
    activation="gelu_tanh",
    tie_word_embeddings=True,
)
_GEMMA3 = replace(
    _GEMMA2,
    architecture="gemma3",
    num_kv_heads=1,
    rope=Rope(1_000_000.0, 32),
    local_rope=Rope(10_000.0, 32),
    sliding_layers=(True, True, False, True),
    attention_softcap=None,
    logit_softcap=None,
)


def _longrope(dim: int, original: int, *, factor: float, magnitude: float | None = None) -> Rope:
    """Factors are float32 numbers, as both formats have them."""
    steps = range(dim // 2)
    scaling = RopeScaling(
        "longrope",
        factor=factor,
        original_context_length=original,
        factors=tuple(1.0 + 0.375 * i for i in steps),
        short_factors=tuple(1.0 + 0.0625 * i for i in steps),
        magnitude=longrope_magnitude(factor, original) if magnitude is None else magnitude,
    )
    return Rope(10_000.0, dim, scaling)


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
    "llama-biases": replace(_LLAMA, num_kv_heads=2, attention_bias=True, mlp_bias=True),
    # Mistral 7B 0.1 and Nemo: a window in every layer, heads wider than hidden_size / num_heads.
    "mistral": replace(
        _LLAMA,
        architecture="mistral",
        num_kv_heads=2,
        head_dim=32,
        rope=Rope(10_000.0, 32),
        sliding_window=13,
    ),
    # Qwen3 0.6B to 4B: tied, heads normed by themselves.
    "qwen3": replace(_QWEN3, tie_word_embeddings=True),
    "qwen3-yarn": replace(
        _QWEN3,
        attention_bias=True,
        rope=Rope(
            1_000_000.0,
            32,
            RopeScaling(
                "yarn",
                factor=3.0,
                original_context_length=_ORIGINAL_CONTEXT,
                magnitude=yarn_magnitude(3.0),
            ),
        ),
    ),
    # The fourth layer does not rotate.
    "smollm3": replace(_SMOLLM3, num_layers=4, rope_layers=(True, True, True, False)),
    # The layers that do not rotate slide.
    "smollm3-sliding": replace(
        _SMOLLM3,
        rope_layers=(False, True, False),
        sliding_window=19,
        sliding_layers=(True, False, True),
        tie_word_embeddings=False,
        attention_bias=True,
        mlp_bias=True,
    ),
    # Phi-3-mini-4k.
    "phi3": replace(_LLAMA, architecture="phi3", sliding_window=21),
    # Phi-3-mini-128k, run with more than its original context.
    "phi3-longrope": replace(_PHI3_LONG, rope=_longrope(32, _ORIGINAL_CONTEXT, factor=8.0)),
    # Phi-4-mini: tied, grouped heads of which three quarters rotate; here with its original
    # context only, and yet with a magnitude.
    "phi4-mini": replace(
        _PHI3_LONG,
        num_kv_heads=1,
        rope=_longrope(24, 256, factor=1.0, magnitude=1.19),
        tie_word_embeddings=True,
    ),
    # OLMo 2 32B has grouped heads, the others not.
    "olmo2": replace(_LLAMA, architecture="olmo2", num_kv_heads=2, rope=Rope(500_000.0, 16)),
    "granite": replace(
        _LLAMA,
        architecture="granite",
        num_kv_heads=2,
        attention_scale=0.3,
        embedding_scale=0.7,
        residual_scale=1.4,
        logit_scale=1 / 3,
        tie_word_embeddings=True,
    ),
    "gemma2": _GEMMA2,
    # No caps; the last layer slides.
    "gemma2-uncapped": replace(
        _GEMMA2,
        num_layers=2,
        sliding_layers=(False, True),
        attention_softcap=None,
        logit_softcap=None,
    ),
    # Gemma 3 4B and up: rope is scaled in layers that see everything, and there only.
    "gemma3": replace(_GEMMA3, rope=Rope(1_000_000.0, 32, RopeScaling("linear", factor=8.0))),
    "gemma3-capped": replace(_GEMMA3, logit_softcap=2.0, tie_word_embeddings=False),
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
    return make_model(KINDS[kind], directory, seed, dtype=dtype, **save_options)


def make_model(
    config: ModelConfig, directory: Path, seed: int = 0, *, dtype: str = "float32", **options: Any
) -> Path:
    """As :func:`make_tiny_model` for a configuration of one's own."""
    model_class = getattr(transformers, find_family(config.architecture).hugging_face.classes[0])
    model = model_class(hugging_face_config(config))
    randomize(model, seed, gemma=config.architecture.startswith("gemma"))
    if config.vocab_size > TOKENIZER_SIZE:  # rows no training ever touched
        with torch.no_grad():
            model.get_output_embeddings().weight[TOKENIZER_SIZE:] = 0
    model.to(getattr(torch, dtype)).save_pretrained(directory, **options)
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
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_ids[0],
        "pad_token_id": None,
    }
    rope = _rope_parameters(config.rope)
    if config.local_rope is not None:
        rope = {_LAYER_TYPES[False]: rope, _LAYER_TYPES[True]: _rope_parameters(config.local_rope)}
    options["rope_parameters"] = rope
    if config.architecture != "qwen2":
        options |= {"attention_bias": config.attention_bias, "mlp_bias": config.mlp_bias}
    if config.sliding_window is not None:
        options["sliding_window"] = config.sliding_window
        if not config.architecture.startswith("gemma"):
            options["use_sliding_window"] = True
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
    options |= _own_options(config)
    model_type = _MODEL_TYPES.get(config.architecture, config.architecture)
    return transformers.AutoConfig.for_model(model_type, **options)


_MODEL_TYPES = {"gemma3": "gemma3_text"}
"""What transformers calls the families that it calls otherwise."""


def _own_options(config: ModelConfig) -> dict[str, Any]:
    """What only the family of ``config`` has."""
    match config.architecture:
        case "smollm3":
            return {"no_rope_layers": [int(rotates) for rotates in config.rope_layers]}
        case "phi3":
            rope: dict[str, Any] = _rope_parameters(config.rope)
            rope["partial_rotary_factor"] = config.rope.dim / config.head_dim
            original = rope.get("original_max_position_embeddings", config.context_length)
            return {"rope_parameters": rope, "original_max_position_embeddings": original}
        case "granite":
            return {
                "attention_multiplier": config.attention_scale,
                "embedding_multiplier": config.embedding_scale,
                "residual_multiplier": config.residual_scale,
                "logits_scaling": 1 / config.logit_scale,
            }
        case "gemma2" | "gemma3":
            return {
                "query_pre_attn_scalar": round(1 / (config.attention_scale or 1) ** 2),
                "attn_logit_softcapping": config.attention_softcap,
                "final_logit_softcapping": config.logit_softcap,
            }
    return {}


_LAYER_TYPES = {False: "full_attention", True: "sliding_attention"}


def _rope_parameters(rope: Rope) -> dict[str, Any]:
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    scaling = rope.scaling
    if scaling is None:
        return parameters
    parameters |= {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "longrope":
        parameters["long_factor"] = list(scaling.factors)
        parameters["short_factor"] = list(scaling.short_factors)
        if scaling.magnitude != longrope_magnitude(scaling.factor, scaling.original_context_length):
            parameters["attention_factor"] = scaling.magnitude
    if scaling.kind in ("llama3", "yarn", "longrope"):
        parameters["original_max_position_embeddings"] = scaling.original_context_length
    if scaling.kind == "llama3":
        parameters["low_freq_factor"] = scaling.low_freq_factor
        parameters["high_freq_factor"] = scaling.high_freq_factor
    if scaling.kind == "yarn":
        parameters["beta_fast"] = scaling.beta_fast
        parameters["beta_slow"] = scaling.beta_slow
    return parameters


def randomize(model: torch.nn.Module, seed: int, *, gemma: bool = False) -> None:
    """Overwrites every parameter of ``model``; depends on ``seed`` and the names only."""
    rng = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if name.endswith("norm.weight"):
            values = np.exp(0.3 * values)
            values[rng.integers(len(values))] *= 6
            if gemma and ".post_" in name:  # what layers add, beside embeddings that are scaled up
                values *= 6
            if gemma:  # of which 1 + w is exact in float32
                values = np.rint((values - 1) * 2**12) / 2**12
        elif name.endswith(("q_proj.bias", "k_proj.bias")):
            values *= 2
        elif name.endswith("bias"):
            values *= 0.3
        elif "embed" in name or name.startswith("lm_head"):
            values *= (1.0 if gemma else 2.5) / np.sqrt(parameter.shape[-1])
        else:
            values *= 1.2 / np.sqrt(parameter.shape[-1])
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
