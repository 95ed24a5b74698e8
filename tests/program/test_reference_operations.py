"""Operations that Llama and Qwen2 do not use, in float64 against transformers' own modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from farthing.config import Rope
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Program, WeightSlot
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.tiny_models import randomize
from support.truth import assert_equal_in_float64, float32_means_float64, in_float64, logits

TOKENS = np.random.default_rng(2).integers(0, 97, 40).tolist()


FINAL_CAP = 2.0


def slot(name: str, *shape: int) -> WeightSlot:
    return WeightSlot(name, shape)


def gemma2_program(config: transformers.Gemma2Config) -> Program:
    """Gemma 2 (2024): windows on every other layer, soft caps, norms on both sides, scaled x."""
    p = ProgramBuilder()
    hidden, inner = config.hidden_size, config.intermediate_size
    widths = [config.num_attention_heads * config.head_dim]
    widths += 2 * [config.num_key_value_heads * config.head_dim]
    table = slot("model.embed_tokens.weight", config.vocab_size, hidden)
    eps = config.rms_norm_eps
    x = p.scale(p.embed(table), hidden**0.5)
    for i in range(config.num_hidden_layers):
        layer = f"model.layers.{i}."

        def norm(name: str, layer: str = layer) -> WeightSlot:
            return slot(f"{layer}{name}_layernorm.weight", hidden)

        h = p.rms_norm(x, norm("input"), eps)
        qkv = [
            slot(f"{layer}self_attn.{n}_proj.weight", width, hidden)
            for n, width in zip("qkv", widths, strict=True)
        ]
        a = p.attention(
            p.linear(h, *qkv),
            layer=i,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            rope=Rope(10_000.0, config.head_dim),
            scale=config.query_pre_attn_scalar**-0.5,
            window=config.sliding_window if i % 2 == 0 else None,
            softcap=config.attn_logit_softcapping,
        )
        a = p.linear(a, slot(f"{layer}self_attn.o_proj.weight", hidden, widths[0]))
        x = p.add(x, p.rms_norm(a, norm("post_attention"), eps))
        h = p.rms_norm(x, norm("pre_feedforward"), eps)
        up = [slot(f"{layer}mlp.{n}_proj.weight", inner, hidden) for n in ("gate", "up")]
        h = p.gated(p.linear(h, *up), "gelu_tanh")
        h = p.linear(h, slot(f"{layer}mlp.down_proj.weight", hidden, inner))
        x = p.add(x, p.rms_norm(h, norm("post_feedforward"), eps))
    x = p.rms_norm(x, slot("model.norm.weight", hidden), eps)
    return p.finish(p.softcap(p.linear(p.logit_rows(x), table), FINAL_CAP))


def test_window_softcap_scale_and_gelu_equal_gemma2() -> None:
    config = transformers.Gemma2Config(
        vocab_size=97,
        hidden_size=64,  # its square root, the factor of the embeddings, is exact in float32
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        query_pre_attn_scalar=12,
        sliding_window=10,
        attn_logit_softcapping=3.0,
        final_logit_softcapping=FINAL_CAP,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    config._attn_implementation = "eager"
    model = transformers.Gemma2ForCausalLM(config)
    randomize(model, 3)
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    weights |= {name: 1 + array for name, array in weights.items() if name.endswith("norm.weight")}
    program = gemma2_program(config)
    whole = ReferenceExecutor(program, weights.__getitem__)
    stepped = ReferenceExecutor(program, weights.__getitem__)
    float32, truth = logits(model, TOKENS), logits(in_float64(model), TOKENS)

    def run(executor: ReferenceExecutor, tokens: list[int], position: int) -> NDArray[np.floating]:
        rows = SequenceRows(tokens, position, range(3), logits=len(tokens))
        return executor.run(step_batch([rows])).logits

    assert_equal_in_float64(run(whole, TOKENS, 0), float32, truth)
    rows = [run(stepped, [token], position) for position, token in enumerate(TOKENS)]
    assert_equal_in_float64(np.concatenate(rows), float32, truth)


@pytest.fixture(params=[True, False], ids=["normalized", "as they are"])
def moe_block(request: pytest.FixtureRequest) -> Qwen3MoeSparseMoeBlock:
    config = transformers.Qwen3MoeConfig(
        hidden_size=32,
        moe_intermediate_size=24,
        num_experts=7,
        num_experts_per_tok=3,
        norm_topk_prob=request.param,
    )
    config._experts_implementation = "eager"
    block = Qwen3MoeSparseMoeBlock(config).eval()
    randomize(block, 4)
    return block


def test_moe_equals_qwen3_moe(moe_block: Qwen3MoeSparseMoeBlock) -> None:
    x = torch.from_numpy(np.random.default_rng(5).standard_normal((50, 32))).float()
    with torch.no_grad():
        float32 = moe_block(x[None])[0].double().numpy()
        with float32_means_float64():
            truth = moe_block.double()(x[None].double())[0].numpy()
    candidate = run_moe(
        x.numpy(),
        moe_block.gate.weight.detach().numpy(),
        moe_block.experts.gate_up_proj.detach().numpy(),
        moe_block.experts.down_proj.detach().numpy(),
        top_k=3,
        normalize=moe_block.gate.norm_topk_prob,
    )
    assert_equal_in_float64(candidate, float32, truth)


def run_moe(
    x: NDArray[np.floating],
    router: NDArray[np.floating],
    gate_up: NDArray[np.floating],
    down: NDArray[np.floating],
    *,
    top_k: int,
    normalize: bool,
) -> NDArray[np.floating]:
    """Output of one moe operation: rows of ``x`` are the embeddings, the output is read back.

    ``gate_up`` (experts, 2 * inner, width) and ``down`` (experts, width, inner) as in transformers.
    """
    width = x.shape[1]
    weights = {"x": x, "router": router, "one": np.eye(width)}
    for e, (both, last) in enumerate(zip(gate_up, down, strict=True)):
        weights[f"gate.{e}"], weights[f"up.{e}"] = np.split(both, 2)
        weights[f"down.{e}"] = last
    p = ProgramBuilder()
    slots = {name: slot(name, *array.shape) for name, array in weights.items()}
    stacks = [[slots[f"{name}.{e}"] for e in range(len(down))] for name in ("gate", "up", "down")]
    y = p.moe(p.embed(slots["x"]), slots["router"], *stacks, top_k=top_k, normalize=normalize)
    program = p.finish(p.linear(p.logit_rows(y), slots["one"]))
    rows = SequenceRows(range(len(x)), 0, range(len(x) // 16 + 1), logits=len(x))
    return ReferenceExecutor(program, weights.__getitem__).run(step_batch([rows])).logits


def test_moe_ties_go_to_the_lower_expert() -> None:
    x = np.ones((1, 2))
    gate_up = np.ones((4, 2, 2))
    down = np.arange(4.0)[:, None, None] * np.ones((4, 2, 1))
    result = run_moe(x, np.zeros((4, 2)), gate_up, down, top_k=2, normalize=True)
    inner = 2 / (1 + np.exp(-2)) * 2  # silu(gate) * up, both 2
    assert result == pytest.approx(np.full((1, 2), (0 + 1) / 2 * inner), rel=1e-15)


def test_partial_rope_leaves_the_other_dimensions_alone() -> None:
    width, head_dim, rotated = 8, 8, 4
    rng = np.random.default_rng(6)
    weights = {
        "table": rng.standard_normal((4, width)),
        "qkv": rng.standard_normal((3 * head_dim, width)),
        "one": np.eye(head_dim),
    }
    # With q and k zero in the rotated part, positions cannot matter; otherwise they do.
    p = ProgramBuilder()
    slots = {name: slot(name, *array.shape) for name, array in weights.items()}
    qkv = p.linear(p.embed(slots["table"]), slots["qkv"])
    a = p.attention(
        qkv, layer=0, num_heads=1, num_kv_heads=1, head_dim=head_dim, rope=Rope(10.0, rotated)
    )
    program = p.finish(p.linear(p.logit_rows(a), slots["one"]))

    def last_row(tokens: list[int]) -> NDArray[np.floating]:
        batch = step_batch([SequenceRows(tokens, 0, [0])])
        return ReferenceExecutor(program, weights.__getitem__).run(batch).logits.ravel()

    assert not np.allclose(last_row([1, 2, 2, 3]), last_row([2, 2, 1, 3]), rtol=1e-6)
    weights["qkv"].reshape(3, head_dim, width)[:2, :rotated] = 0
    assert np.allclose(last_row([1, 2, 2, 3]), last_row([2, 2, 1, 3]), rtol=1e-14)
