"""JSON read step by step: what ``json`` reads is read the same, everything else is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farthing.errors import ModelFormatError
from farthing.files.json_cursor import (
    MAX_DEPTH,
    MAX_MEMORY,
    MAX_NUMBER,
    MAX_STRING,
    JsonCursor,
)
from support.bounds import bounded

FILE = Path("file.json")


def read(raw: bytes, base: int = 0) -> dict[str, object]:
    return JsonCursor(FILE, raw, base).only_object()


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 5 else 6)
    text = "".join(rng.choices('ab"\\/\n\t\0\x7fé\u2028水\U0001f33e{}[],: ', k=rng.randrange(8)))
    simple = [None, True, False, rng.randrange(-(10**18), 10**18), rng.uniform(-1e9, 1e9), text]
    if kind < 6:
        return simple[kind]
    if kind == 6:
        return [rng.randrange(2**63) for _ in range(rng.randrange(70))]
    if kind == 7:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return random_object(rng, depth + 1)


def random_object(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    return {f"{rng.random()}é\n"[3:9]: random_value(rng, depth) for _ in range(rng.randrange(6))}


def test_what_json_writes_is_read_the_same() -> None:
    rng = random.Random(4)
    read_something = 0
    for _ in range(500):
        value = random_object(rng)
        for indent in (None, 1):
            for ascii_only in (True, False):
                text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
                result = read(f" \t\r\n{text}\n ".encode())
                assert result == value
                assert json.dumps(result) == json.dumps(value)  # True is not 1, and order is kept
                read_something += bool(value)
    assert read_something > 1000


def strict(text: bytes) -> object:
    """What ``json`` makes of a text, without what it should not read."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def none(name: str) -> object:
        raise ValueError(name)

    value = json.loads(str(text, "utf-8"), object_pairs_hook=unique, parse_constant=none)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    assert isinstance(value, dict)
    return value


PIECES = (b"", b",", b":", b'"', b"\\", b"{", b"}", b"[", b"]", b"0", b"-", b".", b"e", b"+",
          b" ", b"\n", b"\xff", b"\xc3", b"null", b"tru", b"NaN", b"\\ud83c", b"\\u12",
          b"\0")  # fmt: skip


def test_damaged_text_is_read_as_json_reads_it_or_refused_as_json_refuses_it() -> None:
    rng = random.Random(9)
    refused = same = 0
    for _ in range(4000):
        raw = bytearray(json.dumps(random_object(rng), ensure_ascii=rng.random() < 0.5).encode())
        for _ in range(rng.choice((0, 1, 1, 2))):
            place = rng.randrange(len(raw) + 1)
            raw[place : place + rng.randrange(2)] = rng.choice(PIECES)
        try:
            expected: object = strict(bytes(raw))
        except (AssertionError, ValueError):
            with pytest.raises(ModelFormatError):
                read(bytes(raw))
            refused += 1
        else:
            assert read(bytes(raw)) == expected, raw
            same += 1
    assert refused > 1000
    assert same > 1000


