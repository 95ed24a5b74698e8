"""The fewest tokens that a text can be, told from counts and long before it is encoded.

Where a text's tokens joined are the text, each of them has no more of some kind of byte than the
token of the vocabulary that has most. So a text with n of them is at least n / most tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from farthing.tokenization.byte_fallback import SPACE

_WHITE = b" \t\n\v\f\r"
_WORD = bytes(c for c in range(128) if chr(c).isalnum())
_MARK = bytes(c for c in range(128) if c not in _WORD and c not in _WHITE)
_FIRST = bytes(range(0xC0, 0x100))  # of a character beyond ASCII
# First bytes of U+4000 to U+9FFF and U+B000 to U+CFFF, ideographs and syllables of Hangul: NFC
# makes nothing else of them.
_STAY = bytes([*range(0xE4, 0xEA), 0xEB, 0xEC])
_WHITE_OR_NOT = bytes(0x20 if c in _WHITE else 0x78 for c in range(256))


class Kept(Enum):
    """What of a text its tokens are, joined; white space more than it has may be among them."""

    UNKNOWN = auto()
    COMPOSED = auto()  # its normal form C, or that of its parts
    ALL = auto()


class LeastTokens:
    """Of the texts of one tokenizer, which keeps as much of them as ``kept``.

    ``tokens``: the bytes that each of its vocabulary stands for. ``escaped``: ``▁`` and a space are
    the same to it.
    """

    def __init__(self, tokens: Iterable[bytes], kept: Kept, *, escaped: bool) -> None:
        self._kept = kept
        self._escaped = escaped
        if kept is Kept.UNKNOWN:
            return
        tokens = [token.replace(SPACE.encode(), b" ") if escaped else token for token in tokens]
        by_length = sorted(tokens, key=len, reverse=True)
        self._starts = _most(by_length, _starts)
        kinds = [_WHITE, _WORD, _MARK, _STAY if kept is Kept.COMPOSED else _FIRST]
        self._kinds = [
            (kind, most) for kind in kinds if (most := _most(by_length, _counting(kind)))
        ]

    def of(self, text: bytes) -> int:
        """As many tokens as ``text`` (UTF-8) is at least; 0 says nothing."""
        if self._kept is Kept.UNKNOWN or not text:
            return 0
        if self._escaped:
            text = text.replace(SPACE.encode(), b" ")
        # Words that follow white space: some are within tokens, between two tokens is at most one.
        least = -(-(_starts(text) + 1) // (self._starts + 1))
        # A letter or mark goes into a composed character with one beyond ASCII, or several.
        lost = _count(text, _FIRST) if self._kept is Kept.COMPOSED else 0
        for kind, most in self._kinds:
            found = _count(text, kind) - (lost if kind in (_WORD, _MARK) else 0)
            least = max(least, -(-found // most))
        return least


def _most(by_length: list[bytes], count: Callable[[bytes], int]) -> int:
    most = 0
    for token in by_length:
        if len(token) <= most:
            break
        most = max(most, count(token))
    return most


def _counting(kind: bytes) -> Callable[[bytes], int]:
    return lambda token: _count(token, kind)


def _count(text: bytes, kind: bytes) -> int:
    return len(text) - len(text.translate(None, kind))


def _starts(text: bytes) -> int:
    return text.translate(_WHITE_OR_NOT).count(b" x")
