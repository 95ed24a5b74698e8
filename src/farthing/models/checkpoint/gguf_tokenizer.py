"""The tokenizer metadata of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Sequence

from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_metadata import NumberArray, StringArray, ValueType
from farthing.tokenization.source import GgufVocabulary

_PREFIX = "tokenizer.ggml."
_ID_SUFFIX = "_token_id"
_INTEGERS = frozenset(
    {
        ValueType.UINT8,
        ValueType.INT8,
        ValueType.UINT16,
        ValueType.INT16,
        ValueType.UINT32,
        ValueType.INT32,
        ValueType.UINT64,
        ValueType.INT64,
    }
)
_NUMBERS = _INTEGERS | {ValueType.FLOAT32, ValueType.FLOAT64}
_SENTENCEPIECE = "llama"
_NO_TOKEN = (-1, 2**32 - 1)  # written by converters of models without such a token
MAX_MERGES = 16  # for each token; Gemma has two
_OTHER_ENDS = ("eot", "eom")


def read_tokenizer(fields: Fields, vocab_size: int) -> GgufVocabulary | None:
    """The tokenizer, or None if the file has none.

    ``vocab_size`` is the number of rows of the embedding; there may be fewer tokens, not more.
    Raises :class:`ModelFormatError` for arrays of the wrong type or length and for ids outside the
    vocabulary, for scores that are no numbers, and for rules of normalization, which no decoder's
    vocabulary has.
    """
    model = fields.optional_text(f"{_PREFIX}model")
    if model is None:
        return None
    tokens_key = f"{_PREFIX}tokens"
    tokens = _strings(fields, tokens_key)
    if not tokens:
        fields.fail(tokens_key, "the vocabulary is missing or empty")
    if len(tokens) > vocab_size:
        fields.fail(tokens_key, f"{len(tokens)} tokens for an embedding of {vocab_size} rows")
    merges = _strings(fields, f"{_PREFIX}merges")
    if len(merges) > MAX_MERGES * len(tokens):
        fields.fail(f"{_PREFIX}merges", f"{len(merges)} merges for {len(tokens)} tokens")
    token_types = _integers(fields, f"{_PREFIX}token_type", len(tokens))
    if model == _SENTENCEPIECE and f"{_PREFIX}precompiled_charsmap" in fields:
        fields.fail(
            f"{_PREFIX}precompiled_charsmap",
            "holds rules of text normalization, which are not supported",
        )
    ids = _special_ids(fields, vocab_size)
    return GgufVocabulary(
        model=model,
        pre=fields.optional_text(f"{_PREFIX}pre") or "",
        tokens=tokens,
        token_types=tuple(token_types.integers()) if token_types else (),
        merges=merges,
        bos_id=ids.get("bos"),
        eos_id=ids.get("eos"),
        add_bos=fields.optional_boolean(f"{_PREFIX}add_bos_token"),
        add_eos=fields.optional_boolean(f"{_PREFIX}add_eos_token") or False,
        other_eos_ids=tuple(ids[name] for name in _OTHER_ENDS if name in ids),
        unknown_id=ids.get("unknown"),
        # Byte-level vocabularies may have scores that mean nothing.
        scores=_scores(fields, len(tokens)) if model == _SENTENCEPIECE else (),
        add_space_prefix=fields.optional_boolean(f"{_PREFIX}add_space_prefix"),
        remove_extra_whitespaces=fields.boolean(f"{_PREFIX}remove_extra_whitespaces", False),
        rstrip_control=model == _SENTENCEPIECE
        and fields.optional_text("general.architecture") == "phi3",
        file=fields.file,
    )


def _special_ids(fields: Fields, vocab_size: int) -> dict[str, int]:
    return {
        key[len(_PREFIX) : -len(_ID_SUFFIX)]: fields.integer(key, 0, vocab_size - 1)
        for key, value in fields.values.items()
        if key.startswith(_PREFIX) and key.endswith(_ID_SUFFIX) and value not in _NO_TOKEN
    }


def _scores(fields: Fields, count: int) -> Sequence[float]:
    key = f"{_PREFIX}scores"
    fields.require(key)
    value = fields.values[key]
    if not isinstance(value, NumberArray) or value.kind not in _NUMBERS:
        fields.fail(key, "must be an array of numbers")
    if len(value) != count:
        fields.fail(key, f"has {len(value)} elements for {count} tokens")
    scores = value.floats()
    if not all(map(math.isfinite, scores)):
        fields.fail(key, "has an element that is not finite")
    return scores


def _strings(fields: Fields, key: str) -> Sequence[str]:
    if key not in fields:
        return ()
    value = fields.values[key]
    if not isinstance(value, StringArray):
        fields.fail(key, "must be an array of strings")
    return value


def _integers(fields: Fields, key: str, count: int) -> NumberArray | None:
    if key not in fields:
        return None
    value = fields.values[key]
    if not isinstance(value, NumberArray) or value.kind not in _INTEGERS:
        fields.fail(key, "must be an array of integers")
    if len(value) != count:
        fields.fail(key, f"has {len(value)} elements for {count} tokens")
    return value
