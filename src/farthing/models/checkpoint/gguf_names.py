"""GGUF tensor names and the canonical (Hugging Face) names they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from farthing.models.checkpoint.checkpoint import EMBEDDING, LM_HEAD

_WHOLE_MODEL = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": "model.norm.weight",
    "output.weight": LM_HEAD,
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.([a-z_]+)\.(weight|bias)")


def canonical_name(name: str, own: Mapping[str, str]) -> str:
    """The canonical name of a GGUF tensor; an unknown name stands for itself.

    ``own`` are the family's own names of parts of a layer, before those of Llama.
    """
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match = _LAYER.fullmatch(name)
    part = match and (own.get(match[2]) or _IN_LAYER.get(match[2]))
    return f"model.layers.{match[1]}.{part}.{match[3]}" if match and part else name
