"""``adapter_config.json`` of a LoRA adapter.

Keys and their meaning: ``LoraConfig`` of the ``peft`` library, up to release 0.21. A setting that
would change what the adapter computes, and that is not served, is refused by name; so is one that
nobody here has heard of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from farthing.models.adapter.name_patterns import MAX_PATTERNS, NamePatterns
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.json_file import read_json_fields

CONFIG_FILE = "adapter_config.json"

_READ = (
    "peft_type",
    "task_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "bias",
    "init_lora_weights",
    "base_model_name_or_path",
)
_OF_NO_EFFECT = (  # on what a trained adapter computes
    "auto_mapping",
    "corda_config",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
)
_REFUSED = {
    "use_dora": "weight-decomposed adapters (DoRA) are not supported",
    "modules_to_save": "whole modules saved with the adapter are not supported",
    "trainable_token_indices": "trained token embeddings are not supported",
    "fan_in_fan_out": "transposed weights (fan-in, fan-out) are not supported",
    "lora_bias": "a bias in the adapter is not supported",
    "layer_replication": "replicated layers are not supported",
    "target_parameters": "adapters of bare parameters, such as experts, are not supported",
    "alora_invocation_tokens": "adapters that tokens activate (aLoRA) are not supported",
    "use_qalora": "quantization-aware adapters (QA-LoRA) are not supported",
    "use_bdlora": "block-diagonal adapters (BD-LoRA) are not supported",
    "ensure_weight_tying": "an adapter of tied embeddings is not supported",
    "megatron_config": "adapters of Megatron layers are not supported",
}
_PLAIN_STARTS = ("gaussian", "eva", "orthogonal")
_TASKS = ("CAUSAL_LM",)
_MAX_ALPHA = 1e6
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The numbers of an adapter; modules by their dotted name in the base model."""

    path: Path
    rank: int
    alpha: float
    rank_stabilized: bool
    ranks: NamePatterns
    alphas: NamePatterns
    base_model: str | None
    """What the adapter was trained on, as the trainer named it; for information."""

    def rank_of(self, module: str) -> int:
        """Rank of the adapter of ``module``."""
        rank = self.ranks.find(module)
        return self.rank if rank is None else int(rank)

    def scale_of(self, module: str) -> float:
        """What the low-rank product of ``module`` is multiplied with.

        ``alpha / rank`` (Hu et al. 2021, section 4.1), or ``alpha / sqrt(rank)`` where it is
        stabilized (Kalajdzievski 2023).
        """
        alpha = self.alphas.find(module)
        rank = self.rank_of(module)
        return (self.alpha if alpha is None else alpha) / (
            math.sqrt(rank) if self.rank_stabilized else rank
        )


def read_adapter_config(path: Path) -> AdapterConfig:
    """Reads ``path``; raises :class:`ModelFormatError` naming the key that is not served."""
    fields = read_json_fields(path)
    kind = fields.text("peft_type")
    if kind != "LORA":
        fields.fail("peft_type", f"is {kind[:40]!r}; only LORA adapters are supported")
    task = fields.optional_text("task_type")
    if task is not None and task not in _TASKS:
        fields.fail("task_type", f"is {task[:40]!r}; only {_TASKS[0]} adapters are supported")
    _refuse_unsupported(fields)
    return AdapterConfig(
        path=path,
        rank=fields.integer("r", 1, limits.MAX_ADAPTER_RANK),
        alpha=fields.real("lora_alpha", -_MAX_ALPHA, _MAX_ALPHA),
        rank_stabilized=fields.boolean("use_rslora", False),
        ranks=_patterns(
            fields,
            "rank_pattern",
            lambda values, key: values.integer(key, 1, limits.MAX_ADAPTER_RANK),
        ),
        alphas=_patterns(
            fields, "alpha_pattern", lambda values, key: values.real(key, -_MAX_ALPHA, _MAX_ALPHA)
        ),
        base_model=(fields.optional_text("base_model_name_or_path") or "")[:_LONGEST_NAME] or None,
    )


def _refuse_unsupported(fields: Fields) -> None:
    for key, problem in _REFUSED.items():
        if fields.values.get(key):
            fields.fail(key, problem)
    bias = fields.optional_text("bias") or "none"
    if bias != "none":
        fields.fail("bias", f"is {bias[:40]!r}; trained biases are not supported")
    start = fields.values.get("init_lora_weights")
    if isinstance(start, str) and start not in _PLAIN_STARTS:
        fields.fail(
            "init_lora_weights",
            f"is {start[:40]!r}, which changes the base model's weights too; convert the adapter "
            "to a plain one when saving it (path_initial_model_for_weight_conversion)",
        )
    known = {*_READ, *_OF_NO_EFFECT, *_REFUSED}
    for key, value in fields.values.items():
        if key not in known and value:
            fields.fail(key[:80], "is a setting of adapters that is not known here")


def _patterns(fields: Fields, key: str, read: Callable[[Fields, str], float]) -> NamePatterns:
    values = fields.values.get(key) or {}
    if not isinstance(values, dict):
        fields.fail(key, "must be an object")
    if len(values) > MAX_PATTERNS:
        fields.fail(key, f"has {len(values)} entries, more than {MAX_PATTERNS}")
    nested = Fields(fields.file, values)
    return NamePatterns(nested, {pattern: read(nested, pattern) for pattern in values})
