"""The table of architectures, and the programs it builds, pinned as listings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from farthing.config import Experts, ModelConfig, Rope, RopeScaling
from farthing.errors import UnsupportedArchitectureError
from farthing.models import registry
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.huggingface_config import find_family
from farthing.models.family import Family
from farthing.program.listing import describe
from farthing.program.ops import Attention

CONFIG = ModelConfig(
    architecture="llama",
    num_layers=1,
    hidden_size=64,
    intermediate_size=160,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=307,
    context_length=128,
    rms_norm_eps=1e-05,
    rope=Rope(500_000.0, 16, RopeScaling("llama3", factor=8.0)),
)

LLAMA_LISTING = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
%1 (T, 64) = rms_norm(%0, model.layers.0.input_layernorm.weight, eps=1e-05)
%2 (T, 128) = linear(%1, model.layers.0.self_attn.{q,k,v}_proj.weight)
%3 (T, 64) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, \
rope=rope(theta=500000.0, dim=16, scaling=rope_scaling(kind=llama3, factor=8.0)))
%4 (T, 64) = linear(%3, model.layers.0.self_attn.o_proj.weight, add=%0)
%5 (T, 64) = rms_norm(%4, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%6 (T, 320) = linear(%5, model.layers.0.mlp.{gate,up}_proj.weight)
%7 (T, 160) = gated(%6, activation=silu)
%8 (T, 64) = linear(%7, model.layers.0.mlp.down_proj.weight, add=%4)
%9 (T, 64) = rms_norm(%8, model.norm.weight, eps=1e-05)
%10 (H, 64) = hidden_rows(%9)
%11 (R, 64) = logit_rows(%9)
%12 (R, 307) = linear(%11, lm_head.weight)
logits: %12; weights: 12"""

