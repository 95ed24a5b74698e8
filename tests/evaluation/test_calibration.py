"""A model is not judged by what it was calibrated on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.errors import InvalidParameterError
from farthing.evaluation.calibration import require_other_text
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.checkpoint.packed_manifest import Calibration
from farthing.models.registry import FAMILIES
from farthing.packing.quantize import PackOptions, quantize_model
from farthing.texts import calibration_text, evaluation_text

OWN = "A text of one's own, read while the model was packed."


def calibrated_on(model: Path, target: Path, name: str, text: str) -> Checkpoint:
    used = Calibration("mixed", name, hashlib.sha256(text.encode()).hexdigest())
    quantize_model(model, target, replace(PackOptions("w8row"), calibration=used))
    return open_checkpoint(target, FAMILIES)


@pytest.fixture
def notes() -> list[str]:
    return []


def test_the_built_in_texts_are_two(
    reference_model: Path, tmp_path: Path, notes: list[str]
) -> None:
    built_in = calibration_text()
    model = calibrated_on(reference_model, tmp_path / "packed", built_in.name, built_in.text)
    require_other_text(model, evaluation_text().text, "Emma", notes.append)
    assert notes == []
    for text in (built_in.text, "Once more: " + built_in.text[5000:5400]):
        with pytest.raises(InvalidParameterError, match=r"^mine: .* was calibrated on ") as caught:
            require_other_text(model, text, "mine", notes.append)
        assert str(model.path) in str(caught.value)
    require_other_text(model, "Something else, and long. " * 20, "mine", notes.append)


def test_of_a_text_of_ones_own_the_checksum_is_known(
    reference_model: Path, tmp_path: Path, notes: list[str]
) -> None:
    model = calibrated_on(reference_model, tmp_path / "packed", "own.txt", OWN)
    with pytest.raises(InvalidParameterError, match="calibrated on this text; give another"):
        require_other_text(model, OWN, "own.txt", notes.append)
    require_other_text(model, OWN + " More.", "own.txt", notes.append)
    (note,) = notes
    assert "own.txt" in note
    assert "on trust" in note


def test_others_are_judged_by_any_text(reference_model: Path, notes: list[str]) -> None:
    require_other_text(
        open_checkpoint(reference_model, FAMILIES), calibration_text().text, "it", notes.append
    )
    assert notes == []
