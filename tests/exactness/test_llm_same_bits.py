"""The promise through ``LLM``: the same tokens and log probabilities however they are computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing import LLM, RequestOutput, SamplingParams
from support.tiny_models import make_tiny_model

REAL = "qwen2.5-coder-0.5b"
GREEDY = SamplingParams(temperature=0, max_tokens=16, logprobs=5, ignore_eos=True)
QUESTIONS = (
    "Write a Python function that reverses a linked list.",
    "What does a farthing buy?",
    "Hi",
    "1 + 1 = 2, and 12 + 30 is",
)
Result = tuple[list[int], list[list[tuple[int, float, int]]]]


@pytest.fixture(
    scope="module",
    params=["llama-mha", "qwen2-tied", "qwen3-moe", pytest.param(REAL, marks=pytest.mark.slow)],
)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == REAL:
        real: Path = request.getfixturevalue("qwen_gguf")
        return real
    return make_tiny_model(request.param, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, kv_cache_tokens=2048)


def result(output: RequestOutput) -> Result:
    """Tokens, and of each position (id, log probability, rank), the chosen token's first."""
    (completion,) = output.outputs
    assert completion.logprobs is not None
    assert len(completion.token_ids) == len(completion.logprobs) == GREEDY.max_tokens
    assert all(len(entry) == 5 for entry in completion.logprobs)
    assert len({entry.logprob for each in completion.logprobs for entry in each.values()}) > 16
    return completion.token_ids, [
        [(token, entry.logprob, entry.rank) for token, entry in each.items()]
        for each in completion.logprobs
    ]


def answer(llm: LLM, question: str) -> Result:
    (output,) = llm.chat([{"role": "user", "content": question}], GREEDY)
    return result(output)


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[Result]:
    """Each question answered alone."""
    return [answer(llm, question) for question in QUESTIONS]


def test_without_the_cache_an_answer_is_the_same(path: Path, alone: list[Result]) -> None:
    uncached = LLM(path, kv_cache_tokens=2048, use_cache=False)
    assert answer(uncached, QUESTIONS[0]) == alone[0]


def test_answers_of_a_batch_are_those_given_alone(llm: LLM, alone: list[Result]) -> None:
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    assert [result(output) for output in llm.chat(conversations, GREEDY)] == alone


def test_a_prompt_in_chunks_gives_the_same_answer(path: Path, alone: list[Result]) -> None:
    chunked = LLM(path, kv_cache_tokens=2048, max_num_batched_tokens=16)
    length = chunked.count_chat_tokens([{"role": "user", "content": QUESTIONS[0]}])
    assert length > 32, "three chunks at least"
    assert answer(chunked, QUESTIONS[0]) == alone[0]
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    assert [result(output) for output in chunked.chat(conversations, GREEDY)] == alone


def test_the_cache_type_shows_in_the_log_probabilities(path: Path, alone: list[Result]) -> None:
    """The inverse test: were the comparison blind, this one would fail."""
    other = LLM(path, kv_cache_tokens=2048, kv_cache_dtype="fp32")
    assert answer(other, QUESTIONS[0]) != alone[0]
