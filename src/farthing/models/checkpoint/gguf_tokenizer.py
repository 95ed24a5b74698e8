"""The tokenizer metadata of a GGUF file, and the ids of the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_metadata import NumberArray, StringArray, ValueType
from farthing.models.checkpoint.tokenizer_source import GgufTokenizer

_PREFIX = "tokenizer.ggml."
_ID_SUFFIX = "_token_id"
_CONTROL = 3
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
_FLOATS = frozenset({ValueType.FLOAT32, ValueType.FLOAT64})
_NO_TOKEN = (-1, 2**32 - 1)  # written by converters of models without such a token
_ENDS = ("eos", "eot", "eom")
# Many files name one end token only, while their model was trained to end with others too.
_END_TEXTS = frozenset(
    {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "</s>"}
)


def read_tokenizer(fields: Fields, vocab_size: int) -> GgufTokenizer | None:
    """The tokenizer, or None if the file has none.

    ``vocab_size`` is the number of rows of the embedding; there may be fewer tokens, not more.
    Raises :class:`ModelFormatError` for arrays of the wrong type or length and for ids outside the
    vocabulary.
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
    token_types = _numbers(fields, f"{_PREFIX}token_type", _INTEGERS, len(tokens))
    scores = _numbers(fields, f"{_PREFIX}scores", _FLOATS, len(tokens))
    return GgufTokenizer(
        file=fields.file,
        model=model,
        pre=fields.optional_text(f"{_PREFIX}pre"),
        tokens=tokens,
        token_types=tuple(token_types.integers()) if token_types else (),
        scores=tuple(scores.floats()) if scores else (),
        merges=_strings(fields, f"{_PREFIX}merges"),
        special_ids=MappingProxyType(_special_ids(fields, vocab_size)),
        add_bos=fields.optional_boolean(f"{_PREFIX}add_bos_token"),
        add_eos=fields.optional_boolean(f"{_PREFIX}add_eos_token"),
        add_space_prefix=fields.optional_boolean(f"{_PREFIX}add_space_prefix"),
    )


def end_token_ids(tokenizer: GgufTokenizer) -> tuple[int, ...]:
    """Ids that end an answer: those the file names, then control tokens known to be ends."""
    ids = [tokenizer.special_ids[name] for name in _ENDS if name in tokenizer.special_ids]
    if tokenizer.token_types:
        ids.extend(
            index
            for index, kind in enumerate(tokenizer.token_types)
            if kind == _CONTROL and tokenizer.tokens[index] in _END_TEXTS
        )
    return tuple(dict.fromkeys(ids))


def _special_ids(fields: Fields, vocab_size: int) -> dict[str, int]:
    return {
        key[len(_PREFIX) : -len(_ID_SUFFIX)]: fields.integer(key, 0, vocab_size - 1)
        for key, value in fields.values.items()
        if key.startswith(_PREFIX) and key.endswith(_ID_SUFFIX) and value not in _NO_TOKEN
    }


def _strings(fields: Fields, key: str) -> Sequence[str]:
    if key not in fields:
        return ()
    value = fields.values[key]
    if not isinstance(value, StringArray):
        fields.fail(key, "must be an array of strings")
    return value


def _numbers(
    fields: Fields, key: str, kinds: frozenset[ValueType], count: int
) -> NumberArray | None:
    if key not in fields:
        return None
    value = fields.values[key]
    if not isinstance(value, NumberArray) or value.kind not in kinds:
        expected = "numbers" if kinds is _FLOATS else "integers"
        fields.fail(key, f"must be an array of {expected}")
    if len(value) != count:
        fields.fail(key, f"has {len(value)} elements for {count} tokens")
    return value
