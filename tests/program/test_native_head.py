"""The head: a row's greedy token without its logits is the one its logits give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from farthing.cli.doctor.kernel_cases import random_matrix
from farthing.program import step
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor, NativeWeight
from farthing.program.ops import Program, Value, WeightSlot
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import StepBatch, StepOutput
from farthing.sampling import sampler

INFINITY = np.inf
ISAS = _native.supported_isas()
Floats = NDArray[np.float32]


@dataclass
class Case:
    """A program whose logits are what ``tail`` makes of the embeddings, and its weights."""

    program: Program
    weights: dict[str, NativeWeight]
    num_tokens: int

    def executor(self, isa: str, num_threads: int) -> NativeExecutor:
        return NativeExecutor(
            self.program, self.weights, num_threads=num_threads, max_rows=512, isa=isa
        )


def matrix(values: Floats) -> _native.Matrix:
    packed = _native.Matrix("f32", *values.shape)
    packed.pack(0, np.ascontiguousarray(values, np.float32).view(np.uint8))
    return packed


def case(
    table: Floats,
    tail: Callable[[ProgramBuilder, Value], Value],
    weights: Mapping[str, NativeWeight] | None = None,
) -> Case:
    p = ProgramBuilder()
    x = p.embed(WeightSlot("table", table.shape))
    program = p.finish(tail(p, p.logit_rows(x)))
    return Case(program, {"table": matrix(table), **(weights or {})}, len(table))


def itself(_: ProgramBuilder, x: Value) -> Value:
    return x


def step_of(rows: int, kept: NDArray[np.int32], found: NDArray[np.int32]) -> StepBatch:
    """Every token of a table once, each in a sequence of its own."""
    tokens = np.arange(rows, dtype=np.int32)
    return StepBatch(
        tokens=tokens,
        positions=np.zeros(rows, np.int32),
        row_offsets=np.arange(rows + 1, dtype=np.int32),
        block_tables=tokens.reshape(-1, 1),
        logit_rows=kept.astype(np.int32),
        argmax_rows=found.astype(np.int32),
        hidden_rows=np.zeros(0, np.int32),
    )


def cache(blocks: int) -> KvCache:
    return KvCache(dtype="fp32", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=blocks)


def drawn(logits: Floats) -> list[int]:
    """What the sampler makes of whole rows."""
    greedy = [sampler.SampledRow(0.0, 0, 0)] * len(logits)
    return sampler.Sampler().draw(logits, greedy)


def check(case: Case, isa: str, num_threads: int, seed: int = 0) -> StepOutput:
    """Logits of all rows, then mixes of rows with logits and without: the same bits and tokens."""
    rows = case.num_tokens
    executor, kv = case.executor(isa, num_threads), cache(rows)
    every, none = np.arange(rows), np.zeros(0, np.int32)
    whole = executor.run(step_of(rows, every, none), kv)
    logits, expected = whole.logits.copy(), drawn(whole.logits)
    assert whole.argmax.size == 0
    rng = np.random.default_rng(seed)
    some = rng.permutation(rows)
    cut = rows // 3
    for kept, found in ((none, every), (some[:cut], some[cut:]), (every, some[:cut])):
        output = executor.run(step_of(rows, kept, found), kv)
        np.testing.assert_array_equal(output.logits.view(np.uint32), logits[kept].view(np.uint32))
        assert output.argmax.tolist() == [expected[row] for row in found]
    return StepOutput(logits, np.array(expected, np.int32), None, {})


def hostile_rows(width: int) -> Floats:
    """Rows with ties, NaN and infinities at the beginning, the end and in between."""
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((30, width)).astype(np.float32)
    last, middle = width - 1, width // 2
    rows[1] = 0.0
    rows[2] = -0.0
    rows[3] = np.where(np.arange(width) % 2, np.float32(-0.0), np.float32(0.0))
    rows[4, last] = rows[4, middle] = rows[4].max() + 1
    rows[5] = np.round(rows[5])
    for row, where in ((6, 0), (7, middle), (8, last)):
        rows[row, where] = np.nan
        rows[row + 3, where] = INFINITY
        rows[row + 6, where] = -INFINITY
    rows[15] = -INFINITY
    rows[16] = INFINITY
    rows[17] = np.nan
    rows[18] = -INFINITY
    rows[18, last] = -1e30
    rows[19] = INFINITY
    rows[19, last] = 3.0
    rows[20] = INFINITY
    rows[20, last] = -INFINITY
    rows[21, 0], rows[21, last] = INFINITY, np.nan
    rows[22] = -np.abs(rows[22])
    rows[23] = np.float32(1e-42)
    rows[24] = np.float32(-3.4e38)
    return rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 31, 33, 1000, 4097])
def test_ties_nan_and_infinities_choose_as_the_sampler_does(width: int, isa: str) -> None:
    for threads in (1, 3):
        output = check(case(hostile_rows(width), itself), isa, threads)
    assert sampler.NOT_FINITE in output.argmax
    assert width == 1 or len(set(output.argmax.tolist())) > 2


def linear_tail(p: ProgramBuilder, x: Value, width: int, *, bias: bool = False) -> Value:
    biases = [WeightSlot("bias", (width,))] if bias else None
    return p.linear(x, WeightSlot("head", (width, x.width)), biases=biases)


def whole_numbers(rng: np.random.Generator, *shape: int) -> Floats:
    """Few different values, so that many sums are equal."""
    return rng.integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "width"), [(1, 5), (7, 777), (40, 4099), (300, 100)])
def test_a_product_with_ties_gives_the_lowest_id(rows: int, width: int, isa: str) -> None:
    rng = np.random.default_rng(rows)
    head, bias = whole_numbers(rng, width, 6), whole_numbers(rng, width)
    weights: dict[str, NativeWeight] = {"head": matrix(head), "bias": bias}
    own = case(
        whole_numbers(rng, rows, 6), lambda p, x: linear_tail(p, x, width, bias=True), weights
    )
    for threads in (1, 2, 5):
        output = check(own, isa, threads)
    ties = (output.logits == output.logits.max(axis=1, keepdims=True)).sum(axis=1)
    assert rows < 7 or ties.max() > 1


@pytest.mark.parametrize("scheme", _native.schemes(), ids=lambda s: s["name"])
def test_every_scheme_gives_the_same_token_with_and_without_logits(
    scheme: dict[str, Any],
) -> None:
    rng = np.random.default_rng(3)
    rows, cols, width = 21, 512, 333
    head = random_matrix(rng, scheme, width, cols)
    table = rng.standard_normal((rows, cols)).astype(np.float32)
    own = case(table, lambda p, x: linear_tail(p, x, width), {"head": head})
    outputs = [check(own, isa, 2) for isa in ISAS]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0].logits, other.logits)
    assert len(set(outputs[0].argmax.tolist())) > 3


def capped(p: ProgramBuilder, x: Value) -> Value:
    return p.softcap(linear_tail(p, x, 500), 30.0)


def scaled(p: ProgramBuilder, x: Value) -> Value:
    return p.scale(linear_tail(p, x, 500), 1 / 3)


def adapted(p: ProgramBuilder, x: Value) -> Value:
    y = linear_tail(p, x, 500)
    inner = p.linear(x, WeightSlot("a", (4, x.width)))
    return p.scale(p.linear(inner, WeightSlot("b", (500, 4)), add=y), -0.5)


def added(p: ProgramBuilder, x: Value) -> Value:
    """An add that is no linear op's, a head of two matrices: what lies before a fused head."""
    y = p.add(linear_tail(p, x, 500), linear_tail(p, x, 500))
    halves = p.linear(x, WeightSlot("top", (200, x.width)), WeightSlot("rest", (300, x.width)))
    return p.scale(p.add(y, halves), 0.25)


