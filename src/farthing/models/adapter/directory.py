"""A directory that the ``peft`` library saved: configuration and pairs of low-rank factors."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.models.adapter.config import CONFIG_FILE, AdapterConfig, read_adapter_config
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.huggingface import tensor_source
from farthing.models.checkpoint.safetensors_file import SafetensorsFile, read_safetensors
from farthing.models.checkpoint.tensor import TensorSource

WEIGHTS_FILE = "adapter_model.safetensors"
_PICKLE = "adapter_model.bin"
_FACTOR = re.compile(r"base_model\.model\.([\w.]{1,200})\.lora_([AB])\.weight", re.ASCII)
_OTHER_KINDS = (
    ("lora_magnitude_vector", "weight-decomposed adapters (DoRA) are not supported"),
    ("lora_embedding_", "adapters of embeddings are not supported"),
    ("lora_B.bias", "a bias in the adapter is not supported"),
    ("trainable_tokens_", "trained token embeddings are not supported"),
    ("modules_to_save.", "whole modules saved with the adapter are not supported"),
    (
        "base_layer.",
        "is a copy of the base model's own weight; save the adapter without it "
        "(save_embedding_layers=False)",
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class LowRankPair:
    """``scale * B @ A`` is added to the weight of ``module``, a dotted name in the base model."""

    module: str
    a: TensorSource  # (rank, inputs)
    b: TensorSource  # (outputs, rank)

    @property
    def rank(self) -> int:
        """Rank of the product."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A LoRA adapter, read as far as its metadata; its file stays open while this is held."""

    path: Path
    config: AdapterConfig
    pairs: tuple[LowRankPair, ...]  # by module, none twice

    @property
    def parameters(self) -> int:
        """Numbers in all factors."""
        return sum(t.rows * t.cols for pair in self.pairs for t in (pair.a, pair.b))

    @property
    def nbytes(self) -> int:
        """Bytes of all factors as stored."""
        return sum(t.nbytes for pair in self.pairs for t in (pair.a, pair.b))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that occur, ascending."""
        return tuple(sorted({pair.rank for pair in self.pairs}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Last names of the adapted modules, in alphabetical order: ``q_proj``, ``v_proj``."""
        return tuple(sorted({pair.module.rpartition(".")[2] for pair in self.pairs}))


def open_adapter(path: Path) -> Adapter:
    """Opens a directory with ``adapter_config.json`` and ``adapter_model.safetensors``.

    Whether it fits a model, :func:`~farthing.models.adapter.apply_adapter` finds out; whether its
    values are finite shows as they are read.

    Raises :class:`ModelNotFoundError` if there is no such directory or no adapter in it,
    :class:`ModelFormatError` for what is not as the format demands or is not served, naming file
    and key or tensor, and :class:`FarthingError` if the system refuses to read it.
    """
    _check_directory(path)
    try:
        config = read_adapter_config(path / CONFIG_FILE)
    except ModelNotFoundError:
        problem = f"has no {CONFIG_FILE}, so it is not an adapter directory"
        if _is_there(path / "config.json"):
            problem += " but a model's"
        raise ModelNotFoundError(f"{path}: {problem}") from None
    try:
        file = read_safetensors(path / WEIGHTS_FILE)
    except ModelNotFoundError:
        if not _is_there(path / _PICKLE):
            raise
        raise ModelFormatError(
            path / _PICKLE,
            "is a pickle, which can run code when it is opened; only safetensors are read: "
            f"save the adapter as {WEIGHTS_FILE}",
        ) from None
    return Adapter(path, config, _pairs(file))


def _check_directory(path: Path) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"{path}: no such adapter directory; adapters are not fetched"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FarthingError(f"{path}: cannot be read: {reason}") from error
    if not stat.S_ISDIR(status.st_mode):
        problem = f"is a file; name the directory of an adapter, with {CONFIG_FILE} in it"
        if path.suffix.lower() == ".gguf":
            problem = (
                "adapters in GGUF files are not supported; a directory with "
                f"{CONFIG_FILE} and {WEIGHTS_FILE}, as peft saves it, is needed"
            )
        raise ModelFormatError(path, problem)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _pairs(file: SafetensorsFile) -> tuple[LowRankPair, ...]:
    factors: dict[tuple[str, str], TensorSource] = {}
    for entry in file.tensors:
        match = _FACTOR.fullmatch(entry.name)
        tensor = tensor_source(file.reader, entry)
        if match is None:
            _fail(tensor, _why_unknown(entry.name))
        if len(tensor.shape) != 2:
            _fail(tensor, f"has shape {tensor.shape}; a matrix is needed")
        factors[match[1], match[2]] = tensor
    if not factors:
        raise ModelFormatError(file.reader.path, "holds no tensors")
    modules = dict.fromkeys(module for module, _ in factors)
    return tuple(_pair(module, factors) for module in modules)


def _pair(module: str, factors: Mapping[tuple[str, str], TensorSource]) -> LowRankPair:
    a, b = factors.get((module, "A")), factors.get((module, "B"))
    if a is None or b is None:
        present = a or b
        assert present is not None  # the module comes from one of them
        _fail(present, f"lora_{'A' if a is None else 'B'} of the same module is missing")
    rank = a.shape[0]
    if not 1 <= rank <= limits.MAX_ADAPTER_RANK:
        _fail(a, f"has rank {rank}, outside 1 to {limits.MAX_ADAPTER_RANK}")
    if b.shape[1] != rank:
        _fail(b, f"has {b.shape[1]} columns where lora_A has rank {rank}")
    return LowRankPair(module, a, b)


def _why_unknown(name: str) -> str:
    for part, problem in _OTHER_KINDS:
        if part in name:
            return problem
    return (
        "is not a factor of a LoRA adapter, which are named "
        "base_model.model.<module>.lora_A.weight and lora_B.weight"
    )


def _fail(tensor: TensorSource, problem: str) -> NoReturn:
    raise ModelFormatError(
        tensor.file, problem, field=f"tensor {tensor.name[:200]}", offset=tensor.offset
    )
