"""Many requests at a time, and what each alone is answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from support.event_streams import answer_of, data_of, events_of
from support.raw_http import RawClient, post
from support.reachable import COMPLETIONS, Reachable


def asked(number: int, tokens: int = 60) -> dict[str, Any]:
    """A request unlike the others; every second one is a stream."""
    return {
        "prompt": f"Crowd {number}: who weighs the flour? 🌾",
        "seed": number,
        "temperature": 1.0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "logprobs": 1,
        "stream": number % 2 == 0,
        **({"stream_options": {"include_usage": True}} if number % 2 == 0 else {}),
    }


def told(response: httpx2.Response) -> dict[str, Any]:
    """What an answer of 200 says, streamed or not, and nothing of when and where it was made."""
    assert response.status_code == 200, response.text
    is_stream = response.headers["content-type"].startswith("text/event-stream")
    answer = answer_of(response.content) if is_stream else response.json()
    return {
        "choices": answer["choices"],
        "completion_tokens": answer["usage"]["completion_tokens"],
        "system_fingerprint": answer["system_fingerprint"],
    }


def alone(server: Reachable, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each is told when nobody else asks."""
    return [told(server.post(COMPLETIONS, body)) for body in bodies]


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error that a request ended with, in an object of its own or as a stream's last event."""
    if response.headers["content-type"].startswith("text/event-stream"):
        assert data_of(response.content)[-1] == "[DONE]"
        last = events_of(response.content)[-1]
    else:
        assert response.status_code >= 400
        last = response.json()
    assert list(last) == ["error"]
    error: dict[str, Any] = last["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


class Crowd:
    """Requests that are sent at once, over connections that are there already."""

    def __init__(self, server: Reachable, bodies: Sequence[dict[str, Any]]) -> None:
        self._clients = [RawClient(server.address[1]) for _ in bodies]
        self._pool = ThreadPoolExecutor(len(bodies))
        for client, body in zip(self._clients, bodies, strict=True):
            client.send(post(COMPLETIONS, json.dumps(body).encode()))
        self._answers = [self._pool.submit(client.response) for client in self._clients]

    def responses(self) -> list[httpx2.Response]:
        """All of them; fails if one is not whole."""
        found = []
        for answer in self._answers:
            raw = answer.result(60)
            raw.headers.pop("transfer-encoding", None)
            found.append(httpx2.Response(raw.status, headers=raw.headers, content=raw.body))
        return found

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for client in self._clients:
            client.socket.close()
