"""A real model in float16: what a mixture is worth on texts that it was not chosen by."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing.evaluation.evaluate import evaluate
from farthing.evaluation.settings import Settings
from farthing.mixed.choose import CalibrationText, choose
from farthing.packing import PackOptions, quantize_model
from farthing.texts import calibration_text, evaluation_text
from support.evaluations import Recorder as Silent
from support.half_gguf import write_half_gguf
from support.mixtures import Recorder

pytestmark = pytest.mark.slow

ARCHITECTURE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


def divergence(model: Path, reference: Path, text: str) -> float:
    found = evaluate(
        model,
        text,
        reference=reference,
        settings=Settings(context=256, windows=8, positions=0, speed=False),
        observer=Silent(),
    )
    kl = found.candidates[0].scores.kl
    assert kl is not None
    return float(kl.mean())


@pytest.mark.timeout(1800)
def test_a_mixture_of_the_size_of_w4g64_diverges_less(gemma_gguf: Path, tmp_path: Path) -> None:
    half = write_half_gguf(gemma_gguf, tmp_path / "half.gguf")
    uniform = quantize_model(half, tmp_path / "uniform", PackOptions("w4g64"))
    text = calibration_text()
    choice = choose(
        half,
        uniform.nbytes,
        CalibrationText(text.name, text.text),
        "weighted",
        num_threads=None,
        keep=tmp_path / "keep",
        observer=Recorder(),
    )
    options = PackOptions("keep", schemes=choice.taken.candidate.schemes)
    mixed = quantize_model(half, tmp_path / "mixed", options)
    assert mixed.nbytes <= uniform.nbytes
    for held_out in (evaluation_text().text, ARCHITECTURE):
        found = [divergence(model.path, half, held_out) for model in (mixed, uniform)]
        assert found[0] < found[1]
