"""What the native player refuses: programs that do not fit together, caches of another shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from farthing import _native, machine
from farthing.program.native import KvCache
from farthing.program.step import SequenceRows
from support.native_runs import NativeModel, NativeRun
from support.tiny_models import make_tiny_model

NONE = -1


class Buffers:
    """A program with buffers to choose operands from, named by rows and width."""

    def __init__(self) -> None:
        self.program = _native.Program(8, machine.active_isa())
        self.t32 = self.program.float_buffer("T", 32)
        self.t64 = self.program.float_buffer("T", 64)
        self.t128 = self.program.float_buffer("T", 128)
        self.r32 = self.program.output("R", 32)
        self.k64 = self.program.output("K", 64)
        self.codes = self.program.int8_buffer("T", 32, 32)
        self.codes64 = self.program.int8_buffer("T", 64, 32)
        self.rope = self.program.rope([1.0] * 8, 1.0)
        self.matrix = _native.Matrix("f32", 64, 32)
        self.q8 = _native.Matrix("q8_0", 64, 32)
        self.program.routing(4, 2)
        self.t2 = self.program.float_buffer("T", 2)
        self.t4 = self.program.float_buffer("T", 4)
        self.e32 = self.program.float_buffer("E", 32)
        self.e64 = self.program.float_buffer("E", 64)
        self.routed_codes = self.program.int8_buffer("E", 32, 32)

    def linear(
        self,
        matrix: _native.Matrix | None = None,
        *,
        x: int | None = None,
        bias: int = 0,
        rounded: int = NONE,
        add: int = NONE,
        out: int | None = None,
    ) -> None:
        segment = (matrix or self.matrix, [0.0] * bias, rounded)
        x = self.t32 if x is None else x
        self.program.linear(x, [segment], add, self.t64 if out is None else out)

    def head(
        self,
        *ops: _native.Matrix | tuple[str, float],
        start: int = NONE,
        x: int | None = None,
        rounded: int = NONE,
    ) -> None:
        x = self.r32 if x is None else x
        stages = [
            op if isinstance(op, tuple) else (x, (op, [], rounded)) for op in ops or [self.matrix]
        ]
        self.program.head(start, stages, self.k64)

    def experts(
        self,
        *matrices: _native.Matrix,
        x: int | None = None,
        rounded: int = NONE,
        out: int | None = None,
    ) -> None:
        stack = (list(matrices or [self.matrix] * 4), rounded)
        x = self.t32 if x is None else x
        self.program.expert_linear(x, [stack], self.e64 if out is None else out)

    def attention(
        self,
        *,
        q_norm: Sequence[float] = (),
        k_norm: Sequence[float] = (),
        rounded: Sequence[int] = (),
        **changed: int,
    ) -> None:
        options = {
            "qkv": self.t64,
            "out": self.t32,
            "layer": 0,
            "num_heads": 2,
            "num_kv_heads": 1,
            "head_dim": 16,
            "window": 0,
            "rope": self.rope,
        }
        lists = {"q_norm": list(q_norm), "k_norm": list(k_norm), "rounded": list(rounded)}
        self.program.attention(
            scale=0.25, softcap=0.0, norm_eps=0.0, **lists, **(options | changed)
        )


REFUSED: list[tuple[str, Callable[[Buffers], object]]] = [
    ("max_rows is 0, must be positive", lambda b: _native.Program(0, machine.active_isa())),
    ("float buffer width is 0, must be", lambda b: b.program.float_buffer("T", 0)),
    ("output width is -1, must be", lambda b: b.program.output("T", -1)),
    ("int8 buffer group is 24, must be", lambda b: b.program.int8_buffer("T", 48, 24)),
    ("int8 buffer cols is 0, must be", lambda b: b.program.int8_buffer("T", 0, 32)),
    ("float buffer width is 0", lambda b: b.program.rope([], 1.0)),
    ("embed out is -1, must be", lambda b: b.program.embed(b.matrix, NONE)),
    ("embed out width is 64, must be 32", lambda b: b.program.embed(b.matrix, b.t64)),
    ("embed out has rows R, must have rows T", lambda b: b.program.embed(b.matrix, b.r32)),
    ("rms_norm x is -1", lambda b: b.program.rms_norm(NONE, [1.0] * 32, 0.0, b.t32, [])),
    ("rms_norm x is 11, must be from 0", lambda b: b.program.rms_norm(11, [], 0.0, b.t32, [])),
    (
        "rms_norm weight length is 31, must be 32",
        lambda b: b.program.rms_norm(b.t32, [1.0] * 31, 0.0, b.t32, []),
    ),
    (
        "rms_norm out width is 64, must be 32",
        lambda b: b.program.rms_norm(b.t32, [1.0] * 32, 0.0, b.t64, []),
    ),
    (
        "rms_norm rounded out cols is 64, must be 32",
        lambda b: b.program.rms_norm(b.t32, [1.0] * 32, 0.0, NONE, [b.codes64]),
    ),
    (
        "rms_norm result goes nowhere",
        lambda b: b.program.rms_norm(b.t32, [1.0] * 32, 0.0, NONE, []),
    ),
    ("quantize x is -1", lambda b: b.program.quantize(NONE, [b.codes])),
    ("quantize rounded out is 3, must be", lambda b: b.program.quantize(b.t32, [3])),
    ("quantize rounded out cols is 64", lambda b: b.program.quantize(b.t32, [b.codes64])),
    ("quantize rounded out has rows T", lambda b: b.program.quantize(b.r32, [b.codes])),
    ("linear out is -1", lambda b: b.linear(out=NONE)),
    ("linear out width is 128, must be 64", lambda b: b.linear(out=b.t128)),
    ("linear x is -1", lambda b: b.linear(x=NONE)),
    ("linear x width is 64, must be 32", lambda b: b.linear(x=b.t64)),
    ("linear x has rows R", lambda b: b.linear(x=b.r32)),
    ("linear bias length is 32, must be 64", lambda b: b.linear(bias=32)),
    ("linear add width is 32, must be 64", lambda b: b.linear(add=b.t32)),
    ("linear rounded input of a float matrix is 0", lambda b: b.linear(rounded=b.codes)),
    ("linear rounded input is -1", lambda b: b.linear(b.q8)),
    ("linear rounded input cols is 64, must be 32", lambda b: b.linear(b.q8, rounded=b.codes64)),
    ("linear out width is 64, must be 0", lambda b: b.program.linear(b.t32, [], NONE, b.t64)),
    ("gated x width is 33, must be even", lambda b: _odd_gate(b.program)),
    ("gated out width is 64, must be 32", lambda b: b.program.gated(b.t64, "silu", b.t64, [])),
    ("add a width is 64, must be 32", lambda b: b.program.add(b.t64, b.t32, b.t32)),
    ("add b has rows R", lambda b: b.program.add(b.t32, b.r32, b.t32)),
    ("scale x width is 32, must be 64", lambda b: b.program.scale(b.t32, 2.0, b.t64)),
    ("softcap x width is 32, must be 64", lambda b: b.program.softcap(b.t32, 2.0, b.t64)),
    ("copy_rows x width is 64, must be 32", lambda b: b.program.copy_rows(b.t64, b.r32)),
    ("copy_rows x has rows R", lambda b: b.program.copy_rows(b.r32, b.t32)),
    ("head out is -1", lambda b: b.program.head(b.r32, [], NONE)),
    ("head out has rows R, must have rows K", lambda b: b.program.head(b.r32, [], b.r32)),
    ("head start has rows T, must have rows R", lambda b: b.head(start=b.t64)),
    ("head start width is 32, must be 64", lambda b: b.head(start=b.r32)),
    ("head matrix rows is 32, must be 64", lambda b: b.head(_native.Matrix("f32", 32, 32))),
    ("head x has rows T, must have rows R", lambda b: b.head(x=b.t32)),
    ("head rounded input has rows T, must have rows R", lambda b: b.head(b.q8, rounded=b.codes)),
    ("head op 'tanh' must be scale or softcap", lambda b: b.head(("tanh", 2.0))),
    ("head has nothing to begin with", lambda b: b.head(("scale", 2.0), start=NONE)),
    ("head has nothing to begin with", lambda b: b.program.head(NONE, [], b.k64)),
    ("a program has one head", lambda b: (b.head(), b.head())),
    ("attention layer is -1", lambda b: b.attention(layer=-1)),
    ("attention num_kv_heads is 0", lambda b: b.attention(num_kv_heads=0)),
    ("attention num_heads is 2, must be", lambda b: b.attention(num_kv_heads=3)),
    ("attention q_norm width is 8, must be 0, 16 or 32", lambda b: b.attention(q_norm=[1.0] * 8)),
    ("attention k_norm width is 32, must be 0, 16 or 16", lambda b: b.attention(k_norm=[1.0] * 32)),
    ("attention head_dim is 24, must be", lambda b: b.attention(head_dim=24)),
    ("attention qkv width is 64, must be 6 heads of 16", lambda b: b.attention(num_heads=4)),
    ("attention qkv width is 128", lambda b: b.attention(qkv=b.t128)),
    ("attention out width is 64, must be 32", lambda b: b.attention(out=b.t64)),
    ("attention rounded out cols is 64, must be 32", lambda b: b.attention(rounded=[b.codes64])),
    (
        "attention columns of a kv head is 32, must be whole groups of 64 and whole 32s",
        lambda b: b.attention(rounded=[b.program.int8_buffer("T", 32, 64)]),
    ),
    (
        "attention columns of a kv head is 16, must be whole groups of 16 and whole 32s",
        lambda b: b.attention(
            num_kv_heads=2,
            qkv=b.program.float_buffer("T", 96),
            rounded=[b.program.int8_buffer("T", 32, 16)],
        ),
    ),
    ("attention out is -1", lambda b: b.attention(out=NONE, rounded=[b.codes])),
    ("attention rope is 1, must be", lambda b: b.attention(rope=1)),
    ("attention window is -1", lambda b: b.attention(window=-1)),
    (
        "rope dim is 18, must be at most head_dim 16",
        lambda b: b.attention(rope=b.program.rope([1.0] * 9, 1.0)),
    ),
    ("a program has one routing", lambda b: b.program.routing(4, 2)),
    ("a buffer of routed rows needs a routing", lambda b: _plain().float_buffer("E", 32)),
    ("routing num_experts is 0", lambda b: _plain().routing(0, 1)),
    ("routing experts_per_token is 5, must be from 1 to", lambda b: _plain().routing(4, 5)),
    ("routing experts_per_token is 0, must be from 1 to", lambda b: _plain().routing(4, 0)),
    (
        "routing experts_per_token is 536870912, must be at most 2",
        lambda b: _plain().routing(2**29, 2**29),
    ),
    ("routed rows cannot be an output", lambda b: b.program.output("E", 32)),
    ("copy_rows out has rows E", lambda b: b.program.copy_rows(b.t32, b.e32)),
    ("route needs a routing", lambda b: _plain().route(0, True, 0)),
    ("route logits width is 32, must be 4", lambda b: b.program.route(b.t32, True, b.t2)),
    ("route weights width is 4, must be 2", lambda b: b.program.route(b.t4, True, b.t4)),
    ("expert_linear has no matrices", lambda b: b.program.expert_linear(b.t32, [], b.e64)),
    ("expert_linear matrices is 3, must be 4", lambda b: b.experts(*[b.matrix] * 3)),
    (
        "expert_linear matrix rows is 32, must be 64",
        lambda b: b.experts(*[b.matrix] * 3, _native.Matrix("f32", 32, 32)),
    ),
    (
        "expert_linear matrix cols is 64, must be 32",
        lambda b: b.experts(*[b.matrix] * 3, _native.Matrix("f32", 64, 64)),
    ),
    (
        "expert_linear matrix activation group is 32, must be 0",
        lambda b: b.experts(*[b.matrix] * 3, b.q8),
    ),
    ("expert_linear rounded input is -1", lambda b: b.experts(*[b.q8] * 4)),
    (
        "expert_linear rounded input cols is 64, must be 32",
        lambda b: b.experts(*[b.q8] * 4, rounded=b.codes64),
    ),
    ("expert_linear of float matrices has no x", lambda b: b.experts(x=NONE)),
    ("expert_linear x width is 64, must be 32", lambda b: b.experts(x=b.e64)),
    ("expert_linear input has rows R", lambda b: b.experts(x=b.r32)),
    ("expert_linear out has rows T", lambda b: b.experts(out=b.t64)),
    ("expert_linear out width is 32, must be 64", lambda b: b.experts(out=b.e32)),
    (
        "expert_linear input has rows E, must have rows T",
        lambda b: b.program.expert_linear(
            b.t32, [([b.matrix] * 4, NONE), ([b.q8] * 4, b.routed_codes)], b.e64
        ),
    ),
    ("combine out has rows R", lambda b: b.program.combine(b.e32, b.t2, NONE, b.r32)),
    ("combine x has rows T", lambda b: b.program.combine(b.t32, b.t2, NONE, b.t32)),
    ("combine x width is 64", lambda b: b.program.combine(b.e64, b.t2, NONE, b.t32)),
    ("combine weights width is 4", lambda b: b.program.combine(b.e32, b.t4, NONE, b.t32)),
    ("combine add width is 64", lambda b: b.program.combine(b.e32, b.t2, b.t64, b.t32)),
]


def _plain() -> _native.Program:
    return _native.Program(8, machine.active_isa())


def _odd_gate(program: _native.Program) -> None:
    program.gated(program.float_buffer("T", 33), "silu", program.float_buffer("T", 16), [])


@pytest.mark.parametrize(("message", "build"), REFUSED, ids=[m for m, _ in REFUSED])
def test_operands_that_do_not_fit_are_refused(
    message: str, build: Callable[[Buffers], object]
) -> None:
    with pytest.raises(ValueError, match=message):
        build(Buffers())


def test_operands_that_fit_are_taken() -> None:
    b = Buffers()
    b.program.embed(b.matrix, b.t32)
    b.program.rms_norm(b.t32, [1.0] * 32, 1e-6, NONE, [b.codes])
    b.linear(b.q8, x=NONE, rounded=b.codes, bias=64, add=b.t64)
    b.linear()
    b.attention()
    b.program.gated(b.t64, "silu", b.t32, [b.codes])
    b.program.add(b.t32, b.t32, b.t32)
    b.program.copy_rows(b.t32, b.r32)
    b.program.softcap(b.r32, 2.0, b.r32)
    b.program.rms_norm(b.t32, [1.0] * 32, 1e-6, b.r32, [])
    b.head(b.matrix, ("scale", 2.0), b.matrix, ("softcap", 3.0))
    b.program.route(b.t4, True, b.t2)
    b.experts()
    b.experts(x=b.e32)
    b.experts(*[b.q8] * 4, x=NONE, rounded=b.codes)
    b.experts(*[b.q8] * 4, x=NONE, rounded=b.routed_codes)
    b.program.combine(b.e32, b.t2, b.t32, b.t32)


def test_layers_share_one_shape_of_cache() -> None:
    b = Buffers()
    b.attention()
    qkv, out = b.program.float_buffer("T", 96), b.program.float_buffer("T", 32)
    with pytest.raises(ValueError, match="attention num_kv_heads is 2, must be 1"):
        b.attention(qkv=qkv, out=out, num_kv_heads=2, layer=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    return NativeModel(make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("kv num_layers has 2, must be 3 or more", {"num_layers": 2}),
        ("kv num_kv_heads has 2, must be 4", {"num_kv_heads": 2}),
        ("kv head_dim has 32, must be 16", {"head_dim": 32}),
    ],
)
def test_a_cache_of_another_shape_is_refused(
    tiny: NativeModel, message: str, changed: dict[str, int]
) -> None:
    shape = {"num_layers": 3, "num_kv_heads": 4, "head_dim": 16, "num_blocks": 4} | changed
    run = NativeRun(tiny.run(tokens=64).executor, KvCache(dtype="fp16", **shape), 0)
    with pytest.raises(ValueError, match=message):
        run.step([SequenceRows([1], 0, [0])])


def test_a_block_has_one_writer_in_a_step(tiny: NativeModel) -> None:
    run = tiny.run(tokens=64)
    with pytest.raises(ValueError, match="block 2 is written twice in one step"):
        run.step([SequenceRows([1], 0, [2]), SequenceRows([1] * 20, 0, [1, 2])])
    with pytest.raises(ValueError, match="block 1 is written twice in one step"):
        run.step([SequenceRows([1] * 20, 0, [1, 1])])
    run.step([SequenceRows([1] * 16, 0, [0])])
    run.step([SequenceRows([2], 16, [0, 1]), SequenceRows([3], 16, [0, 2])])  # a shared prefix


def test_offsets_beyond_the_tokens_are_refused_before_they_are_followed(tiny: NativeModel) -> None:
    b = Buffers()
    b.program.embed(b.matrix, b.t32)

    def ints(*values: int) -> np.ndarray:
        return np.array(values, np.int32)

    pool = _native.ThreadPool(1, 1)
    kv = _native.KvPool("fp16", 1, 1, 16, 4)
    tables = np.zeros((2, 1), np.int32)
    with pytest.raises(ValueError, match="row_offsets has 1000, must be ascending, at most"):
        b.program.run(
            *(pool, kv, ints(1, 1), ints(0, 0), ints(0, 1000, 2), tables),
            *(ints(), ints(), ints(), [], ints()),
        )


def test_rows_and_tokens_that_do_not_fit_the_step_are_refused(tiny: NativeModel) -> None:
    def run(argmax_rows: list[int], argmax: int) -> None:
        execution = tiny.run(tokens=64)
        executor = execution.executor
        none, zero = np.zeros(0, np.int32), np.zeros(1, np.int32)
        widths = (tiny.config.vocab_size, tiny.config.hidden_size)
        outputs = [np.empty((0, width), np.float32) for width in widths]  # logits, hidden states
        executor._native.run(
            *(executor.threads, execution.kv.pool, zero, zero, np.array([0, 1], np.int32)),
            *(zero[None], none, np.array(argmax_rows, np.int32), none, outputs),
            np.zeros(argmax, np.int32),
        )

    run([0, 0], 2)
    with pytest.raises(ValueError, match="argmax_rows has 1, must be a row of the step"):
        run([1], 1)
    with pytest.raises(ValueError, match="argmax_rows has -1, must be a row of the step"):
        run([-1], 1)
    with pytest.raises(ValueError, match="argmax has 3, must be 1 entries"):
        run([0], 3)


def test_a_program_without_a_head_finds_no_tokens() -> None:
    b = Buffers()
    b.program.embed(b.matrix, b.t32)
    none, zero = np.zeros(0, np.int32), np.zeros(1, np.int32)
    outputs = [np.empty((1, 32), np.float32), np.empty((0, 64), np.float32)]
    with pytest.raises(ValueError, match="argmax_rows has 1, must be empty for a program without"):
        b.program.run(
            *(_native.ThreadPool(1, 1), _native.KvPool("fp16", 1, 1, 16, 4)),
            *(zero, zero, np.array([0, 1], np.int32), zero[None], none, zero, none),
            *(outputs, zero.copy()),
        )


@pytest.mark.parametrize(
    ("layers", "heads", "dim", "blocks"),
    [(24, 2, 64, 2**50), (2**30, 2**30, 2**30, 1), (1, 1, 16, 2**62)],
)
def test_a_cache_beyond_any_address_space_is_a_memory_error(
    layers: int, heads: int, dim: int, blocks: int
) -> None:
    with pytest.raises(MemoryError):
        _native.KvPool("fp16", layers, heads, dim, blocks)


def test_a_buffer_beyond_any_address_space_is_a_memory_error() -> None:
    program = _native.Program(2**31 - 1, machine.active_isa())
    with pytest.raises(MemoryError):
        program.float_buffer("T", 2**31 - 1)
    assert program.workspace_bytes == 0
