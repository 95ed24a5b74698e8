"""What clients read of wrong values: one table, a row for each field and way to be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.errors import request_error
from support.openai_requests import chat, completion, parsed

OBJECT_OR = "should be an object or a valid boolean"
KINDS = "should be a valid string, an object or a valid boolean"
ROLES = "'system', 'developer', 'user', 'assistant', 'tool' or 'function'"
EFFORTS = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"
COUNT = "must be a whole number from 0 to 2147483647"
TEXT = "must be UTF-8 text of 1 to 256 bytes"
LIMIT = "must be at least 1, or null for all the context"
OTHER_LIMIT = "must be at least 1, or -1 for all the context"

# Of either endpoint: the field, a value, what is said after the field's name, and whose it is if
# that is not the field itself.
BOTH: list[tuple[str, Any, str, str | None]] = [
    ("model", 7, ": 7 should be a valid string", None),
    ("n", 0, ": 0 should be greater than or equal to 1", None),
    ("n", "2", ": '2' should be a valid integer", None),
    ("stream", "yes", ": 'yes' should be a valid boolean", None),
    ("stream_options", 1, ": 1 should be an object", None),
    ("stream_options", {}, ": they are for a stream", None),
    ("user", 7, ": 7 should be a valid string", None),
    ("priority", 1.5, ": 1.5 should be a valid integer", None),
    ("cache_salt", 7, ": 7 should be a valid string", None),
    ("return_token_ids", "x", ": 'x' should be a valid boolean", None),
    ("return_tokens_as_token_ids", 1, ": 1 should be a valid boolean", None),
    ("temperature", 3, ": 3 should be less than or equal to 2", None),
    ("temperature", None, "", None),
    ("temperature", True, ": true should be a valid number", None),
    ("top_p", 0, "=0.0 must be a number above 0, at most 1", None),
    ("top_k", -2, "=-2 must be from 1 below 2**31, or 0 or -1 for off", None),
    ("min_p", 2, "=2.0 must be a number from 0 to 1", None),
    ("typical_p", 0, "=0.0 must be a number above 0, at most 1", None),
    ("repetition_penalty", 0, "=0.0 must be a number from 0.01 to 100", None),
    ("presence_penalty", 3, "=3.0 must be a number from -2 to 2", None),
    ("frequency_penalty", -3, "=-3.0 must be a number from -2 to 2", None),
    ("dry_multiplier", -1, "=-1.0 must be a number from 0 to 1000", None),
    ("dry_base", 0.5, "=0.5 must be a number from 1 to 1000", None),
    ("dry_allowed_length", 0, "=0 must be a whole number from 1 to 2147483647", None),
    ("dry_penalty_last_n", -2, "=-2 must be from 1, 0 for off, or -1 for all tokens", None),
    ("dry_sequence_breakers", "x", ": 'x' should be a valid list", None),
    ("dry_sequence_breakers", ["a"] * 17, ": 17 strings, at most 16 are taken", None),
    ("logit_bias", [1], ": a list of 1 should be an object", None),
    ("logit_bias", {"AI": 1}, ": key 'AI' must be a token id", None),
    ("logit_bias", {"1": 101}, "[1]=101.0 must be a number from -100 to 100", None),
    ("logit_bias", {"1": "x"}, "['1']: 'x' should be a valid number", "logit_bias['1']"),
    ("allowed_token_ids", [], "=[] must be a list of 1 id or more", None),
    ("allowed_token_ids", [5, -1], "[1]=-1 must be a token id", None),
    ("bad_words", ["a", ""], f"[1]='' {TEXT}", None),
    ("bad_words", ["a"] * 1025, ": 1025 strings, at most 1024 are taken", None),
    ("n_predict", -2, f"=-2 {OTHER_LIMIT}", None),
    ("n_predict", 1.5, ": 1.5 should be a valid integer", None),
    ("max_new_tokens", "x", ": 'x' should be a valid integer", None),
    ("max_tokens", 1.5, ": 1.5 should be a valid integer", None),
    ("min_tokens", -1, f"=-1 {COUNT}", None),
    ("stop", 17, ": 17 should be a valid string or list", None),
    ("stop", {"text": "a"}, ": an object should be a valid string or list", None),
    ("stop", ["a"] * 17, ": 17 strings, at most 16 are taken", None),
    ("stop", "", f"='' {TEXT}", None),
    ("stop", ["a", ""], f"[1]='' {TEXT}", None),
    ("stop", ["a", 1], "[1]: 1 should be a valid string", "stop[1]"),
    ("stop_token_ids", 7, ": 7 should be a valid list", None),
    ("stop_token_ids", [-1], "[0]=-1 must be a token id", None),
    ("ignore_eos", 1, ": 1 should be a valid boolean", None),
    ("include_stop_str_in_output", "x", ": 'x' should be a valid boolean", None),
    ("skip_special_tokens", 3, ": 3 should be a valid boolean", None),
    ("seed", "x", ": 'x' should be a valid integer", None),
    ("seed", 2**64, ": 18446744073709551616 should be less than 18446744073709551616", None),
    ("prompt_logprobs", -1, ": -1 should be greater than or equal to 0", None),
    ("response_format", "json", ": 'json' should be an object", None),
    ("response_format", {}, ".type is missing", "response_format.type"),
    (
        "response_format",
        {"type": "x"},
        ".type: 'x' should be 'text', 'json_object' or 'json_schema'",
        "response_format.type",
    ),
    (
        "response_format",
        {"type": "json_object", "schema": 7},
        f".schema: 7 {OBJECT_OR}",
        "response_format.schema",
    ),
    ("response_format", {"type": "json_schema"}, ".json_schema: a schema is needed for the", None),
    ("structured_outputs", {}, ": nothing given; exactly one of json, regex, choice, gra", None),
    ("structured_outputs", {"json": 7}, f".json: 7 {KINDS}", "structured_outputs.json"),
    (
        "structured_outputs",
        {"regex": "("},
        ".regex: regular expression /(/ has an unclosed group",
        "structured_outputs.regex",
    ),
    ("guided_json", [1], f": a list of 1 {KINDS}", None),
    ("guided_json", "{", ": JSON schema is not JSON: Expecting property name", None),
    ("guided_regex", "(", ": regular expression /(/ has an unclosed group", None),
    ("guided_choice", [], " must be a list of one or more strings, none of them empty", None),
    ("guided_grammar", "x", ": Lark grammar: 1(2): Expected token ':', found '\\n'", None),
    ("grammar", "root ::= y", ": GBNF grammar line 1: there is no rule y", None),
]
COMPLETION: list[tuple[str, Any, str, str | None]] = [
    ("prompt", 7, ": 7 is no text, no token ids and no list of them", None),
    ("prompt", "", ": it is empty, one token is needed", None),
    ("prompt", ["a", 1], ": all must be texts, or all lists of token ids", None),
    ("max_tokens", 0, "=0 must be at least 1, or 0 with echo", None),
    ("max_new_tokens", 0, "=0 must be at least 1, or 0 with echo", None),
    ("echo", "x", ": 'x' should be a valid boolean", None),
    ("logprobs", 21, ": 21 should be less than or equal to 20", None),
    ("add_special_tokens", "x", ": 'x' should be a valid boolean", None),
]
CHAT: list[tuple[str, Any, str, str | None]] = [
    ("messages", None, ": null should be a valid list", None),
    ("messages", [], ": a list of 0 should have at least 1 item", None),
    ("messages", [7], "[0]: 7 should be an object", "messages[0]"),
    ("messages", [{"role": "user"}], "[0] needs content", "messages[0]"),
    (
        "messages",
        [{"role": "pirate", "content": "Ho"}],
        f"[0].role: 'pirate' should be {ROLES}",
        "messages[0].role",
    ),
    (
        "messages",
        [{"role": "user", "content": 7}],
        "[0].content: 7 should be a valid string or list",
        "messages[0].content",
    ),
    ("max_tokens", 0, f"=0 {LIMIT}", None),
    ("max_new_tokens", 0, f"=0 {LIMIT}", None),
    ("max_completion_tokens", 0, f"=0 {LIMIT}", None),
    ("logprobs", 1, ": 1 should be a valid boolean", None),
    ("top_logprobs", 3, ": logprobs must be true with it", None),
    ("tools", "x", ": 'x' should be a valid list", None),
    ("tool_choice", 7, ": 7 should be a valid string or an object", None),
    ("reasoning_effort", "much", f": 'much' should be {EFFORTS}", None),
    ("reasoning", {"effort": "much"}, f".effort: 'much' should be {EFFORTS}", "reasoning.effort"),
    ("reasoning", {"max_tokens": 5}, ".max_tokens: 5 is of no use here", "reasoning.max_tokens"),
    ("chat_template_kwargs", "x", ": 'x' should be an object", None),
    ("documents", ["a"], "[0]: 'a' should be an object", "documents[0]"),
    ("continue_final_message", "x", ": 'x' should be a valid boolean", None),
    ("add_generation_prompt", 7, ": 7 should be a valid boolean", None),
]
ROWS = [
    *((completion, *row) for row in (*BOTH, *COMPLETION)),
    *((chat, *row) for row in (*BOTH, *CHAT)),
]


@pytest.mark.parametrize(("sent", "field", "value", "told", "param"), ROWS)
def test_a_wrong_value_is_told_as_its_client_knows_it(
    sent: Any, field: str, value: Any, told: str, param: str | None
) -> None:
    try:
        request = parsed(*sent(**{field: value}))
        request.params()
        if isinstance(request, CompletionRequest):
            request.prompts()
    except Exception as error:
        found = request_error(error)
    else:
        assert told == "", "it is taken"
        return
    assert str(found).startswith(f"{field}{told}")
    assert (found.status, found.param) == (400, param or field)
    for word in ("None", "True", "False", "sequence of", "mapping", "Input"):
        assert word not in str(found)


def test_every_field_has_a_row() -> None:
    """Of those that only one of a few values can be wrong with, their siblings speak."""
    fields = {row[0] for row in (*BOTH, *COMPLETION, *CHAT)}
    known = {*ChatRequest.model_fields, *CompletionRequest.model_fields}
    assert fields <= known
    assert known - fields == set()
