"""Vocabularies of published models, against what published tokenizers and sentencepiece do.

One hundred thousand random texts each, but for the vocabularies that a smaller one stands for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.normalizers import NFC

from farthing.models.checkpoint.gguf_config import metadata_fields
from farthing.models.checkpoint.gguf_file import read_gguf
from farthing.models.checkpoint.gguf_tokenizer import read_tokenizer
from farthing.tokenization import GgufVocabulary, IncrementalDetokenizer, Tokenizer
from support.published_patterns import LLAMA3
from support.sentencepiece_model import model_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("others_garbage"),
]

MANY = 100_000
SENTENCEPIECE = ("llama-spm", "phi-3", "baichuan", "gemma-3")
PUBLISHED = ("gpt-2", "qwen2", "qwen35", "llama-bpe", "command-r", "starcoder", "gemma-4")
MUCH_USED = ("qwen2", "llama-bpe", "gemma-4")
WITH_NFC = ("qwen2", "qwen35", "command-r")
EXPECTED = (
    *("llama-spm", "phi-3", "gemma-4", "gpt-2", "qwen2", "qwen35", "llama-bpe", "command-r"),
    *("refact", "starcoder", "deepseek-llm", "deepseek-coder"),
)
EXTRA = ("▁", "  ", "a" * 100, " " * 70, "\n" * 70, "<b>", "</s>", "<|end|>", "<|im_end|>", "<eos>")


@pytest.fixture(scope="module")
def vocabulary(llama_cpp_sources: Path, request: Any) -> Callable[[str], GgufVocabulary]:
    @cache
    def named(name: str) -> GgufVocabulary:
        if name == "gemma-3":
            file = request.getfixturevalue("gemma_gguf")
        else:
            file = llama_cpp_sources / f"ggml-vocab-{name}.gguf"
        read = read_tokenizer(metadata_fields(read_gguf(file)), 1 << 20)
        assert read is not None
        return read

    return named


def expected_ids(folder: Path, name: str) -> list[tuple[str, list[int]]]:
    """What the model's published tokenizer makes of some texts, as llama.cpp's tests have it."""
    texts = (folder / f"ggml-vocab-{name}.gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
    lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return [(t, [int(i) for i in line.split()]) for t, line in zip(texts, lines, strict=False)]


@pytest.mark.parametrize("name", EXPECTED)
def test_ids_are_those_llama_cpp_s_tests_expect(
    llama_cpp_sources: Path, vocabulary: Any, name: str
) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary(name))
    cases = expected_ids(llama_cpp_sources, name)
    assert len(cases) > 40
    for text, ids in cases:
        if name == "qwen35" and NFC().normalize_str(text) != text:
            continue  # expected without the normalizer that the published tokenizer has
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_ids_equal_sentencepiece_s(vocabulary: Any, texts: Any, name: str) -> None:
    ours = Tokenizer.from_gguf(vocabulary(name))
    truth = model_of(vocabulary(name))
    samples = texts(MANY, seed=71, extra=EXTRA)
    for text, ids in zip(samples, truth.encode(samples), strict=True):
        assert ours.encode(text, add_special_tokens=False) == ids, text
        assert ours.control_ids.isdisjoint(ids)
        assert ours.decode(ids) == text.replace("▁", " ")


def published(known: GgufVocabulary, name: str) -> Library:
    """The class the model's authors publish, or what is in their ``tokenizer.json``."""
    import transformers
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    classes = {
        "gpt-2": transformers.GPT2Tokenizer,
        "qwen2": transformers.Qwen2Tokenizer,
        "qwen35": Qwen3_5Tokenizer,
        "command-r": transformers.CohereTokenizer,
        "gemma-4": transformers.GemmaTokenizer,
    }
    vocab = {token: i for i, token in enumerate(known.tokens) if token}
    merges = [tuple(merge.split(" ")) for merge in known.merges]
    if name in classes:
        library: Library = classes[name](vocab=vocab, merges=merges).backend_tokenizer
    else:
        llama = name == "llama-bpe"
        library = Library(models.BPE(vocab, merges, ignore_merges=llama))
        first = pre_tokenizers.Digits(individual_digits=True)
        if llama:
            first = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not llama)
        library.pre_tokenizer = pre_tokenizers.Sequence([first, last])
    types = dict(zip(known.tokens, known.token_types, strict=True))
    added = {kind: [t for t, k in types.items() if k == kind and t] for kind in (3, 4)}
    library.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in added[3]])
    library.add_tokens([AddedToken(t, normalized=False) for t in added[4]])
    assert library.get_vocab_size() == len(set(known.tokens))
    return library


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_equal_the_published_class_s(vocabulary: Any, texts: Any, name: str) -> None:
    known = vocabulary(name)
    ours = Tokenizer.from_gguf(known)
    library = published(known, name)
    normalize = NFC().normalize_str if name in WITH_NFC else str
    samples = texts(MANY if name in MUCH_USED else MANY // 5, seed=72, extra=EXTRA)
    library.encode_special_tokens = True
    expected = library.encode_batch(samples, add_special_tokens=False)
    for text, encoding in zip(samples, expected, strict=True):
        ids = ours.encode(text, add_special_tokens=False)
        # A turn marker that a file lists as user-defined is none in the library, and here is.
        if ours.control_ids.isdisjoint(encoding.ids):
            assert ids == encoding.ids, text
        assert ours.control_ids.isdisjoint(ids)
        back = normalize(text)
        assert ours.decode(ids) == (back.replace("▁", " ") if name == "gemma-4" else back)


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_ids_equal_transformers_s_of_the_same_file(
    llama_cpp_sources: Path, vocabulary: Any, texts: Any, name: str
) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(
        str(llama_cpp_sources), gguf_file=f"ggml-vocab-{name}.gguf"
    )
    ours = Tokenizer.from_gguf(vocabulary(name))
    compared = 0
    for text in texts(20_000, seed=73):
        if name == "llama-spm" and text.startswith((" ", "▁")):
            continue  # where sentencepiece writes one more space and this conversion does not
        if "<s>" in text or "</s>" in text:
            continue
        compared += 1
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special_tokens=False) == ids, text
    assert compared > 10_000


