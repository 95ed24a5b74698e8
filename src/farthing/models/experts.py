"""Mixtures of experts: the block of a program, and how checkpoints speak of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import Experts, ModelConfig
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import limits
from farthing.models.names import LayerNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:
    from farthing.models.checkpoint.fields import Fields
    from farthing.models.checkpoint.tensor import TensorSource

GGUF_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_exps": "mlp.experts.gate_proj",
        "ffn_up_exps": "mlp.experts.up_proj",
        "ffn_down_exps": "mlp.experts.down_proj",
    }
)
"""For :attr:`GgufDialect.names`: the router, and stacks that :func:`split_stacks` cuts."""

_SOFTMAX = 1  # of GGUF's expert_gating_func; 0 is "not said"


def moe(p: ProgramBuilder, c: ModelConfig, w: LayerNames, h: Value, *, add: Value) -> Value:
    """``add +`` the weighted sum of each row's experts; the tap is ``mlp_input``."""
    assert c.experts is not None
    p.tap(h, f"layers.{w.index}.mlp_input")
    return p.moe(
        h,
        w.router,
        *w.experts,
        top_k=c.experts.per_token,
        normalize=c.experts.normalize,
        activation=c.activation,
        add=add,
    )


def read_experts(fields: Fields, c: ModelConfig) -> ModelConfig:
    """``c`` with the experts of a ``config.json`` with the keys of Qwen3-MoE.

    Layer i has experts unless ``mlp_only_layers`` lists it or ``decoder_sparse_step`` does not
    divide i + 1. Experts that every token visits are refused.
    """
    for key in ("shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts"):
        if fields.optional_integer(key, 0, limits.MAX_WIDTH):
            fields.fail(key, "says that there are shared experts, which are not supported")
    # transformers 5 writes num_experts under another name
    key = "num_experts" if "num_experts" in fields else "num_local_experts"
    count = fields.integer(key, 1, limits.MAX_EXPERTS)
    step = fields.optional_integer("decoder_sparse_step", 1, limits.MAX_LAYERS) or 1
    listed = fields.values.get("mlp_only_layers")
    listed = [] if listed is None else listed
    if not isinstance(listed, list) or any(
        type(i) is not int or not 0 <= i < c.num_layers for i in listed
    ):
        fields.fail(
            "mlp_only_layers", f"must be a list of layer numbers from 0 to {c.num_layers - 1}"
        )
    named = set(listed)
    dense = tuple(i for i in range(c.num_layers) if i in named or (i + 1) % step)
    experts = Experts(
        count=count,
        per_token=fields.integer("num_experts_per_tok", 1, count),
        intermediate_size=fields.integer("moe_intermediate_size", 1, limits.MAX_WIDTH),
        normalize=fields.boolean("norm_topk_prob", False),
        dense_layers=dense,
    )
    return _bounded(fields, key, replace(c, experts=experts))


def read_gguf_experts(fields: Fields, c: ModelConfig, architecture: str) -> ModelConfig:
    """``c`` with the experts that the metadata of a GGUF file describes, in every layer.

    Weights are normalized unless the file says otherwise. Experts that every token visits, and
    scores that are not a softmax over all experts, are refused.
    """
    key = f"{architecture}.".__add__
    for name, plain in (
        ("expert_shared_count", 0),
        ("expert_shared_feed_forward_length", 0),
        ("expert_group_count", 1),
        ("leading_dense_block_count", 0),
        ("interleave_moe_layer_step", 1),
        ("expert_gating_func", _SOFTMAX),
    ):
        value = fields.optional_integer(key(name), 0, (1 << 32) - 1)
        if value not in (None, 0, plain):
            fields.fail(key(name), f"is {value}, which is not supported")
    if fields.optional_real(key("expert_weights_scale"), 0.0, 1e6) not in (None, 0.0, 1.0):
        fields.fail(key("expert_weights_scale"), "is not 1, which is not supported")
    count = fields.integer(key("expert_count"), 1, limits.MAX_EXPERTS)
    per_token = fields.integer(key("expert_used_count"), 1, count)
    width_key = key("expert_feed_forward_length")
    width = fields.optional_integer(width_key, 1, limits.MAX_WIDTH)
    experts = Experts(
        count=count,
        per_token=per_token,
        intermediate_size=width or max(1, c.intermediate_size // per_token),
        normalize=fields.boolean(key("expert_weights_norm"), True),
    )
    return _bounded(fields, key("expert_count"), replace(c, experts=experts))


def _bounded(fields: Fields, key: str, c: ModelConfig) -> ModelConfig:
    assert c.experts is not None
    together = c.experts.count * (c.num_layers - len(c.experts.dense_layers))
    if together > limits.MAX_LAYER_EXPERTS:
        fields.fail(
            key,
            f"is {c.experts.count}, together {together} experts in all layers, more than "
            f"{limits.MAX_LAYER_EXPERTS}",
        )
    return c


def split_stacks(c: ModelConfig, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
    """``tensors`` with the stacks (experts, outputs, inputs) of a GGUF file cut into matrices.

    Raises :class:`ModelFormatError` for a stack of another number of experts than the model's.
    """
    assert c.experts is not None
    whole = dict(tensors)
    for layer in range(c.num_layers):
        for part in ("gate_proj", "up_proj", "down_proj"):
            stack = whole.pop(f"model.layers.{layer}.mlp.experts.{part}.weight", None)
            if stack is None:
                continue
            if len(stack.shape) != 3 or stack.shape[0] != c.experts.count or 0 in stack.shape:
                raise ModelFormatError(
                    stack.file,
                    f"has shape {stack.shape} where ({c.experts.count}, outputs, inputs) is "
                    "needed, a matrix for each expert",
                    field=f"tensor {stack.name}",
                    offset=stack.offset,
                )
            outputs = stack.shape[1]
            for e in range(c.experts.count):
                matrix = stack.row_range(e * outputs, (e + 1) * outputs)
                whole[f"model.layers.{layer}.mlp.experts.{e}.{part}.weight"] = matrix
    return whole
