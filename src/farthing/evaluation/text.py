"""The text that models are judged on, as windows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError
from farthing.tokenization.tokenizer import Tokenizer

MAX_TEXT_BYTES = 16 << 20
"""A longer text would take hours, and its tokens much memory."""

MIN_CONTEXT = 8


def read_text(path: Path) -> str:
    """The text of a file.

    Raises ``OSError``, and :class:`InvalidParameterError` for a file that is empty, too large or
    not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:  # that of a read does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from None
    if len(data) > MAX_TEXT_BYTES:
        raise InvalidParameterError(
            f"{path}: the text has more than the {MAX_TEXT_BYTES >> 20} MiB that can be evaluated; "
            f"give a part of it (head -c {MAX_TEXT_BYTES >> 20}M)"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(
            f"{path}: not UTF-8 text: byte {error.start} cannot be decoded; save it as UTF-8"
        ) from None
    if not text.strip():
        raise InvalidParameterError(f"{path}: the text is empty; give another")
    return text


def scored_of(context: int) -> int:
    """Tokens that are scored in a window of ``context`` tokens."""
    return context - 1 - context // 2


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Pieces of a text, each judged by itself, as ``llama-perplexity`` does.

    Of a window of n tokens those behind the first ``n // 2 + 1`` are scored, so that each has at
    least half a window before it. Where the vocabulary begins texts with a token of its own, every
    window begins with it, in the place of what stood there.
    """

    tokens: NDArray[np.int32]  # (windows, n)
    available: int  # whole windows of the text

    @property
    def context(self) -> int:
        """Tokens of a window."""
        return int(self.tokens.shape[1])

    @property
    def first(self) -> int:
        """Position in a window whose logits are the first that count."""
        return self.context // 2

    @property
    def scored(self) -> int:
        """Tokens of a window that are scored."""
        return scored_of(self.context)

    @property
    def targets(self) -> NDArray[np.int32]:
        """The tokens that are scored, (windows, scored)."""
        return self.tokens[:, self.first + 1 :]

    def bytes_scored(self, token_bytes: Callable[[int], bytes]) -> int:
        """Bytes of text that the scored tokens stand for."""
        ids, counts = np.unique(self.targets, return_counts=True)
        lengths = (len(token_bytes(int(i))) for i in ids)
        return sum(length * int(n) for length, n in zip(lengths, counts, strict=True))


def cut_windows(
    ids: Sequence[int], beginning: Sequence[int], *, context: int, limit: int | None, what: str
) -> Windows:
    """The first ``limit`` windows (all of them if None) of ``context`` tokens.

    ``ids`` are the text's alone, ``beginning`` what the vocabulary puts before a text. ``what``
    names the text in errors. Raises :class:`InvalidParameterError` for a text too short for one
    window.
    """
    tokens = np.array([*beginning, *ids], np.int32)
    available = len(tokens) // context
    if not available:
        raise InvalidParameterError(
            f"{what}: {len(tokens)} tokens are too few for a window of {context}; "
            "give a longer text or a smaller --context"
        )
    count = available if limit is None else min(limit, available)
    windows = tokens[: count * context].reshape(count, context)
    windows[:, : len(beginning)] = beginning
    return Windows(windows, available)


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of the text alone: nothing added, and the spelling of control tokens is text."""
    return tokenizer.encode(text, add_special_tokens=False)
