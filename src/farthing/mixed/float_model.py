"""A model in floats over the windows of a calibration text: the truth that harm is measured by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from farthing import machine
from farthing.engine.block_pool import blocks_for
from farthing.engine.model_loader import kv_bytes_per_token, packed_bytes, require_head_dim
from farthing.errors import InsufficientMemoryError
from farthing.evaluation.divergence import Comparison
from farthing.mixed.units import find_units, products
from farthing.models.checkpoint import Checkpoint
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Embed, Op, Program, Tap
from farthing.program.parts import seams, section
from farthing.program.step import SequenceRows, StepOutput, step_batch
from farthing.program.weights import NativeWeight, load_weights, new_matrix

FloatArray = NDArray[np.float32]

UNSCORED = 16
"""Positions at the beginning of a window that have too little before them to count."""

_STATES = "hidden_states"
_OVERHEAD_BYTES = 300 << 20  # interpreter, libraries, workspace, a section's matrices


class FloatModel:
    """The model of ``checkpoint`` with its matrices in floats; close it after use.

    Stored codes become float16, so that activations stay floats too; keys and values are float32.
    ``windows`` (n, tokens + 1) are token ids. Every pass runs all of them, and what counts of one
    are the logits behind its first ``UNSCORED`` positions.

    Raises :class:`InsufficientMemoryError` before anything large is allocated, and
    :class:`UnsupportedOperationError` for heads that no kernel runs.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        program: Program,
        windows: NDArray[np.int32],
        *,
        num_threads: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        require_head_dim(checkpoint)
        self.program = program
        self.num_threads = num_threads
        self.shape = (len(windows), windows.shape[1] - 1)
        self.scored = self.shape[1] - UNSCORED
        self._tokens = windows[:, :-1]
        self._targets = np.ascontiguousarray(windows[:, UNSCORED + 1 :]).reshape(-1)
        sources = checkpoint.as_half(program).tensors
        routers = program.routers
        total = sum(
            packed_bytes(sources[slot.name], router=slot.name in routers)
            for slot in program.weights
        )
        _check_memory(checkpoint, program, total, windows.size, len(self._targets))
        done = 0

        def advance(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            progress(min(done, total), total)

        self.weights: dict[str, NativeWeight] = load_weights(
            program, sources, num_threads=num_threads, progress=advance
        )
        config = checkpoint.config
        self._blocks = blocks_for(self.shape[1])
        self._kv = KvCache(
            dtype="fp32",
            num_layers=program.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_blocks=self._blocks * self.shape[0],
        )
        self._comparison = Comparison(
            config.vocab_size,
            num_threads,
            model=f"{checkpoint.path}, rounded",
            reference=str(checkpoint.path),
        )
        self._logits = self._run(program, self.weights, self._tokens, self.scored).logits.copy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._comparison.__exit__()

    @property
    def tokens(self) -> NDArray[np.int32]:
        """What a pass reads, (n, tokens)."""
        return self._tokens

    def divergence(self, weights: Mapping[str, NativeWeight]) -> float:
        """Mean D(model || with ``weights``) of the next token, nats; others stay as they are."""
        changed = {**self.weights, **weights}
        return self._score(self._run(self.program, changed, self._tokens, self.scored))

    def divergence_from(
        self, states: FloatArray, at: int, weights: Mapping[str, NativeWeight]
    ) -> float:
        """The same from the seam ``at`` on, where the model has ``states`` (rows, width)."""
        program, inputs = self._section(states, at, len(self.program.ops))
        changed = {**self.weights, **inputs, **weights}
        return self._score(self._run(program, changed, self._rows(), self.scored))

    def divergence_of(self, weight: Callable[[str], NativeWeight]) -> float:
        """The same with ``weight(name)`` for every matrix of a unit, never all of them in memory.

        Each is asked for once, in the order of units, before the section that reads it first, and
        let go behind the last that does.
        """
        units = find_units(self.program)
        present: dict[str, NativeWeight] = {}
        states = np.empty((0, 0), np.float32)
        end = len(self.program.ops)
        for at, to in pairwise([0, *seams(self.program), end]):
            for unit in units:
                if at <= unit.first < to:
                    present |= {name: weight(name) for name in unit.weights}
            if to == end:
                break
            states = self.advance(states, at, to, present)[0] if at else self.embeddings(present)
            for unit in units:
                if at <= unit.last < to:
                    for name in unit.weights:
                        del present[name]
        return self.divergence_from(states, at, present)

    def advance(
        self,
        states: FloatArray,
        at: int,
        to: int,
        weights: Mapping[str, NativeWeight] = MappingProxyType({}),
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The states at the seam ``to``, and what each matrix on the way there multiplies.

        By the name of the matrix, the first of experts. At the end there are no states, (0, ...).
        ``weights`` go before the model's own.
        """
        program, inputs = self._section(states, at, to)
        program = _with_taps(program)
        ends = to == len(self.program.ops)
        rows = self.scored if ends else self.shape[1]
        output = self._run(program, {**self.weights, **inputs, **weights}, self._rows(), rows)
        states = output.logits[: 0 if ends else None].copy()
        return states, {name: x.copy() for name, x in output.taps.items()}

    def embeddings(self, weights: Mapping[str, NativeWeight] = MappingProxyType({})) -> FloatArray:
        """The states behind the embedding, at the first seam, (rows, width)."""
        embed = self.program.ops[0]
        assert isinstance(embed, Embed)
        p = ProgramBuilder()
        table = next(slot for slot in self.program.weights if slot.name == embed.table)
        program = p.finish(p.logit_rows(p.embed(table)))
        changed = {**self.weights, **weights}
        return self._run(program, changed, self._tokens, self.shape[1]).logits.copy()

    def _section(
        self, states: FloatArray, at: int, to: int
    ) -> tuple[Program, dict[str, NativeWeight]]:
        program = section(self.program, at, to, _STATES, len(states))
        table = new_matrix("f32", *states.shape)
        table.pack(0, np.ascontiguousarray(states).view(np.uint8))
        return program, {_STATES: table}

    def _rows(self) -> NDArray[np.int32]:
        return np.arange(self.shape[0] * self.shape[1], dtype=np.int32).reshape(self.shape)

    def _run(
        self,
        program: Program,
        weights: Mapping[str, NativeWeight],
        tokens: NDArray[np.int32],
        logits: int,
    ) -> StepOutput:
        executor = NativeExecutor(
            program, weights, num_threads=self.num_threads, max_rows=tokens.size
        )
        rows = [
            SequenceRows(row.tolist(), 0, range(i * self._blocks, (i + 1) * self._blocks), logits)
            for i, row in enumerate(tokens)
        ]
        return executor.run(step_batch(rows), self._kv)

    def _score(self, output: StepOutput) -> float:
        found = self._comparison.score(self._targets, output.logits, self._logits).kl
        assert found is not None
        return float(found.mean())


def _with_taps(program: Program) -> Program:
    """``program`` that hands out what each of its units multiplies, where it is a value."""
    ops: list[Op] = []
    for op in program.ops:
        ops += [Tap(x, weights[0]) for weights, x in products(op) if x is not None]
        ops.append(op)
    return replace(program, ops=tuple(ops))


def _check_memory(
    checkpoint: Checkpoint, program: Program, weight_bytes: int, tokens: int, scored: int
) -> None:
    """Raises :class:`InsufficientMemoryError` where floats, and what is beside them, do not fit.

    Beside them: the largest unit once more, rounded to 16 bits at most, keys and values, and the
    logits of two models.
    """
    tensors = checkpoint.tensors
    rounded = max(
        2 * sum(tensors[name].rows * tensors[name].cols for name in unit.weights)
        for unit in find_units(program)
    )
    logits = 2 * 4 * scored * checkpoint.config.vocab_size
    kv = tokens * kv_bytes_per_token(program, "fp32")
    needed = weight_bytes + rounded + kv + logits + _OVERHEAD_BYTES
    available = machine.memory_available()
    if needed > available:
        raise InsufficientMemoryError(
            f"{checkpoint.path}: measuring it in floats takes {needed >> 20:,} MiB, "
            f"{available >> 20:,} MiB are available; --scheme needs no measurement"
        )
