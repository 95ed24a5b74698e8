"""How much of a text the tokens of a ``tokenizer.json`` are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from farthing.tokenization.byte_fallback import SPACE
from farthing.tokenization.byte_level import BYTE_TO_CHARACTER
from farthing.tokenization.least_tokens import Kept

if TYPE_CHECKING:
    import tokenizers

_PLAIN_STEPS = ("ByteLevel", "Digits")


def kept_text(library: tokenizers.Tokenizer) -> Kept:
    """What is known of ``library``: it keeps all, composes, or does something not looked into."""
    if type(library.model).__name__ != "BPE" or library.model.end_of_word_suffix:
        return Kept.UNKNOWN
    normalizers = _steps(library.normalizer, "normalizers")
    pre_tokenizers = _steps(library.pre_tokenizer, "pretokenizers")
    composes = any(step["type"] == "NFC" for step in normalizers)
    if not all(map(_keeps, normalizers)) or not all(map(_keeps_splitting, pre_tokenizers)):
        return Kept.UNKNOWN
    for token in library.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip:  # it takes white space with it
            return Kept.UNKNOWN
        if composes and token.normalized and not token.content.isascii():
            return Kept.UNKNOWN
    vocabulary = library.get_vocab(with_added_tokens=False)
    if any(step["type"] == "ByteLevel" for step in pre_tokenizers):
        every_byte = all(character in vocabulary for character in BYTE_TO_CHARACTER)
    else:
        every_byte = library.model.byte_fallback
        every_byte = every_byte and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    if not every_byte:
        return Kept.UNKNOWN
    return Kept.COMPOSED if composes else Kept.ALL


def _steps(component: Any, nested: str) -> list[dict[str, object]]:
    if component is None:
        return []
    return list(_flat(json.loads(component.__getstate__()), nested))


def _flat(state: dict[str, Any], nested: str) -> list[dict[str, object]]:
    if nested not in state:
        return [state]
    return [step for inner in state[nested] for step in _flat(inner, nested)]


def _keeps(step: dict[str, object]) -> bool:
    if step["type"] == "Replace":
        return step["pattern"] == {"String": " "} and step["content"] == SPACE
    return step["type"] == "NFC" or (step["type"] == "Prepend" and step["prepend"] == SPACE)


def _keeps_splitting(step: dict[str, object]) -> bool:
    if step["type"] == "Split":
        return step["behavior"] != "Removed"
    if step["type"] == "Metaspace":
        return step["replacement"] == SPACE
    return step["type"] in _PLAIN_STEPS
