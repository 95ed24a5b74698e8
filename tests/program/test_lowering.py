"""The lowering is plain data: what is fused, what is reused, what is refused."""

from __future__ import annotations

import pytest

from farthing.errors import UnsupportedOperationError
from farthing.program.experts import Routing
from farthing.program.lowering import NOWHERE, LoweredProgram, lower
from farthing.program.ops import (
    Embed,
    HiddenRows,
    Linear,
    LogitRows,
    Moe,
    Op,
    Program,
    RmsNorm,
    Rows,
    Softcap,
    Tap,
    Value,
    inputs,
)

WIDTH, VOCAB = 32, 64


def value(i: int, rows: Rows = Rows.TOKENS, width: int = WIDTH) -> Value:
    return Value(i, rows, width)


def program(*ops: Op) -> Program:
    last = ops[-1]
    assert not isinstance(last, Tap)
    return Program(tuple(ops), (), (), last.out)


def linear(out: Value, x: Value, *weights: str, add: Value | None = None) -> Linear:
    return Linear(out, x, weights, (None,) * len(weights), add)


def integer(_: str) -> int:
    return 32


def floating(_: str) -> int:
    return 0


EMBED = Embed(value(0), "table")
NORM = RmsNorm(value(1), value(0), "norm", 1e-6)


def test_a_norm_rounds_its_result_once_for_all_readers() -> None:
    ops = [
        EMBED,
        NORM,
        linear(value(2), value(1), "a"),
        linear(value(3), value(1), "b", add=value(2)),
    ]
    lowered = lower(program(*ops), integer)
    assert len(lowered.int8_buffers) == 1
    (norm,) = [i for i in lowered.instructions if isinstance(i.op, RmsNorm)]
    assert norm.rounded == (0,)
    assert norm.out == NOWHERE, "nobody reads the norm as floats"
    assert all(i.op is not None for i in lowered.instructions), "no separate rounding"


def test_a_value_read_both_ways_is_kept_both_ways() -> None:
    groups = {"a": 32, "b": 0}
    lowered = lower(
        program(EMBED, NORM, linear(value(2, width=64), value(1), "a", "b")), groups.get
    )
    (norm,) = [i for i in lowered.instructions if isinstance(i.op, RmsNorm)]
    assert norm.out != NOWHERE
    assert norm.rounded == (0,)
    (product,) = [i for i in lowered.instructions if isinstance(i.op, Linear)]
    assert product.segments == (0, NOWHERE)


def test_two_schemes_with_different_groups_get_two_roundings() -> None:
    groups = {"a": 32, "b": 256}
    wide = value(1, width=256)
    ops = [
        Embed(value(0, width=256), "table"),
        RmsNorm(wide, value(0, width=256), "norm", 1e-6),
        linear(value(2), wide, "a", "b"),
    ]
    lowered = lower(program(*ops), groups.get)
    assert [b.group for b in lowered.int8_buffers] == [32, 256]


def test_a_value_no_fused_op_made_is_rounded_by_itself() -> None:
    lowered = lower(program(EMBED, linear(value(1), value(0), "a")), integer)
    assert [i.op is None for i in lowered.instructions] == [False, True, False]


def test_a_residual_add_works_in_place_when_its_operand_dies() -> None:
    ops = [
        EMBED,
        NORM,
        linear(value(2), value(1), "a", add=value(0)),
        RmsNorm(value(3), value(2), "norm", 1e-6),
        linear(value(4, width=VOCAB), value(3), "head"),
    ]
    lowered = lower(program(*ops), integer)
    embed, _, residual, *_ = lowered.instructions
    assert residual.out == embed.out == residual.inputs[1]


def test_a_residual_add_does_not_overwrite_what_is_still_read() -> None:
    ops = [
        EMBED,
        linear(value(1), value(0), "a", add=value(0)),  # reads its operand as input too
        linear(value(2, width=VOCAB), value(1), "head"),
    ]
    lowered = lower(program(*ops), floating)
    product = lowered.instructions[1]
    assert product.out not in product.inputs


