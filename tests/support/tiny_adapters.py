"""Random LoRA adapters for the tiny models, made, saved and played by the ``peft`` library."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch

from support.truth import load_transformers

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")

ADAPTERS: dict[str, Mapping[str, Any]] = {
    # What most adapters are.
    "every linear layer": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    # The library's default for these families; k is stacked with q and v and has no pair.
    "rank 1, q and v": {"r": 1, "lora_alpha": 2, "target_modules": ("q_proj", "v_proj")},
    "rank 5, residual layers": {"r": 5, "lora_alpha": 7, "target_modules": ("o_proj", "down_proj")},
    "rank-stabilized 20, gate": {
        "r": 20,
        "lora_alpha": 3.5,
        "use_rslora": True,
        "target_modules": ("gate_proj",),
    },
    "patterns": {
        "r": 4,
        "lora_alpha": 4,
        "target_modules": ATTENTION + MLP,
        "rank_pattern": {
            "k_proj": 3,
            "layers.1.self_attn.q_proj": 17,
            r"layers\.[02]\.mlp\.up.*": 1,
        },
        "alpha_pattern": {"^model.layers.2.mlp.down_proj": 12, "(v|o)_proj": 6.5},
    },
    "some layers": {
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ("q_proj", "up_proj"),
        "layers_to_transform": [1],
    },
    "output projection": {"r": 6, "lora_alpha": 6, "target_modules": ("lm_head",)},
    "every layer and the output": {
        "r": 3,
        "lora_alpha": 5,
        "target_modules": (*ATTENTION, *MLP, "lm_head"),
    },
    "gaussian start": {
        "r": 16,
        "lora_alpha": 16,
        "target_modules": ("k_proj", "down_proj"),
        "init_lora_weights": "gaussian",
    },
}
"""Settings of ``peft.LoraConfig`` by name."""


def make_tiny_adapter(
    base: Path,
    directory: Path,
    name: str = "every linear layer",
    *,
    seed: int = 0,
    dtype: str = "float32",
    b_scale: float = 0.3,
) -> Path:
    """Saves the adapter ``name`` for the model of ``base`` in ``directory``; returns that.

    ``b_scale`` is about what a low-rank product changes, as a part of its layer's output and
    before ``lora_alpha``. (Random changes of 1 and more make a model whose rounding errors are so
    large that two runs in float32 differ by luck.) ``dtype``: of the stored factors.
    """
    config = peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name])
    with _quiet():
        model = peft.get_peft_model(load_transformers(base), config)
    rng = np.random.default_rng(seed)
    for key, parameter in sorted(model.named_parameters()):
        if "lora_" in key:
            scale = b_scale if "lora_B" in key else 1.0
            values = (
                scale * rng.standard_normal(tuple(parameter.shape)) / np.sqrt(parameter.shape[1])
            )
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(values))
            parameter.data = parameter.data.to(getattr(torch, dtype))
    model.save_pretrained(directory, save_embedding_layers=False)
    return directory


def load_peft(base: Path, adapter: Path) -> torch.nn.Module:
    """The base model in float32 with the adapter beside it, in float32 too."""
    with _quiet():
        return peft.PeftModel.from_pretrained(load_transformers(base), adapter).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without two warnings: peft asks for an attribute by its old name and dislikes tied models."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings", UserWarning)
        yield
