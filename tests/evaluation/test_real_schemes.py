"""The default model in a scheme that it survives and in one that destroys it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from farthing.evaluation.evaluate import Evaluation, evaluate
from farthing.evaluation.report import Report
from farthing.evaluation.settings import Settings
from farthing.texts import evaluation_text
from support.evaluations import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS = Settings(windows=1, positions=48, speed=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def found(qwen_gguf: Path, place: Path) -> Evaluation:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(place))
        return evaluate(
            qwen_gguf,
            evaluation_text().text,
            schemes=("w8row", "w4tensor"),
            method="absmax",
            settings=SETTINGS,
            observer=Recorder(),
        )


def report(found: Evaluation) -> Report:
    return Report.of(
        found,
        model="the default",
        text="Emma",
        battery=None,
        method="absmax",
        settings=SETTINGS,
        margin=0.01,
        max_loss=0.05,
    )


def test_int8_per_row_is_near_the_reference_and_int4_per_tensor_is_not(
    found: Evaluation, qwen_gguf: Path
) -> None:
    assert found.reference_is == "the file's own values as fp16"
    reference, row, tensor = report(found).models
    assert row.text.perplexity_ratio is not None
    assert tensor.text.perplexity_ratio is not None
    assert row.text.perplexity_ratio.low < 1.03
    assert row.text.perplexity_ratio.high < 1.1
    assert tensor.text.perplexity_ratio.low > 100
    assert row.text.kl is not None
    assert tensor.text.kl is not None
    assert 0 < row.text.kl.mean.high < 0.1 < 1 < tensor.text.kl.mean.low
    assert row.paths is not None
    assert tensor.paths is not None
    assert row.paths.share.low > 0.75
    assert tensor.paths.share.high < 0.3
    assert reference.size.bits_per_weight == 16
    assert reference.size.weights > 1.9 * row.size.weights
    assert reference.size.files == qwen_gguf.stat().st_size, "it was written out"
    assert 8 < row.size.bits_per_weight < 8.1


def test_the_verdicts_say_so(found: Evaluation) -> None:
    row, tensor, between = report(found).pairs
    assert (between.first, between.second) == ("w8row", "w4tensor")
    assert tensor.equivalence.equivalent is False
    assert row.equivalence.difference > tensor.equivalence.difference
    assert between.verdicts.agreement is not None
    assert between.verdicts.agreement.startswith("better: ")


def test_the_smallest_within_a_loss_is_not_the_destroyed_one(found: Evaluation) -> None:
    recommendation = report(found).recommendation
    assert recommendation is not None
    assert "w4tensor" not in recommendation.all_within_loss


def test_nothing_is_left(found: Evaluation, place: Path) -> None:
    assert len(found.candidates) == 2
    assert list(place.iterdir()) == []
