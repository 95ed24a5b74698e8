"""Tokens of texts and conversations, and back."""

from __future__ import annotations

from typing import Any

import pytest

from farthing import LLM
from support.served import Served

TEXT = "Über 12 farthings 🌾<|im_end|>"
USER = [{"role": "user", "content": "What is a farthing?"}]


def test_a_text_is_tokenized_as_a_prompt_is(served: Served, llm: LLM) -> None:
    found = served.answer("/tokenize", {"prompt": TEXT, "return_token_strs": True})
    ids = llm.encoder.encode(TEXT)
    assert found["tokens"] == ids
    assert found["token_strs"] == [llm.tokenizer.id_to_token(token) for token in ids]
    assert (found["count"], found["max_model_len"]) == (len(ids), 256)
    assert served.answer("/detokenize", {"tokens": ids}) == {"prompt": TEXT}


def test_special_tokens_are_left_out_where_asked(served: Served, llm: LLM) -> None:
    found = served.answer("/tokenize", {"prompt": "a", "add_special_tokens": False})
    assert found["tokens"] == llm.encoder.encode("a", add_special_tokens=False)
    assert "token_strs" not in found


def test_a_conversation_is_tokenized_as_it_is_answered(served: Served, llm: LLM) -> None:
    found = served.answer("/tokenize", {"messages": USER})
    assert found["tokens"] == llm.encode_chat(USER)
    closed = served.answer("/tokenize", {"messages": USER, "add_generation_prompt": False})
    assert closed["tokens"] == llm.encode_chat(USER, add_generation_prompt=False)


def test_any_number_of_tokens_is_counted(served: Served) -> None:
    assert served.answer("/tokenize", {"prompt": "penny " * 5000})["count"] >= 5000


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": USER}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": [{"role": "pirate", "content": "a"}]}, "messages[0].role"),
        ("/tokenize", {"messages": USER, "chat_template": "{{ 1 }}"}, "chat_template"),
        ("/tokenize", {"messages": USER, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": USER, "chat_template_kwargs": {"tokenize": 1}}, None),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10_000]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_what_cannot_be_tokenized_is_400(
    served: Served, path: str, body: dict[str, Any], param: str | None
) -> None:
    response = served.post(path, body)
    assert response.status_code == 400
    if param is not None:
        assert response.json()["error"]["param"] == param


def test_another_models_tokens_are_404(served: Served) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})):
        assert served.post(path, {"model": "other", **body}).status_code == 404


def test_clients_need_no_tokenizer_of_their_own(served: Served, llm: LLM) -> None:
    info = served.client.get("/tokenizer_info").json()
    assert info["eos_token"] == llm.tokenizer.eos_token
    assert info["bos_token"] == llm.tokenizer.bos_token
    assert info["pad_token"] is None
    assert info["chat_template"] == llm.chat_template.source
    assert isinstance(info["tokenizer_class"], str)
