"""Whether a text has a passage of another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PASSAGE = 80
"""Characters in a row that two texts do not share by chance, a line of print."""

_BASE = 0x9E3779B97F4A7C15
_PIECE = 1 << 20
_LIKELY_BITS = 24
_UNLIKELY_BITS = np.uint64(64 - _LIKELY_BITS)


def overlap(text: str, other: str, length: int = PASSAGE) -> str | None:
    """The first ``length`` characters in a row of ``text`` that are in ``other`` too, if any.

    White space of any kind and amount counts as one blank, so that lines may be broken elsewhere.
    Memory: some 16 bytes a character of ``other`` and 64 MiB.
    """
    text, other = " ".join(text.split()), " ".join(other.split())
    known = np.sort(np.concatenate([hashes for _, hashes in _hashes(other, length)]))
    likely = np.zeros(1 << _LIKELY_BITS, np.bool_)
    likely[known >> _UNLIKELY_BITS] = True
    for start, hashes in _hashes(text, length):
        places = np.flatnonzero(likely[hashes >> _UNLIKELY_BITS])
        after = np.searchsorted(known, hashes[places], "right")
        same = after > np.searchsorted(known, hashes[places], "left")
        for place in places[same]:
            passage = text[start + int(place) : start + int(place) + length]
            if passage in other:  # equal hashes are a hint
                return passage
    return None


def _hashes(text: str, length: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """Polynomial hashes, modulo 2^64, of all runs of ``length``, and where each piece begins."""
    for start in range(0, max(1, len(text) - length + 1), _PIECE):
        piece = text[start : start + _PIECE + length - 1].encode("utf-32-le")
        yield start, _run_hashes(np.frombuffer(piece, np.uint32).astype(np.uint64), length)


def _run_hashes(codes: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """Of runs twice as long from those before, and of ``length`` from its powers of two."""
    count = max(0, len(codes) - length + 1)
    total = np.zeros(count, np.uint64)
    run, run_length, base, done = codes, 1, _BASE, 0
    while True:
        if length & run_length:
            total = total * np.uint64(base) + run[done : done + count]
            done += run_length
        if 2 * run_length > length:
            return total
        run = run[:-run_length] * np.uint64(base) + run[run_length:]
        run_length, base = 2 * run_length, base * base % (1 << 64)
