"""An opened model: its configuration, where its tensors are, its tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from farthing.config import ModelConfig
from farthing.errors import ModelFormatError, ModelNotFoundError, UnsupportedOperationError
from farthing.models.checkpoint.packed_manifest import Manifest
from farthing.models.checkpoint.packed_tensor import PackedTensor
from farthing.models.checkpoint.tensor import TensorSource
from farthing.program.ops import Program, WeightSlot
from farthing.tokenization.source import TokenizerSource
from farthing.tokenization.tokenizer import Tokenizer

EMBEDDING = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"
ROPE_FACTORS = "rope_freqs.weight"
ROPE_LONG = "rope_factors_long.weight"
ROPE_SHORT = "rope_factors_short.weight"
_ROWS_TO_COMPARE = 64


AnyTensor = TensorSource | PackedTensor


@dataclass(frozen=True, slots=True)
class Description:
    """What a model file says beside its tensors."""

    config: ModelConfig
    tokenizer: TokenizerSource | None
    chat_template: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model file or directory, read as far as its metadata.

    Holds its files open while a tensor of it is referred to; drop it once the weights are loaded.
    """

    path: Path
    format: Literal["gguf", "huggingface", "packed"]
    config: ModelConfig
    tensors: Mapping[str, AnyTensor]  # by canonical (Hugging Face) name
    tokenizer: TokenizerSource | None  # None: the model came without one
    chat_template: str | None
    manifest: Manifest | None = None  # of a packed directory

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def bytes_by_dtype(self) -> dict[str, int]:
        """Bytes as stored by scheme name, most first."""
        totals: dict[str, int] = {}
        for tensor in self.tensors.values():
            totals[tensor.stored_dtype] = totals.get(tensor.stored_dtype, 0) + tensor.nbytes
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    def unpacked(self, name: str) -> TensorSource:
        """The tensor ``name``; raises :class:`UnsupportedOperationError` for a packed matrix."""
        tensor = self.tensors[name]
        if isinstance(tensor, PackedTensor):
            origin = "" if self.manifest is None else f", {self.manifest.source!r}"
            raise UnsupportedOperationError(
                f"{self.path}: is packed already; quantize what it was made from{origin}"
            )
        return tensor

    def as_half(self, program: Program) -> Checkpoint:
        """The model of ``program`` with codes of matrices as fp16: times their scales, rounded.

        Floats, vectors and the routers of experts stay what they are. Nothing is read yet; a value
        too large for fp16 is refused by who reads it. Raises :class:`UnsupportedOperationError`
        for a packed model, whose values only its kernels know.
        """
        matrices = {slot.name for slot in program.weights if len(slot.shape) > 1}
        halves = {name: self.unpacked(name).as_half() for name in matrices - program.routers}
        return replace(self, tensors={**self.tensors, **halves})


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises :class:`ModelNotFoundError` if it came without one."""
    if checkpoint.tokenizer is None:
        raise ModelNotFoundError(
            f"{checkpoint.path}: the model has no tokenizer; tokenizer.json (or, in a GGUF file, "
            "tokenizer.ggml metadata) is needed"
        )
    return Tokenizer.from_source(checkpoint.tokenizer)


def check_tensors(checkpoint: Checkpoint, slots: Iterable[WeightSlot]) -> None:
    """Checks that the checkpoint has the program's weights, of the right shapes, and no others.

    Passes over tensors that carry no weight of their own: rope frequencies, tensors without
    elements, and an output matrix that repeats a tied embedding. Raises
    :class:`ModelFormatError` naming the file, the tensor and, if they differ, both shapes.
    """
    needed = {slot.name: slot.shape for slot in slots}
    for name, shape in needed.items():
        tensor = checkpoint.tensors.get(name)
        if tensor is None:
            raise ModelFormatError(
                checkpoint.path,
                f"is missing; a weight of shape {_shape(shape)} is needed",
                field=f"tensor {name}",
            )
        if tensor.shape != shape:
            raise ModelFormatError(
                tensor.file,
                f"has shape {_shape(tensor.shape)} where {_shape(shape)} is needed",
                field=_title(name, tensor),
                offset=tensor.offset,
            )
    for name, tensor in checkpoint.tensors.items():
        if name not in needed and not _carries_nothing(checkpoint, name, tensor):
            raise ModelFormatError(
                tensor.file,
                f"of shape {_shape(tensor.shape)} has no place in a model of architecture "
                f"{checkpoint.config.architecture!r}",
                field=_title(name, tensor),
                offset=tensor.offset,
            )


def _carries_nothing(checkpoint: Checkpoint, name: str, tensor: AnyTensor) -> bool:
    """Raises :class:`ModelFormatError` for an output matrix that only should carry nothing."""
    if tensor.nbytes == 0 or name in (ROPE_FACTORS, ROPE_LONG, ROPE_SHORT):
        return True
    if name.endswith(".rotary_emb.inv_freq"):
        return True
    embedding = checkpoint.tensors.get(EMBEDDING)
    if name != LM_HEAD or not checkpoint.config.tie_word_embeddings or embedding is None:
        return False
    if isinstance(tensor, PackedTensor) or isinstance(embedding, PackedTensor):
        return False  # packed once by who knew that they are one
    if tensor.shape == embedding.shape and not _repeats(tensor, embedding):
        raise ModelFormatError(
            tensor.file,
            f"differs from {EMBEDDING}, though the configuration says that they are one; set "
            "tie_word_embeddings to false to have it used",
            field=_title(name, tensor),
            offset=tensor.offset,
        )
    return tensor.shape == embedding.shape


def _repeats(tensor: TensorSource, other: TensorSource) -> bool:
    """Whether matrices of one shape are equal, told by rows spread over them.

    Training an output matrix changes every row of it: each is in the softmax of every token.
    """
    rows = range(0, tensor.rows, max(1, tensor.rows // _ROWS_TO_COMPARE))
    return all(
        np.array_equal(tensor.dequantize(i, i + 1), other.dequantize(i, i + 1)) for i in rows
    )


def _title(name: str, tensor: AnyTensor) -> str:
    return f"tensor {name}" if tensor.name == name else f"tensor {tensor.name} ({name})"


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
