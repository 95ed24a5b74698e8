"""Streams of server-sent events, read as clients read them."""

from __future__ import annotations

import json
from typing import Any

LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")


def data_of(raw: bytes) -> list[str]:
    """The data of each event; comments are left out. Every event must be whole, in one line."""
    assert raw.endswith(b"\n\n")
    found = []
    for event in raw.decode().split("\n\n")[:-1]:
        assert len(event.splitlines()) == 1
        if event.startswith(":"):
            continue
        assert event.startswith("data: ")
        found.append(event.removeprefix("data: "))
    return found


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """The objects of a stream, without its last event ``[DONE]``, which may only be the last."""
    data = data_of(raw)
    return [json.loads(each) for each in data if each != "[DONE]"]


def answer_of(raw: bytes) -> dict[str, Any]:
    """The whole answer that a stream tells, in the form in which it comes at once.

    The stream must be complete: one end for each choice, nothing of it after that, ``[DONE]``.
    """
    assert data_of(raw)[-1] == "[DONE]"
    assert data_of(raw).count("[DONE]") == 1
    events = events_of(raw)
    first = events[0]
    assert {(e["id"], e["created"], e["model"], e["system_fingerprint"]) for e in events} == {
        (first["id"], first["created"], first["model"], first["system_fingerprint"])
    }
    choices: dict[int, dict[str, Any]] = {}
    answer: dict[str, Any] = {
        "id": first["id"],
        "object": first["object"].removesuffix(".chunk"),
        "model": first["model"],
        "system_fingerprint": first["system_fingerprint"],
        "usage": None,
    }
    for event in events:
        assert "error" not in event
        if not event["choices"]:
            assert event is events[-1]
            answer["usage"] = event["usage"]
        if "prompt_token_ids" in event:
            answer["prompt_token_ids"] = event["prompt_token_ids"]
        for part in event["choices"]:
            _join(choices, part)
    assert sorted(choices) == list(range(len(choices)))
    assert all(choice["finish_reason"] for choice in choices.values())
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return answer


def _join(choices: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    choice = choices.get(part["index"])
    if choice is None:
        choice = choices[part["index"]] = _opened(part)
    assert choice["finish_reason"] is None, "nothing comes after the end"
    if "delta" in part:
        choice["message"]["content"] += part["delta"].get("content", "")
    else:
        choice["text"] += part["text"]
    if "token_ids" in part:
        choice.setdefault("token_ids", []).extend(part["token_ids"])
    if "prompt_token_ids" in part:
        choice["prompt_token_ids"] = part["prompt_token_ids"]
    if part["logprobs"] is not None:
        if choice["logprobs"] is None:
            choice["logprobs"] = {name: [] for name in part["logprobs"]}
        for name in LISTS:
            choice["logprobs"].get(name, []).extend(part["logprobs"].get(name, []))
    if part["finish_reason"] is not None:
        choice["finish_reason"] = part["finish_reason"]
        choice["stop_reason"] = part["stop_reason"]


def _opened(part: dict[str, Any]) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": part["index"], "logprobs": None, "finish_reason": None}
    if "delta" in part:
        assert part["delta"] == {"role": "assistant", "content": ""}, "the role comes first"
        choice["message"] = {"role": "assistant", "content": "", "refusal": None}
    else:
        choice["text"] = ""
    return choice
