"""The load generator at Farthing's own server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.bench.serving.random_prompts import RandomLengths
from farthing.bench.serving.refusals import RetryPolicy
from farthing.bench.serving.result import ServeResult
from farthing.bench.serving.run import serve_benchmark
from farthing.bench.serving.settings import Dataset, ServeSettings
from farthing.server.admission.limits import QueueLimits
from support.served import NAMES, Served, serve
from support.tiny_models import make_tiny_model


class Quiet:
    """Nobody watches."""

    def begin(self, what: str, total: int) -> None:
        """A part begins."""

    def advance(self, outcome: object) -> None:
        """A request is over."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its texts begin with a token of their own."""
    return make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Served]:
    with serve(model) as served:
        yield served


def run(url: str, **settings: Any) -> ServeResult:
    lengths = RandomLengths(20, 12, 0.5)
    return serve_benchmark(
        ServeSettings(
            **{
                "base_url": url,
                "dataset": Dataset("random", random=lengths),
                "num_prompts": 24,
                "ready_timeout": 30.0,
                "seed": 3,
                **settings,
            }
        ),
        Quiet(),
    )


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_answer_is_counted_and_the_same_alone(server: Served, backend: str) -> None:
    result = run(server.url, backend=backend, check_text=True)
    assert (result.metrics.completed, result.metrics.failed) == (24, 0), result.errors
    assert result.model == NAMES[0]
    check = result.extra["check_text"]
    assert (check["checked"], check["equal"]) == (24, 24)
    for request in result.requests:
        assert 6 <= request.output_tokens <= 18
        assert request.output_tokens == request.answer.output_tokens
        assert 0 < request.answer.ttft <= request.answer.latency
        if backend == "openai":
            assert 10 <= request.input_tokens <= 30  # none beside those asked for
    assert len({request.answer.text for request in result.requests}) == 24
    server.wait_idle()


def test_texts_are_those_of_the_model(server: Served, model: Path) -> None:
    llm = LLM(model, num_threads=1)
    result = run(server.url, extra_body={"temperature": 0}, max_concurrency=5)
    bodies = [record for record in result.requests if record.answer.success]
    assert len(bodies) == 24
    assert result.metrics.max_concurrent_requests <= 5
    prompts = _prompts(server.url)
    params = [
        SamplingParams(temperature=0, max_tokens=request.output_tokens, ignore_eos=True)
        for request in result.requests
    ]
    expected = [output.outputs[0].text for output in llm.generate(prompts, params)]
    assert [request.answer.text for request in result.requests] == expected


def _prompts(url: str) -> list[str]:
    """The prompts of :func:`run`, made once more."""
    import asyncio

    from farthing.bench.serving.http_client import HttpClient, ServerAddress
    from farthing.bench.serving.random_prompts import random_prompts
    from farthing.bench.serving.vocabulary import ServerVocabulary

    async def work() -> list[str]:
        client = HttpClient(ServerAddress.from_url(url), {})
        vocabulary = ServerVocabulary(client, NAMES[0], 20)
        asked = await random_prompts(vocabulary, RandomLengths(20, 12, 0.5), 24, 3)
        await client.close()
        return [each.prompt for each in asked]

    return asyncio.run(work())


def test_a_full_queue_refuses_and_takes_later(model: Path) -> None:
    queue = QueueLimits(max_requests=3, max_prompt_tokens=4096)
    with serve(model, queue=queue, engine={"max_num_seqs": 2}) as served:
        result = run(served.url, retries=RetryPolicy(most=100))
        served.wait_idle()
    facts = result.extra["refusals"]
    assert (result.metrics.completed, result.metrics.failed) == (24, 0), result.errors
    assert facts["http_429"] >= facts["requests_refused"] == facts["taken_later"] > 0
    assert facts["without_retry_after"] == 0
    assert facts["slowest_refusal_ms"] < 1000
    assert facts["retry_after_error_s"]["median"] >= 0