@pytest.mark.parametrize("name", ["llama-spm", "gemma-3", "gemma-4", "qwen2", "llama-bpe"])
def test_streams_are_whole_characters_and_long_texts_quick(
    vocabulary: Any, texts: Any, name: str
) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary(name))
    for text in texts(500, seed=74):
        ids = tokenizer.encode(text)
        detokenizer = IncrementalDetokenizer(tokenizer)
        pieces = [*map(detokenizer.push, ids), detokenizer.flush()]
        assert "".join(pieces) == tokenizer.decode(ids)
        assert "\ufffd" not in "".join(pieces) or "\ufffd" in text
    prose = "\n".join(texts(3_000, seed=75))[:100_000]
    for text in (prose, *(unit * 100_000 for unit in "a =\n1\U0001f642")):
        started = time.thread_time()
        tokenizer.encode(text)
        assert time.thread_time() - started < 0.9, text[:20]


def test_phi_3_s_turn_markers_take_the_white_space_behind_them(vocabulary: Any) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary("phi-3"))
    text = "<s><|user|>\nHello</s><|end|>\n<|assistant|>\n"
    hello = tokenizer.encode("Hello", add_special_tokens=False)
    assert tokenizer.encode(text, add_special_tokens=False, allow_control=True) == [
        1, 32010, *hello, 2, 32007, 32001,
    ]  # fmt: skip
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode(text)[1:])


def test_gemma_4_ends_a_turn_and_keeps_its_tags(vocabulary: Any) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary("gemma-4"))
    assert tokenizer.eos_token_ids == (1, 106, 50)
    assert {46, 48, 52, 100, 105, 106} <= tokenizer.control_ids
    assert tokenizer.token_to_id("</s>") not in tokenizer.control_ids
    ids = tokenizer.encode('<|turn>model\n<|"|></s>', add_special_tokens=False)
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == '<|turn>model\n<|"|></s>'
    assert tokenizer.encode("<|turn>model\n", allow_control=True)[:2] == [2, 105]


def test_gemma_3_has_runs_of_spaces_and_lines_as_single_tokens(vocabulary: Any) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary("gemma-3"))
    ids = tokenizer.encode("a" + " " * 40 + "b\n\n\n<b>", add_special_tokens=False)
    spelled = [tokenizer.id_to_token(i) for i in ids]
    assert spelled == ["a", "▁" * 31, "▁" * 9, "b", "\n\n\n", "<b>"]
    assert tokenizer.eos_token_ids == (1, tokenizer.token_to_id("<end_of_turn>"))
