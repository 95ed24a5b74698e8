"""A server of HTTP that a test writes: what it sends, when, and how it breaks off."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

Step = bytes | float | Literal["close", "reset"]
"""Bytes to send, seconds to wait, an end of the connection, or its end in the middle of things."""


@dataclass(frozen=True)
class Received:
    """A request. ``connection``, ``number``: which of the server's, which on the connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    number: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received], Iterable[Step] | Awaitable[Iterable[Step]]]


class ScriptedServer:
    """Runs in a thread of its own while entered. ``received``: all requests so far.

    ``port`` 0: any that is free.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._script = script
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.received: list[Received] = []
        self.port = port

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        connection, number = self._connections, 0
        try:
            while True:
                request = await _read(reader, connection, number)
                number += 1
                self.received.append(request)
                steps = self._script(request)
                if isinstance(steps, Awaitable):
                    steps = await steps
                for step in steps:
                    if isinstance(step, bytes):
                        writer.write(step)
                        await writer.drain()
                    elif step == "close":
                        return
                    elif step == "reset":
                        writer.transport.abort()
                        return
                    else:
                        await asyncio.sleep(step)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)


async def _read(reader: asyncio.StreamReader, connection: int, number: int) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, body, connection, number)


def response(body: bytes | Any, status: str = "200 OK", **headers: str) -> bytes:
    """A whole response; what is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """An event of a stream; text as it is, all else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def completion_events(words: Iterable[str], usage: tuple[int, int] | None = None) -> list[bytes]:
    """The events of a completion: a chunk a word, the usage if given, the end."""
    texts = list(words)
    events = []
    for number, word in enumerate(texts):
        reason = "length" if number == len(texts) - 1 else None
        choice = {"index": 0, "text": word, "logprobs": None, "finish_reason": reason}
        events.append(event({"object": "text_completion", "choices": [choice]}))
    if usage is not None:
        prompt, output = usage
        counts = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
        }
        events.append(event({"choices": [], "usage": counts}))
    return [*events, event("[DONE]")]


def streamed(events: Iterable[bytes], gap: float = 0.0) -> list[Step]:
    """Steps of a whole chunked stream, ``gap`` seconds before every event."""
    steps: list[Step] = [STREAM_HEAD]
    for each in events:
        if gap:
            steps.append(gap)
        steps.append(chunk(each))
    return [*steps, LAST_CHUNK]