def test_no_instruction_writes_a_buffer_that_a_later_one_still_needs() -> None:
    ops: list[Op] = [EMBED]
    x, n = value(0), 1
    for layer in range(6):
        norm, up, down = value(n), value(n + 1, width=2 * WIDTH), value(n + 2)
        ops += [
            RmsNorm(norm, x, "norm", 1e-6),
            linear(up, norm, f"a{layer}", f"b{layer}"),
            linear(down, norm, f"d{layer}", add=x),
        ]
        x, n = down, n + 3
    ops += [LogitRows(value(n, Rows.LOGITS), x)]
    ops += [linear(value(n + 1, Rows.LOGITS, VOCAB), value(n, Rows.LOGITS), "head")]
    lowered = lower(program(*ops), floating)
    contents = play_symbolically(lowered)
    assert contents > 0
    # Two residual-stream values, one norm, one wide value, the gathered row and the logits.
    assert len(lowered.float_buffers) <= 6


def play_symbolically(lowered: LoweredProgram) -> int:
    """Runs the instructions on value ids instead of numbers; returns how many reads it checked."""
    holds: dict[int, int] = {}
    reads = 0
    for instruction in lowered.instructions:
        assert instruction.op is not None
        for buffer, wanted in zip(instruction.inputs, inputs(instruction.op), strict=False):
            if buffer != NOWHERE:
                assert holds[buffer] == wanted.id
                reads += 1
        if not isinstance(instruction.op, Tap):
            holds[instruction.out] = instruction.op.out.id
    return reads


def test_logits_are_written_straight_into_the_callers_memory() -> None:
    rows = value(1, Rows.LOGITS)
    raw, capped = value(2, Rows.LOGITS, VOCAB), value(3, Rows.LOGITS, VOCAB)
    ops = [EMBED, LogitRows(rows, value(0)), linear(raw, rows, "head"), Softcap(capped, raw, 30.0)]
    lowered = lower(program(*ops), floating)
    (output,) = lowered.outputs
    assert lowered.float_buffers[output].output == "logits"
    assert [i.out for i in lowered.instructions[-2:]] == [output, output]
    vocab_wide = [b for b in lowered.float_buffers if b.width == VOCAB]
    assert len(vocab_wide) == 1


def test_logits_that_are_read_again_are_not_capped_in_place() -> None:
    rows = value(1, Rows.LOGITS)
    raw, capped = value(2, Rows.LOGITS, VOCAB), value(3, Rows.LOGITS, VOCAB)
    ops: list[Op] = [
        EMBED,
        LogitRows(rows, value(0)),
        linear(raw, rows, "head"),
        Softcap(capped, raw, 30.0),
        Tap(raw, "raw_logits"),
    ]
    lowered = lower(Program(tuple(ops), (), (), capped), floating)
    assert play_symbolically(lowered) == 4
    softcap = lowered.instructions[-2]
    assert softcap.out not in softcap.inputs


def test_taps_and_hidden_rows_are_outputs() -> None:
    ops = [
        EMBED,
        Tap(value(0), "layers.0.residual"),
        HiddenRows(value(1, Rows.HIDDEN), value(0)),
        LogitRows(value(2, Rows.LOGITS), value(0)),
        linear(value(3, Rows.LOGITS, VOCAB), value(2, Rows.LOGITS), "head"),
    ]
    lowered = lower(program(*ops), floating)
    names = [lowered.float_buffers[i].output for i in lowered.outputs]
    assert names == ["logits", "tap:layers.0.residual", "hidden"]


