"""Byte-level BPE from GGUF metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from farthing.errors import ModelFormatError
from farthing.tokenization.backend import Backend
from farthing.tokenization.byte_level import byte_level_bytes
from farthing.tokenization.control import ControlToken, ends_of_answer, looks_like_control
from farthing.tokenization.pretokenization import PRE_TOKENIZATIONS, PreTokenization, install
from farthing.tokenization.source import GgufVocabulary

_log = logging.getLogger(__name__)

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)


def gguf_backend(vocabulary: GgufVocabulary) -> Backend:
    """Build the tokenizer of a GGUF file.

    Control tokens are not in the vocabulary that text is merged with, so plain text cannot become
    one. Raises ModelFormatError naming the metadata key.
    """
    from tokenizers import AddedToken, Tokenizer, models

    pre = _pre_tokenization(vocabulary)
    tokens = list(vocabulary.tokens)
    types = _token_types(vocabulary)
    ids = _unique_ids(vocabulary, tokens, types)
    unusual = [i for i, kind in enumerate(types) if kind != _NORMAL or tokens[i].startswith("<")]
    control: dict[str, ControlToken] = {}
    for i in unusual:
        if tokens[i] and (types[i] == _CONTROL or looks_like_control(tokens[i])):
            control.setdefault(tokens[i], ControlToken(i))
    control_ids = {token.id for token in control.values()}
    literal = {i for i in unusual if types[i] not in (_NORMAL, _BYTE)} | control_ids
    user_defined = [
        tokens[i]
        for i in sorted(literal - control_ids)
        if types[i] == _USER_DEFINED and ids[tokens[i]] == i
    ]
    mergeable = dict(ids)
    for i in literal.difference(ids[token] for token in user_defined):
        if ids[tokens[i]] == i:
            del mergeable[tokens[i]]
    merges = _merges(vocabulary, ids)
    try:
        model = models.BPE(vocab=mergeable, merges=merges, ignore_merges=pre.ignore_merges)
    except Exception as error:
        raise ModelFormatError(
            vocabulary.file, _reason(error), field="tokenizer.ggml.merges"
        ) from None
    core = Tokenizer(model)
    install(pre, core)
    core.add_tokens([AddedToken(token, normalized=False) for token in user_defined])

    bos_id = _checked_id(vocabulary, "bos_token_id", vocabulary.bos_id)
    eos_id = _checked_id(vocabulary, "eos_token_id", vocabulary.eos_id)
    others = [_checked_id(vocabulary, "eot_token_id", i) for i in vocabulary.other_eos_ids]
    ends = [i for i in (eos_id, *others, *ends_of_answer(control)) if i is not None]
    add_bos = pre.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    return Backend(
        core=core,
        tokens=tokens,
        ids=ids,
        control=control,
        literal_ids=frozenset(literal),
        piece_bytes=byte_level_bytes,
        prefix=(bos_id,) if add_bos and bos_id is not None else (),
        suffix=(eos_id,) if vocabulary.add_eos and eos_id is not None else (),
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=tuple(dict.fromkeys(ends)),
    )


def _pre_tokenization(vocabulary: GgufVocabulary) -> PreTokenization:
    if vocabulary.model != "gpt2":
        raise ModelFormatError(
            vocabulary.file,
            f"tokenizer model {vocabulary.model!r} is not supported; supported: 'gpt2' "
            "(byte-level BPE)",
            field="tokenizer.ggml.model",
        )
    pre = PRE_TOKENIZATIONS.get(vocabulary.pre)
    if pre is None:
        raise ModelFormatError(
            vocabulary.file,
            f"pre-tokenizer {vocabulary.pre!r} is not supported; supported: "
            + ", ".join(sorted(PRE_TOKENIZATIONS)),
            field="tokenizer.ggml.pre",
        )
    return pre


def _token_types(vocabulary: GgufVocabulary) -> list[int]:
    types = list(map(int, vocabulary.token_types)) or [_NORMAL] * len(vocabulary.tokens)
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
            if types[first] != _NORMAL and types[i] == _NORMAL:
                ids[token] = i
    _log.warning(
        "%s: tokenizer.ggml.tokens: %d strings appear more than once, for example %r; "
        "text is encoded with the first normal one",
        vocabulary.file,
        len(repeated),
        repeated[0],
    )
    return ids


def _merges(vocabulary: GgufVocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    pairs = []
    for rank, merge in enumerate(vocabulary.merges):
        left, _, right = merge.partition(" ")
        if not right or " " in right:
            left, right = _halves(vocabulary, rank, merge, ids)
        pairs.append((left, right))
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


def _checked_id(vocabulary: GgufVocabulary, name: str, token_id: int | None) -> int | None:
    if token_id is not None and not 0 <= token_id < len(vocabulary.tokens):
        raise ModelFormatError(
            vocabulary.file,
            f"is {token_id}, but there are {len(vocabulary.tokens)} tokens",
            field=f"tokenizer.ggml.{name}",
        )
    return token_id


def _reason(error: Exception) -> str:
    return str(error).removeprefix("Error while initializing BPE: ")
