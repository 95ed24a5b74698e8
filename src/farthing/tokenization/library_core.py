"""A core of the ``tokenizers`` library."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer

from farthing.errors import InvalidParameterError
from farthing.tokenization.library_errors import is_library_error


class LibraryCore:
    """Encodes with a tokenizer of the library, whose special tokens text must not become."""

    def __init__(self, tokenizer: Tokenizer, never: Iterable[int] = ()) -> None:
        """``never``: ids that no text may become. The tokenizer is changed."""
        tokenizer.encode_special_tokens = True
        self._never = frozenset(never)
        self._anchor = _anchor(tokenizer)
        self._tokenizer = tokenizer
        self._cleared = False

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Ids of ``text``, none of them in ``never``.

        Raises InvalidParameterError if the vocabulary has nothing else for a part of ``text``.
        """
        ids = self._encode(text, at_start)
        if self._never.isdisjoint(ids):
            return ids
        # Merges of this vocabulary spell a control token. That is rare, and making a vocabulary
        # without those merges takes a second, so it is done when it is first needed.
        if not self._cleared:
            self._tokenizer = _unreachable(self._tokenizer, self._never)
            self._cleared = True
        ids = self._encode(text, at_start)
        if self._never.isdisjoint(ids):
            return ids
        raise InvalidParameterError(
            "text has a character that this vocabulary can only encode as a control token"
        )

    def _encode(self, text: str, at_start: bool) -> list[int]:
        # One reading of self._tokenizer: another thread may be replacing it.
        tokenizer, anchor = self._tokenizer, "" if at_start else self._anchor or ""
        try:
            ids: list[int] = tokenizer.encode(anchor + text, add_special_tokens=False).ids
        except BaseException as error:
            if is_library_error(error):
                raise InvalidParameterError(
                    f"text cannot be encoded by this model's tokenizer: {str(error)[:200]}"
                ) from None
            raise
        return ids[1:] if anchor else ids


def _anchor(tokenizer: Tokenizer) -> str | None:
    """Make a token to encode behind, if the beginning of a text is treated specially.

    No text contains it, and what is encoded behind it is not taken for a beginning.
    """
    if tokenizer.pre_tokenizer is None:
        return None
    if b'"prepend_scheme":"first"' not in tokenizer.pre_tokenizer.__getstate__().replace(b" ", b""):
        return None
    anchor = f"\uf8ff{secrets.token_hex(16)}\uf8ff"
    tokenizer.add_tokens([AddedToken(anchor, normalized=False)])
    return anchor


def _unreachable(tokenizer: Tokenizer, ids: frozenset[int]) -> Tokenizer:
    """The same tokenizer, every id as before, but no text becomes one of ``ids``.

    Their strings are replaced by some that no text contains, and merges of them removed.
    """
    hidden = {i: f"\uf8ff{secrets.token_hex(16)}{i}" for i in ids}
    renamed = {tokenizer.id_to_token(i): name for i, name in hidden.items()}
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    model = state["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed.get(s, s): i for s, i in model["vocab"].items()}
        model["merges"] = [
            pair
            for pair in model["merges"]
            if renamed.keys().isdisjoint((*pair, pair[0] + pair[1]))
        ]
        model["unk_token"] = renamed.get(model["unk_token"], model["unk_token"])
    else:
        model["vocab"] = [[renamed.get(s, s), score] for s, score in model["vocab"]]
    for token in state["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    state["post_processor"] = None  # it names special tokens, and adds some where none are wanted
    changed = Tokenizer.from_str(json.dumps(state))
    changed.encode_special_tokens = True
    return changed
