"""From GGUF metadata to a configuration, and the numbers no model can have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from farthing.config import Rope, RopeScaling
from farthing.errors import ModelFormatError
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.program.rope import longrope_magnitude, yarn_magnitude

F32 = gguf.GGUFValueType.FLOAT32


def open_gguf(path: Path) -> Checkpoint:
    return open_checkpoint(path, FAMILIES)


def test_numbers_of_a_small_file(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("llama")
    config = open_gguf(builder.write(tmp_path / "a.gguf")).config
    assert (config.architecture, config.num_layers, config.hidden_size) == ("llama", 1, 16)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 4)
    assert (config.vocab_size, config.context_length, config.rms_norm_eps) == (20, 64, 1e-5)
    assert config.rope == Rope(theta=10000.0, dim=4)
    assert (config.attention_bias, config.tie_word_embeddings) == (False, False)
    assert (config.bos_token_id, config.eos_token_ids) == (None, ())


def test_embedding_is_tied_without_an_output_matrix(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("llama")
    del builder.tensors["output.weight"]
    checkpoint = open_gguf(builder.write(tmp_path / "a.gguf"))
    assert checkpoint.config.tie_word_embeddings
    assert "lm_head.weight" not in checkpoint.tensors


def test_kv_heads_default_to_heads(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("llama")
    del builder.keys["llama.attention.head_count_kv"]
    assert open_gguf(builder.write(tmp_path / "a.gguf")).config.num_kv_heads == 4


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({}, None),
        ({"rope.scaling.type": "none", "rope.scaling.factor": (4.0, F32)}, None),
        ({"rope.scaling.type": "linear"}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": (0.0, F32)}, None),
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": (4.0, F32)},
            RopeScaling(kind="linear", factor=4.0),
        ),
        ({"rope.scaling.factor": (2.0, F32)}, RopeScaling(kind="linear", factor=2.0)),
        ({"rope.scale_linear": (8.0, F32)}, RopeScaling(kind="linear", factor=8.0)),
    ],
    ids=str,
)
def test_linear_rope_scaling(
    keys: dict[str, Any], scaling: RopeScaling | None, gguf_builder: Any, tmp_path: Path
) -> None:
    builder = gguf_builder("llama")
    builder.keys |= {f"llama.{key}": value for key, value in keys.items()}
    assert open_gguf(builder.write(tmp_path / "a.gguf")).config.rope.scaling == scaling


@pytest.mark.parametrize(
    ("factors", "linear", "expected"),
    [
        ([1.0, 8.0], None, (1.0, 8.0)),
        ([1.0, 8.0], 2.0, (2.0, 16.0)),
        ([1.0, 1.0], None, None),
    ],
    ids=str,
)
def test_rope_factors_of_a_tensor(
    factors: list[float],
    linear: float | None,
    expected: tuple[float, ...] | None,
    gguf_builder: Any,
    tmp_path: Path,
) -> None:
    builder = gguf_builder("llama")
    builder.tensors["rope_freqs.weight"] = np.array(factors, np.float32)
    if linear is not None:
        builder.keys["llama.rope.scaling.factor"] = (linear, F32)
    scaling = open_gguf(builder.write(tmp_path / "a.gguf")).config.rope.scaling
    assert scaling == (RopeScaling(kind="factors", factors=expected) if expected else None)


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": (4.0, F32)}


@pytest.mark.parametrize(
    ("keys", "magnitude"),
    [
        ({}, yarn_magnitude(4.0)),
        ({"attn_factor": (1.5, F32)}, yarn_magnitude(4.0) * 1.5),
        ({"yarn_attn_factor": (1.25, F32)}, 1.25),
        ({"yarn_attn_factor": (1.25, F32), "attn_factor": (2.0, F32)}, 2.5),
        ({"yarn_log_multiplier": (0.0, F32)}, yarn_magnitude(4.0)),
        ({"yarn_log_multiplier": (1.0, F32)}, 1.0),
        ({"yarn_log_multiplier": (0.5, F32)}, yarn_magnitude(4.0) / yarn_magnitude(4.0, 0.5)),
        ({"yarn_ext_factor": (1.0, F32)}, yarn_magnitude(4.0)),
        ({"yarn_ext_factor": (-1.0, F32)}, yarn_magnitude(4.0)),
    ],
    ids=str,
)
def test_magnitude_of_yarn(
    keys: dict[str, Any], magnitude: float, gguf_builder: Any, tmp_path: Path
) -> None:
    builder = gguf_builder("llama")
    builder.keys |= {f"llama.{key}": value for key, value in YARN.items()}
    builder.keys |= {f"llama.rope.scaling.{key}": value for key, value in keys.items()}
    scaling = open_gguf(builder.write(tmp_path / "a.gguf")).config.rope.scaling
    assert scaling == RopeScaling(
        "yarn", factor=4.0, original_context_length=64, magnitude=magnitude
    )


@pytest.mark.parametrize("written", [None, "derived", 1.25], ids=str)
def test_magnitude_of_longrope(written: Any, gguf_builder: Any, tmp_path: Path) -> None:
    """What is derived is kept in full, though the file rounds it to float32."""
    derived = longrope_magnitude(4.0, 16)
    assert derived != float(np.float32(derived))
    builder = gguf_builder("llama")
    builder.keys["llama.rope.scaling.original_context_length"] = 16
    if written is not None:
        value = derived if written == "derived" else written
        builder.keys["llama.rope.scaling.attn_factor"] = (value, F32)
    for name in ("long", "short"):
        builder.tensors[f"rope_factors_{name}.weight"] = np.ones(2, np.float32)
    scaling = open_gguf(builder.write(tmp_path / "a.gguf")).config.rope.scaling
    assert scaling is not None
    assert (scaling.kind, scaling.factor, scaling.original_context_length) == ("longrope", 4.0, 16)
    assert scaling.magnitude == (1.25 if written == 1.25 else derived)


@pytest.mark.parametrize(
    ("keys", "window", "layers"),
    [
        ({"sliding_window": 0}, None, ()),
        ({"sliding_window": 64}, None, ()),  # the whole context
        ({"sliding_window": 63}, 63, ()),
        ({"sliding_window": 9, "sliding_window_pattern": [True, False, True]}, 9,
         (True, False, True)),
        ({"sliding_window": 9, "sliding_window_pattern": 2}, 9, (True, False, True)),
        ({"sliding_window": 9, "sliding_window_pattern": 1}, None, ()),
        ({"sliding_window": 9, "sliding_window_pattern": [False] * 3}, None, ()),
    ],
    ids=str,
)  # fmt: skip
def test_windows(
    keys: dict[str, Any],
    window: int | None,
    layers: tuple[bool, ...],
    gguf_builder: Any,
    tmp_path: Path,
) -> None:
    builder = gguf_builder("qwen2")
    builder.keys["qwen2.block_count"] = 3
    builder.keys |= {f"qwen2.attention.{key}": value for key, value in keys.items()}
    config = open_gguf(builder.write(tmp_path / "a.gguf")).config
    assert (config.sliding_window, config.sliding_layers) == (window, layers)


def keys(changes: dict[str, Any]) -> Callable[[Any], None]:
    def apply(builder: Any) -> None:
        for key, value in changes.items():
            builder.keys.pop(key, None)
            if value is not None:
                builder.keys[key] = value

    return apply


def put(name: str, value: Any) -> Callable[[Any], None]:
    def apply(builder: Any) -> None:
        builder.tensors.pop(name, None)
        if value is not None:
            builder.tensors[name] = value

    return apply


def both(*changes: Callable[[Any], None]) -> Callable[[Any], None]:
    def apply(builder: Any) -> None:
        for change in changes:
            change(builder)

    return apply


NAN_FACTORS = np.array([1, np.nan], np.float32)
REFUSED: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "layers missing": (keys({"llama.block_count": None}), "llama.block_count", "is missing"),
    "layers 2^31": (keys({"llama.block_count": 2**31}), "llama.block_count", "outside 1 to"),
    "layers 0": (keys({"llama.block_count": 0}), "llama.block_count", "is 0"),
    "layers of float": (keys({"llama.block_count": 1.0}), "llama.block_count", "an integer"),
    "layers of bool": (keys({"llama.block_count": True}), "llama.block_count", "not True"),
    "heads 0": (keys({"llama.attention.head_count": 0}), "llama.attention.head_count", "is 0"),
    "heads by layer": (
        keys({"llama.attention.head_count": [4, 4]}), "llama.attention.head_count", "a list"
    ),
    "heads not dividing": (
        keys({"llama.attention.head_count": 6}), "llama.attention.head_count", "does not divide"
    ),
    "more kv heads": (
        keys({"llama.attention.head_count_kv": 8}), "llama.attention.head_count_kv", "is 8"
    ),
    "kv heads 3": (
        keys({"llama.attention.head_count_kv": 3}), "llama.attention.head_count_kv", "divide"
    ),
    "odd head": (keys({"llama.attention.key_length": 5}), "llama.attention.key_length", "even"),
    "values unlike keys": (
        keys({"llama.attention.value_length": 8}), "llama.attention.value_length", "must be equal"
    ),
    "rope NaN": (
        keys({"llama.rope.freq_base": (float("nan"), F32)}), "llama.rope.freq_base", "is nan"
    ),
    "rope 0": (keys({"llama.rope.freq_base": (0.0, F32)}), "llama.rope.freq_base", "is 0.0"),
    "rope wider than a head": (
        keys({"llama.rope.dimension_count": 6}), "llama.rope.dimension_count", "is 6"
    ),
    "rope of odd width": (
        keys({"llama.rope.dimension_count": 3}), "llama.rope.dimension_count", "even"
    ),
    "rope scaling of a kind nobody knows": (
        keys({"llama.rope.scaling.type": "ntk"}), "llama.rope.scaling.type", "'ntk'"
    ),
    "longrope without its factors": (
        keys({"llama.rope.scaling.type": "longrope"}),
        "tensor rope_factors_long.weight",
        "is missing",
    ),
    "extrapolation in part": (
        keys({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": (0.5, F32)}),
        "llama.rope.scaling.yarn_ext_factor", "only 1 is supported",
    ),
    "pattern of too few layers": (
        keys({
            "llama.attention.sliding_window": 9,
            "llama.attention.sliding_window_pattern": [True, False],
        }),
        "llama.attention.sliding_window_pattern", "2 elements for 1 layers",
    ),
    "pattern of floats": (
        keys({
            "llama.attention.sliding_window": 9,
            "llama.attention.sliding_window_pattern": [float("nan")],
        }),
        "llama.attention.sliding_window_pattern", "booleans",
    ),
    "pattern below 0": (
        keys({
            "llama.attention.sliding_window": 9,
            "llama.attention.sliding_window_pattern": (-1, gguf.GGUFValueType.INT32),
        }),
        "llama.attention.sliding_window_pattern", "is -1",
    ),
    "rope scaling infinite": (
        keys({"llama.rope.scaling.factor": (float("inf"), F32)}), "llama.rope.scaling.factor", "inf"
    ),
    "eps negative": (
        keys({"llama.attention.layer_norm_rms_epsilon": (-1e-5, F32)}),
        "llama.attention.layer_norm_rms_epsilon", "outside",
    ),
    "context 0": (keys({"llama.context_length": 0}), "llama.context_length", "is 0"),
    "an adapter": (keys({"general.type": "adapter"}), "general.type", "'adapter'"),
    "a part": (keys({"split.count": 3}), "split.count", "3 parts"),
    "no embedding": (
        put("token_embd.weight", None), "tensor token_embd.weight", "a matrix is needed"
    ),
    "embedding a vector": (
        put("token_embd.weight", np.zeros(20, np.float32)), "tensor token_embd.weight", "a matrix"
    ),
    "integers for weights": (
        put("blk.0.ffn_up.weight", np.zeros((32, 16), np.int32)),
        "tensor blk.0.ffn_up.weight", "stored as i32",
    ),
    "canonical name beside its own": (
        put("model.norm.weight", np.zeros(16, np.float32)), "tensor model.norm.weight", "duplicate"
    ),
    "rope factors too many": (
        put("rope_freqs.weight", np.ones(3, np.float32)), "tensor rope_freqs.weight", "(2,)"
    ),
    "rope factors NaN": (
        put("rope_freqs.weight", NAN_FACTORS), "tensor rope_freqs.weight", "factor 1 is nan"
    ),
    "quantized bias of q": (
        both(
            keys({"llama.attention.key_length": 8, "llama.attention.value_length": 8}),
            put("blk.0.attn_q.bias", (np.zeros(34, np.uint8), "q8_0")),
        ),
        "tensor blk.0.attn_q.bias", "is a bias stored as q8_0",
    ),
    "more tokens than rows": (
        keys({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"] * 21}),
        "tokenizer.ggml.tokens", "21 tokens for an embedding of 20",
    ),
    "no tokens": (
        keys({"tokenizer.ggml.model": "gpt2"}), "tokenizer.ggml.tokens", "missing or empty"
    ),
    "tokens not strings": (
        keys({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [1, 2]}),
        "tokenizer.ggml.tokens", "array of strings",
    ),
    "types too few": (
        keys({
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.token_type": [1],
        }),
        "tokenizer.ggml.token_type", "1 elements for 2 tokens",
    ),
    "no scores": (
        keys({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"]}),
        "tokenizer.ggml.scores", "is missing",
    ),
    "scores too few": (
        keys({
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.scores": [0.5],
        }),
        "tokenizer.ggml.scores", "1 elements for 2 tokens",
    ),
    "scores not numbers": (
        keys({
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.scores": ["x", "y"],
        }),
        "tokenizer.ggml.scores", "array of numbers",
    ),
    "score NaN": (
        keys({
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.scores": [0.5, float("nan")],
        }),
        "tokenizer.ggml.scores", "not finite",
    ),
    "normalization": (
        keys({
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.precompiled_charsmap": [1, 2],
        }),
        "tokenizer.ggml.precompiled_charsmap", "not supported",
    ),
    "eos outside": (
        keys({
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.eos_token_id": 20,
        }),
        "tokenizer.ggml.eos_token_id", "is 20, outside 0 to 19",
    ),
    "template not text": (keys({"tokenizer.chat_template": 5}), "tokenizer.chat_template", "not 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_model_is_refused_naming_the_key(
    name: str, gguf_builder: Any, tmp_path: Path
) -> None:
    change, field, problem = REFUSED[name]
    builder = gguf_builder("llama")
    change(builder)
    path = builder.write(tmp_path / "a.gguf")
    with pytest.raises(ModelFormatError) as caught:
        open_gguf(path)
    assert caught.value.field == field
    assert problem in str(caught.value)
    if not field.startswith("tensor") and "missing" not in problem:
        assert caught.value.offset == gguf.GGUFReader(path).fields[field].offset
