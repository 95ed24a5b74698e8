"""A text and its windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing.errors import InvalidParameterError
from farthing.evaluation.text import MAX_TEXT_BYTES, cut_windows, read_text
from support.evaluations import TEXT


def test_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(TEXT.encode() + b"\r\nend\r\n")
    assert read_text(file) == TEXT + "\r\nend\r\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the text is empty"),
        (b" \n\t", "the text is empty"),
        (b"abc\xffdef", "byte 3 cannot be decoded"),
        (b"a" * (MAX_TEXT_BYTES + 1), "more than the 16 MiB"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "text"
    file.write_bytes(content)
    with pytest.raises(InvalidParameterError, match=problem) as caught:
        read_text(file)
    assert str(file) in str(caught.value)


def test_a_text_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        read_text(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):  # opens, yet is none
        read_text(Path("/proc/self/mem"))


def test_the_largest_text_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"a" * MAX_TEXT_BYTES)
    assert len(read_text(file)) == MAX_TEXT_BYTES


def test_windows_follow_one_another_and_the_rest_is_left() -> None:
    windows = cut_windows(range(100), (), context=16, limit=None, what="text")
    assert windows.tokens.reshape(-1).tolist() == list(range(96))
    assert (windows.context, windows.available) == (16, 6)


def test_the_second_half_is_scored_but_for_its_first_token() -> None:
    """As llama-perplexity: the logits at positions n / 2 to n - 2 predict what follows them."""
    windows = cut_windows(range(100), (), context=16, limit=2, what="text")
    assert windows.first == 8
    assert windows.targets.tolist() == [list(range(9, 16)), list(range(25, 32))]
    assert windows.scored == 7
    odd = cut_windows(range(100), (), context=9, limit=1, what="text")
    assert (odd.first, odd.targets.tolist()) == (4, [[5, 6, 7, 8]])


def test_every_window_begins_as_a_text_does() -> None:
    windows = cut_windows(range(1, 48), (1000,), context=16, limit=None, what="text")
    assert windows.tokens[0].tolist() == [1000, *range(1, 16)]
    assert windows.tokens[1].tolist() == [1000, *range(17, 32)]
    assert windows.tokens[2].tolist() == [1000, *range(33, 48)]


def test_a_limit_beyond_the_text_is_all_of_it() -> None:
    windows = cut_windows(range(40), (), context=16, limit=99, what="text")
    assert (len(windows.tokens), windows.available) == (2, 2)


def test_a_text_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"^a\.txt: 15 tokens .* window of 16; "):
        cut_windows(range(15), (), context=16, limit=None, what="a.txt")


def test_bytes_are_those_of_scored_tokens_alone() -> None:
    windows = cut_windows([1] * 9 + [2] * 6 + [3], (), context=16, limit=None, what="text")
    lengths = {1: b"x" * 100, 2: "é".encode(), 3: b""}
    assert windows.bytes_scored(lambda token: lengths[token]) == 6 * 2
