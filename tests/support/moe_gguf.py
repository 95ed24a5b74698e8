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
from support.tiny_gguf import gguf_name, write_keys

_ARCHITECTURE = "qwen3moe"
_EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(.*)")
Floats = NDArray[np.floating]


def write_moe_gguf(directory: Path, path: Path, types: Mapping[str, str] | None = None) -> Path:
    """Writes ``directory`` to ``path``.

    ``types`` are GGUF types by GGUF name of a part (``ffn_up_exps``); ``""`` is the default of all
    matrices but the router. What is not named is F32.
    """
    checkpoint = open_checkpoint(directory, FAMILIES)
    types = types or {}
    config, experts = checkpoint.config, checkpoint.config.experts
    assert experts is not None
    writer = gguf.GGUFWriter(path, _ARCHITECTURE)
    write_keys(writer, _ARCHITECTURE, config)
    writer.add_expert_count(experts.count)
    writer.add_expert_used_count(experts.per_token)
    writer.add_expert_feed_forward_length(experts.intermediate_size)
    weights = {name: tensor.dequantize() for name, tensor in checkpoint.tensors.items()}
    for name, values in _stacked(weights, config).items():
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


def _stacked(weights: Mapping[str, Floats], c: ModelConfig) -> dict[str, Floats]:
    """Tensors by GGUF name, those of experts stacked."""
    parts: dict[str, list[Floats]] = {}
    single: dict[str, Floats] = {}
    for name, values in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            single[gguf_name(name, _ARCHITECTURE, c)] = values
        else:
            name = gguf_name(f"{match[1]}.{match[3]}", _ARCHITECTURE, c)
            stack = parts.setdefault(name, [])
            assert int(match[2]) == len(stack), "experts come in order"
            stack.append(values)
    return single | {name: np.stack(stack) for name, stack in parts.items()}
