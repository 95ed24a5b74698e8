"""From a path to a model that can run: checkpoint, program, weights, KV cache, tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from farthing import machine
from farthing.config import ModelConfig
from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
from farthing.engine.runner import Runner
from farthing.errors import (
    ContextLengthError,
    InsufficientMemoryError,
    InvalidParameterError,
    UnsupportedOperationError,
)
from farthing.models.adapter import Adapter, FactorSource, apply_adapter
from farthing.models.checkpoint import (
    Checkpoint,
    PackedTensor,
    TensorSource,
    check_tensors,
    open_checkpoint,
)
from farthing.models.checkpoint.checkpoint import tokenizer_of
from farthing.models.registry import FAMILIES, build_program
from farthing.program.experts import expand, find_routing
from farthing.program.kv_types import KV_DTYPES, KV_SIDES, KvDtype
from farthing.program.native import FloatMode, KvCache, NativeExecutor
from farthing.program.numerics import fingerprint
from farthing.program.ops import Attention, Program, Rows, Tap
from farthing.program.parts import body
from farthing.program.weights import (
    NativeMatrix,
    NativeWeight,
    WeightPlacement,
    load_weights,
    served_scheme,
)
from farthing.tokenization.tokenizer import Tokenizer

OVERHEAD_BYTES = 300 << 20
"""The least a process needs beside weights and KV: interpreter, libraries, workspace, buffers."""

PROCESS_BYTES = 200 << 20
"""The part of it that does not grow with the rows of a pass."""

HEAD_DIM_MULTIPLE = 16
"""Attention kernels hold 16 dimensions of a head in a register."""

ROW_BLOCK = 16
"""Rows that the kernels' layouts interleave: a matrix is filled up to whole blocks of them."""

MIN_AUTOMATIC_TOKENS = 1024
"""The shortest context chosen for the user when memory is short; less is refused."""

WEIGHT_PLACEMENTS: tuple[WeightPlacement, ...] = get_args(WeightPlacement)

Source = TensorSource | PackedTensor | FactorSource
Sources = Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is to run. None means: chosen from the model and the machine."""

    kv_cache_dtype: KvDtype = "fp16"
    max_model_len: int | None = None  # tokens of one sequence
    num_threads: int | None = None
    max_num_batched_tokens: int = 512  # rows of one pass
    kv_cache_tokens: int | None = None  # tokens of all sequences together
    kv_cache_memory_bytes: int | None = None  # the same in bytes; not both
    adapter: Adapter | None = None  # None: the model as it is
    body_only: bool = False  # end in the hidden states of the rows that need logits
    taps: tuple[str, ...] = ()  # points of the program whose values every pass hands out
    weights: WeightPlacement = "mmap"  # of a packed directory
    half: bool = False  # codes of matrices as fp16: ``Checkpoint.as_half``


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, ready to run."""

    checkpoint: Checkpoint
    config: ModelConfig
    tokenizer: Tokenizer
    runner: Runner
    max_model_len: int
    fingerprint: str  # of the numerics: schemes of the weights, version; an adapter's too


def require_head_dim(checkpoint: Checkpoint) -> None:
    """Raises :class:`UnsupportedOperationError` for heads whose keys no cache can hold."""
    size = checkpoint.config.head_dim
    if size % HEAD_DIM_MULTIPLE:
        raise UnsupportedOperationError(
            f"{checkpoint.path}: heads of {size} dimensions are not supported; their number must "
            f"be a multiple of {HEAD_DIM_MULTIPLE}"
        )


def load_model(
    path: Path, options: LoadOptions, progress: Callable[[int, int], None] | None = None
) -> LoadedModel:
    """Opens, checks and loads the model at ``path``.

    ``progress(done, total)`` is called with bytes of weights.

    Raises :class:`ModelFormatError`, :class:`UnsupportedArchitectureError`,
    :class:`ContextLengthError`, :class:`InvalidParameterError`,
    :class:`UnsupportedOperationError`, or :class:`InsufficientMemoryError` before anything large is
    allocated.
    """
    if options.kv_cache_dtype not in KV_DTYPES:
        raise InvalidParameterError(
            f"kv_cache_dtype={options.kv_cache_dtype!r} must be one of {', '.join(KV_DTYPES)}"
        )
    if options.kv_cache_tokens is not None and options.kv_cache_memory_bytes is not None:
        raise InvalidParameterError(
            f"kv_cache_tokens={options.kv_cache_tokens} and "
            f"kv_cache_memory_bytes={options.kv_cache_memory_bytes}: one of them says how large "
            "the KV cache is"
        )
    if options.weights not in WEIGHT_PLACEMENTS:
        raise InvalidParameterError(
            f"weights={options.weights!r} must be one of {', '.join(WEIGHT_PLACEMENTS)}"
        )
    with FloatMode():  # numbers of the configuration are read to the same bits
        checkpoint = open_checkpoint(path, FAMILIES)
        config = checkpoint.config
        program = build_program(config, taps=options.taps)
    check_tensors(checkpoint, program.weights)
    if options.half:
        checkpoint = checkpoint.as_half(program)
    program, tensors = _adapt(program, checkpoint.tensors, options.adapter)
    require_head_dim(checkpoint)
    num_threads = options.num_threads or machine.default_threads()

    if options.body_only:
        program = body(program)
    routers = program.routers
    weight_bytes = sum(
        packed_bytes(tensors[slot.name], router=slot.name in routers) for slot in program.weights
    )
    token_bytes = kv_bytes_per_token(program, options.kv_cache_dtype)
    available = machine.memory_available()
    overhead = max(OVERHEAD_BYTES, PROCESS_BYTES + workspace_bytes(program, options))
    max_model_len, kv_tokens = _fit(config, options, weight_bytes, token_bytes, overhead, available)

    done = 0

    def advance(nbytes: int) -> None:
        nonlocal done
        done = min(done + nbytes, weight_bytes)
        if progress is not None:
            progress(done, weight_bytes)

    tokenizer = tokenizer_of(checkpoint)
    # The context is known now, and rotary embeddings may depend on it.
    program = build_program(config, context_length=max_model_len, taps=options.taps)
    program, tensors = _adapt(program, checkpoint.tensors, options.adapter)
    if options.body_only:
        program = body(program)
    weights = load_weights(
        program,
        tensors,
        num_threads=num_threads,
        placement=options.weights,
        progress=advance,
    )
    if progress is not None:
        progress(weight_bytes, weight_bytes)
    executor = NativeExecutor(
        program, weights, num_threads=num_threads, max_rows=options.max_num_batched_tokens
    )
    kv = KvCache(
        dtype=options.kv_cache_dtype,
        num_layers=program.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_blocks=blocks_for(kv_tokens),
    )
    return LoadedModel(
        checkpoint,
        config,
        tokenizer,
        Runner(executor, kv),
        max_model_len,
        _fingerprint(weights, tensors),
    )


