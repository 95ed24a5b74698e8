"""When something is sent while there is nothing to say, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from farthing.server.streaming.events import PING
from farthing.server.streaming.sender import EventSender
from support.virtual_time import run_at_once


class Connection:
    """What a server gives an application to send with; ``open`` is clear while it takes nothing."""

    def __init__(self) -> None:
        self.bodies: list[tuple[bytes, bool]] = []
        self.started: list[dict[str, Any]] = []
        self.busy = 0
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: Any) -> None:
        assert self.busy == 0, "one message at a time"
        self.busy += 1
        await self.open.wait()
        if message["type"] == "http.response.start":
            self.started.append(message)
        else:
            assert self.started
            assert not self.bodies or self.bodies[-1][1], "nothing after the end"
            self.bodies.append((message["body"], message["more_body"]))
        self.busy -= 1


def run(work: Callable[[Connection], Awaitable[None]]) -> list[tuple[bytes, bool]]:
    """Bodies that were sent, and whether more was to come."""

    async def main() -> list[tuple[bytes, bool]]:
        connection = Connection()
        await work(connection)
        await asyncio.sleep(100)
        return connection.bodies

    return run_at_once(main())


def test_silence_is_broken_until_the_end() -> None:
    async def work(connection: Connection) -> None:
        sender = EventSender(connection.send, 15)
        await sender.start()
        assert connection.started[0]["status"] == 200
        await asyncio.sleep(80)
        await sender.write(b"a")
        await sender.finish(b"b")

    assert run(work) == [(PING, True)] * 5 + [(b"a", True), (b"b", False)]


def test_who_writes_often_enough_sends_nothing_else() -> None:
    async def work(connection: Connection) -> None:
        sender = EventSender(connection.send, 15)
        await sender.start()
        for _ in range(40):
            await asyncio.sleep(14)
            await sender.write(b"a")
        await sender.finish(b"b")

    assert run(work) == [(b"a", True)] * 40 + [(b"b", False)]


def test_a_reader_that_takes_nothing_gets_no_comments() -> None:
    async def work(connection: Connection) -> None:
        sender = EventSender(connection.send, 15)
        await sender.start()
        connection.open.clear()
        writing = asyncio.create_task(sender.write(b"a"))
        await asyncio.sleep(80)
        assert connection.bodies == []
        connection.open.set()
        await writing
        await sender.finish(b"b")

    assert run(work) == [(b"a", True), (b"b", False)]


def test_what_comes_waits_for_a_comment_that_is_being_sent() -> None:
    async def work(connection: Connection) -> None:
        sender = EventSender(connection.send, 15)
        await sender.start()
        connection.open.clear()
        await asyncio.sleep(80)
        assert connection.busy == 1, "a comment"
        finishing = asyncio.create_task(sender.finish(b"b"))
        await asyncio.sleep(20)
        connection.open.set()
        await finishing

    assert run(work) == [(PING, True), (b"b", False)]


def test_none_are_sent_where_none_are_wanted() -> None:
    async def work(connection: Connection) -> None:
        sender = EventSender(connection.send, 0)
        await sender.start()
        await asyncio.sleep(80)
        await sender.finish(b"b")

    assert run(work) == [(b"b", False)]
