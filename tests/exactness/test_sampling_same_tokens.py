"""The promise for sampling: a request's tokens and log probabilities are its own affair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing import LLM, RequestOutput, SamplingParams
from support.tiny_models import make_tiny_model

PROMPT = "The quick brown fox jumps over the lazy dog; the quick brown fox"


def _params(seed: int, **settings: object) -> SamplingParams:
    return SamplingParams(seed=seed, max_tokens=14, ignore_eos=True, logprobs=2, **settings)  # type: ignore[arg-type]


REQUESTS = [
    _params(1),
    _params(2, temperature=0.0, repetition_penalty=1.4),
    _params(3, temperature=1.5, top_k=12),
    _params(4, top_p=0.8),
    _params(5, min_p=0.05, presence_penalty=0.8),
    _params(6, typical_p=0.9, frequency_penalty=0.5),
    _params(7, top_k=40, top_p=0.95, repetition_penalty=1.1, min_tokens=3),
    _params(8, dry_multiplier=2.0, dry_base=2.0, dry_allowed_length=1),
    _params(9, logit_bias={40: 6.0, 41: 6.0, 42: 5.5}),
    _params(10, allowed_token_ids=[10, 20, 30, 40, 50]),
    _params(11, bad_words=["the", "a"], temperature=2.0, top_k=200),
    _params(12, prompt_logprobs=1, top_p=0.5),
]
Result = tuple[list[int], list[list[tuple[int, float, int]]]]


@pytest.fixture(scope="module", params=["qwen2", "llama-mha"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(request.param, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path)


def result(output: RequestOutput) -> Result:
    (completion,) = output.outputs
    assert completion.finish_reason == "length", output.error
    assert completion.logprobs is not None
    return completion.token_ids, [
        [(token, entry.logprob, entry.rank) for token, entry in each.items()]
        for each in completion.logprobs
    ]


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[Result]:
    results = [result(llm.generate(PROMPT, params)[0]) for params in REQUESTS]
    assert len({tuple(tokens) for tokens, _ in results}) == len(REQUESTS), "all differ"
    return results


@pytest.mark.parametrize("order_seed", range(3))
def test_any_place_in_a_batch_gives_the_same_tokens(
    llm: LLM, alone: list[Result], order_seed: int
) -> None:
    order = np.random.default_rng(order_seed).permutation(len(REQUESTS)).tolist()
    outputs = llm.generate([PROMPT] * len(order), [REQUESTS[i] for i in order])
    assert [result(output) for output in outputs] == [alone[i] for i in order]


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_tokens(
    path: Path, alone: list[Result], num_threads: int
) -> None:
    other = LLM(path, num_threads=num_threads)
    outputs = other.generate([PROMPT] * len(REQUESTS), REQUESTS)
    assert [result(output) for output in outputs] == alone


def test_chunks_and_recomputing_give_the_same_tokens(path: Path, alone: list[Result]) -> None:
    for other in (LLM(path, max_num_batched_tokens=16), LLM(path, use_cache=False)):
        outputs = other.generate([PROMPT] * len(REQUESTS), REQUESTS)
        assert [result(output) for output in outputs] == alone


def test_another_seed_shows(llm: LLM, alone: list[Result]) -> None:
    """The inverse test: were the draws blind to the seed, this one would fail."""
    for i in (0, 2, 3, 4, 5, 6, 7, 9):
        settings = {
            name: getattr(REQUESTS[i], name)
            for name in SamplingParams.__dataclass_fields__
            if name != "stop_strings"
        }
        other = SamplingParams(**{**settings, "seed": 1000})
        assert result(llm.generate(PROMPT, other)[0])[0] != alone[i][0], i


@pytest.mark.parametrize("chunk", [512, 16, 7])
@pytest.mark.parametrize("use_cache", [True, False])
def test_log_probabilities_of_a_prompt_are_those_of_decoding_it(
    path: Path, llm: LLM, chunk: int, use_cache: bool
) -> None:
    params = SamplingParams(temperature=0.9, seed=5, max_tokens=90, logprobs=4, ignore_eos=True)
    first = llm.generate(PROMPT, params)[0]
    tokens, decoded = first.outputs[0].token_ids, first.outputs[0].logprobs
    assert decoded is not None
    prompt = [*first.prompt_token_ids, *tokens]
    assert len(prompt) > 100, "more rows than a step keeps logits of"
    other = LLM(path, max_num_batched_tokens=chunk, use_cache=use_cache)
    asking = SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=4, ignore_eos=True)
    plain = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    again, beside, unasked = other.generate([prompt, prompt[:40], prompt], [asking, asking, plain])
    found = again.prompt_logprobs
    assert found is not None
    assert found[0] is None
    assert len(found) == len(prompt)
    assert found[-len(tokens) :] == decoded
    assert beside.prompt_logprobs == found[:40]
    assert unasked.prompt_logprobs is None
    assert again.outputs[0].token_ids == unasked.outputs[0].token_ids