def tapped(p: ProgramBuilder, x: Value) -> Value:
    y = linear_tail(p, x, 500)
    p.tap(y, "raw")
    return p.softcap(y, 30.0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tail", [capped, scaled, adapted, added, tapped])
def test_what_follows_the_product_is_done_before_the_choice(
    tail: Callable[[ProgramBuilder, Value], Value], isa: str
) -> None:
    """Caps make ties of what was none, a negative scale turns the order around."""
    rng = np.random.default_rng(5)
    shapes = {"head": (500, 6), "a": (4, 6), "b": (500, 4), "top": (200, 6), "rest": (300, 6)}
    weights = {name: matrix(whole_numbers(rng, *shape)) for name, shape in shapes.items()}
    table = whole_numbers(rng, 19, 6) * 80
    p = ProgramBuilder(taps=tail is tapped)
    x = p.embed(WeightSlot("table", table.shape))
    program = p.finish(tail(p, p.logit_rows(x)))
    output = check(Case(program, {"table": matrix(table), **weights}, len(table)), isa, 2)
    tops = (output.logits == output.logits.max(axis=1, keepdims=True)).sum(axis=1)
    assert tops.max() > 1, "no tie"
    reference = ReferenceExecutor(
        program, lambda name: table if name == "table" else values(weights[name])
    )
    every = np.arange(len(table))
    exact = reference.run(step_of(len(table), every, every))
    np.testing.assert_array_equal(exact.argmax, exact.logits.argmax(axis=1))
    if tail not in (capped, tapped):  # whole numbers: no rounding but the last
        np.testing.assert_array_equal(output.argmax, exact.argmax)


def values(weight: NativeWeight) -> Floats:
    assert isinstance(weight, _native.Matrix)
    return weight.dequantize(0, weight.rows)


def test_the_reference_marks_rows_without_a_token() -> None:
    table = hostile_rows(33)
    own = case(table, itself)
    reference = ReferenceExecutor(own.program, lambda _: table)
    every = np.arange(len(table))
    with np.errstate(invalid="ignore"):
        output = reference.run(step_of(len(table), every[:0], every))
    assert output.argmax.tolist() == drawn(table)
    assert output.logits.shape == (0, 33)


def test_both_sides_mean_the_same_by_no_token() -> None:
    assert step.NOT_FINITE == sampler.NOT_FINITE


def test_rows_without_logits_are_not_written() -> None:
    """The inverse test: a head that wrote them would write beyond the array it was given."""
    rng = np.random.default_rng(1)
    head = rng.standard_normal((64, 8)).astype(np.float32)
    own = case(
        rng.standard_normal((6, 8)).astype(np.float32),
        lambda p, x: linear_tail(p, x, 64),
        {"head": matrix(head)},
    )
    executor, kv = own.executor(ISAS[-1], 2), cache(6)
    every = np.arange(6)
    full = executor.run(step_of(6, every, every[:0]), kv).logits
    full[:] = 7.0
    output = executor.run(step_of(6, every[:2], every[2:]), kv)
    assert np.shares_memory(output.logits, full), "the array is used again"
    assert (full[2:] == 7.0).all()
    assert (full[:2] != 7.0).any()