# text, what is said, the byte that is named
REFUSED: dict[str, tuple[bytes, str, int]] = {
    "nothing": (b"", "ends too early", 0),
    "spaces": (b"   ", "ends too early", 3),
    "a list": (b" [1]", "not a JSON object", 1),
    "a string": (b'"a"', "not a JSON object", 0),
    "a number": (b"7", "not a JSON object", 0),
    "words": (b"hello", "is not JSON", 0),
    "two objects": (b"{} {}", "more text after its end", 3),
    "a cut object": (b'{"a": 1', "a comma or }", 7),
    "a cut list": (b'{"a": [1', "a comma or ]", 8),
    "a cut string": (b'{"a": "b', "without its end", 6),
    "a cut key": (b'{"a', "without its end", 1),
    "no value": (b'{"a": }', "a value is expected", 6),
    "no colon": (b'{"a" 1}', "a key and a colon", 1),
    "a number as a key": (b"{1: 2}", "a key and a colon", 1),
    "a comma at the end": (b'{"a": 1,}', "a key and a colon", 8),
    "a comma at the end of a list": (b'{"a": [1,]}', "a value is expected", 9),
    "the wrong end": (b'{"a": [1}', "a comma or ]", 8),
    "a zero in front": (b'{"a": 01}', "a comma or }", 7),
    "a plus": (b'{"a": +1}', "a value is expected", 6),
    "a point alone": (b'{"a": 1.}', "a comma or }", 7),
    "hexadecimal": (b'{"a": 0x1}', "a comma or }", 7),
    "single quotes": (b"{'a': 1}", "a key and a colon", 1),
    "a comment": (b'{"a": /* */ 1}', "a value is expected", 6),
    "NaN": (b'{"a": NaN}', "has NaN, which is not JSON", 6),
    "infinity": (b'{"a": [-Infinity]}', "has -Infinity, which is not JSON", 7),
    "infinite": (b'{"a": 1e999}', "has 1e999, which is larger than a double", 6),
    "many digits": (b'{"a": %s}' % (b"9" * 10**5), "a number of 100000 characters", 6),
    "many digits after a point": (b'{"a": 0.%s}' % (b"9" * 1200), "a number of 1202 characters", 6),
    "a byte-order mark": (b"\xef\xbb\xbf{}", "byte-order mark", 0),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8", 0),
    "bytes of no text": (b'{"a\xff": 1}', "not UTF-8 (invalid start byte)", 3),
    "bytes between": (b'{"a": \xff}', "not UTF-8", 6),
    "half a character": (b'{"a": "b\xe6\xb0"}', "not UTF-8", 8),
    "a lone surrogate": (b'{"a": "x\\ud800"}', "lone surrogate", 6),
    "a lone surrogate in bytes": (b'{"a": "\xed\xa0\x80"}', "not UTF-8", 7),
    "an unknown escape": (b'{"a": "b\\x"}', "Invalid \\escape", 8),
    "a cut escape": (b'{"a": "\\u12"}', "Invalid \\uXXXX escape", 8),
    "a control character": (b'{"a": "b\nc"}', "control character", 6),
    "a duplicate": (b'{"a": 1, "b": 2, "a": 3}', "duplicate key 'a'", 17),
    "a duplicate spelt otherwise": (b'{"a": 1, "\\u0061": 3}', "duplicate key 'a'", 9),
    "a duplicate inside": (b'{"c": [{"a": 1, "a": 2}]}', "duplicate key 'a'", 16),
    "deep lists": (b'{"a": ' + b"[" * 10**6, "nested deeper than 64", 6 + MAX_DEPTH - 1),
    "deep objects": (b'{"a":' * 10**6, "nested deeper than 64", 5 * MAX_DEPTH),
    "a string of megabytes": (b'{"a": "%s"}' % (b"x" * (MAX_STRING + 1)), "a string of", 6),
    "a key of megabytes": (b'{"%s": 1}' % (b"x" * (MAX_STRING + 1)), "a string of", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_text_is_refused(name: str) -> None:
    raw, problem, at = REFUSED[name]
    with bounded(), pytest.raises(ModelFormatError) as caught:
        read(raw, 100)
    assert problem in str(caught.value)
    assert (caught.value.file, caught.value.field, caught.value.offset) == (FILE, "JSON", at + 100)
    assert str(caught.value).isprintable()


FLOODS: dict[str, Callable[[int], bytes]] = {
    "zeros": lambda n: b"0," * (n // 2),
    "lists": lambda n: b"[]," * (n // 3),
    "objects": lambda n: b"{}," * (n // 3),
    "lists of integers": lambda n: b"[1,2,3,4,5,6,7,8]," * (n // 18),
    "escapes that differ": lambda n: b"".join(b'"\\n%d",' % i for i in range(n // 12)),
    "wide strings": lambda n: b"".join(
        b'"%d%s\xf0\x9f\x8c\xbe",' % (i, b"x" * 1000) for i in range(n // 1020)
    ),
    "nulls": lambda n: b"null," * (n // 5),
    "nests": lambda n: (b"[" * 60 + b"]" * 60 + b",") * (n // 121),
}


@pytest.mark.parametrize("name", FLOODS)
def test_values_are_paid_for_before_they_are_made(name: str) -> None:
    raw = b'{"a": [%s0]}' % FLOODS[name]((16 if name == "wide strings" else 9) << 20)
    with bounded(), pytest.raises(ModelFormatError, match=f"more than {MAX_MEMORY >> 20} MiB"):
        read(raw)


def read_members(raw: bytes) -> None:
    cursor = JsonCursor(FILE, raw)
    for _ in cursor.only_members():
        cursor.value()


@pytest.mark.parametrize("how", [read, read_members])
def test_many_keys_are_paid_for(how: Callable[[bytes], object]) -> None:
    raw = b"{%s}" % b",".join(b'"%x": 0' % i for i in range(1_500_000))
    with bounded(), pytest.raises(ModelFormatError, match="MiB"):
        how(raw)


def test_members_one_by_one_need_no_memory_together() -> None:
    members = {f"tensor {i}": {"shape": [1, 2], "text": "x" * 8000 + str(i)} for i in range(5_000)}
    raw = json.dumps({"all": members}).encode()
    with pytest.raises(ModelFormatError, match="MiB"):
        read(raw)
    cursor, seen = JsonCursor(FILE, raw), 0
    for key, _ in cursor.only_members():
        assert key == "all"
        for name, at in cursor.members():
            assert raw.startswith(b'"%s"' % name.encode(), at)
            assert cursor.value() == members[name]
            cursor.forget()
            seen += 1
    assert seen == len(members)


def test_equal_strings_are_one() -> None:
    value = read(b'{"a": "name of a file", "b": "name of a file", "c": ["name of a file"]}')
    assert value["a"] is value["b"]


def test_numbers_at_the_limits() -> None:
    digits = "9" * MAX_NUMBER
    assert read(b'{"a": %s}' % digits.encode()) == {"a": int(digits)}
    assert read(b'{"a": 1.7976931348623157e308}') == {"a": 1.7976931348623157e308}
    assert read(b'{"a": -0.0, "b": -0}') == {"a": 0.0, "b": 0}
    assert read(b'{"a": 5e-324, "b": 1E+2, "c": 1e-999}') == {"a": 5e-324, "b": 100.0, "c": 0.0}
