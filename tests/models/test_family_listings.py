"""One layer of each family's program, pinned as a listing: what differs from Llama's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farthing.models.registry import build_program
from farthing.program.listing import describe
from support.tiny_models import KINDS


def listing(kind: str) -> str:
    """The listing of ``kind`` with its last layer alone."""
    config = KINDS[kind]
    return describe(
        build_program(
            replace(config, num_layers=1, sliding_layers=(), rope_layers=config.rope_layers[-1:])
        )
    )


ATTENTION = {
    "mistral": (
        "%3 (T, 128) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=32, "
        "scale=0.1767766952966369, rope=rope(theta=10000.0, dim=32), window=13)"
    ),
    "qwen3": (
        "%3 (T, 128) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=32, "
        "scale=0.1767766952966369, rope=rope(theta=1000000.0, dim=32), "
        "q_norm=model.layers.0.self_attn.q_norm.weight, "
        "k_norm=model.layers.0.self_attn.k_norm.weight, norm_eps=1e-06)"
    ),
    "smollm3": (
        "%3 (T, 64) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)"
    ),
    "phi3-longrope": (
        "%3 (T, 96) = attention(%2, layer=0, num_heads=3, num_kv_heads=3, head_dim=32, "
        "scale=0.1767766952966369, rope=rope(theta=10000.0, dim=32, "
        "scaling=rope_scaling(kind=factors, factor=8.0, original_context_length=32, "
        "factors=[1.0 .. 6.625: 16], magnitude=1.2649110640673518)))"
    ),
    "phi4-mini": (
        "%3 (T, 96) = attention(%2, layer=0, num_heads=3, num_kv_heads=1, head_dim=32, "
        "scale=0.1767766952966369, rope=rope(theta=10000.0, dim=24, "
        "scaling=rope_scaling(kind=factors, original_context_length=256, factors=[1.0 .. "
        "1.6875: 12], magnitude=1.19)))"
    ),
}


@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_is_pinned(kind: str) -> None:
    lines = listing(kind).splitlines()
    assert [line for line in lines if "attention(" in line] == [ATTENTION[kind]]


@pytest.mark.parametrize("kind", ATTENTION)
def test_all_but_attention_is_as_in_llama(kind: str) -> None:
    config = replace(KINDS[kind], architecture="llama")
    ours, llamas = (
        [line for line in describe(build_program(c)).splitlines() if "attention(" not in line]
        for c in (KINDS[kind], config)
    )
    assert ours[:-1] == llamas[:-1]  # the last line counts the weights


OLMO2 = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
%1 (T, 128) = linear(%0, model.layers.0.self_attn.{q,k,v}_proj.weight)
%2 (T, 64) = attention(%1, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, \
rope=rope(theta=500000.0, dim=16), q_norm=model.layers.0.self_attn.q_norm.weight, \
k_norm=model.layers.0.self_attn.k_norm.weight, norm_eps=1e-05)
%3 (T, 64) = linear(%2, model.layers.0.self_attn.o_proj.weight)
%4 (T, 64) = rms_norm(%3, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%5 (T, 64) = add(%0, %4)
%6 (T, 352) = linear(%5, model.layers.0.mlp.{gate,up}_proj.weight)
%7 (T, 176) = gated(%6, activation=silu)
%8 (T, 64) = linear(%7, model.layers.0.mlp.down_proj.weight)
%9 (T, 64) = rms_norm(%8, model.layers.0.post_feedforward_layernorm.weight, eps=1e-05)
%10 (T, 64) = add(%5, %9)
%11 (T, 64) = rms_norm(%10, model.norm.weight, eps=1e-05)
%12 (H, 64) = hidden_rows(%11)
%13 (R, 64) = logit_rows(%11)
%14 (R, 331) = linear(%13, lm_head.weight)
logits: %14; weights: 14"""

GRANITE = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
%1 (T, 64) = scale(%0, factor=0.7)
%2 (T, 64) = rms_norm(%1, model.layers.0.input_layernorm.weight, eps=1e-05)
%3 (T, 128) = linear(%2, model.layers.0.self_attn.{q,k,v}_proj.weight)
%4 (T, 64) = attention(%3, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.3, \
rope=rope(theta=10000.0, dim=16))
%5 (T, 64) = linear(%4, model.layers.0.self_attn.o_proj.weight)
%6 (T, 64) = scale(%5, factor=1.4)
%7 (T, 64) = add(%1, %6)
%8 (T, 64) = rms_norm(%7, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%9 (T, 352) = linear(%8, model.layers.0.mlp.{gate,up}_proj.weight)
%10 (T, 176) = gated(%9, activation=silu)
%11 (T, 64) = linear(%10, model.layers.0.mlp.down_proj.weight)
%12 (T, 64) = scale(%11, factor=1.4)
%13 (T, 64) = add(%7, %12)
%14 (T, 64) = rms_norm(%13, model.norm.weight, eps=1e-05)
%15 (H, 64) = hidden_rows(%14)
%16 (R, 64) = logit_rows(%14)
%17 (R, 331) = linear(%16, model.embed_tokens.weight)
%18 (R, 331) = scale(%17, factor=0.3333333333333333)
logits: %18; weights: 11"""


@pytest.mark.parametrize("kind", ["llama-mha", "smollm3", "granite"])
def test_biases_of_the_feed_forward_block(kind: str) -> None:
    plain, biased = (
        {slot.name for slot in build_program(config).weights}
        for config in (KINDS[kind], replace(KINDS[kind], num_layers=1, mlp_bias=True))
    )
    assert sorted(biased - plain) == [
        f"model.layers.0.mlp.{name}_proj.bias" for name in ("down", "gate", "up")
    ]


@pytest.mark.parametrize(("kind", "expected"), [("olmo2", OLMO2), ("granite", GRANITE)])
def test_the_whole_program_is_pinned(kind: str, expected: str) -> None:
    assert listing(kind) == expected
