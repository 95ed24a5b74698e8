"""A stream that runs beside something bad, and must not notice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from support.event_streams import answer_of
from support.raw_http import RawClient, post, wait_until
from support.reachable import COMPLETIONS, Reachable

BODY = {
    "prompt": "A control that nobody disturbs 🌾",
    "temperature": 1.0,
    "seed": 99,
    "ignore_eos": True,
    "logprobs": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
}


class _Control:
    """One client, and what it is told each time that it asks the same."""

    def __init__(self, served: Reachable, max_tokens: int) -> None:
        key = served.client.headers.get("authorization")
        body = json.dumps({**BODY, "max_tokens": max_tokens}).encode()
        self._request = post(COMPLETIONS, body, *([f"Authorization: {key}"] if key else ()))
        self.client = RawClient(served.address[1])
        self.has_begun = threading.Event()
        self.over = threading.Event()

    def told(self) -> dict[str, Any]:
        """A whole stream, but for what may differ."""
        status, headers = self.client.send(self._request).head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        raw = b""
        for chunk in self.client.chunks():
            raw += chunk
            self.has_begun.set()
        answer = answer_of(raw)
        del answer["id"], answer["usage"]["prompt_tokens_details"]
        return answer

    def go_on(self, alone: dict[str, Any]) -> None:
        """Streams until it is over, the last one to its end."""
        while not self.over.is_set():
            assert self.told() == alone


@contextmanager
def control_stream(served: Reachable, max_tokens: int = 100) -> Iterator[None]:
    """Streams beside the block, one stream behind the other on a connection, as long as it takes.

    Tokens and log probabilities of each must be those of a run alone.
    """
    control = _Control(served, max_tokens)
    with control.client, ThreadPoolExecutor(1) as thread:
        alone = control.told()
        control.has_begun.clear()
        going_on = thread.submit(control.go_on, alone)
        try:
            wait_until(lambda: control.has_begun.is_set() or going_on.done())
            yield
        finally:
            control.over.set()
        going_on.result()
