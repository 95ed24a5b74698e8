"""Every architecture Farthing can run: the one table a new model is added to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from farthing.config import ModelConfig
from farthing.errors import UnsupportedArchitectureError
from farthing.models import llama, qwen2
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Program, Value


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model family and what checkpoint formats call it."""

    name: str  # as in ModelConfig.architecture
    build: Callable[[ProgramBuilder, ModelConfig, WeightNames], Value]
    hugging_face: tuple[str, ...]  # "architectures" in config.json
    gguf: str  # "general.architecture"


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("llama", llama.build, hugging_face=("LlamaForCausalLM",), gguf="llama"),
    Architecture("qwen2", qwen2.build, hugging_face=("Qwen2ForCausalLM",), gguf="qwen2"),
)


def supported_architectures() -> tuple[str, ...]:
    """Names of all architectures, in alphabetical order."""
    return tuple(sorted(architecture.name for architecture in ARCHITECTURES))


def find_architecture(name: str) -> Architecture:
    """The architecture called ``name`` in a :class:`ModelConfig`.

    Raises :class:`UnsupportedArchitectureError`, as the other look-ups do.
    """
    for architecture in ARCHITECTURES:
        if name == architecture.name:
            return architecture
    raise _unsupported(name, supported_architectures())


def find_hugging_face_architecture(class_name: str) -> Architecture:
    """The architecture of a Hugging Face class, e.g. ``Qwen2ForCausalLM``."""
    for architecture in ARCHITECTURES:
        if class_name in architecture.hugging_face:
            return architecture
    raise _unsupported(class_name, (name for a in ARCHITECTURES for name in a.hugging_face))


def find_gguf_architecture(name: str) -> Architecture:
    """The architecture of a GGUF file's ``general.architecture``."""
    for architecture in ARCHITECTURES:
        if name == architecture.gguf:
            return architecture
    raise _unsupported(name, (architecture.gguf for architecture in ARCHITECTURES))


def build_program(config: ModelConfig, *, taps: bool | Collection[str] = False) -> Program:
    """The program of the model described by ``config``.

    ``taps``: False for serving; True for every tap point, or the names of some.
    """
    architecture = find_architecture(config.architecture)
    builder = ProgramBuilder(taps=taps)
    return builder.finish(architecture.build(builder, config, WeightNames(config)))


def _unsupported(name: str, supported: Iterable[str]) -> UnsupportedArchitectureError:
    return UnsupportedArchitectureError(
        f"architecture {name!r} is not supported; supported: {', '.join(sorted(supported))}"
    )
