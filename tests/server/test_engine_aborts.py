"""Who leaves gives its blocks back before the next step, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farthing import SamplingParams, StreamChunk
from farthing.openai_protocol.errors import RequestError
from farthing.server.submission import Submission
from support.engine_process import RunningEngine, all_chunks, faulty

PROMPT = list(range(10, 50))
LONG = SamplingParams(temperature=1, seed=5, max_tokens=150, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[RunningEngine]:
    with RunningEngine(
        tiny_model,
        command=faulty("slow", 3),
        max_num_seqs=3,
        max_num_batched_tokens=16,
        kv_cache_tokens=400,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def control(engine: RunningEngine) -> list[StreamChunk]:
    """What the control stream gives alone."""
    return tokens_of(engine.run(engine.stream(PROMPT, LONG)))


def tokens_of(chunks: list[StreamChunk]) -> list[StreamChunk]:
    """Everything but how long it took."""
    return [replace(chunk, metrics=None) for chunk in chunks]


async def begun(submission: Submission, chunks: int) -> None:
    """Waits for the first so many chunks."""
    seen = 0
    async for news in submission.chunks():
        seen += len(news)
        if seen >= chunks:
            return


STATES = ("queued", "reading", "decoding", "preempted", "several", "whole", "ended", "not accepted")


@pytest.mark.parametrize("state", STATES)
def test_abort(state: str, engine: RunningEngine, control: list[StreamChunk]) -> None:
    client = engine.client

    async def main() -> list[StreamChunk]:
        beside = asyncio.create_task(engine.stream(PROMPT, LONG))
        other = [7, *PROMPT]
        match state:
            case "queued":  # three run already
                running = [await engine.submit(other, LONG) for _ in range(2)]
                aborted = await engine.submit(other, LONG)
                await begun(running[0], 1)
                for each in running[1:]:
                    each.abort()
                running[0].abort()
            case "reading":  # of a prompt of a dozen passes
                aborted = await engine.submit([*range(20, 200)], LONG)
                while aborted.key not in (key for step in engine.steps for key, _ in step.begun):
                    await asyncio.sleep(0.001)
            case "decoding":
                aborted = await engine.submit(other, LONG)
                await begun(aborted, 5)
            case "preempted":  # the newest of three for which memory is too short
                older = await engine.submit(other, LONG)
                aborted = await engine.submit([9, *PROMPT], LONG)
                await begun(aborted, 5)
                while engine.steps[-1].num_waiting == 0:
                    await asyncio.sleep(0.001)
                older.abort()
            case "several":
                params = SamplingParams(n=5, seed=1, max_tokens=100, ignore_eos=True)
                aborted = await engine.submit(other, params)
                await begun(aborted, 3)
            case "whole":
                aborted = await engine.submit(other, LONG, stream=False)
            case "ended":
                aborted = await engine.submit(other, SamplingParams(max_tokens=1))
                await all_chunks(aborted)
            case "not accepted":
                task = asyncio.create_task(engine.submit(other, LONG))
                await asyncio.sleep(0)
                assert client.in_flight == 2
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                aborted = None
        if aborted is not None:
            aborted.abort()
            aborted.abort()
        found = await client.check_integrity()  # asked behind the abort
        assert found is not None
        assert found.problem is None
        assert found.open_prompts == 1 == client.in_flight
        assert found.held_blocks <= -(-(len(PROMPT) + 150) // 16)
        if state == "reading":
            assert aborted is not None
            read = [p[2] for step in engine.steps for p in step.progress if p[0] == aborted.key]
            assert 0 < max(read) < 180
        if state in ("queued", "reading", "decoding", "preempted", "several"):
            assert aborted is not None
            with pytest.raises(RequestError, match="was aborted"):
                await all_chunks(aborted)
        if state == "whole":
            assert aborted is not None
            with pytest.raises(RequestError, match="was aborted"):
                await aborted.output()
        return await beside

    assert tokens_of(engine.run(main())) == control
    engine.run(engine.settle())


def test_a_consumer_that_waits_is_told(engine: RunningEngine) -> None:
    async def main() -> None:
        submission = await engine.submit(PROMPT, LONG, stream=False)
        waiting = asyncio.create_task(submission.output())
        await asyncio.sleep(0)
        submission.abort()
        with pytest.raises(RequestError, match="was aborted") as raised:
            await waiting
        assert raised.value.status == 499

    engine.run(main())
    engine.run(engine.settle())


def test_aborts_of_many_at_random_moments(
    engine: RunningEngine, control: list[StreamChunk]
) -> None:
    async def main() -> list[StreamChunk]:
        beside = asyncio.create_task(engine.stream(PROMPT, LONG))

        async def come_and_go(i: int) -> None:
            await asyncio.sleep(0.003 * i)
            params = SamplingParams(seed=i, n=1 + i % 3, max_tokens=40, ignore_eos=True)
            submission = await engine.submit([*range(5 + i, 60 + i)], params, user=str(i % 4))
            await asyncio.sleep(0.002 * (i % 13))
            submission.abort()

        await asyncio.gather(*(come_and_go(i) for i in range(60)))
        return await beside

    assert tokens_of(engine.run(main())) == control
    engine.run(engine.settle())
    answer = engine.run(engine.client.metrics(5))
    assert answer is not None
    assert answer.metrics.finished["abort"] > 30


def test_one_that_is_held_until_its_batch_ends(tiny_model: Path) -> None:
    short = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    with RunningEngine(
        tiny_model, command=faulty("slow", 2), batching="static", kv_cache_tokens=1024
    ) as engine:

        async def main(aborts: bool) -> list[StreamChunk]:
            earlier = await engine.submit(PROMPT, LONG)
            await begun(earlier, 1)
            # While its batch runs, so that they share the next.
            held, beside = await asyncio.gather(
                engine.submit([7, *PROMPT], short), engine.submit(PROMPT, LONG)
            )
            await all_chunks(earlier)
            await begun(held, 3)
            if aborts:
                held.abort()
                found = await engine.client.check_integrity()
                assert found is not None
                assert (found.problem, found.open_prompts) == (None, 1)
                assert found.held_blocks <= -(-(len(PROMPT) + 150) // 16)
            chunks = await all_chunks(beside)
            if not aborts:
                (end,) = await all_chunks(held)  # it comes with the end of the other
                assert (end.token_ids, end.finish_reason) == ([], "length")
            return tokens_of(chunks)

        assert engine.run(main(aborts=False)) == engine.run(main(aborts=True))
        engine.run(engine.settle())
