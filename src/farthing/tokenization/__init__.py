"""Tokenizers, detokenization, stop strings and chat templates. Importing it is cheap."""

from farthing.tokenization.chat import chat_template_of, encode_chat
from farthing.tokenization.chat_template import ChatTemplate, Segment
from farthing.tokenization.detokenizer import IncrementalDetokenizer
from farthing.tokenization.source import GgufVocabulary, JsonTokenizerFile, TokenizerSource
from farthing.tokenization.stop import StopResult, StopStrings
from farthing.tokenization.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "GgufVocabulary",
    "IncrementalDetokenizer",
    "JsonTokenizerFile",
    "Segment",
    "StopResult",
    "StopStrings",
    "Tokenizer",
    "TokenizerSource",
    "chat_template_of",
    "encode_chat",
]