def test_a_sum_that_is_the_logits_is_made_where_the_caller_wants_it() -> None:
    rows = Rows.LOGITS
    head = value(2, rows, VOCAB)
    ops = [
        EMBED,
        LogitRows(value(1, rows), value(0)),
        linear(head, value(1, rows), "head"),
        linear(value(3, rows, 8), value(1, rows), "a"),
        linear(value(4, rows, VOCAB), value(3, rows, 8), "b", add=head),
    ]
    lowered = lower(program(*ops), floating)
    assert lowered.instructions[-1].out in lowered.outputs
    assert lowered.instructions[2].out == lowered.instructions[-1].out
    assert [b.width for b in lowered.float_buffers].count(VOCAB) == 1


def test_an_operand_of_the_logits_that_is_read_again_keeps_its_own_place() -> None:
    rows = Rows.LOGITS
    head = value(2, rows, VOCAB)
    ops = [
        EMBED,
        LogitRows(value(1, rows), value(0)),
        linear(head, value(1, rows), "head"),
        linear(value(3, rows, VOCAB), head, "square", add=head),
    ]
    lowered = lower(program(*ops), floating)
    assert lowered.instructions[-1].out not in lowered.instructions[-1].inputs


def moe(out: Value, x: Value, *, experts: int = 4, add: Value | None = None) -> Moe:
    stacks = [tuple(f"{out.id}.{name}.{e}" for e in range(experts)) for name in ("g", "u", "d")]
    return Moe(out, x, f"{out.id}.router", *stacks, 48, 2, True, "silu", add)


def experts_in_integers(weight: str) -> int:
    """Routers read floats, gates and ups groups of 32, downs groups of 16."""
    return {"g": 32, "u": 32, "d": 16}.get(weight.split(".")[1], 0)


def mixture_program(layers: int) -> Program:
    ops: list[Op] = [EMBED]
    x, n = value(0), 1
    for _ in range(layers):
        ops += [RmsNorm(value(n), x, "norm.w", 1e-6), moe(value(n + 1), value(n), add=x)]
        x, n = value(n + 1), n + 2
    ops += [LogitRows(value(n, Rows.LOGITS), x)]
    return program(*ops, linear(value(n + 1, Rows.LOGITS, VOCAB), value(n, Rows.LOGITS), "head.w"))


def test_a_mixture_of_experts_is_played_in_steps() -> None:
    lowered = lower(mixture_program(1), experts_in_integers)
    _, norm, router, route, gate_up, gated, down, combine, *_ = lowered.instructions
    assert lowered.routing == Routing(4, 2)
    assert norm.out != NOWHERE, "the router reads the norm as floats"
    assert gate_up.segments == (*norm.rounded, *norm.rounded), "rounded once for all experts"
    assert router.inputs[0] == norm.out
    assert route.inputs == (router.out,)
    assert lowered.float_buffers[gate_up.out].rows is Rows.EXPERT
    assert gated.out == NOWHERE, "nobody reads the gated rows as floats"
    assert down.segments == gated.rounded
    assert combine.inputs[:2] == (down.out, route.out)
    assert combine.out == combine.inputs[2], "the sum replaces its dead operand"


def test_layers_of_experts_share_their_buffers() -> None:
    one, six = (lower(mixture_program(n), floating) for n in (1, 6))
    assert play_symbolically(six) > play_symbolically(one) > 0
    assert len(six.float_buffers) <= len(one.float_buffers) + 1
    integer_six = lower(mixture_program(6), experts_in_integers)
    assert play_symbolically(integer_six) > 0
    assert len(integer_six.int8_buffers) == 2


def test_experts_stored_in_two_ways_are_refused_by_name() -> None:
    def mixed(weight: str) -> int:
        return 32 if weight == "2.u.3" else 0

    with pytest.raises(UnsupportedOperationError, match=r"2\.u\.0 and 2\.u\.3 need .* alike"):
        lower(mixture_program(1), mixed)


def test_layers_of_different_mixtures_are_refused() -> None:
    ops = [EMBED, moe(value(1), value(0)), moe(value(2), value(1), experts=8)]
    with pytest.raises(UnsupportedOperationError, match="not 2 of 4, 2 of 8"):
        lower(program(*ops), floating)
