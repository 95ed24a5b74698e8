"""Log records as lines, which no text within them can end or forge."""

from __future__ import annotations

import json
import logging
import math
import re
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

from farthing.openai_protocol.errors import clear_line
from farthing.server.observation.request_context import current_request_id

MAX_TRACEBACK_LINES = 200

# What ends a line for some reader, moves a cursor, turns the direction of writing, or is no
# character at all. JSON's own escapes take care of the first 32.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_PLACE = re.compile(r' +File "[^"]+", line \d+')  # of a traceback: a path may be long


class JsonLines(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, request_id, its fields.

    A record's fields are ``extra={"fields": {...}}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """What JSON has no form for is written as its type."""
        entry: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if request_id := current_request_id():
            entry["request_id"] = request_id
        entry |= {name: _plain(value) for name, value in _fields(record).items()}
        if lines := _traceback(record):
            entry["exception"] = "\n".join(lines)
        text = json.dumps(entry, ensure_ascii=False)
        return _UNSAFE.sub(_escaped, text)


class TextLines(logging.Formatter):
    """For people: time, level, message, fields; a traceback follows, each line of it indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or several with a traceback."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = _fields(record)
        if (request_id := current_request_id()) and "request_id" not in fields:
            fields["request_id"] = request_id
        words = [f"{clock} {record.levelname:<8} {_message(record)}"]
        words += [f"{name}={_word(value)}" for name, value in fields.items()]
        lines = [" ".join(words), *(f"    {line}" for line in _traceback(record))]
        return "\n".join([_UNSAFE.sub(_escaped, line) for line in lines])


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit, or cannot be shown
        return f"{record.msg if isinstance(record.msg, str) else '?'} (cannot be shown)"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    return dict(fields) if isinstance(fields, Mapping) else {}


def _traceback(record: logging.LogRecord) -> list[str]:
    """Of what a stranger wrote, an exception repeats as little as an error answer does."""
    if not record.exc_info or record.exc_info[1] is None:
        return []
    try:
        text = "".join(traceback.format_exception(record.exc_info[1]))
    except Exception:  # of a foreign __str__
        text = type(record.exc_info[1]).__name__
    lines = text.splitlines()
    if len(lines) > MAX_TRACEBACK_LINES:
        half = MAX_TRACEBACK_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]
    return [line if _PLACE.match(line) else _cleared(line) for line in lines]


def _cleared(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))] + clear_line(line)


def _plain(value: object) -> object:
    """``value`` as JSON has it; NaN and infinity, which it lacks, as words."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return type(value).__name__


def _word(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s\"=]+", value):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(_plain(value), ensure_ascii=False)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
