"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Abdin et al. 2024): Llama without biases, stored fused.

q, k and v are one matrix in the files, and gate and up another. The models of long context have
``longrope`` (Ding et al. 2024), Phi-4-mini rotates a part of each head, Phi-3-mini-4k has a window.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.errors import ModelFormatError
from farthing.models import mistral
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import LayerNames
from farthing.program.ops import WeightSlot

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields
    from farthing.models.checkpoint.tensor import TensorSource
    from farthing.models.family import Tensors

_QKV, _GATE_UP = "self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    c = replace(c, attention_bias=False, mlp_bias=False)
    scaling = c.rope.scaling
    if scaling is not None and scaling.kind != "longrope":
        section = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
        problem = f"is of type {scaling.kind!r}, which this architecture does not have"
        fields.fail(section, f"{problem}; it has 'longrope'")
    return windows.with_window(c, windows.read_window(fields))


def _split(c: ModelConfig, tensors: Tensors) -> Tensors:
    """``tensors`` with the parts of the fused ones under the names of their own."""
    split = dict(tensors)
    for i in range(c.num_layers):
        names = LayerNames(c, i)
        for fused, parts in ((_QKV, names.qkv), (_GATE_UP, names.gate_up)):
            _split_rows(split, f"model.layers.{i}.{fused}", parts)
    return split


def _split_rows(tensors: dict[str, TensorSource], name: str, parts: tuple[WeightSlot, ...]) -> None:
    fused = tensors.get(name)
    if fused is None:  # missing parts are reported by check_tensors
        return
    wanted = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    if fused.shape != wanted:
        raise ModelFormatError(
            fused.file,
            f"has shape {fused.shape} where {wanted} is needed",
            field=f"tensor {fused.name}",
            offset=fused.offset,
        )
    start = 0
    for part in parts:
        if part.name in tensors:
            raise ModelFormatError(
                fused.file,
                f"is a duplicate: it has rows of {part.name}, which is in the file too",
                field=f"tensor {fused.name}",
                offset=fused.offset,
            )
        tensors[part.name] = fused.row_range(start, start + part.shape[0])
        start += part.shape[0]
    del tensors[name]


FAMILY = Family(
    "phi3",
    mistral.build,
    HuggingFaceDialect(
        ("Phi3ForCausalLM",),
        ("phi3",),
        read=_read,
        tensors=_split,
        defaults=MappingProxyType({"original_max_position_embeddings": 4096}),
        partial_rope=True,
    ),
    GgufDialect(
        "phi3",
        names=MappingProxyType({"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
        tensors=_split,
    ),
)
