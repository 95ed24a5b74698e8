"""Sizes as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from farthing.errors import InvalidParameterError

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:([KMGT])(I?)B?|B)?\s*", re.IGNORECASE)
_POWERS = " KMGT"


def parse_bytes(text: str, option: str) -> int:
    """Bytes of ``text``: a number, with K, M, G or T for thousands and Ki, Mi, Gi, Ti for 1024s.

    Raises :class:`InvalidParameterError` naming the ``option``.
    """
    found = _SIZE.fullmatch(text) if text.isascii() else None
    if found is None or len(text) > 40:
        raise InvalidParameterError(
            f"{option} {text[:40]!r}: not a size; write bytes, 400M (millions), 350MiB or 0.4GB"
        )
    number, unit, binary = found.groups()
    factor = (1024 if binary else 1000) ** _POWERS.index((unit or " ").upper())
    return int(Decimal(number) * factor)
