"""GGUF files as checkpoints: configuration, names, row order, tokenizer."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from farthing.config import Rope
from farthing.errors import UnsupportedArchitectureError
from farthing.models.checkpoint import Checkpoint, open_checkpoint
from farthing.models.checkpoint.gguf import half_split_order
from farthing.models.registry import FAMILIES, find_family
from farthing.tokenization.source import GgufVocabulary
from support.tiny_gguf import interleave


def open_gguf(path: Path) -> Checkpoint:
    return open_checkpoint(path, FAMILIES)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (3, 8), (32, 128)])
def test_half_split_order_undoes_the_converters_permutation(heads: int, head_dim: int) -> None:
    rows = np.arange(heads * head_dim)
    stored = interleave(rows, heads)
    np.testing.assert_array_equal(stored[half_split_order(heads, head_dim, head_dim)], rows)


def test_half_split_order_leaves_dimensions_without_rope() -> None:
    # pairs (0, 1) and (2, 3) of the file become (0, 2) and (1, 3); 4 and 5 do not rotate
    assert half_split_order(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


def test_quantized_rows_of_q_are_reordered_as_blocks(
    gguf_builder: Any, tmp_path: Path, random_blocks: Callable[..., np.ndarray]
) -> None:
    builder = gguf_builder("llama")
    blocks = random_blocks("q5_0", 64, 64)
    builder.keys["llama.embedding_length"] = 64
    builder.tensors["blk.0.attn_q.weight"] = (interleave(blocks, 4), "q5_0")
    builder.tensors["token_embd.weight"] = np.zeros((20, 64), np.float32)
    q = open_gguf(builder.write(tmp_path / "a.gguf")).tensors[
        "model.layers.0.self_attn.q_proj.weight"
    ]
    assert q.read_rows(0, 64).tobytes() == blocks.tobytes()
    assert q.read_rows(7, 40).tobytes() == blocks[7:40].tobytes()


def test_unsupported_architectures_are_named_with_the_supported(
    gguf_builder: Any, tmp_path: Path
) -> None:
    path = gguf_builder("mamba").write(tmp_path / "a.gguf")
    with pytest.raises(UnsupportedArchitectureError, match=r"'mamba'.*supported: .*llama, .*qwen2"):
        open_gguf(path)
    path = gguf_builder("qwen2").write(tmp_path / "b.gguf")
    with pytest.raises(UnsupportedArchitectureError, match=r"'qwen2'.*supported: llama$"):
        open_checkpoint(path, [find_family("llama")])
    builder = gguf_builder("llama")
    builder.keys["llama.expert_count"] = 8
    with pytest.raises(UnsupportedArchitectureError, match="mixture of 8 experts"):
        open_gguf(builder.write(tmp_path / "c.gguf"))


def test_tokenizer_metadata(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("qwen2")
    tokens = ["a", "b", "ab", "<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|im_end|>x"]
    builder.keys |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 3, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.scores": [0.0, -1.0, -2.0, 0.0, 0.0, 0.0, 0.0],
        "tokenizer.ggml.bos_token_id": 4,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.padding_token_id": 2**32 - 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}",
    }
    checkpoint = open_gguf(builder.write(tmp_path / "a.gguf"))
    tokenizer = checkpoint.tokenizer
    assert isinstance(tokenizer, GgufVocabulary)
    assert (tokenizer.model, tokenizer.pre) == ("gpt2", "qwen2")
    assert list(tokenizer.tokens) == tokens
    assert list(tokenizer.token_types) == [1, 1, 1, 3, 3, 3, 1]
    assert list(tokenizer.merges) == ["a b"]
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.other_eos_ids) == (4, 3, (5,))
    assert (tokenizer.add_bos, tokenizer.add_eos) == (False, False)
    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.config.bos_token_id == 4
    assert checkpoint.config.eos_token_ids == (3, 5)


def test_sentencepiece_metadata(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("llama")
    builder.keys |= {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "▁a"],
        "tokenizer.ggml.token_type": [2, 3, 1],
        "tokenizer.ggml.scores": [0.0, 0.0, -1.5],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.remove_extra_whitespaces": True,
    }
    tokenizer = open_gguf(builder.write(tmp_path / "a.gguf")).tokenizer
    assert isinstance(tokenizer, GgufVocabulary)
    assert list(tokenizer.scores) == [0.0, 0.0, -1.5]
    assert (tokenizer.unknown_id, tokenizer.pre, tokenizer.rstrip_control) == (0, "", False)
    assert (tokenizer.add_space_prefix, tokenizer.remove_extra_whitespaces) == (False, True)


def test_a_file_without_tokenizer_opens(gguf_builder: Any, tmp_path: Path) -> None:
    checkpoint = open_gguf(gguf_builder("llama").write(tmp_path / "a.gguf"))
    assert (checkpoint.tokenizer, checkpoint.chat_template) == (None, None)


def test_unknown_tensors_keep_their_names(gguf_builder: Any, tmp_path: Path) -> None:
    builder = gguf_builder("llama")
    for name in ["blk.0.attn_sinks.weight", "blk.00.attn_q.weight", "extra"]:
        builder.tensors[name] = np.zeros(4, np.float32)
    checkpoint = open_gguf(builder.write(tmp_path / "a.gguf"))
    assert {"blk.0.attn_sinks.weight", "blk.00.attn_q.weight", "extra"} < set(checkpoint.tensors)


@pytest.mark.slow
def test_the_real_model_has_its_known_numbers(qwen_gguf: Path) -> None:
    checkpoint = open_gguf(qwen_gguf)
    config = checkpoint.config
    assert (config.architecture, config.num_layers) == ("qwen2", 24)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (14, 2, 64)
    assert (config.hidden_size, config.intermediate_size) == (896, 4864)
    assert (config.vocab_size, config.context_length) == (151936, 32768)
    assert config.rms_norm_eps == 1e-6
    assert config.rope == Rope(theta=1e6, dim=64)
    assert (config.attention_bias, config.tie_word_embeddings) == (True, False)
    assert (config.bos_token_id, config.eos_token_ids) == (151643, (151645,))
    assert checkpoint.bytes_by_dtype() == {
        "q5_0": 266742784, "q8_0": 146105344, "q6_k": 42900480, "q4_k": 29417472, "f32": 286208,
    }  # fmt: skip
    assert checkpoint.nbytes == 485452288
    assert len(checkpoint.tensors) == 291
    assert isinstance(checkpoint.tokenizer, GgufVocabulary)
    assert (len(checkpoint.tokenizer.tokens), len(checkpoint.tokenizer.merges)) == (151936, 151387)


@pytest.mark.slow
def test_the_real_model_opens_in_a_quarter_of_a_second(qwen_gguf: Path) -> None:
    times = []
    for _ in range(3):
        start = time.process_time()
        tokenizer: Any = open_gguf(qwen_gguf).tokenizer
        assert (len(list(tokenizer.tokens)), len(list(tokenizer.merges))) == (151936, 151387)
        times.append(time.process_time() - start)
    assert min(times) < 0.25


@pytest.mark.slow
def test_rows_of_the_real_model_are_those_of_the_gguf_package(qwen_gguf: Path) -> None:
    checkpoint = open_gguf(qwen_gguf)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(qwen_gguf).tensors}
    checked: set[str] = set()
    for tensor in checkpoint.tensors.values():
        other = theirs[tensor.name]
        rows = min(tensor.rows, 300)
        data = other.data.reshape(tensor.rows, -1)[:rows]
        assert tensor.read_rows(0, rows).tobytes() == data.tobytes()
        if tensor.stored_dtype not in checked:
            checked.add(tensor.stored_dtype)
            truth = gguf.dequantize(data, other.tensor_type)
            assert tensor.dequantize(0, rows).tobytes() == truth.tobytes()
    assert len(checked) == 5
