"""Texts that ship with the package, to judge models and to calibrate them."""

from __future__ import annotations

from farthing.texts.built_in import Text, calibration_text, evaluation_text
from farthing.texts.passages import PASSAGE, overlap

__all__ = ["PASSAGE", "Text", "calibration_text", "evaluation_text", "overlap"]
