"""The null comparison on scores of a real model: two forms of it, neither of them better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing.evaluation.statistics import bootstrap_mean, mcnemar
from farthing.texts import evaluation_text
from support.binomial_limits import most_in_binomial_limits

RESAMPLES = 200


@pytest.fixture(scope="module")
def scores(qwen_gguf: Path) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood, and whether the token was the likeliest, of the same tokens (2, n) each.

    With keys and values in 16 and in 8 bits, which is a difference of some percent.
    """
    from farthing import LLM, SamplingParams

    likelihoods, hits = [], []
    for kv in ("fp16", "int8"):
        llm = LLM(model=str(qwen_gguf), kv_cache_dtype=kv, max_model_len=1536)
        asked = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
        (output,) = llm.generate([evaluation_text().text[:5000]], asked)
        assert output.prompt_logprobs is not None
        tokens = zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
        found = [each[token] for token, each in tokens if each is not None]
        likelihoods.append([each.logprob for each in found])
        hits.append([each.rank == 1 for each in found])
        llm.close()
    return np.array(likelihoods), np.array(hits)


@pytest.mark.slow
def test_a_null_comparison_of_likelihoods_shows_no_difference(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    """Each token's difference has its own size, and a sign that means nothing."""
    likelihoods, _ = scores
    differences = likelihoods[0] - likelihoods[1]
    assert len(differences) > 1000
    assert np.count_nonzero(differences) > 900
    rng = np.random.default_rng(2)
    seen = 0
    for _ in range(RESAMPLES):
        found = bootstrap_mean(differences * rng.choice([-1.0, 1.0], len(differences)))
        seen += not found.low <= 0 <= found.high
    assert seen <= most_in_binomial_limits(RESAMPLES, 0.05)
    # And what is there is found: all differences to one side.
    assert bootstrap_mean(np.abs(differences)).low > 0


@pytest.mark.slow
def test_a_null_comparison_of_hits_shows_no_difference(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    """Which of the two hits a token that one of them misses is drawn anew."""
    _, hits = scores
    discordant = int((hits[0] != hits[1]).sum())
    assert discordant > 20
    rng = np.random.default_rng(2)
    drawn = rng.binomial(discordant, 0.5, RESAMPLES)
    seen = sum(mcnemar(int(each), discordant - int(each)) <= 0.05 for each in drawn)
    assert seen <= most_in_binomial_limits(RESAMPLES, 0.05)
    assert mcnemar(discordant, 0) < 0.05
