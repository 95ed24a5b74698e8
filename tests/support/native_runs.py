"""Plays token sequences through the native executor in chosen pieces and keeps every logit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farthing import LLM
from farthing.models.adapter import apply_adapter, open_adapter
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.program.kv_types import KvDtype
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.program.weights import NativeWeight, WeightSource, load_weights

Logits = NDArray[np.float32]


class NativeModel:
    """One model's packed weights, from which runs with different settings are made.

    With ``adapter``, the directory of one, its weights stand beside the model's.
    """

    def __init__(self, path: Path, adapter: Path | None = None) -> None:
        self.checkpoint: Checkpoint = open_checkpoint(path, FAMILIES)
        self.config = self.checkpoint.config
        self.program = build_program(self.config)
        self.tensors: Mapping[str, WeightSource] = self.checkpoint.tensors
        if adapter is not None:
            adapted = apply_adapter(self.program, open_adapter(adapter))
            self.program = adapted.program
            self.tensors = {**self.tensors, **adapted.sources}
        self.weights: dict[str, NativeWeight] = load_weights(
            self.program, self.tensors, num_threads=2
        )

    def run(
        self,
        *,
        kv_dtype: KvDtype = "fp16",
        num_threads: int = 2,
        isa: str | None = None,
        max_rows: int = 512,
        tokens: int = 2048,
        seed: int = 0,
    ) -> NativeRun:
        """A fresh executor and cache; ``tokens`` of cache in blocks handed out in random order.

        All threads play, also where there are fewer CPUs.
        """
        executor = NativeExecutor(
            self.program,
            self.weights,
            num_threads=num_threads,
            isa=isa,
            max_rows=max_rows,
            cpus=num_threads,
        )
        kv = KvCache(
            dtype=kv_dtype,
            num_layers=self.program.num_layers,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            num_blocks=-(-tokens // 16),
        )
        return NativeRun(executor, kv, seed)


class NativeRun:
    """An executor with sequences in its cache."""

    def __init__(self, executor: NativeExecutor, kv: KvCache, seed: int) -> None:
        self.executor = executor
        self.kv = kv
        self._free = list(range(kv.num_blocks))
        random.Random(seed).shuffle(self._free)

    def new_sequence(self, capacity: int) -> Sequence[int]:
        """A block table for ``capacity`` tokens."""
        return [self._free.pop() for _ in range(-(-capacity // 16))]

    def step(self, rows: Sequence[SequenceRows]) -> list[Logits]:
        """One pass; the asked logits of each sequence, copied."""
        logits = self.executor.run(step_batch(rows), self.kv).logits
        ends = np.cumsum([r.logits for r in rows])
        return [part.copy() for part in np.split(logits, ends[:-1])]

    def logits(self, tokens: Sequence[int], chunk: int | None = None) -> Logits:
        """Logits (n, vocab) at every position of one sequence fed ``chunk`` tokens a pass."""
        table = self.new_sequence(len(tokens))
        size = chunk or len(tokens)
        parts = []
        for start in range(0, len(tokens), size):
            piece = tokens[start : start + size]
            rows = SequenceRows(piece, start, table, logits=len(piece))
            parts += self.step([rows])
        return np.concatenate(parts)

    def batched_logits(self, sequences: Sequence[Sequence[int]], chunk: int) -> list[Logits]:
        """As :meth:`logits` for several sequences that share the passes."""
        tables = [self.new_sequence(len(tokens)) for tokens in sequences]
        parts: list[list[Logits]] = [[] for _ in sequences]
        for start in range(0, max(map(len, sequences)), chunk):
            alive = [i for i, tokens in enumerate(sequences) if start < len(tokens)]
            rows = []
            for i in alive:
                piece = sequences[i][start : start + chunk]
                rows.append(SequenceRows(piece, start, tables[i], logits=len(piece)))
            for i, logits in zip(alive, self.step(rows), strict=True):
                parts[i].append(logits)
        return [np.concatenate(p) for p in parts]

    def greedy(
        self, prompt: Sequence[int], count: int, *, use_cache: bool = True
    ) -> tuple[list[int], Logits]:
        """``count`` greedy tokens and the logits each was chosen from."""
        tokens = list(prompt)
        table = self.new_sequence(len(prompt) + count)
        computed = 0
        rows = []
        for _ in range(count):
            start = computed if use_cache else 0
            while start < len(tokens):
                piece = tokens[start : start + self.executor.max_rows]
                (logits,) = self.step([SequenceRows(piece, start, table)])
                start += len(piece)
            computed = len(tokens)
            rows.append(logits[-1])
            tokens.append(int(np.argmax(logits[-1])))
        return tokens[len(prompt) :], np.stack(rows)


def make_embedding_infinite(llm: LLM, token: int) -> None:
    """Makes logits behind ``token`` not finite; a file with such a weight would be refused."""
    embedding: Any = llm.runner.executor.weights["model.embed_tokens.weight"]
    embedding.pack(token, np.full(embedding.cols, np.inf, np.float32).view(np.uint8))


def assert_same_bits(actual: Logits, expected: Logits) -> None:
    """Equal bit for bit, and worth comparing: finite, and not all alike."""
    assert np.isfinite(expected).all()
    assert expected.std() > 0
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))
