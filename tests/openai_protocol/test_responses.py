"""Bodies of responses: the engine's results, nothing more and nothing less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from farthing import LLM, RequestOutput, SamplingParams
from farthing.engine.outputs import CompletionOutput, Logprob
from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS, job_of, parse_request
from farthing.openai_protocol.errors import RequestError
from farthing.openai_protocol.logprobs import chat_logprobs, completion_logprobs
from farthing.openai_protocol.names import ModelNames
from farthing.openai_protocol.responses import chat_response, usage
from farthing.openai_protocol.served_model import ServedModel
from support.tiny_models import make_tiny_model

NAMES = ModelNames(["tiny", "small"])
USER = [{"role": "user", "content": "What is a farthing? 🌾"}]
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


def served(llm: LLM) -> ServedModel:
    """The model under the test's names."""
    return ServedModel(NAMES, llm.encoder, llm.context_length, "fp_x")


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny")), num_threads=1)


def answer(llm: LLM, url: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[RequestOutput]]:
    """The body of the response, and the results it was made of."""
    job = job_of(parse_request(url, body), served(llm))
    found = dict(llm.run((i, ids, job.params) for i, ids in enumerate(job.prompts)))
    outputs = [found[i] for i in range(len(job.prompts))]
    assert all(isinstance(output, RequestOutput) for output in outputs)
    return job.response(outputs), outputs  # type: ignore[arg-type]


def test_a_chat_completion_is_what_llm_chat_gives(llm: LLM) -> None:
    body, _ = answer(llm, CHAT, {"messages": USER, **GREEDY})
    (expected,) = llm.chat(USER, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    prompt = len(expected.prompt_token_ids)
    identity, created = body.pop("id"), body.pop("created")
    assert identity.startswith("chatcmpl-")
    assert created > 1_700_000_000
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": expected.outputs[0].text,
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": 12,
            "total_tokens": prompt + 12,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "system_fingerprint": "fp_x",
    }


def test_a_completion_answers_each_prompt_in_its_place(llm: LLM) -> None:
    prompts = ["One penny", "Zwei", "A much longer beginning of a text"]
    body, _ = answer(llm, COMPLETIONS, {"model": "small", "prompt": prompts, **GREEDY})
    expected = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["model"] == "small"
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    texts = [choice["text"] for choice in body["choices"]]
    assert texts == [output.outputs[0].text for output in expected]
    assert body["usage"]["prompt_tokens"] == sum(len(o.prompt_token_ids) for o in expected)
    assert body["usage"]["completion_tokens"] == 36


def test_token_ids_and_text_are_the_same_prompt(llm: LLM) -> None:
    ids = llm.tokenizer.encode("One penny")
    text, _ = answer(llm, COMPLETIONS, {"prompt": "One penny", "echo": True, **GREEDY})
    tokens, _ = answer(llm, COMPLETIONS, {"prompt": ids, "echo": True, **GREEDY})
    assert text["choices"] == tokens["choices"]
    assert text["choices"][0]["text"].startswith("One penny")


def test_chat_log_probabilities_are_the_engines(llm: LLM) -> None:
    body, (output,) = answer(
        llm,
        CHAT,
        {
            "messages": USER,
            **GREEDY,
            "temperature": 1.9,
            "seed": 5,
            "logprobs": True,
            "top_logprobs": 3,
        },
    )
    (completion,) = output.outputs
    content = body["choices"][0]["logprobs"]["content"]
    assert completion.logprobs is not None
    assert len(content) == len(completion.token_ids) == 12
    unlikely = 0
    for token, entries, written in zip(
        completion.token_ids, completion.logprobs, content, strict=True
    ):
        assert bytes(written["bytes"]) == llm.tokenizer.token_bytes(token)
        assert written["logprob"] == entries[token].logprob
        assert len(written["top_logprobs"]) == 3
        values = [each["logprob"] for each in written["top_logprobs"]]
        likeliest = [entry.logprob for entry in entries.values() if entry.rank <= 3]
        assert values == sorted(likeliest, reverse=True)
        unlikely += entries[token].rank > 3
    assert unlikely, "a token that is not among the likeliest was never written"


def test_completion_log_probabilities_have_the_token_among_them(llm: LLM) -> None:
    body, (output,) = answer(
        llm,
        COMPLETIONS,
        {"prompt": "The 🌾", "logprobs": 2, "echo": True, **GREEDY, "temperature": 1.9, "seed": 5},
    )
    (choice,) = body["choices"]
    written = choice["logprobs"]
    ids = [*output.prompt_token_ids, *output.outputs[0].token_ids]
    assert len(written["tokens"]) == len(ids)
    assert written["token_logprobs"][0] is None
    assert written["top_logprobs"][0] is None
    for name, value, alternatives in list(
        zip(written["tokens"], written["token_logprobs"], written["top_logprobs"], strict=True)
    )[1:]:
        assert alternatives[name] == value, "equal as floats: clients compare them"
    whole = llm.tokenizer.decode(ids, skip_special=False)
    for token, offset in zip(ids, written["text_offset"], strict=True):
        piece = llm.tokenizer.token_bytes(token)
        if piece.isascii():
            assert whole[offset:].encode().startswith(piece)
    assert "\ufffd" in whole, "no piece of a character was broken off"


