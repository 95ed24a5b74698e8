"""What each token of a GGUF vocabulary is for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from farthing.errors import ModelFormatError
from farthing.tokenization.byte_fallback import SPACE
from farthing.tokenization.control import ControlToken, looks_like_control
from farthing.tokenization.source import GgufVocabulary

_log = logging.getLogger(__name__)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Phi-3's tokens take the white space after them, but for these (its tokenizer_config.json).
_TAKE_NO_SPACE = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True)
class Roles:
    """Tokens and types by id; ``ids`` is the id that text with a string becomes.

    ``control`` are the control tokens by spelling; ``user_defined`` the ids of the strings that
    are taken out of a text whole, in ascending order.
    """

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]
    control: dict[str, ControlToken]
    user_defined: list[int]
    unknown_id: int | None

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids of ``control``."""
        return frozenset(token.id for token in self.control.values())

    @cached_property
    def literal_ids(self) -> frozenset[int]:
        """Ids whose string is plain text: of all types but normal and byte."""
        others = (i for i, kind in enumerate(self.types) if kind not in (NORMAL, BYTE))
        return self.control_ids | frozenset(others)


def roles_of(vocabulary: GgufVocabulary, *, escaped_spaces: bool) -> Roles:
    """Sort the tokens of ``vocabulary``; raises ModelFormatError naming the metadata key.

    ``escaped_spaces``: spaces in pieces are written ``▁``. Converters write those of user-defined
    tokens as spaces; they are changed back.
    """
    types = _types(vocabulary)
    tokens = list(vocabulary.tokens)
    if escaped_spaces:
        for i, kind in enumerate(types):
            if kind == USER_DEFINED:
                tokens[i] = tokens[i].replace(" ", SPACE)
    ids = _unique_ids(vocabulary, tokens, types)
    control: dict[str, ControlToken] = {}
    for i, token in enumerate(tokens):
        unusual = types[i] != NORMAL or token.startswith("<")
        if unusual and token and _is_control(token, types[i], ids, types):
            rstrip = vocabulary.rstrip_control and token not in _TAKE_NO_SPACE
            control.setdefault(token, ControlToken(i, rstrip=rstrip))
    control_ids = {token.id for token in control.values()}
    user_defined = [
        i
        for i, kind in enumerate(types)
        if kind == USER_DEFINED and i not in control_ids and ids[tokens[i]] == i and tokens[i]
    ]
    unknown_id = checked_id(vocabulary, "unknown_token_id", vocabulary.unknown_id)
    if unknown_id is None and UNKNOWN in types:
        unknown_id = types.index(UNKNOWN)
    return Roles(tokens, types, ids, control, user_defined, unknown_id)


def checked_id(vocabulary: GgufVocabulary, name: str, token_id: int | None) -> int | None:
    """``token_id`` if it is None or an id of ``vocabulary``; else raises ModelFormatError."""
    if token_id is not None and not 0 <= token_id < len(vocabulary.tokens):
        raise ModelFormatError(
            vocabulary.file,
            f"is {token_id}, but there are {len(vocabulary.tokens)} tokens",
            field=f"tokenizer.ggml.{name}",
        )
    return token_id


def _is_control(token: str, kind: int, ids: dict[str, int], types: Sequence[int]) -> bool:
    if kind in (CONTROL, UNKNOWN):
        return True
    if kind == USER_DEFINED and token == "</s>":
        # The end of a text, unless the vocabulary has it as a tag of HTML, with <s>.
        begin = ids.get("<s>")
        return begin is not None and types[begin] == CONTROL
    return looks_like_control(token, added=kind == USER_DEFINED)


def _types(vocabulary: GgufVocabulary) -> list[int]:
    types = list(map(int, vocabulary.token_types)) or [NORMAL] * len(vocabulary.tokens)
    if not vocabulary.tokens:
        raise ModelFormatError(vocabulary.file, "is empty", field="tokenizer.ggml.tokens")
    if len(types) != len(vocabulary.tokens):
        raise ModelFormatError(
            vocabulary.file,
            f"has {len(types)} entries for {len(vocabulary.tokens)} tokens",
            field="tokenizer.ggml.token_type",
        )
    return types


def _unique_ids(
    vocabulary: GgufVocabulary, tokens: Sequence[str], types: Sequence[int]
) -> dict[str, int]:
    """Id of each string; of a repeated one the first normal token, or else the first."""
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) == len(tokens):
        return ids
    ids.clear()
    repeated = []
    for i, token in enumerate(tokens):
        first = ids.setdefault(token, i)
        if first != i:
            repeated.append(token)
            if types[first] != NORMAL and types[i] == NORMAL:
                ids[token] = i
    _log.warning(
        "%s: tokenizer.ggml.tokens: %d strings appear more than once, for example %r; "
        "text is encoded with the first normal one",
        vocabulary.file,
        len(repeated),
        repeated[0],
    )
    return ids
