"""Passages that two texts share, and those that they do not."""

from __future__ import annotations

import numpy as np
import pytest

import farthing.texts.passages as module
from farthing.texts import PASSAGE, calibration_text, evaluation_text, overlap


def test_the_text_for_judging_shares_no_passage_with_that_for_calibration() -> None:
    judged, calibrated = evaluation_text().text, calibration_text().text
    assert overlap(judged, calibrated) is None
    # Two lines that stand for nothing more than the author's English are found, so it does look.
    assert overlap(judged, calibrated, 20) is not None


@pytest.mark.parametrize("place", [0, 1, 77_777, 274_000])
def test_a_passage_is_found_wherever_its_lines_break(place: int) -> None:
    known = calibration_text().text
    passage = known[place : place + 120]
    text = evaluation_text().text[:5000] + "\n" + passage.replace("\n", "  \n\n ")
    found = overlap(text, known)
    assert found is not None
    assert len(found) == PASSAGE
    assert found in " ".join(text.split())
    assert found in " ".join(known.split())


def random_text(seed: int, length: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz,éß猫😀"
    return "".join(np.random.default_rng(seed).choice(list(letters), length))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 80, 127, 128])
def test_one_character_less_than_a_passage_is_none(length: int) -> None:
    shared = "".join(chr(0x4E00 + i) for i in range(length))  # in neither text
    known = "A" + random_text(2, 500) + "B" + shared + "C"
    found = overlap("D" + shared + "E" + "D" * 300, known, length)
    assert found == shared
    if length > 1:
        assert overlap("D" + shared[:-1] + "E" * 300 + shared[1:], known, length) is None


def test_a_passage_across_two_pieces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 64)
    shared = "0123456789" * 8
    for before in range(100):
        found = overlap(
            random_text(3, before) + "A" + shared, random_text(4, 150) + "B" + shared + "!"
        )
        assert found == shared, before


def test_equal_hashes_are_no_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_run_hashes", lambda codes, length: np.zeros(5, np.uint64))
    assert overlap("a" * 84, "b" * 84) is None


@pytest.mark.parametrize(("text", "other"), [("", ""), ("", "a" * 200), ("a" * 79, "a" * 200)])
def test_texts_too_short_for_a_passage_share_none(text: str, other: str) -> None:
    assert overlap(text, other) is None
    assert overlap(other, text) is None
