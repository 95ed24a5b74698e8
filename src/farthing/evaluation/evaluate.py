"""Perplexity of a model on a text, and how far its predictions are from a reference's.

A reference is never in memory beside the model. A first pass keeps the hidden states that it ends
in, a few kilobytes a token; the model's pass then makes logits of both, a few rows at a time, the
reference's by its output projection alone (``program/parts.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farthing import machine
from farthing.engine.block_pool import blocks_for
from farthing.engine.logit_head import LogitHead
from farthing.engine.model_loader import LoadedModel, LoadOptions, load_model
from farthing.errors import (
    ContextLengthError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
)
from farthing.evaluation.divergence import Comparison, Scores
from farthing.evaluation.states import StateFile
from farthing.evaluation.text import Windows, cut_windows, encode_text
from farthing.evaluation.vocabulary import Vocabulary
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.program.kv_types import KvDtype
from farthing.program.native import FloatMode
from farthing.program.step import SequenceRows, step_batch

ROWS = 128
"""Rows of a pass: what bounds the memory that logits take."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a text is run.

    The reference keeps keys and values in float32: what the model's own type costs is part of what
    is measured.
    """

    context: int = 512  # tokens of a window
    windows: int | None = None  # None: all of the text
    kv_cache_dtype: KvDtype = "fp16"
    num_threads: int | None = None


class Observer(Protocol):
    """Is told how far things are."""

    def note(self, message: str) -> None:
        """A fact worth a line, such as the memory that is taken."""

    def loading(self, path: Path, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of a model's weights are in memory."""

    def running(self, path: Path, done: int, total: int, scores: list[Scores]) -> None:
        """``done`` of ``total`` windows have run; ``scores`` of each, none of a reference."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that were taken for long, the most at a time: one model, and a reference's head."""

    model_weights: int
    reference_weights: int = 0  # freed before the model is loaded
    reference_head: int = 0
    states_on_disk: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What was found, token by token."""

    windows: Windows
    bytes_scored: int
    scores: Scores
    memory: Memory


def evaluate(
    model: Path,
    text: str,
    *,
    reference: Path | None = None,
    settings: Settings,
    observer: Observer,
    text_name: str = "the text",
) -> Evaluation:
    """Scores the model at ``model`` on ``text``, and against the one at ``reference``.

    ``text_name`` is what errors call the text. Raises :class:`InvalidParameterError` for a text too
    short or a reference of another vocabulary, and what loading a model raises.
    """
    candidate = _open(model, settings)
    if reference is None:
        windows, nbytes = _windows(candidate, None, text, settings, text_name)
        loaded = _load(model, settings, observer)
        scores = _score(loaded, windows, settings, observer)
        return Evaluation(windows, nbytes, scores, Memory(_weight_bytes(loaded)))
    truth = _open(reference, settings)
    windows, nbytes = _windows(candidate, truth, text, settings, text_name)
    with StateFile(windows.targets.size, truth.config.hidden_size) as states:
        observer.note(
            f"the reference's hidden states take {states.nbytes / 2**20:,.1f} MiB of disk in "
            f"{states.folder} until the end"
        )
        reference_bytes = _keep_states(reference, windows, states, settings, observer)
        loaded = _load(model, settings, observer)
        head = LogitHead(truth, max_rows=ROWS, num_threads=settings.num_threads)
        scores = _score(loaded, windows, settings, observer, (head, states))
        memory = Memory(_weight_bytes(loaded), reference_bytes, head.weight_bytes, states.nbytes)
        return Evaluation(windows, nbytes, scores, memory)


def _open(path: Path, settings: Settings) -> Checkpoint:
    with FloatMode():
        checkpoint = open_checkpoint(path, FAMILIES)
    if settings.context > checkpoint.config.context_length:
        raise ContextLengthError(
            f"windows of {settings.context} tokens are longer than the context of {path}, "
            f"{checkpoint.config.context_length} tokens"
        )
    return checkpoint


def _windows(
    candidate: Checkpoint,
    truth: Checkpoint | None,
    text: str,
    settings: Settings,
    text_name: str,
) -> tuple[Windows, int]:
    """The windows, and the bytes of their scored tokens."""
    vocabulary = _vocabulary(truth or candidate)
    tokenizer = vocabulary.tokenizer
    ids = encode_text(tokenizer, text)
    if truth is not None:
        _require_same_vocabulary(candidate, truth, vocabulary, text, ids)
    vocab = candidate.config.vocab_size
    if max(ids, default=0) >= vocab:
        raise ModelFormatError(
            candidate.path, f"its tokenizer gives token {max(ids)}, its vocabulary has {vocab}"
        )
    windows = cut_windows(
        ids,
        tokenizer.beginning,
        context=settings.context,
        limit=settings.windows,
        what=text_name,
    )
    return windows, windows.bytes_scored(tokenizer.token_bytes)


def _require_same_vocabulary(
    candidate: Checkpoint,
    truth: Checkpoint,
    vocabulary: Vocabulary,
    text: str,
    ids: list[int],
) -> None:
    """``ids`` are what the ``vocabulary`` of ``truth`` makes of ``text``."""
    difference = _difference(candidate, truth, vocabulary, text, ids)
    if difference is not None:
        raise InvalidParameterError(
            f"{candidate.path} and {truth.path} do not share a vocabulary ({difference}); "
            "a reference must be the same model in another precision"
        )


def _difference(
    candidate: Checkpoint, truth: Checkpoint, vocabulary: Vocabulary, text: str, ids: list[int]
) -> str | None:
    sizes = candidate.config.vocab_size, truth.config.vocab_size
    if sizes[0] != sizes[1]:
        return f"{sizes[0]} and {sizes[1]} tokens"
    own = _vocabulary(candidate)
    token = own.first_other_token(vocabulary, sizes[0])
    if token is not None:
        one, other = (ascii(s[:40].decode("utf-8", "replace")) for s in (token.one, token.other))
        return f"token {token.id} is {one} and {other}"
    tokenizer = own.tokenizer
    if tokenizer.beginning != vocabulary.tokenizer.beginning:
        return "texts begin with other tokens"
    if encode_text(tokenizer, text) != ids:
        return "they make different tokens of the text"
    return None


def _vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    if checkpoint.tokenizer is None:
        raise ModelNotFoundError(f"{checkpoint.path}: the model has no tokenizer")
    return Vocabulary(checkpoint.tokenizer)


def _load(
    path: Path, settings: Settings, observer: Observer, *, as_reference: bool = False
) -> LoadedModel:
    options = LoadOptions(
        kv_cache_dtype="fp32" if as_reference else settings.kv_cache_dtype,
        max_model_len=settings.context,
        num_threads=settings.num_threads,
        max_num_batched_tokens=ROWS,
        body_only=as_reference,
    )
    return load_model(path, options, lambda done, total: observer.loading(path, done, total))


def _weight_bytes(loaded: LoadedModel) -> int:
    return sum(weight.nbytes for weight in loaded.runner.executor.weights.values())


def _keep_states(
    reference: Path, windows: Windows, states: StateFile, settings: Settings, observer: Observer
) -> int:
    """Fills ``states``; returns the bytes of the weights that were in memory for it."""
    loaded = _load(reference, settings, observer, as_reference=True)
    for done, window in enumerate(windows.tokens, 1):
        for _, rows in _outputs(loaded, window, windows.first):
            states.append(rows)
        observer.running(reference, done, len(windows.tokens), [])
    states.rewind()
    return _weight_bytes(loaded)


def _score(
    loaded: LoadedModel,
    windows: Windows,
    settings: Settings,
    observer: Observer,
    reference: tuple[LogitHead, StateFile] | None = None,
) -> Scores:
    model = loaded.checkpoint.path
    scores: list[Scores] = []
    with Comparison(
        loaded.config.vocab_size,
        settings.num_threads or machine.default_threads(),
        model=str(model),
        reference="" if reference is None else str(reference[0].path),
    ) as comparison:
        for done, window in enumerate(windows.tokens, 1):
            for targets, logits in _outputs(loaded, window, windows.first):
                expected = None
                if reference is not None:
                    head, states = reference
                    expected = head.logits(states.read(len(targets)))
                scores.append(comparison.score(targets, logits, expected))
            observer.running(model, done, len(windows.tokens), scores)
    return Scores.joined(scores)


def _outputs(
    loaded: LoadedModel, window: NDArray[np.int32], first: int
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    """The tokens of a window that are scored and what predicts them, pass by pass.

    The arrays (rows, width) are overwritten by the next pass.
    """
    blocks = range(blocks_for(len(window)))
    last = len(window) - 1  # nothing is asked behind the last token
    for start in range(0, last, ROWS):
        stop = min(start + ROWS, last)
        asked = max(0, stop - max(start, first))
        rows = SequenceRows(window[start:stop].tolist(), start, blocks, logits=asked)
        runner = loaded.runner
        output = runner.executor.run(step_batch([rows]), runner.kv).logits
        if asked:
            yield window[stop - asked + 1 : stop + 1], output
