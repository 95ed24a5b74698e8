"""Whether two models have the same tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from farthing.tokenization.source import GgufVocabulary, TokenizerSource
from farthing.tokenization.tokenizer import Tokenizer

_UNUSED = 5  # a token type of GGUF: a place filled up, whose string is the converter's invention
_SPACE = "▁".encode()


@dataclass(frozen=True, slots=True)
class OtherToken:
    """An id and the bytes it stands for in each of two vocabularies."""

    id: int
    one: bytes
    other: bytes


class Vocabulary:
    """A tokenizer, and which of its ids stand for nothing."""

    def __init__(self, source: TokenizerSource) -> None:
        """Raises ModelFormatError as the tokenizer does."""
        self.tokenizer = Tokenizer.from_source(source)
        self._unused: Collection[int] = frozenset()
        if isinstance(source, GgufVocabulary):
            self._unused = {i for i, kind in enumerate(source.token_types) if kind == _UNUSED}

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for; empty where nothing."""
        return b"" if token_id in self._unused else self.tokenizer.token_bytes(token_id)

    def first_other_token(self, other: Vocabulary, count: int) -> OtherToken | None:
        """The first of ``count`` ids that stands for other bytes in ``other``.

        Files of one model fill its vocabulary up in their own ways, so an id that stands for
        nothing in one of them is passed over. They spell spaces of added tokens ``▁`` or as spaces.
        """
        for i in range(count):
            a, b = self.token_bytes(i), other.token_bytes(i)
            if a != b and a and b and a.replace(_SPACE, b" ") != b.replace(_SPACE, b" "):
                return OtherToken(i, a, b)
        return None
