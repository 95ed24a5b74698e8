"""Events do not depend on how their bytes were cut, and are there when their line is."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from farthing.bench.serving.event_stream import events

TEXTS = ["plain", "wörter", "水🌾", "", "[DONE]"]


def body(newline: str, space: str = " ") -> bytes:
    lines = [": ping", "", "event: message", "id: 7"]
    for text in TEXTS:
        lines += [f"data:{space}{text}", ""]
    lines += [f"data:{space}two", f"data:{space}lines", "", ":bye", ""]
    return newline.join([*lines, ""]).encode()


EXPECTED = [text.encode() for text in TEXTS] + [b"two\nlines"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("space", [" ", ""])
def test_no_cut_changes_what_is_read(newline: str, space: str) -> None:
    whole = body(newline, space)
    assert [data for _, data in events([(0.0, whole)])] == EXPECTED
    for cut in range(len(whole) + 1):
        pieces = [(1.0, whole[:cut]), (2.0, whole[cut:])]
        assert [data for _, data in events(pieces)] == EXPECTED
    single = [(float(i), whole[i : i + 1]) for i in range(len(whole))]
    assert [data for _, data in events(single)] == EXPECTED


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_event_is_there_with_the_end_of_its_line(newline: str) -> None:
    whole = body(newline)
    ends = []  # where the line's end begins, for the last data line of each event
    for data in [*EXPECTED[:-1], b"lines"]:
        line = b"data: " + data + newline.encode()
        ends.append(whole.index(line, ends[-1] if ends else 0) + len(line) - len(newline))
    rng = random.Random(5)
    for _ in range(300):
        cuts = sorted(rng.sample(range(1, len(whole)), rng.randrange(1, 12)))
        edges = [0, *cuts, len(whole)]
        reads = [(float(n), whole[a:b]) for n, (a, b) in enumerate(pairwise(edges))]
        times = [time for time, _ in events(reads)]
        wanted = [float(next(n for n, edge in enumerate(edges[1:]) if edge > at)) for at in ends]
        assert times == wanted


def test_a_line_that_the_body_ends_in_counts() -> None:
    assert list(events([(1.0, b"data: a\n\nda"), (2.0, b"ta: b")])) == [(1.0, b"a"), (2.0, b"b")]
    assert list(events([])) == []
    assert list(events([(1.0, b": only a ping\n\n")])) == []
