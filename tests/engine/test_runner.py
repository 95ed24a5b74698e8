"""What a step asks of the executor: logits only where somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from farthing import LLM, SamplingParams, StructuredOutputsParams
from farthing.program.native import KvCache
from farthing.program.step import StepBatch, StepOutput
from support.tiny_models import make_tiny_model

PROMPT = [5, 9, 31, 2, 77]
LENGTH = 12


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny")), kv_cache_tokens=4096)


class Asked:
    """Passes the steps of an executor on, and counts the rows they ask for."""

    def __init__(self, llm: LLM) -> None:
        self.logits = self.argmax = 0
        self._executor = llm.runner.executor
        self._run = self._executor.run

    def __enter__(self) -> Asked:
        self._executor.run = self.run  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        del self._executor.run

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput:
        self.logits += len(batch.logit_rows)
        self.argmax += len(batch.argmax_rows)
        return self._run(batch, kv)


def params(**own: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True, **own})


def tokens(llm: LLM, *each: SamplingParams) -> Iterator[list[int]]:
    for output in llm.generate([PROMPT] * len(each), list(each)):
        assert output.error is None
        yield output.outputs[0].token_ids


@pytest.mark.parametrize("own", [{}, {"top_k": 5}, {"top_p": 0.5, "min_p": 0.1}, {"seed": 3}])
def test_a_greedy_request_needs_no_logits(llm: LLM, own: dict[str, Any]) -> None:
    with Asked(llm) as asked:
        (found,) = tokens(llm, params(**own))
    assert (asked.logits, asked.argmax) == (0, LENGTH)
    (by_logits,) = tokens(llm, params(logprobs=0, **own))
    assert found == by_logits
    assert len(set(found)) > 2


READERS: dict[str, dict[str, Any]] = {
    "a temperature": {"temperature": 0.8},
    "log probabilities": {"logprobs": 0},
    "a repetition penalty": {"repetition_penalty": 1.1},
    "a presence penalty": {"presence_penalty": 0.5},
    "a frequency penalty": {"frequency_penalty": 0.5},
    "dry": {"dry_multiplier": 0.8},
    "a bias": {"logit_bias": {3: 1.0}},
    "bad words": {"bad_words": ["a"]},
    "allowed tokens": {"allowed_token_ids": list(range(40, 90))},
    "min_tokens": {"min_tokens": 3},
    "a grammar": {"structured_outputs": StructuredOutputsParams(regex="[ab]{40}")},
}


@pytest.mark.parametrize("own", READERS.values(), ids=READERS.keys())
def test_who_reads_or_changes_logits_gets_them(llm: LLM, own: dict[str, Any]) -> None:
    with Asked(llm) as asked:
        (found,) = tokens(llm, params(**own))
    assert (asked.logits, asked.argmax) == (len(found), 0)


def test_log_probabilities_of_a_prompt_take_its_logits_and_no_more(llm: LLM) -> None:
    with Asked(llm) as asked:
        (found,) = tokens(llm, params(prompt_logprobs=0))
    assert (asked.logits, asked.argmax) == (len(PROMPT), LENGTH - 1)
    assert [found] == list(tokens(llm, params()))


def test_neighbours_of_both_kinds_get_what_they_get_alone(llm: LLM) -> None:
    kinds = [params(), params(temperature=1.0, seed=4), params(logprobs=2), params(top_k=1)]
    kinds += [params(temperature=0.7, seed=8, top_p=0.9), params(presence_penalty=1.5), params()]
    with Asked(llm) as asked:
        together = list(tokens(llm, *kinds))
    assert (asked.logits, asked.argmax) == (4 * LENGTH, 3 * LENGTH)
    assert together == [found for kind in kinds for found in tokens(llm, kind)]
    assert together[1] != together[0]


@pytest.mark.parametrize("longest", [{"temperature": 0.9}, {}, {"logprobs": 1}])
def test_who_has_ended_in_a_static_batch_takes_nothing_from_who_has_not(
    llm: LLM, longest: dict[str, Any]
) -> None:
    """Rows that are computed for nobody's sake are of as many requests as still run, and more."""
    static = LLM(llm.path, kv_cache_tokens=4096, batching="static")
    short = [params(max_tokens=n, temperature=0.8, seed=n) for n in (2, 3, 5)]
    kinds = [*short, params(seed=6, **longest)]
    together = list(tokens(static, *kinds))
    assert [len(found) for found in together] == [2, 3, 5, LENGTH]
    assert together == [found for kind in kinds for found in tokens(llm, kind)]
