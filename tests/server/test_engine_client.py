"""What a client gets of an engine process: what ``LLM`` gives, to the last bit and character."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, RequestOutput, SamplingParams, StreamChunk, StructuredOutputsParams
from farthing.openai_protocol.errors import RequestError
from farthing.server.engine_client import EngineClient
from farthing.server.engine_settings import EngineSettings
from farthing.server.seam.messages import Submit
from support.engine_process import RunningEngine, all_chunks
from support.engine_requests import SCHEMA

PROMPT = list(range(10, 50))
LONG = SamplingParams(temperature=0, max_tokens=180, ignore_eos=True)


def asked(**own: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 24, "seed": 7, "ignore_eos": True, **own})


KINDS = {
    "greedy": asked(temperature=0),
    "sampled": asked(top_p=0.9),
    "several": asked(n=4, logprobs=2),
    "logprobs": asked(temperature=0, logprobs=3),
    "stops": asked(stop=["a", "e", "th"], n=3),
    "stop kept": asked(stop=["o", "in"], include_stop_str_in_output=True),
    "stop token": asked(stop_token_ids=list(range(0, 300, 3)), ignore_eos=False),
    "schema": asked(structured_outputs=StructuredOutputsParams(json=SCHEMA), ignore_eos=False),
    "penalties": asked(repetition_penalty=1.3, logit_bias={9: 2.0}, min_tokens=3),
}


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[RunningEngine]:
    with RunningEngine(tiny_model, max_num_seqs=8, max_num_batched_tokens=64) as running:
        yield running


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> Iterator[LLM]:
    with LLM(tiny_model, num_threads=1) as loaded:
        yield loaded


def comparable(output: RequestOutput) -> RequestOutput:
    """All of it but its name and how long it took."""
    return replace(
        output,
        request_id="",
        metrics=replace(
            output.metrics,
            queue_seconds=0,
            prefill_seconds=0,
            decode_seconds=0,
            cached_tokens=0,
            preemptions=0,
        ),
    )


def joined(chunks: list[StreamChunk], index: int) -> tuple[str, list[int], list[Any], str | None]:
    """Text, tokens, log probabilities and end of one choice."""
    own = [chunk for chunk in chunks if chunk.index == index]
    assert [chunk.finish_reason for chunk in own[:-1]] == [None] * (len(own) - 1)
    return (
        "".join(chunk.text for chunk in own),
        [token for chunk in own for token in chunk.token_ids],
        [entry for chunk in own for entry in chunk.logprobs or ()],
        own[-1].finish_reason,
    )


def test_the_whole_result_is_that_of_llm(engine: RunningEngine, llm: LLM) -> None:
    async def all_at_once() -> list[RequestOutput]:
        return await asyncio.gather(*(engine.generate(PROMPT, kind) for kind in KINDS.values()))

    outputs = engine.run(all_at_once())
    for output, params in zip(outputs, KINDS.values(), strict=True):
        (expected,) = llm.generate([PROMPT], params)
        assert comparable(output) == comparable(expected)
        assert output.finished
        assert output.metrics.decode_seconds > 0
    engine.run(engine.settle())


@pytest.mark.parametrize("prompt_logprobs", [0, 3])
def test_log_probabilities_of_the_prompt_come_with_the_whole(
    prompt_logprobs: int, engine: RunningEngine, llm: LLM
) -> None:
    params = asked(prompt_logprobs=prompt_logprobs, n=2, logprobs=1)
    engine.steps.clear()
    output = engine.run(engine.generate(PROMPT * 4, params))
    parts = [len(part) for step in engine.steps for _, part in step.prompt_logprobs]
    assert (len(parts), sum(parts)) == (3, 160)  # a part with each pass that read some
    (expected,) = llm.generate([PROMPT * 4], params)
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == 160
    assert comparable(output) == comparable(expected)


def test_streams_are_the_whole_result_piece_by_piece(engine: RunningEngine, llm: LLM) -> None:
    async def all_at_once() -> list[list[StreamChunk]]:
        return await asyncio.gather(*(engine.stream(PROMPT, kind) for kind in KINDS.values()))

    texts = 0
    for chunks, params in zip(engine.run(all_at_once()), KINDS.values(), strict=True):
        (expected,) = llm.generate([PROMPT], params)
        assert len(chunks) > params.n
        for whole in expected.outputs:
            text, tokens, logprobs, reason = joined(chunks, whole.index)
            assert (text, tokens, reason) == (whole.text, whole.token_ids, whole.finish_reason)
            assert logprobs == (whole.logprobs or [])
            texts += bool(text)
        metrics = [chunk.metrics for chunk in chunks if chunk.metrics is not None]
        assert len(metrics) == params.n
        assert sum(m.completion_tokens for m in metrics) == sum(
            len(whole.token_ids) for whole in expected.outputs
        )
    assert texts >= len(KINDS)
    engine.run(engine.settle())


def test_random_prompts_get_the_same_streamed_and_whole(engine: RunningEngine, llm: LLM) -> None:
    rng = random.Random(3)
    prompts = [[rng.randrange(4, 300) for _ in range(rng.randint(1, 120))] for _ in range(30)]
    params = [
        asked(seed=i, temperature=rng.choice((0, 1, 1.5)), stop=rng.choice((None, "e", ["a", "s"])))
        for i in range(30)
    ]

    async def all_at_once() -> list[Any]:
        async def late(delay: float, i: int) -> Any:
            await asyncio.sleep(delay)
            ask = engine.stream if i % 2 else engine.generate
            return await ask(prompts[i], params[i])

        return await asyncio.gather(*(late(0.004 * i, i) for i in range(30)))

    for got, expected in zip(engine.run(all_at_once()), llm.generate(prompts, params), strict=True):
        (whole,) = expected.outputs
        if isinstance(got, RequestOutput):
            assert comparable(got) == comparable(expected)
        else:
            assert joined(got, 0)[:2] == (whole.text, whole.token_ids)
    engine.run(engine.settle())


@pytest.mark.parametrize(
    ("prompt", "params", "more", "message", "param", "code"),
    [
        ([], asked(), {}, "it has no tokens", "prompt", None),
        ([5, 100_000], asked(), {}, "token id 100000 must be", "prompt", None),
        ([5, -1], asked(), {}, "token id -1 must be", "prompt", None),
        ([5] * 256, asked(), {}, "prompt of 256 tokens", None, "context_length_exceeded"),
        ([5], asked(logit_bias={100_000: 1.0}), {}, "100000", "logit_bias", None),
        ([5], asked(), {"priority": "high"}, "priority='high' must be", "priority", None),
        ([5], asked(), {"timeout": -1}, "timeout=-1 must be", "timeout", None),
    ],
)
def test_what_is_refused_says_why(
    prompt: list[int],
    params: SamplingParams,
    more: dict[str, Any],
    message: str,
    param: str | None,
    code: str | None,
    engine: RunningEngine,
) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        engine.run(engine.submit(prompt, params, **more))
    assert (raised.value.status, raised.value.param, raised.value.code) == (400, param, code)
    engine.run(engine.settle())


def test_a_request_that_the_cache_can_never_hold_is_refused(tiny_model: Path) -> None:
    with RunningEngine(tiny_model, kv_cache_tokens=128, max_model_len=128) as small:
        assert small.client.info is not None
        assert small.client.info.num_blocks == 8
        whole = small.run(small.generate(PROMPT, asked(max_tokens=88)))
        assert len(whole.outputs[0].token_ids) == 88
        with pytest.raises(RequestError, match="does not fit the context of 128"):
            small.run(small.submit([5] * 128, asked()))


def test_time_that_is_over_ends_a_stream_and_a_whole(engine: RunningEngine) -> None:
    async def both() -> tuple[list[StreamChunk], RequestOutput]:
        return await asyncio.gather(
            engine.stream(PROMPT, LONG, timeout=0.01), engine.generate(PROMPT, LONG, timeout=1e-6)
        )

    chunks, output = engine.run(both())
    assert chunks[-1].finish_reason == "timeout"
    assert [choice.finish_reason for choice in output.outputs] == ["timeout"]
    engine.run(engine.settle())


def test_a_turn_tells_what_it_did(engine: RunningEngine) -> None:
    engine.steps.clear()
    key = engine.client.next_key() + 1

    async def one() -> list[StreamChunk]:
        return await engine.stream([*PROMPT, *PROMPT, *range(100, 120)], asked(), cache_salt="own")

    before = time.monotonic()
    chunks = engine.run(one())
    steps = engine.steps
    assert [step.begun for step in steps] == [((key, 0),), *[()] * (len(steps) - 1)]
    assert [step.prefill_rows for step in steps[:2]] == [64, 36]
    assert all((s.decode_rows, s.prefill_rows) == (1, 0) for s in steps[2:])
    told = [(key, 0, 64, 0, False), *((key, 0, 100, n, False) for n in range(1, 24))]
    told.append((key, 0, 100, 24, True))
    assert [p for step in steps for p in step.progress] == told
    assert len(steps) == 2 + 23
    assert [chunk for step in steps for _, chunk in step.chunks] == chunks
    assert [step.num_running for step in steps] == [1] * 24 + [0]
    times = [before, *(t for s in steps for t in (s.started, s.ended)), time.monotonic()]
    assert times == sorted(times)
    assert engine.client.last_turn >= steps[-1].ended


@pytest.mark.parametrize("options", [{"batching": "static"}, {"kv": "contiguous"}])
def test_older_ways_to_serve_give_the_same(
    options: dict[str, Any], tiny_model: Path, llm: LLM
) -> None:
    kinds = [KINDS[name] for name in ("greedy", "several", "stops", "schema")]
    lengths = [replace(kind, max_tokens=5 + 6 * i) for i, kind in enumerate(kinds)]

    with RunningEngine(tiny_model, kv_cache_tokens=2048, **options) as running:

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(
                *(running.generate(PROMPT, kind) for kind in lengths),
                *(running.stream(PROMPT, kind) for kind in lengths),
            )

        got = running.run(all_at_once())
        running.run(running.settle())
    for i, params in enumerate(lengths):
        (expected,) = llm.generate([PROMPT], params)
        assert comparable(got[i]) == comparable(expected)
        for whole in expected.outputs:
            text, tokens, _, reason = joined(got[4 + i], whole.index)
            assert (text, tokens, reason) == (whole.text, whole.token_ids, whole.finish_reason)


def test_metrics_count_what_was_served(tiny_model: Path) -> None:
    with RunningEngine(tiny_model) as running:
        running.run(running.generate(PROMPT, asked(n=3)))
        running.run(running.stream(PROMPT, asked(seed=1)))
        answer = running.run(running.client.metrics(5))
        assert answer is not None
        metrics, load = answer.metrics, answer.load
        assert metrics.finished == {"length": 4}
        assert metrics.generation_tokens == 4 * 24
        assert metrics.steps == len(running.steps)
        assert (load.num_running, load.num_waiting, load.kv.held_blocks) == (0, 0, 0)
        assert (metrics.prefix_queries, metrics.prefix_hits) == (80, 39)
        assert metrics.choices.counts[:3] == [1, 0, 1]


def test_a_large_prompt_does_not_hold_up_the_event_loop(tiny_model: Path) -> None:
    ids = array("i", [5]) * 100_000

    async def measure(client: EngineClient) -> float:
        longest, last = 0.0, time.thread_time()  # what others have of the processor is no matter

        async def tick() -> None:
            nonlocal longest, last
            while True:
                await asyncio.sleep(0)
                now = time.thread_time()
                longest, last = max(longest, now - last), now

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0)
        for _ in range(10):
            with pytest.raises(RequestError, match="prompt of 100000 tokens"):
                await client.submit(Submit(client.next_key(), ids, asked(), True))
        ticking.cancel()
        return longest

    with RunningEngine(tiny_model) as running:
        shortest = min(running.run(measure(running.client)) for _ in range(3))
    assert shortest < 0.02


def test_two_thousand_that_wait_are_all_answered(engine: RunningEngine, llm: LLM) -> None:
    params = [asked(max_tokens=2, seed=i) for i in range(2000)]
    engine.steps.clear()

    async def all_at_once() -> list[RequestOutput]:
        return await asyncio.gather(*(engine.generate(PROMPT[:9], each) for each in params))

    outputs = engine.run(all_at_once())
    some = range(0, 2000, 97)
    expected = llm.generate([PROMPT[:9]] * len(some), [params[i] for i in some])
    assert [comparable(outputs[i]) for i in some] == [comparable(each) for each in expected]
    waiting = [step.num_waiting for step in engine.steps]
    assert max(waiting) > 1000
    assert sum(b > a for a, b in pairwise(waiting)) > 5  # steps went on while they were queued
    assert sorted(key for step in engine.steps for key, _ in step.begun) == sorted(
        key for step in engine.steps for key, _ in step.outputs
    )
    engine.run(engine.settle())


def test_an_event_loop_that_is_late_takes_nobody_for_stalled(engine: RunningEngine) -> None:
    async def main() -> list[float]:
        assert engine.client.stalled_for() == 0
        submission = await engine.submit(PROMPT, LONG)
        time.sleep(0.2)  # the engine goes on and tells; nobody reads
        stalled = [engine.client.stalled_for()]
        await all_chunks(submission)
        return [*stalled, engine.client.stalled_for()]

    assert engine.run(main()) == [0, 0]


def test_a_consumer_that_stalls_holds_up_nobody(engine: RunningEngine, llm: LLM) -> None:
    async def main() -> tuple[list[StreamChunk], list[StreamChunk]]:
        stalled = await engine.submit(PROMPT, LONG)
        other = await engine.stream(PROMPT, replace(LONG, max_tokens=200))
        return other, await all_chunks(stalled)

    other, late = engine.run(main())
    (expected,) = llm.generate([PROMPT], LONG)
    assert joined(late, 0)[0] == expected.outputs[0].text
    assert joined(other, 0)[0].startswith(expected.outputs[0].text)


def test_settings_that_cannot_be_are_refused_before_a_process_is_made(tiny_model: Path) -> None:
    for wrong, message in (
        ({"num_threads": 0}, "num_threads=0 must be"),
        ({"max_prefill_chunk": -1}, "max_prefill_chunk=-1 must be"),
        ({"batching": "none"}, "batching='none' must be one of"),
        ({"kv": "contiguous", "prefix_cache": Path("x")}, "there is no prefix cache"),
    ):
        with pytest.raises(ValueError, match=message):
            EngineSettings(model=tiny_model, **wrong)  # type: ignore[arg-type]
