"""What parameters that name tokens or text become for a vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farthing.errors import InvalidParameterError
from farthing.sampling.params import SamplingParams
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.vocabulary import SamplingVocabulary

from .word_vocabulary import WordVocabulary

SIZE = 40
SPACE, LINE = SIZE - 2, SIZE - 1


@pytest.fixture
def vocabulary() -> SamplingVocabulary:
    return SamplingVocabulary(WordVocabulary(SIZE), SIZE)


@pytest.mark.parametrize(
    "parameter",
    [{"stop_token_ids": [40]}, {"allowed_token_ids": [3, 2**31 - 1]}, {"logit_bias": {40: 1.0}}],
    ids=str,
)
def test_ids_beyond_the_vocabulary_are_refused_by_name(
    vocabulary: SamplingVocabulary, parameter: dict[str, Any]
) -> None:
    (name,) = parameter
    with pytest.raises(InvalidParameterError, match=rf"{name}: token id \d+ must be .* below 40"):
        vocabulary.check(SamplingParams(**parameter))
    vocabulary.check(SamplingParams(stop_token_ids=[39], logit_bias={39: 1}))


def test_bad_words_are_forbidden_with_and_without_a_space(vocabulary: SamplingVocabulary) -> None:
    assert vocabulary.sequences_of(["ab", " ab", "c"]) == [[0, 1], [SPACE, 0, 1], [2], [SPACE, 2]]
    assert vocabulary.sequences_of([" "]) == [[SPACE]]
    with pytest.raises(InvalidParameterError, match="no tokens for '~'"):
        SamplingVocabulary(WordVocabulary(SIZE), 20).sequences_of(["~"])


def test_a_breaker_is_found_in_tokens_and_across_them(vocabulary: SamplingVocabulary) -> None:
    assert vocabulary._breaker_sequences(["\n"]) == [[LINE]]
    assert vocabulary._breaker_sequences(["ab"]) == [[0, 1]]
    assert vocabulary._breaker_sequences(["3"]) == [[30 + i] for i in range(8)]
    assert vocabulary._breaker_sequences(["7>c"]) == [[27, 2], [37, 2]]
    first = vocabulary.breakers(("\n", ":"))
    assert vocabulary.breakers(("\n", ":")) is first
    for i in range(20):
        vocabulary.breakers((str(i),))
    assert vocabulary.breakers(("\n", ":")) is not first, "only few are kept"


def test_parameters_that_change_nothing_need_no_controls(vocabulary: SamplingVocabulary) -> None:
    for params in (
        SamplingParams(temperature=0.5, seed=3),
        SamplingParams(top_k=-1, dry_multiplier=1.0, dry_penalty_last_n=0, bad_words=[]),
    ):
        assert RequestSampler(params, 3, [1], (), vocabulary).row([]).controls is None


def test_a_request_draws_by_its_own_tokens(vocabulary: SamplingVocabulary) -> None:
    params = SamplingParams(temperature=1e-9, frequency_penalty=1.0, allowed_token_ids=[1, 33])
    sampler = RequestSampler(params, 9, [1, 2, 3], (), vocabulary)
    row = sampler.row([5, 6])
    assert (row.temperature, row.seed, row.position) == (0.0, 9, 5)
    assert row.allowed is not None
    assert row.allowed.tolist() == [2, 2]
    assert row.controls is not None
    assert row.controls.num_generated == 2
    row = sampler.row([5, 6, 5])
    assert row.controls is not None
    edits = dict(row.controls.edits(np.zeros(SIZE, np.float32)))
    assert (edits[5], edits[6]) == (-2.0, -1.0)
