"""Tiny models of one vocabulary."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.evaluations import Recorder
from support.tiny_models import KINDS, make_model, make_tiny_model


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def reference_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied, with more vocabulary rows than tokens."""
    return make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny") / "reference")


@pytest.fixture(scope="session")
def other_model(reference_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_errors(reference_model, tmp_path_factory.mktemp("tiny") / "other")


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With room for the questions of a battery."""
    config = replace(KINDS["qwen2"], context_length=512)
    return make_model(config, tmp_path_factory.mktemp("tiny") / "long")


@pytest.fixture(scope="session")
def other_long_model(long_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_errors(long_model, tmp_path_factory.mktemp("tiny") / "other-long")


def with_errors(model: Path, path: Path) -> Path:
    """The model with an error of some percent in each weight, as of few bits."""
    shutil.copytree(model, path)
    file = path / "model.safetensors"
    rng = np.random.default_rng(1)
    tensors = {
        name: (values * rng.normal(1, 0.1, values.shape)).astype(np.float32)
        for name, values in sorted(safetensors.numpy.load_file(file).items())
    }
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    return path


@pytest.fixture(scope="session")
def bos_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer begins every text with a token."""
    return make_tiny_model("llama-mha", tmp_path_factory.mktemp("tiny") / "bos")
