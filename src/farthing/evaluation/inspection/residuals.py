"""The residual stream of a model on a prompt, as the kernels that serve compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import blocks_for
from farthing.engine.model_loader import LoadOptions, load_model
from farthing.errors import ContextLengthError, FarthingError, InvalidParameterError
from farthing.evaluation.inspection.outliers import PointOutliers, RunningMaxima
from farthing.evaluation.text import encode_text
from farthing.models.checkpoint import Checkpoint
from farthing.models.checkpoint.checkpoint import tokenizer_of
from farthing.program.step import SequenceRows, step_batch

ROWS = 128
"""Tokens of a pass: what bounds the memory that the streams of all layers take."""

PROMPT = (
    "The harbour was quiet when the first boats came back. Two men carried the nets up the steps, "
    "and a third counted the baskets and wrote the number on a slate: 47, three more than the day "
    "before. “We should have gone out at five,” he said, “the wind turns after seven.” Behind the "
    "fish market, the bakery had just opened; its windows were white with steam, and the smell of "
    "bread went down the street as far as the church."
)
"""An ordinary text: no code, no list, nothing rare."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text as a model reads it."""

    text: str
    tokens: tuple[int, ...]  # the vocabulary's own beginning included
    spellings: tuple[str, ...]  # of each token


def encode_prompt(checkpoint: Checkpoint, text: str, what: str) -> Prompt:
    """The tokens of ``text``, at least two; ``what`` names it in errors.

    Raises :class:`InvalidParameterError`, :class:`ContextLengthError`, and
    :class:`ModelNotFoundError` for a model without a tokenizer.
    """
    tokenizer = tokenizer_of(checkpoint)
    tokens = [*tokenizer.beginning, *encode_text(tokenizer, text)]
    context = checkpoint.config.context_length
    if len(tokens) < 2:
        raise InvalidParameterError(f"{what}: has {len(tokens)} token(s); at least 2 are needed")
    if len(tokens) > context:
        raise ContextLengthError(
            f"{what}: has {len(tokens)} tokens, more than the model's context of {context}; "
            "give a shorter one"
        )
    spellings = (
        tokenizer.token_bytes(t) or (tokenizer.id_to_token(t) or "").encode() for t in tokens
    )
    return Prompt(
        text, tuple(tokens), tuple(spelling.decode("utf-8", "replace") for spelling in spellings)
    )


class ResidualStream:
    """A loaded model that hands out what each layer leaves in the residual stream."""

    def __init__(
        self,
        path: Path,
        prompt: Prompt,
        layers: int,
        *,
        num_threads: int | None,
        progress: Callable[[int, int], None],
    ) -> None:
        """Loads the model at ``path``; ``progress(done, total)`` is told bytes of weights."""
        self.points = {_tap(layer): layer for layer in (None, *range(layers))}
        self._path = path
        self._tokens = prompt.tokens
        options = LoadOptions(
            max_model_len=len(self._tokens),
            num_threads=num_threads,
            max_num_batched_tokens=ROWS,
            body_only=True,
            taps=tuple(self.points),
        )
        self._loaded = load_model(path, options, progress)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory."""
        return sum(w.nbytes for w in self._loaded.runner.executor.weights.values())

    def passes(self) -> Iterator[tuple[int, Mapping[str, NDArray[np.floating]]]]:
        """Where each pass over the prompt starts, and its stream (n, width) at each point.

        The arrays are overwritten by the next pass. Raises :class:`FarthingError` for a stream
        that is not finite.
        """
        blocks = range(blocks_for(len(self._tokens)))
        runner = self._loaded.runner
        for start in range(0, len(self._tokens), ROWS):
            rows = SequenceRows(self._tokens[start : start + ROWS], start, blocks)
            taps = runner.executor.run(step_batch([rows]), runner.kv).taps
            for name in self.points:
                if not np.isfinite(taps[name]).all():
                    raise FarthingError(f"{self._path}: {name} is not finite on this prompt")
            yield start, taps

    def values(self, layer: int | None) -> NDArray[np.float32]:
        """The stream behind one layer, None for the embeddings, (tokens, width)."""
        point = _tap(layer)
        return np.concatenate([taps[point].astype(np.float32) for _, taps in self.passes()])

    def outliers(self, progress: Callable[[int, int], None]) -> tuple[PointOutliers, ...]:
        """The largest values at every point; ``progress(done, total)`` is told tokens."""
        everything: dict[str, RunningMaxima] = {}
        after_first: dict[str, RunningMaxima] = {}
        for start, taps in self.passes():
            for name in self.points:
                rows, skipped = taps[name], 1 if start == 0 else 0
                width = rows.shape[1]
                everything.setdefault(name, RunningMaxima(width)).add(start, rows)
                after_first.setdefault(name, RunningMaxima(width)).add(
                    start + skipped, rows[skipped:]
                )
            progress(start + len(rows), len(self._tokens))
        return tuple(
            PointOutliers(layer, everything[name].result(), after_first[name].result())
            for name, layer in self.points.items()
        )


def _tap(layer: int | None) -> str:
    """The name under which programs hand out the stream."""
    return "embeddings" if layer is None else f"layers.{layer}.residual"
