"""BPE by scores, against the sentencepiece library on vocabularies made to be awkward."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farthing import _native
from farthing.tokenization.sentencepiece_core import SentencePieceCore
from support.sentencepiece_model import sentencepiece_model

BYTES = [f"<0x{i:02X}>" for i in range(256)]
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
KINDS = {NORMAL: 1, USER_DEFINED: 2, UNUSED: 3}
ALPHABET = "ab▁é 🙂"


def core(
    pieces: list[str],
    scores: list[float],
    types: list[int],
    *,
    prefix: bool = True,
    remove: bool = False,
    with_bytes: bool = True,
) -> tuple[SentencePieceCore, Any]:
    """Ours and the library's, with ``<unk>`` as id 0 and, if wanted, byte tokens after it."""
    more = BYTES if with_bytes else []
    pieces = ["<unk>", *more, *pieces]
    scores = [0.0, *([0.0] * len(more)), *scores]
    types = [2, *([6] * len(more)), *types]
    ours = SentencePieceCore(
        pieces=pieces,
        scores=scores,
        kinds=[KINDS.get(kind, 0) for kind in types],
        byte_ids=range(1, 257) if with_bytes else (),
        unknown_id=0,
        add_space_prefix=prefix,
        remove_extra_whitespaces=remove,
    )
    truth = sentencepiece_model(
        pieces, scores, types, add_dummy_prefix=prefix, remove_extra_whitespaces=remove
    )
    return ours, truth


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[list[str], list[float], list[int]]:
    """Pieces that overlap, few different scores, all kinds."""
    piece = st.text(ALPHABET.replace(" ", ""), min_size=1, max_size=5)
    pieces = draw(st.lists(piece, min_size=1, max_size=40, unique=True))
    some = st.sampled_from([0.0, -1.0, -2.0, -3.0, -1000.0])
    scores = [draw(some) for _ in pieces]
    kinds = st.sampled_from([NORMAL] * 5 + [UNUSED] * 2 + [USER_DEFINED])
    return pieces, scores, [draw(kinds) for _ in pieces]


@settings(max_examples=1500)
@given(
    vocabulary=vocabularies(),
    texts=st.lists(st.text(ALPHABET, max_size=30), max_size=8),
    prefix=st.booleans(),
    remove=st.booleans(),
    with_bytes=st.booleans(),
)
def test_ids_equal_the_library_s_for_any_vocabulary(
    vocabulary: Any, texts: list[str], prefix: bool, remove: bool, with_bytes: bool
) -> None:
    ours, truth = core(*vocabulary, prefix=prefix, remove=remove, with_bytes=with_bytes)
    for text in texts:
        assert ours.encode(text, at_start=True) == truth.encode(text), text


@settings(max_examples=300)
@given(text=st.text(max_size=200), prefix=st.booleans(), remove=st.booleans())
def test_ids_equal_the_library_s_for_any_text(text: str, prefix: bool, remove: bool) -> None:
    assume("\0" not in text)
    pieces = ["▁", "▁▁", "e", "t", "te", "\n", "\n\n", "é"]
    ours, truth = core(
        pieces, [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, 0.0, 0.0], [1] * 7 + [4],
        prefix=prefix, remove=remove,
    )  # fmt: skip
    assert ours.encode(text, at_start=True) == truth.encode(text)


def test_of_equal_scores_the_leftmost_is_merged() -> None:
    ours, _ = core(["a", "aa", "b", "ab", "ba"], [-9.0, -1.0, -9.0, -1.0, -1.0], [1] * 5)
    a, aa, _, ab, ba = range(257, 262)
    space = [0xE2 + 1, 0x96 + 1, 0x81 + 1]
    assert ours.encode("aaa", at_start=True) == [*space, aa, a]
    assert ours.encode("aba", at_start=True) == [*space, ab, a]
    assert ours.encode("bab", at_start=True) == [*space, ba, 259]


def test_a_space_is_added_where_a_text_or_a_turn_begins_without_one() -> None:
    ours, _ = core(["▁", "a"], [0.0, 0.0], [1, 1])
    space, a = 257, 258
    assert ours.encode("a", at_start=True) == [space, a]
    assert ours.encode(" a", at_start=True) == [space, space, a]
    assert ours.encode("a", at_start=False) == [space, a]
    assert ours.encode(" a", at_start=False) == [space, a]
    assert ours.encode("", at_start=True) == []


@pytest.mark.parametrize("unit", ["a", "ab", " ", "\n", "é", "🙂", "x", "<u>", "▁a"])
@pytest.mark.parametrize("remove", [False, True])
def test_long_runs_take_well_under_a_second(unit: str, remove: bool) -> None:
    pieces = ["a" * n for n in range(1, 40)] + ["ab" * n for n in range(1, 20)]
    pieces += ["▁" * n for n in range(1, 30)] + ["b", "<u>", "<", "🙂🙂"]
    types = [4 if piece == "<u>" else 1 for piece in pieces]
    ours, truth = core(pieces, [float(len(piece)) for piece in pieces], types, remove=remove)

    text = unit * (100_000 // len(unit))
    started = time.thread_time()
    ids = ours.encode(text, at_start=True)
    assert time.thread_time() - started < 0.5
    assert ids == truth.encode(text)


def test_threads_share_a_core() -> None:
    ours, truth = core(["a", "b", "ab", "▁"], [-3.0, -3.0, -1.0, -2.0], [1] * 4)
    text = "ab ba" * 2_000
    expected = truth.encode(text)
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(ours.encode(text, at_start=True)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_arrays_of_other_lengths_and_repeated_pieces_are_refused() -> None:
    import numpy as np

    def build(pieces: list[str], scores: int, kinds: list[int], count: int = 0) -> None:
        _native.SentencePieceBpe(
            pieces, np.zeros(scores, np.float32), np.array(kinds, np.uint8), [0] * count, -1, False
        )

    build(["a", "a"], 2, [1, 0])
    with pytest.raises(ValueError, match="piece 1 repeats another"):
        build(["a", "a"], 2, [1, 1])
    with pytest.raises(ValueError, match="one score a piece"):
        build(["a"], 2, [1])
    with pytest.raises(ValueError, match="one kind a piece"):
        build(["a"], 1, [1, 1])
    with pytest.raises(ValueError, match="256 byte tokens or none"):
        build(["a"], 1, [1], 255)
