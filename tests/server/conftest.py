"""A tiny model for all tests of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory; a context of 256 tokens."""
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))
