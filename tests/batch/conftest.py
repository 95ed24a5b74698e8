"""A tiny model for batches."""

from __future__ import annotations

import pytest

from farthing import LLM
from support.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny") / "model")
    return LLM(path, num_threads=1, max_num_seqs=8)
