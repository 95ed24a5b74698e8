"""Model files: what they say about a model, and where its weights are."""

from farthing.models.checkpoint.checkpoint import Checkpoint, check_tensors
from farthing.models.checkpoint.opening import open_checkpoint
from farthing.models.checkpoint.packed_tensor import PackedTensor
from farthing.models.checkpoint.tensor import TensorSource

__all__ = [
    "Checkpoint",
    "PackedTensor",
    "TensorSource",
    "check_tensors",
    "open_checkpoint",
]
