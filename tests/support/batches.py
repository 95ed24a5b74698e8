"""Inputs of a batch, and its output read as its users would."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def line(custom_id: str, url: str, /, **body: Any) -> bytes:
    """A request, as a line without its end."""
    return json.dumps(
        {"custom_id": custom_id, "method": "POST", "url": url, "body": body}, ensure_ascii=False
    ).encode()


def chat(custom_id: str, content: str = "What does a farthing buy?", /, **fields: Any) -> bytes:
    """A question in a conversation of its own."""
    return line(custom_id, CHAT, messages=[{"role": "user", "content": content}], **fields)


def completion(custom_id: str, prompt: Any = "One penny", /, **fields: Any) -> bytes:
    """A text to go on with."""
    return line(custom_id, COMPLETIONS, prompt=prompt, **fields)


def write_lines(path: Path, lines: Sequence[bytes]) -> Path:
    """Writes an input."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def read_output(path: Path) -> list[dict[str, Any]]:
    """Every line of an output; each must be whole and have all fields."""
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    records = [json.loads(each) for each in raw.split(b"\n")[:-1]]
    for record in records:
        assert list(record) == ["id", "custom_id", "response", "error"]
        assert set(record["response"]) == {"status_code", "request_id", "body"}
        assert record["error"] is None
    assert len({record["id"] for record in records}) == len(records)
    return records


def by_custom_id(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Lines by ``custom_id``, each of which must be there once; those without are left out."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["custom_id"] is not None:
            assert record["custom_id"] not in found
            found[record["custom_id"]] = record
    return found


def answer(record: dict[str, Any]) -> dict[str, Any]:
    """What of an answer every run gives alike: all but identity, time, and hits of the cache."""
    assert record["response"]["status_code"] == 200
    body = dict(record["response"]["body"])
    del body["id"], body["created"]
    body["usage"] = dict(body["usage"])
    cached = body["usage"].pop("prompt_tokens_details")["cached_tokens"]
    assert 0 <= cached < body["usage"]["prompt_tokens"]
    return body


def error(record: dict[str, Any]) -> dict[str, Any]:
    """The error of a line, which must be one."""
    assert record["response"]["status_code"] >= 400
    found: dict[str, Any] = record["response"]["body"]["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found
