"""What clients write in several ways, and what a template gets of it; messages that go on."""

from __future__ import annotations

from typing import Any

import pytest

from farthing.errors import ChatTemplateError
from farthing.tokenization import ChatTemplate
from farthing.tokenization.messages import possible_forms

CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"a": "\u00e9"}}}]


def rendered(source: str, messages: Any, **options: Any) -> str:
    return "".join(segment.text for segment in ChatTemplate(source).render(messages, **options))


def assistant(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", **fields}]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{ messages[0].content is defined }}", "False"),
        ("{% if messages[0]['content'] is none %}none{% endif %}", "none"),
        ("{% set content = messages[0].content %}{{ content is none }}", "True"),
        ("[{{ '' + messages[0].content }}]", "[]"),
        ("[{{ messages[0].content | tojson }}]", '[""]'),
        ("{{ tools is none }}[{{ messages[0].content }}]", "True[]"),
    ],
)
def test_null_content_is_what_the_template_can_take(source: str, shown: str) -> None:
    assert rendered(source, assistant(content=None)) == shown


def test_a_template_that_asks_and_cannot_take_none_gets_no_content() -> None:
    source = (
        "{% if messages[0].content is not none or messages[0].content | length > 0 %}"
        "some{% else %}none{% endif %}"
    )
    assert rendered(source, assistant(content=None)) == "some"
    assert rendered(source, assistant(content="x")) == "some"


def test_other_keys_without_a_value_count_as_absent() -> None:
    source = "{{ messages[0].tool_calls is defined }}{{ messages[0].name is none }}"
    assert rendered(source, assistant(content="x", tool_calls=None, name=None)) == "FalseFalse"


@pytest.mark.parametrize("arguments", ['{"a": "\u00e9"}', {"a": "\u00e9"}])
def test_arguments_are_an_object_or_text_as_the_template_needs(arguments: Any) -> None:
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    messages = assistant(content="", tool_calls=calls)
    as_object = "{{ messages[0].tool_calls[0].function.arguments.a }}"
    as_text = "{{ '>' + messages[0].tool_calls[0].function.arguments }}"
    assert rendered(as_object, messages) == "\u00e9"
    assert rendered(as_text, messages) == '>{"a": "\u00e9"}'


def test_the_first_failure_is_told() -> None:
    source = "{{ messages[0].content.first.second }}"
    with pytest.raises(ChatTemplateError, match="no attribute 'content'") as caught:
        rendered(source, assistant(content=None, tool_calls=CALLS))
    assert "\n" not in str(caught.value)


def test_a_refusal_of_the_template_is_not_tried_again() -> None:
    source = "{{ raise_exception(messages[0].content is none) }}"
    with pytest.raises(ChatTemplateError, match="refuses these messages: True"):
        rendered(source, assistant(content=None, tool_calls=CALLS))


def test_only_messages_that_need_it_have_several_forms() -> None:
    assert len(possible_forms(assistant(content="x"), asks_for_none=True)) == 1
    assert len(possible_forms(assistant(content=None), asks_for_none=False)) == 2
    assert len(possible_forms(assistant(content=None), asks_for_none=True)) == 3
    both = assistant(content=None, tool_calls=CALLS)
    forms = possible_forms(both, asks_for_none=True)
    assert [(form.null_content, form.arguments) for form in forms[:3]] == [
        ("none", "object"),
        ("none", "text"),
        ("absent", "object"),
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_has_the_names_that_templates_read(name: str) -> None:
    source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"
    assert rendered(source, assistant(content="x", **{name: "why"})) == "why|why"
    assert rendered(source, assistant(content="x", **{name: None})) == "|"


def test_tools_that_are_no_dict_are_told_with_what_is_wanted() -> None:
    with pytest.raises(ChatTemplateError, match=r'tools\[1\] is a function.*"type": "function"'):
        rendered("x", [], tools=[{"type": "function"}, lambda: None])
    assert rendered("{{ tools is none }}", [], tools=[]) == "True"


TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
TRIMMED = TURNS.replace("m.content", "m.content | trim")
OPEN = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "one, two, "}]


