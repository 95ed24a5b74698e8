"""Penalties, DRY and bans of the native controls against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farthing import _native

from .reference import dry_penalties, edited

WIDTH = 12
token_lists = st.lists(st.integers(0, WIDTH - 1), max_size=40)
few_tokens = st.lists(st.integers(0, 2), max_size=40)  # full of repetitions


def logits_of(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(WIDTH) * 4).astype(np.float32)


def controls(prompt: list[int], output: list[int], **options: Any) -> _native.Controls:
    made = _native.Controls(WIDTH, prompt, **options)
    for token in output:
        made.append(token)
    assert made.num_generated == len(output)
    return made


def values(made: _native.Controls, logits: np.ndarray) -> np.ndarray:
    edits = made.edits(logits)
    tokens = [token for token, _ in edits]
    assert tokens == sorted(set(tokens))
    result = logits.copy()
    for token, value in edits:
        result[token] = value
    return result


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    token_lists,
    token_lists,
    st.fixed_dictionaries(
        {
            "repetition_penalty": st.sampled_from([1.0, 1.3, 0.5]),
            "presence_penalty": st.sampled_from([0.0, 0.7, -2.0]),
            "frequency_penalty": st.sampled_from([0.0, 0.3, -0.1]),
            "logit_bias": st.dictionaries(st.integers(0, WIDTH - 1), st.floats(-100, 100)),
        }
    ),
)
def test_penalties_and_bias_are_those_of_plain_loops(
    prompt: list[int], output: list[int], options: dict[str, Any]
) -> None:
    logits = logits_of(len(prompt) + 50 * len(output))
    made = controls(
        prompt,
        output,
        repetition=options["repetition_penalty"],
        presence=options["presence_penalty"],
        frequency=options["frequency_penalty"],
        bias=sorted(options["logit_bias"].items()),
    )
    exact = edited(logits.tolist(), prompt, output, **options)
    found = values(made, logits)
    size = np.abs(logits.astype(np.float64)) * 2 + 4 * 40 + 100  # of what the five roundings see
    assert (np.abs(found - exact) <= 5 * 2.0**-24 * size).all()
    untouched = set(range(WIDTH)) - set(prompt) - set(output) - set(options["logit_bias"])
    assert all(found[token] == logits[token] for token in untouched)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    few_tokens,
    few_tokens,
    st.integers(1, 4),
    st.sampled_from([-1, 1, 5, 12, 100]),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=2),
)
@example([0, 1, 0, 1, 0], [], 1, -1, [])
@example([0, 0, 0, 0], [], 2, -1, [[0]])
@example([1, 2, 0, 1, 2], [0, 1, 2], 2, -1, [[0, 1], [0]])
@example([], [], 1, -1, [])
def test_dry_finds_what_a_quadratic_search_finds(
    prompt: list[int],
    output: list[int],
    allowed_length: int,
    last_n: int,
    breakers: list[list[int]],
) -> None:
    logits = np.zeros(WIDTH, np.float32)
    made = controls(
        prompt,
        output,
        dry_multiplier=0.75,
        dry_base=1.5,
        dry_allowed_length=allowed_length,
        dry_last_n=last_n,
        dry_breakers=_native.SequenceBreakers(WIDTH, breakers) if breakers else None,
    )
    exact = dry_penalties(
        prompt + output,
        multiplier=0.75,
        base=1.5,
        allowed_length=allowed_length,
        last_n=last_n,
        breakers=breakers,
    )
    assert {t: -v for t, v in made.edits(logits)} == {
        t: float(np.float32(p)) for t, p in exact.items()
    }


def test_dry_of_a_long_repetition_stays_finite() -> None:
    made = controls([1, 2] * 5000, [], dry_multiplier=1.0, dry_base=2.0)
    ((token, value),) = made.edits(np.zeros(WIDTH, np.float32))
    assert token == 1
    assert value == -np.finfo(np.float32).max


def test_end_tokens_wait_for_the_minimum() -> None:
    made = controls([3], [], end_tokens=[4, 9], min_tokens=2, bias=[(4, 50.0)])
    logits = logits_of(1)
    for _ in range(2):
        assert values(made, logits)[[4, 9]].tolist() == [-np.inf, -np.inf]
        made.append(5)
    assert values(made, logits)[4] == np.float32(logits[4] + np.float32(50))
    assert values(made, logits)[9] == logits[9]


def test_a_bad_word_goes_where_its_beginning_was_generated() -> None:
    made = controls([7, 8], [], bad_words=[[1], [7, 8, 2], [3, 4]])
    logits = logits_of(2)
    assert [t for t, _ in made.edits(logits)] == [1], "the prompt's tokens begin no word"
    for token, forbidden in ((3, [1, 4]), (4, [1]), (7, [1]), (8, [1, 2]), (8, [1])):
        made.append(token)
        assert made.edits(logits) == [(t, -np.inf) for t in forbidden]


def test_controls_that_contradict_the_vocabulary_are_refused() -> None:
    for options in (
        {"bias": [(12, 1.0)]},
        {"bias": [(3, 1.0), (2, 1.0)]},
        {"bad_words": [[]]},
        {"bad_words": [[12]]},
        {"end_tokens": [-1]},
        {"dry_breakers": _native.SequenceBreakers(13, [])},
        {"repetition": 0.0},
    ):
        with pytest.raises(ValueError, match=r"vocabulary|ascend|empty|above 0"):
            controls([], [], **options)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        controls([12], [])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        controls([], [12])
