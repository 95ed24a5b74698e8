"""What comes of the prompts of one request, in the order in which it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from farthing.engine.outputs import StreamChunk
from farthing.server.submission import Submission

Arrival = tuple[int, list[StreamChunk]]
"""The number of a prompt, and its new chunks."""

Arrivals = AsyncGenerator[list[Arrival], None]


@asynccontextmanager
async def arrivals(
    submissions: Sequence[Submission],
) -> AsyncIterator[Arrivals]:
    """All that is new, each time, until all have ended.

    Iterating raises what the first to fail of ``submissions`` raises, after what came before.
    """
    if len(submissions) == 1:
        yield _of_one(submissions[0])
        return
    news: asyncio.Queue[Arrival | BaseException | None] = asyncio.Queue()
    readers = [
        asyncio.create_task(_read(number, submission, news))
        for number, submission in enumerate(submissions)
    ]
    try:
        yield _of_several(len(readers), news)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _of_one(submission: Submission) -> AsyncGenerator[list[Arrival], None]:
    async for chunks in submission.chunks():
        yield [(0, chunks)]


async def _read(
    number: int,
    submission: Submission,
    news: asyncio.Queue[Arrival | BaseException | None],
) -> None:
    try:
        async for chunks in submission.chunks():
            news.put_nowait((number, chunks))
    except Exception as error:
        news.put_nowait(error)
    else:
        news.put_nowait(None)


async def _of_several(
    unfinished: int, news: asyncio.Queue[Arrival | BaseException | None]
) -> AsyncGenerator[list[Arrival], None]:
    while unfinished:
        found: list[Arrival] = []
        item = await news.get()
        while True:  # a step tells of all its prompts at once
            if item is None:
                unfinished -= 1
            elif isinstance(item, BaseException):
                if found:
                    yield found
                raise item
            else:
                found.append(item)
            if news.empty():
                break
            item = news.get_nowait()
        if found:
            yield found
