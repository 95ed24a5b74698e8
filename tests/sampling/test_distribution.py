"""Frequencies of draws against probabilities computed independently, control by control."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.program.native import thread_team
from farthing.sampling.params import SamplingParams
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.sampler import SampledRow, Sampler
from farthing.sampling.vocabulary import SamplingVocabulary

from .reference import ALMOST_NEVER, dry_penalties, edited, p_value, probabilities
from .word_vocabulary import WordVocabulary

DRAWS = 20_000
PROMPT = [0, 1, 2, 3, 1, 2]
OUTPUT = [5, 1, 2, 5]
ROWS: dict[str, list[float]] = {
    "spread": [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0, -5.0],
    "ties": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0, -1.0, 1.0],
    "holes": [-np.inf, 2.0, -np.inf, 1.0, 1.0, -np.inf, 0.5, 0.5, -np.inf, 3.0],
    "peaked": [9.0, 2.0, 1.9, 1.8, 0.0, 0.0, 0.0, 0.0, -1.0, -20.0],
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.5},
    {"top_k": 4},
    {"top_p": 0.8},
    {"min_p": 0.15},
    {"typical_p": 0.6},
    {"top_k": 6, "top_p": 0.7},
    {"top_p": 0.9, "min_p": 0.1, "temperature": 1.7},
    {"top_k": 8, "typical_p": 0.7},
    {"top_k": 7, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9, "temperature": 0.8},
]
EDITS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.7},
    {"presence_penalty": 1.1},
    {"frequency_penalty": 0.6},
    {"logit_bias": {7: 3.0, 0: -2.5, 9: 100.0}},
    {"dry_multiplier": 0.9, "dry_base": 1.5, "dry_allowed_length": 1},
    {"repetition_penalty": 1.2, "presence_penalty": -0.5, "frequency_penalty": 0.3},
]


def request(settings: dict[str, Any], seed: int, vocabulary: SamplingVocabulary) -> RequestSampler:
    params = SamplingParams(**{"dry_sequence_breakers": (), **settings})
    return RequestSampler(params, seed, PROMPT, (), vocabulary)


def counts(
    logits: NDArray[np.float32], settings: dict[str, Any], output: Sequence[int] = OUTPUT
) -> NDArray[np.int64]:
    """Of each token, in draws that differ by position alone."""
    width = logits.size
    seed = zlib.crc32(repr((logits[:10].tolist(), settings)).encode())
    row = request(settings, seed, SamplingVocabulary(WordVocabulary(width), width)).row(output)
    rows = [
        SampledRow(row.temperature, row.seed, i, allowed=row.allowed, controls=row.controls)
        for i in range(DRAWS)
    ]
    tokens = Sampler().draw(logits.reshape(1, -1), rows, [0] * DRAWS)
    assert min(tokens) >= 0
    return np.bincount(tokens, minlength=width)


def expected(
    logits: Sequence[float], settings: dict[str, Any], forbidden: Sequence[int] = ()
) -> NDArray[np.float64]:
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p")
    filters = {name: settings[name] for name in names if name in settings}
    edits = {
        name: value
        for name, value in settings.items()
        if name not in filters and not name.startswith("dry_")
    }
    dry = None
    if "dry_multiplier" in settings:
        dry = dry_penalties(
            PROMPT + OUTPUT,
            multiplier=settings["dry_multiplier"],
            base=settings["dry_base"],
            allowed_length=settings["dry_allowed_length"],
        )
        assert dry, "the case must have a repetition"
    final = edited(logits, PROMPT, OUTPUT, dry=dry, forbidden=forbidden, **edits)
    return probabilities(final, **filters)


def check(logits: Sequence[float], settings: dict[str, Any]) -> None:
    drawn = counts(np.array(logits, np.float32), settings)
    assert p_value(drawn, expected(logits, settings)) > ALMOST_NEVER


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_filters_give_the_probabilities_they_promise(row: str, settings: dict[str, Any]) -> None:
    check(ROWS[row], settings)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("settings", EDITS, ids=str)
def test_penalties_and_bias_give_the_probabilities_they_promise(
    row: str, settings: dict[str, Any]
) -> None:
    check(ROWS[row], settings)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_everything_together(row: str, edits: dict[str, Any]) -> None:
    for settings in FILTERS[-3:]:
        check(ROWS[row], {**settings, **edits})


def test_forbidden_tokens_leave_their_share_to_the_others() -> None:
    logits = ROWS["spread"]
    for settings, forbidden in (
        ({"allowed_token_ids": [1, 4, 8]}, [0, 2, 3, 5, 6, 7, 9]),
        ({"bad_words": ["a", "c"]}, [0, 2]),
        ({"bad_words": ["cfd"], "top_k": 5}, [3]),  # the output ends with c f
    ):
        drawn = counts(np.array(logits, np.float32), settings)
        rest = {k: v for k, v in settings.items() if k == "top_k"}
        assert p_value(drawn, expected(logits, rest, forbidden)) > ALMOST_NEVER


def test_a_large_vocabulary() -> None:
    """152 k tokens, most of them of no probability worth a cell: they are counted in sixteenths."""
    width, groups = 151_936, 16
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal(width) * 1.5).astype(np.float32)
    logits[rng.permutation(width)[:6]] = [13.0, 12.5, 12.0, 11.5, 11.0, 10.5]
    cells = np.argsort(-logits, kind="stable").argsort()  # the six first, then groups by id
    cells = np.where(cells < 6, cells, 6 + np.arange(width) % groups)
    sampler = Sampler(thread_team(2))
    for settings in ({}, {"temperature": 1.3, "top_p": 0.9}, {"typical_p": 0.9}):
        vocabulary = SamplingVocabulary(WordVocabulary(width), width)
        row = request(settings, 77, vocabulary).row([])
        rows = [
            SampledRow(row.temperature, row.seed, i, controls=row.controls) for i in range(1000)
        ]
        tokens = sampler.draw(logits.reshape(1, -1), rows, [0] * len(rows))
        drawn = np.bincount(cells[tokens], minlength=6 + groups)
        p = probabilities(logits.astype(np.float64), **settings)
        goal = np.bincount(cells, weights=p, minlength=6 + groups)
        assert drawn[6:].sum() > 100, "the many must show, not only the six"
        assert p_value(drawn, goal) > ALMOST_NEVER


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({}, {"temperature": 1.1}),
        ({"top_k": 4}, {"top_k": 5}),
        ({"top_p": 0.8}, {"top_p": 0.9}),
        ({"min_p": 0.15}, {"min_p": 0.3}),
        ({"typical_p": 0.6}, {"top_p": 0.6}),
        ({"repetition_penalty": 1.5}, {"presence_penalty": 0.5}),
        ({"frequency_penalty": 0.6}, {"presence_penalty": 0.6}),
    ],
    ids=str,
)
def test_a_wrong_distribution_fails(settings: dict[str, Any], wrong: dict[str, Any]) -> None:
    """The inverse test: the right draws are not those of a neighbouring setting."""
    logits = ROWS["spread"]
    drawn = counts(np.array(logits, np.float32), settings)
    assert p_value(drawn, expected(logits, settings)) > ALMOST_NEVER
    assert p_value(drawn, expected(logits, wrong)) < 1e-9
