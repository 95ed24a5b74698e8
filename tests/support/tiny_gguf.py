"""The tiny models as GGUF files, as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from farthing.config import ModelConfig
from support.tiny_models import KINDS

_MODULES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(kind: str, directory: Path, file: Path, scheme: str = "F32") -> Path:
    """Writes the model of ``directory`` to ``file``; returns ``file``.

    Matrices become ``scheme`` where its blocks fit their rows, and stay float32 where not. There
    is no tokenizer in it.
    """
    config = KINDS[kind]
    writer = gguf.GGUFWriter(file, config.architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    assert config.rope.scaling is None
    wanted = gguf.GGMLQuantizationType[scheme]
    for name, values in load_file(directory / "model.safetensors").items():
        stored = np.ascontiguousarray(_reordered(config, name, values))
        fits = stored.ndim == 2 and stored.shape[1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
        dtype = wanted if fits else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(stored, dtype)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _gguf_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if module in _MODULES:
        return f"{_MODULES[module]}.{kind}"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{_MODULES[rest]}.{kind}"


def _reordered(config: ModelConfig, name: str, values: np.ndarray) -> np.ndarray:
    """The rows of q and k of a Llama with the halves of each head interleaved."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
    module = name.split(".")[-2]
    if config.architecture != "llama" or module not in heads:
        return values
    halves = values.reshape(heads[module], 2, config.head_dim // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
