"""Model files: what they say about a model, and where its weights are."""

from farthing.models.checkpoint.checkpoint import Checkpoint, check_tensors
from farthing.models.checkpoint.opening import open_checkpoint
from farthing.models.checkpoint.tensor import TensorSource
from farthing.models.checkpoint.tokenizer_source import (
    GgufTokenizer,
    HuggingFaceTokenizer,
    TokenizerSource,
)

__all__ = [
    "Checkpoint",
    "GgufTokenizer",
    "HuggingFaceTokenizer",
    "TensorSource",
    "TokenizerSource",
    "check_tensors",
    "open_checkpoint",
]