def test_nothing_is_generated_for_an_echo_alone(llm: LLM) -> None:
    asked = {"prompt": ["One penny", "Two"], "echo": True, "logprobs": 1, "max_tokens": 0}
    body, outputs = answer(llm, COMPLETIONS, asked)
    assert [choice["text"] for choice in body["choices"]] == ["One penny", "Two"]
    for choice, output in zip(body["choices"], outputs, strict=True):
        assert len(choice["logprobs"]["tokens"]) == len(output.prompt_token_ids)
        assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0


def test_tokens_by_id_and_prompt_log_probabilities_if_asked(llm: LLM) -> None:
    asked = {
        "prompt": "One penny",
        "logprobs": 1,
        "prompt_logprobs": 2,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **GREEDY,
    }
    body, (output,) = answer(llm, COMPLETIONS, asked)
    (choice,) = body["choices"]
    assert choice["token_ids"] == output.outputs[0].token_ids
    assert choice["prompt_token_ids"] == output.prompt_token_ids
    assert choice["logprobs"]["tokens"] == [f"token_id:{t}" for t in choice["token_ids"]]
    assert choice["prompt_logprobs"][0] is None
    for token, entry in zip(
        output.prompt_token_ids[1:], choice["prompt_logprobs"][1:], strict=True
    ):
        assert set(entry[str(token)]) == {"logprob", "rank", "decoded_token"}
    chat, _ = answer(llm, CHAT, {"messages": USER, "prompt_logprobs": 0, **GREEDY})
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]


