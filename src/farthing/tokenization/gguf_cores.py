"""Cores of the three kinds of GGUF vocabularies that decoders come with."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from farthing.errors import ModelFormatError
from farthing.tokenization.byte_fallback import SPACE, byte_of
from farthing.tokenization.gguf_roles import BYTE, NORMAL, UNUSED, USER_DEFINED, Roles
from farthing.tokenization.library_core import LibraryCore
from farthing.tokenization.pretokenization import (
    PRE_TOKENIZATIONS,
    UNNAMED,
    PreTokenization,
    install,
)
from farthing.tokenization.sentencepiece_core import ABSENT, SentencePieceCore
from farthing.tokenization.source import GgufVocabulary

if TYPE_CHECKING:
    from tokenizers import models

_log = logging.getLogger(__name__)

_PIECE_KINDS = {NORMAL: 1, USER_DEFINED: 2, UNUSED: 3}  # as _native.SentencePieceBpe has them


def pre_tokenization(vocabulary: GgufVocabulary) -> PreTokenization:
    """The row of the file's pre-tokenizer. Raises ModelFormatError naming those there are."""
    if vocabulary.pre in ("", "default"):
        _log.warning(
            "%s: tokenizer.ggml.pre: the file does not name the model's pre-tokenizer; "
            "text is split as llama.cpp does then, which may not be as in training",
            vocabulary.file,
        )
        return UNNAMED
    pre = PRE_TOKENIZATIONS.get(vocabulary.pre)
    if pre is None:
        raise ModelFormatError(
            vocabulary.file,
            f"pre-tokenizer {vocabulary.pre!r} is not supported; supported: "
            + ", ".join(sorted(PRE_TOKENIZATIONS)),
            field="tokenizer.ggml.pre",
        )
    return pre


def byte_level_core(vocabulary: GgufVocabulary, roles: Roles, pre: PreTokenization) -> LibraryCore:
    """BPE over bytes (GPT-2's), words split as ``pre`` says."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer(_bpe(vocabulary, roles, ignore_merges=pre.ignore_merges))
    install(pre, tokenizer)
    tokenizer.add_tokens(
        [AddedToken(roles.tokens[i], normalized=False) for i in roles.user_defined]
    )
    return LibraryCore(tokenizer)


def whole_text_core(vocabulary: GgufVocabulary, roles: Roles) -> LibraryCore:
    """BPE over characters, nothing split before, and bytes as a last resort (Gemma 4's)."""
    from tokenizers import AddedToken, Tokenizer, normalizers

    unknown = None if roles.unknown_id is None else roles.tokens[roles.unknown_id]
    _byte_ids(vocabulary, roles)
    tokenizer = Tokenizer(_bpe(vocabulary, roles, byte_fallback=True, unknown=unknown))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.add_tokens(
        [AddedToken(roles.tokens[i], normalized=False) for i in roles.user_defined]
    )
    return LibraryCore(tokenizer)


def sentencepiece_core(vocabulary: GgufVocabulary, roles: Roles) -> SentencePieceCore:
    """BPE by the scores of pieces (SentencePiece's)."""
    if not vocabulary.token_types:
        raise ModelFormatError(vocabulary.file, "is missing", field="tokenizer.ggml.token_type")
    if len(vocabulary.scores) != len(roles.tokens):
        raise ModelFormatError(
            vocabulary.file,
            f"has {len(vocabulary.scores)} entries for {len(roles.tokens)} tokens",
            field="tokenizer.ggml.scores",
        )
    kinds = [_PIECE_KINDS.get(kind, ABSENT) for kind in roles.types]
    for i in roles.control_ids:
        kinds[i] = ABSENT
    if len(roles.ids) < len(kinds):  # of a repeated string, one
        for i, token in enumerate(roles.tokens):
            if roles.ids[token] != i:
                kinds[i] = ABSENT
    return SentencePieceCore(
        pieces=roles.tokens,
        scores=vocabulary.scores,
        kinds=kinds,
        byte_ids=_byte_ids(vocabulary, roles),
        unknown_id=roles.unknown_id,
        add_space_prefix=vocabulary.add_space_prefix is not False,
        remove_extra_whitespaces=vocabulary.remove_extra_whitespaces,
    )


def _byte_ids(vocabulary: GgufVocabulary, roles: Roles) -> list[int]:
    """Ids of the 256 byte tokens, none if the vocabulary has none."""
    found: dict[int, int] = {}
    for i, kind in enumerate(roles.types):
        if kind == BYTE:
            byte = byte_of(roles.tokens[i])
            if byte is None:
                raise ModelFormatError(
                    vocabulary.file,
                    f"token {i} is of type byte, but its string is {roles.tokens[i][:60]!r}",
                    field="tokenizer.ggml.tokens",
                )
            found.setdefault(byte, i)
    if len(found) not in (0, 256):
        raise ModelFormatError(
            vocabulary.file,
            f"has tokens of {len(found)} bytes; all 256 are needed, or none",
            field="tokenizer.ggml.tokens",
        )
    if not found and roles.unknown_id is None:
        raise ModelFormatError(
            vocabulary.file,
            "has neither byte tokens nor an unknown token for what is not in it",
            field="tokenizer.ggml.tokens",
        )
    return [found[byte] for byte in range(256)] if found else []


def _bpe(
    vocabulary: GgufVocabulary,
    roles: Roles,
    *,
    ignore_merges: bool = False,
    byte_fallback: bool = False,
    unknown: str | None = None,
) -> models.BPE:
    """The library's model, without the strings that text must not be merged into."""
    from tokenizers import models

    mergeable = dict(roles.ids)
    kept = {roles.tokens[i] for i in roles.user_defined} | {unknown}
    for i in roles.literal_ids:
        if roles.tokens[i] not in kept and roles.ids[roles.tokens[i]] == i:
            del mergeable[roles.tokens[i]]
    # The spelling of a byte and of the unknown token is text, whatever the merges say.
    never = {roles.tokens[i] for i, kind in enumerate(roles.types) if kind == BYTE}
    if unknown is not None:
        never.add(unknown)
    merges = _merges(vocabulary, roles.ids, never)
    try:
        return models.BPE(
            vocab=mergeable,
            merges=merges,
            ignore_merges=ignore_merges,
            byte_fallback=byte_fallback,
            unk_token=unknown,
            fuse_unk=True,
        )
    except Exception as error:
        raise ModelFormatError(
            vocabulary.file,
            str(error).removeprefix("Error while initializing BPE: "),
            field="tokenizer.ggml.merges",
        ) from None


def _merges(
    vocabulary: GgufVocabulary, ids: Mapping[str, int], never: Collection[str]
) -> list[tuple[str, str]]:
    pairs = []
    for rank, merge in enumerate(vocabulary.merges):
        left, _, right = merge.partition(" ")
        if not right or " " in right:
            left, right = _halves(vocabulary, rank, merge, ids)
        pairs.append((left, right))
    if never:
        first = {string[:1] for string in never}
        pairs = [(a, b) for a, b in pairs if a[:1] not in first or a + b not in never]
    return pairs


def _halves(
    vocabulary: GgufVocabulary, rank: int, merge: str, ids: Mapping[str, int]
) -> tuple[str, str]:
    """The two halves of a merge whose tokens themselves contain spaces."""
    for i, character in enumerate(merge):
        left, right = merge[:i], merge[i + 1 :]
        if character == " " and left in ids and right in ids and left + right in ids:
            return left, right
    raise ModelFormatError(
        vocabulary.file,
        f"merge {rank} is {merge[:60]!r}, not two tokens of the vocabulary and a space",
        field="tokenizer.ggml.merges",
    )
