"""The tokenizer of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable

from farthing.errors import ModelFormatError
from farthing.tokenization.backend import Backend, Core
from farthing.tokenization.byte_fallback import byte_of, piece_bytes
from farthing.tokenization.byte_level import BYTE_TO_CHARACTER, byte_level_bytes
from farthing.tokenization.control import ends_of_answer
from farthing.tokenization.gguf_cores import (
    byte_level_core,
    pre_tokenization,
    sentencepiece_core,
    whole_text_core,
)
from farthing.tokenization.gguf_roles import BYTE, Roles, checked_id, roles_of
from farthing.tokenization.least_tokens import Kept
from farthing.tokenization.pretokenization import PreTokenization
from farthing.tokenization.source import GgufVocabulary

_BYTE_LEVEL, _SENTENCEPIECE, _WHOLE_TEXT = "gpt2", "llama", "gemma4"


def gguf_backend(vocabulary: GgufVocabulary) -> Backend:
    """Build the tokenizer of a GGUF file.

    Control tokens are not in the vocabulary that text is merged with, so plain text cannot become
    one. Raises ModelFormatError naming the metadata key.
    """
    model = _model(vocabulary)
    if model == _BYTE_LEVEL:
        pre = pre_tokenization(vocabulary)
        roles = roles_of(vocabulary, escaped_spaces=False)
        return _backend(
            vocabulary,
            roles,
            byte_level_core(vocabulary, roles, pre),
            literal_ids=roles.literal_ids,
            piece_bytes=byte_level_bytes,
            add_bos=pre.add_bos,
            kept=_kept_by_bytes(roles, pre),
        )
    roles = roles_of(vocabulary, escaped_spaces=True)
    no_bytes = {
        i
        for i, token in enumerate(roles.tokens)
        if token.startswith("<0x") and roles.types[i] != BYTE and byte_of(token) is not None
    }
    core: Core
    if model == _WHOLE_TEXT:
        core, strips_first_space = whole_text_core(vocabulary, roles), False
    else:
        core = sentencepiece_core(vocabulary, roles)
        strips_first_space = core.strips_first_space
    return _backend(
        vocabulary,
        roles,
        core,
        literal_ids=roles.control_ids | no_bytes,
        piece_bytes=piece_bytes,
        add_bos=True,
        strips_first_space=strips_first_space,
        kept=_kept_by_pieces(vocabulary, roles),
    )


def _kept_by_bytes(roles: Roles, pre: PreTokenization) -> Kept:
    """What is no token is left out by the library, where there is nothing for one of its bytes."""
    ids = [roles.ids.get(character) for character in BYTE_TO_CHARACTER]
    if any(i is None or i in roles.literal_ids for i in ids) or _takes_space(roles):
        return Kept.UNKNOWN
    return Kept.COMPOSED if pre.nfc else Kept.ALL


def _kept_by_pieces(vocabulary: GgufVocabulary, roles: Roles) -> Kept:
    """Without byte tokens all that is unknown is one token, however long."""
    if BYTE not in roles.types or vocabulary.remove_extra_whitespaces or _takes_space(roles):
        return Kept.UNKNOWN
    return Kept.ALL


def _takes_space(roles: Roles) -> bool:
    return any(token.lstrip or token.rstrip for token in roles.control.values())


def _model(vocabulary: GgufVocabulary) -> str:
    model = vocabulary.model
    if model == _BYTE_LEVEL and vocabulary.pre == _WHOLE_TEXT:
        return _WHOLE_TEXT
    if model not in (_BYTE_LEVEL, _SENTENCEPIECE, _WHOLE_TEXT):
        raise ModelFormatError(
            vocabulary.file,
            f"tokenizer model {model!r} is not supported; supported: 'gpt2' (byte-level BPE), "
            "'llama' (SentencePiece BPE), 'gemma4' (BPE of whole texts)",
            field="tokenizer.ggml.model",
        )
    return model


def _backend(
    vocabulary: GgufVocabulary,
    roles: Roles,
    core: Core,
    *,
    literal_ids: frozenset[int],
    piece_bytes: Callable[[str], bytes],
    add_bos: bool,
    kept: Kept,
    strips_first_space: bool = False,
) -> Backend:
    """``add_bos``: whether the beginning-of-text token is added if the file does not say."""
    bos_id = checked_id(vocabulary, "bos_token_id", vocabulary.bos_id)
    eos_id = checked_id(vocabulary, "eos_token_id", vocabulary.eos_id)
    others = [checked_id(vocabulary, "eot_token_id", i) for i in vocabulary.other_eos_ids]
    ends = [i for i in (eos_id, *others, *ends_of_answer(roles.control)) if i is not None]
    if vocabulary.add_bos is not None:
        add_bos = vocabulary.add_bos
    return Backend(
        core=core,
        tokens=roles.tokens,
        ids=roles.ids,
        control=roles.control,
        literal_ids=literal_ids,
        piece_bytes=piece_bytes,
        prefix=(bos_id,) if add_bos and bos_id is not None else (),
        suffix=(eos_id,) if vocabulary.add_eos and eos_id is not None else (),
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=tuple(dict.fromkeys(ends)),
        kept=kept,
        escapes_spaces=piece_bytes is not byte_level_bytes,
        strips_first_space=strips_first_space,
    )
