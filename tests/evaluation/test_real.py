"""The default model against its own weights in float16, and both against float64."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation, evaluate
from farthing.evaluation.settings import Settings
from farthing.evaluation.summary import summarize
from farthing.program.reference import ReferenceExecutor, Weights
from farthing.program.step import SequenceRows, step_batch
from support.evaluations import Recorder
from support.half_gguf import write_half_gguf
from support.native_runs import NativeModel
from support.rounded_inputs import log_softmax, mean_divergence, reference_weights

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
SETTINGS = Settings(context=256, windows=1, positions=0, speed=False)


@pytest.fixture(scope="module")
def half(qwen_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_half_gguf(qwen_gguf, tmp_path_factory.mktemp("half") / "half.gguf")


@dataclass(frozen=True)
class Measured:
    """One window, by Farthing and in float64."""

    found: Evaluation
    model: NativeModel

    def _log_probabilities(self, weights: Weights) -> NDArray[np.float64]:
        windows = self.found.windows
        tokens = windows.tokens[0, :-1].tolist()
        rows = step_batch([SequenceRows(tokens, 0, range(16), logits=windows.scored)])
        return log_softmax(ReferenceExecutor(self.model.program, weights).run(rows).logits)

    @cached_property
    def truth(self) -> NDArray[np.float64]:
        return self._log_probabilities(reference_weights(self.model)[0])

    @cached_property
    def rounded(self) -> NDArray[np.float64]:
        """With activations rounded to int8 as they are when served, all else exact."""
        return self._log_probabilities(reference_weights(self.model)[1])

    def nll(self, log_p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(-np.take_along_axis(log_p, self.found.windows.targets.T, axis=1)[:, 0])


@pytest.fixture(scope="module")
def measured(qwen_gguf: Path, half: Path) -> Measured:
    found = evaluate(qwen_gguf, TEXT, reference=half, settings=SETTINGS, observer=Recorder())
    return Measured(found, NativeModel(qwen_gguf))


def scores(found: Evaluation) -> Scores:
    """Of the one candidate."""
    return found.candidates[0].scores


def rms(error: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(error))))


def test_the_divergence_is_what_int8_activations_cost(measured: Measured) -> None:
    figures = summarize(measured.found.candidates[0], measured.found).text
    assert figures.kl is not None
    assert figures.same_top is not None
    rounded = mean_divergence(measured.truth, measured.rounded)
    assert rounded > 1e-5, "the yardstick rounds nothing"
    assert 1e-5 < figures.kl.mean.value <= 2 * rounded
    assert figures.same_top.value > 0.9


def test_likelihoods_are_those_in_float64_but_for_rounding(measured: Measured) -> None:
    found = scores(measured.found)
    assert found.reference_nll is not None
    truth = measured.nll(measured.truth)
    cost = rms(measured.nll(measured.rounded) - truth)
    assert 0 < rms(found.nll - truth) <= 2 * cost
    assert rms(found.reference_nll - truth) < cost / 4, "float16 weights, and nothing else rounded"
    assert truth.std() > 0.1


def test_the_default_model_is_its_own_reference_bit_for_bit(qwen_gguf: Path) -> None:
    settings = Settings(windows=2, kv_cache_dtype="fp32", speed=False)
    found = evaluate(qwen_gguf, TEXT, reference=qwen_gguf, settings=settings, observer=Recorder())
    measured = scores(found)
    assert measured.kl is not None
    assert (measured.kl == 0).all()
    np.testing.assert_array_equal(measured.nll, measured.reference_nll)
    figures = summarize(found.candidates[0], found)
    assert 1 < figures.text.perplexity.value < 100
    assert figures.paths is not None
    assert (figures.paths.share.count, figures.paths.share.total) == (144, 144)


CHILD = """
import json, sys
from pathlib import Path
from farthing.evaluation.evaluate import evaluate
from farthing.evaluation.settings import Settings
sys.path.insert(0, sys.argv[3])
from support.evaluations import Recorder
text = Path(sys.argv[4]).read_text()
model, reference = Path(sys.argv[1]), Path(sys.argv[2])
settings = Settings(context=256, windows=2, positions=12, speed=False)
found = evaluate(model, text, reference=reference, settings=settings, observer=Recorder())
# Not ru_maxrss: a child inherits its parent's through fork and exec.
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
memory = found.memory
print(json.dumps([peak, memory.model_weights, memory.reference_weights, memory.reference_head]))
"""


def test_memory_is_that_of_one_model_and_a_head(qwen_gguf: Path, half: Path) -> None:
    tests = Path(__file__).parents[1]
    text = tests.parent / "docs" / "architecture.md"
    child = [sys.executable, "-c", CHILD, *map(str, (qwen_gguf, half, tests, text))]
    result = subprocess.run(child, check=True, capture_output=True, text=True)
    peak, model, reference, head = json.loads(result.stdout)
    logits = 2 * 128 * 151_936 * 4
    bound = max(reference, model + head + logits) + (300 << 20)
    assert bound < model + reference, "two models at once would not be seen"
    assert peak <= bound
