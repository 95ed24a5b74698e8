"""The default model as served, against the same weights in float64: what rounding costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.tokenization.tokenizer import Tokenizer
from support.native_runs import NativeModel
from support.rounded_inputs import log_softmax, mean_divergence, reference_weights

POSITIONS = 256

pytestmark = pytest.mark.slow


def test_served_logits_err_as_int8_activations_do_and_no_more(qwen_gguf: Path) -> None:
    model = NativeModel(qwen_gguf)
    assert model.checkpoint.tokenizer is not None
    tokenizer = Tokenizer.from_source(model.checkpoint.tokenizer)
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    tokens = tokenizer.encode(text)[:POSITIONS]
    assert len(tokens) == POSITIONS
    rows = step_batch([SequenceRows(tokens, 0, range(POSITIONS // 16), logits=POSITIONS)])

    exact, rounding = reference_weights(model)

    def reference(weights: Any) -> NDArray[np.float64]:
        return log_softmax(ReferenceExecutor(model.program, weights).run(rows).logits)

    truth = reference(exact)
    served = mean_divergence(truth, log_softmax(model.run().logits(tokens)))
    rounded = mean_divergence(truth, reference(rounding))
    assert rounded > 1e-5, "the yardstick rounds nothing"
    assert 1e-5 < served <= 2 * rounded
