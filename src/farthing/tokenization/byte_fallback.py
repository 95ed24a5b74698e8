"""Vocabulary strings of SentencePiece's making: ``▁`` for a space, ``<0x41>`` for a byte.

Kudo and Richardson 2018; what is no piece of such a vocabulary is spelled in UTF-8, byte by byte.
"""

from __future__ import annotations

import re

SPACE = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_of(token: str) -> int | None:
    """The byte that ``token`` spells, None if it is no byte token."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


def piece_bytes(token: str) -> bytes:
    """The bytes a vocabulary string stands for."""
    byte = byte_of(token)
    return token.replace(SPACE, " ").encode() if byte is None else bytes([byte])
