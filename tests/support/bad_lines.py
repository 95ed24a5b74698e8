"""Lines of a batch that cannot be answered, each in its own way."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from support.batches import chat, completion, line

_LONG = "Z" * 500


class BadLine(NamedTuple):
    """``raw`` without its end; what its output line must say. ``named``: it has a custom_id."""

    raw: bytes
    named: bool
    status: int
    code: str | None
    text: str


def bad_lines(custom_id: str, taken: str) -> dict[str, BadLine]:
    """One of each kind, all by the same name; ``taken`` is the name of an earlier line."""

    def envelope(**fields: Any) -> bytes:
        values = json.loads(completion(custom_id))
        return json.dumps({**values, **fields}).encode()

    def bad(raw: bytes, text: str, status: int = 400, code: str | None = None) -> BadLine:
        return BadLine(raw, True, status, code, text)

    def unnamed(raw: bytes, text: str, code: str | None = "invalid_json") -> BadLine:
        return BadLine(raw, False, 413 if code == "request_too_large" else 400, code, text)

    good = completion(custom_id)
    context = "context_length_exceeded"
    return {
        "J1 no JSON": unnamed(b"not JSON", "is not JSON"),
        "J1 truncated": unnamed(good[:-9], "is not JSON"),
        "J1 an array": unnamed(b"[1, 2]", "is not a JSON object"),
        "J1 a text": unnamed(b'"text"', "is not a JSON object"),
        "J1 empty object": unnamed(b"{}", "custom_id is missing", None),
        "J2 GBK": unnamed(completion(custom_id, "你好").decode().encode("gbk"), "UTF-8"),
        "J4 deep": unnamed(b'{"custom_id": ' + b"[" * 20_000, "nested deeper than 64"),
        "J5 NaN": unnamed(good.replace(b'"One penny"', b"NaN"), "has NaN, which is not JSON"),
        "J5 Infinity": unnamed(good.replace(b'"One penny"', b"Infinity"), "has Infinity, which is"),
        "J7 duplicate key": unnamed(b'{"custom_id": "a", "custom_id": "a"}', "duplicate key"),
        "a lone surrogate": unnamed(good.replace(b"One", b"\\ud800"), "lone surrogate"),
        "a NUL": unnamed(good.replace(b"One", b"\0"), "control character"),
        "longer than 8 MiB": unnamed(
            completion(custom_id, "x" * (8 << 20)), "longer than 8388608", "request_too_large"
        ),
        "custom_id a number": unnamed(envelope(custom_id=7), "custom_id: 7 should be", None),
        "custom_id empty": unnamed(envelope(custom_id=""), "custom_id: ''", None),
        "custom_id long": unnamed(envelope(custom_id="Z" * 513), "custom_id: 'ZZ", None),
        "custom_id again": BadLine(
            completion(taken), True, 400, "duplicate_custom_id", "is an earlier line's"
        ),
        "method": bad(envelope(method="GET"), "method: 'GET' must be 'POST'", 405),
        "no method": bad(envelope(method=None), "method: null should be a valid string"),
        "url": bad(envelope(url="/v1/embeddings"), "/v1/completions", 404, "url_not_found"),
        "url long": bad(envelope(url=_LONG), "/v1/completions", 404, "url_not_found"),
        "no body": bad(envelope(body=None), "body: null should be an object"),
        "body a list": bad(envelope(body=[]), "body: a list of 0 should be an object"),
        "stream": bad(chat(custom_id, stream=True), "the answers of a batch come whole"),
        "S1": bad(chat(custom_id, temperature=_LONG), "temperature: 'ZZ"),
        "S2": bad(chat(custom_id, top_p=0), "top_p=0.0 must be"),
        "S4": bad(chat(custom_id, logit_bias={"AI": 1}), "'AI' must be a token id"),
        "S5": bad(chat(custom_id, logit_bias={"10000": 1}), "token id 10000 must be from 0"),
        "S7": bad(chat(custom_id, stop_token_ids=[10_000]), "token id 10000 must be from 0"),
        "S8": bad(chat(custom_id, bad_words=[_LONG]), "bad_words[0]='ZZ"),
        "S10": bad(chat(custom_id, max_tokens=0), "max_tokens=0 must be"),
        "S13": bad(chat(custom_id, stop=[_LONG]), "stop[0]='ZZ"),
        "S15 empty": bad(completion(custom_id, ""), "it is empty"),
        "S15 id": bad(completion(custom_id, [5, 10_000]), "token id 10000 must be from 0"),
        "S15 long id": bad(completion(custom_id, [10**300]), "must be from 0 below"),
        "S15 one of several": bad(
            completion(custom_id, [[5], [6], [10_000]]), "token id 10000 must be from 0"
        ),
        "S15 10,000": bad(completion(custom_id, ["a"] * 10_000), "10000 prompts, at most 1024"),
        "S16 completion": bad(
            completion(custom_id, "penny " * 300),
            *("maximum context length is 256 tokens", 400, context),
        ),
        "S16 chat": bad(chat(custom_id, "penny " * 300), "256 tokens. However", 400, context),
        "S18 model": bad(
            chat(custom_id, model="../../etc/passwd"),
            *("'../../etc/passwd' is not served here", 404, "model_not_found"),
        ),
        "T1": bad(chat(custom_id, chat_template="{{ 1 }}"), "chat_template: this is not served"),
        "T3": bad(
            line(custom_id, "/v1/chat/completions", messages=[{"role": _LONG, "content": "a"}]),
            "messages[0].role: 'ZZ",
        ),
        "T a variable": bad(
            chat(custom_id, chat_template_kwargs={"messages": []}), "'messages' cannot be given"
        ),
        "G1": bad(
            chat(custom_id, structured_outputs={"json": {"type": "object", _LONG: 1}}),
            "is unknown",
        ),
        "G3": bad(chat(custom_id, guided_regex="(" * 60_000), "too complex"),
        "nothing allowed": bad(
            completion(
                custom_id,
                allowed_token_ids=[5],
                logit_bias={"5": -100},
                bad_words=[],
                min_tokens=1,
                guided_choice=["farthing"],
            ),
            "no token is allowed",
        ),
    }
