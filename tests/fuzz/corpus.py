"""Small whole models whose files are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

FORMATS = ("gguf", "safetensors", "config.json", "tokenizer.json", "farthing.json", "packed")


def write(folder: Path) -> None:
    """Writes ``model.gguf``, the directory ``model`` and the packed one ``packed``."""
    from support.packing import pack
    from support.tiny_models import make_tiny_model

    write_gguf(folder / "model.gguf")
    make_tiny_model("llama-llama3-rope", folder / "model")
    pack(folder / "model", folder / "packed", "w4g64m")


def file_of(folder: Path, format_name: str) -> tuple[Path, Path]:
    """The model of a format, and the file of it that is damaged."""
    if format_name == "gguf":
        return folder / "model.gguf", folder / "model.gguf"
    if format_name == "farthing.json":
        return folder / "packed", folder / "packed" / format_name
    model = folder / ("packed" if format_name == "packed" else "model")
    name = format_name if format_name.endswith(".json") else "model.safetensors"
    return model, model / name


def parts(format_name: str, content: bytes) -> list[tuple[int, int]]:
    """Where damage tells most, as byte ranges; the whole file is among them."""
    ranges = [(0, len(content))]
    if format_name in ("safetensors", "packed"):
        ranges += [(0, 8 + int(struct.unpack_from("<Q", content)[0]))] * 3
    if format_name == "gguf":
        tokens = content.index(b"tokenizer.ggml.tokens")
        types = content.index(b"tokenizer.ggml.token_type", tokens + 30) - 8
        tensors = content.index(b"token_embd.weight") - 8
        data = content.index(b"blk.0.ffn_down.weight") + 60
        ranges += [(0, tokens), (types, tensors), (tensors, data), (tensors, data)]
    return ranges


def write_gguf(path: Path) -> None:
    """A Llama of one layer whose tensors are of many types, with a tokenizer."""
    import gguf
    import numpy as np
    from gguf import GGMLQuantizationType as Kind

    from farthing.tokenization.byte_level import BYTE_TO_CHARACTER

    width, inner, tokens = 256, 256, [*BYTE_TO_CHARACTER, "hi", "<|end|>"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("a model")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [3])
    writer.add_token_merges(["h i"])
    writer.add_eos_token_id(257)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    rng = np.random.default_rng(0)
    tensors: dict[str, tuple[tuple[int, ...], Kind]] = {
        "token_embd": ((len(tokens), width), Kind.Q8_0),
        "output_norm": ((width,), Kind.F32),
        "blk.0.attn_norm": ((width,), Kind.F32),
        "blk.0.attn_q": ((64, width), Kind.Q4_0),
        "blk.0.attn_k": ((32, width), Kind.Q4_1),
        "blk.0.attn_v": ((32, width), Kind.Q5_0),
        "blk.0.attn_output": ((width, 64), Kind.Q5_1),
        "blk.0.ffn_norm": ((width,), Kind.F32),
        "blk.0.ffn_gate": ((inner, width), Kind.BF16),
        "blk.0.ffn_up": ((inner, width), Kind.F16),
        "blk.0.ffn_down": ((width, inner), Kind.TQ2_0),
    }
    for name, (shape, kind) in tensors.items():
        values = rng.standard_normal(shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
