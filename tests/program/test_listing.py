"""Listings of what the pinned models do not contain."""

from __future__ import annotations

from farthing.config import Rope
from farthing.program.builder import ProgramBuilder
from farthing.program.listing import describe
from farthing.program.ops import WeightSlot


def test_every_operation_has_a_line() -> None:
    p = ProgramBuilder(taps=True)
    x = p.scale(p.embed(WeightSlot("table", (11, 8))), 2.5)
    q, k, v = (WeightSlot(f"{name}.weight", (8, 8)) for name in ("left", "lower", "v"))
    qkv = p.linear(x, q, k, v, biases=[None, WeightSlot("lower.bias", (8,)), None])
    a = p.attention(
        qkv,
        layer=0,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        rope=Rope(1e4, 8),
        scale=0.5,
        window=64,
        softcap=30.0,
    )
    x = p.add(x, a)
    p.tap(x, "residual")
    experts = [
        [WeightSlot(f"experts.{e}.{name}", shape) for e in range(4)]
        for name, shape in (("gate", (3, 8)), ("up", (3, 8)), ("down", (8, 3)))
    ]
    x = p.moe(x, WeightSlot("router", (4, 8)), *experts, top_k=2, normalize=False, add=x)
    h = p.linear(p.logit_rows(x), q, k)
    assert describe(p.finish(p.softcap(p.gated(h, "gelu_tanh"), 30.0))) == (
        "%0 (T, 8) = embed(table)\n"
        "%1 (T, 8) = scale(%0, factor=2.5)\n"
        "%2 (T, 24) = linear(%1, {left,lower,v}.weight, biases=[-, lower.bias, -])\n"
        "%3 (T, 8) = attention(%2, layer=0, num_heads=1, num_kv_heads=1, head_dim=8, scale=0.5, "
        "rope=rope(theta=10000.0, dim=8), window=64, softcap=30.0)\n"
        "%4 (T, 8) = add(%1, %3)\n"
        "tap(%4, name=residual)\n"
        "%5 (T, 8) = moe(%4, router=router, gate=experts.{0..3}.gate, up=experts.{0..3}.up, "
        "down=experts.{0..3}.down, inner=3, top_k=2, normalize=False, activation=silu, add=%4)\n"
        "%6 (R, 8) = logit_rows(%5)\n"
        "%7 (R, 16) = linear(%6, l{eft,ower}.weight)\n"
        "%8 (R, 8) = gated(%7, activation=gelu_tanh)\n"
        "%9 (R, 8) = softcap(%8, cap=30.0)\n"
        "logits: %9; weights: 18"
    )
