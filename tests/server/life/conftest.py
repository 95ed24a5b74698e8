"""A server as a process that tests share; who ends it, or needs another, has one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.sentencepiece_gguf import make_sentencepiece_gguf
from support.server_process import ServerProcess, serving
from support.tiny_models import KINDS, make_model


@pytest.fixture(scope="session")
def life_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory; a context of 2,048 tokens."""
    config = replace(KINDS["qwen2-tied"], context_length=2048)
    return make_model(config, tmp_path_factory.mktemp("life") / "tiny")


@pytest.fixture(scope="session")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file whose vocabulary our native code encodes; a context of 256 tokens."""
    return make_sentencepiece_gguf(tmp_path_factory.mktemp("sentencepiece"))


@pytest.fixture(params=["life_model", "sentencepiece_model"])
def each_model(request: pytest.FixtureRequest) -> Path:
    """A model with either sort of tokenizer."""
    model: Path = request.getfixturevalue(request.param)
    return model


@pytest.fixture(scope="session")
def shared_process(life_model: Path) -> Iterator[ServerProcess]:
    """A server over it, with short deadlines and a queue of 64."""
    deadlines = ("--header-timeout", "1", "--body-timeout", "2", "--write-timeout", "1")
    room = ("--max-num-seqs", "8", "--max-num-queued-reqs", "64", "--kv-cache-tokens", "16384")
    options = (*room, "--enable-log-requests")
    with serving(life_model, *deadlines, *options) as server:
        yield server


@pytest.fixture
def server(shared_process: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server; after the test it must be idle and healthy."""
    yield shared_process
    shared_process.wait_idle()
    assert shared_process.status("/health") == 200
