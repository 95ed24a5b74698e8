"""Bodies that wait for a thread, and what of them counts while anybody has them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.server.body_work import BodyWork
from farthing.server.http.held_body import HeldBody
from farthing.server.http.limits import HttpLimits

LIMITS = HttpLimits(max_bodies_bytes=100)
PATIENCE = 30.0


class Counting:
    body_bytes = 0


class Working:
    """Work that goes on until it is told to end."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.go_on = threading.Event()

    def __call__(self, raw: bytes) -> int:
        self.begun.append(bytes(raw))
        assert self.go_on.wait(PATIENCE)
        return len(raw)


def held(counting: Counting, size: int) -> HeldBody:
    made = HeldBody(counting, LIMITS)
    made.grow(size)
    return made


async def until(condition: object) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.001)


def test_no_more_than_the_limit_are_worked_on_and_in_order() -> None:
    async def main() -> None:
        working = Working()
        with ThreadPoolExecutor(8) as threads:
            work = BodyWork(threads, 2)
            names = [b"%d" % number for number in range(6)]
            tasks = [asyncio.create_task(work.done(None, working, raw)) for raw in names]
            await until(lambda: len(working.begun) == 2)
            await asyncio.sleep(0.05)
            assert sorted(working.begun) == names[:2]
            working.go_on.set()
            assert await asyncio.gather(*tasks) == [1] * 6
            assert sorted(working.begun[2:4]) == names[2:4]

    asyncio.run(main())


def test_work_that_fails_gives_its_turn_to_the_next() -> None:
    def fail(raw: bytes) -> None:
        raise RequestError("no")

    async def main() -> None:
        counting = Counting()
        with ThreadPoolExecutor(1) as threads:
            work = BodyWork(threads, 1)
            for _ in range(3):
                body = held(counting, 40)
                with pytest.raises(RequestError, match="no"):
                    await work.done(body, fail, b"x")
                assert counting.body_bytes == 40, "the connection has it still"
                body.leave()
                await until(lambda: counting.body_bytes == 0)

    asyncio.run(main())


def test_a_client_that_leaves_is_forgotten_when_the_thread_is_through() -> None:
    async def main() -> None:
        working, counting = Working(), Counting()
        with ThreadPoolExecutor(1) as threads:
            work = BodyWork(threads, 1)
            bodies = [held(counting, 30) for _ in range(3)]
            tasks = [
                asyncio.create_task(work.done(body, working, b"%d" % number))
                for number, body in enumerate(bodies)
            ]
            await until(lambda: working.begun)
            for task, body in zip(tasks[:2], bodies, strict=False):  # one works, one waits
                task.cancel()
                body.leave()
            await asyncio.wait(tasks[:2])
            assert counting.body_bytes == 60, "the thread has the first, the last waits"
            assert working.begun == [b"0"]
            working.go_on.set()
            assert await tasks[2] == 1
            assert working.begun == [b"0", b"2"]
            assert counting.body_bytes == 30
            bodies[2].let_go()
            bodies[2].leave()
            assert counting.body_bytes == 0

    asyncio.run(main())


def test_a_body_that_is_given_up_is_not_kept() -> None:
    """Neither while it waits for its turn nor behind what else the threads do."""

    async def main() -> None:
        busy, working = threading.Event(), Working()
        working.go_on.set()
        with ThreadPoolExecutor(1) as threads:
            threads.submit(busy.wait, PATIENCE)
            work = BodyWork(threads, 1)
            raw = bytes(1000)
            ours = sys.getrefcount(raw)
            tasks = [asyncio.create_task(work.done(None, working, raw)) for _ in range(3)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            tasks.clear()
            del task
            gc.collect()
            assert sys.getrefcount(raw) == ours
            busy.set()
            assert await work.done(None, working, b"yy") == 2
            assert working.begun == [b"yy"]

    asyncio.run(main())


def test_a_body_too_many_counts_until_its_refusal_is_through() -> None:
    counting = Counting()
    first = held(counting, 60)
    second = HeldBody(counting, LIMITS)
    with pytest.raises(RequestError) as refused:
        second.grow(50)
    assert (refused.value.status, refused.value.code) == (503, "too_many_bytes")
    assert counting.body_bytes == 110
    second.leave()
    assert counting.body_bytes == 60
    first.let_go()
    first.let_go()
    assert counting.body_bytes == 0


def test_work_that_has_become_vain_while_it_waited_is_spared() -> None:
    async def main() -> None:
        working = Working()
        full = False

        def check() -> None:
            if full:
                raise RequestError("full", status=429)

        with ThreadPoolExecutor(8) as threads:
            work = BodyWork(threads, 2)
            names = [b"%d" % number for number in range(6)]
            tasks = [
                asyncio.create_task(work.done(None, working, raw, check=check)) for raw in names
            ]
            await until(lambda: len(working.begun) == 2)
            full = True
            working.go_on.set()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert found[:2] == [1, 1]
            assert [getattr(error, "status", None) for error in found[2:]] == [429] * 4
            assert sorted(working.begun) == names[:2]
            full = False
            assert await work.done(None, working, b"abc", check=check) == 3

    asyncio.run(main())
