"""Frozen descriptions of a model, independent of the file format they were read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the base inverse frequencies are changed, fixed at load (never by current length).

    ``kind`` ``linear`` divides all of them by ``factor``; ``llama3`` is the wavelength-dependent
    rule of Llama 3.1 (Hugging Face ``rope_type`` ``llama3``); ``factors`` divides frequency i by
    ``factors[i]`` (the ``rope_freqs.weight`` tensor of a GGUF file).
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_length: int = 8192
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of the first ``dim`` dimensions of a head, half-split pairing."""

    theta: float
    dim: int
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers of a decoder-only transformer. Widths in elements, lengths in tokens."""

    architecture: str  # registry key: "llama", "qwen2", ...
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_norm_eps: float
    rope: Rope
    attention_bias: bool = False  # q, k and v projections have biases
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
