"""``LLM.chat`` and its template: tools, variables, another template, messages that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.errors import ChatTemplateError
from support.tiny_models import make_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think></think>{% endif %}{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "Flour?"}]
OPEN = [*ASKED, {"role": "assistant", "content": "A penny for"}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    directory: Path = make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return LLM(directory, num_threads=1)


def text(llm: LLM, messages: Any, **options: Any) -> str:
    return llm.tokenizer.decode(llm.encode_chat(messages, **options), skip_special=False)


QUESTION = "<|im_start|>user\nFlour?<|im_end|>\n"
BEGUN = "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        (ASKED, {}, QUESTION + BEGUN),
        (ASKED, {"add_generation_prompt": False}, QUESTION),
        (ASKED, {"add_generation_prompt": True}, QUESTION + BEGUN),
        (
            ASKED,
            {"chat_template_kwargs": {"enable_thinking": False}},
            QUESTION + BEGUN + "<think></think>",
        ),
        (ASKED, {"chat_template_kwargs": {"enable_thinking": True}}, QUESTION + BEGUN),
        (OPEN, {"continue_final_message": True}, QUESTION + BEGUN + "A penny for"),
        (
            OPEN,
            {"continue_final_message": True, "add_generation_prompt": False},
            QUESTION + BEGUN + "A penny for",
        ),
        (ASKED, {"chat_template": "{{ messages[0].content }}!"}, "Flour?!"),
        (ASKED, {"tools": []}, QUESTION + BEGUN),
        (ASKED, {"chat_template_kwargs": {"self": 1, "template": 2}}, QUESTION + BEGUN),
    ],
)
def test_a_conversation_is_written_as_asked(
    llm: LLM, messages: Any, options: dict[str, Any], expected: str
) -> None:
    assert text(llm, messages, **options) == expected


def test_tools_reach_the_template_as_they_are(llm: LLM) -> None:
    shown = text(llm, ASKED, tools=TOOLS)
    tools = '{"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}'
    assert shown == f"[{tools}]\n{QUESTION}{BEGUN}"


def test_chat_and_its_stream_take_all_of_it(llm: LLM) -> None:
    options: dict[str, Any] = {
        "tools": TOOLS,
        "chat_template": TEMPLATE.replace("user", "reader"),
        "chat_template_kwargs": {"enable_thinking": False},
        "continue_final_message": True,
    }
    ids = llm.encode_chat(OPEN, **options)
    assert ids != llm.encode_chat(OPEN, **options | {"tools": None})
    expected = llm.generate([ids], GREEDY)[0].outputs[0]
    (whole,) = llm.chat(OPEN, GREEDY, **options)
    assert whole.prompt_token_ids == ids
    assert whole.outputs[0].token_ids == expected.token_ids
    streamed = [t for chunk in llm.chat_stream(OPEN, GREEDY, **options) for t in chunk.token_ids]
    assert streamed == list(expected.token_ids)
    assert llm.count_chat_tokens(OPEN, **options) == len(ids)


def test_conversations_of_a_batch_share_tools(llm: LLM) -> None:
    outputs = llm.chat([ASKED, OPEN], GREEDY, tools=TOOLS)
    assert [o.prompt_token_ids for o in outputs] == [
        llm.encode_chat(messages, tools=TOOLS) for messages in (ASKED, OPEN)
    ]


def test_another_template_leaves_the_models_own(llm: LLM) -> None:
    before = llm.encode_chat(ASKED)
    for source in ("a{{ messages[0].content }}", "b{{ messages[0].content }}"):
        assert text(llm, ASKED, chat_template=source) == f"{source[0]}Flour?"
    assert llm.encode_chat(ASKED) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chat_template_kwargs": {"messages": []}}, "'messages' is not a further variable"),
        ({"chat_template_kwargs": {"tools": []}}, "'tools' is not a further variable"),
        ({"chat_template_kwargs": {"add_generation_prompt": True}}, "'add_generation_prompt' is"),
        ({"chat_template_kwargs": {"a b": 2}}, "'a b' is not a further variable"),
        ({"chat_template_kwargs": {3: 4}}, "'3' is not a further variable"),
        ({"chat_template_kwargs": ["x"]}, "variables of a chat template are a list, not a dict"),
        ({"tools": [len]}, r"tools\[0\] is a builtin_function_or_method, not a dict like"),
        ({"chat_template": "{% for %}"}, "the chat template fails"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "choose one"),
    ],
)
def test_what_a_template_cannot_take_is_named(
    llm: LLM, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        llm.chat(OPEN, GREEDY, **options)


def test_an_argument_that_is_none_of_these_is_a_type_error(llm: LLM) -> None:
    with pytest.raises(TypeError, match="enable_thinking"):
        llm.chat(ASKED, GREEDY, enable_thinking=False)  # type: ignore[call-arg]
