"""Bodies of requests: JSON and nothing else, within bounds."""

from __future__ import annotations

import json

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.json_body import MAX_BODY, read_object

BAD: dict[str, tuple[bytes, str]] = {
    "J1 empty": (b"", "the request is empty, a JSON object is needed"),
    "J1 only spaces": (b" \n", "the request is empty"),
    "J1 early end": (b'{"a":', "the request is not JSON (it ends too early), at byte 5"),
    "J1 truncated": (b'{"a": [1, 2', "a comma or ] is expected"),
    "J1 an array": (b"[1]", "is not a JSON object"),
    "J1 two objects": (b'{"a": 1}{"b": 2}', "more text after its end"),
    "J2 not UTF-8": ('{"a": "你好"}'.encode("gbk"), "UTF-8"),
    "J2 not UTF-8 outside of strings": (b'{"a": \xff}', "UTF-8"),
    "J4 deep": (b'{"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested deeper than 64"),
    "J5 NaN": (b'{"a": NaN}', "the request has NaN, which is not JSON, at byte 6"),
    "J5 Infinity": (b'{"a": -Infinity}', "has -Infinity, which is not JSON, at byte 6"),
    "J5 larger than a double": (
        b'{"a": 1e999}',
        "the request has 1e999, which is larger than a double can be, at byte 6",
    ),
    "J7 duplicate": (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
    "J7 duplicate inside": (b'{"b": [{"a": 1, "\\u0061": 2}]}', "duplicate key 'a'"),
    "a lone surrogate": (b'{"a": "\\ud800"}', "lone surrogate"),
    "a control character": (b'{"a": "\x01"}', "control character"),
    "a long number": (b'{"a": ' + b"9" * 5000 + b"}", "a number of 5000 characters"),
    "many values": (b'{"a": [' + b"{}," * 400_000 + b"{}]}", "more than 36 MiB"),
}


@pytest.mark.parametrize(("raw", "problem"), BAD.values(), ids=BAD)
def test_what_is_no_strict_json_is_told_in_a_line(raw: bytes, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_object(raw)
    error = caught.value
    assert problem in str(error)
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert error.code == "invalid_json"
    assert len(str(error).splitlines()) == 1
    assert json.loads(json.dumps(error.body()))["error"]["message"] == str(error)


def test_a_long_key_or_number_is_not_repeated() -> None:
    for raw in (
        b'{"%s": 1, "%s": 1}' % (b"Z" * 300, b"Z" * 300),
        b'{"a": %s}' % (b"7" * 900 + b"e999"),
    ):
        with pytest.raises(RequestError) as caught:
            read_object(raw)
        assert "Z" * 65 not in str(caught.value)
        assert "7" * 65 not in str(caught.value)


def test_the_limit_is_told_before_anything_is_read() -> None:
    whole = b'{"a": "' + b"x" * 1000 + b'"}'
    assert read_object(whole.ljust(MAX_BODY)) == {"a": "x" * 1000}
    with pytest.raises(RequestError) as caught:
        read_object(b"{".ljust(MAX_BODY + 1))
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


def test_values_are_those_of_the_json_module() -> None:
    raw = '{"a": [1, -2.5, 1e3, "é\\n\\u20ac", null, true], "b": {"c": {}}, "d": ""}'
    assert read_object(raw.encode()) == json.loads(raw)
