"""What one pass of a program is given: rows of several sequences as flat arrays.

The same :class:`StepBatch` is played by every executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError

BLOCK_TOKENS = 16
"""Tokens in one KV block: a constant of the numerics, the same in ``csrc/core/types.h``."""

NOT_FINITE = -1
"""In place of a token: a logit of the row is NaN, or none is finite."""

Int32Array = NDArray[np.int32]
FloatArray = NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """T rows (tokens) of S sequences, each sequence with at least one row.

    Sequence s owns rows ``row_offsets[s]:row_offsets[s + 1]``, at consecutive positions. Position p
    of it keeps its k and v in slot ``p % BLOCK_TOKENS`` of KV block
    ``block_tables[s, p // BLOCK_TOKENS]``: the table is the only identity a sequence has here, so
    two sequences share a prefix by naming the same blocks. Table entries beyond a sequence's last
    position are never read. An executor refuses arrays that contradict each other.
    """

    # Rows: what is computed.
    tokens: Int32Array  # (T,) token ids
    positions: Int32Array  # (T,) absolute positions, from 0

    # Sequences: who owns which rows and which KV blocks.
    row_offsets: Int32Array  # (S + 1,) from 0 to T
    block_tables: Int32Array  # (S, max_blocks)

    # Results: which rows are handed back, in this order.
    logit_rows: Int32Array  # (K,) row indices
    argmax_rows: Int32Array  # (A,) row indices of which only the greedy token is wanted
    hidden_rows: Int32Array  # (H,) row indices

    def check(self) -> None:
        """For executors that do not look at every index themselves.

        Raises :class:`InvalidParameterError` when the arrays contradict each other.
        """
        for name, ndim in _NDIMS.items():
            array = getattr(self, name)
            if array.dtype != np.int32 or array.ndim != ndim or not array.flags.c_contiguous:
                raise InvalidParameterError(
                    f"{name}: expected a contiguous int32 array of {ndim} dimension(s), "
                    f"got {array.dtype} of shape {array.shape}"
                )
        rows, offsets = self.num_rows, self.row_offsets
        if self.positions.size != rows:
            raise InvalidParameterError(
                f"positions: {self.positions.size} entries for {rows} tokens"
            )
        lengths = np.diff(offsets)
        if offsets.size < 2 or offsets[0] != 0 or offsets[-1] != rows or lengths.min() < 1:
            raise InvalidParameterError(
                f"row_offsets: {offsets.tolist()} does not split {rows} rows into sequences of at "
                "least one row"
            )
        expected = np.arange(rows, dtype=np.int32) + np.repeat(
            self.positions[offsets[:-1]] - offsets[:-1], lengths
        )
        if (self.positions != expected).any() or self.positions.min() < 0:
            raise InvalidParameterError(
                "positions: the rows of a sequence must be at consecutive positions from 0 up"
            )
        last_blocks = self.positions[offsets[1:] - 1] // BLOCK_TOKENS
        tables = self.block_tables
        if tables.shape[0] != self.num_sequences or last_blocks.max() >= tables.shape[1]:
            raise InvalidParameterError(
                f"block_tables: shape {tables.shape} cannot hold {self.num_sequences} sequence(s) "
                f"with up to {int(last_blocks.max()) + 1} block(s)"
            )
        if (tables[np.arange(tables.shape[1]) <= last_blocks[:, None]] < 0).any():
            raise InvalidParameterError("block_tables: a negative block id is in use")
        for name in ("logit_rows", "argmax_rows", "hidden_rows"):
            indices = getattr(self, name)
            if indices.size and not 0 <= indices.min() <= indices.max() < rows:
                raise InvalidParameterError(f"{name}: a row index is outside 0..{rows - 1}")

    @property
    def num_rows(self) -> int:
        """T."""
        return self.tokens.size

    @property
    def num_sequences(self) -> int:
        """S."""
        return self.row_offsets.size - 1


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """Results of one step, in the executor's floating-point type."""

    logits: FloatArray  # (K, vocab)
    argmax: Int32Array  # (A,) the highest logit's token, lowest id; NOT_FINITE if there is none
    hidden: FloatArray | None  # (H, width); None if the program hands out no hidden state
    taps: Mapping[str, FloatArray]  # by tap name, (T, width)


_NDIMS = {
    "tokens": 1,
    "positions": 1,
    "row_offsets": 1,
    "block_tables": 2,
    "logit_rows": 1,
    "argmax_rows": 1,
    "hidden_rows": 1,
}


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """What one sequence contributes to a step: ``tokens`` at ``position`` and onward.

    ``logits``, ``argmax`` and ``hidden`` count the last rows whose logits, greedy token and hidden
    state are wanted.
    """

    tokens: Sequence[int]
    position: int
    block_table: Sequence[int]  # at least the blocks up to the last token
    logits: int = 1
    argmax: int = 0
    hidden: int = 0


def step_batch(sequences: Sequence[SequenceRows]) -> StepBatch:
    """Flattens ``sequences`` into a :class:`StepBatch`, their rows in the order given."""
    if not sequences:
        raise InvalidParameterError("sequences: a step needs at least one sequence")
    tokens: list[int] = []
    positions: list[int] = []
    offsets = [0]
    tables: list[int] = []
    logit_rows: list[int] = []
    argmax_rows: list[int] = []
    hidden_rows: list[int] = []
    max_blocks = max([len(sequence.block_table) for sequence in sequences])
    for sequence in sequences:
        length = len(sequence.tokens)
        _check_counts(sequence, length)
        tokens += sequence.tokens
        end = len(tokens)
        positions += range(sequence.position, sequence.position + length)
        offsets.append(end)
        tables += sequence.block_table
        tables += [-1] * (max_blocks - len(sequence.block_table))
        logit_rows += range(end - sequence.logits, end)
        argmax_rows += range(end - sequence.argmax, end)
        hidden_rows += range(end - sequence.hidden, end)
    # One array cut in pieces: between two passes everything that is called comes from memory.
    parts = (tokens, positions, offsets, tables, logit_rows, argmax_rows, hidden_rows)
    whole = np.array([*chain.from_iterable(parts)], np.int32)
    pieces = []
    begin = 0
    for part in parts:
        pieces.append(whole[begin : begin + len(part)])
        begin += len(part)
    pieces[3] = pieces[3].reshape(len(sequences), max_blocks)
    return StepBatch(*pieces)


def _check_counts(sequence: SequenceRows, length: int) -> None:
    if length == 0:
        raise InvalidParameterError("sequences: each needs at least one row")
    for name, count in (
        ("logits", sequence.logits),
        ("argmax", sequence.argmax),
        ("hidden", sequence.hidden),
    ):
        if not 0 <= count <= length:
            raise InvalidParameterError(
                f"{name}: {count} rows asked of a sequence with {length} row(s)"
            )
