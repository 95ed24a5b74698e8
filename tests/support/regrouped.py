"""Executors that compute something else than they should: what tests of equal bits must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.program.native import KvCache
from farthing.program.step import StepBatch, StepOutput
from support.recorded_logits import Executor

When = Callable[[StepBatch], bool]


class OtherPasses:
    """Some passes are given to another executor."""

    def __init__(self, executor: Executor, other: Executor, when: When) -> None:
        self.executor = executor
        self.other = other
        self.when = when

    @property
    def threads(self) -> Any:
        return self.executor.threads

    @property
    def num_threads(self) -> int:
        return self.executor.num_threads

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput:
        """One pass."""
        return (self.other if self.when(batch) else self.executor).run(batch, kv)


class OtherTables(OtherPasses):
    """Passes with block tables that ``change`` has made of theirs."""

    def __init__(
        self, executor: Executor, change: Callable[[StepBatch, NDArray[np.int32]], None]
    ) -> None:
        super().__init__(executor, executor, lambda batch: True)
        self.change = change

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput:
        """One pass."""
        tables = batch.block_tables.copy()
        self.change(batch, tables)
        return self.executor.run(replace(batch, block_tables=tables), kv)


def last_key_first(batch: StepBatch, tables: NDArray[np.int32]) -> None:
    """Attention visits what is stored in whole blocks from its end to its beginning.

    Keys are stored rotated and every row of the pass sees them all, if there is no window: the sums
    have the same terms, in other groups.
    """
    for table, offset in zip(tables, batch.row_offsets, strict=False):
        full = batch.positions[offset] // BLOCK_TOKENS
        table[:full] = table[:full][::-1].copy()


def with_columns_in_another_order(source: Path, target: Path) -> Path:
    """Writes a model whose MLP sums the same products in another order; returns ``target``."""
    target.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (target / file.name).write_bytes(file.read_bytes())
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    for name, values in tensors.items():
        if name.endswith(("gate_proj.weight", "up_proj.weight")):
            tensors[name] = np.ascontiguousarray(values[_order(values.shape[0])])
        elif name.endswith("down_proj.weight"):
            tensors[name] = np.ascontiguousarray(values[:, _order(values.shape[1])])
    safetensors.numpy.save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def _order(width: int) -> NDArray[np.int64]:
    return np.random.default_rng(width).permutation(width)
