from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.errors import InvalidParameterError
from farthing.tokenization import StopStrings

words = st.text("ab<", min_size=1, max_size=5)


def whole(text: str, stops: list[str], include_stop: bool) -> tuple[str, str | None]:
    """The definition: the earliest occurrence of any stop string, the shortest if several."""
    found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    start, length, stop = min(found)
    return text[: start + length if include_stop else start], stop


@given(
    chunks=st.lists(st.text("ab<", max_size=4)),
    stops=st.lists(words, max_size=4),
    include_stop=st.booleans(),
)
def test_any_chunking_gives_the_text_before_the_first_stop(
    chunks: list[str], stops: list[str], include_stop: bool
) -> None:
    finder = StopStrings(stops, include_stop=include_stop)
    results = [*map(finder.push, chunks), finder.flush()]
    text, stop = whole("".join(chunks), stops, include_stop)
    assert "".join(result.text for result in results) == text
    assert finder.matched == stop
    assert results[-1].stopped is (stop is not None)
    stopped = [result.stopped for result in results]
    assert stopped == sorted(stopped)
    if stop is not None:
        assert all(not result.text for result in results[stopped.index(True) + 1 :])


@given(chunks=st.lists(st.text("ab<", max_size=4)), stops=st.lists(words, min_size=1, max_size=4))
def test_only_a_suffix_that_may_become_a_stop_is_held_back(
    chunks: list[str], stops: list[str]
) -> None:
    finder = StopStrings(stops)
    given_text = emitted = ""
    for chunk in chunks:
        text, stopped = finder.push(chunk)
        given_text += chunk
        emitted += text
        if stopped:
            return
        held = given_text[len(emitted) :]
        assert given_text.startswith(emitted)
        assert not held or any(stop != held and stop.startswith(held) for stop in stops)


def test_a_stop_is_found_as_soon_as_it_is_complete() -> None:
    finder = StopStrings(["<end>"])
    assert finder.push("text <e") == ("text ", False)
    assert finder.push("nd>more") == ("", True)
    assert finder.push("later") == ("", True)
    assert finder.flush() == ("", True)


def test_an_earlier_stop_that_may_still_come_is_waited_for() -> None:
    for rest, expected, stop in (("d", "", "abcd"), ("x", "ab", "c"), ("", "ab", "c")):
        finder = StopStrings(["abcd", "c"])
        text = finder.push("abc").text + finder.push(rest).text + finder.flush().text
        assert (text, finder.matched) == (expected, stop)


def test_text_that_only_began_like_a_stop_is_released_whole() -> None:
    finder = StopStrings(["</s>"])
    assert finder.push("a </") == ("a ", False)
    assert finder.push("b>") == ("</b>", False)
    assert finder.push(" <") == (" ", False)
    assert finder.flush() == ("<", False)


def test_without_stops_everything_passes() -> None:
    finder = StopStrings([])
    assert finder.push("anything") == ("anything", False)
    assert finder.flush() == ("", False)


def test_one_stop_may_be_given_bare_and_empty_ones_are_refused() -> None:
    assert StopStrings("ab").push("xab") == ("x", True)
    with pytest.raises(InvalidParameterError, match="empty"):
        StopStrings(["a", ""])
