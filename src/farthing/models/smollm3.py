"""SmolLM3 (Bakouch et al. 2025): Llama, but some layers do not rotate ("NoPE").

Yang et al. 2025, "Rope to Nope and Back Again". SmolLM and SmolLM2 are Llama by name as well.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models import llama
from farthing.models.checkpoint import windows
from farthing.models.family import Family, GgufDialect, HuggingFaceDialect

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields

_INTERVAL = 4  # every fourth layer does not rotate


def _every(interval: int, num_layers: int) -> tuple[bool, ...]:
    """Which layers rotate if those at multiples of ``interval``, counted from 1, do not."""
    return tuple((i + 1) % interval != 0 for i in range(num_layers))


def _read(fields: Fields, c: ModelConfig) -> ModelConfig:
    rotating = _rotating_layers(fields, c.num_layers)
    c = replace(c, rope_layers=() if all(rotating) else rotating)
    return windows.read_windows(fields, c, tuple(not rotates for rotates in rotating))


def _rotating_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """``no_rope_layers``, which has a 1, despite its name, for a layer with rope."""
    key = "no_rope_layers"
    if key not in fields:
        return _every(fields.integer("no_rope_layer_interval", 1, 1 << 30), num_layers)
    flags = fields.values[key]
    if not isinstance(flags, list) or len(flags) < num_layers:
        fields.fail(key, f"must be a list of {num_layers} numbers, one for each layer")
    for index, flag in enumerate(flags):
        if type(flag) is not int or flag not in (0, 1):
            fields.fail(f"{key}[{index}]", f"is {str(flag)[:40]!r}, neither 0 nor 1")
    return tuple(flag == 1 for flag in flags[:num_layers])


def _read_gguf(fields: Fields, c: ModelConfig) -> ModelConfig:
    """The format has no key for the layers: it is always every fourth."""
    rotating = _every(_INTERVAL, c.num_layers)
    return replace(c, rope_layers=() if all(rotating) else rotating)


FAMILY = Family(
    "smollm3",
    llama.build,
    HuggingFaceDialect(
        ("SmolLM3ForCausalLM",),
        ("smollm3",),
        read=_read,
        defaults=MappingProxyType(
            {
                "num_key_value_heads": 4,
                "no_rope_layer_interval": _INTERVAL,
                "rope_theta": 2_000_000.0,
                "tie_word_embeddings": True,
            }
        ),
    ),
    GgufDialect("smollm3", read=_read_gguf, interleaved_rope=True, attention_bias=None),
)
