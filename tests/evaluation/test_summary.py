"""Figures of a model that was destroyed: they are told, however large they are."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from farthing.cli.evaluate_report import print_report, write_report
from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation, Memory
from farthing.evaluation.measurement import Measurement
from farthing.evaluation.report import Report
from farthing.evaluation.settings import Settings
from farthing.evaluation.size import Size
from farthing.evaluation.text import Windows

N = 48


def measured(name: str, nll: np.ndarray, reference_nll: np.ndarray | None = None) -> Measurement:
    right = np.arange(N) % 3 == 0
    beside = () if reference_nll is None else (reference_nll, right, nll, right)
    scores = Scores(nll, right, *beside)
    return Measurement(name, None, Size(1, 1, 4.0), scores, None, None, None, None)


def test_no_perplexity_is_too_large_to_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A mean of 900 nats: ``exp`` of it is no float, and JSON has no infinity."""
    rng = np.random.default_rng(3)
    usual, lost = rng.gamma(2.0, 1.5, N), rng.gamma(2.0, 450.0, N)
    found = Evaluation(
        windows=Windows(np.zeros((1, 98), np.int32), 1),
        bytes_scored=3 * N,
        paths=None,
        reference=measured("reference", usual),
        reference_is="itself",
        candidates=(measured("lost", lost, usual),),
        memory=Memory(0),
    )
    report = Report.of(
        found,
        model="a model",
        text="a text",
        battery=None,
        method="absmax",
        settings=Settings(),
        margin=0.01,
        max_loss=None,
    )
    text = report.models[1].text
    assert text.perplexity.value == text.median_perplexity == math.inf
    print_report(report)
    assert "worse: perplexity more than 1,000,000,000 times as high" in capsys.readouterr().out

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    write_report(report)
    told = json.loads(capsys.readouterr().out, parse_constant=refuse)
    figures = told["models"][1]["text"]
    assert figures["perplexity"]["value"] is None
    assert figures["nll"]["value"] == text.nll.value > 710
