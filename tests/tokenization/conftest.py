"""Small tokenizers, trained here, with the pre-tokenizers the model families publish."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from farthing.tokenization import GgufVocabulary

# Examples are judged by what they show, not by how busy the machine is.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("unhurried")

# As in Qwen2's and Llama 3's tokenizer.json.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3_CONTROL = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
USER_DEFINED = ("<tool_call>", "</tool_call>")

_PIECES = (
    *("the", " quick", " brown", "'s", "'LL", " don't", "Hello", " World", "naïve", "Straße"),
    *("int main(void) {\n", "\treturn x[i] += 1;\n", "def f(a, b=None):\n    ", "=> ", "!=", "::"),
    *("Привет", " мир", "Ελληνικά", "你好世界", "こんにちは", "안녕하세요", "שלום", "مرحبا"),
    *("नमस्ते", "ไทย", "e\u0301", "A\u030a", "\u1e9b\u0323", "ﬁ", "½", "٣", "四"),
    *(
        "🙂",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "🇫🇷",
        "👍🏽",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u2028",
        "\xa0",
        "\u3000",
    ),
    *("\x00", "\x07", "\x1b[0m", "\x7f", "\x85", "\U0010ffff", "\ue000", "\ufffd"),
    *("\r\n", "\r", "\n\n\n", "    ", "\t\t", " ", "  \n", " \r\n "),
    *("0", "1234567", "3.14159", "1,000", "²", "<", "|", ">", "<|", "|>", "im_start", "im_end"),
)


def random_texts(count: int, seed: int, extra: tuple[str, ...] = ()) -> list[str]:
    """Texts of mixed scripts, code, emoji, control characters, digits and white space."""
    source = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = source.choices((*_PIECES, *extra), k=source.randrange(0, 14))
        parts += [chr(source.randrange(0x20, 0x3000)) for _ in range(source.randrange(3))]
        source.shuffle(parts)
        texts.append("".join(parts))
    return texts


@dataclass(frozen=True)
class Trained:
    """One vocabulary as the library's tokenizer, as its file, and as GGUF metadata."""

    library: Tokenizer
    path: Path
    config: dict[str, object]
    gguf: GgufVocabulary


def _train(pattern: str, nfc: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC() if nfc else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        random_texts(2000, seed=1),
        trainers.BpeTrainer(
            vocab_size=1500,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def _with_ignored_merges(tokenizer: Tokenizer) -> Tokenizer:
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    # A vocabulary string no merge can reach: only ignore_merges finds it.
    state["model"]["vocab"]["ĠHamburgefonts"] = len(state["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(state))


def _as_gguf(tokenizer: Tokenizer, pre: str, control: tuple[str, ...]) -> GgufVocabulary:
    state = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(i) or "" for i in range(size)]
    kinds = {**dict.fromkeys(control, 3), **dict.fromkeys(USER_DEFINED, 4)}
    padding = [f"[PAD{i}]" for i in range(size, size + 5)]
    return GgufVocabulary(
        model="gpt2",
        pre=pre,
        tokens=tokens + padding,
        token_types=[kinds.get(token, 1) for token in tokens] + [5] * len(padding),
        merges=[" ".join(pair) for pair in state["model"]["merges"]],
        bos_id=tokenizer.token_to_id(control[0]),
        eos_id=tokenizer.token_to_id(control[-1]),
    )


def _finish(tokenizer: Tokenizer, folder: Path, pre: str, control: tuple[str, ...]) -> Trained:
    tokenizer.add_special_tokens(list(control))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in USER_DEFINED])
    path = folder / f"{pre}.json"
    tokenizer.save(str(path))
    config: dict[str, object] = {"bos_token": control[0], "eos_token": control[-1]}
    return Trained(tokenizer, path, config, _as_gguf(tokenizer, pre, control))


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A vocabulary in the manner of Qwen2, with ChatML markers."""
    return _finish(_train(QWEN2, nfc=True), tmp_path_factory.mktemp("q"), "qwen2", CHATML_CONTROL)


@pytest.fixture(scope="session")
def llama3(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A vocabulary in the manner of Llama 3, which begins texts with ``<|begin_of_text|>``."""
    tokenizer = _with_ignored_merges(_train(LLAMA3, nfc=False))
    tokenizer.add_special_tokens(list(LLAMA3_CONTROL))
    bos = LLAMA3_CONTROL[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    return _finish(tokenizer, tmp_path_factory.mktemp("l"), "llama-bpe", LLAMA3_CONTROL)


@pytest.fixture(params=["qwen2", "llama3"])
def trained(request: pytest.FixtureRequest) -> Trained:
    """Each of the two vocabularies."""
    vocabulary: Trained = request.getfixturevalue(request.param)
    return vocabulary


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[str]]:
    """:func:`random_texts`, for tests (which cannot import this file)."""
    return random_texts
