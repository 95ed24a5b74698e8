"""A tiny Qwen3-MoE directory as a GGUF file, as llama.cpp's converter writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from farthing.config import ModelConfig
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(.*)")
Floats = NDArray[np.floating]


def write_moe_gguf(directory: Path, path: Path, types: Mapping[str, str] | None = None) -> Path:
    """Writes ``directory`` to ``path``.

    ``types`` are GGUF types by GGUF name of a part (``ffn_up_exps``); ``""`` is the default of all
    matrices but the router. What is not named is F32.
    """
    checkpoint = open_checkpoint(directory, FAMILIES)
    types = types or {}
    writer = gguf.GGUFWriter(path, "qwen3moe")
    _add_keys(writer, checkpoint.config)
    weights = {name: tensor.dequantize() for name, tensor in checkpoint.tensors.items()}
    for name, values in _stacked(weights).items():
        part = name.split(".")[-2]
        kind = types.get(part, "F32" if part == "ffn_gate_inp" else types.get("", "F32"))
        if values.ndim == 1 or kind == "F32":
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        else:
            quantization = gguf.GGMLQuantizationType[kind]
            blocks = gguf.quantize(np.ascontiguousarray(values), quantization)
            writer.add_tensor(name, blocks, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_keys(writer: gguf.GGUFWriter, c: ModelConfig) -> None:
    assert c.experts is not None
    writer.add_block_count(c.num_layers)
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_heads)
    writer.add_head_count_kv(c.num_kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope.theta)
    writer.add_expert_count(c.experts.count)
    writer.add_expert_used_count(c.experts.per_token)
    writer.add_expert_feed_forward_length(c.experts.intermediate_size)


def _stacked(weights: Mapping[str, Floats]) -> dict[str, Floats]:
    """Tensors by GGUF name, those of experts stacked."""
    parts: dict[str, list[Floats]] = {}
    single: dict[str, Floats] = {}
    for name, values in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            single[_gguf_name(name)] = values
        else:
            stack = parts.setdefault(_gguf_name(f"{match[1]}.{match[3]}"), [])
            assert int(match[2]) == len(stack), "experts come in order"
            stack.append(values)
    return single | {name: np.stack(stack) for name, stack in parts.items()}


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.{kind}" if layer else f"{NAMES[stem]}.{kind}"
