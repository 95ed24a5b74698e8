"""What all models of an evaluation are put to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
from farthing.errors import (
    ContextLengthError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
)
from farthing.evaluation import speed
from farthing.evaluation.answers import longest_question
from farthing.evaluation.battery import Battery
from farthing.evaluation.paths import SEQUENCES, passages
from farthing.evaluation.settings import Settings
from farthing.evaluation.text import Windows, cut_windows, encode_text
from farthing.evaluation.vocabulary import Vocabulary
from farthing.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The text in windows, prompts of paths, questions, and how much context they take."""

    windows: Windows
    bytes_scored: int  # of text that the scored tokens stand for
    prompts: NDArray[np.int32] | None  # (passages of the text, tokens); None: no paths
    battery: Battery | None
    context: int  # tokens of the longest sequence
    cached_tokens: int  # of all sequences together


def make_task(
    model: Checkpoint,
    reference: Checkpoint | None,
    text: str,
    text_name: str,
    battery: Battery | None,
    settings: Settings,
) -> Task:
    """The task for ``model`` and, if there is one, ``reference``, which may be the same.

    ``text_name`` is what errors call the text. Raises :class:`InvalidParameterError` for a text too
    short and a reference of another vocabulary, :class:`ContextLengthError` for what is longer than
    the context of a model.
    """
    vocabulary = _vocabulary(reference or model)
    tokenizer = vocabulary.tokenizer
    ids = encode_text(tokenizer, text)
    if reference is not None and reference is not model:
        _require_same_vocabulary(model, reference, vocabulary, text, ids)
    vocab = model.config.vocab_size
    if max(ids, default=0) >= vocab:
        raise ModelFormatError(
            model.path, f"its tokenizer gives token {max(ids)}, its vocabulary has {vocab}"
        )
    windows = cut_windows(
        ids,
        tokenizer.beginning,
        context=settings.context,
        limit=settings.windows,
        what=text_name,
    )
    if windows.targets.size < settings.least_scored:
        raise InvalidParameterError(
            f"{text_name}: {windows.targets.size:,} of its tokens are scored, and --recommend "
            f"takes {settings.least_scored:,} at least; give a longer text"
        )
    prompts = None
    sequence = settings.prompt_tokens + settings.path_tokens
    lengths = [
        _Length(
            f"windows of {settings.context} tokens", settings.context, "give a smaller --context"
        )
    ]
    cached = [settings.context]
    if reference is not None and settings.positions:
        prompts = passages(
            ids,
            tokenizer.beginning,
            length=settings.prompt_tokens,
            needed=-(-settings.positions // settings.path_tokens),
            what=text_name,
        )
        lengths.append(
            _Length(
                f"prompts and paths of {sequence} tokens", sequence, "--positions 0 leaves them out"
            )
        )
        cached.append(SEQUENCES * blocks_for(sequence) * BLOCK_TOKENS)
    if battery is not None:
        longest = longest_question(tokenizer, battery)
        lengths.append(
            _Length(
                f"the battery's questions of up to {longest} tokens with their answers",
                longest,
                "--battery none leaves it out",
            )
        )
    if settings.speed:
        timed = speed.CONTEXT + 1
        lengths.append(
            _Length(
                f"sequences of {timed} tokens, whose speed is measured,",
                timed,
                "--no-speed leaves it out",
            )
        )
        cached.append(speed.CACHED_TOKENS)
    context = max(length.tokens for length in lengths)
    for checkpoint in (model, reference):
        if checkpoint is not None:
            _require_context(checkpoint, lengths)
    return Task(
        windows,
        windows.bytes_scored(tokenizer.token_bytes),
        prompts,
        battery,
        context,
        max(*cached, blocks_for(context) * BLOCK_TOKENS),
    )


@dataclass(frozen=True, slots=True)
class _Length:
    """Sequences that models are put to."""

    what: str
    tokens: int
    remedy: str  # where that is more than a context


def _require_context(checkpoint: Checkpoint, lengths: Sequence[_Length]) -> None:
    most = checkpoint.config.context_length
    for length in lengths:
        if length.tokens > most:
            raise ContextLengthError(
                f"{length.what} are longer than the context of {checkpoint.path}, {most} tokens; "
                f"{length.remedy}"
            )


def _vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    if checkpoint.tokenizer is None:
        raise ModelNotFoundError(f"{checkpoint.path}: the model has no tokenizer")
    return Vocabulary(checkpoint.tokenizer)


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
