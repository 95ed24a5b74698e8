"""The version of the numerics: which bits the same weights and tokens lead to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

NUMERICS_VERSION = 1
"""Raised by every change after which a pass gives other bits. Machines, instruction sets and
numbers of threads do not change them."""


def fingerprint(weights: Iterable[tuple[str, str, tuple[int, ...] | None]]) -> str:
    """Sixteen hexadecimal digits: equal where equal weights give equal bits.

    ``weights`` are name, scheme and codebook of every matrix. The type of the KV cache belongs to
    how a model is run, not to it, and is stated beside.
    """
    lines = [f"numerics {NUMERICS_VERSION}"]
    for name, scheme, codebook in sorted(weights, key=lambda weight: weight[0]):
        levels = "" if codebook is None else " " + ",".join(map(str, codebook))
        lines.append(f"{name} {scheme}{levels}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
