"""A thread that fetches: what comes of it, and its end before that."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from farthing.errors import DownloadError
from farthing.server.model_fetch import FoundModel, ModelFetch, Tell

FOUND = FoundModel(Path("model"), ("name",))


def test_what_is_found_and_told() -> None:
    told: list[tuple[int, int]] = []

    def fetch(tell: Tell) -> FoundModel:
        tell(1, 2)
        tell(2, 2)
        return FOUND

    async def main() -> FoundModel:
        work = ModelFetch(fetch, lambda done, total: told.append((done, total)))
        found = await work.found
        await work.stop(0)
        return found

    assert asyncio.run(main()) == FOUND
    assert told == [(1, 2), (2, 2)]


def test_what_is_wrong_is_raised() -> None:
    def fetch(tell: Tell) -> FoundModel:
        raise DownloadError("no such model")

    async def main() -> None:
        await ModelFetch(fetch, lambda done, total: None).found

    with pytest.raises(DownloadError, match="no such model"):
        asyncio.run(main())


def test_it_ends_at_the_next_bytes_whatever_it_handles() -> None:
    told: list[int] = []
    ended = threading.Event()

    def fetch(tell: Tell) -> FoundModel:
        try:
            for done in range(100_000):
                try:
                    tell(done, 100_000)
                except Exception:  # what a transfer tries again after
                    continue
                time.sleep(0.001)
        finally:
            ended.set()
        return FOUND

    async def main() -> None:
        work = ModelFetch(fetch, lambda done, total: told.append(done))
        while not told:
            await asyncio.sleep(0.001)
        await work.stop(20)
        assert ended.is_set()
        assert work.found.done()

    asyncio.run(main())
    assert len(told) < 100_000


def test_one_that_hangs_is_not_waited_for() -> None:
    go, over = threading.Event(), threading.Event()

    def fetch(tell: Tell) -> FoundModel:
        go.wait()
        over.set()
        return FOUND

    async def main() -> None:
        work = ModelFetch(fetch, lambda done, total: None)
        await work.stop(0.05)
        assert not work.found.done()

    asyncio.run(main())
    assert not over.is_set()
    go.set()  # it ends when the loop is closed: nobody is told, nothing is raised
    assert over.wait(20)
    for thread in threading.enumerate():
        if thread.name == "model fetch":
            thread.join(20)
            assert not thread.is_alive()
