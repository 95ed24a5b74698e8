"""How each GGUF ``tokenizer.ggml.pre`` splits text before byte-pair merging.

Patterns are those of the models' published ``tokenizer.json`` files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """``pattern`` None means the pattern built into the byte-level pre-tokenizer (GPT-2's)."""

    pattern: str | None
    nfc: bool = False
    ignore_merges: bool = False  # a piece that is a vocabulary string is that token, unmerged
    single_digits: bool = False  # digits are split one by one before anything else
    add_bos: bool = False  # when the file does not say


_QWEN2 = PreTokenization(_WORDS.replace("DIGITS", ""), nfc=True)
_LLAMA3 = PreTokenization(_WORDS.replace("DIGITS", "{1,3}"), ignore_merges=True, add_bos=True)

PRE_TOKENIZATIONS: dict[str, PreTokenization] = {
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "gpt-2": PreTokenization(None),
    "smollm": PreTokenization(None, single_digits=True),
}


def install(pre: PreTokenization, tokenizer: Tokenizer) -> None:
    """Give ``tokenizer`` the normalizer, pre-tokenizer and decoder of ``pre``."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if pre.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pre.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
