"""The lowering is plain data: what is fused, what is reused, what is refused."""

from __future__ import annotations

import pytest

from farthing.errors import UnsupportedOperationError
from farthing.program.experts import Routing
from farthing.program.fusion import Head, reads
from farthing.program.lowering import NOWHERE, FloatBuffer, Instruction, LoweredProgram, lower
from farthing.program.ops import (
    Attention,
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


@pytest.mark.parametrize(
    ("head_dim", "queries", "in_place"),
    [(16, 1, []), (16, 2, [16, 32]), (48, 1, []), (48, 2, [16, 32]), (64, 1, [16, 32, 64])],
)
def test_attention_rounds_what_a_kv_head_makes_where_that_fills_nothing_up(
    head_dim: int, queries: int, in_place: list[int]
) -> None:
    """What would be filled up to whole 32s are columns of another head."""
    groups = {"a": 16, "b": 32, "c": 64}
    made, qkv = 2 * queries * head_dim, (2 * queries + 4) * head_dim
    attention_op = Attention(
        value(2, width=made),
        value(1, width=qkv),
        0,
        num_heads=2 * queries,
        num_kv_heads=2,
        head_dim=head_dim,
        scale=1,
        rope=None,
    )
    ops = [
        EMBED,
        linear(value(1, width=qkv), value(0), "qkv"),
        attention_op,
        linear(value(3), value(2, width=made), *groups),
    ]
    lowered = lower(program(*ops), lambda name: groups.get(name, 0))

    def rounded_to(instruction: Instruction) -> list[int]:
        return [lowered.int8_buffers[i].group for i in instruction.rounded]

    _, _, attention, *rest, product = lowered.instructions[:-1]
    assert rounded_to(attention) == in_place
    assert [i.op for i in rest] == [None] * (len(in_place) < len(groups))
    assert all(i.inputs == (attention.out,) for i in rest)
    assert rounded_to(attention) + [g for i in rest for g in rounded_to(i)] == [16, 32, 64]
    assert product.segments == (*attention.rounded, *(i for r in rest for i in r.rounded))


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
    checked = 0
    for instruction in lowered.instructions:
        if instruction.op is None:
            continue
        for buffer, wanted in zip(instruction.inputs, reads(instruction.op), strict=False):
            if buffer != NOWHERE:
                assert holds[buffer] == wanted.id
                checked += 1
        if not isinstance(instruction.op, Tap):
            holds[instruction.out] = instruction.op.out.id
    return checked


def test_what_follows_the_output_matrix_is_done_with_it() -> None:
    rows = value(1, Rows.LOGITS)
    raw, capped = value(2, Rows.LOGITS, VOCAB), value(3, Rows.LOGITS, VOCAB)
    ops = [EMBED, LogitRows(rows, value(0)), linear(raw, rows, "head"), Softcap(capped, raw, 30.0)]
    lowered = lower(program(*ops), integer)
    (output,) = lowered.outputs
    assert lowered.float_buffers[output] == FloatBuffer(Rows.KEPT, VOCAB, "logits")
    head = lowered.instructions[-1]
    assert head.op == Head(capped, None, (ops[2], ops[3]))
    assert head.out == output
    assert head.segments == (0,), "the input of the matrix is rounded"
    assert [b.width for b in lowered.float_buffers].count(VOCAB) == 1, "no place for more logits"


def test_logits_that_are_read_again_are_made_before_the_head() -> None:
    rows = value(1, Rows.LOGITS)
    raw, capped = value(2, Rows.LOGITS, VOCAB), value(3, Rows.LOGITS, VOCAB)
    cap = Softcap(capped, raw, 30.0)
    ops: list[Op] = [
        EMBED,
        LogitRows(rows, value(0)),
        linear(raw, rows, "head"),
        cap,
        Tap(raw, "raw_logits"),
    ]
    lowered = lower(Program(tuple(ops), (), (), capped), floating)
    assert play_symbolically(lowered) == 4
    assert lowered.instructions[-2].op == Head(capped, raw, (cap,))


def test_logits_that_are_tapped_are_only_copied_by_the_head() -> None:
    rows, raw = value(1, Rows.LOGITS), value(2, Rows.LOGITS, VOCAB)
    ops: list[Op] = [EMBED, LogitRows(rows, value(0)), linear(raw, rows, "head"), Tap(raw, "raw")]
    lowered = lower(Program(tuple(ops), (), (), raw), floating)
    assert lowered.instructions[-1].op == Head(raw, raw, ())
    assert play_symbolically(lowered) == 4


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


def test_a_low_rank_pair_beside_the_output_matrix_is_part_of_the_head() -> None:
    rows = Rows.LOGITS
    x, head, inner = value(1, rows), value(2, rows, VOCAB), value(3, rows, 8)
    ops = [
        EMBED,
        LogitRows(x, value(0)),
        linear(head, x, "head"),
        linear(inner, x, "a"),
        linear(value(4, rows, VOCAB), inner, "b", add=head),
    ]
    lowered = lower(program(*ops), floating)
    assert play_symbolically(lowered) == 4
    last = lowered.instructions[-1]
    assert last.op == Head(value(4, rows, VOCAB), None, (ops[2], ops[4]))
    assert last.inputs == (lowered.instructions[1].out, lowered.instructions[2].out, NOWHERE)
    assert [b.width for b in lowered.float_buffers].count(VOCAB) == 1


def test_a_sum_that_reads_its_operand_twice_is_not_part_of_the_head() -> None:
    rows = Rows.LOGITS
    head = value(2, rows, VOCAB)
    ops = [
        EMBED,
        LogitRows(value(1, rows), value(0)),
        linear(head, value(1, rows), "head"),
        linear(value(3, rows, VOCAB), head, "square", add=head),
    ]
    lowered = lower(program(*ops), floating)
    square = lowered.instructions[-2]
    assert square.op == ops[3]
    assert square.out not in square.inputs
    assert lowered.instructions[-1].op == Head(ops[3].out, ops[3].out, ())


def test_a_norm_that_only_gathers_read_is_made_of_the_gathered_rows() -> None:
    logit_rows, hidden = value(2, Rows.LOGITS), value(3, Rows.HIDDEN)
    ops = [
        EMBED,
        NORM,
        HiddenRows(hidden, value(1)),
        LogitRows(logit_rows, value(1)),
        linear(value(4, Rows.LOGITS, VOCAB), logit_rows, "head"),
    ]
    lowered = lower(program(*ops), integer)
    embed, of_hidden, of_logits, _ = lowered.instructions
    assert of_hidden.op == RmsNorm(hidden, value(0), "norm", 1e-6)
    assert lowered.float_buffers[of_hidden.out] == FloatBuffer(Rows.HIDDEN, WIDTH, "hidden")
    assert of_logits.op == RmsNorm(logit_rows, value(0), "norm", 1e-6)
    assert of_logits.out == NOWHERE
    assert lowered.int8_buffers[of_logits.rounded[0]].rows is Rows.LOGITS
    assert of_hidden.inputs == of_logits.inputs == (embed.out,)


def test_a_norm_that_is_tapped_is_made_of_all_rows() -> None:
    ops: list[Op] = [
        EMBED,
        NORM,
        Tap(value(1), "final_norm"),
        LogitRows(value(2, Rows.LOGITS), value(1)),
        linear(value(3, Rows.LOGITS, VOCAB), value(2, Rows.LOGITS), "head"),
    ]
    lowered = lower(program(*ops), floating)
    assert [i.op for i in lowered.instructions[:4]] == ops[:4]


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
