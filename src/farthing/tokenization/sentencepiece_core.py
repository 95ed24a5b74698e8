"""A core that encodes as the ``sentencepiece`` library does (docs/decisions/sentencepiece.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ABSENT = 0  # the kind of a piece that text never becomes


class SentencePieceCore:
    """BPE by the scores of pieces."""

    def __init__(
        self,
        *,
        pieces: Sequence[str],
        scores: Sequence[float],
        kinds: Sequence[int],
        byte_ids: Sequence[int],
        unknown_id: int | None,
        add_space_prefix: bool,
        remove_extra_whitespaces: bool,
    ) -> None:
        """``kinds`` are those of ``csrc/tokenization/sentencepiece_bpe.h``.

        ``byte_ids`` are the 256 byte tokens, or none: then what is no piece becomes ``unknown_id``.
        """
        from farthing import _native

        self._add_space_prefix = add_space_prefix
        self.strips_first_space = add_space_prefix or remove_extra_whitespaces
        self._bpe = _native.SentencePieceBpe(
            list(pieces),
            np.array(scores, np.float32),
            np.array(kinds, np.uint8),
            list(byte_ids),
            -1 if unknown_id is None else unknown_id,
            remove_extra_whitespaces,
        )

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Ids of ``text``.

        A text of its own begins with a space that was not written. So does what follows a control
        token, as models were trained with each turn encoded by itself, unless it has one already:
        templates for tokenizers that add none there write it.
        """
        prefix = self._add_space_prefix and (at_start or not text.startswith(" "))
        return self._bpe.encode(text, prefix)
