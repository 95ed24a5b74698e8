"""Passes of a whole model on four threads: ``python passes.py MODEL``, under the thread sanitizer.

Without torch, whose own threads the sanitizer would watch, and slowly.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.program.kv_types import KvDtype
from farthing.program.step import SequenceRows, step_batch
from farthing.sampling.sampler import SampledRow, Sampler


def logits_and_tokens(model: Path, dtype: KvDtype, threads: int) -> tuple[bytes, list[int]]:
    options = LoadOptions(
        kv_cache_dtype=dtype, num_threads=threads, kv_cache_tokens=256, max_num_batched_tokens=64
    )
    runner = load_model(model, options).runner
    executor = runner.executor
    executor._threads = type(executor.threads)(threads, threads)
    sampler = Sampler(executor.threads)
    bits, tokens = b"", []
    for position in (0, 16, 17, 18):
        rows = 16 if position == 0 else 1
        batch = [SequenceRows([1 + i] * rows, position, [2 * i, 2 * i + 1]) for i in range(4)]
        logits = executor.run(step_batch(batch), runner.kv).logits
        assert np.isfinite(logits).all()
        bits += logits.tobytes()
        tokens += sampler.draw(logits, [SampledRow(1.0, seed, position) for seed in range(4)])
    return bits, tokens


def main(model: Path) -> None:
    types: tuple[KvDtype, ...] = ("fp16", "int4")  # of int4, neighbours' codes lie close together
    for dtype in types:
        alone = logits_and_tokens(model, dtype, 1)
        for _ in range(3):
            assert logits_and_tokens(model, dtype, 4) == alone
        size, count = len(alone[0]), len(alone[1])
        print(f"{dtype}: equal on 1 and 4 threads: {size} bytes of logits, {count} tokens")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
