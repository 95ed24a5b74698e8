from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.tokenization import GgufVocabulary, IncrementalDetokenizer, Tokenizer
from farthing.tokenization.byte_level import BYTE_TO_CHARACTER

# Each byte that begins, continues or cannot be in UTF-8, at the edges of its range.
EDGES = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c1 c2 df e0 e1 ed f0 f3 f4 f5 ff")


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    """One token a byte (ids are the bytes) and one control token, 256."""
    return Tokenizer.from_gguf(
        GgufVocabulary(
            model="gpt2",
            pre="llama-bpe",
            tokens=[*BYTE_TO_CHARACTER, "<|end|>"],
            token_types=[1] * 256 + [3],
            merges=[],
            eos_id=256,
        )
    )


def pushed(tokenizer: Tokenizer, ids: list[int], skip_special: bool = True) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def beginnings_of_characters() -> set[bytes]:
    found = set()
    for code_point in range(0x80, 0x110000, 0x40):
        if not 0xD800 <= code_point < 0xE000:
            encoded = chr(code_point).encode()
            found |= {encoded[:n] for n in range(1, len(encoded))}
    return found


def test_nothing_is_emitted_late_or_early(byte_tokenizer: Tokenizer) -> None:
    beginnings = beginnings_of_characters()
    for data in product(EDGES, repeat=4):
        detokenizer = IncrementalDetokenizer(byte_tokenizer)
        emitted = ""
        for n, byte in enumerate(data, start=1):
            emitted += detokenizer.push(byte)
            so_far = bytes(data[:n])
            held = next((k for k in (3, 2, 1) if so_far[-k:] in beginnings and k <= n), 0)
            assert emitted == so_far[: n - held].decode("utf-8", "replace"), data
        assert emitted + detokenizer.flush() == bytes(data).decode("utf-8", "replace")


@given(data=st.data())
def test_pieces_joined_are_the_whole_decode(byte_tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(
        st.lists(
            st.one_of(
                st.integers(0, 256).map(lambda i: [i]),
                st.text(min_size=1).map(lambda text: list(text.encode())),
            )
        ).map(lambda parts: [i for part in parts for i in part])
    )
    for skip in (True, False):
        pieces = pushed(byte_tokenizer, ids, skip)
        assert "".join(pieces) == byte_tokenizer.decode(ids, skip_special=skip)
        for piece in pieces:
            piece.encode()


@given(text=st.text())
def test_valid_text_never_shows_a_replacement_character(
    byte_tokenizer: Tokenizer, text: str
) -> None:
    pieces = pushed(byte_tokenizer, list(text.encode()))
    assert "".join(pieces) == text
    assert pieces[-1] == ""
    assert all("\ufffd" not in piece or piece == "\ufffd" for piece in pieces)


def test_a_skipped_token_does_not_break_the_character_around_it(
    byte_tokenizer: Tokenizer,
) -> None:
    assert pushed(byte_tokenizer, [0xC3, 256, 0xA9]) == ["", "", "é", ""]
    assert pushed(byte_tokenizer, [0xC3, 256], skip_special=False) == ["", "\ufffd<|end|>", ""]


def test_an_unfinished_character_is_flushed_once(byte_tokenizer: Tokenizer) -> None:
    assert pushed(byte_tokenizer, [0x41, 0xF0, 0x9F]) == ["A", "", "", "\ufffd"]


def test_streams_of_a_trained_vocabulary_equal_the_whole(trained: Any, texts: Any) -> None:
    tokenizer = Tokenizer.from_gguf(trained.gguf)
    for text in texts(500, seed=21):
        ids = tokenizer.encode(text)
        assert "".join(pushed(tokenizer, ids)) == tokenizer.decode(ids)
