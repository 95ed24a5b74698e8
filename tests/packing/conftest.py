"""The model that is packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tiny_models import make_tiny_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("models") / "source")
