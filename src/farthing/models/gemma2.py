"""Gemma 2 (Riviere et al. 2024): soft caps on scores and logits, every other layer slides."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import gemma, layers
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields

_PERIOD = 2  # the first layer slides, the second does not
_WINDOW, _ATTENTION_CAP, _LOGIT_CAP = 4096, 50.0, 30.0
_GGUF = gemma.GgufDefaults(
    _WINDOW, _PERIOD, layers_of_27b=46, attention_softcap=_ATTENTION_CAP, logit_softcap=_LOGIT_CAP
)


def build(p: ProgramBuilder, c: ModelConfig, w: WeightNames) -> Value:
    """The logits (R, vocab)."""
    x = gemma.embed(p, c, w)
    for i in range(c.num_layers):
        x = gemma.layer(p, c, w[i], x)
    return layers.logits(p, c, w, x)


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    sliding = windows.read_layer_types(fields, c.num_layers)
    return gemma.read_config(fields, c, sliding or windows.periodic(c.num_layers, _PERIOD))


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    return gemma.read_gguf(fields, c, _GGUF)


FAMILY = Family(
    "gemma2",
    build,
    HuggingFaceDialect(
        ("Gemma2ForCausalLM",),
        ("gemma2",),
        read=_read,
        tensors=gemma.add_one_to_norms,
        defaults=MappingProxyType(
            {
                "vocab_size": 256_000,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192,
                "rms_norm_eps": 1e-6,
                "tie_word_embeddings": True,
                "query_pre_attn_scalar": 256,
                "sliding_window": _WINDOW,
                "attn_logit_softcapping": _ATTENTION_CAP,
                "final_logit_softcapping": _LOGIT_CAP,
                "bos_token_id": 2,
                "eos_token_id": 1,
            }
        ),
        activation="hidden_activation",
    ),
    GgufDialect("gemma2", read=_read_gguf, names=gemma.GGUF_NAMES),
)
