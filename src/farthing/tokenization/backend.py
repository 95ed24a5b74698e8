"""What a tokenizer is made of, however it was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from farthing.tokenization.control import ControlToken
from farthing.tokenization.least_tokens import Kept


class Core(Protocol):
    """Encodes text in which no control token was allowed. Safe to use from several threads."""

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Ids of ``text``, none of them a control token's.

        ``at_start``: the text is the beginning of a whole one, not what follows a control token.
        """
        ...


@dataclass(frozen=True)
class Backend:
    """Parts of a tokenizer.

    ``core`` encodes plain text and recognizes user-defined tokens, never control tokens.
    ``tokens[id]`` is a vocabulary string or None where an id has none; ``ids`` the inverse.
    ``control`` are the control tokens by spelling; ``literal_ids`` the ids whose string is plain
    text, not the alphabet that ``piece_bytes`` reads. ``prefix`` and ``suffix`` are the ids that
    ``add_special_tokens`` puts around a text. ``strips_first_space``: the first space of a whole
    decoded text is an artefact of encoding. ``kept``: how much of a text its tokens are;
    ``escapes_spaces``: ``▁`` and a space are the same to it.
    """

    core: Core
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
    kept: Kept = Kept.UNKNOWN
    escapes_spaces: bool = False
