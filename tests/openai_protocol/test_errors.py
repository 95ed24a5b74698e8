"""Errors: one line, the right status, little of what was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.errors import (
    ChatTemplateError,
    ChatTemplateLimitError,
    ContextLengthError,
    FarthingError,
    InvalidParameterError,
)
from farthing.openai_protocol.errors import (
    MAX_MESSAGE,
    RequestError,
    clear_line,
    request_error,
    shown,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (InvalidParameterError("top_p=3 must be"), 400, "invalid_request_error", "top_p", None),
        (InvalidParameterError("prompt: id 9"), 400, "invalid_request_error", "prompt", None),
        (
            InvalidParameterError("logit_bias[7]='x' must be"),
            *(400, "invalid_request_error", "logit_bias", None),
        ),
        (
            ContextLengthError("prompt of 9 tokens"),
            *(400, "invalid_request_error", None, "context_length_exceeded"),
        ),
        (ChatTemplateError("no system role"), 400, "invalid_request_error", "messages", None),
        (
            ChatTemplateError("continue_final_message: the last message has no text to continue"),
            *(400, "invalid_request_error", "continue_final_message", None),
        ),
        (ChatTemplateLimitError("ran too long"), 500, "server_error", None, None),
        (FarthingError("no token is allowed"), 500, "server_error", None, None),
        (MemoryError(), 500, "server_error", None, None),
        (ZeroDivisionError("by zero"), 500, "server_error", None, None),
    ],
)
def test_each_exception_has_its_status(
    error: Exception, status: int, kind: str, param: str | None, code: str | None
) -> None:
    found = request_error(error)
    assert (found.status, found.type, found.param, found.code) == (status, kind, param, code)
    assert found.body() == {
        "error": {"message": str(found), "type": kind, "param": param, "code": code}
    }
    assert request_error(found) is found


@pytest.mark.parametrize(
    "message",
    [
        f"stop={'Z' * 500!r} must be text",
        f'a key "{"Z" * 500}" twice',
        f"name {'Z' * 500} here",
        f"the model's limit; {'Z' * 66 + chr(39) + 'Z' * 90!r} isn't right",
    ],
)
def test_long_quotations_are_cut_and_what_stands_around_them_is_not(message: str) -> None:
    line = clear_line(message)
    assert "Z" * 65 not in line
    assert "Z" * 40 in line
    assert line.split()[0][:4] == message.split()[0][:4]
    assert line.split()[-1][-4:] == message.split()[-1][-4:]


def test_apostrophes_do_not_count_as_quotation_marks() -> None:
    text = (
        "This model's maximum context length is 256 tokens. However, your prompt's too long; "
        "it isn't what the model's for"
    )
    assert clear_line(text) == text


@given(st.text(max_size=3000))
def test_any_message_is_one_short_printable_line(text: str) -> None:
    line = clear_line(text)
    assert len(line) <= MAX_MESSAGE
    assert line.isprintable()
    line.encode()


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()))
def test_any_value_is_shown_in_few_bytes(value: object) -> None:
    assert 0 < len(shown(value).encode()) <= 64


def test_what_is_shown_reads_as_json_does() -> None:
    values = [None, True, 5, "five", {"a": 1}, [1, 2]]
    assert [shown(v) for v in values] == ["null", "true", "5", "'five'", "an object", "a list of 2"]


def test_an_error_is_a_farthing_error_of_one_line() -> None:
    error = RequestError("two\nlines")
    assert isinstance(error, FarthingError)
    assert str(error) == "two lines"
