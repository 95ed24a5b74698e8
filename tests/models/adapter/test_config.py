"""``adapter_config.json``: what ``peft`` writes is read, and what is not served is named."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import peft
import pytest

from farthing.errors import ModelFormatError, ModelNotFoundError
from farthing.models.adapter import config
from farthing.models.adapter.config import AdapterConfig, read_adapter_config

PLAIN: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 12}
Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"


def read(path: Path, text: str | None = None, **changes: Any) -> AdapterConfig:
    file = path / "adapter_config.json"
    file.write_text(json.dumps(PLAIN | changes) if text is None else text)
    return read_adapter_config(file)


def test_a_plain_configuration(tmp_path: Path) -> None:
    ours = read(tmp_path, base_model_name_or_path="org/base", task_type="CAUSAL_LM")
    assert (ours.rank_of(Q), ours.scale_of(Q)) == (8, 1.5)
    assert ours.base_model == "org/base"
    assert read(tmp_path).base_model is None


def test_a_stabilized_scale_divides_by_the_root(tmp_path: Path) -> None:
    assert read(tmp_path, use_rslora=True).scale_of(Q) == 12 / math.sqrt(8)


def test_patterns_change_rank_and_alpha(tmp_path: Path) -> None:
    ours = read(tmp_path, rank_pattern={"q_proj": 3}, alpha_pattern={"down_proj": 2.5})
    assert [ours.rank_of(name) for name in (Q, DOWN)] == [3, 8]
    assert [ours.scale_of(name) for name in (Q, DOWN)] == [12 / 3, 2.5 / 8]


def test_every_setting_the_library_has_is_read_refused_or_without_effect(tmp_path: Path) -> None:
    """A setting that a new release of the library adds must be judged before it is let through."""
    known = {*config._READ, *config._OF_NO_EFFECT, *config._REFUSED}
    others = {"velora_config", "monteclora_config", "arrow_config", "kasa_config"}
    assert {field.name for field in fields(peft.LoraConfig)} - known <= others
    with pytest.raises(ModelFormatError, match="not known here"):
        read(tmp_path, velora_config={"rank": 1})


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"peft_type": "IA3"}, "peft_type", "'IA3'; only LORA"),
        ({"peft_type": "ADALORA"}, "peft_type", "'ADALORA'; only LORA"),
        ({"peft_type": None}, "peft_type", "missing"),
        ({"peft_type": ["LORA"]}, "peft_type", "a string"),
        ({"task_type": "SEQ_CLS"}, "task_type", "'SEQ_CLS'"),
        ({"use_dora": True}, "use_dora", "DoRA"),
        ({"bias": "all"}, "bias", "'all'"),
        ({"bias": "lora_only"}, "bias", "'lora_only'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save", "whole modules"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out", "transposed"),
        ({"lora_bias": True}, "lora_bias", "a bias"),
        ({"trainable_token_indices": [5]}, "trainable_token_indices", "token embeddings"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication", "replicated"),
        ({"target_parameters": ["experts.w"]}, "target_parameters", "experts"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens", "aLoRA"),
        ({"use_qalora": True}, "use_qalora", "QA-LoRA"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora", "BD-LoRA"),
        ({"ensure_weight_tying": True}, "ensure_weight_tying", "tied"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights", "'pissa_niter_4'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights", "base model's weights"),
        ({"a_new_idea": 0.5}, "a_new_idea", "not known here"),
        ({"r": 0}, "r", "is 0, outside 1 to 4096"),
        ({"r": 10**6}, "r", "outside"),
        ({"r": 2.5}, "r", "an integer"),
        ({"r": True}, "r", "an integer"),
        ({"r": None}, "r", "missing"),
        ({"lora_alpha": None}, "lora_alpha", "missing"),
        ({"lora_alpha": 1e30}, "lora_alpha", "outside"),
        ({"lora_alpha": "16"}, "lora_alpha", "a number"),
        ({"use_rslora": 1}, "use_rslora", "true or false"),
        ({"rank_pattern": [1]}, "rank_pattern", "an object"),
        ({"rank_pattern": {"q_proj": 0}}, "q_proj", "is 0, outside"),
        ({"rank_pattern": {"(q+)+": 2}}, "(q+)+", "repeat"),
        ({"alpha_pattern": {"q_proj": "a"}}, "q_proj", "a number"),
        ({"base_model_name_or_path": 7}, "base_model_name_or_path", "a string"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(ModelFormatError, match=says.replace("(", r"\(")) as caught:
        read(tmp_path, **changes)
    assert caught.value.field == field
    assert caught.value.file == tmp_path / "adapter_config.json"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"r": NaN}',
        '{"r": 1, "r": 2}',
        "[" * 100_000,
        '{"peft_type": "LORA", "r": 2, "lora_alpha": ' + "9" * 400 + "}",
        "\ufeff{}",
    ],
    ids=lambda text: text[:20],
)
def test_a_hostile_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelFormatError):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"adapter_config\.json"):
        read_adapter_config(tmp_path / "adapter_config.json")
