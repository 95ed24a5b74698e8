"""The byte-level alphabet of GPT-2: each of the 256 bytes as one printable character.

Bytes that are printable Latin-1 stand for themselves; the 68 others take the characters from
U+0100 on, in order of byte value (Radford et al. 2019, the released ``encoder.py``).
"""

from __future__ import annotations

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def _alphabet() -> tuple[str, ...]:
    replacement = iter(range(0x100, 0x200))
    return tuple(chr(b) if b in _PRINTABLE else chr(next(replacement)) for b in range(256))


BYTE_TO_CHARACTER = _alphabet()
_CHARACTER_TO_BYTE = {character: byte for byte, character in enumerate(BYTE_TO_CHARACTER)}


def byte_level_bytes(token: str) -> bytes:
    """The bytes a byte-level vocabulary string stands for.

    A string with any character outside the alphabet is not byte-level and stands for itself.
    """
    try:
        return bytes([_CHARACTER_TO_BYTE[character] for character in token])
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


def byte_level_string(data: bytes) -> str:
    """Inverse of :func:`byte_level_bytes` for bytes."""
    return "".join([BYTE_TO_CHARACTER[byte] for byte in data])
