"""Whole answers over HTTP: what the model gives in this process, in the API's form."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.openai_protocol.errors import RequestError
from farthing.server.routes.generation import ready, told_error
from farthing.server.unknown_fields import MAX_NAMES
from support.served import CHAT, COMPLETIONS, Served, serve

USER = [{"role": "user", "content": "What is a farthing? 🌾"}]
SAMPLED = {"temperature": 1.1, "seed": 5, "max_tokens": 20, "ignore_eos": True}


def test_a_conversation_is_answered_as_llm_answers_it(served: Served, llm: LLM) -> None:
    body = served.answer(CHAT, {"model": "tiny", "messages": USER, "n": 2, **SAMPLED})
    (expected,) = llm.chat(USER, SamplingParams(n=2, **SAMPLED))  # type: ignore[arg-type]
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert [c["message"]["content"] for c in body["choices"]] == [o.text for o in expected.outputs]
    assert [c["finish_reason"] for c in body["choices"]] == ["length", "length"]
    assert body["usage"]["prompt_tokens"] == len(expected.prompt_token_ids)
    assert body["usage"]["completion_tokens"] == 40
    assert body["usage"]["total_tokens"] == len(expected.prompt_token_ids) + 40


def test_a_refusal_holds_nothing_of_what_is_refused(served: Served) -> None:
    """Frames of an exception have all of a body; who keeps the refusal keeps none of them."""
    model = served.service.model().served
    raw = json.dumps({"prompt": "penny " * 100_000}).encode()
    before = sys.getrefcount(raw)
    with pytest.raises(RequestError, match="at least") as caught:
        ready(COMPLETIONS, raw, model)
    assert sys.getrefcount(raw) > before
    told = told_error(caught.value)
    assert told is caught.value
    assert (told.__traceback__, told.__context__, told.__cause__) == (None, None, None)


def test_several_prompts_are_answered_in_their_order(served: Served, llm: LLM) -> None:
    prompts = ["One penny", "Zwei", "три", "🍞"]
    asked = {"prompt": prompts, "n": 2, "logprobs": 2, "echo": True, **SAMPLED}
    body = served.answer(COMPLETIONS, asked)
    params = SamplingParams(n=2, logprobs=2, **SAMPLED)  # type: ignore[arg-type]
    expected = llm.generate(prompts, params)
    texts = [p + o.text for p, e in zip(prompts, expected, strict=True) for o in e.outputs]
    assert [choice["text"] for choice in body["choices"]] == texts
    assert [choice["index"] for choice in body["choices"]] == list(range(8))
    for choice in body["choices"]:
        tokens = choice["logprobs"]
        assert tokens["token_logprobs"][0] is None
        assert all(
            tokens["token_logprobs"][i] in tokens["top_logprobs"][i].values()
            for i in range(1, len(tokens["tokens"]))
        )
    assert body["usage"]["prompt_tokens"] == sum(len(e.prompt_token_ids) for e in expected)


def test_token_ids_are_a_prompt_and_scored_greedily(served: Served, llm: LLM) -> None:
    ids = llm.tokenizer.encode("A farthing is a fourth of a penny")
    asked = {"prompt": [ids, ids[:4]], "max_tokens": 1, "logprobs": 1, "echo": True}
    body = served.answer(COMPLETIONS, {**asked, "temperature": 0, "seed": 1234})
    params = SamplingParams(max_tokens=1, temperature=0, logprobs=1, prompt_logprobs=1)
    expected = llm.generate([{"prompt_token_ids": ids}, {"prompt_token_ids": ids[:4]}], params)
    for choice, output in zip(body["choices"], expected, strict=True):
        assert output.prompt_logprobs is not None
        scores = [next(iter(e.values())).logprob for e in output.prompt_logprobs[1:] if e]
        assert choice["logprobs"]["token_logprobs"][1:-1] == scores


def test_a_prompt_is_only_scored(served: Served) -> None:
    body = served.answer(COMPLETIONS, {"prompt": "One penny", "echo": True, "max_tokens": 0})
    assert body["choices"][0]["text"] == "One penny"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0


def test_what_was_cached_is_told(served: Served) -> None:
    asked = {"prompt": "a prompt that was not there before; " * 3, "max_tokens": 2}
    counts = [
        served.answer(COMPLETIONS, asked)["usage"]["prompt_tokens_details"]["cached_tokens"]
        for _ in range(2)
    ]
    assert counts[0] == 0
    assert counts[1] >= 16


def test_the_form_of_an_answer_is_kept_to(served: Served) -> None:
    choices = ["farthing", "ha'penny"]
    for fields in (
        {"guided_choice": choices},
        {"structured_outputs": {"choice": choices}},
        {"structured_outputs": {"regex": "farthing|ha'penny"}},
        {"structured_outputs": {"grammar": 'root ::= "farthing" | half\nhalf ::= "ha\'penny"'}},
        {"guided_grammar": 'root ::= [fh] "a" ("rthing" | "\'penny")'},
        {"grammar": 'root ::= "farthing" | "ha\'penny"'},
        {"grammar": 'start: "farthing" | "ha\'penny"'},
    ):
        body = served.answer(CHAT, {"messages": USER, "max_tokens": 60, "seed": 3, **fields})
        assert body["choices"][0]["message"]["content"] in choices
        assert body["choices"][0]["finish_reason"] == "stop"


def test_gbnf_that_leads_back_to_itself_is_kept_to(served: Served) -> None:
    grammar = 'root ::= "[" [1-9] [0-9]{0,2} ("," root)? "]"'
    fields = {"prompt": "List:", "max_tokens": 200, "grammar": grammar, "temperature": 1.5}
    texts = set()
    for seed in range(4):
        choice = served.answer(COMPLETIONS, {**fields, "seed": seed})["choices"][0]
        assert choice["finish_reason"] == "stop"
        texts.add(choice["text"])
        inner = json.loads(choice["text"])
        while isinstance(inner, list):
            assert 1 <= inner[0] <= 999
            inner = inner[1] if len(inner) == 2 else None
    assert len(texts) > 1


def test_the_fingerprint_says_which_bits_to_expect(served: Served) -> None:
    found = {
        served.answer(path, body)["system_fingerprint"]
        for path, body in (
            (CHAT, {"messages": USER, "max_tokens": 1}),
            (COMPLETIONS, {"prompt": "a", "max_tokens": 1}),
        )
    }
    info = served.client.get("/server_info").json()["numerics"]
    assert found == {info["system_fingerprint"]}
    assert info["system_fingerprint"].startswith("fp_")


def test_the_other_name_is_answered_with(served: Served) -> None:
    body = served.answer(COMPLETIONS, {"model": "small/model", "prompt": "a", "max_tokens": 1})
    assert body["model"] == "small/model"


def test_unknown_fields_are_told_of_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "farthing"):
        for _ in range(2):
            served.answer(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "chat_id": "7", "store": 1})
        told = [r.getMessage() for r in caplog.records if "unknown field" in r.getMessage()]
        assert len(told) == 1
        assert "chat_id" in told[0]
        many: dict[str, Any] = {f"x{i}": 1 for i in range(2 * MAX_NAMES)}
        served.answer(COMPLETIONS, {"prompt": "a", "max_tokens": 1, **many})
        told = [r.getMessage() for r in caplog.records if "unknown field" in r.getMessage()]
        assert len(told) == MAX_NAMES
        assert caplog.records[-1].getMessage() == "those were 100; no more of them are told of"


def test_a_request_leaves_a_record(served: Served) -> None:
    body = served.answer(CHAT, {"messages": USER, "n": 2, **SAMPLED})
    refused = served.post(CHAT, {"messages": [], **SAMPLED})
    assert refused.status_code == 400
    good, bad = served.records.all
    assert (good.outcome, good.status, good.model, good.n) == ("ok", 200, "tiny", 2)
    assert good.endpoint == CHAT
    assert good.finish_reasons == ["length", "length"]
    assert good.prompt_tokens == body["usage"]["prompt_tokens"]
    assert good.completion_tokens == 40
    assert (bad.outcome, bad.status) == ("refused", 400)


def test_many_prompts_of_one_request_do_not_hold_up_another(served_model: Path) -> None:
    """Whoever sends them counts as one user: a small request is next when a place is free."""
    many = {"prompt": ["One penny"] * 64, "max_tokens": 40, "ignore_eos": True, "seed": 1}
    with serve(served_model, engine={"max_num_seqs": 2}) as served:
        ended: list[str] = []

        def ask(name: str, body: dict[str, Any]) -> None:
            served.answer(COMPLETIONS, body)
            ended.append(name)

        first = threading.Thread(target=ask, args=("many", many))
        first.start()
        served.wait(lambda: served.service.engine.in_flight > 32)
        ask("one", {**many, "prompt": "A farthing"})
        first.join()
        assert ended == ["one", "many"]
