"""A vocabulary as a model of the ``sentencepiece`` library: the truth about such vocabularies.

The few fields of ``sentencepiece_model.proto`` that matter, written by hand: the library's own
classes need another package.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sentencepiece import SentencePieceProcessor

from farthing.tokenization import GgufVocabulary

_BPE = 2
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5


def sentencepiece_model(
    pieces: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    add_dummy_prefix: bool = True,
    remove_extra_whitespaces: bool = False,
) -> SentencePieceProcessor:
    """A BPE model with byte fallback if there are byte tokens; types as in GGUF files."""
    proto = b"".join(
        _bytes(1, _bytes(1, piece.encode()) + _float(2, score) + _number(3, kind))
        for piece, score, kind in zip(pieces, scores, types, strict=True)
    )
    proto += _bytes(2, _number(3, _BPE) + _number(35, 6 in types) + _bytes(44, b"<unk>"))
    proto += _bytes(
        3,
        _bytes(1, b"identity")
        + _number(3, add_dummy_prefix)
        + _number(4, remove_extra_whitespaces)
        + _number(5, True),
    )
    return SentencePieceProcessor(model_proto=proto)


def model_of(vocabulary: GgufVocabulary) -> SentencePieceProcessor:
    """The model a GGUF file was made of, as far as the file tells.

    What converters change is changed back: spaces in user-defined tokens, an unknown token listed
    as control, an end of text as user-defined, and padding as unknown. A repeated string is left to
    the first normal token.
    """
    pieces, types = list(vocabulary.tokens), list(vocabulary.token_types)
    unknown = vocabulary.unknown_id
    if unknown is None:
        unknown = types.index(_UNKNOWN)
    best: dict[str, int] = {}
    begins = "<s>" in pieces and types[pieces.index("<s>")] == _CONTROL
    for i, kind in enumerate(types):
        if kind == _USER_DEFINED and pieces[i] == "</s>" and begins:
            types[i] = _CONTROL
        elif kind == _USER_DEFINED:
            pieces[i] = pieces[i].replace(" ", "▁")
        elif kind == _UNKNOWN:
            types[i] = _UNUSED
        first = best.setdefault(pieces[i], i)
        if types[first] != 1 and types[i] == 1:
            best[pieces[i]] = i
    for i, piece in enumerate(pieces):
        if best[piece] != i:
            pieces[i], types[i] = f"repeated {i}", _CONTROL
    types[unknown] = _UNKNOWN
    return sentencepiece_model(
        pieces,
        vocabulary.scores,
        types,
        add_dummy_prefix=vocabulary.add_space_prefix is not False,
        remove_extra_whitespaces=vocabulary.remove_extra_whitespaces,
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
