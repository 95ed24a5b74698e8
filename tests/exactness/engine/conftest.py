"""Models, types of the KV cache, and what requests get of them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from farthing.program.kv_types import KV_DTYPES, KvDtype
from support.engine_grid import CONTEXT, EngineModel, Grid
from support.packing import pack
from support.tiny_models import KINDS, make_model

REAL = "qwen2.5-coder-0.5b"
# Grouped heads; a window in every other layer and two soft caps; experts; rounded weights.
MODELS = {
    "qwen2": KINDS["qwen2"],
    "gemma2": KINDS["gemma2"],
    "qwen3-moe": KINDS["qwen3-moe"],
    "qwen2 in w4g32": replace(
        KINDS["qwen2-tied"], num_layers=2, hidden_size=128, num_heads=8, intermediate_size=352
    ),
}
PAIRS = [(name, dtype) for name in MODELS for dtype in KV_DTYPES]
# Their keys and values, each for itself, are also those of other types.
RARE = [pair for pair in PAIRS if pair[1].startswith("k16")]
# All tests take one of each model here, and the others with the slow ones.
FIRST = [
    ("qwen2", "fp16"),
    ("gemma2", "int8"),
    ("qwen3-moe", "fp32"),
    ("qwen2 in w4g32", "int4"),
]
# Whose codes those of int8 and of int4 are; of the small models every type is taken.
REAL_PAIRS = [(REAL, dtype) for dtype in ("fp16", "k8v4")]


def model_path(name: str, directory: Path) -> Path:
    """Writes a model of ``MODELS``."""
    path = make_model(replace(MODELS[name], context_length=CONTEXT), directory / "model")
    if scheme := name.partition(" in ")[2]:
        return pack(path, directory / "packed", scheme)
    return path


def slow(pairs: list[tuple[str, str]]) -> list[Any]:
    return [pytest.param(pair, marks=pytest.mark.slow) for pair in pairs]


def pair_id(pair: tuple[str, str]) -> str:
    return "-".join(pair).replace(" in ", "-")


@pytest.fixture(scope="session")
def make_grid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, KvDtype]], Grid]:
    """Of a model and a type; each once, as what requests get alone is computed once."""
    models: dict[str, EngineModel] = {}

    def model(name: str) -> EngineModel:
        if name == REAL:
            real: Path = request.getfixturevalue("qwen_gguf")
            return EngineModel(real, every_row=False)
        return EngineModel(model_path(name, tmp_path_factory.mktemp("tiny")))

    @cache
    def make(pair: tuple[str, KvDtype]) -> Grid:
        name, dtype = pair
        if name not in models:
            models[name] = model(name)
        sizes = {"max_tokens": 9, "longest": 30} if name == REAL else {}
        return Grid(models[name], dtype, **sizes)

    return make


OTHERS = [pair for pair in PAIRS if pair not in FIRST]


@pytest.fixture(params=[*FIRST, *slow(OTHERS)], ids=pair_id)
def tiny(request: pytest.FixtureRequest, make_grid: Callable[[tuple[str, KvDtype]], Grid]) -> Grid:
    return make_grid(request.param)


@pytest.fixture(params=[*FIRST, *slow(OTHERS + REAL_PAIRS)], ids=pair_id)
def grid(request: pytest.FixtureRequest, make_grid: Callable[[tuple[str, KvDtype]], Grid]) -> Grid:
    return make_grid(request.param)


@pytest.fixture(
    params=[*(pair for pair in PAIRS if pair not in RARE), *slow(RARE + REAL_PAIRS)], ids=pair_id
)
def every_grid(
    request: pytest.FixtureRequest, make_grid: Callable[[tuple[str, KvDtype]], Grid]
) -> Grid:
    return make_grid(request.param)