def _fingerprint(weights: Mapping[str, NativeWeight], sources: Sources) -> str:
    """The numerics fingerprint of matrices as they are served."""
    return fingerprint(
        (name, weight.scheme, source.codebook if isinstance(source, PackedTensor) else None)
        for name, weight in weights.items()
        if isinstance(weight, NativeMatrix)
        for source in (sources[name],)
    )


def _adapt(
    program: Program, tensors: Mapping[str, TensorSource | PackedTensor], adapter: Adapter | None
) -> tuple[Program, Sources]:
    """The program with the adapter, and where the weights of both come from."""
    if adapter is None:
        return program, tensors
    with FloatMode():
        adapted = apply_adapter(program, adapter)
    return adapted.program, {**tensors, **adapted.sources}


def packed_bytes(source: Source, *, router: bool = False) -> int:
    """Bytes a weight takes in memory: the rows of a matrix are packed in whole blocks."""
    if isinstance(source, PackedTensor):
        return source.nbytes
    rows = source.rows if len(source.shape) < 2 else -(-source.rows // ROW_BLOCK) * ROW_BLOCK
    as_stored = served_scheme(source.dtype, router=router) == source.dtype
    return rows * (source.row_nbytes if as_stored else 4 * source.shape[-1])


def kv_bytes_per_token(program: Program, dtype: KvDtype) -> int:
    """Bytes the KV cache takes for one token: layers · kv heads · those of a key and a value.

    Each of them is head dim · bits / 8, and for codes the 4 of a scale.
    """
    sides = KV_SIDES[dtype]
    return sum(
        op.num_kv_heads * sides.token_bytes(op.head_dim)
        for op in program.ops
        if isinstance(op, Attention)
    )


def workspace_bytes(program: Program, options: LoadOptions) -> int:
    """About the bytes of intermediate values: each width once as float32 and once as int8.

    And what taps hand out, each in memory of its own.
    """
    ops = expand(program)
    values = {(op.out.rows, op.out.width) for op in ops if not isinstance(op, Tap)}
    tapped = sum(op.x.width for op in ops if isinstance(op, Tap))
    routing = find_routing(program)
    copies = {Rows.TOKENS: 1, Rows.EXPERT: routing.experts_per_token if routing else 0}
    widths = sum(copies.get(rows, 0) * width for rows, width in values)
    return (5 * widths + 4 * tapped) * options.max_num_batched_tokens


def _fit(
    config: ModelConfig,
    options: LoadOptions,
    weight_bytes: int,
    token_bytes: int,
    overhead: int,
    available: int,
) -> tuple[int, int]:
    """Context length and tokens of the KV pool that memory allows."""
    wanted = options.max_model_len or config.context_length
    if wanted > config.context_length:
        raise ContextLengthError(
            f"max_model_len={wanted} is more than the model's context of "
            f"{config.context_length} tokens"
        )
    asked = options.kv_cache_tokens
    if options.kv_cache_memory_bytes is not None:
        asked = options.kv_cache_memory_bytes // (token_bytes * BLOCK_TOKENS) * BLOCK_TOKENS
        if asked == 0:
            raise InvalidParameterError(
                f"kv_cache_memory_bytes={options.kv_cache_memory_bytes} must be at least "
                f"{token_bytes * BLOCK_TOKENS}, a block of {BLOCK_TOKENS} tokens"
            )
    room = (available - weight_bytes - overhead) // token_bytes // BLOCK_TOKENS * BLOCK_TOKENS
    explicit = asked or options.max_model_len
    least = explicit or min(wanted, MIN_AUTOMATIC_TOKENS)
    if room < least:
        needed = weight_bytes + least * token_bytes + overhead
        raise InsufficientMemoryError(
            f"loading needs {_mib(needed)} ({_mib(weight_bytes)} of weights, "
            f"{_mib(least * token_bytes)} of KV cache for {least} tokens, "
            f"{_mib(overhead)} beside), {_mib(available)} are available"
        )
    max_model_len = wanted if options.max_model_len else min(wanted, room)
    kv_tokens = asked or max_model_len
    return min(max_model_len, kv_tokens), kv_tokens


def _mib(nbytes: int) -> str:
    return f"{max(nbytes, 0) / 2**20:,.0f} MiB"
