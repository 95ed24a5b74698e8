"""Bodies that ask what cannot be: each is told in a line that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS
from farthing.openai_protocol.errors import RequestError, request_error
from support.openai_requests import LONG, USER, chat, completion, parsed

# What is sent, the field the error names, and a piece of its text. Names as in the fault plan.
BAD: dict[str, tuple[tuple[str, dict[str, Any]], str | None, str]] = {
    "S1 temperature -1": (chat(temperature=-1), "temperature", "-1 should be greater than"),
    "S1 temperature 1e9": (chat(temperature=1e9), "temperature", "less than or equal to 2"),
    "S1 temperature text": (chat(temperature="hot"), "temperature", "'hot' should be a valid"),
    "S1 temperature true": (chat(temperature=True), "temperature", "true should be a valid"),
    "S2 top_p 0": (chat(top_p=0), "top_p", "above 0, at most 1"),
    "S2 top_p -1": (chat(top_p=-1), "top_p", "above 0, at most 1"),
    "S2 top_p 1.1": (chat(top_p=1.1), "top_p", "above 0, at most 1"),
    "S2 min_p 2": (chat(min_p=2), "min_p", "from 0 to 1"),
    "S2 top_k -2": (chat(top_k=-2), "top_k", "top_k=-2 must be"),
    "S2 top_k 2**40": (chat(top_k=2**40), "top_k", "top_k=1099511627776 must be"),
    "S3 repetition_penalty 0": (chat(repetition_penalty=0), "repetition_penalty", "from 0.01"),
    "S3 repetition_penalty -1": (chat(repetition_penalty=-1), "repetition_penalty", "from 0.01"),
    "S3 presence_penalty 10": (chat(presence_penalty=10), "presence_penalty", "from -2 to 2"),
    "S3 frequency_penalty -10": (chat(frequency_penalty=-10), "frequency_penalty", "-2 to 2"),
    "S4 logit_bias key": (chat(logit_bias={"AI": 1}), "logit_bias", "'AI' must be a token id"),
    "S5 logit_bias -1": (chat(logit_bias={"-1": 1}), "logit_bias", "'-1' must be a token id"),
    "S5 logit_bias leading zero": (chat(logit_bias={"01": 1}), "logit_bias", "'01' must be"),
    "S5 logit_bias value": (chat(logit_bias={"1": 101}), "logit_bias", "from -100 to 100"),
    "S5 logit_bias a list": (chat(logit_bias=[1]), "logit_bias", "a list of 1 should be an object"),
    "S7 stop_token_ids -1": (chat(stop_token_ids=[-1]), "stop_token_ids", "must be a token id"),
    "S7 stop_token_ids 2**70": (chat(stop_token_ids=[2**70]), "stop_token_ids", "a token id"),
    "S8 bad_words empty": (chat(bad_words=[""]), "bad_words", "1 to 256 bytes"),
    "S10 max_tokens -1": (chat(max_tokens=-1), "max_tokens", "max_tokens=-1 must be"),
    "S10 max_tokens 0": (chat(max_tokens=0), "max_tokens", "max_tokens=0 must be"),
    "S10 no tokens without echo": (completion(max_tokens=0), "max_tokens", "max_tokens=0 must"),
    "S10 max_tokens 1.5": (chat(max_tokens=1.5), "max_tokens", "1.5 should be a valid integer"),
    "S11 logprobs 21": (completion(logprobs=21), "logprobs", "less than or equal to 20"),
    "S11 top_logprobs 21": (
        chat(logprobs=True, top_logprobs=21),
        "top_logprobs",
        "less than or equal to 20",
    ),
    "S11 top_logprobs alone": (chat(top_logprobs=2), "top_logprobs", "logprobs must be true"),
    "S11 prompt_logprobs -1": (chat(prompt_logprobs=-1), "prompt_logprobs", "greater than or"),
    "S12 seed 2**64": (chat(seed=2**64), "seed", "less than"),
    "S12 seed 1.5": (chat(seed=1.5), "seed", "valid integer"),
    "S12 seed text": (chat(seed="x"), "seed", "'x' should be a valid integer"),
    "S13 stop empty": (chat(stop=""), "stop", "1 to 256 bytes"),
    "S13 stop 10,000": (chat(stop=["a"] * 10_000), "stop", "stop: 10000 strings, at most 16"),
    "S13 stop 1 MB": (chat(stop=["a" * 10**6]), "stop", "1 to 256 bytes"),
    "S13 stop a number": (chat(stop=["a", 1]), "stop[1]", "1 should be a valid string"),
    "S14 min_tokens": (chat(min_tokens=9, max_tokens=8), "min_tokens", "at most max_tokens=8"),
    "S14 stream_options": (chat(stream_options={}), "stream_options", "for a stream"),
    "prompt_logprobs of a stream": (
        chat(stream=True, prompt_logprobs=1),
        "prompt_logprobs",
        "a stream has no place for them",
    ),
    "S15 prompt empty": (completion(prompt=""), "prompt", "it is empty"),
    "S15 prompt []": (completion(prompt=[]), "prompt", "a list of 0 is no text"),
    "S15 prompt [[]]": (completion(prompt=[[]]), "prompt", "it is empty"),
    "S15 prompt true": (completion(prompt=True), "prompt", "true is no text"),
    "S15 prompt null": (completion(prompt=None), "prompt", "null is no text"),
    "S15 prompt mixed": (completion(prompt=["a", [1]]), "prompt", "all must be texts"),
    "S15 ids mixed": (completion(prompt=[1, "a"]), "prompt", "'a' is not a token id"),
    "S15 ids true": (completion(prompt=[1, True]), "prompt", "true is not a token id"),
    "S15 10,000 prompts": (completion(prompt=["a"] * 10_000), "prompt", "10000 prompts, at most"),
    "no prompt": ((COMPLETIONS, {}), "prompt", "prompt is missing"),
    "n 0": (chat(n=0), "n", "greater than or equal to 1"),
    "n 17": (chat(n=17), "n", "17 should be less than or equal to 16"),
    "T1 chat_template": (chat(chat_template="{{ 1 }}"), "chat_template", "not served"),
    "T1 chat_template in kwargs": (
        chat(chat_template_kwargs={"chat_template": "{{ 1 }}"}),
        "chat_template_kwargs",
        "'chat_template' cannot be given",
    ),
    "messages in kwargs": (
        chat(chat_template_kwargs={"messages": []}),
        "chat_template_kwargs",
        "chat_template_kwargs: 'messages' cannot be given in it",
    ),
    "no name in kwargs": (
        chat(chat_template_kwargs={"a-b": 1}),
        "chat_template_kwargs",
        "chat_template_kwargs: 'a-b' cannot be given in it",
    ),
    "an answer begun and gone on with": (
        chat(continue_final_message=True, add_generation_prompt=True),
        "continue_final_message",
        "continue_final_message: it goes on with the last message, add_generation_prompt begins",
    ),
    "two efforts": (
        chat(reasoning={"effort": "low"}, reasoning_effort="high"),
        "reasoning.effort",
        "reasoning.effort='low': reasoning_effort='high' says something else",
    ),
    "T3 unknown role": (
        chat(messages=[{"role": "pirate", "content": "Ho"}]),
        "messages[0].role",
        "'pirate' should be 'system'",
    ),
    "T3 null content": (
        chat(messages=[{"role": "user", "content": None}]),
        "messages[0]",
        "needs content",
    ),
    "T3 no content": (
        chat(messages=[{"role": "user"}]),
        "messages[0]",
        "messages[0] needs content",
    ),
    "T3 image": (
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        "messages[0].content[0].type",
        "'image_url' should be 'text': images are not served",
    ),
    "T3 sound": (
        chat(messages=[{"role": "user", "content": [{"type": "input_audio"}]}]),
        "messages[0].content[0].type",
        "'input_audio' should be 'text': sound is not served",
    ),
    "T3 an unknown part": (
        chat(messages=[{"role": "user", "content": [{"type": "smell", "text": "a"}]}]),
        "messages[0].content[0].type",
        "'smell' should be 'text'",
    ),
    "T3 content a number": (
        chat(messages=[*USER, {"role": "user", "content": 7}]),
        "messages[1].content",
        "7 should be a valid string",
    ),
    "no messages": ((CHAT, {}), "messages", "messages is missing"),
    "messages empty": (chat(messages=[]), "messages", "a list of 0 should have at least 1 item"),
    "messages text": (chat(messages="Ho"), "messages", "'Ho' should be a valid list"),
    "J8 100,000 invalid messages": (
        chat(messages=[7] * 100_000),
        "messages[0]",
        "7 should be an object",
    ),
    "tools": (chat(tools=[{"type": "function"}]), "tools", "not served yet"),
    "tool_choice": (chat(tool_choice="required"), "tool_choice", "calls of functions are not"),
    "echo": (chat(echo=True), "echo", "for completions"),
    "answers beyond number": (
        completion(prompt=["a"] * 65, n=16),
        "prompt",
        "65 prompts with n=16 are 1040 answers, at most 1024",
    ),
    "G1 GBNF": (completion(grammar="root ::= x"), "grammar", "line 1: there is no rule x"),
    "G1 guided GBNF": (chat(guided_grammar="root ::= *"), "guided_grammar", "a repeat of nothing"),
    "G3 GBNF": (chat(grammar="root ::= " + "(" * 60_000), "grammar", "too complex"),
    "reasoning_effort": (chat(reasoning_effort="much"), "reasoning_effort", "'much' should be"),
    "documents": (chat(documents=["a"]), "documents[0]", "'a' should be an object"),
    "model a number": (chat(model=7), "model", "7 should be a valid string"),
    "G1 no schema": (
        chat(response_format={"type": "json_schema"}),
        "response_format",
        "a schema is needed",
    ),
    "G1 invalid schema": (
        chat(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}),
        "response_format",
        "response_format: JSON schema",
    ),
    "G1 unknown keyword": (
        chat(structured_outputs={"json": {"type": "object", "patternProperty": {}}}),
        "structured_outputs.json",
        "patternProperty",
    ),
    "G1 unknown kind": (
        chat(structured_outputs={"structural_tag": "x"}),
        "structured_outputs.structural_tag",
        "nothing of it would be kept to",
    ),
    "G1 unknown format": (
        chat(response_format={"type": "grammar"}),
        "response_format.type",
        "'grammar' should be",
    ),
    "G1 two kinds": (
        chat(structured_outputs={"regex": "a", "json_object": True}),
        "structured_outputs",
        "exactly one",
    ),
    "G1 two forms": (
        chat(structured_outputs={"regex": "a"}, response_format={"type": "json_object"}),
        "structured_outputs",
        "only one of them",
    ),
    "G1 nothing": (chat(structured_outputs={}), "structured_outputs", "nothing given"),
    "G1 guided_other": (chat(guided_xml="x"), "guided_xml", "are served"),
    "G1 two guided": (
        chat(guided_regex="a", guided_json={}),
        "guided_regex",
        "guided_json and guided_regex: only one of them",
    ),
    "G1 regex": (chat(guided_regex="("), "guided_regex", "an unclosed group"),
    "G1 choice": (chat(guided_choice=[]), "guided_choice", "guided_choice must be a list"),
    "G3 parentheses": (
        chat(structured_outputs={"regex": "(" * 60_000}),
        "structured_outputs.regex",
        "too complex",
    ),
    "G5 1e9 items": (
        chat(structured_outputs={"json": {"type": "array", "minItems": 10**9}}),
        "structured_outputs.json",
        "1000000000 is too complex",
    ),
    "long: role": (chat(messages=[{"role": LONG, "content": "a"}]), "messages[0].role", "Z"),
    "long: temperature": (chat(temperature=LONG), "temperature", "Z"),
    "long: seed": (chat(seed=10**400), "seed", "less than"),
    "long: stop": (chat(stop=[LONG, LONG]), "stop", "Z"),
    "long: bad_words": (chat(bad_words=[LONG]), "bad_words", "Z"),
    "long: logit_bias": (chat(logit_bias={LONG: 1}), "logit_bias", "Z"),
    "long: a key of logit_bias": (chat(logit_bias={LONG: "x"}), None, "Z"),
    "long: tool_choice": (chat(tool_choice=LONG), "tool_choice", "calls of functions are not"),
    "long: guided": (chat(**{"guided_" + LONG: 1}), None, "are served"),
    "long: schema": (
        chat(structured_outputs={"json": {"type": "object", LONG: 1}}),
        "structured_outputs.json",
        "Z",
    ),
    "long: prompt": (completion(prompt=[1, LONG]), "prompt", "Z"),
}


@pytest.mark.parametrize(("sent", "param", "text"), BAD.values(), ids=BAD)
def test_a_bad_field_is_told_in_a_line(
    sent: tuple[str, dict[str, Any]], param: str | None, text: str
) -> None:
    with pytest.raises((RequestError, ValueError)) as caught:
        parsed(*sent)
    error = request_error(caught.value)
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert text in str(error)
    if param is not None:
        assert error.param == param
    assert len(str(error).splitlines()) == 1
    assert "Z" * 65 not in json.dumps(error.body())
    assert len(json.dumps(error.body())) < 8192
