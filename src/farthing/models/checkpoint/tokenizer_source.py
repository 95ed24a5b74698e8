"""Where a checkpoint's tokenizer comes from; turning it into a tokenizer is ``tokenization``'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HuggingFaceTokenizer:
    """A ``tokenizer.json`` and what ``tokenizer_config.json`` says (empty if there is none)."""

    path: Path
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class GgufTokenizer:
    """The ``tokenizer.ggml.*`` metadata of a GGUF file.

    ``tokens`` and ``merges`` are decoded when first read. A sequence that the file does not have
    is empty; otherwise ``token_types`` and ``scores`` are as long as ``tokens``.
    """

    file: Path
    model: str  # "gpt2": byte-level BPE; "llama": SentencePiece; ...
    pre: str | None  # which pre-tokenizer a byte-level BPE uses: "qwen2", "llama-bpe", ...
    tokens: Sequence[str]
    token_types: Sequence[int]  # 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    scores: Sequence[float]
    merges: Sequence[str]
    special_ids: Mapping[str, int]  # "bos", "eos", "unknown", "padding", "eot", ...
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None


TokenizerSource = HuggingFaceTokenizer | GgufTokenizer
