"""The native executor on float models: as close to float64 as transformers' own float32 run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from support.native_runs import NativeModel
from support.tiny_models import KINDS, make_tiny_model
from support.truth import (
    assert_greedy,
    assert_within_yardstick,
    in_float64,
    load_transformers,
    logits,
)

LENGTH = 100  # about three times the original context of the scaled kinds


@dataclass(frozen=True)
class Case:
    native: NativeModel
    model: torch.nn.Module
    tokens: list[int]
    float32: NDArray[np.float64]
    truth: NDArray[np.float64]


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory: Path = make_tiny_model(request.param, tmp_path_factory.mktemp("tiny"))
    native = NativeModel(directory)
    model = load_transformers(directory)
    tokens = np.random.default_rng(1).integers(0, native.config.vocab_size, LENGTH).tolist()
    return Case(native, model, tokens, logits(model, tokens), logits(in_float64(model), tokens))


@pytest.mark.parametrize("chunk", [1, 100])
def test_logits_are_within_twice_the_error_of_transformers_float32(case: Case, chunk: int) -> None:
    candidate = case.native.run(kv_dtype="fp32").logits(case.tokens, chunk)
    assert_within_yardstick(candidate, case.float32, case.truth)


def test_sixty_four_greedy_tokens_are_those_of_transformers(case: Case) -> None:
    tokens, _ = case.native.run(kv_dtype="fp32").greedy(case.tokens[:20], 64)
    assert len(tokens) == 64
    assert_greedy(case.model, case.tokens[:20], tokens)
    assert len(set(tokens)) > 4, "degenerate generation: any executor would pass"
