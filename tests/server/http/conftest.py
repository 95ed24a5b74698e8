"""A server that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.http_server import RunningServer, control_stream


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """The server, with a stream of another client going on that must not notice anything."""
    with control_stream(shared):
        yield shared
