"""How each GGUF ``tokenizer.ggml.pre`` splits text before byte-pair merging.

Patterns are those of the models' published ``tokenizer.json`` files, and so are the normalizers,
which GGUF files and other readers leave out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Builtin(Enum):
    """Steps that the library has by name."""

    GPT2_WORDS = 1  # the words of GPT-2; also writes them in the byte-level alphabet
    DIGITS = 2  # every digit is a piece


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """``steps`` in order: what a pattern matches, and what it does not, become pieces."""

    steps: tuple[str | Builtin, ...]
    nfc: bool = False
    ignore_merges: bool = False  # a piece that is a vocabulary string is that token, unmerged
    add_bos: bool = False  # when the file does not say


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_AND_SLASHES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_ONE_DIGIT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_THREE_DIGITS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_WITH_MARKS = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Words end where small letters are followed by capital ones.
_CAPITALS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*"
    rf"|\p{{N}}{_REST_AND_SLASHES}"
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}{_REST_AND_SLASHES}"
)
_DEEPSEEK_LETTERS = (  # escaped where an editor might normalize
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ"
    "-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-퟿]+"

_GPT2 = PreTokenization((Builtin.GPT2_WORDS,))
_STARCODER = PreTokenization((Builtin.DIGITS, Builtin.GPT2_WORDS))
_QWEN2 = PreTokenization((_ONE_DIGIT,), nfc=True)
_LLAMA3 = PreTokenization((_THREE_DIGITS,), ignore_merges=True, add_bos=True)
_TEKKEN_ROW = PreTokenization((_TEKKEN,), ignore_merges=True, add_bos=True)

PRE_TOKENIZATIONS: dict[str, PreTokenization] = {
    "command-r": PreTokenization((Builtin.DIGITS, Builtin.GPT2_WORDS), nfc=True),
    "dbrx": PreTokenization((_THREE_DIGITS,)),  # Phi-4, OLMo 2
    "deepseek-coder": PreTokenization(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, Builtin.DIGITS)
    ),
    "deepseek-llm": PreTokenization(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            # Published as \s+$, which takes quadratic time in a long run of white space.
            r"(?<!\s)\s++$",
            _DEEPSEEK_CJK,
            Builtin.DIGITS,
        )
    ),
    "deepseek-r1-qwen": _QWEN2,
    "deepseek-v3": PreTokenization(
        (
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )
    ),
    "gpt-2": _GPT2,
    "gpt-4o": PreTokenization((_O200K,)),  # Phi-4-mini
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "mistral-bpe": _TEKKEN_ROW,
    "olmo": PreTokenization((Builtin.GPT2_WORDS,), nfc=True),
    "phi-2": _GPT2,
    "qwen2": _QWEN2,
    "qwen35": PreTokenization((_WITH_MARKS,), nfc=True),
    "refact": _STARCODER,  # Granite 3
    "smaug-bpe": PreTokenization((_THREE_DIGITS,), ignore_merges=True),  # SmolLM3
    "smollm": _STARCODER,
    "starcoder": _STARCODER,
    "tekken": _TEKKEN_ROW,
}

# For files that name none: what llama.cpp does with them. No model was trained with it.
UNNAMED = PreTokenization(
    (
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    )
)


def install(pre: PreTokenization, tokenizer: Tokenizer) -> None:
    """Give ``tokenizer`` the normalizer, pre-tokenizer and decoder of ``pre``."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    for step in pre.steps:
        if step is Builtin.DIGITS:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        elif step is Builtin.GPT2_WORDS:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
        else:
            steps.append(pre_tokenizers.Split(Regex(step), behavior="isolated"))
    if Builtin.GPT2_WORDS not in pre.steps:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
