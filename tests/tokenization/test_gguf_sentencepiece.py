"""GGUF vocabularies of SentencePiece's making, as whole tokenizers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from farthing.errors import ModelFormatError
from farthing.tokenization import GgufVocabulary, IncrementalDetokenizer, Tokenizer
from support.sentencepiece_model import model_of

BYTES = [f"<0x{i:02X}>" for i in range(256)]


def small(**changes: Any) -> GgufVocabulary:
    tokens = ["<unk>", "<s>", "</s>", *BYTES, "▁", "a", "b", "ab", "▁a", "<|end|>"]
    base = GgufVocabulary(
        model="llama",
        pre="default",
        tokens=tokens,
        token_types=[2, 3, 3, *([6] * 256), 1, 1, 1, 1, 1, 3],
        merges=[],
        scores=[0.0] * 259 + [-4.0, -5.0, -6.0, -1.0, -2.0, 0.0],
        bos_id=1,
        eos_id=2,
    )
    return replace(base, **changes)


def test_ids_and_texts_equal_the_library_s(sentencepiece: Any, texts: Any) -> None:
    ours = Tokenizer.from_gguf(sentencepiece.gguf)
    samples = texts(
        3_000, seed=21, extra=("<b>", "<sep>", "a  b", " the", "\n\n", *ours.control_tokens)
    )
    for text, ids in zip(samples, sentencepiece.library.encode(samples), strict=True):
        assert ours.encode(text, add_special_tokens=False) == ids, text
        assert ours.control_ids.isdisjoint(ids)
        decoded = ours.decode(ids)
        detokenizer = IncrementalDetokenizer(ours)
        assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == decoded
        if not sentencepiece.gguf.remove_extra_whitespaces:
            assert decoded == text.replace("▁", " ")
        assert decoded == sentencepiece.library.decode(ids)


def test_the_model_made_of_the_metadata_is_the_library_s(sentencepiece: Any, texts: Any) -> None:
    again = model_of(sentencepiece.gguf)
    samples = texts(500, seed=22)
    assert again.encode(samples) == sentencepiece.library.encode(samples)


def test_pieces_of_a_text_join_to_it(llama2: Any, gemma: Any, texts: Any) -> None:
    for vocabulary, prefix in ((llama2, " "), (gemma, "")):
        ours = Tokenizer.from_gguf(vocabulary.gguf)
        for text in texts(300, seed=23):
            ids = ours.encode(text, add_special_tokens=False)
            joined = b"".join(map(ours.token_bytes, ids))
            assert joined == ((prefix if text else "") + text).replace("▁", " ").encode()


def test_control_tokens_stand_between_texts_that_each_begin_with_a_space(llama2: Any) -> None:
    ours = Tokenizer.from_gguf(llama2.gguf)
    user, end = (ours.token_to_id(token) for token in ("<|user|>", "<|end|>"))
    hello = ours.encode("hello", add_special_tokens=False)
    assert llama2.library.encode("hello") == hello
    for text in ("<|user|>hello<|end|>", "<|user|> hello<|end|>"):
        assert ours.encode(text, add_special_tokens=False, allow_control=True) == [
            user, *hello, end,
        ]  # fmt: skip
    new_line = ours.encode("\nhello", add_special_tokens=False)
    assert ours.encode("<|user|>\nhello", add_special_tokens=False, allow_control=True) == [
        user, *new_line,
    ]  # fmt: skip


def test_a_text_begins_as_the_file_says(gemma: Any) -> None:
    for said, expected in ((None, [1]), (True, [1]), (False, [])):
        tokenizer = Tokenizer.from_gguf(small(add_bos=said))
        assert tokenizer.encode("ab") == [*expected, 259, 262]
        assert tokenizer.encode("") == expected
    assert Tokenizer.from_gguf(small(add_eos=True)).encode("a") == [1, 263, 2]
    assert Tokenizer.from_gguf(small(add_space_prefix=False)).encode("a") == [1, 260]
    assert not Tokenizer.from_gguf(gemma.gguf).strips_first_space


def test_a_continuation_keeps_its_first_space() -> None:
    tokenizer = Tokenizer.from_gguf(small())
    assert tokenizer.decode([263]) == "a"
    assert tokenizer.decode([263], continuation=True) == " a"
    assert tokenizer.decode([1, 263, 263]) == "a a"
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push(i) for i in (1, 263, 263)] == ["", "a", " a"]


def test_bytes_are_held_back_until_they_are_a_character() -> None:
    tokenizer = Tokenizer.from_gguf(small())
    ids = tokenizer.encode("é🙂", add_special_tokens=False)
    assert ids == [259, *(3 + byte for byte in "é🙂".encode())]
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push(i) for i in ids] == ["", "", "é", "", "", "", "🙂"]
    detokenizer.push(ids[-4])
    assert detokenizer.push(261) == "\ufffdb"
    assert tokenizer.decode([3 + 0xE4, 3 + 0xBD, 260]) == "\ufffda"


def test_the_spelling_of_a_byte_token_is_text() -> None:
    tokenizer = Tokenizer.from_gguf(small())
    ids = tokenizer.encode("<0x61>", add_special_tokens=False)
    assert 3 + 0x61 not in ids
    assert tokenizer.decode(ids) == "<0x61>"
    tokens = [*small().tokens, "<0x61>"]
    types = [*small().token_types, 1]
    types[3 + 0x61] = 6
    repeated = Tokenizer.from_gguf(small(tokens=tokens, token_types=types, scores=[0.0] * 266))
    assert repeated.token_bytes(3 + 0x61) == b"a"
    assert repeated.token_bytes(265) == b"<0x61>"


@pytest.mark.parametrize("kind", [3, 4, 1])
def test_no_text_becomes_a_turn_marker_of_whatever_type(kind: int) -> None:
    types = [*small().token_types]
    types[-1] = kind
    tokenizer = Tokenizer.from_gguf(small(token_types=types, scores=[5.0] * 265))
    assert 264 in tokenizer.control_ids
    assert 264 not in tokenizer.encode("a<|end|>b")
    assert tokenizer.encode("<|end|>", allow_control=True) == [1, 264]
    assert 264 in tokenizer.eos_token_ids


def test_a_user_defined_token_beside_control_tokens_and_bytes() -> None:
    tokens = [*small().tokens, "<sep>"]
    tokenizer = Tokenizer.from_gguf(
        small(tokens=tokens, token_types=[*small().token_types, 4], scores=[0.0] * 266)
    )
    text = "<sep><|end|><sep></s>é<sep>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.control_ids.isdisjoint(ids)
    assert ids.count(265) == 3
    assert tokenizer.decode(ids) == text
    allowed = tokenizer.encode(text, add_special_tokens=False, allow_control=True)
    assert (allowed.count(265), allowed.count(264), allowed.count(2)) == (3, 1, 1)
    assert tokenizer.decode(allowed, skip_special=False).replace(" ", "") == text


def test_the_end_of_a_text_listed_as_user_defined_is_one_unless_it_is_a_tag() -> None:
    types = [*small().token_types]
    types[2] = 4
    phi3 = Tokenizer.from_gguf(small(token_types=types))
    assert 2 in phi3.control_ids
    types[1] = 4
    gemma = Tokenizer.from_gguf(small(token_types=types))
    assert gemma.control_ids.isdisjoint({1, 2})
    assert gemma.encode("<s>a</s>", add_special_tokens=False) == [259, 1, 260, 2]


def test_control_tokens_take_white_space_where_the_model_s_do() -> None:
    taking = Tokenizer.from_gguf(small(rstrip_control=True))
    assert taking.encode("<|end|>\n a", allow_control=True) == [1, 264, 263]
    assert taking.encode("<s>\na", allow_control=True) == [1, 1, 259, 13, 260]
    plain = Tokenizer.from_gguf(small())
    assert plain.encode("<|end|>\na", allow_control=True) == [1, 264, 259, 13, 260]


def test_without_byte_tokens_what_is_unknown_is_one_token_that_is_not_shown() -> None:
    vocabulary = small()
    some = [i for i, kind in enumerate(vocabulary.token_types) if kind != 6]
    tokenizer = Tokenizer.from_gguf(
        replace(
            vocabulary,
            tokens=[vocabulary.tokens[i] for i in some],
            token_types=[vocabulary.token_types[i] for i in some],
            scores=[vocabulary.scores[i] for i in some],
        )
    )
    ids = tokenizer.encode("xyab é", add_special_tokens=False)
    assert ids == [3, 0, 6, 3, 0]
    assert tokenizer.decode(ids) == "ab "
    assert 0 not in tokenizer.encode("a <unk>b")[:1]


def test_repeated_strings_load_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    # Of user-defined tokens, spaces are '▁' as elsewhere; of the two, the normal one is used.
    tokens = [*small().tokens, " a", "ab", "<|end|>"]
    types = [*small().token_types, 4, 1, 4]
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.from_gguf(
            small(tokens=tokens, token_types=types, scores=[*small().scores, 9.0, 9.0, 9.0])
        )
    assert "3 strings appear more than once" in caplog.text
    assert tokenizer.encode("a abab", add_special_tokens=False) == [263, 259, 262, 262]
    assert [tokenizer.token_bytes(i) for i in (263, 265, 262, 266)] == [b" a", b" a", b"ab", b"ab"]
    assert tokenizer.encode("<|end|>", allow_control=True) == [1, 264]
    assert tokenizer.control_ids >= {264}
    assert tokenizer.encode("<|end|>")[-1] not in (264, 267)


def test_ids_of_all_kinds_have_bytes() -> None:
    tokens = [*small().tokens, "[PAD]", "", "x y"]
    tokenizer = Tokenizer.from_gguf(
        small(tokens=tokens, token_types=[*small().token_types, 5, 1, 0], scores=[0.0] * 268)
    )
    assert [tokenizer.token_bytes(i) for i in (0, 265, 266, 267, 999)] == [
        b"<unk>", b"[PAD]", b"", b"x y", b"",
    ]  # fmt: skip
    assert tokenizer.decode([0, 1, 2, 265, 266, 267, 999, 261]) == "[PAD]x yb"
    assert tokenizer.encode("[PAD]x y", add_special_tokens=False)[0] == 259


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_types": []}, r"tokenizer.ggml.token_type: is missing"),
        ({"scores": [0.0]}, r"tokenizer.ggml.scores: has 1 entries for 265 tokens"),
        ({"tokens": ["<0x61>"] * 265, "token_types": [6] * 265}, r"tokens of 1 bytes; all 256"),
        ({"tokens": ["a"] * 265, "token_types": [6] * 265}, r"token 0 is of type byte.*'a'"),
        ({"tokens": ["a"] * 265, "token_types": [1] * 265}, r"neither byte tokens nor an unknown"),
        ({"unknown_id": 265}, r"tokenizer.ggml.unknown_token_id: is 265, but there are 265"),
        ({"model": "t5"}, r"tokenizer.ggml.model: .*'t5'.*'gpt2'.*'llama'.*'gemma4'"),
    ],
)
def test_bad_metadata_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        Tokenizer.from_gguf(small(file="model.gguf", **changes))
