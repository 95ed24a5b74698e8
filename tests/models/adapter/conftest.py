"""A small well-formed adapter, to be changed and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

PREFIX = "base_model.model.model.layers.0."


class AdapterBuilder:
    """Rank 2 for q (8 from 16) and down (16 from 24) of layer 0."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
        self.tensors: dict[str, np.ndarray] = {}
        self.pair("self_attn.q_proj", 8, 16)
        self.pair("mlp.down_proj", 16, 24)

    def pair(self, module: str, outputs: int, inputs: int, rank: int = 2) -> None:
        """Adds or replaces the two factors of a module of layer 0."""
        rng = np.random.default_rng(len(module))
        for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            values = rng.standard_normal(shape).astype(np.float32)
            self.tensors[f"{PREFIX}{module}.lora_{half}.weight"] = values

    def write(self, path: Path) -> Path:
        """Writes the directory; returns it."""
        path.mkdir(exist_ok=True)
        (path / "adapter_config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, path / "adapter_model.safetensors")
        return path


@pytest.fixture
def builder() -> AdapterBuilder:
    return AdapterBuilder()