def test_a_stop_string_is_told(llm: LLM) -> None:
    text = llm.generate("One", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0].text
    stop = text[4:6]
    body, _ = answer(llm, COMPLETIONS, {"prompt": "One", "stop": stop, "temperature": 0})
    (choice,) = body["choices"]
    assert choice["text"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_the_form_is_kept_to(llm: LLM) -> None:
    body, _ = answer(llm, CHAT, {"messages": USER, "guided_choice": ["farthing"], "max_tokens": 40})
    assert body["choices"][0]["message"]["content"] == "farthing"


def test_a_developers_message_is_a_systems_where_the_template_knows_none(llm: LLM) -> None:
    def ids(role: str) -> tuple[list[int], ...]:
        messages = [{"role": role, "content": "Be brief."}, *USER]
        return job_of(parse_request(CHAT, {"messages": messages}), served(llm)).prompts

    assert ids("developer") == ids("system") != ids("user")


@pytest.mark.parametrize(
    ("url", "body", "status", "code", "text"),
    [
        (CHAT, {"messages": USER, "model": "../../etc/passwd"}, 404, "model_not_found", "passwd"),
        (CHAT, {"messages": USER, "model": ""}, 404, "model_not_found", "''"),
        (
            COMPLETIONS,
            {"prompt": "penny " * 300},
            *(400, "context_length_exceeded", "This model's maximum context length is 256 tokens."),
        ),
        (
            CHAT,
            {"messages": [{"role": "user", "content": "penny " * 300}]},
            *(400, "context_length_exceeded", "However, your prompt contains "),
        ),
        (
            COMPLETIONS,
            {"prompt": "penny " * 100_000},
            *(400, "context_length_exceeded", "your prompt contains at least "),
        ),
        (
            CHAT,
            {"messages": [{"role": "user", "content": "penny " * 100_000}]},
            *(400, "context_length_exceeded", "your prompt contains at least "),
        ),
    ],
)
def test_what_this_model_cannot_answer(
    llm: LLM, url: str, body: dict[str, Any], status: int, code: str, text: str
) -> None:
    with pytest.raises(RequestError) as caught:
        job_of(parse_request(url, body), served(llm))
    assert (caught.value.status, caught.value.code) == (status, code)
    assert text in str(caught.value)


class Bytes:
    """Tokens that are pieces of characters."""

    PIECES = (b"a", b"\xe2\x82", b"\xac", b"b", b"\xe2")

    def token_bytes(self, token_id: int) -> bytes:
        return self.PIECES[token_id]

    def decode(self, ids: Any, *, skip_special: bool = True) -> str:
        return b"".join(self.PIECES[i] for i in ids).decode("utf-8", "replace")


def test_offsets_count_characters_and_equal_names_keep_the_likelier() -> None:
    entries = [{token: Logprob(-1.0 - token, 1, Bytes().decode([token]))} for token in (0, 1, 2, 3)]
    entries[1] |= {4: Logprob(-0.5, 2, "�"), 2: Logprob(-0.75, 3, "�")}
    found = completion_logprobs([0, 1, 2, 3], entries, 3, Bytes())
    assert found["text_offset"] == [0, 1, 1, 2]
    broken: list[Mapping[int, Logprob] | None] = [None] * 6
    assert completion_logprobs([0, 1, 3, 4, 1, 2], broken, 0, Bytes())["text_offset"] == [
        *(0, 1, 2, 3, 4, 4)
    ]
    assert found["top_logprobs"][1] == {"�": -2.0}, "the token's own"
    chat = chat_logprobs(entries, 0, Bytes())
    assert [each["bytes"] for each in chat["content"]] == [[97], [226, 130], [172], [98]]
    assert all(each["top_logprobs"] == [] for each in chat["content"])


def output_of(
    *answers: CompletionOutput, error: str | None = None, invalid_request: bool = False
) -> RequestOutput:
    ids = [1, 2, 3]
    return RequestOutput(
        "0", "p", ids, list(answers), True, error=error, invalid_request=invalid_request
    )


def test_several_answers_share_their_prompt(llm: LLM) -> None:
    fields = {"temperature": 1.0, "seed": 7, "n": 3, "max_tokens": 9, "ignore_eos": True}
    body, (output,) = answer(llm, CHAT, {"messages": USER, **fields})
    (expected,) = llm.chat(USER, SamplingParams(**fields))  # type: ignore[arg-type]
    texts = [completion.text for completion in expected.outputs]
    assert len(set(texts)) == 3
    assert [choice["message"]["content"] for choice in body["choices"]] == texts
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == len(output.prompt_token_ids)
    assert body["usage"]["completion_tokens"] == 27


def test_answers_to_several_prompts_are_counted_through(llm: LLM) -> None:
    fields = {"temperature": 1.0, "seed": 7, "n": 2, "max_tokens": 4, "ignore_eos": True}
    prompts = ["One penny", "Two"]
    asked = {"prompt": prompts, "echo": True, "logprobs": 1, **fields}
    body, outputs = answer(llm, COMPLETIONS, asked)
    expected = llm.generate(prompts, SamplingParams(**fields))  # type: ignore[arg-type]
    choices = body["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["text"] for choice in choices] == [
        prompt + completion.text
        for prompt, output in zip(prompts, expected, strict=True)
        for completion in output.outputs
    ]
    lengths = [len(choice["logprobs"]["tokens"]) for choice in choices]
    assert lengths == [len(o.prompt_token_ids) + 4 for o in outputs for _ in range(2)]
    assert usage(outputs)["prompt_tokens"] == sum(len(o.prompt_token_ids) for o in outputs)


def test_what_was_found_in_the_cache_is_told(llm: LLM) -> None:
    asked = {"prompt": "a prompt that was not there before " * 3, "max_tokens": 2}
    first, _ = answer(llm, COMPLETIONS, asked)
    second, _ = answer(llm, COMPLETIONS, asked)
    counts = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in (first, second)]
    assert counts[0] == 0
    assert 0 < counts[1] < second["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("output", "status", "text"),
    [
        (output_of(error="the logits are not finite"), 500, "not finite"),
        (
            output_of(CompletionOutput(0, "", [], None, None, "abort", None)),
            *(500, "the answer ended by abort"),
        ),
        (output_of(CompletionOutput(0, "", [], None, None, "timeout", None)), 504, "time"),
    ],
)
def test_a_failed_request_is_an_error_of_the_servers(
    output: RequestOutput, status: int, text: str
) -> None:
    error = refusal_of(output, text)
    assert (error.status, error.type) == (status, "server_error")


def test_what_a_request_asked_for_in_vain_is_its_own_error() -> None:
    output = output_of(error="min_tokens: no token is allowed", invalid_request=True)
    error = refusal_of(output, "no token is allowed")
    assert (error.status, error.type, error.param) == (400, "invalid_request_error", "min_tokens")


def refusal_of(output: RequestOutput, text: str) -> RequestError:
    """The error, with ``text`` in its message, in the place of a response."""
    request = parse_request(CHAT, {"messages": USER})
    with pytest.raises(RequestError, match=text) as caught:
        chat_response(
            request,  # type: ignore[arg-type]
            output,
            response_id="x",
            created=1,
            model="m",
            texts=Bytes(),
            system_fingerprint=None,
        )
    return caught.value
