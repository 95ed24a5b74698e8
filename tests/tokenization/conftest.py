"""Small tokenizers, trained here, with the pre-tokenizers the model families publish."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
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
from support.published_patterns import LLAMA3, QWEN2
from support.random_texts import random_texts

# Examples are judged by what they show, not by how busy the machine is.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("unhurried")

CHATML_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3_CONTROL = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
USER_DEFINED = ("<tool_call>", "</tool_call>")


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


SENTENCEPIECE_CONTROL = ("<unk>", "<s>", "</s>", "<|user|>", "<|end|>")


@dataclass(frozen=True)
class SentencePiece:
    """A vocabulary the sentencepiece library trained, and the same as GGUF metadata."""

    library: SentencePieceProcessor
    gguf: GgufVocabulary


def _train_sentencepiece(**options: Any) -> SentencePiece:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(random_texts(3000, seed=1)),
        model_writer=model,
        model_type="bpe",
        vocab_size=2500,
        character_coverage=0.98,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        control_symbols=list(SENTENCEPIECE_CONTROL[3:]),
        minloglevel=2,
        **options,
    )
    library = SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(library.vocab_size())
    user_defined = options["user_defined_symbols"]

    def kind(i: int) -> int:
        if library.is_unknown(i):
            return 2
        if library.is_control(i):
            return 3
        if library.is_byte(i):
            return 6
        return 4 if library.id_to_piece(i) in user_defined else 1

    kinds = [kind(i) for i in ids]
    pieces = [library.id_to_piece(i) for i in ids]
    return SentencePiece(
        library,
        GgufVocabulary(
            model="llama",
            pre="default",
            # Converters write the spaces of user-defined tokens as spaces.
            tokens=[
                p.replace("▁", " ") if k == 4 else p for p, k in zip(pieces, kinds, strict=True)
            ],
            token_types=kinds,
            merges=[],
            bos_id=library.bos_id(),
            eos_id=library.eos_id(),
            unknown_id=library.unk_id(),
            scores=[library.get_score(i) for i in ids],
            add_space_prefix=options["add_dummy_prefix"],
            remove_extra_whitespaces=options["remove_extra_whitespaces"],
        ),
    )


@pytest.fixture(scope="session")
def llama2() -> SentencePiece:
    """A vocabulary in the manner of Llama 2, Mistral and Phi-3."""
    return _train_sentencepiece(
        add_dummy_prefix=True, remove_extra_whitespaces=False, user_defined_symbols=["<sep>"]
    )


@pytest.fixture(scope="session")
def gemma() -> SentencePiece:
    """A vocabulary in the manner of Gemma 1 to 3: no space before a text, runs user-defined."""
    runs = [unit * n for unit in ("▁", "\n", "\t") for n in range(2, 8)]
    return _train_sentencepiece(
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=[*runs, "<b>", "</b>"],
    )


@pytest.fixture(scope="session")
def single_spaced() -> SentencePiece:
    """A vocabulary whose texts lose white space they need not have."""
    return _train_sentencepiece(
        add_dummy_prefix=True, remove_extra_whitespaces=True, user_defined_symbols=["<b>", "a▁b"]
    )


@pytest.fixture(params=["llama2", "gemma", "single_spaced"])
def sentencepiece(request: pytest.FixtureRequest) -> SentencePiece:
    """Each of the three vocabularies of sentencepiece's making."""
    vocabulary: SentencePiece = request.getfixturevalue(request.param)
    return vocabulary


@pytest.fixture(params=["qwen2", "llama3"])
def trained(request: pytest.FixtureRequest) -> Trained:
    """Each of the two vocabularies."""
    vocabulary: Trained = request.getfixturevalue(request.param)
    return vocabulary


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[str]]:
    """:func:`random_texts`, for tests (which cannot import this file)."""
    return random_texts
