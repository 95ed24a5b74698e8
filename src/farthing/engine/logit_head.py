"""The last part of a model alone: logits of hidden states that its body gave earlier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farthing import machine
from farthing.engine.block_pool import blocks_for
from farthing.engine.model_loader import packed_bytes
from farthing.errors import FarthingError, InsufficientMemoryError, ModelFormatError
from farthing.models.checkpoint import Checkpoint
from farthing.models.registry import build_program
from farthing.program.native import FloatMode, KvCache, NativeExecutor
from farthing.program.parts import head
from farthing.program.step import SequenceRows, step_batch
from farthing.program.weights import PackedSource, WeightSource, load_weights

_STATES = "hidden_states"


class LogitHead:
    """What the model of ``checkpoint`` does to the rows that need logits, ``max_rows`` at a time.

    The logits are those of the whole model, bit for bit. Raises
    :class:`InsufficientMemoryError` before anything large is allocated.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, max_rows: int, num_threads: int | None = None
    ) -> None:
        self.path = checkpoint.path
        with FloatMode():
            program = head(build_program(checkpoint.config), _STATES, max_rows)
        self.weight_bytes = sum(
            packed_bytes(checkpoint.tensors[slot.name])
            for slot in program.weights
            if slot.name != _STATES
        )
        needed = self.weight_bytes + 4 * max_rows * program.output.width
        available = machine.memory_available()
        if needed > available:
            raise InsufficientMemoryError(
                f"{checkpoint.path}: its output projection and logits take {needed >> 20} MiB, "
                f"{available >> 20} MiB are available"
            )
        width = next(slot.shape[1] for slot in program.weights if slot.name == _STATES)
        sources: dict[str, WeightSource | PackedSource] = {
            **checkpoint.tensors,
            _STATES: _NoStates(checkpoint.path, (max_rows, width)),
        }
        num_threads = num_threads or machine.default_threads()
        self._weights = load_weights(program, sources, num_threads=num_threads)
        self._executor = NativeExecutor(
            program, self._weights, num_threads=num_threads, max_rows=max_rows
        )
        # A pass wants a cache, in which this one stores nothing.
        self._kv = KvCache(
            dtype="fp16",
            num_layers=1,
            num_kv_heads=1,
            head_dim=16,
            num_blocks=blocks_for(max_rows),
        )

    def logits(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits (rows, vocab) of ``states`` (rows, width), overwritten by the next call."""
        table = self._weights[_STATES]
        assert not isinstance(table, np.ndarray)
        table.pack(0, np.ascontiguousarray(states).view(np.uint8))
        rows = len(states)
        batch = step_batch([SequenceRows(range(rows), 0, range(self._kv.num_blocks), logits=rows)])
        logits: NDArray[np.float32] = self._executor.run(batch, self._kv).logits
        return logits


@dataclass(frozen=True, slots=True)
class _NoStates:
    """The table of states before there are any."""

    path: Path
    shape: tuple[int, int]
    dtype: str = "f32"

    def read_rows(self, start: int, stop: int) -> NDArray[np.uint8]:
        return np.zeros((stop - start, 4 * self.shape[1]), np.uint8)

    def dequantize(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        return np.zeros((self.shape[0], self.shape[1]), np.float32)[start:stop]

    def not_finite(self, row: int, column: int) -> FarthingError:
        return ModelFormatError(self.path, f"hidden state {row} is not finite at {column}")
