"""GGUF files of tiny models, with the keys, names and row order that llama.cpp's converter writes.

What it writes was read in its ``conversion/`` and compared with its output for these models; tensor
names come from the table it uses itself, which is in the ``gguf`` package.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from farthing.config import ModelConfig
from farthing.program.rope import longrope_magnitude
from farthing.quantization import scheme as find_scheme
from farthing.quantization.rounding import round_weights
from farthing.tokenization import GgufVocabulary
from support.tiny_models import KINDS

INTERLEAVED = ("llama", "mistral3", "smollm3", "granite")
"""Architectures whose rows of q and k are written so that the pairs of rope are neighbours."""


def write_gguf(
    kind: str,
    directory: Path,
    file: Path,
    scheme: str = "F32",
    *,
    architecture: str | None = None,
    vocabulary: GgufVocabulary | None = None,
) -> Path:
    """Writes the model of ``directory`` to ``file``; returns ``file``.

    Matrices become ``scheme`` where its blocks fit their rows, and stay float32 where not.
    ``architecture`` is what the file calls it, by default what we do. ``vocabulary``: None for a
    file without tokenizer.
    """
    config = KINDS[kind]
    architecture = architecture or config.architecture
    writer = gguf.GGUFWriter(file, architecture)
    write_keys(writer, architecture, config)
    if vocabulary is not None:
        write_vocabulary(writer, vocabulary)
    wanted = gguf.GGMLQuantizationType[scheme]
    for name, values in _tensors(directory, architecture, config):
        stored = np.ascontiguousarray(values, np.float32)
        fits = stored.ndim == 2 and stored.shape[1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
        dtype = wanted if fits else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, quantized(stored, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def quantized(values: NDArray[np.float32], dtype: gguf.GGMLQuantizationType) -> NDArray[np.generic]:
    """The blocks of ``values``, from the ``gguf`` package where it can make them."""
    if dtype is not gguf.GGMLQuantizationType.IQ4_NL:
        made: NDArray[np.generic] = gguf.quantize(values, dtype)
        return made
    rounded = round_weights(values, find_scheme("iq4_nl"), "mse")
    rows, groups = rounded.scales.shape
    low, high = np.split(rounded.codes.reshape(rows, groups, 32), 2, axis=2)
    scales = rounded.scales[..., None].view(np.uint8)
    return np.concatenate([scales, low | high << 4], axis=2).reshape(rows, -1)


def interleave(weights: NDArray[np.generic], num_heads: int) -> NDArray[np.generic]:
    """Rows of q or k in the order of interleaved rope, from that of half-split rope."""
    halves = weights.reshape(num_heads, 2, weights.shape[0] // num_heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def gguf_name(name: str, architecture: str, c: ModelConfig) -> str:
    """What the converter calls the tensor ``name``."""
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], c.num_layers)
    written: str | None = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert written is not None, name
    return written


def write_keys(writer: gguf.GGUFWriter, architecture: str, c: ModelConfig) -> None:
    """Writes the keys of ``c``, but for those of experts."""
    writer.add_block_count(c.num_layers)
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_heads)
    writer.add_head_count_kv(c.num_kv_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope.theta)
    if architecture not in ("granite", "phi3"):
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
    if architecture in INTERLEAVED or architecture == "phi3":
        writer.add_rope_dimension_count(c.rope.dim)
    if architecture == "phi3":
        writer.add_sliding_window(c.sliding_window or 0)
    if architecture == "granite":
        assert c.attention_scale is not None
        writer.add_attention_scale(c.attention_scale)
        writer.add_embedding_scale(c.embedding_scale)
        writer.add_residual_scale(c.residual_scale)
        writer.add_logit_scale(1 / c.logit_scale)
    scaling = c.rope.scaling
    if scaling is None:
        return
    if scaling.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling.factor)
    elif scaling.kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling.factor)
        writer.add_rope_scaling_orig_ctx_len(scaling.original_context_length)
        writer.add_rope_scaling_yarn_beta_fast(scaling.beta_fast)
        writer.add_rope_scaling_yarn_beta_slow(scaling.beta_slow)
    else:
        assert scaling.kind == "longrope"
        writer.add_rope_scaling_orig_ctx_len(scaling.original_context_length)
        original = scaling.original_context_length
        writer.add_rope_scaling_attn_factors(
            longrope_magnitude(c.context_length / original, original)
        )


def write_vocabulary(writer: gguf.GGUFWriter, vocabulary: GgufVocabulary) -> None:
    """Writes the keys of a vocabulary of SentencePiece's making, with its three special tokens."""
    assert None not in (vocabulary.bos_id, vocabulary.eos_id, vocabulary.unknown_id)
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_scores(list(vocabulary.scores))
    writer.add_token_types(list(vocabulary.token_types))
    writer.add_bos_token_id(vocabulary.bos_id)
    writer.add_eos_token_id(vocabulary.eos_id)
    writer.add_unk_token_id(vocabulary.unknown_id)


def _tensors(
    source: Path, architecture: str, c: ModelConfig
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for name, values in safetensors.numpy.load_file(source / "model.safetensors").items():
        if architecture in INTERLEAVED and ".q_proj." in name:
            values = interleave(values, c.num_heads)
        elif architecture in INTERLEAVED and ".k_proj." in name:
            values = interleave(values, c.num_kv_heads)
        yield gguf_name(name, architecture, c), values
    if c.rope.scaling is not None and c.rope.scaling.kind == "longrope":
        yield "rope_factors_long.weight", np.array(c.rope.scaling.factors)
        yield "rope_factors_short.weight", np.array(c.rope.scaling.short_factors)
