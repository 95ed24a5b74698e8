"""A mistake in a model's file raises where it is made; what is built is plain, comparable data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from farthing.config import Rope, RopeScaling
from farthing.errors import InvalidParameterError
from farthing.program import ops
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Rows, Value, WeightSlot

TABLE = WeightSlot("table", (11, 8))
NORM = WeightSlot("norm", (8,))
WIDE = WeightSlot("wide", (24, 8))
NARROW = WeightSlot("narrow", (8, 24))
ROPE = Rope(10_000.0, 4)


def attention(p: ProgramBuilder, qkv: Value, **changes: object) -> Value:
    options: dict[str, object] = {"layer": 0, "num_heads": 4, "num_kv_heads": 1, "head_dim": 4}
    return p.attention(qkv, **{"rope": ROPE, **options, **changes})  # type: ignore[arg-type]


def moe(p: ProgramBuilder, x: Value, *, downs: int = 4, top_k: int = 2, inner: int = 3) -> Value:
    def stack(name: str, count: int, *shape: int) -> list[WeightSlot]:
        return [WeightSlot(f"{name}.{e}", shape) for e in range(count)]

    gate, up = stack("gate", 4, 3, 8), stack("up", 4, inner, 8)
    router, down = WeightSlot("router", (4, 8)), stack("down", downs, 8, 3)
    return p.moe(x, router, gate, up, down, top_k=top_k, normalize=True)


def small_program(*, taps: bool | set[str] = False) -> ops.Program:
    p = ProgramBuilder(taps=taps)
    x = p.embed(TABLE)
    p.tap(x, "embeddings")
    a = attention(p, p.linear(p.rms_norm(x, NORM, 1e-6), WIDE))
    x = p.linear(a, WeightSlot("o", (8, 16)), add=x)
    p.tap(x, "residual")
    p.hidden_rows(x)
    return p.finish(p.linear(p.logit_rows(x), TABLE))


def test_weights_are_listed_once_in_order_of_first_use() -> None:
    names = [slot.name for slot in small_program().weights]
    assert names == ["table", "norm", "wide", "o"]


def test_values_know_their_rows_and_widths() -> None:
    program = small_program()
    assert program.output == Value(len(program.values) - 1, Rows.LOGITS, 11)
    assert [(v.rows, v.width) for v in program.values[-3:-1]] == [
        (Rows.HIDDEN, 8),
        (Rows.LOGITS, 8),
    ]
    assert program.num_layers == 1


def test_programs_are_frozen_comparable_and_hashable() -> None:
    program = small_program()
    assert program == small_program()
    assert hash(program) == hash(small_program())
    assert program != small_program(taps=True)
    with pytest.raises(FrozenInstanceError):
        program.output = program.values[0]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("taps", "expected"),
    [(False, []), (True, ["embeddings", "residual"]), ({"residual"}, ["residual"]), (set(), [])],
)
def test_only_taps_that_are_asked_for_become_operations(
    taps: bool | set[str], expected: list[str]
) -> None:
    found = [op.name for op in small_program(taps=taps).ops if isinstance(op, ops.Tap)]
    assert found == expected


def test_an_unknown_tap_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InvalidParameterError, match=r"'rest'; taps: embeddings, residual"):
        small_program(taps={"rest"})


def test_inputs_are_the_values_an_operation_reads() -> None:
    p = ProgramBuilder(taps=True)
    x = p.embed(TABLE)
    y = p.linear(x, WeightSlot("square", (8, 8)), add=x)
    p.tap(y, "y")
    program = p.finish(p.logit_rows(y))
    assert [ops.inputs(op) for op in program.ops] == [(), (x, x), (y,), (y,)]


MISTAKES: dict[str, tuple[Callable[[ProgramBuilder, Value], object], str]] = {
    "norm of another width": (
        lambda p, x: p.rms_norm(x, WeightSlot("n", (9,)), 1e-6),
        r"rms_norm \(operation 1\): input is 8 wide, n takes 9",
    ),
    "matrix with other inputs": (
        lambda p, x: p.linear(x, WIDE, NARROW),
        r"linear \(operation 1\): input is 8 wide, narrow takes 24",
    ),
    "vector as a matrix": (
        lambda p, x: p.linear(x, NORM),
        r"linear .*: norm has shape \(8,\), wanted 2 dimension",
    ),
    "bias of another width": (
        lambda p, x: p.linear(x, WIDE, biases=[NORM]),
        r"linear .*: input is 24 wide, norm takes 8",
    ),
    "biases for other weights": (
        lambda p, x: p.linear(x, WIDE, biases=[None, None]),
        r"linear .*: 2 biases for 1 weights",
    ),
    "no weights": (lambda p, x: p.linear(x), r"linear .*: needs at least one weight"),
    "sum of two widths": (
        lambda p, x: p.linear(x, WIDE, add=x),
        r"linear .*: cannot add \(T, 8\) to \(T, 24\)",
    ),
    "sum of two row counts": (
        lambda p, x: p.add(x, p.logit_rows(x)),
        r"add \(operation 2\): cannot add \(R, 8\) to \(T, 8\)",
    ),
    "one name with two shapes": (
        lambda p, x: p.linear(x, WeightSlot("table", (12, 8))),
        r"linear .*: table has shape \(12, 8\) here and \(11, 8\) before",
    ),
    "heads that do not fill qkv": (
        lambda p, x: attention(p, p.linear(x, WIDE), num_heads=5),
        r"attention .*: input is 24 wide, q, k and v heads together takes 28",
    ),
    "heads that cannot share": (
        lambda p, x: attention(p, p.linear(x, WIDE), num_heads=4, num_kv_heads=3),
        r"attention .*: 4 heads cannot share 3 kv heads",
    ),
    "layer out of order": (
        lambda p, x: attention(p, p.linear(x, WIDE), layer=1),
        r"attention .*: layer 1 follows 0 layer",
    ),
    "rope wider than a head": (
        lambda p, x: attention(p, p.linear(x, WIDE), rope=Rope(10_000.0, 6)),
        r"attention .*: rope.dim 6: not an even number up to 4",
    ),
    "rope with missing factors": (
        lambda p, x: attention(
            p, p.linear(x, WIDE), rope=Rope(1e4, 4, RopeScaling("factors", factors=(1.0,)))
        ),
        r"attention .*: input is 2 wide, rope.scaling.factors takes 1",
    ),
    "window of nothing": (
        lambda p, x: attention(p, p.linear(x, WIDE), window=0),
        r"attention .*: window 0: must be positive",
    ),
    "odd width halved": (
        lambda p, x: p.gated(p.linear(x, WeightSlot("odd", (7, 8)))),
        r"gated .*: input is 7 wide, which does not halve",
    ),
    "experts that disagree": (
        lambda p, x: moe(p, x, downs=5),
        r"moe .*: router of 4 experts, 4 gates, 4 ups, 5 downs",
    ),
    "more experts than there are": (
        lambda p, x: moe(p, x, top_k=5),
        r"moe .*: top_k 5: must be from 1 to the 4 experts",
    ),
    "experts of two sizes": (
        lambda p, x: moe(p, x, inner=4),
        r"moe .*: up.0 has shape \(4, 8\), wanted \(3, 8\)",
    ),
    "experts of rows that need logits": (
        lambda p, x: moe(p, p.logit_rows(x)),
        r"moe .*: input has R rows, wanted T",
    ),
    "softcap of zero": (lambda p, x: p.softcap(x, 0.0), r"softcap .*: cap 0.0: must be positive"),
    "logits of logits": (
        lambda p, x: p.logit_rows(p.logit_rows(x)),
        r"logit_rows .*: input has R rows, wanted T",
    ),
    "two hidden states": (
        lambda p, x: [p.hidden_rows(x), p.hidden_rows(x)],
        r"hidden_rows .*: a program hands out one hidden state",
    ),
    "two taps of one name": (
        lambda p, x: [p.tap(value, "x") for value in (x, x)],  # type: ignore[func-returns-value]
        r"tap .*: two taps named 'x'",
    ),
    "value of another program": (
        lambda p, x: p.scale(ProgramBuilder().embed(TABLE), 2.0),
        r"scale .*: .* belongs to another program",
    ),
    "logits for every row": (lambda p, x: p.finish(x), r"finish .*: input has T rows, wanted R"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_raises_with_the_operation_and_both_shapes(mistake: str) -> None:
    write, message = MISTAKES[mistake]
    p = ProgramBuilder()
    x = p.embed(TABLE)
    with pytest.raises(InvalidParameterError, match=message):
        write(p, x)
