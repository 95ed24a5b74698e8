"""How long a schema or a grammar may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from farthing.sampling.grammar.limits import MAX_SOURCE_BYTES


def require_source_size(text: str, refuse: Callable[[str], NoReturn]) -> None:
    """Has ``refuse`` say what is wrong with a text that is none in Unicode, or too long."""
    try:
        nbytes = len(text.encode())
    except UnicodeEncodeError:
        refuse("has a lone surrogate, which is not Unicode text")
    if nbytes > MAX_SOURCE_BYTES:
        refuse(f"of {nbytes:,} bytes is too complex; at most {MAX_SOURCE_BYTES:,} are taken")
