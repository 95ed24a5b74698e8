"""A server of a tiny model for the real clients, and the same model in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clients.server import NAME, serving
from farthing import LLM
from support.tiny_models import KINDS, make_model

CONTEXT = 2048


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a chat template."""
    config = replace(KINDS["qwen2-tied"], context_length=CONTEXT)
    return make_model(config, tmp_path_factory.mktemp("clients") / NAME)


@pytest.fixture(scope="session")
def url(model: Path) -> Iterator[str]:
    """Address of a server with room for all."""
    with serving(model, "--served-model-name", NAME, "--threads", "1") as address:
        yield address


@pytest.fixture(scope="session")
def llm(model: Path) -> LLM:
    """The model that is served: what it says is what a client must get."""
    return LLM(model, num_threads=1)
