"""How models are measured, the same way for all."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.program.kv_types import KvDtype

WINDOW = 512
"""Tokens of a window of the text, if nobody says."""

POSITIONS = 144
"""Of the reference's greedy paths, if nobody says."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of every model.

    A reference keeps keys and values in float32: what the models' own type costs is part of what is
    measured.
    """

    context: int = WINDOW  # tokens of a window of the text
    windows: int | None = None  # None: all of the text
    least_scored: int = 0  # tokens of the text: with fewer, nothing is recommended
    positions: int = POSITIONS  # of a reference's greedy paths; 0: no paths
    prompt_tokens: int = 64  # of the passage that a path begins behind
    path_tokens: int = 48  # of a path, unless the reference ends it
    repetition_penalty: float = 1.0  # other than 1: the battery once more with it
    speed: bool = True
    kv_cache_dtype: KvDtype = "fp16"
    num_threads: int | None = None