@pytest.fixture(scope="module")
def transformers_tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models

    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))


@pytest.mark.parametrize("source", [TURNS, TRIMMED], ids=["as it is", "trimmed"])
@pytest.mark.parametrize("content", ["one, two,", "one, two, ", "  one ", "one\n"])
def test_a_continued_message_ends_the_text_as_in_transformers(
    transformers_tokenizer: Any, source: str, content: str
) -> None:
    messages = [OPEN[0], {"role": "assistant", "content": content}]
    expected = transformers_tokenizer.apply_chat_template(
        messages, chat_template=source, tokenize=False, continue_final_message=True
    )
    assert rendered(source, messages, continue_final_message=True) == expected


def test_a_continued_message_may_be_in_parts() -> None:
    source = "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}."
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}, {"type": "image"}]
    messages = assistant(content=parts)
    assert rendered(source, messages, continue_final_message=True) == "[a][b "


def test_a_continued_message_stays_content() -> None:
    segments = ChatTemplate(TURNS).render(OPEN, continue_final_message=True)
    assert segments[-2:] == [("</user>\n<assistant>", True), ("one, two, ", False)]


def test_a_continued_message_begins_no_other() -> None:
    source = TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}"
    assert rendered(source, OPEN, continue_final_message=True).endswith("one, two, ")
    assert rendered(source, OPEN).endswith("</assistant>\n<assistant>")
    assert rendered(source, OPEN, add_generation_prompt=False).endswith("</assistant>\n")
    with pytest.raises(ChatTemplateError, match="choose one"):
        rendered(source, OPEN, continue_final_message=True, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "messages", "message"),
    [
        (TURNS, [], "has no text to continue"),
        (TURNS, assistant(content=None), "has no text to continue"),
        (TURNS, assistant(content=[{"type": "image"}]), "has no text to continue"),
        ("{{ messages[0].content[:3] }}", assistant(content="abcdef"), "does not print the end"),
    ],
)
def test_what_cannot_be_continued_is_told(source: str, messages: Any, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        rendered(source, messages, continue_final_message=True)


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ '[' + messages[0].content + ']' }}",
        "[{{ messages[0].content }}]",
        "[{{ messages[0]['content'] | trim }}]",
        "[{% set content = messages[0].content %}{{ content }}]",
    ],
)
def test_parts_are_one_text_for_a_template_that_does_not_go_through_them(source: str) -> None:
    assert rendered(source, assistant(content=PARTS)) == "[a\nb]"
    assert rendered(source, assistant(content=PARTS)) == rendered(source, assistant(content="a\nb"))


@pytest.mark.parametrize(
    "loop",
    [
        "{% for part in messages[0].content %}[{{ part.text }}]{% endfor %}",
        "{% for part in messages[0]['content'] %}[{{ part['text'] }}]{% endfor %}",
        "{% set c = messages[0].get('content') %}{% for part in c %}[{{ part.text }}]{% endfor %}",
        "{% set content = messages[0].content %}{% for part in content if part.text %}"
        "[{{ part.text }}]{% endfor %}",
    ],
)
def test_parts_are_parts_for_a_template_that_goes_through_them(loop: str) -> None:
    assert rendered(loop, assistant(content=PARTS)) == "[a][b]"


def test_no_control_token_comes_from_parts() -> None:
    parts = [{"type": "text", "text": "<|im_end|>"}, {"type": "text", "text": "x"}]
    segments = ChatTemplate("<|im_start|>{{ messages[0].content }}").render(
        assistant(content=parts)
    )
    assert segments == [
        ("<|im_start|>", True),
        ("<|im_end|>\nx", False),
    ]


def test_a_message_in_parts_can_be_continued() -> None:
    source = "{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}"
    shown = rendered(source, assistant(content=PARTS), continue_final_message=True)
    assert shown == "<a\nb"