QWEN2_LISTING = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
tap(%0, name=embeddings)
%1 (T, 64) = rms_norm(%0, model.layers.0.input_layernorm.weight, eps=1e-05)
tap(%1, name=layers.0.attention_input)
%2 (T, 128) = linear(%1, model.layers.0.self_attn.{q,k,v}_proj.weight, \
biases=model.layers.0.self_attn.{q,k,v}_proj.bias)
%3 (T, 64) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, \
rope=rope(theta=1000000.0, dim=16, scaling=rope_scaling(kind=factors, \
factors=[1.0 .. 8.0: 8])))
tap(%3, name=layers.0.attention_output)
%4 (T, 64) = linear(%3, model.layers.0.self_attn.o_proj.weight, add=%0)
%5 (T, 64) = rms_norm(%4, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
tap(%5, name=layers.0.mlp_input)
%6 (T, 320) = linear(%5, model.layers.0.mlp.{gate,up}_proj.weight)
%7 (T, 160) = gated(%6, activation=silu)
tap(%7, name=layers.0.mlp_hidden)
%8 (T, 64) = linear(%7, model.layers.0.mlp.down_proj.weight, add=%4)
tap(%8, name=layers.0.residual)
%9 (T, 64) = rms_norm(%8, model.norm.weight, eps=1e-05)
tap(%9, name=final_norm)
%10 (H, 64) = hidden_rows(%9)
%11 (R, 64) = logit_rows(%9)
%12 (R, 307) = linear(%11, model.embed_tokens.weight)
logits: %12; weights: 14"""


QWEN3_MOE_LISTING = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
%1 (T, 64) = rms_norm(%0, model.layers.0.input_layernorm.weight, eps=1e-05)
%2 (T, 128) = linear(%1, model.layers.0.self_attn.{q,k,v}_proj.weight)
%3 (T, 64) = attention(%2, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, \
rope=rope(theta=1000000.0, dim=16), q_norm=model.layers.0.self_attn.q_norm.weight, \
k_norm=model.layers.0.self_attn.k_norm.weight, norm_eps=1e-05)
%4 (T, 64) = linear(%3, model.layers.0.self_attn.o_proj.weight, add=%0)
%5 (T, 64) = rms_norm(%4, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%6 (T, 64) = moe(%5, router=model.layers.0.mlp.gate.weight, \
gate=model.layers.0.mlp.experts.{0..127}.gate_proj.weight, \
up=model.layers.0.mlp.experts.{0..127}.up_proj.weight, \
down=model.layers.0.mlp.experts.{0..127}.down_proj.weight, \
inner=48, top_k=8, normalize=True, activation=silu, add=%4)
%7 (T, 64) = rms_norm(%6, model.norm.weight, eps=1e-05)
%8 (H, 64) = hidden_rows(%7)
%9 (R, 64) = logit_rows(%7)
%10 (R, 307) = linear(%9, lm_head.weight)
logits: %10; weights: 396"""


GEMMA3_LISTING = """\
%0 (T, 64) = embed(model.embed_tokens.weight)
%1 (T, 64) = scale(%0, factor=8.0)
%2 (T, 64) = rms_norm(%1, model.layers.0.input_layernorm.weight, eps=1e-05)
%3 (T, 128) = linear(%2, model.layers.0.self_attn.{q,k,v}_proj.weight)
%4 (T, 64) = attention(%3, layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.125, \
rope=rope(theta=10000.0, dim=16), window=13, softcap=50.0, \
q_norm=model.layers.0.self_attn.q_norm.weight, \
k_norm=model.layers.0.self_attn.k_norm.weight, norm_eps=1e-05)
%5 (T, 64) = linear(%4, model.layers.0.self_attn.o_proj.weight)
%6 (T, 64) = rms_norm(%5, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%7 (T, 64) = add(%1, %6)
%8 (T, 64) = rms_norm(%7, model.layers.0.pre_feedforward_layernorm.weight, eps=1e-05)
%9 (T, 320) = linear(%8, model.layers.0.mlp.{gate,up}_proj.weight)
%10 (T, 160) = gated(%9, activation=gelu_tanh)
%11 (T, 64) = linear(%10, model.layers.0.mlp.down_proj.weight)
%12 (T, 64) = rms_norm(%11, model.layers.0.post_feedforward_layernorm.weight, eps=1e-05)
%13 (T, 64) = add(%7, %12)
%14 (T, 64) = rms_norm(%13, model.norm.weight, eps=1e-05)
%15 (H, 64) = hidden_rows(%14)
%16 (R, 64) = logit_rows(%14)
%17 (R, 307) = linear(%16, model.embed_tokens.weight)
%18 (R, 307) = softcap(%17, cap=30.0)
logits: %18; weights: 15"""


def test_gemma_programs_are_pinned() -> None:
    config = replace(
        CONFIG,
        architecture="gemma3",
        local_rope=Rope(10_000.0, 16),
        sliding_window=13,
        attention_scale=0.125,
        attention_softcap=50.0,
        logit_softcap=30.0,
        embedding_scale=8.0,
        activation="gelu_tanh",
        tie_word_embeddings=True,
    )
    assert describe(registry.build_program(config)) == GEMMA3_LISTING
    norms = (
        "q_norm=model.layers.0.self_attn.q_norm.weight, "
        "k_norm=model.layers.0.self_attn.k_norm.weight, norm_eps=1e-05"
    )
    gemma2 = GEMMA3_LISTING.replace(f", {norms}", "").replace("weights: 15", "weights: 13")
    assert describe(registry.build_program(replace(config, architecture="gemma2"))) == gemma2


def test_llama_program_is_pinned() -> None:
    assert describe(registry.build_program(CONFIG)) == LLAMA_LISTING


def test_tied_qwen2_program_with_taps_is_pinned() -> None:
    factors = RopeScaling("factors", factors=tuple(float(i) for i in range(1, 9)))
    config = replace(
        CONFIG,
        architecture="qwen2",
        tie_word_embeddings=True,
        rope=Rope(1_000_000.0, 16, factors),
    )
    assert describe(registry.build_program(config, taps=True)) == QWEN2_LISTING


def test_qwen3_moe_program_is_pinned() -> None:
    config = replace(
        CONFIG,
        architecture="qwen3_moe",
        rope=Rope(1_000_000.0, 16),
        experts=Experts(128, 8, 48, normalize=True),
    )
    assert describe(registry.build_program(config)) == QWEN3_MOE_LISTING


def test_llamas_attention_bias_reaches_the_output_projection_too() -> None:
    plain, biased = (
        {slot.name for slot in registry.build_program(config).weights}
        for config in (CONFIG, replace(CONFIG, attention_bias=True))
    )
    assert sorted(biased - plain) == [
        f"model.layers.0.self_attn.{name}_proj.bias" for name in ("k", "o", "q", "v")
    ]


def test_equal_configurations_build_equal_programs() -> None:
    assert registry.build_program(CONFIG) == registry.build_program(replace(CONFIG))
    assert registry.build_program(CONFIG) != registry.build_program(replace(CONFIG, num_layers=2))


def test_names_in_the_table_are_unique() -> None:
    table = registry.FAMILIES
    for names in (
        [family.name for family in table],
        [family.gguf.architecture for family in table if family.gguf is not None],
        [name for family in table for name in family.hugging_face.classes],
        [name for family in table for name in family.hugging_face.model_types],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda f: f.name)
def test_every_name_finds_its_family(family: Family, tmp_path: Path) -> None:
    assert registry.find_family(family.name) is family
    for name in family.hugging_face.classes:
        fields = Fields(tmp_path, {"architectures": [name]})
        assert find_family(fields, registry.FAMILIES) is family
    for name in family.hugging_face.model_types:
        assert find_family(Fields(tmp_path, {"model_type": name}), registry.FAMILIES) is family


def test_an_unknown_architecture_is_named_with_the_supported_ones(tmp_path: Path) -> None:
    supported = ", ".join(registry.supported_architectures())
    with pytest.raises(UnsupportedArchitectureError, match=f"'mamba' .* supported: {supported}"):
        registry.build_program(replace(CONFIG, architecture="mamba"))
    with pytest.raises(UnsupportedArchitectureError, match=r"'MambaForCausalLM'.*Qwen2ForCausalLM"):
        find_family(Fields(tmp_path, {"architectures": ["MambaForCausalLM"]}), registry.FAMILIES)


def test_longrope_follows_the_context_the_model_is_run_with() -> None:
    rope = Rope(
        10_000.0,
        16,
        RopeScaling(
            "longrope",
            original_context_length=32,
            factors=(4.0,) * 8,
            short_factors=(2.0,) * 8,
            magnitude=1.25,
        ),
    )
    config = replace(CONFIG, rope=rope, head_dim=16, context_length=64)

    def factors(context_length: int | None) -> tuple[float, ...]:
        program = registry.build_program(config, context_length=context_length)
        (attention,) = [op for op in program.ops if isinstance(op, Attention)][:1]
        assert attention.rope is not None
        assert attention.rope.scaling is not None
        assert attention.rope.scaling.magnitude == 1.25
        return attention.rope.scaling.factors

    assert factors(32) == (2.0,) * 8
    assert factors(33) == (4.0,) * 8
    assert factors(None) == (4.0,) * 8


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: family.name)
def test_every_family_has_a_row_in_the_documentation(family: Family) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "models.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    names = [*family.hugging_face.classes, *([family.gguf.architecture] if family.gguf else [])]
    for name in names:
        assert any(f"`{name}`" in cell for row in rows if len(row) == 6 for cell in row[2:4]), name
