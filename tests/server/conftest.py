"""Tiny models, and a running server that tests share; who needs one of its own uses ``serve``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing import LLM
from support.served import Served, serve
from support.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory; a context of 256 tokens."""
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory; a context of 256 tokens, more rows of the vocabulary than tokens."""
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="session")
def llm(served_model: Path) -> LLM:
    """The model of ``served`` in this process."""
    return LLM(served_model, num_threads=1)


@pytest.fixture(scope="session")
def shared_server(served_model: Path) -> Iterator[Served]:
    """A server over it."""
    with serve(served_model) as server:
        yield server


@pytest.fixture
def served(shared_server: Served) -> Iterator[Served]:
    """A server that nobody asks anything of; after the test it must be so again."""
    shared_server.records.all.clear()
    yield shared_server
    shared_server.wait_idle()
