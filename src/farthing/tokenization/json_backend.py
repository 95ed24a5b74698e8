"""The tokenizer of a ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from farthing.errors import ModelFormatError
from farthing.tokenization.backend import Backend
from farthing.tokenization.byte_fallback import byte_of
from farthing.tokenization.byte_level import byte_level_bytes
from farthing.tokenization.control import ControlToken, ends_of_answer, looks_like_control
from farthing.tokenization.json_limits import MAX_ID, read_tokenizer_json
from farthing.tokenization.kept_text import kept_text
from farthing.tokenization.library_errors import is_library_error
from farthing.tokenization.source import JsonTokenizerFile

if TYPE_CHECKING:
    import tokenizers

_NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)
_TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")


def json_backend(file: JsonTokenizerFile) -> Backend:
    """Read ``file``. Raises ModelFormatError if it is unreadable or not a BPE or Unigram model."""
    from tokenizers import AddedToken

    from farthing.tokenization.library_core import LibraryCore

    library = _read(file)
    model = type(library.model).__name__
    if model not in ("BPE", "Unigram"):
        raise ModelFormatError(
            file.path,
            f"model type {model!r} is not supported; supported: 'BPE', 'Unigram'",
            field="model",
        )
    library.no_truncation()
    library.no_padding()
    piece_bytes, strips_first_space = _decoding(file, library)
    ids = library.get_vocab(with_added_tokens=True)
    if max(ids.values(), default=0) > MAX_ID:
        raise ModelFormatError(
            file.path,
            f"has the id {max(ids.values())}, more than {MAX_ID}",
            field="model.vocab",
        )
    unknown = library.model.unk_token if model == "BPE" else None
    if unknown is not None and unknown not in ids:
        raise ModelFormatError(
            file.path, f"is {unknown!r:.80}, which is no token", field="model.unk_token"
        )
    tokens: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for token, i in ids.items():
        tokens[i] = token

    kept = kept_text(library)
    added = library.get_added_tokens_decoder()
    declared = _declared_tokens(file.config)
    control = {
        token.content: ControlToken(i, token.lstrip, token.rstrip, token.single_word)
        for i, token in added.items()
        # A control token of one character would take that character out of all text.
        if len(token.content) > 1
        and (
            token.special
            or token.content in declared
            or looks_like_control(token.content, added=True)
        )
    }
    for i, plain in added.items():
        if plain.normalized and plain.content not in control:
            # Of these the library decodes the normalized string, which may begin with a space.
            tokens[i] = library.id_to_token(i)
    library.add_special_tokens(
        [
            AddedToken(token.content, special=True, normalized=token.normalized)
            for token in added.values()
            if token.content in control and not token.special
        ]
    )
    library.encode_special_tokens = True
    try:
        prefix, suffix = _ids_around_a_text(library)
    except BaseException as error:
        if is_library_error(error):
            raise ModelFormatError(file.path, f"cannot encode a text: {error}") from None
        raise

    control_ids = {token.id for token in control.values()}
    bos_id = ids.get(_token_name(file.config, "bos_token") or "")
    eos_id = ids.get(_token_name(file.config, "eos_token") or "")
    ends = [*([] if eos_id is None else [eos_id]), *file.eos_token_ids]
    if not file.eos_token_ids:
        ends += ends_of_answer(control)
    # What is unknown may become a token of its own, but no end of an answer.
    unknown_id = _unknown_id(library)
    if unknown_id in (bos_id, *ends, *ends_of_answer(control)):
        unknown_id = None
    return Backend(
        core=LibraryCore(library, never=control_ids - {unknown_id}),
        tokens=tokens,
        ids=ids,
        control=control,
        # Escaped spaces are written so in added tokens too; bytes have an alphabet of their own.
        literal_ids=frozenset(added if piece_bytes is byte_level_bytes else control_ids),
        piece_bytes=piece_bytes,
        prefix=prefix,
        suffix=suffix,
        bos_id=bos_id if bos_id is not None or not prefix else prefix[0],
        eos_id=eos_id,
        eos_ids=tuple(dict.fromkeys(ends)),
        strips_first_space=strips_first_space,
        kept=kept,
        escapes_spaces=piece_bytes is not byte_level_bytes,
    )


def _read(file: JsonTokenizerFile) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    raw = read_tokenizer_json(file.path)
    try:
        return Tokenizer.from_buffer(raw)
    except BaseException as error:
        if is_library_error(error):
            raise ModelFormatError(file.path, f"is not a tokenizer: {error}") from None
        raise


def _token_name(config: Mapping[str, object], key: str) -> str | None:
    value = config.get(key)
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _declared_tokens(config: Mapping[str, object]) -> set[str]:
    names = {_token_name(config, key) for key in _NAMED_TOKENS}
    for key in _TOKEN_LISTS:
        listed = config.get(key)
        if isinstance(listed, Mapping):
            names |= {_token_name(listed, name) for name in listed}
        elif isinstance(listed, list):
            names |= {_token_name({"token": token}, "token") for token in listed}
    return {name for name in names if name}


def _ids_around_a_text(
    core: tokenizers.Tokenizer,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bare = core.encode("a", add_special_tokens=False).ids
    full = core.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _unknown_id(library: tokenizers.Tokenizer) -> int | None:
    """The id of what the vocabulary has no pieces for."""
    if type(library.model).__name__ == "BPE":
        unknown = library.model.unk_token
        return None if unknown is None else library.token_to_id(unknown)
    unknown_id: int | None = json.loads(library.model.__getstate__())["unk_id"]
    return unknown_id


def _decoding(
    file: JsonTokenizerFile, core: tokenizers.Tokenizer
) -> tuple[Callable[[str], bytes], bool]:
    """How a vocabulary string becomes bytes, and whether a text loses its first space."""
    state: dict[str, Any] = {} if core.decoder is None else json.loads(core.decoder.__getstate__())
    steps = state.get("decoders", [state]) if state else []
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return byte_level_bytes, False
    replacements: list[tuple[str, str]] = []
    byte_fallback = strips = False
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif step["type"] == "Metaspace":
            replacements.append((step["replacement"], " "))
            strips = step.get("prepend_scheme", "always") != "never"
        elif step["type"] == "ByteFallback":
            byte_fallback = True
        elif step["type"] == "Strip" and step["content"] == " " and step["stop"] == 0:
            strips = step["start"] == 1
        elif step["type"] != "Fuse":
            kinds = []
    if not kinds:
        raise ModelFormatError(
            file.path,
            f"is {json.dumps(state)[:200]}; supported: ByteLevel, or Replace, Metaspace, "
            "ByteFallback, Fuse and Strip",
            field="decoder",
        )
    return partial(_piece_bytes, tuple(replacements), byte_fallback), strips


def _piece_bytes(
    replacements: tuple[tuple[str, str], ...], byte_fallback: bool, token: str
) -> bytes:
    if byte_fallback and (byte := byte_of(token)) is not None:
        return bytes([byte])
    for old, new in replacements:
        token = token.replace(old, new)
    return token.encode()
