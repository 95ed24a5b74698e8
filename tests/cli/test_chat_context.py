"""``farthing chat`` when a conversation fills the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from farthing import LLM, CompletionOutput, SamplingParams
from support.chat_terminal import (
    ENTER,
    NUMBERS,
    PROMPT,
    Talk,
    messages,
    save,
)


def test_a_full_context_offers_to_drop_the_oldest_turns(talk: Talk, tmp_path: Path) -> None:
    with talk("--system", "Be brief.", "--max-model-len", "96") as terminal:
        terminal.type("/set max_tokens 1" + ENTER)
        terminal.expect(PROMPT)
        full = r"The context of 96 tokens is full\. Drop the oldest (\d+) messages and "
        for _ in range(12):
            terminal.type("a penny for your thoughts" + ENTER)
            if terminal.expect(rf"{full}|{NUMBERS}").group().startswith("The"):
                break
            terminal.expect(PROMPT)
        else:
            pytest.fail("the context never was full")
        terminal.expect(r"\[Y/n\]")
        terminal.type(ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
        terminal.type("/system" + ENTER)
        terminal.expect(r"Be brief\.")
    said = messages(tmp_path / "talk.json")
    assert [role for role, _ in said[:2]] == ["user", "assistant"]
    assert 2 <= len(said) < 24


def test_an_answer_that_fills_the_context_is_made_again_after_dropping(
    talk: Talk, tmp_path: Path, tiny_model: str
) -> None:
    small = LLM(tiny_model, num_threads=1, max_model_len=64)

    def reply(asked: list[dict[str, str]], max_tokens: int) -> CompletionOutput:
        params = SamplingParams(temperature=0, max_tokens=max_tokens)
        return small.chat(asked, params)[0].outputs[0]

    first = [{"role": "user", "content": "a penny"}]
    said = [*first, {"role": "assistant", "content": reply(first, 8).text}]

    def fills(question: str) -> bool:
        asked = {"role": "user", "content": question}
        answers = [reply([*said, asked], 1000), reply([asked], 1000)]
        return all(answer.finish_reason == "length" and answer.text for answer in answers)

    question = next(word for word in ("go on", "and then", "why", "tell", "so") if fills(word))
    again = reply([{"role": "user", "content": question}], 1000).text
    with talk("--max-model-len", "64") as terminal:
        terminal.type("a penny" + ENTER)
        terminal.expect(NUMBERS)
        terminal.expect(PROMPT)
        terminal.type("/set max_tokens 1000" + ENTER)
        terminal.expect(PROMPT)
        terminal.type(question + ENTER)
        terminal.expect("the context is full")
        terminal.expect("Drop the oldest 2 messages and answer again")
        terminal.expect(r"\[Y/n\]")
        terminal.type(ENTER)
        terminal.expect("the context is full")
        terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
    assert messages(tmp_path / "talk.json") == [("user", question), ("assistant", again)]


def test_who_declines_is_told_how_long_the_prompt_is(talk: Talk, tmp_path: Path, llm: LLM) -> None:
    question = "bread and butter and a penny"
    alone = llm.count_chat_tokens([{"role": "user", "content": question}])
    context = alone * 4 // 3 + 4  # dropping helps
    with talk("--max-model-len", str(context)) as terminal:
        for _ in range(2):
            terminal.type(question + ENTER)
            if "full" in terminal.expect(rf"is full\. Drop the oldest 2|{NUMBERS}").group():
                break
            terminal.expect(PROMPT)
        else:
            pytest.fail("the context never was full")
        terminal.expect(r"\[Y/n\]")
        terminal.type("n" + ENTER)
        terminal.expect(f"farthing: error: .*{context}")
        terminal.expect(PROMPT)
        save(terminal, tmp_path / "talk.json")
    assert len(messages(tmp_path / "talk.json")) == 2


def test_a_question_of_nearly_the_whole_context_drops_what_is_before_it(
    talk: Talk, llm: LLM
) -> None:
    question = "bread and butter and a penny"
    context = llm.count_chat_tokens([{"role": "user", "content": question}]) + 4
    assert context - 4 > context * 3 // 4
    with talk("--max-model-len", str(context)) as terminal:
        terminal.type(question + ENTER)
        terminal.expect(r"the context is\s+full")
        terminal.expect(PROMPT)
        terminal.type(question + ENTER)
        terminal.expect(r"Drop the oldest 2\s+messages\s+and\s+go\s+on\?\s+\[Y/n\]")
        terminal.type(ENTER)
        terminal.expect(NUMBERS)
