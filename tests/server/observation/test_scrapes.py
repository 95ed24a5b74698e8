"""Who asks for the page, how often the engine is asked for it, and when it does not answer."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any

import pytest

from farthing.errors import FarthingError
from farthing.server.observation import engine_snapshots
from farthing.server.seam.messages import Metrics
from support.metric_worlds import (
    Samples,
    SilentEngine,
    World,
    busy_world,
    samples_of,
    some_metrics,
    value,
)


def test_an_engine_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it last said is shown, and how old it is; meanwhile the server goes on."""
    monkeypatch.setattr(engine_snapshots, "SCRAPE_SECONDS", 0.3)

    async def session() -> tuple[Samples, Samples, int]:
        world = World()
        page = world.page()
        before, _ = await page.render()

        async def never() -> Any:
            await asyncio.Event().wait()

        world.engine.answer = never
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.005)

        turning = asyncio.create_task(turn())
        began = time.monotonic()
        after, _ = await page.render()
        assert 0.3 <= time.monotonic() - began < 3
        turning.cancel()
        return samples_of(before), samples_of(after), turns

    before, after, turns = asyncio.run(session())
    assert turns > 10
    for name in ("vllm:generation_tokens_total", "farthing_steps_total"):
        assert value(after, name) == value(before, name) > 0
    assert value(after, "farthing_snapshot_age_seconds") >= 0.3


def test_an_answer_that_comes_late_is_the_next_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps longer than a scrape waits do not keep its numbers old."""
    monkeypatch.setattr(engine_snapshots, "SCRAPE_SECONDS", 0.05)

    async def session() -> None:
        between_steps = asyncio.Event()

        async def late() -> Metrics:
            await between_steps.wait()
            return some_metrics()

        world = World(SilentEngine(late))
        page = world.page()
        ages = []
        for _ in range(3):
            text, _ = await page.render()
            ages.append(value(samples_of(text), "farthing_snapshot_age_seconds"))
        assert ages == [math.inf] * 3
        assert world.engine.asked == 1, "the question stands"
        between_steps.set()
        text, _ = await page.render()
        assert value(samples_of(text), "farthing_steps_total") == 10

    asyncio.run(session())


def test_an_engine_that_has_ended() -> None:
    async def session() -> Samples:
        world = World()
        page = world.page()
        await page.render()

        async def ended() -> Metrics:
            raise FarthingError("the engine has ended")

        world.engine.answer = ended
        text, _ = await page.render()
        return samples_of(text)

    assert value(asyncio.run(session()), "farthing_steps_total") == 10


def test_scrapes_at_the_same_time_share_a_question_and_one_that_leaves_takes_none_along() -> None:
    async def session() -> None:
        answer: asyncio.Future[Metrics] = asyncio.get_running_loop().create_future()

        async def wait() -> Metrics:
            return await answer

        world = World(SilentEngine(wait))
        page = world.page()
        accepts = ["", "application/openmetrics-text"] * 10
        scrapes = [asyncio.create_task(page.render(accept)) for accept in accepts]
        await asyncio.sleep(0.01)
        for scrape in scrapes[:5]:
            scrape.cancel()
        await asyncio.sleep(0.01)
        answer.set_result(some_metrics())
        pages = await asyncio.gather(*scrapes[5:])
        assert len({text for text, _ in pages}) == 2
        assert world.engine.asked == 1
        await page.render()
        assert world.engine.asked == 2, "the next one asks again"

    asyncio.run(session())


def test_the_text_is_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    world = busy_world()
    page = world.page()
    made = page._process.collect

    def collect() -> Any:
        threads.append(threading.get_ident())
        return made()

    monkeypatch.setattr(page._process, "collect", collect)
    asyncio.run(page.render())
    assert threads
    assert threading.get_ident() not in threads
