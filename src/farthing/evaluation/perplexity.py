"""A text in passes: what a reference ends in, and what a model predicts beside that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import blocks_for
from farthing.engine.logit_head import LogitHead
from farthing.engine.model_loader import LoadedModel
from farthing.evaluation.divergence import Comparison, Scores
from farthing.evaluation.states import StateFile
from farthing.evaluation.text import Windows
from farthing.program.step import SequenceRows, StepOutput, step_batch

LOGIT_ROWS = 128
"""Rows of a pass: what bounds the memory that their logits take."""

Told = Callable[[int, int, list[Scores]], None]
"""Is told of windows that have run, of all, and what they gave."""


@dataclass(frozen=True, slots=True)
class Truth:
    """A reference that has run: its output projection, and the states it makes logits of."""

    head: LogitHead
    states: StateFile


def keep_states(
    loaded: LoadedModel, windows: Windows, states: StateFile, told: Callable[[int, int], None]
) -> None:
    """Fills ``states`` with the final hidden states of the rows whose logits count."""
    for done, window in enumerate(windows.tokens, 1):
        for _, output in _passes(loaded, window, windows.first, hidden=True):
            assert output.hidden is not None, "every program hands out its final hidden state"
            states.append(output.hidden)
        told(done, len(windows.tokens))


def score(
    loaded: LoadedModel, windows: Windows, truth: Truth | None, num_threads: int, told: Told
) -> Scores:
    """Scores of the model on every window, and against ``truth``."""
    scores: list[Scores] = []
    if truth is not None:
        truth.states.rewind()
    with Comparison(
        loaded.config.vocab_size,
        num_threads,
        model=str(loaded.checkpoint.path),
        reference="" if truth is None else str(truth.head.path),
    ) as comparison:
        for done, window in enumerate(windows.tokens, 1):
            for targets, output in _passes(loaded, window, windows.first, hidden=False):
                expected = None
                if truth is not None:
                    expected = truth.head.logits(truth.states.read(len(targets)))
                scores.append(comparison.score(targets, output.logits, expected))
            told(done, len(windows.tokens), scores)
    return Scores.joined(scores)


def _passes(
    loaded: LoadedModel, window: NDArray[np.int32], first: int, *, hidden: bool
) -> Iterator[tuple[NDArray[np.int32], StepOutput]]:
    """The tokens of a window that are scored and what predicts them, pass by pass.

    Of the rows before ``first`` nothing is asked. The outputs are overwritten by the next pass.
    """
    blocks = range(blocks_for(len(window)))
    runner = loaded.runner
    last = len(window) - 1  # nothing is asked behind the last token
    start = 0
    while start < last:
        if start < first:
            stop = min(start + runner.executor.max_rows, first)
        else:
            stop = min(start + LOGIT_ROWS, last)
        asked = stop - start if start >= first else 0
        rows = SequenceRows(
            window[start:stop].tolist(),
            start,
            blocks,
            logits=0 if hidden else asked,
            hidden=asked if hidden else 0,
        )
        output = runner.executor.run(step_batch([rows]), runner.kv)
        if asked:
            yield window[start + 1 : stop + 1], output
        start = stop
