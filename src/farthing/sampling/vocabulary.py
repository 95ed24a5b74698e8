"""What parameters that name tokens or text mean for one model's vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farthing import _native
from farthing.errors import InvalidParameterError
from farthing.sampling.params import SamplingParams

_BREAKERS_KEPT = 8


class TextVocabulary(Protocol):
    """The part of a tokenizer that sampling needs."""

    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class SamplingVocabulary:
    """``size`` columns of logits and the texts of their tokens.

    A vocabulary may have more columns than its tokenizer has tokens, and the reverse.
    """

    def __init__(self, texts: TextVocabulary, size: int) -> None:
        self.size = size
        self._texts = texts
        self._breakers: OrderedDict[tuple[str, ...], _native.SequenceBreakers] = OrderedDict()

    def check(self, params: SamplingParams) -> None:
        """Raises :class:`InvalidParameterError` for a token id that the vocabulary has not."""
        for name, ids in (
            ("stop_token_ids", params.stop_token_ids),
            ("allowed_token_ids", params.allowed_token_ids),
            ("logit_bias", params.logit_bias),
        ):
            for token in ids or ():
                if token >= self.size:
                    raise InvalidParameterError(
                        f"{name}: token id {token} must be from 0 below {self.size}"
                    )

    def mask(self, tokens: Iterable[int]) -> NDArray[np.uint32]:
        """The packed bit mask that allows ``tokens``: (ceil(size / 32),)."""
        bits = np.zeros(-(-self.size // 32) * 32, np.uint8)
        bits[list(tokens)] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def sequences_of(self, words: Sequence[str]) -> list[list[int]]:
        """The token sequences that spell ``words``, each with and without a space in front.

        Raises :class:`InvalidParameterError` for a word that the model has no tokens for.
        """
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            bare = word.lstrip(" ")
            spelled = [self._texts.encode(s, add_special_tokens=False) for s in (bare, " " + bare)]
            if not any(spelled) or any(max(ids, default=0) >= self.size for ids in spelled):
                raise InvalidParameterError(f"bad_words: the model has no tokens for {word!r}")
            found |= {tuple(ids): None for ids in spelled if ids}
        return [list(ids) for ids in found]

    def breakers(self, strings: tuple[str, ...]) -> _native.SequenceBreakers:
        """Where DRY's ``strings`` may stand in a sequence of tokens.

        A token that contains a string is one; so is a token that ends with the beginning of one,
        followed by the tokens that spell the rest. Kept for the next request that asks the same:
        it takes a pass over the vocabulary.
        """
        found = self._breakers.get(strings)
        if found is None:
            found = _native.SequenceBreakers(self.size, self._breaker_sequences(strings))
            self._breakers[strings] = found
            while len(self._breakers) > _BREAKERS_KEPT:
                self._breakers.popitem(last=False)
        return found

    def _breaker_sequences(self, strings: Sequence[str]) -> list[list[int]]:
        tails = [
            (s.encode(), [(s[:n].encode(), self._tail(s[n:])) for n in range(1, len(s))])
            for s in strings
        ]
        sequences: list[list[int]] = []
        for token in range(min(self.size, self._texts.vocab_size)):
            text = self._texts.token_bytes(token)
            for whole, beginnings in tails:
                if whole in text:
                    sequences.append([token])
                else:
                    sequences += [
                        [token, *tail] for start, tail in beginnings if text.endswith(start)
                    ]
        return sequences

    def _tail(self, text: str) -> list[int]:
        ids = self._texts.encode(text, add_special_tokens=False)
        return [token for token in ids if token < self.size]
