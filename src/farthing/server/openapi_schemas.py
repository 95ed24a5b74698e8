"""JSON schemas of the responses."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
_TOKENS = {"type": "array", "items": _WHOLE}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(needed: dict[str, Any], **further: Any) -> dict[str, Any]:
    """An object that has all of ``needed`` and may have what is ``further``."""
    return {"type": "object", "properties": {**needed, **further}, "required": list(needed)}


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_END = {
    "finish_reason": {"enum": ["stop", "length"]},
    "stop_reason": {"anyOf": [_TEXT, _WHOLE, {"type": "null"}]},
}
_ALTERNATIVES = {"type": "object", "additionalProperties": {"type": "number"}}
_TOKEN = {"token": _TEXT, "logprob": {"type": "number"}, "bytes": _list(_WHOLE)}
_ANSWER = {
    "id": _TEXT,
    "created": _WHOLE,
    "model": _TEXT,
    "usage": _ref("Usage"),
    "system_fingerprint": _or_null(_TEXT),
}

RESPONSE_SCHEMAS: dict[str, Any] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": _or_null(_TEXT),
                    "code": _or_null(_TEXT),
                }
            )
        }
    ),
    "Status": _object({"status": {"const": "ok"}}),
    "Version": _object({"version": _TEXT}),
    "Load": _object({"server_load": _WHOLE}),
    "ServerInfo": _object(
        {
            "version": _TEXT,
            "model": {"type": "object"},
            "numerics": {"type": "object"},
            "engine": {"type": "object"},
            "settings": {"type": "object"},
        }
    ),
    "MetricsPage": {"type": "string"},
    "Model": _object(
        {
            "id": _TEXT,
            "object": {"const": "model"},
            "created": _WHOLE,
            "owned_by": _TEXT,
            "root": _TEXT,
            "parent": {"type": "null"},
            "max_model_len": _WHOLE,
        }
    ),
    "ModelList": _object({"object": {"const": "list"}, "data": _list(_ref("Model"))}),
    "Tokens": _object(
        {"count": _WHOLE, "max_model_len": _WHOLE, "tokens": _TOKENS}, token_strs=_list(_TEXT)
    ),
    "Text": _object({"prompt": _TEXT}),
    "TokenizerInfo": _object({"tokenizer_class": _TEXT, "chat_template": _or_null(_TEXT)}),
    "Usage": _object(
        {
            "prompt_tokens": _WHOLE,
            "completion_tokens": _WHOLE,
            "total_tokens": _WHOLE,
            "prompt_tokens_details": _object({"cached_tokens": _WHOLE}),
            "completion_tokens_details": _object({"reasoning_tokens": _WHOLE}),
        }
    ),
    "ChatCompletion": _object(
        {
            **_ANSWER,
            "object": {"const": "chat.completion"},
            "choices": _list(
                _object(
                    {
                        "index": _WHOLE,
                        "message": _object(
                            {
                                "role": {"const": "assistant"},
                                "content": _TEXT,
                                "refusal": {"type": "null"},
                            }
                        ),
                        "logprobs": _or_null(
                            _object(
                                {
                                    "content": _list(
                                        _object({**_TOKEN, "top_logprobs": _list(_object(_TOKEN))})
                                    )
                                }
                            )
                        ),
                        **_END,
                    },
                    token_ids=_TOKENS,
                )
            ),
        },
        prompt_logprobs={"type": "array"},
        prompt_token_ids=_TOKENS,
    ),
    "TextCompletion": _object(
        {
            **_ANSWER,
            "object": {"const": "text_completion"},
            "choices": _list(
                _object(
                    {
                        "index": _WHOLE,
                        "text": _TEXT,
                        "logprobs": _or_null(
                            _object(
                                {
                                    "tokens": _list(_TEXT),
                                    "token_logprobs": _list(_or_null({"type": "number"})),
                                    "top_logprobs": _list(_or_null(_ALTERNATIVES)),
                                    "text_offset": _list(_WHOLE),
                                }
                            )
                        ),
                        **_END,
                    },
                    token_ids=_TOKENS,
                    prompt_token_ids=_TOKENS,
                    prompt_logprobs={"type": "array"},
                )
            ),
        }
    ),
}
"""By name, as ``#/components/schemas`` has them."""
