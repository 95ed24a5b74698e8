"""The weights of a decoder: canonical (Hugging Face) names and shapes, from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.config import ModelConfig
from farthing.program.ops import WeightSlot


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Weights of layer ``index``. Matrices are (outputs, inputs)."""

    config: ModelConfig
    index: int

    @property
    def input_norm(self) -> WeightSlot:
        """Norm before attention."""
        return self._slot("input_layernorm.weight", self.config.hidden_size)

    @property
    def qkv(self) -> tuple[WeightSlot, WeightSlot, WeightSlot]:
        """Projections to query, key and value heads."""
        q, k, v = self._attention_widths
        hidden = self.config.hidden_size
        return (
            self._slot("self_attn.q_proj.weight", q, hidden),
            self._slot("self_attn.k_proj.weight", k, hidden),
            self._slot("self_attn.v_proj.weight", v, hidden),
        )

    @property
    def qkv_bias(self) -> tuple[WeightSlot, WeightSlot, WeightSlot]:
        """Biases of :attr:`qkv`."""
        q, k, v = self._attention_widths
        return (
            self._slot("self_attn.q_proj.bias", q),
            self._slot("self_attn.k_proj.bias", k),
            self._slot("self_attn.v_proj.bias", v),
        )

    @property
    def q_norm(self) -> WeightSlot:
        """Norm of each query head before rope."""
        return self._slot("self_attn.q_norm.weight", self.config.head_dim)

    @property
    def k_norm(self) -> WeightSlot:
        """Norm of each key head before rope."""
        return self._slot("self_attn.k_norm.weight", self.config.head_dim)

    @property
    def o(self) -> WeightSlot:
        """Projection of the heads' outputs back to the residual."""
        c = self.config
        return self._slot("self_attn.o_proj.weight", c.hidden_size, c.num_heads * c.head_dim)

    @property
    def o_bias(self) -> WeightSlot:
        """Bias of :attr:`o`."""
        return self._slot("self_attn.o_proj.bias", self.config.hidden_size)

    @property
    def post_attention_norm(self) -> WeightSlot:
        """Norm before the feed-forward block; in some families, of what attention adds."""
        return self._slot("post_attention_layernorm.weight", self.config.hidden_size)

    @property
    def pre_feedforward_norm(self) -> WeightSlot:
        """Norm before the feed-forward block, where there is one after attention too."""
        return self._slot("pre_feedforward_layernorm.weight", self.config.hidden_size)

    @property
    def post_feedforward_norm(self) -> WeightSlot:
        """Norm of what the feed-forward block adds to the residual."""
        return self._slot("post_feedforward_layernorm.weight", self.config.hidden_size)

    @property
    def gate_up(self) -> tuple[WeightSlot, WeightSlot]:
        """Gate and up projections of the feed-forward block."""
        c = self.config
        return (
            self._slot("mlp.gate_proj.weight", c.intermediate_size, c.hidden_size),
            self._slot("mlp.up_proj.weight", c.intermediate_size, c.hidden_size),
        )

    @property
    def down(self) -> WeightSlot:
        """Down projection of the feed-forward block."""
        c = self.config
        return self._slot("mlp.down_proj.weight", c.hidden_size, c.intermediate_size)

    @property
    def _attention_widths(self) -> tuple[int, int, int]:
        c = self.config
        kv_width = c.num_kv_heads * c.head_dim
        return c.num_heads * c.head_dim, kv_width, kv_width

    def _slot(self, name: str, *shape: int) -> WeightSlot:
        return WeightSlot(f"model.layers.{self.index}.{name}", shape)


@dataclass(frozen=True, slots=True)
class WeightNames:
    """Weights outside the layers; ``w[i]`` are those of layer i."""

    config: ModelConfig

    def __getitem__(self, index: int) -> LayerNames:
        return LayerNames(self.config, index)

    @property
    def embed_tokens(self) -> WeightSlot:
        """Token embeddings (vocab, hidden)."""
        c = self.config
        return WeightSlot("model.embed_tokens.weight", (c.vocab_size, c.hidden_size))

    @property
    def final_norm(self) -> WeightSlot:
        """Norm after the last layer."""
        return WeightSlot("model.norm.weight", (self.config.hidden_size,))

    @property
    def lm_head(self) -> WeightSlot:
        """Output projection (vocab, hidden): the embeddings themselves where they are tied."""
        if self.config.tie_word_embeddings:
            return self.embed_tokens
        return WeightSlot("lm_head.weight", self.embed_tokens.shape)
