"""What a tokenizer is made of, however it was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farthing.tokenization.control import ControlToken

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True)
class Backend:
    """Parts of a tokenizer.

    ``core`` encodes plain text and recognizes user-defined tokens, never control tokens.
    ``tokens[id]`` is a vocabulary string or None where an id has none; ``ids`` the inverse.
    ``control`` are the control tokens by spelling; ``literal_ids`` the ids whose string is plain
    text, not the alphabet that ``piece_bytes`` reads. ``prefix`` and ``suffix`` are the ids that
    ``add_special_tokens`` puts around a text. ``strips_first_space``: the first space of a whole
    decoded text is an artefact of encoding. ``anchor``: a string that ``core`` knows as one token
    and no text contains; text encoded behind it is not taken for the beginning of a text.
    """

    core: tokenizers.Tokenizer
    tokens: Sequence[str | None]
    ids: Mapping[str, int]
    control: Mapping[str, ControlToken]
    literal_ids: frozenset[int]
    piece_bytes: Callable[[str], bytes]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    strips_first_space: bool = False
    anchor: str | None = None
