"""Farthing: serves open-weight language models on the CPUs people already own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farthing.engine.outputs import CompletionOutput, Logprob, RequestOutput, StreamChunk
    from farthing.llm import LLM
    from farthing.sampling.grammar.params import StructuredOutputsParams
    from farthing.sampling.params import SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
    "StreamChunk",
    "StructuredOutputsParams",
    "__version__",
]

_HOMES = {
    "LLM": "farthing.llm",
    "SamplingParams": "farthing.sampling.params",
    "CompletionOutput": "farthing.engine.outputs",
    "Logprob": "farthing.engine.outputs",
    "RequestOutput": "farthing.engine.outputs",
    "StreamChunk": "farthing.engine.outputs",
    "StructuredOutputsParams": "farthing.sampling.grammar.params",
}


def __getattr__(name: str) -> Any:
    """Imports public names when first used, so that the command line starts at once."""
    if name == "__version__":
        from importlib.metadata import version

        return version("farthing")
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'farthing' has no attribute {name!r}")
