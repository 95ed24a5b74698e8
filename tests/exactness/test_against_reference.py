"""Real models as served, against the same weights in float64: what rounding costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.config import Rope
from farthing.models.registry import build_program
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.tokenization.source import GgufVocabulary
from farthing.tokenization.tokenizer import Tokenizer
from support.native_runs import NativeModel
from support.rounded_inputs import log_softmax, mean_divergence, reference_weights

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Real:
    """A real model and a text; the logits of the last ``compared`` tokens are looked at."""

    model: NativeModel
    tokens: Sequence[int]
    compared: int

    @cached_property
    def truth(self) -> NDArray[np.float64]:
        return self._reference(reference_weights(self.model)[0])

    @cached_property
    def rounded(self) -> NDArray[np.float64]:
        return self._reference(reference_weights(self.model)[1])

    def _reference(self, weights: Callable[[str], Any]) -> NDArray[np.float64]:
        blocks = range(-(-len(self.tokens) // 16))
        rows = step_batch([SequenceRows(self.tokens, 0, blocks, logits=self.compared)])
        return log_softmax(ReferenceExecutor(self.model.program, weights).run(rows).logits)

    def native(self) -> NDArray[np.float64]:
        run = self.model.run()
        table, start = run.new_sequence(len(self.tokens)), len(self.tokens) - self.compared
        if start:
            run.step([SequenceRows(self.tokens[:start], 0, table)])
        rows = SequenceRows(self.tokens[start:], start, table, logits=self.compared)
        return log_softmax(run.step([rows])[0])


TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


@pytest.fixture(scope="module")
def qwen(qwen_gguf: Path) -> Real:
    model = NativeModel(qwen_gguf)
    assert model.checkpoint.tokenizer is not None
    tokens = Tokenizer.from_source(model.checkpoint.tokenizer).encode(TEXT)[:256]
    return Real(model, tokens, compared=256)


@pytest.fixture(scope="module")
def gemma(gemma_gguf: Path) -> Real:
    """Looks at tokens that lie beyond the window of the first."""
    model = NativeModel(gemma_gguf)
    assert model.config.sliding_window == 512
    assert isinstance(model.checkpoint.tokenizer, GgufVocabulary)
    tokens = [2, *longest_matches(model.checkpoint.tokenizer.tokens, TEXT.replace(" ", "▁"))]
    return Real(model, tokens[:640], compared=128)


def longest_matches(vocabulary: Sequence[str], text: str) -> list[int]:
    """``text`` in tokens, each as long as can be: not what a tokenizer does, but near it."""
    ids = {token: index for index, token in reversed(list(enumerate(vocabulary)))}
    found: list[int] = []
    while text and len(found) < 1024:
        length = next(n for n in range(min(32, len(text)), 0, -1) if text[:n] in ids)
        found.append(ids[text[:length]])
        text = text[length:]
    return found


@pytest.fixture(params=["qwen", "gemma"])
def real(request: pytest.FixtureRequest) -> Real:
    result: Real = request.getfixturevalue(request.param)
    return result


def test_served_logits_err_as_int8_activations_do_and_no_more(real: Real) -> None:
    served = mean_divergence(real.truth, real.native())
    rounded = mean_divergence(real.truth, real.rounded)
    assert rounded > 1e-5, "the yardstick rounds nothing"
    assert 1e-5 < served <= 2 * rounded


MISTAKES: dict[str, dict[str, Any]] = {
    "no window": {"sliding_window": None, "local_rope": None},
    "half the window": {"sliding_window": 256},
    "the local rope in all layers": {"rope": Rope(10_000.0, 256)},
    "the period of another family": {"sliding_layers": (True, False) * 9},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_about_gemma_errs_more_than_int8_activations_do(
    gemma: Real, mistake: str
) -> None:
    """The inverse test: the measure sees the window and both ropes."""
    wrong = copy(gemma.model)
    wrong.program = build_program(replace(gemma.model.config, **MISTAKES[mistake]))
    served = mean_divergence(gemma.truth, replace(gemma, model=wrong).native())
    assert served > 2 * mean_divergence(gemma.truth, gemma.rounded)
