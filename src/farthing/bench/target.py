"""What is measured: a model from its files, or a shape with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from farthing.bench.memory import require_memory
from farthing.bench.random_weights import random_weights, served_scheme, weights_bytes
from farthing.bench.shapes import parse_shape
from farthing.engine.model_loader import (
    OVERHEAD_BYTES,
    LoadOptions,
    kv_bytes_per_token,
    workspace_bytes,
)
from farthing.llm import LLM
from farthing.models.registry import build_program
from farthing.program.kv_types import KvDtype
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Program
from farthing.program.step import BLOCK_TOKENS
from farthing.program.weights import NativeWeight, WeightPlacement


@dataclass(frozen=True, slots=True)
class Needs:
    """What the cases of a run need. ``sequences`` times ``context`` tokens are cached at once."""

    sequences: int
    context: int  # tokens of a sequence, the new ones included
    rows: int = 512  # of a pass

    @property
    def cached_tokens(self) -> int:
        """Tokens of all sequences, in whole blocks."""
        return self.sequences * -(-self.context // BLOCK_TOKENS) * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Target:
    """A program with its weights, executor and cache.

    ``llm`` is None for a shape. ``placement`` is what was asked for: it is for packed directories.
    """

    name: str
    executor: NativeExecutor
    kv: KvCache
    kv_cache_dtype: KvDtype
    vocab_size: int
    llm: LLM | None = None
    placement: WeightPlacement = "mmap"

    @property
    def program(self) -> Program:
        """What is played."""
        return self.executor.program

    @property
    def weights(self) -> Mapping[str, NativeWeight]:
        """Packed, by name."""
        return self.executor.weights


def load_model_target(
    path: Path,
    name: str,
    needs: Needs,
    *,
    num_threads: int,
    kv_cache_dtype: KvDtype,
    weights: WeightPlacement = "mmap",
    progress: Callable[[int, int], None] | None = None,
) -> Target:
    """The model at ``path`` through :class:`LLM`; raises what that raises."""
    llm = LLM(
        path,
        num_threads=num_threads,
        kv_cache_dtype=kv_cache_dtype,
        weights=weights,
        max_model_len=needs.context,
        kv_cache_tokens=needs.cached_tokens,
        max_num_seqs=needs.sequences,
        enable_prefix_caching=False,  # what is repeated is to be computed again
        max_num_batched_tokens=needs.rows,
        load_progress=progress,
    )
    runner = llm.runner
    return Target(
        name, runner.executor, runner.kv, kv_cache_dtype, llm.config.vocab_size, llm, weights
    )


def make_shape_target(
    shape: str, scheme: str, needs: Needs, *, num_threads: int, kv_cache_dtype: KvDtype
) -> Target:
    """A model of ``shape`` (shapes.py) with random weights, every matrix in ``scheme``.

    Raises :class:`InvalidParameterError` for a shape or scheme that cannot be,
    :class:`InsufficientMemoryError` before anything large is allocated.
    """
    config = parse_shape(shape)
    row = served_scheme(scheme)
    context = max(config.context_length, needs.context)
    program = build_program(replace(config, context_length=context))
    token_bytes = kv_bytes_per_token(program, kv_cache_dtype)
    options = LoadOptions(kv_cache_dtype=kv_cache_dtype, max_num_batched_tokens=needs.rows)
    parts = {
        "weights": weights_bytes(program, row),
        "KV cache": token_bytes * needs.cached_tokens,
        "workspace and libraries": OVERHEAD_BYTES + workspace_bytes(program, options),
    }
    require_memory(f"--shape {shape} in {scheme}", parts)
    weights = random_weights(program, row, num_threads)
    executor = NativeExecutor(program, weights, num_threads=num_threads, max_rows=needs.rows)
    kv = KvCache(
        dtype=kv_cache_dtype,
        num_layers=program.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_blocks=needs.cached_tokens // BLOCK_TOKENS,
    )
    return Target(f"{shape} {scheme}", executor, kv, kv_cache_dtype, config.vocab_size)
