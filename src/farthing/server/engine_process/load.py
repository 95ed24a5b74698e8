"""From settings to an engine that can begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from farthing import machine
from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.build import build_engine
from farthing.engine.engine import Engine
from farthing.engine.model_loader import LoadedModel, load_model
from farthing.engine.prefix_store import PrefixStore, open_prefix_store
from farthing.program.step import SequenceRows, step_batch
from farthing.program.work import linear_work
from farthing.server.engine_settings import EngineSettings
from farthing.server.seam.messages import EngineInfo, Loading
from farthing.tokenization.tokenizer import Tokenizer

TOLD_EVERY = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the loop works with."""

    engine: Engine
    tokenizer: Tokenizer
    store: PrefixStore | None
    info: EngineInfo


def load(settings: EngineSettings, tell: Callable[[Loading], None]) -> Loaded:
    """Loads the model, restores its prefix cache. Raises what :func:`load_model` does."""
    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is read
    loaded = load_model(settings.model, settings.load_options(), _progress(tell))
    engine = build_engine(loaded, settings.engine_options())
    store = open_prefix_store(
        settings.prefix_cache, loaded, engine.prefix_cache, settings.prefix_cache_bytes
    )
    bandwidth = 0.0
    if settings.measure_bandwidth:
        threads = loaded.runner.executor.num_threads
        bandwidth = 1e9 * max(machine.read_bandwidth(threads=threads, repeats=3))
    info = _info(loaded, engine, store, bandwidth)
    return Loaded(engine, loaded.tokenizer, store, info)


def _progress(tell: Callable[[Loading], None]) -> Callable[[int, int], None]:
    last = float("-inf")

    def advance(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= TOLD_EVERY:
            last = now
            tell(Loading(done, total))

    return advance


def _info(
    loaded: LoadedModel, engine: Engine, store: PrefixStore | None, bandwidth: float
) -> EngineInfo:
    executor, kv = loaded.runner.executor, loaded.runner.kv
    token = step_batch([SequenceRows([0], 0, [0], logits=1)])
    return EngineInfo(
        max_model_len=engine.config.max_model_len,
        vocab_size=loaded.config.vocab_size,
        num_blocks=kv.num_blocks,
        block_tokens=BLOCK_TOKENS,
        max_num_seqs=engine.config.scheduler.max_num_seqs,
        max_num_batched_tokens=engine.config.scheduler.max_num_batched_tokens,
        num_threads=executor.num_threads,
        isa=machine.active_isa(),
        fingerprint=loaded.fingerprint,
        kv_cache_dtype=kv.dtype,
        weight_bytes=linear_work(executor.program, executor.weights, token).weight_bytes,
        prefix_caching=engine.prefix_cache is not None,
        kv_block_bytes=kv.block_bytes,
        read_bandwidth=bandwidth,
        restored_tokens=0 if store is None else store.num_restored_blocks * BLOCK_TOKENS,
    )
