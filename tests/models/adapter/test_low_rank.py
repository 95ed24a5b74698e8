"""The program with an adapter: pairs beside what they touch, everything else as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farthing.config import ModelConfig, Rope
from farthing.errors import ModelFormatError
from farthing.models.adapter import AdaptedProgram, apply_adapter, open_adapter
from farthing.models.registry import build_program
from farthing.program.builder import ProgramBuilder
from farthing.program.listing import describe
from farthing.program.ops import Embed, HiddenRows, Linear, Program, Tap, WeightSlot, inputs

CONFIG = ModelConfig(
    architecture="llama",
    num_layers=1,
    hidden_size=16,
    intermediate_size=24,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    vocab_size=50,
    context_length=64,
    rms_norm_eps=1e-5,
    rope=Rope(10_000.0, 4),
    tie_word_embeddings=True,
)

LISTING = """\
%0 (T, 16) = embed(model.embed_tokens.weight)
%1 (T, 16) = rms_norm(%0, model.layers.0.input_layernorm.weight, eps=1e-05)
%2 (T, 16) = linear(%1, model.layers.0.self_attn.{q,k,v}_proj.weight)
%3 (T, 2) = linear(%1, model.layers.0.self_attn.q_proj.lora_A.weight)
%4 (T, 16) = linear(%3, model.layers.0.self_attn.{q,k,v}_proj.lora_B.weight, add=%2)
%5 (T, 8) = attention(%4, layer=0, num_heads=2, num_kv_heads=1, head_dim=4, scale=0.5, \
rope=rope(theta=10000.0, dim=4))
%6 (T, 16) = linear(%5, model.layers.0.self_attn.o_proj.weight, add=%0)
%7 (T, 16) = rms_norm(%6, model.layers.0.post_attention_layernorm.weight, eps=1e-05)
%8 (T, 48) = linear(%7, model.layers.0.mlp.{gate,up}_proj.weight)
%9 (T, 24) = gated(%8, activation=silu)
%10 (T, 16) = linear(%9, model.layers.0.mlp.down_proj.weight, add=%6)
%11 (T, 2) = linear(%9, model.layers.0.mlp.down_proj.lora_A.weight)
%12 (T, 16) = linear(%11, model.layers.0.mlp.down_proj.lora_B.weight, add=%10)
%13 (T, 16) = rms_norm(%12, model.norm.weight, eps=1e-05)
%14 (H, 16) = hidden_rows(%13)
%15 (R, 16) = logit_rows(%13)
%16 (R, 50) = linear(%15, model.embed_tokens.weight)
logits: %16; weights: 17"""


def adapt(builder: Any, path: Path, program: Program | None = None) -> AdaptedProgram:
    return apply_adapter(program or build_program(CONFIG), open_adapter(builder.write(path)))


def check(program: Program) -> None:
    """Values are numbered as they are made, and weights listed as they are used."""
    made: list[int] = []
    used: dict[str, None] = {}
    for op in program.ops:
        assert all(value.id in made for value in inputs(op))
        assert all(value is program.values[value.id] for value in inputs(op))
        if not isinstance(op, Tap):
            assert op.out is program.values[op.out.id]
            made.append(op.out.id)
        if isinstance(op, Embed):
            used.setdefault(op.table)
        elif isinstance(op, Linear):
            used.update(dict.fromkeys(name for name in (*op.weights, *op.biases) if name))
        elif hasattr(op, "weight"):
            used.setdefault(op.weight)
    assert made == list(range(len(program.values)))


def test_the_program_is_pinned(builder: Any, tmp_path: Path) -> None:
    adapted = adapt(builder, tmp_path)
    assert describe(adapted.program) == LISTING
    check(adapted.program)
    assert [slot.name for slot in adapted.program.weights][2:9] == [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_proj.lora_B.weight",
        "model.layers.0.self_attn.k_proj.lora_B.weight",
        "model.layers.0.self_attn.v_proj.lora_B.weight",
    ]
    shapes = {slot.name: slot.shape for slot in adapted.program.weights}
    assert {name: shapes[name] for name in adapted.sources} == {
        name: source.shape for name, source in adapted.sources.items()
    }


def test_taps_and_hidden_states_are_those_of_the_adapted_model(
    builder: Any, tmp_path: Path
) -> None:
    builder.pair("self_attn.o_proj", 16, 8)
    program = adapt(builder, tmp_path, build_program(CONFIG, taps=True)).program
    check(program)
    taps = {op.name: op.x for op in program.ops if isinstance(op, Tap)}
    (last,) = [op for op in program.ops if isinstance(op, Linear) and "down" in op.weights[0]][2:]
    assert taps["layers.0.residual"] is last.out
    assert last.weights == ("model.layers.0.mlp.down_proj.lora_B.weight",)
    (hidden,) = [op for op in program.ops if isinstance(op, HiddenRows)]
    assert taps["final_norm"] is hidden.x


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_projection_is_adapted_and_the_embedding_is_not(
    builder: Any, tmp_path: Path, tied: bool
) -> None:
    builder.tensors.clear()
    builder.pair("x", 50, 16)
    builder.tensors = {
        f"base_model.model.lm_head.lora_{name.split('lora_')[1]}": values
        for name, values in builder.tensors.items()
    }
    base = build_program(replace(CONFIG, tie_word_embeddings=tied))
    program = adapt(builder, tmp_path, base).program
    check(program)
    *rest, head, inner, last = program.ops
    assert [op.weights for op in (head, inner, last)] == [
        (f"{'model.embed_tokens' if tied else 'lm_head'}.weight",),
        ("lm_head.lora_A.weight",),
        ("lm_head.lora_B.weight",),
    ]
    assert last.add is head.out
    assert program.output is last.out
    assert tuple(rest) == base.ops[:-1]


def test_stacked_modules_share_a(builder: Any, tmp_path: Path) -> None:
    builder.tensors.clear()
    builder.pair("self_attn.qkv_proj", 16, 16)
    builder.pair("self_attn.k_proj", 4, 16)
    builder.pair("mlp.gate_up_proj", 48, 16)
    adapted = adapt(builder, tmp_path)
    check(adapted.program)
    qkv = [op for op in adapted.program.ops if isinstance(op, Linear)][:3]
    assert [op.out.width for op in qkv] == [16, 4, 16]
    assert qkv[1].weights == (
        "model.layers.0.self_attn.k_proj.lora_A.weight",
        "model.layers.0.self_attn.qkv_proj.lora_A.weight",
    )
    own, shared = (
        builder.tensors[f"base_model.model.model.layers.0.self_attn.{name}.lora_B.weight"]
        for name in ("k_proj", "qkv_proj")
    )
    b = {
        name: adapted.sources[f"model.layers.0.self_attn.{name}_proj.lora_B.weight"].dequantize()
        for name in "qkv"
    }
    assert (b["q"][:, :2] == 0).all()
    assert (b["k"][:, :2] == 2 * own).all()
    assert (b["q"][:, 2:] == 2 * shared[:8]).all()
    assert (b["k"][:, 2:] == 2 * shared[8:12]).all()
    assert (b["v"][:, 2:] == 2 * shared[12:]).all()


@pytest.mark.parametrize(
    ("module", "shape", "rank", "says"),
    [
        ("self_attn.q_proj", (8, 12), 2, "has 12 columns; .*q_proj takes 16"),
        ("self_attn.q_proj", (9, 16), 2, "has 9 rows; .*q_proj gives 8"),
        ("self_attn.qkv_proj", (15, 16), 2, "has 15 rows; .*qkv_proj gives 16"),
        ("self_attn.q_proj", (8, 16), 3, r"has rank 3; adapter_config\.json says 2"),
        ("self_attn.qk_proj", (8, 16), 2, "no linear layer model.layers.0.self_attn.qk_proj"),
        (
            "input_layernorm",
            (16, 16),
            2,
            r"of 1 layer\(s\) has no linear layer .*; it has down_proj, gate_proj",
        ),
        ("self_attn", (16, 16), 2, "no linear layer"),
    ],
)
def test_what_does_not_fit_the_model_is_named(
    builder: Any, tmp_path: Path, module: str, shape: tuple[int, int], rank: int, says: str
) -> None:
    builder.pair(module, *shape, rank)
    with pytest.raises(ModelFormatError, match=says) as caught:
        adapt(builder, tmp_path)
    assert f"layers.0.{module}.lora_" in str(caught.value.field)


def test_a_layer_that_the_model_lacks_is_named(builder: Any, tmp_path: Path) -> None:
    builder.tensors = {
        name.replace("layers.0", "layers.7"): values for name, values in builder.tensors.items()
    }
    with pytest.raises(ModelFormatError, match=r"no linear layer model\.layers\.7\.mlp\.down"):
        adapt(builder, tmp_path)


def test_an_adapted_embedding_is_refused(builder: Any, tmp_path: Path) -> None:
    for half, shape in (("A", (2, 16)), ("B", (50, 2))):
        values = builder.tensors[
            f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight"
        ]
        name = f"base_model.model.model.embed_tokens.lora_{half}.weight"
        builder.tensors[name] = values.repeat(10, 0)[: shape[0]]
    with pytest.raises(ModelFormatError, match="adapts an embedding"):
        adapt(builder, tmp_path)


@pytest.mark.parametrize("module", ["mlp.experts.3.up_proj", "mlp.gate", "mlp.experts"])
def test_experts_and_their_router_are_refused(builder: Any, tmp_path: Path, module: str) -> None:
    p = ProgramBuilder()
    x = p.embed(WeightSlot("model.embed_tokens.weight", (50, 16)))
    router = WeightSlot("model.layers.0.mlp.gate.weight", (4, 16))
    stacks = [
        [WeightSlot(f"model.layers.0.mlp.experts.{e}.{name}_proj.weight", shape) for e in range(4)]
        for name, shape in (("gate", (8, 16)), ("up", (8, 16)), ("down", (16, 8)))
    ]
    x = p.moe(x, router, *stacks, top_k=2, normalize=True, add=x)
    program = p.finish(p.linear(p.logit_rows(x), WeightSlot("lm_head.weight", (50, 16))))
    builder.tensors.clear()
    builder.pair(module, 8, 16)
    with pytest.raises(ModelFormatError, match="mixture of experts"):
        adapt(builder, tmp_path, program)


def test_the_base_program_is_left_alone(builder: Any, tmp_path: Path) -> None:
    program = build_program(CONFIG)
    adapt(builder, tmp_path, program)
    assert program == build_program(CONFIG)
