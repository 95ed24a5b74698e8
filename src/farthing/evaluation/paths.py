"""Greedy paths of a reference, and what another model says at each of their positions.

Each position is given the reference's tokens before it, whatever the other model would have said
there: one early difference does not count many times, and the share of positions that agree is the
share of draft tokens that speculation would accept (Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding", 2023, section 3.1, with greedy decoding).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import blocks_for
from farthing.engine.model_loader import LoadedModel
from farthing.errors import FarthingError, InvalidParameterError
from farthing.program.step import NOT_FINITE, SequenceRows, step_batch

SEQUENCES = 32
"""Paths that are decoded together: weights are read once for all of them."""

Int32Array = NDArray[np.int32]
Told = Callable[[int, int], None]
"""Is told how many positions there are, and how many there are to be."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Greedy continuations, each of a prompt of its own."""

    prompts: Int32Array  # (paths, prompt tokens)
    tokens: Int32Array  # (paths, longest): what the reference says, step by step
    lengths: Int32Array  # (paths,) tokens of each that count, one that ends it included

    @property
    def positions(self) -> int:
        """Of all paths together."""
        return int(self.lengths.sum())

    @property
    def path_of(self) -> Int32Array:
        """Which path each position is of, (positions,)."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)

    @property
    def said(self) -> Int32Array:
        """The reference's token at each position, path by path, (positions,)."""
        return self.tokens[np.arange(self.tokens.shape[1]) < self.lengths[:, None]]


def passages(
    ids: Sequence[int], beginning: Sequence[int], *, length: int, needed: int, what: str
) -> Int32Array:
    """All whole passages of a text, (passages, length), in an order that spreads any few of them.

    ``beginning`` is what the vocabulary puts before a text; it takes the place of a passage's first
    tokens. Raises :class:`InvalidParameterError` where there are fewer than ``needed``; ``what``
    names the text.
    """
    count = len(ids) // length
    if count < needed:
        raise InvalidParameterError(
            f"{what}: {needed} prompts of {length} tokens are needed for that many positions, and "
            f"the text has {len(ids):,} tokens, enough for {count}; give a longer text or fewer "
            "--positions"
        )
    whole = np.array(ids[: count * length], np.int32).reshape(count, length)
    whole[:, : len(beginning)] = beginning
    # Steps of a golden section leave no two of the first few near each other.
    step = max(1, round(count * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, count) > 1:
        step += 1
    return whole[np.arange(count) * step % count]


def greedy_paths(
    loaded: LoadedModel,
    prompts: Int32Array,
    *,
    positions: int,
    length: int,
    ends: Collection[int],
    told: Told,
) -> Paths:
    """The likeliest token behind a prompt, the likeliest behind both, and so on.

    A path has ``length`` tokens, or fewer where one of ``ends`` is said. As many ``prompts`` are
    taken as give ``positions`` tokens; the last path is cut so that they are just as many. Raises
    :class:`InvalidParameterError` when the prompts run out before, :class:`FarthingError` for
    logits that are not finite.
    """
    done: list[_Batch] = []
    used = count = 0
    while count < positions:
        wanted = -(-(positions - count) // length)
        if used + wanted > len(prompts):
            raise InvalidParameterError(
                f"paths end early: {used} of the text's {len(prompts)} passages gave {count:,} of "
                f"{positions:,} positions; give a longer text or fewer --positions"
            )
        blocks = blocks_for(prompts.shape[1] + length)
        size = min(wanted, SEQUENCES, loaded.runner.num_blocks // blocks)
        batch = _Batch(loaded, prompts[used : used + size], length, ends)
        done.append(batch)
        used += size
        count += int(batch.lengths.sum())
        told(min(count, positions), positions)
    lengths = np.concatenate([batch.lengths for batch in done])
    excess = count - positions
    while excess >= lengths[-1]:
        excess -= int(lengths[-1])
        lengths = lengths[:-1]
    lengths[-1] -= excess
    tokens = np.concatenate([batch.tokens for batch in done])
    return Paths(prompts[: len(lengths)], tokens[: len(lengths)], lengths)


class _Batch:
    """Paths that are decoded side by side."""

    def __init__(
        self, loaded: LoadedModel, prompts: Int32Array, length: int, ends: Collection[int]
    ) -> None:
        count, width = prompts.shape
        blocks = blocks_for(width + length)
        self.tokens = np.zeros((count, length), np.int32)
        self.lengths = np.zeros(count, np.int32)
        running = list(range(count))
        for step in range(length):
            rows = [
                SequenceRows(
                    prompts[i].tolist() if step == 0 else [int(self.tokens[i, step - 1])],
                    0 if step == 0 else width + step - 1,
                    range(i * blocks, (i + 1) * blocks),
                    logits=0,
                    argmax=1,
                )
                for i in running
            ]
            self.tokens[running, step] = _likeliest(loaded, rows)
            self.lengths[running] += 1
            running = [i for i in running if int(self.tokens[i, step]) not in ends]
            if not running:
                break


def likeliest_tokens(loaded: LoadedModel, paths: Paths, told: Told) -> Int32Array:
    """What the model finds likeliest at each position of ``paths``, path by path, (positions,).

    All positions of a path in one pass; the tokens are those that decoding step by step gives.
    Raises :class:`FarthingError` for logits that are not finite.
    """
    found: list[Int32Array] = []
    done = 0
    count, width = paths.prompts.shape
    blocks = blocks_for(width + paths.tokens.shape[1])
    size = min(SEQUENCES, loaded.runner.num_blocks // blocks)
    for first in range(0, count, size):
        rows = [
            SequenceRows(
                [*paths.prompts[i].tolist(), *paths.tokens[i, : paths.lengths[i] - 1].tolist()],
                0,
                range((i - first) * blocks, (i - first + 1) * blocks),
                logits=0,
                argmax=int(paths.lengths[i]),
            )
            for i in range(first, min(first + size, count))
        ]
        found.append(_likeliest(loaded, rows))
        done += len(found[-1])
        told(done, paths.positions)
    return np.concatenate(found)


def _likeliest(loaded: LoadedModel, rows: Sequence[SequenceRows]) -> Int32Array:
    """The greedy tokens that ``rows`` ask for, in as many passes as the executor's rows take."""
    runner = loaded.runner
    found: list[Int32Array] = []
    batch: list[SequenceRows] = []
    taken = 0
    for each in [*rows, None]:
        if each is None or taken + len(each.tokens) > runner.executor.max_rows:
            found.append(runner.executor.run(step_batch(batch), runner.kv).argmax)
            batch, taken = [], 0
        if each is not None:
            batch.append(each)
            taken += len(each.tokens)
    tokens = np.concatenate(found)
    if (tokens == NOT_FINITE).any():
        path = loaded.checkpoint.path
        raise FarthingError(f"{path}: the model gives logits that are not finite")
    return tokens
