"""Frozen descriptions of a model, independent of the file format they were read from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the base inverse frequencies are changed, fixed at load (never by current length).

    ``linear`` divides all of them by ``factor``; ``llama3`` is the wavelength-dependent rule of
    Llama 3.1 (Hugging Face ``rope_type`` ``llama3``); ``yarn`` blends kept and divided frequencies
    between the dimensions that turn ``beta_fast`` and ``beta_slow`` times within the original
    context (Peng et al. 2023, "YaRN", section 3.2); ``factors`` divides frequency i by
    ``factors[i]`` (the ``rope_freqs.weight`` tensor of a GGUF file); ``longrope`` (Ding et al.
    2024) by ``factors[i]`` where the model is run with more than the original context and by
    ``short_factors[i]`` otherwise: see :meth:`Rope.at_context`.

    ``magnitude`` multiplies the rotated vectors (the attention factor of YaRN and longrope).
    """

    kind: Literal["linear", "llama3", "yarn", "factors", "longrope"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_length: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True  # YaRN: the blend begins and ends at whole dimensions
    factors: tuple[float, ...] = ()
    short_factors: tuple[float, ...] = ()
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of the first ``dim`` dimensions of a head, half-split pairing."""

    theta: float
    dim: int
    scaling: RopeScaling | None = None

    @property
    def stretched_context(self) -> int:
        """Tokens that YaRN makes of the original context; 0 for other kinds, which do not say."""
        scaling = self.scaling
        if scaling is None or scaling.kind != "yarn":
            return 0
        return int(scaling.factor * scaling.original_context_length)

    def at_context(self, length: int) -> Rope:
        """The rope of a model that is run with a context of ``length`` tokens.

        Chooses the factors of ``longrope``; other kinds do not depend on the context.
        """
        scaling = self.scaling
        if scaling is None or scaling.kind != "longrope":
            return self
        long = length > scaling.original_context_length
        factors = scaling.factors if long else scaling.short_factors
        fixed = replace(scaling, kind="factors", factors=factors, short_factors=())
        return replace(self, scaling=fixed)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of gated experts in the place of the feed-forward block."""

    count: int
    per_token: int
    intermediate_size: int  # of one expert
    normalize: bool  # the weights of a token's experts are divided by their sum
    dense_layers: tuple[int, ...] = ()  # layers with a plain feed-forward block instead


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers of a decoder-only transformer. Widths in elements, lengths in tokens.

    A default means: as in Llama.
    """

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
    local_rope: Rope | None = None  # of sliding layers, where they have one of their own
    rope_layers: tuple[bool, ...] = ()  # which layers rotate; empty: all
    sliding_window: int | None = None  # positions a sliding layer sees, the token's own included
    sliding_layers: tuple[bool, ...] = ()  # which layers slide; empty: all, if there is a window
    attention_bias: bool = False  # q, k and v projections have biases
    mlp_bias: bool = False  # gate, up and down projections have biases
    attention_scale: float | None = None  # of scores; None: head_dim ** -0.5
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what each block adds to the residual stream
    logit_scale: float = 1.0
    activation: Activation = "silu"
    experts: Experts | None = None
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def layer_experts(self, layer: int) -> Experts | None:
        """The experts of ``layer``, or None where it has a plain feed-forward block."""
        if self.experts is None or layer in self.experts.dense_layers:
            return None
        return self.experts

    def window(self, layer: int) -> int | None:
        """Positions that ``layer`` sees, or None for all."""
        return self.sliding_window if self._slides(layer) else None

    def layer_rope(self, layer: int) -> Rope | None:
        """Rotary embedding of ``layer``, or None where nothing is rotated."""
        if self.rope_layers and not self.rope_layers[layer]:
            return None
        if self.local_rope is not None and self._slides(layer):
            return self.local_rope
        return self.rope

    def at_context(self, length: int) -> ModelConfig:
        """The configuration of the model when it is run with a context of ``length`` tokens."""
        local = self.local_rope
        return replace(
            self,
            rope=self.rope.at_context(length),
            local_rope=None if local is None else local.at_context(length),
        )

    def _slides(self, layer: int) -> bool:
        if self.sliding_window is None:
            return False
        return not self.sliding_layers or self.sliding_layers[layer]
