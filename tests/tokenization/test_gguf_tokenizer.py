from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import NFC

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.tokenization import GgufVocabulary, Tokenizer
from farthing.tokenization.byte_level import BYTE_TO_CHARACTER

ALPHABET = list(BYTE_TO_CHARACTER)


def small(**changes: Any) -> GgufVocabulary:
    base = GgufVocabulary(
        model="gpt2",
        pre="qwen2",
        tokens=[*ALPHABET, "ab", "<|end|>"],
        token_types=[1] * 257 + [3],
        merges=["a b"],
        eos_id=257,
    )
    return replace(base, **changes)


def test_ids_equal_the_library_s_on_ten_thousand_texts(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(trained.gguf)
    samples = texts(10_000, seed=2, extra=("<tool_call>", " Hamburgefonts"))
    expected = trained.library.encode_batch(samples, add_special_tokens=False)
    assert len({tuple(encoding.ids) for encoding in expected}) > 9_000
    for text, encoding in zip(samples, expected, strict=True):
        assert ours.encode(text, add_special_tokens=False) == encoding.ids, text


def test_ids_equal_the_library_s_with_control_tokens_allowed(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(trained.gguf)
    samples = texts(2_000, seed=3, extra=ours.control_tokens)
    expected = [e.ids for e in trained.library.encode_batch(samples, add_special_tokens=False)]
    assert sum(not ours.control_ids.isdisjoint(ids) for ids in expected) > 300
    for text, ids in zip(samples, expected, strict=True):
        assert ours.encode(text, add_special_tokens=False, allow_control=True) == ids, text


def test_decode_undoes_encode(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(trained.gguf)
    # The library's own NFC: its Unicode version is not Python's.
    normalize = NFC().normalize_str if trained.gguf.pre == "qwen2" else str
    for text in texts(2_000, seed=4, extra=ours.control_tokens):
        ids = ours.encode(text, add_special_tokens=False)
        assert ours.decode(ids) == normalize(text)


@given(st.text())
def test_decode_undoes_encode_of_any_text(text: str) -> None:
    tokenizer = Tokenizer.from_gguf(small(pre="llama-bpe"))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_decode_equals_the_library_s_on_any_ids(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(trained.gguf)
    ids = [i for text in texts(200, seed=5, extra=ours.control_tokens) for i in ours.encode(text)]
    for step in (1, 7):  # every seventh token: broken UTF-8
        for skip in (True, False):
            expected = trained.library.decode(ids[::step], skip_special_tokens=skip)
            assert ours.decode(ids[::step], skip_special=skip) == expected


def test_token_bytes_joined_are_the_text(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(replace(trained.gguf, pre="llama-bpe"))
    for text in texts(300, seed=6):
        ids = ours.encode(text, add_special_tokens=False)
        assert b"".join(ours.token_bytes(i) for i in ids) == text.encode()


def test_beginning_of_text_is_added_as_the_file_says_or_the_family_does(llama3: Any) -> None:
    bos = llama3.gguf.bos_id
    plain = Tokenizer.from_gguf(llama3.gguf).encode("x", add_special_tokens=False)
    for add_bos, expected in ((None, [bos]), (True, [bos]), (False, [])):
        tokenizer = Tokenizer.from_gguf(replace(llama3.gguf, add_bos=add_bos))
        assert tokenizer.encode("x") == expected + plain
    closed = Tokenizer.from_gguf(replace(llama3.gguf, add_eos=True))
    assert closed.encode("x") == [bos, *plain, llama3.gguf.eos_id]


def test_ends_of_an_answer_are_the_declared_the_listed_and_the_known() -> None:
    tokens = [*ALPHABET, "<|eot_id|>", "<|end_of_text|>", "<|other|>", "stop"]
    tokenizer = Tokenizer.from_gguf(
        small(
            tokens=tokens,
            token_types=[1] * 256 + [3, 3, 3, 1],
            merges=[],
            eos_id=257,
            other_eos_ids=(259,),
        )
    )
    assert tokenizer.eos_token_ids == (257, 259, 256)
    assert tokenizer.eos_token == "<|end_of_text|>"
    assert tokenizer.bos_token is None
    assert tokenizer.bos_token_id is None


def test_end_closes_only_a_part_where_return_ends_the_answer() -> None:
    tokenizer = Tokenizer.from_gguf(
        small(
            tokens=[*ALPHABET, "<|return|>", "<|end|>"],
            token_types=[1] * 256 + [3, 3],
            merges=[],
            eos_id=256,
        )
    )
    assert tokenizer.eos_token_ids == (256,)


def test_repeated_strings_load_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tokens = [*ALPHABET, "ab", "<|end|>", "ab", "<u>", "cd", "cd"]
    types = [1] * 257 + [3, 1, 4, 5, 1]
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.from_gguf(
            small(tokens=tokens, token_types=types, merges=["a b", "c d"])
        )
    assert "tokenizer.ggml.tokens: 2 strings appear more than once" in caplog.text
    assert tokenizer.encode("abcd") == [256, 261]  # the first normal one of each
    assert [tokenizer.token_bytes(i) for i in (256, 258, 260, 261)] == [b"ab", b"ab", b"cd", b"cd"]


def test_merges_of_tokens_with_spaces_are_read() -> None:
    tokens = [*ALPHABET, "a b", " b", "a bc", "<|end|>"]
    tokenizer = Tokenizer.from_gguf(
        small(
            tokens=tokens,
            token_types=[1] * 259 + [3],
            merges=["a  b", "a b c"],
            eos_id=259,
        )
    )
    assert tokenizer.vocab_size == 260


def test_strings_of_padding_are_not_encodable() -> None:
    tokenizer = Tokenizer.from_gguf(
        small(
            pre="llama-bpe",
            tokens=[*ALPHABET, "PAD", "<|end|>"],
            token_types=[1] * 256 + [5, 3],
            merges=[],
        )
    )
    assert tokenizer.encode("PAD") == [ALPHABET.index(c) for c in "PAD"]
    assert tokenizer.token_bytes(256) == b"PAD"


def test_ids_without_a_string_have_no_bytes_and_negative_ones_are_refused() -> None:
    tokenizer = Tokenizer.from_gguf(small())
    assert tokenizer.token_bytes(1_000_000) == b""
    assert tokenizer.id_to_token(1_000_000) is None
    assert tokenizer.id_to_token(-1) is None
    assert tokenizer.token_to_id("ab") == 256
    assert tokenizer.token_to_id("nowhere") is None
    with pytest.raises(InvalidParameterError, match="-1"):
        tokenizer.token_bytes(-1)


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidParameterError, match=r"U\+D800.* character 2"):
        Tokenizer.from_gguf(small()).encode("ab\ud800")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, r"tokenizer.ggml.model: .*'bert'.*'gpt2'.*'llama'"),
        ({"tokens": [], "token_types": []}, r"tokenizer.ggml.tokens: is empty"),
        ({"token_types": [1]}, r"tokenizer.ggml.token_type: has 1 entries for 258 tokens"),
        ({"merges": ["ab"]}, r"tokenizer.ggml.merges: merge 0 is 'ab'"),
        ({"merges": ["a b", "x y z"]}, r"tokenizer.ggml.merges: merge 1"),
        ({"merges": ["a c"]}, r"tokenizer.ggml.merges: Token `ac` out of vocabulary"),
        ({"eos_id": 258}, r"tokenizer.ggml.eos_token_id: is 258, but there are 258 tokens"),
        ({"bos_id": -1}, r"tokenizer.ggml.bos_token_id: is -1"),
    ],
)
def test_bad_metadata_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        Tokenizer.from_gguf(small(file="model.gguf", **changes))
