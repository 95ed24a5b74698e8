"""Every family Farthing can run: the one table a new model is added to."""

from __future__ import annotations

from collections.abc import Collection

from farthing.config import ModelConfig
from farthing.errors import UnsupportedArchitectureError
from farthing.models import (
    gemma2,
    gemma3,
    granite,
    llama,
    mistral,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    smollm3,
)
from farthing.models.family import Family
from farthing.models.names import WeightNames
from farthing.program.builder import ProgramBuilder
from farthing.program.ops import Program

FAMILIES: tuple[Family, ...] = (
    gemma2.FAMILY,
    gemma3.FAMILY,
    granite.FAMILY,
    llama.FAMILY,
    mistral.FAMILY,
    olmo2.FAMILY,
    phi3.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen3_moe.FAMILY,
    smollm3.FAMILY,
)


def supported_architectures() -> tuple[str, ...]:
    """Names of all families, in alphabetical order."""
    return tuple(sorted(family.name for family in FAMILIES))


def find_family(name: str) -> Family:
    """The family called ``name`` in a :class:`ModelConfig`.

    Raises :class:`UnsupportedArchitectureError`.
    """
    for family in FAMILIES:
        if name == family.name:
            return family
    raise UnsupportedArchitectureError(
        f"architecture {name!r} is not supported; supported: {', '.join(supported_architectures())}"
    )


def build_program(
    config: ModelConfig,
    *,
    context_length: int | None = None,
    taps: bool | Collection[str] = False,
) -> Program:
    """The program of the model described by ``config``.

    ``context_length``: tokens that the model is to be run with, on which some rotary embeddings
    depend; the most it can by default. ``taps``: False for serving; True for every tap point, or
    the names of some.
    """
    config = config.at_context(context_length or config.context_length)
    builder = ProgramBuilder(taps=taps)
    return builder.finish(
        find_family(config.architecture).build(builder, config, WeightNames(config))
    )
