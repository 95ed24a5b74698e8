"""What of a model is text: opened without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.checkpoint import tokenizer_of
from farthing.models.registry import FAMILIES
from farthing.tokenization.prompt_encoder import PromptEncoder
from farthing.tokenization.source import JsonTokenizerFile

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class ModelTexts:
    """Tokenizer and chat template of a model."""

    encoder: PromptEncoder
    tokenizer_config: Mapping[str, Any]  # with the names of ``tokenizer_config.json``


def open_model_texts(path: Path) -> ModelTexts:
    """Tokenizer and chat template of the model at ``path``; its weights are not read.

    Raises what :func:`open_checkpoint` does, and :class:`ModelNotFoundError` for a model without
    tokenizer.
    """
    checkpoint = open_checkpoint(path, FAMILIES)
    tokenizer = tokenizer_of(checkpoint)
    encoder = PromptEncoder(tokenizer, checkpoint.chat_template, checkpoint.config.vocab_size)
    _ = tokenizer.least_tokens  # made while the weights are loaded, for prompts that are too long
    source = checkpoint.tokenizer
    given = source.config if isinstance(source, JsonTokenizerFile) else {}
    return ModelTexts(encoder, _tokenizer_config(encoder, given))


def _tokenizer_config(encoder: PromptEncoder, given: Mapping[str, object]) -> dict[str, Any]:
    """``given`` made whole: clients look for these names, and take a special token for a text."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **given}
    for name in _SPECIAL:
        token = config.get(name)
        config[name] = token.get("content") if isinstance(token, Mapping) else token
    config["bos_token"] = config["bos_token"] or encoder.tokenizer.bos_token
    config["eos_token"] = config["eos_token"] or encoder.tokenizer.eos_token
    config["chat_template"] = encoder.chat_template.source if encoder.has_chat_template else None
    return config
