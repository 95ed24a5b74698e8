"""What an engine counts: each request, each token and each row once, in the right bucket."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.engine.metrics import EngineMetrics, Histogram
from support.tiny_models import make_tiny_model

PROMPT = list(range(10, 50))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def llm(directory: Path) -> Iterator[LLM]:
    with LLM(directory, num_threads=1, max_num_batched_tokens=32) as loaded:
        yield loaded


def params(**own: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 6, "seed": 3, "ignore_eos": True, **own})


def histograms(metrics: EngineMetrics) -> dict[str, Histogram]:
    found = {f.name: getattr(metrics, f.name) for f in fields(metrics)}
    return {name: value for name, value in found.items() if isinstance(value, Histogram)}


def test_bounds_rise_and_a_value_at_one_is_in_the_bucket_below() -> None:
    for name, histogram in histograms(EngineMetrics()).items():
        assert list(histogram.bounds) == sorted(set(histogram.bounds)), name
        for bound in histogram.bounds:
            histogram.observe(bound)
        histogram.observe(histogram.bounds[-1] * 2)
        assert histogram.counts == [1] * (len(histogram.bounds) + 1), name
        assert histogram.count == len(histogram.bounds) + 1


def test_rows_of_steps_are_prompts_and_next_tokens(llm: LLM) -> None:
    llm.generate([PROMPT], params())
    metrics = llm.engine.metrics
    assert (metrics.prefill_rows, metrics.decode_rows) == (40, 5)
    assert metrics.step_tokens.count == metrics.steps == 2 + 5
    assert metrics.step_tokens.total == 45
    assert metrics.step_tokens.counts[0] == 5


def test_each_choice_is_a_request_and_each_prompt_one_of_choices(llm: LLM) -> None:
    llm.generate([PROMPT, [5, 6]], [params(n=4), params(max_tokens=2)])
    metrics = llm.engine.metrics
    assert metrics.finished == {"length": 5}
    each = ("latency", "inference", "decode", "time_per_token", "request_generation_tokens")
    for name in (*each, "request_max_tokens", "request_preemptions", "request_prompt_tokens"):
        assert histograms(metrics)[name].count == 5, name
    assert metrics.request_generation_tokens.total == metrics.generation_tokens == 4 * 6 + 2
    assert metrics.request_max_tokens.total == 4 * 6 + 2
    assert metrics.request_prompt_tokens.total == metrics.prompt_tokens == 4 * 40 + 2
    assert metrics.computed_prompt_tokens.total == metrics.prompt_tokens - metrics.cached_tokens
    assert (metrics.choices.count, metrics.choices.total) == (2, 5)
    assert (metrics.longest_choice.count, metrics.longest_choice.total) == (2, 8)
    assert metrics.inference.total == pytest.approx(metrics.prefill.total + metrics.decode.total)


def test_a_request_of_one_token_has_no_time_per_token(llm: LLM) -> None:
    llm.generate([PROMPT], params(max_tokens=1))
    metrics = llm.engine.metrics
    assert metrics.time_per_token.count == 0
    assert metrics.decode.count == metrics.inference.count == 1
    assert metrics.decode.total == 0


def test_what_was_looked_up_and_found(llm: LLM) -> None:
    metrics = llm.engine.metrics
    llm.generate([PROMPT], params(n=2))  # the second choice looks nothing up
    assert (metrics.prefix_queries, metrics.prefix_hits) == (40, 0)
    llm.generate([PROMPT], params())
    assert (metrics.prefix_queries, metrics.prefix_hits) == (80, 32)
    llm.generate([PROMPT], params(prompt_logprobs=0))  # nor does who wants each row computed
    assert (metrics.prefix_queries, metrics.prefix_hits) == (80, 32)


def test_nothing_is_looked_up_without_a_cache(directory: Path) -> None:
    with LLM(directory, num_threads=1, enable_prefix_caching=False) as llm:
        llm.generate([PROMPT], params())
        assert llm.engine.metrics.prefix_queries == 0
        assert llm.engine.metrics.generation_tokens == 6


def test_preemptions_are_counted_by_request(directory: Path) -> None:
    with LLM(directory, num_threads=1, kv_cache_tokens=144, max_model_len=144) as llm:
        llm.generate([PROMPT, PROMPT[::-1], PROMPT[5:]], params(max_tokens=60))
        metrics = llm.engine.metrics
        assert metrics.preemptions > 0
        assert metrics.request_preemptions.total == metrics.preemptions
        assert metrics.request_preemptions.count == 3
        assert metrics.prefill_rows > 3 * 40 - 5  # some were read again


def test_who_leaves_before_a_token_has_only_an_end(llm: LLM) -> None:
    (first, second) = llm.engine.make_request(PROMPT, params(n=2))
    llm.engine.add_request(first, 1.0)
    llm.engine.abort(first)
    llm.engine.abort(second)
    llm.engine.record_ends(3.0)
    metrics = llm.engine.metrics
    assert metrics.finished == {"abort": 2}
    assert (metrics.latency.count, metrics.latency.total) == (2, 4.0)
    assert (metrics.choices.count, metrics.longest_choice.total) == (1, 0)
    assert metrics.inference.count == metrics.time_to_first_token.count == 0
    llm.engine.record_ends(4.0)
    assert metrics.latency.count == 2


def test_metrics_are_sent_whole(llm: LLM) -> None:
    llm.generate([PROMPT], params())
    assert pickle.loads(pickle.dumps(llm.engine.metrics)) == llm.engine.metrics
