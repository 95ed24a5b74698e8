"""What a model family is: its program, and how checkpoint formats speak of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from farthing.config import ModelConfig
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Value

if TYPE_CHECKING:  # the readers import this module
    from farthing.models.checkpoint.fields import Fields
    from farthing.models.checkpoint.tensor import TensorSource

    Tensors = Mapping[str, TensorSource]
    ReadConfig = Callable[[Fields, ModelConfig], ModelConfig]
    ReadTensors = Callable[[ModelConfig, Tensors], Tensors]


def as_in_llama(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Nothing to read beyond what all families have."""
    return config


def under_their_names(config: ModelConfig, tensors: Tensors) -> Tensors:
    """Nothing to change about the tensors."""
    return tensors


@dataclass(frozen=True, slots=True)
class HuggingFaceDialect:
    """How a family's ``config.json`` and safetensors differ from Llama's."""

    classes: tuple[str, ...]  # "architectures" in config.json
    model_types: tuple[str, ...]  # "model_type", where "architectures" is missing
    read: ReadConfig = as_in_llama
    """Completes the configuration that was read as Llama's, from the fields of ``config.json``;
    refuses by name what the program does not do."""
    tensors: ReadTensors = under_their_names
    """The tensors under the names and shapes that the program asks for."""
    defaults: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """Values of keys that ``config.json`` leaves out; a key that is null has none."""
    section: str | None = None  # an object in config.json that has the text model's keys, if there
    partial_rope: bool = False  # partial_rotary_factor is obeyed
    activation: str = "hidden_act"  # the key that names it


@dataclass(frozen=True, slots=True)
class GgufDialect:
    """How a family's GGUF files differ from Llama's."""

    architecture: str  # "general.architecture"
    read: ReadConfig = as_in_llama
    """As in :class:`HuggingFaceDialect`; keys start with the architecture and a dot."""
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Canonical names of the parts of a layer that Llama lacks or calls otherwise, e.g.
    ``attn_q_norm``: ``self_attn.q_norm``."""
    tensors: ReadTensors = under_their_names
    interleaved_rope: bool = False  # q and k rows are stored so that rope pairs are neighbours
    attention_bias: bool | None = False  # None: there is one if the file has one
    experts: bool = False  # ``read`` obeys the keys of a mixture of experts


@dataclass(frozen=True, slots=True)
class Family:
    """A model family. ``build`` writes its program and returns the logits (R, vocab)."""

    name: str  # ModelConfig.architecture
    build: Callable[[ProgramBuilder, ModelConfig, WeightNames], Value]
    hugging_face: HuggingFaceDialect
    gguf: GgufDialect | None = None  # None: in GGUF files it calls itself another family
